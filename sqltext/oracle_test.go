package sqltext

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	pg_query "github.com/pganalyze/pg_query_go/v6"
	"pgregory.net/rapid"
)

// expected builds the normalised text from the tokens that PostgreSQL's own lexer finds.
// ok is false where its lexer fails.
func expected(sql string) (text string, literals []Literal, ok bool) {
	scan, err := pg_query.Scan(sql)
	if err != nil {
		return "", nil, false
	}
	var out strings.Builder
	last := 0
	for _, t := range scan.Tokens {
		if t.Token == pg_query.Token_SQL_COMMENT || t.Token == pg_query.Token_C_COMMENT {
			continue
		}
		start, end := int(t.Start), int(t.End)
		if start > last && out.Len() > 0 {
			out.WriteByte(' ')
		}
		last = end
		word := sql[start:end]
		letter := ""
		switch t.Token {
		case pg_query.Token_ICONST:
			letter = "i"
			if inFloat([]byte(out.String())) {
				out.WriteString(word)
				continue
			}
		case pg_query.Token_FCONST:
			letter = "d"
			if integerText(word) {
				letter = "l"
			}
		case pg_query.Token_SCONST, pg_query.Token_USCONST:
			letter = "s"
		case pg_query.Token_BCONST, pg_query.Token_XCONST:
			letter = "b"
		case pg_query.Token_UIDENT:
			out.WriteString("u" + word[1:])
			continue
		case pg_query.Token_IDENT:
			if word[0] == '"' {
				out.WriteString(word)
				continue
			}
		}
		if letter == "" {
			out.WriteString(asciiLower(word))
			continue
		}
		out.WriteString("\x01" + letter)
		literals = append(literals, Literal{Start: start, End: end})
	}
	return out.String(), literals, true
}

func asciiLower(s string) string { return string(appendLower(nil, s)) }

// integerText reports whether a number that is too large for integer is a bigint.
func integerText(word string) bool {
	word = strings.ReplaceAll(word, "_", "")
	var v, base uint64
	var digits string
	switch {
	case len(word) > 2 && strings.ContainsAny(word[1:2], "xXoObB"):
		digits, base = word[2:], map[byte]uint64{'x': 16, 'o': 8, 'b': 2}[word[1]|0x20]
	case strings.ContainsAny(word, ".eE"):
		return false
	default:
		digits, base = word, 10
	}
	for _, c := range []byte(digits) {
		d := uint64(strings.IndexByte("0123456789abcdef", c|0x20))
		if c < 'A' {
			d = uint64(c - '0')
		}
		if v > (1<<63-1-d)/base {
			return false
		}
		v = v*base + d
	}
	return true
}

// The oracle's lexer is patched in two places. It returns comments as tokens and so does not see
// that a string goes on after one, and it lets names follow $1.
var (
	commentInString = regexp.MustCompile(`'\s*--`)
	paramJunk       = regexp.MustCompile(`\$[0-9]+[A-Za-z_\x{80}-\x{10ffff}]`)
)

// checkAgainstLexer compares Normalize with PostgreSQL's lexer. Normalize may refuse more than
// the lexer does, but nothing that the parser accepts, except escapes it does not judge.
func checkAgainstLexer(t interface{ Fatalf(string, ...any) }, sql string) {
	if strings.IndexByte(sql, 0) >= 0 {
		return // the oracle reads C strings
	}
	if commentInString.MatchString(sql) || paramJunk.MatchString(sql) {
		return
	}
	var n Normalized
	got := Normalize(&n, sql, true)
	want, literals, ok := expected(sql)
	if got && !ok {
		t.Fatalf("%q: accepted, PostgreSQL's lexer fails", sql)
	}
	if !got {
		if _, err := pg_query.Parse(sql); err == nil && !strings.Contains(sql, `\`) && !strings.Contains(strings.ToLower(sql), "u&") {
			t.Fatalf("%q: refused, but it parses", sql)
		}
		return
	}
	if string(n.Text) != want {
		t.Fatalf("%q:\n got %q\nwant %q", sql, n.Text, want)
	}
	if len(literals) != len(n.Literals) {
		t.Fatalf("%q: %d literals, want %d", sql, len(n.Literals), len(literals))
	}
	for i, l := range n.Literals {
		if l.Start != literals[i].Start || l.End != literals[i].End {
			t.Fatalf("%q: literal %d at %d:%d, want %d:%d", sql, i, l.Start, l.End, literals[i].Start, literals[i].End)
		}
	}
}

var nasty = []string{
	"", " ", ";", "1", "1a", "select 1", "SELECT  1 ", "select\t1--x", "select 1/*a/*b*/c*/+2", "select /* a", "select 1 /* /* */",
	"select 'a' 'b'", "select 'a'\n'b'", "select 'a' -- x\n 'b'", "select 'a' -- x\n -- y\n\t'b'", "select 'a'\n-- y",
	"select 'a' /* x */\n'b'", "select 'a'\n/* x */'b'", "select 'a'-\n'b'", "select 'a'\r'b'", "select 'a''b'\n'c''d'",
	`select E'a\'b'`, `select E'a\\'`, `select e'\x41\101\u0041\U00000041'`, `select E'\u004'`, `select E'\xg'`, `select E'\`,
	`select E'\ud83d\ude00'`, `select E'\377'`, "select E'\\\xa2'", `select E'\é'`, `select E'\0'`, "select E'a\\\n'", `select 'a\'`, `select 'a\''`, `select E'a'` + "\n" + `'\''`,
	"select B'01'", "select b'01'\n'10'", "select B'01''10'", "select X'1F'", "select xB'01'", "select N'abc'", "select n 'abc'", "select NN'abc'",
	`select U&'d\0061t'`, `select u&'abc'`, `select U&'d!0061' UESCAPE '!'`, `select U&"d\0061t"`, `select U&"d!0061t" uescape '!'`,
	"select u & 'abc'", "select u&a", `select U&""`, `select ""`, `select """"`, `select "a""b"`, `select "a`, `select "A b"."C"`,
	"select $$a$$", "select $a$ $b$ $$ $a$", "select $a$ $b$a$", "select $a$x$A$x$a$", "select $1", "select $1a", "select $1$2", "select $12+$3", "select $",
	"select $a", "select a$b$c", "select $é$x$é$", "select $a$", "select 1$a$b$a$", "select $1_0", "select $1$$x$$",
	"select 1.5, .5, 5., 1e5, 1.e5, .5e-5, 1E+5", "select 1..2", "select 1...2", "select 1.5.3", "select 5e", "select 5e+", "select 1a", "select 1.a", "select 1.5a",
	"select 0x1F, 0o17, 0b11, 0X1f", "select 0x", "select 0xg", "select 0x1g", "select 0x1$", "select 1e5$", "select 1e+5$", "select 1$", "select 1e$",
	"select 1_000, 1_0.0_1, 1e1_0, 0x_ff", "select 1__0", "select 1_", "select 1_a", "select 0b12", "select 0o8", "select 0x1.5", "select 0x1..2", "select 1_.5", "select 1_0$0", "select 1.5_0$", "select 1_0.5$", "select 1e+5_0$", "select 1_0e+5$", "select 1._5",
	"select 2147483647, 2147483648, 9223372036854775807, 9223372036854775808, 0x7fffffff, 0x80000000, 0x7fffffffffffffff, 0x8000000000000000",
	"select 00000000000000000000001, 0_0_0_0_0_0_0_0_0_1, 99999999999999999999999999", "select 1e400",
	"select a+-1", "select a<-1", "select a<--1\n2", "select a@-1", "select a@- 1", "select a*/*x*/b", "select a+/*x*/-b", "select a/*x*/b", "select a--\nb",
	"select a||b", "select a->>'b'", "select a ? 'b'", "select a ?| b", "select 1::int", "select 1: :int", "select a[1:2]", "select f(a:=1,b=>2)", "select a<>b,a!=b",
	"select 1 as É", "select \"é\" from ä", "select 'é\x01i'", "select \"a\x01i\"", "select \x01i", "select {1}", `select \d`, "select a\vb", "select a\fb",
	"select interval '1 day', interval(3) '1', date '2020-01-01', float(3) '1'", "select 1::float(24), 1::float(25), 1::FLOAT ( 53 )", "select myfloat(24)", "select \"float\"(24)",
	"select TRUE, Null, false", "select -1, - 1, +1", "select 'x'a", "select 'a'::text", "select 1 limit 1", "select a.1", "select a.*", "select a. b",
	"insert into t values (1,'a',NULL,DEFAULT,1.5)", "select '" + strings.Repeat("x", 200) + "'", "select 1 " + strings.Repeat("<", 63) + " 2", "select 1 " + strings.Repeat("<", 64) + " 2",
}

func TestNormalizeAgainstLexer(t *testing.T) {
	for _, sql := range nasty {
		t.Run(sql, func(t *testing.T) { checkAgainstLexer(t, sql) })
	}
}

func pieces() *rapid.Generator[string] {
	fixed := strings.Split("select|SELECT|Select|from|a|b$1|e|E|b|B|x|X|n|N|u|U|u&|U&|uescape|float|float(|'|''|'a'|\"|\"A\"|\"a\"|E'|B'|X'|N'|U&'|U&\"|"+
		"$|$$|$a$|$b$|$1|$23|0|1|10|0x|0b1|0o7|_|.|..|1.|.5|1e|e5|1e5|+|-|--|/*|*/|/|*|<|>|=|!|@|~|?|&|:|::|:=|,|(|)|[|]|;|\\|\\'|\\x41|\\101|\\u0041|"+
		"{|é|\x01|\x01i|2147483647|2147483648|9223372036854775808| | |  |\t|\n|\r|\v|\n'|where|begin|atomic|end|;;", "|")
	fixed = append(fixed, "|")
	return rapid.SampledFrom(fixed)
}

func soup() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(pieces(), 0, 12).Draw(t, "pieces"), "")
	})
}

func TestNormalizeSoup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkAgainstLexer(t, soup().Draw(t, "sql")) })
}

// TestEscapesWithoutStandardStrings reads '..' with standard_conforming_strings off as the same
// string with an E before it.
func TestEscapesWithoutStandardStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{`\`, `'`, `''`, "a", "\n", "\n'", " ", "--", `\x4`, `\7`, `\u00e9`}), 0, 8).Draw(t, "body"), "")
		var on, off Normalized
		want := Normalize(&on, "select E'"+body+"' ,1", true)
		if strings.Contains(strings.TrimSuffix(body, "'"), " '") {
			t.Skip("a second string begins, whose escapes differ")
		}
		got := Normalize(&off, "select '"+body+"' ,1", false)
		if got != want || got && len(on.Literals) == 2 && string(on.Text) != string(off.Text) {
			if len(on.Literals) > 2 || len(off.Literals) > 2 {
				t.Skip("several strings, whose escapes differ")
			}
			t.Fatalf("%q: %v %q, with E %v %q", body, got, off.Text, want, on.Text)
		}
	})
}

func FuzzNormalize(f *testing.F) {
	for _, sql := range nasty {
		f.Add(sql)
	}
	f.Fuzz(func(t *testing.T, sql string) { checkAgainstLexer(t, sql) })
}

func ExampleNormalize() {
	var n Normalized
	Normalize(&n, "SELECT * FROM T /* all */ WHERE id = 42 AND name='x'", true)
	fmt.Printf("%q %d literals\n", n.Text, len(n.Literals))
	// Output: "select * from t where id = \x01i and name=\x01s" 2 literals
}
