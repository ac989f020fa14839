package integration

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// Names mean what the search path of the moment says: of the session, of the transaction, of one statement to the next.
func TestSearchPathOfTheMoment(t *testing.T) {
	t.Parallel()
	run(t, client(t), "CREATE DATABASE paths")
	conn := connect(t, shared().RoleDSN(0, cluster.Superuser, cluster.Password, "paths"))
	run(t, conn, "CREATE SCHEMA one", "CREATE SCHEMA two", "CREATE TABLE one.t (id bigint PRIMARY KEY, v bigint)", "CREATE TABLE two.t (v bigint PRIMARY KEY, id bigint)",
		"CREATE TABLE public.t (id bigint, v bigint)", "SELECT create_distributed_table('one.t', 'id')", "SELECT create_distributed_table('two.t', 'v', colocate_with => 'none')",
		"INSERT INTO one.t SELECT g, g FROM generate_series(1, 60) g", "INSERT INTO two.t SELECT g, g FROM generate_series(1, 70) g", "INSERT INTO public.t VALUES (1, 1)")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		sums := func(want string) {
			t.Helper()
			expect(t, conn, want, "SELECT count(*) FROM t", mode)
			expect(t, conn, want, "SELECT count(*) FROM t a JOIN t b ON a.id = b.id", mode)
			for _, key := range []int{3, 4, 5, 6, 7} {
				expect(t, conn, "1", "SELECT count(*) FROM t WHERE id = $1 OR v = 1", mode, min(key, 1))
			}
		}
		sums("1")
		run(t, conn, "BEGIN", "SET LOCAL search_path = one")
		sums("60")
		run(t, conn, "SAVEPOINT s", "SET LOCAL search_path = two, public")
		sums("70")
		run(t, conn, "INSERT INTO t (v, id) VALUES (1001, 1), (1002, 2), (1003, 3)", "UPDATE t SET v = 1004 WHERE v = 1001")
		expect(t, conn, "3", "SELECT count(*) FROM t WHERE v IN (1002, 1003, 1004)", mode)
		run(t, conn, "ROLLBACK TO s")
		sums("60")
		run(t, conn, "SELECT set_config('search_path', 'two', true)")
		sums("70")
		run(t, conn, "COMMIT")
		sums("1")
		run(t, conn, "SET search_path = two")
		sums("70")
		run(t, conn, "BEGIN", "SET search_path = one", "SET LOCAL search_path = public")
		sums("1")
		run(t, conn, "COMMIT")
		sums("60")
		run(t, conn, "RESET search_path")
		sums("1")
	}
	results, err := conn.PgConn().Exec(t.Context(), "SELECT count(*) FROM t; SET LOCAL search_path = one; SELECT count(*) FROM t; SET search_path = two; SELECT count(*) FROM t; RESET search_path").ReadAll()
	var counts []string
	for _, r := range results {
		for _, row := range r.Rows {
			counts = append(counts, string(row[0]))
		}
	}
	if err != nil || strings.Join(counts, " ") != "1 60 70" {
		t.Errorf("one text: %v, %v", counts, err)
	}
	expect(t, conn, "1", "SELECT count(*) FROM t")
}
