package analyze_test

import (
	"testing"

	"github.com/pgshoal/pgshoal/analyze"
)

// What is written again must mean the same: char without a length is char(1).
func TestDeparseKeepsLengths(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string]string{
		"SELECT c::pg_catalog.bpchar, d::bpchar FROM t": "SELECT c::bpchar, d::bpchar FROM t",
		"SELECT c::pg_catalog.bpchar[] FROM t":          "SELECT c::bpchar[] FROM t",
		"SELECT char 'abc', c::char, c::char(3) FROM t": "SELECT 'abc'::bpchar, c::char(1), c::char(3) FROM t",
		`SELECT b::pg_catalog."bit", b::bit FROM t`:     "SELECT b::pg_catalog.bit, b::pg_catalog.bit(1) FROM t",
		"CREATE TABLE t (c pg_catalog.bpchar)":          "CREATE TABLE t (c bpchar)",
	} {
		stmts, err := analyze.Parse(sql)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := analyze.Deparse(stmts[0].Tree); got != want || err != nil {
			t.Errorf("%s\nis written as\n%s\nnot\n%s (%v)", sql, got, want, err)
		}
	}
}
