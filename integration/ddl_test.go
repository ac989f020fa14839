package integration

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// checkNoDrift compares the schema of all nodes, roles and databases included.
func checkNoDrift(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	var sources []catalog.Source
	for _, name := range c.NodeNames() {
		cfg, err := pgx.ParseConfig(c.NodeDSN(name))
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, catalog.Source{Node: name, Config: cfg})
	}
	differences, err := catalog.Diff(t.Context(), sources[0], sources[1:]...)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range differences {
		t.Errorf("the schema differs: %s\n%s\n%s", d, d.Home, d.Other)
	}
}

// allDDL is every kind of change that PostgreSQL allows in a transaction, each with a question
// whose answer must be "true" on every node.
var allDDL = []struct{ sql, check string }{
	{"CREATE SCHEMA ddl", "SELECT count(*) = 1 FROM pg_namespace WHERE nspname = 'ddl'"},
	{"CREATE TABLE ddl.t (id bigint PRIMARY KEY, v text, n int)", "SELECT to_regclass('ddl.t') IS NOT NULL"},
	{"CREATE INDEX t_v ON ddl.t (v) WHERE n > 0", "SELECT to_regclass('ddl.t_v') IS NOT NULL"},
	{"ALTER TABLE ddl.t ADD COLUMN extra jsonb DEFAULT '{}'", "SELECT count(*) = 1 FROM pg_attribute WHERE attrelid = 'ddl.t'::regclass AND attname = 'extra'"},
	{"ALTER TABLE ddl.t ADD CONSTRAINT n_small CHECK (n < 1000)", "SELECT count(*) = 1 FROM pg_constraint WHERE conname = 'n_small'"},
	{"ALTER TABLE ddl.t RENAME COLUMN extra TO more", "SELECT count(*) = 1 FROM pg_attribute WHERE attrelid = 'ddl.t'::regclass AND attname = 'more'"},
	{"ALTER TABLE ddl.t ALTER n TYPE bigint, ALTER v SET NOT NULL, ALTER v SET DEFAULT 'x'", "SELECT atttypid = 20 FROM pg_attribute WHERE attrelid = 'ddl.t'::regclass AND attname = 'n'"},
	{"CREATE VIEW ddl.v AS SELECT id, v FROM ddl.t", "SELECT to_regclass('ddl.v') IS NOT NULL"},
	{"CREATE MATERIALIZED VIEW ddl.m AS SELECT 1 AS one", "SELECT to_regclass('ddl.m') IS NOT NULL"},
	{"CREATE TYPE ddl.mood AS ENUM ('sad', 'ok')", "SELECT to_regtype('ddl.mood') IS NOT NULL"},
	{"ALTER TYPE ddl.mood ADD VALUE 'happy' AFTER 'ok'", "SELECT count(*) = 3 FROM pg_enum WHERE enumtypid = 'ddl.mood'::regtype"},
	{"CREATE TYPE ddl.pair AS (a int, b text)", "SELECT to_regtype('ddl.pair') IS NOT NULL"},
	{"CREATE DOMAIN ddl.positive AS int CHECK (VALUE > 0)", "SELECT to_regtype('ddl.positive') IS NOT NULL"},
	{"CREATE SEQUENCE ddl.s", "SELECT to_regclass('ddl.s') IS NOT NULL"},
	{"CREATE FUNCTION ddl.f(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 + 1'", "SELECT ddl.f(1) = 2"},
	{"CREATE OR REPLACE FUNCTION ddl.f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN $1 + 2; END $$", "SELECT ddl.f(1) = 3"},
	{"CREATE PROCEDURE ddl.p() LANGUAGE plpgsql AS $$ BEGIN NULL; END $$", "SELECT to_regprocedure('ddl.p()') IS NOT NULL"},
	{"CREATE AGGREGATE ddl.mysum(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0')", "SELECT ddl.mysum(x) = 3 FROM (VALUES (1), (2)) v(x)"},
	{"CREATE OPERATOR ddl.<+> (LEFTARG = int, RIGHTARG = int, FUNCTION = int4pl)", "SELECT 1 OPERATOR(ddl.<+>) 2 = 3"},
	{"CREATE FUNCTION ddl.touch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.n := 1; RETURN NEW; END $$", "SELECT to_regproc('ddl.touch') IS NOT NULL"},
	{"CREATE TRIGGER touch BEFORE INSERT ON ddl.t FOR EACH ROW EXECUTE FUNCTION ddl.touch()", "SELECT count(*) = 1 FROM pg_trigger WHERE tgname = 'touch' AND tgrelid = 'ddl.t'::regclass"},
	{"CREATE EXTENSION pg_trgm SCHEMA ddl", "SELECT ddl.similarity('a', 'a') = 1"},
	{"CREATE ROLE ddl_group", "SELECT count(*) = 1 FROM pg_roles WHERE rolname = 'ddl_group'"},
	{"CREATE ROLE ddl_user LOGIN PASSWORD 'secret' IN ROLE ddl_group", "SELECT count(*) = 1 FROM pg_roles WHERE rolname = 'ddl_user' AND rolcanlogin"},
	{"GRANT SELECT, INSERT ON ddl.t TO ddl_group", "SELECT has_table_privilege('ddl_group', 'ddl.t', 'INSERT')"},
	{"GRANT USAGE ON SCHEMA ddl TO ddl_group", "SELECT has_schema_privilege('ddl_group', 'ddl', 'USAGE')"},
	{"REVOKE INSERT ON ddl.t FROM ddl_group", "SELECT NOT has_table_privilege('ddl_group', 'ddl.t', 'INSERT')"},
	{"ALTER ROLE ddl_user SET work_mem = '8MB'", "SELECT count(*) = 1 FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = setrole WHERE rolname = 'ddl_user'"},
	{"ALTER DEFAULT PRIVILEGES IN SCHEMA ddl GRANT SELECT ON TABLES TO ddl_group", "SELECT count(*) = 1 FROM pg_default_acl WHERE defaclnamespace = 'ddl'::regnamespace"},
	{"COMMENT ON TABLE ddl.t IS 'a table'", "SELECT obj_description('ddl.t'::regclass) = 'a table'"},
	{"COMMENT ON COLUMN ddl.t.v IS 'a column'", "SELECT col_description('ddl.t'::regclass, 2) = 'a column'"},
	{"ALTER TABLE ddl.t ENABLE ROW LEVEL SECURITY", "SELECT relrowsecurity FROM pg_class WHERE oid = 'ddl.t'::regclass"},
	{"CREATE POLICY mine ON ddl.t USING (v = current_user)", "SELECT count(*) = 1 FROM pg_policy WHERE polname = 'mine'"},
	{"CREATE STATISTICS ddl.st ON v, n FROM ddl.t", "SELECT count(*) = 1 FROM pg_statistic_ext WHERE stxname = 'st'"},
	{"CREATE TABLE ddl.part (id int, at date) PARTITION BY RANGE (at)", "SELECT to_regclass('ddl.part') IS NOT NULL"},
	{"CREATE TABLE ddl.part_1 PARTITION OF ddl.part FOR VALUES FROM ('2020-01-01') TO ('2021-01-01')", "SELECT to_regclass('ddl.part_1') IS NOT NULL"},
	{"CREATE TABLE ddl.child () INHERITS (ddl.t)", "SELECT to_regclass('ddl.child') IS NOT NULL"},
	{"CREATE RULE quiet AS ON DELETE TO ddl.v DO INSTEAD NOTHING", "SELECT count(*) = 1 FROM pg_rewrite WHERE rulename = 'quiet'"},
	{"CREATE CAST (ddl.pair AS text) WITH INOUT", "SELECT count(*) = 1 FROM pg_cast WHERE castsource = 'ddl.pair'::regtype"},
	{"CREATE COLLATION ddl.german (provider = icu, locale = 'de')", "SELECT count(*) = 1 FROM pg_collation WHERE collname = 'german'"},
	{"CREATE TEXT SEARCH CONFIGURATION ddl.conf (COPY = simple)", "SELECT count(*) = 1 FROM pg_ts_config WHERE cfgname = 'conf'"},
	{"CREATE TABLE ddl.made AS SELECT i FROM generate_series(1, 10) i", "SELECT to_regclass('ddl.made') IS NOT NULL"},
	{"SELECT 1 AS x INTO ddl.into", "SELECT to_regclass('ddl.into') IS NOT NULL"},
	{"ALTER TABLE ddl.made RENAME TO renamed", "SELECT to_regclass('ddl.renamed') IS NOT NULL"},
	{"ALTER TABLE ddl.renamed SET SCHEMA public", "SELECT to_regclass('public.renamed') IS NOT NULL"},
	{"ALTER TABLE public.renamed OWNER TO ddl_user", "SELECT tableowner = 'ddl_user' FROM pg_tables WHERE tablename = 'renamed'"},
	{"DROP TABLE public.renamed", "SELECT to_regclass('public.renamed') IS NULL"},
	{"ALTER SCHEMA ddl RENAME TO ddl2", "SELECT count(*) = 1 FROM pg_namespace WHERE nspname = 'ddl2'"},
	{"DROP OWNED BY ddl_user, ddl_group", "SELECT NOT has_schema_privilege('ddl_group', 'ddl2', 'USAGE')"},
	{"DROP SCHEMA ddl2 CASCADE", "SELECT count(*) = 0 FROM pg_namespace WHERE nspname = 'ddl2'"},
	{"DROP ROLE ddl_user, ddl_group", "SELECT count(*) = 0 FROM pg_roles WHERE rolname LIKE 'ddl%'"},
}

func TestDDLIsOnAllNodes(t *testing.T) {
	conn := client(t)
	for _, d := range allDDL {
		if _, err := conn.Exec(t.Context(), d.sql); err != nil {
			t.Errorf("%s\n%s", d.sql, describe(err))
			continue
		}
		sameOnNodes(t, shared(), "true", d.check)
		if t.Failed() {
			t.Fatalf("after %s", d.sql)
		}
	}
	checkNoDrift(t, shared())
}

func TestDDLIsAtomic(t *testing.T) {
	conn := client(t)
	// The same in one transaction that is rolled back leaves nothing.
	run(t, conn, "BEGIN")
	for _, d := range allDDL {
		if strings.Contains(d.sql, "ADD VALUE") {
			continue // its value cannot be used before COMMIT, and that is PostgreSQL's
		}
		run(t, conn, d.sql)
	}
	run(t, conn, "ROLLBACK")
	sameOnNodes(t, shared(), "0", "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'ddl%'")
	sameOnNodes(t, shared(), "0", "SELECT count(*) FROM pg_roles WHERE rolname LIKE 'ddl%'")

	// Something in the way on one node only: nothing happens anywhere.
	run(t, connect(t, shared().NodeDSN("node3")), "CREATE TABLE ddl_in_the_way (x int)")
	fails(t, conn, "42P07", "CREATE TABLE ddl_in_the_way (x int)", "ddl_in_the_way", "node3")
	onNodes(t, shared(), "postgres", func(node string, c *pgx.Conn) {
		if node != "node3" {
			expect(t, c, "<nil>", "SELECT to_regclass('ddl_in_the_way')::text")
		}
		expect(t, c, "0", "SELECT count(*) FROM pg_prepared_xacts")
	})
	run(t, connect(t, shared().NodeDSN("node3")), "DROP TABLE ddl_in_the_way")
	run(t, conn, "CREATE TABLE ddl_in_the_way (x int)", "DROP TABLE ddl_in_the_way")

	// A constraint that the rows of one node violate.
	run(t, conn, "CREATE TABLE ddl_rows (id bigint PRIMARY KEY, n int)", "INSERT INTO ddl_rows SELECT i, i FROM generate_series(1, 100) i",
		"SELECT create_distributed_table('ddl_rows', 'id')")
	var worst int
	if err := connect(t, shared().NodeDSN("node2")).QueryRow(t.Context(), "SELECT max(n) FROM ddl_rows").Scan(&worst); err != nil {
		t.Fatal(err)
	}
	run(t, conn, "BEGIN")
	if _, err := conn.Exec(t.Context(), "UPDATE ddl_rows SET n = -1 WHERE id = $1", worst); err != nil {
		t.Fatal(describe(err))
	}
	fails(t, conn, "23514", "ALTER TABLE ddl_rows ADD CONSTRAINT ddl_pos CHECK (n > 0)", "ddl_pos")
	fails(t, conn, "25P02", "SELECT 1")
	run(t, conn, "ROLLBACK")
	sameOnNodes(t, shared(), "0", "SELECT count(*) FROM pg_constraint WHERE conname = 'ddl_pos'")
	run(t, conn, "ALTER TABLE ddl_rows ADD CONSTRAINT ddl_pos CHECK (n > 0)")
	checkNoDrift(t, shared())
}

// TestDDLNodeByNode is about what PostgreSQL does not allow in a transaction.
func TestDDLNodeByNode(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE nbn (id bigint PRIMARY KEY, v int)", "INSERT INTO nbn SELECT i, i % 10 FROM generate_series(1, 200) i",
		"SELECT create_distributed_table('nbn', 'id')",
		"CREATE INDEX CONCURRENTLY nbn_v ON nbn (v)", "VACUUM nbn", "VACUUM (ANALYZE) nbn", "ANALYZE nbn", "REINDEX INDEX CONCURRENTLY nbn_v",
		"CREATE DATABASE nbn_db", "ALTER DATABASE nbn_db SET work_mem = '5MB'")
	sameOnNodes(t, shared(), "true", "SELECT indisvalid FROM pg_index WHERE indexrelid = 'nbn_v'::regclass")
	sameOnNodes(t, shared(), "1", "SELECT count(*) FROM pg_database WHERE datname = 'nbn_db'")
	run(t, conn, "BEGIN")
	fails(t, conn, "25001", "CREATE INDEX CONCURRENTLY nbn_w ON nbn (v)", "cannot run inside a transaction block")
	run(t, conn, "ROLLBACK")

	// A failure on the second node says which nodes have it and how to go on.
	run(t, connect(t, shared().NodeDSN("node2")), "CREATE INDEX nbn_half ON nbn (id)")
	_, err := conn.Exec(t.Context(), "CREATE INDEX CONCURRENTLY nbn_half ON nbn (v)")
	refused(t, err, "42P07", "node1", "node2", "node3", "HINT: ")
	if err != nil && strings.HasSuffix(describe(err), "HINT: ") {
		t.Errorf("the report has no way out: %s", describe(err))
	}
	run(t, connect(t, shared().NodeDSN("node2")), "DROP INDEX nbn_half")
	run(t, conn, "CREATE INDEX CONCURRENTLY IF NOT EXISTS nbn_half ON nbn (v)")
	sameOnNodes(t, shared(), "true", "SELECT indisvalid FROM pg_index WHERE indexrelid = 'nbn_half'::regclass")
	run(t, conn, "DROP INDEX CONCURRENTLY nbn_half", "DROP DATABASE nbn_db")
	sameOnNodes(t, shared(), "0", "SELECT count(*) FROM pg_database WHERE datname = 'nbn_db'")
	checkNoDrift(t, shared())
}

func TestTableMovesBetweenNamesAndSchemas(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE ren_t (id bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('ren_t', 'id')")
	for i := range 30 {
		if _, err := conn.Exec(t.Context(), "INSERT INTO ren_t VALUES ($1, 'v')", i); err != nil {
			t.Fatal(describe(err))
		}
	}
	run(t, conn, "CREATE SCHEMA ren", "ALTER TABLE ren_t RENAME TO ren_u", "ALTER TABLE ren_u SET SCHEMA ren", "ALTER TABLE ren.ren_u RENAME id TO key")
	checkPlaced(t, shared(), "ren.ren_u", "key", 30)
	expect(t, conn, "7|v", "SELECT * FROM ren.ren_u WHERE key = 7")
	run(t, conn, "SET search_path = ren, public")
	expect(t, conn, "7|v", "SELECT * FROM ren_u WHERE key = 7")
	run(t, conn, `CREATE TABLE "Odd ""Name" ("Key Col" text PRIMARY KEY)`, `SELECT create_distributed_table('"Odd ""Name"', 'Key Col')`,
		`INSERT INTO "Odd ""Name" VALUES ('x')`)
	expect(t, conn, "x", `SELECT "Key Col" FROM ren."Odd ""Name" WHERE "Key Col" = 'x'`)
	checkPlaced(t, shared(), `ren."Odd ""Name"`, "Key Col", 1)
	// Names in two schemas: the search path decides, for distributed tables too.
	run(t, conn, "CREATE TABLE public.ren_two (id int, v text)", "INSERT INTO public.ren_two VALUES (1, 'public')",
		"CREATE TABLE ren.ren_two (id int, v text)", "SELECT create_distributed_table('ren.ren_two', 'id')", "INSERT INTO ren.ren_two VALUES (1, 'ren')")
	expect(t, conn, "ren", "SELECT v FROM ren_two WHERE id = 1")
	run(t, conn, "SET search_path = public")
	expect(t, conn, "public", "SELECT v FROM ren_two WHERE id = 1")
	run(t, conn, "BEGIN", "SET LOCAL search_path = ren")
	expect(t, conn, "ren", "SELECT v FROM ren_two WHERE id = 1")
	run(t, conn, "ROLLBACK")
	expect(t, conn, "public", "SELECT v FROM ren_two WHERE id = 1")
	run(t, conn, "TRUNCATE ren.ren_u")
	checkPlaced(t, shared(), "ren.ren_u", "key", 0)
	run(t, conn, "DROP SCHEMA ren CASCADE")
	sameOnNodes(t, shared(), "0", "SELECT count(*) FROM pg_shoal.tables t WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = t.relid)")
}

func TestPartitionedTables(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE parted (tenant bigint, at date, v text, PRIMARY KEY (tenant, at)) PARTITION BY RANGE (at)",
		"CREATE TABLE parted_2024 PARTITION OF parted FOR VALUES FROM ('2024-01-01') TO ('2025-01-01')",
		"CREATE TABLE parted_2025 PARTITION OF parted FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
		"INSERT INTO parted SELECT i, '2024-06-01'::date + i, 'v' || i FROM generate_series(1, 300) i",
		"SELECT create_distributed_table('parted', 'tenant')",
		"CREATE TABLE parted_2026 PARTITION OF parted FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')")
	for i := range 50 {
		if _, err := conn.Exec(t.Context(), "INSERT INTO parted VALUES ($1, '2026-05-05', 'new')", i); err != nil {
			t.Fatal(describe(err))
		}
	}
	checkPlaced(t, shared(), "parted", "tenant", 350)
	expect(t, conn, "new|parted_2026", "SELECT v, tableoid::regclass::text FROM parted WHERE tenant = 44 AND at > '2026-01-01'")
	fails(t, conn, "23514", "INSERT INTO parted VALUES (1, '1999-01-01')", "no partition")
	fails(t, conn, "42809", "SELECT create_distributed_table('parted_2024', 'tenant')", "partition")
	// A partition by itself has rows on all nodes too.
	if got, ok := answers(t, conn, "SELECT v FROM parted_2026 WHERE tenant = 44"); ok && got != "new" {
		t.Errorf("the partition answered %q", got)
	}
	if got, ok := answers(t, conn, "SELECT count(*) FROM parted_2026"); ok && got != "50" {
		t.Errorf("the partition has %q rows", got)
	}
	run(t, conn, "DROP TABLE parted_2024")
	var kept int
	onNodes(t, shared(), "postgres", func(_ string, c *pgx.Conn) {
		var n int
		if err := c.QueryRow(t.Context(), "SELECT count(*) FROM parted").Scan(&n); err != nil {
			t.Error(err)
		}
		kept += n
	})
	checkPlaced(t, shared(), "parted", "tenant", kept)
	if _, err := conn.Exec(t.Context(), "ALTER TABLE parted DETACH PARTITION parted_2026"); err != nil {
		refused(t, err, "0A000", "parted", "HINT: ")
	} else {
		checkPlaced(t, shared(), "parted_2026", "tenant", 50) // it is a distributed table of its own then
	}
}

func TestViews(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE view_t (id bigint PRIMARY KEY, n int)", "INSERT INTO view_t SELECT i, i * 2 FROM generate_series(1, 100) i",
		"CREATE VIEW view_v AS SELECT id AS k, n + 1 AS m FROM view_t WHERE n > 10",
		"CREATE VIEW view_w AS SELECT k, m FROM view_v WHERE m < 150 WITH CASCADED CHECK OPTION",
		"CREATE VIEW view_agg AS SELECT count(*) AS c, sum(n) AS s FROM view_t",
		"CREATE VIEW view_by AS SELECT id, count(*) AS c FROM view_t GROUP BY id")
	expect(t, conn, "100|10100", "SELECT * FROM view_agg")
	run(t, conn, "SELECT create_distributed_table('view_t', 'id')")
	expect(t, conn, "101", "SELECT m FROM view_w WHERE k = 50")
	expect(t, conn, "", "SELECT m FROM view_w WHERE k = 3")
	expect(t, conn, "50|1", "SELECT * FROM view_by WHERE id = 50")
	if got, ok := answers(t, conn, "SELECT * FROM view_agg"); ok && got != "100|10100" {
		t.Errorf("the aggregate over all nodes is %q", got)
	}
	if _, err := conn.Exec(t.Context(), "UPDATE view_v SET m = 5 WHERE k = 50"); err == nil {
		t.Error("m is an expression and was updated")
	}
	run(t, conn, "CREATE MATERIALIZED VIEW view_local AS SELECT 1 AS a", "REFRESH MATERIALIZED VIEW view_local")
	expect(t, conn, "1", "SELECT * FROM view_local")
	run(t, conn, "DROP VIEW view_w, view_v CASCADE")
	sameOnNodes(t, shared(), "2", "SELECT count(*) FROM pg_views WHERE schemaname = 'public' AND viewname LIKE 'view\\_%'")
}
