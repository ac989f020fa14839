package integration

import (
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

	fails(t, late, "42P01", "SELECT * FROM missing")
	fails(t, late, "42883", "SELECT missing(1)")
	fails(t, late, "42P01", "COPY missing TO STDOUT")
	fails(t, late, "42P01", "COPY (SELECT * FROM missing) TO STDOUT")
	fails(t, late, "42P01", "TRUNCATE missing")
	fails(t, late, "25P01", "LOCK TABLE missing")
	expect(t, first, "300", "SELECT count(*) FROM d")
}
