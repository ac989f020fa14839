package integration

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Materialized views over several nodes are PostgreSQL's own, filled from the rows of all nodes.
func TestMaterializedViews(t *testing.T) {
	t.Parallel()
	conn := hiddenDatabase(t, "mat_views")
	run(t, conn, `
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE customers (id bigint PRIMARY KEY, name text, mood mood DEFAULT 'ok');
CREATE TABLE orders (customer bigint, id bigint, total numeric NOT NULL CHECK (total > 0), double numeric GENERATED ALWAYS AS (total * 2) STORED, PRIMARY KEY (customer, id));
CREATE TABLE rates (code text PRIMARY KEY, rate int);
CREATE TABLE local (id bigint);
CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'a trigger fired'; END $$;
CREATE VIEW per_customer AS SELECT customer, sum(total) AS total, sum(double) AS double FROM orders GROUP BY customer`,
		"SELECT create_distributed_table('customers', 'id')", "SELECT create_distributed_table('orders', 'customer', colocate_with => 'none')", "SELECT create_reference_table('rates')",
		"INSERT INTO customers SELECT g, 'c' || g FROM generate_series(1, 300) g", "INSERT INTO orders SELECT g % 300 + 1, g, g FROM generate_series(1, 3000) g",
		"INSERT INTO rates VALUES ('x', 2)", "INSERT INTO local VALUES (7)",
		"CREATE TRIGGER no AFTER TRUNCATE ON orders EXECUTE FUNCTION no()")
	tag, err := conn.Exec(t.Context(), `CREATE MATERIALIZED VIEW mv AS SELECT c.id, c.mood, p.total, p.double, r.rate, l.id AS seven
		FROM customers c JOIN per_customer p ON p.customer = c.id CROSS JOIN rates r, local l`)
	if err != nil || tag.String() != "SELECT 300" {
		t.Fatalf("%v, %v", tag, err)
	}
	const sums = "SELECT count(*), sum(total)::text, sum(double)::text, sum(rate)::text, sum(seven)::text, count(mood) FROM mv"
	expect(t, conn, "300|4501500|9003000|600|2100|300", sums)
	expect(t, conn, "3000|4501500", "SELECT count(*), sum(total)::text FROM orders")
	run(t, conn, "UPDATE orders SET total = total + 1", "DELETE FROM customers WHERE id > 200")
	expect(t, conn, "300|4501500|9003000|600|2100|300", sums)
	run(t, conn, "REFRESH MATERIALIZED VIEW mv")
	want := ask(t, conn, "SELECT count(*), sum(total)::text, sum(double)::text, (2 * count(*))::text, (7 * count(*))::text, count(*) FROM per_customer WHERE customer <= 200")
	expect(t, conn, want, sums)

	run(t, conn, "DELETE FROM customers WHERE id > 100")
	fails(t, conn, "55000", "REFRESH MATERIALIZED VIEW CONCURRENTLY mv", "unique index")
	run(t, conn, "CREATE UNIQUE INDEX ON mv (id)", "REFRESH MATERIALIZED VIEW CONCURRENTLY mv")
	expect(t, conn, "100", "SELECT count(*) FROM mv")
	expect(t, conn, "100", "SELECT count(*) FROM mv JOIN customers USING (id)")

	run(t, conn, "BEGIN", "DELETE FROM customers WHERE id > 50", "REFRESH MATERIALIZED VIEW mv")
	expect(t, conn, "50", "SELECT count(*) FROM mv")
	run(t, conn, "ROLLBACK")
	expect(t, conn, "100|100", "SELECT count(*), (SELECT count(*) FROM customers) FROM mv")

	run(t, conn, "REFRESH MATERIALIZED VIEW mv WITH NO DATA")
	fails(t, conn, "55000", "SELECT * FROM mv", "has not been populated")
	run(t, conn, "CREATE MATERIALIZED VIEW mv2 AS SELECT count(*) AS n FROM orders WITH NO DATA", "CREATE MATERIALIZED VIEW IF NOT EXISTS mv2 AS SELECT 1 AS n")
	fails(t, conn, "55000", "SELECT * FROM mv2", "has not been populated")
	run(t, conn, "SET shoal.max_exchange_bytes = '50kB'")
	fails(t, conn, "54000", "REFRESH MATERIALIZED VIEW mv2", "51200 bytes")
	run(t, conn, "RESET shoal.max_exchange_bytes", "REFRESH MATERIALIZED VIEW mv2")
	expect(t, conn, "3000", "SELECT n FROM mv2")
	expect(t, conn, "3000", "SELECT count(*) FROM orders")
	onNodes(t, shared(), "mat_views", func(node string, conn *pgx.Conn) {
		expect(t, conn, "0|0|2", "SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'shoal rows%'), (SELECT count(*) FROM pg_inherits), (SELECT count(*) FROM pg_matviews)")
	})
	run(t, conn, "DROP MATERIALIZED VIEW mv2")
	expect(t, conn, "1", "SELECT count(*) FROM pg_matviews")
}

// Rights are PostgreSQL's: who fills a view must own the tables that its node borrows.
func TestMaterializedViewsAndRights(t *testing.T) {
	t.Parallel()
	conn := hiddenDatabase(t, "mat_rights")
	run(t, conn, "CREATE ROLE mat_owner LOGIN PASSWORD 'x'", "CREATE ROLE mat_reader LOGIN PASSWORD 'x'", "GRANT ALL ON SCHEMA public TO mat_owner, mat_reader")
	owner := connect(t, shared().RoleDSN(0, "mat_owner", "x", "mat_rights"))
	run(t, owner, "CREATE TABLE d (id bigint PRIMARY KEY)", "SELECT create_distributed_table('d', 'id')", "INSERT INTO d SELECT generate_series(1, 100)",
		"GRANT SELECT ON d TO mat_reader", "CREATE MATERIALIZED VIEW mine AS SELECT count(*) AS n FROM d")
	expect(t, owner, "100", "SELECT n FROM mine")
	reader := connect(t, shared().RoleDSN(1, "mat_reader", "x", "mat_rights"))
	fails(t, reader, "42501", "CREATE MATERIALIZED VIEW theirs AS SELECT count(*) AS n FROM d", "must be owner")
	expect(t, reader, "100", "SELECT count(*) FROM d")
	run(t, conn, "ALTER TABLE d ENABLE ROW LEVEL SECURITY", "CREATE POLICY p ON d USING (id > 50)")
	fails(t, owner, "0A000", "REFRESH MATERIALIZED VIEW mine", "row security", "HINT: Fill a table")
	run(t, conn, "DROP POLICY p ON d", "ALTER TABLE d DISABLE ROW LEVEL SECURITY", "SET shoal.read_consistency = 'atomic'")
	fails(t, conn, "0A000", "REFRESH MATERIALIZED VIEW mine", "one snapshot", "HINT: ")
	run(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ", "REFRESH MATERIALIZED VIEW mine", "COMMIT")
	expect(t, conn, "100", "SELECT n FROM mine")
	run(t, conn, "CREATE TABLE parts (id bigint PRIMARY KEY) PARTITION BY RANGE (id)", "CREATE TABLE parts1 PARTITION OF parts DEFAULT", "SELECT create_distributed_table('parts', 'id')")
	fails(t, conn, "0A000", "CREATE MATERIALIZED VIEW p AS SELECT count(*) FROM parts", "partitioned", "HINT: Fill a table")
	dump := mustTool(t, shared().DSN(0), "mat_rights", "pg_dump", "--no-sync")
	for _, part := range []string{"CREATE MATERIALIZED VIEW public.mine AS", "REFRESH MATERIALIZED VIEW public.mine"} {
		if !strings.Contains(dump, part) {
			t.Errorf("the dump has no %s", part)
		}
	}
}

// The same in the extended protocol, in a transaction that has just made the view.
func TestMaterializedViewsExtended(t *testing.T) {
	t.Parallel()
	conn := hiddenDatabase(t, "mat_extended")
	run(t, conn, "CREATE TABLE d (id bigint PRIMARY KEY)", "SELECT create_distributed_table('d', 'id')", "INSERT INTO d SELECT generate_series(1, 100)")
	for _, round := range []string{"CREATE", "CREATE AGAIN"} {
		run(t, conn, "BEGIN")
		for _, sql := range []string{"CREATE MATERIALIZED VIEW mv AS SELECT id FROM d WITH NO DATA", "REFRESH MATERIALIZED VIEW mv"} {
			if _, err := conn.PgConn().ExecParams(t.Context(), sql, nil, nil, nil, nil).Close(); err != nil {
				t.Fatalf("%s: %s\n%s", round, sql, describe(err))
			}
		}
		expect(t, conn, "100", "SELECT count(*) FROM mv")
		run(t, conn, "ROLLBACK")
	}
}
