package sqltext

import (
	"slices"
	"strings"
	"testing"

	pg_query "github.com/pganalyze/pg_query_go/v6"
	"pgregory.net/rapid"
)

func split(sql string) ([]string, bool) {
	spans, ok := Split(sql, true)
	texts := make([]string, 0, len(spans))
	for _, s := range spans {
		texts = append(texts, sql[s.Start:s.End])
	}
	return texts, ok
}

func checkSplit(t interface{ Fatalf(string, ...any) }, sql string) {
	want, err := pg_query.SplitWithParser(sql, false)
	if err != nil || strings.IndexByte(sql, 0) >= 0 {
		return
	}
	got, ok := split(sql)
	if !ok {
		lower := strings.ToLower(sql)
		if paramJunk.MatchString(sql) || strings.Contains(lower, "begin") && strings.Contains(lower, "atomic") {
			return
		}
		t.Fatalf("%q: refused, but it parses", sql)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%q:\n got %q\nwant %q", sql, got, want)
	}
}

func TestSplit(t *testing.T) {
	for _, sql := range append(slices.Clone(nasty),
		"select 1; select 2", ";;select 1;; ;select 2;", "select ';' ; select $$;$$; select \";\"", "-- ;\nselect 1; /* ; */ select 2 -- ;",
		"select 1; -- end", "select 1;\n\n", "create rule r as on insert to t do also (insert into u values (1); delete from v); select 1",
		"begin; insert into t values (1); commit", "begin ; atomic", "select 'é'; select 'ü'", `select E'\ud83d\ude00'; select U&'\zzzz'`,
		`select U&'d!0061' uescape '!'; select 1`, "select 1 as begin; select 2",
	) {
		t.Run(sql, func(t *testing.T) { checkSplit(t, sql) })
	}
}

func TestSplitRefusesFunctionBodies(t *testing.T) {
	sql := "create function f() returns int begin /* x */ ATOMIC select 1; select 2; end; select 3"
	if got, ok := split(sql); ok {
		t.Errorf("split into %q", got)
	}
}

func TestSplitScripts(t *testing.T) {
	statement := rapid.OneOf(
		rapid.SampledFrom([]string{"", " ", "-- c;\n", "/*;*/", "select ';'", "select a[1;2]", "table t", "begin", "select (1);", "select 1 as \"a;b\""}),
		rapid.Custom(func(t *rapid.T) string { return render(t, rapid.SampledFrom(templates).Draw(t, "template")) }),
		soup(),
	)
	rapid.Check(t, func(t *rapid.T) {
		checkSplit(t, strings.Join(rapid.SliceOfN(statement, 0, 5).Draw(t, "statements"), ";"))
	})
}

func FuzzSplit(f *testing.F) {
	for _, sql := range nasty {
		f.Add(sql + ";" + sql)
	}
	f.Fuzz(func(t *testing.T, sql string) { checkSplit(t, sql) })
}

func TestFirstKeyword(t *testing.T) {
	for sql, want := range map[string]string{
		"": "", "begin": "BEGIN", "  Commit;": "COMMIT", "/* a /* b */ */ROLLBACK to x": "ROLLBACK", "-- x\nset a=1": "SET", "-- x": "", "/* x": "",
		"(select 1)": "", "selects": "", "selec": "", "\"select\"": "", "'select'": "", "deallocate all": "DEALLOCATE", "deallocates": "", "checkpoint": "CHECKPOINT",
		"SHOW all": "SHOW", "e'x'": "", "WITH x as (select 1) select 2": "WITH", "sélect": "", ";select 1": "", "values(1)": "VALUES", "end": "END",
	} {
		if got := FirstKeyword(sql); got != want {
			t.Errorf("%q: %q, want %q", sql, got, want)
		}
	}
}
