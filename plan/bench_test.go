package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/shardtest"
)

// BenchmarkMake plans ordinary statements with 2,000 tables and 300 functions in the catalog; this
// is what a plan costs that is not in the cache, parsing included.
func BenchmarkMake(b *testing.B) {
	server := shardtest.StartPostgres(b)
	var schema strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&schema, "CREATE TABLE t%d (k bigint PRIMARY KEY, v text DEFAULT f1(), w int);", i)
		if i == 0 {
			for j := range 300 {
				fmt.Fprintf(&schema, "CREATE FUNCTION f%d() RETURNS text LANGUAGE sql AS 'SELECT v FROM t0 WHERE k = %d';", j, j)
			}
		}
	}
	text := strings.Replace(schema.String(), " DEFAULT f1()", "", 1)
	db := newDatabase(b, server, "bench", text+`
		CREATE VIEW v AS SELECT a.k, a.v, b.w FROM t1 a LEFT JOIN t2 b ON a.k = b.k;
		CREATE FUNCTION pure(a int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN a + 1; END';
		SELECT pg_shoal.set_table('t1', 'distributed', 1, '{k}'), pg_shoal.set_table('t2', 'distributed', 1, '{k}')`)
	cat, m := db.load(b), testMap(b)
	for name, sql := range map[string]string{
		"point":    "SELECT * FROM t1 WHERE k = 5",
		"join":     "SELECT * FROM t1 a JOIN t2 b ON a.k = b.k WHERE a.k = 5 AND b.w > 3 ORDER BY a.v LIMIT 10",
		"insert":   "INSERT INTO t2 (k, v, w) VALUES (5, 'a', 7)",
		"function": "SELECT pure(w) FROM t1 WHERE k = 5",
		"view":     "SELECT * FROM v WHERE k = 5",
		"local":    "SELECT f7(), * FROM t9 WHERE k = 5",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = makePlan(cat, m, sql, request{path: []string{"public"}})
			}
		})
	}
}
