package sqltext

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	pg_query "github.com/pganalyze/pg_query_go/v6"
	"pgregory.net/rapid"
)

// templates have a blank between tokens; @i, @l, @d, @s and @b stand for literals of a class.
var templates = []string{
	"SELECT * FROM t WHERE id = @i",
	"SELECT * FROM t WHERE id = @l AND x > @d",
	"SELECT a , sum ( b ) FROM t AS u WHERE a IN ( @i , @i , @i ) GROUP BY 1 ORDER BY 2 LIMIT @i OFFSET @i",
	"SELECT CAST ( @s AS varchar ( @i ) ) , @s :: numeric ( @i , @i ) , interval @s , date @s",
	"SELECT CASE WHEN a LIKE @s ESCAPE @s THEN @b ELSE N@s END FROM \"T\" WHERE b IS NULL OR c IS NOT TRUE",
	"INSERT INTO t ( a , b ) VALUES ( @i , @s ) , ( - @i , DEFAULT ) ON CONFLICT ( a ) DO UPDATE SET b = excluded.b || @s RETURNING *",
	"UPDATE t SET a = a + @i , b = @s WHERE c BETWEEN @d AND @d",
	"DELETE FROM ONLY t USING u WHERE t.a = u.a AND u.b = ANY ( ARRAY [ @i , @i ] )",
	"WITH x AS MATERIALIZED ( SELECT @i AS n ) SELECT extract ( @s FROM now ( ) ) , x.n FROM x , generate_series ( @i , @i ) g ( v ) WHERE v @> @s",
	"SELECT a -> @s ->> @s FROM t TABLESAMPLE system ( @d ) WHERE a ? @s AND b [ @i : @i ] = $1 FOR UPDATE",
	"SELECT 1.5 :: float ( 24 ) , 1.5 :: float ( 25 ) , float ( 30 ) @s",
	"SELECT U&@u , U&\"d\\0061t\" FROM t",
}

func literalOf(t *rapid.T, class byte) string {
	var from []string
	switch class {
	case 'i':
		from = []string{"0", "1", "007", "2147483647", "0x1F", "1_000", "0b1", "99"}
	case 'l':
		from = []string{"2147483648", "9223372036854775807", "0x80000000", "3_000_000_000"}
	case 'd':
		from = []string{"1.5", ".5", "5.", "1e5", "9223372036854775808", "1_0.0_1e-3"}
	case 's':
		from = []string{"''", "'a'", "'it''s'", "'a'\n'b'", "'-- no'", "'/* no'", "'é'"}
	case 'u':
		from = []string{"'a'", "''", "'b''c'"}
	case 'b':
		from = []string{"B'01'", "x'1F'", "b''"}
	}
	return rapid.SampledFrom(from).Draw(t, "literal")
}

func render(t *rapid.T, template string) string {
	var out strings.Builder
	for i, word := range strings.Split(template, " ") {
		if i > 0 {
			out.WriteString(rapid.SampledFrom([]string{" ", "  ", "\n", "\t", "/* c */", " -- x\n ", " /* a /* b */ ' */ "}).Draw(t, "blank"))
		}
		at := strings.IndexByte(word, '@')
		switch {
		case at >= 0 && at+2 == len(word) && word[at+1] != '>':
			word = word[:at] + literalOf(t, word[at+1])
		case strings.IndexByte(word, '"') < 0 && rapid.Bool().Draw(t, "fold"):
			word = asciiLower(word)
		}
		out.WriteString(word)
	}
	return out.String()
}

// shape is the parse tree without locations and without the values of constants.
func shape(t interface{ Fatalf(string, ...any) }, sql string) any {
	text, err := pg_query.ParseToJSON(sql)
	if err != nil {
		t.Fatalf("%q: %v", sql, err)
	}
	var tree any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%q: %v", sql, err)
	}
	return mask(tree, false)
}

func mask(node any, constant bool) any {
	switch node := node.(type) {
	case []any:
		for i := range node {
			node[i] = mask(node[i], false)
		}
	case map[string]any:
		for name, child := range node {
			switch {
			case strings.HasSuffix(name, "location") || name == "stmt_len":
				delete(node, name)
			case constant && name != "isnull" && name != "boolval":
				node[name] = "value"
			default:
				node[name] = mask(child, name == "A_Const")
			}
		}
	}
	return node
}

func TestSameTextSameTree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		template := rapid.SampledFrom(templates).Draw(t, "template")
		one, two := render(t, template), render(t, template)
		var a, b Normalized
		if !Normalize(&a, one, true) || !Normalize(&b, two, true) {
			t.Fatalf("refused %q or %q", one, two)
		}
		if string(a.Text) != string(b.Text) {
			t.Fatalf("texts differ:\n%q\n%q", a.Text, b.Text)
		}
		if !reflect.DeepEqual(shape(t, one), shape(t, two)) {
			t.Fatalf("%q: trees differ for\n%q\n%q", a.Text, one, two)
		}
	})
}

// TestDifferentTreesDifferentTexts holds pairs that a careless scanner would merge.
func TestDifferentTreesDifferentTexts(t *testing.T) {
	pairs := [][2]string{
		{"select 1", "select 1.0"},
		{"select 1", "select 2147483648"},
		{"select 2147483648", "select 9223372036854775808"},
		{"select '1'", "select 1"},
		{"select n'1'", "select n '1'"},
		{"select b'1'", "select '1'"},
		{"select 1::float(24)", "select 1::float(25)"},
		{"select 1::FLOAT /* x */ ( /* y */ 24)", "select 1::FLOAT /* x */ ( /* y */ 25)"},
		{"select a", `select "a"`},
		{"select a b", "select ab"},
		{"select a/**/b", "select ab"},
		{"select 1/**/2", "select 12"},
		{"select 1 -- 2", "select 1 - - 2"},
		{"select a. b", "select a.b.c"},
		{"select true", "select false"},
		{"select $1", "select $2"},
		{"select \"a\x01i\"", "select \"a1\""},
	}
	var a, b Normalized
	for _, p := range pairs {
		if !Normalize(&a, p[0], true) || !Normalize(&b, p[1], true) {
			t.Fatalf("refused %q", p)
		}
		if string(a.Text) == string(b.Text) {
			t.Errorf("%q and %q are both %q", p[0], p[1], a.Text)
		}
	}
}

func TestNormalizeRefuses(t *testing.T) {
	for _, sql := range []string{
		"select 'a", `select "a`, "select $$a", "select /* a", "select 1a", "select 0x", `select ""`, "select $1a", "select #\x00",
		"select 'a\x00b'", `select E'\u00'`, `select E'\377'`, "select E'\\\xa2'", `select U&'a' uescape '!'`, `select U&"a" /* x */ UESCAPE '!'`, `select U&'\zzzz'`, "select $", "select {",
	} {
		var n Normalized
		if Normalize(&n, sql, true) {
			t.Errorf("%q: accepted as %q", sql, n.Text)
		}
	}
	var n Normalized
	if Normalize(&n, "select U&'a'", false) {
		t.Error("U&'..' accepted with standard_conforming_strings off")
	}
	sql := []byte(`select 'a\' , 'b'`)
	if !Normalize(&n, sql, true) || len(n.Literals) != 2 || Normalize(&n, sql, false) {
		t.Errorf("%q: standard_conforming_strings is not obeyed", sql)
	}
}

func TestStringGoesOnAfterLineComment(t *testing.T) {
	var n Normalized
	sql := "select 'a' -- x\n -- y\n 'b', 1"
	if !Normalize(&n, sql, true) || len(n.Literals) != 2 {
		t.Fatalf("%q: %q", sql, n.Text)
	}
	if v, ok := n.Literals[0].Value([]byte(sql), nil); !ok || string(v) != "ab" {
		t.Errorf("value %q %v", v, ok)
	}
}
