package integration

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// A name that a router has not heard of may be that of something over distributed tables, made a moment ago. The router that is
// cut off from the topology store here stays in that moment.
func TestNamesThatARouterDoesNotKnowYet(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Nodes: 2, Routers: 2})
	first := connect(t, c.DSN(0))
	run(t, first,
		"CREATE TABLE d (id bigint PRIMARY KEY, v bigint)", "SELECT create_distributed_table('d', 'id')",
		"INSERT INTO d SELECT g, g FROM generate_series(1, 300) g", "CREATE TABLE l (id bigint)")
	late := connect(t, c.DSN(1))
	expect(t, late, "300", "SELECT count(*) FROM d")
	c.CutRouter(1)

	run(t, first, "CREATE VIEW counted AS SELECT count(*) AS n FROM d")
	expect(t, late, "300", "SELECT n FROM counted", pgx.QueryExecModeSimpleProtocol)
	run(t, first, "CREATE VIEW counted_too AS SELECT count(*) AS n FROM d")
	expect(t, late, "300", "SELECT n FROM counted_too WHERE n > $1", 0)
	run(t, first, "CREATE VIEW all_rows AS SELECT id, v FROM d")
	run(t, late, "UPDATE all_rows SET v = 0")
	expect(t, first, "300", "SELECT count(*) FROM d WHERE v = 0")
	run(t, first, "CREATE VIEW joined AS SELECT id FROM d")
	expect(t, late, "300", "SELECT count(*) FROM d JOIN joined j ON j.id = d.id + 0", pgx.QueryExecModeSimpleProtocol)
	run(t, first, "CREATE VIEW copied AS SELECT id FROM d")
	run(t, late, "CREATE TEMP TABLE mine AS SELECT * FROM copied")
	expect(t, late, "300", "SELECT count(*) FROM mine")
	run(t, first, "CREATE VIEW in_text AS SELECT id FROM d")
	results, err := late.PgConn().Exec(t.Context(), "SELECT 1; SELECT count(*) FROM in_text").ReadAll()
	if err != nil || string(results[1].Rows[0][0]) != "300" {
		t.Errorf("the second statement of a text: %v, %v", results, err)
	}

	run(t, first, "CREATE FUNCTION total() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM d'")
	fails(t, late, "0A000", "SELECT total()")
	run(t, first, "CREATE FUNCTION everything() RETURNS SETOF d LANGUAGE sql AS 'SELECT * FROM d'")
	fails(t, late, "0A000", "SELECT count(*) FROM everything()")
	run(t, first, "CREATE PROCEDURE removal() LANGUAGE sql AS 'DELETE FROM d'")
	fails(t, late, "0A000", "CALL removal()")
	run(t, first, "CREATE TABLE part_of (CHECK (id > 0)) INHERITS (l)") // local: it is there at once
	expect(t, late, "0", "SELECT count(*) FROM part_of")

	expect(t, late, "[1 2 3]|1", "SELECT (pg_catalog.array_agg(x))::int[], xid8('1')::text::int FROM unnest('{1,2,3}'::int[]) x")
	fails(t, late, "42P01", "SELECT * FROM missing")
	fails(t, late, "42883", "SELECT missing(1)")
	fails(t, late, "42P01", "COPY missing TO STDOUT")
	fails(t, late, "42P01", "COPY (SELECT * FROM missing) TO STDOUT")
	fails(t, late, "42P01", "TRUNCATE missing")
	fails(t, late, "25P01", "LOCK TABLE missing")
	expect(t, first, "300", "SELECT count(*) FROM d")
}

// Statements that come to a table through something else are held back like those that name it, while its rows move or its code changes.
func TestFencesOfWhatReachesATable(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Nodes: 2})
	first, second := connect(t, c.DSN(0)), connect(t, c.DSN(0))
	run(t, first,
		"CREATE TABLE k (id bigint PRIMARY KEY, v bigint)", "INSERT INTO k SELECT g, g FROM generate_series(1, 300) g",
		"CREATE VIEW k_view AS SELECT * FROM k", "CREATE VIEW k_views AS SELECT count(*) AS n FROM k_view",
		"CREATE TABLE noted (id bigint)", "CREATE TABLE apart (id bigint)",
		"CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO k VALUES (NEW.id); RETURN NEW; END'",
		"CREATE TRIGGER noting AFTER INSERT ON noted FOR EACH ROW EXECUTE FUNCTION note()",
		"CREATE FUNCTION one() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'")
	fenced := func(names string) {
		t.Helper()
		m := c.Map()
		if len(m.Fences) != 1 {
			t.Fatalf("there are %d fences", len(m.Fences))
		}
		expect(t, first, names, `SELECT string_agg(name, ' ' ORDER BY name) FROM (SELECT relname::text FROM pg_class WHERE oid = ANY ($1)
			UNION SELECT proname FROM pg_proc WHERE oid = ANY ($1)) f (name)`, m.Fences[0].Tables)
	}
	answer := make(chan string, 1)
	waits := func(sql string) {
		t.Helper()
		go func() {
			var n int64
			if err := second.QueryRow(t.Context(), sql).Scan(&n); err != nil {
				answer <- describe(err)
				return
			}
			answer <- fmt.Sprint(n)
		}()
	}
	got := func(want string) {
		t.Helper()
		if n := <-answer; n != want {
			t.Errorf("the statement that waited was answered with %s, not %s", n, want)
		}
	}
	run(t, first, "BEGIN", "SELECT create_distributed_table('k', 'id')")
	fenced("k k_view k_views noted")
	waits("SELECT n FROM k_views")
	run(t, first, "COMMIT")
	got("300")

	run(t, first, "BEGIN", "CREATE OR REPLACE FUNCTION one() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM k'")
	fenced("one")
	run(t, first, "ROLLBACK", "BEGIN", "CREATE OR REPLACE VIEW k_view AS SELECT * FROM k WHERE id > 100")
	fenced("k_view k_views")
	waits("SELECT n FROM k_views")
	run(t, first, "COMMIT")
	got("200")
	run(t, first, "BEGIN", "CREATE TRIGGER noting AFTER INSERT ON apart FOR EACH ROW EXECUTE FUNCTION note()")
	fenced("apart")
	run(t, first, "ROLLBACK")
}
