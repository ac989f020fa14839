package sqltext

import (
	"testing"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// TestASCII checks that the text without other characters is the same statement.
func TestASCII(t *testing.T) {
	texts := []string{
		`SELECT 'é'`, `SELECT'é'`, `SELECT E'a\'é\\' || 'x\y''é'`, `SELECT E'\é\n'`, `SELECT $é$a\b'é$é$, $$é$$`,
		`SELECT U&'é\0041\\', U&'é!0041' UESCAPE '!', U&"é\0041"`,
		`SELECT Été."Ünde ""x"" \y", a.é FROM Été WHERE ß = '日本😀' /* ü */ -- ö
		 AND 1 = 1`,
		`CREATE FUNCTION ü() RETURNS text LANGUAGE sql AS $b$ SELECT 'ä\' $b$`,
		`INSERT INTO t VALUES (1, 'ä', DEFAULT)`,
		`SELECT ä'x'`,
	}
	for _, sql := range texts {
		out, ok := ASCII(sql, true)
		if !ok || !IsASCII(out) {
			t.Errorf("%s became %q, %v", sql, out, ok)
			continue
		}
		want, err := pg.Deparse(parse(t, sql))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := pg.Deparse(parse(t, out)); err != nil || got != want {
			t.Errorf("%s\nbecame %s\nwhich is  %s\ninstead of %s (%v)", sql, out, got, want, err)
		}
	}
	for _, sql := range []string{"SELECT 'é", "SELECT \xe9", "SELECT 'é\x00'", "/* é"} {
		if out, ok := ASCII(sql, true); ok {
			t.Errorf("%q became %q", sql, out)
		}
	}
	if out, ok := ASCII(`SELECT 'é\''`, false); !ok || out != `SELECT  E'\u00E9\''` {
		t.Errorf("without standard strings: %q, %v", out, ok)
	}
}

func parse(t *testing.T, sql string) *pg.ParseResult {
	t.Helper()
	tree, err := pg.Parse(sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tree
}
