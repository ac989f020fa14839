package integration

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// hiddenDatabase is a connection to a new database: what a test hides there is nobody else's.
func hiddenDatabase(t *testing.T, name string) *pgx.Conn {
	t.Helper()
	run(t, client(t), "CREATE DATABASE "+name)
	return connect(t, shared().RoleDSN(0, cluster.Superuser, cluster.Password, name))
}

// hiddenTables are a distributed table of 300 rows and local ones; what hides SQL was made before d was distributed.
const hiddenTables = `
CREATE TABLE d (id bigint PRIMARY KEY, v bigint NOT NULL DEFAULT 1);
CREATE TABLE d2 (id bigint PRIMARY KEY, v bigint);
CREATE TABLE r (id bigint PRIMARY KEY, v bigint);
CREATE TABLE l (id bigint PRIMARY KEY, v bigint);
INSERT INTO l SELECT g, g FROM generate_series(1, 10) g;
CREATE TABLE audit (n bigint);
CREATE TABLE "odd ""name" (id bigint PRIMARY KEY);
CREATE SCHEMA other;
CREATE FUNCTION f_sql() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM d';
CREATE FUNCTION f_std() RETURNS bigint LANGUAGE sql STABLE BEGIN ATOMIC SELECT count(*) FROM d; END;
CREATE FUNCTION f_plain() RETURNS bigint LANGUAGE plpgsql AS 'DECLARE n bigint; BEGIN n := count(*) FROM d; RETURN n; END';
CREATE FUNCTION f_dynamic() RETURNS bigint LANGUAGE plpgsql AS $$ DECLARE n bigint; BEGIN EXECUTE concat('SELECT count(*) FROM ', chr(100)) INTO n; RETURN n; END $$;
CREATE FUNCTION f_escaped() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM U&"\0064" $$;
CREATE FUNCTION f_odd() RETURNS bigint LANGUAGE sql AS $$ SELECT count(*) FROM "odd ""name" $$;
CREATE FUNCTION f_definer() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = public AS 'SELECT count(*) FROM d';
CREATE FUNCTION other.f_path() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM public.d';
CREATE FUNCTION f_nested() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN f_sql(); END';
CREATE FUNCTION f_argument(x bigint DEFAULT f_sql()) RETURNS bigint LANGUAGE sql AS 'SELECT x';
CREATE FUNCTION f_cursor() RETURNS refcursor LANGUAGE plpgsql AS $$ DECLARE c refcursor := 'cc'; BEGIN OPEN c FOR TABLE d; RETURN c; END $$;
CREATE FUNCTION f_rows() RETURNS SETOF d LANGUAGE sql AS 'TABLE d';
CREATE FUNCTION f_xml(text, boolean, boolean, text) RETURNS xml LANGUAGE internal AS 'query_to_xml';
CREATE FUNCTION i_count(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT count(*) FROM d WHERE $1 IS NOT NULL';
CREATE FUNCTION i_local(bigint) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN (SELECT count(*) FROM l WHERE $1 IS NOT NULL); END';
CREATE FUNCTION of_l(l) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM d';
CREATE FUNCTION step(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM d';
CREATE AGGREGATE agg(bigint) (sfunc = step, stype = bigint, initcond = '0');
CREATE FUNCTION local_step(bigint, bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1 + count(*) FROM l';
CREATE AGGREGATE local_agg(bigint) (sfunc = local_step, stype = bigint, initcond = '0');
CREATE PROCEDURE p() LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit SELECT count(*) FROM d; END';
CREATE PROCEDURE p_local() LANGUAGE plpgsql AS 'BEGIN INSERT INTO l_trigger VALUES (2); END';
CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit SELECT count(*) FROM d; RETURN NULL; END';
CREATE TABLE l_trigger (id bigint); CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON l_trigger FOR EACH ROW EXECUTE FUNCTION tr();
CREATE TRIGGER tt AFTER TRUNCATE ON l_trigger EXECUTE FUNCTION tr();
CREATE VIEW l_view AS SELECT * FROM l_trigger;
CREATE TABLE l_parent (id bigint PRIMARY KEY); CREATE TABLE l_child (id bigint REFERENCES l_parent ON DELETE CASCADE);
CREATE TRIGGER t AFTER DELETE ON l_child FOR EACH ROW EXECUTE FUNCTION tr();
CREATE TABLE l_parts (id bigint) PARTITION BY RANGE (id); CREATE TABLE l_part PARTITION OF l_parts DEFAULT;
CREATE TRIGGER t AFTER INSERT ON l_part FOR EACH ROW EXECUTE FUNCTION tr();
CREATE FUNCTION tr_quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TABLE l_when (id bigint); CREATE TRIGGER t AFTER INSERT ON l_when FOR EACH ROW WHEN (i_count(NEW.id) > 0) EXECUTE FUNCTION tr_quiet();
CREATE TABLE l_check (id bigint CHECK (i_count(id) > 0));
CREATE TABLE l_generated (id bigint, n bigint GENERATED ALWAYS AS (i_count(id)) STORED);
CREATE TABLE l_index (id bigint); CREATE INDEX ON l_index (i_count(id));
CREATE TABLE l_predicate (id bigint); CREATE INDEX ON l_predicate (id) WHERE i_count(id) > 100;
CREATE TABLE l_default (id bigint PRIMARY KEY, n bigint DEFAULT f_sql()); INSERT INTO l_default VALUES (1, 1);
CREATE VIEW l_default_view AS SELECT * FROM l_default;
CREATE TABLE l_rule (id bigint); CREATE RULE ru AS ON INSERT TO l_rule DO ALSO INSERT INTO audit SELECT f_sql();
CREATE TABLE l_policy (id bigint); ALTER TABLE l_policy ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON l_policy USING (id < (SELECT count(*) FROM d));
CREATE TABLE l_policy2 (id bigint); ALTER TABLE l_policy2 ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON l_policy2 USING (id < f_sql());
CREATE VIEW l_policy_view AS SELECT * FROM l_policy;
CREATE FUNCTION f_policy() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM l_policy';
CREATE VIEW v_function AS SELECT f_sql() AS n;
CREATE VIEW v_d AS SELECT * FROM d;
CREATE FUNCTION f_view() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM v_d';
CREATE TABLE d_check (id bigint PRIMARY KEY CHECK (i_local(id) = 10));
CREATE TABLE d_policy (id bigint PRIMARY KEY); ALTER TABLE d_policy ENABLE ROW LEVEL SECURITY; CREATE POLICY p ON d_policy USING (i_local(id) = 10);
CREATE TABLE d_default (id bigint PRIMARY KEY, n bigint DEFAULT i_local(1));
CREATE MATERIALIZED VIEW mv_function AS SELECT i_count(1) AS n WITH NO DATA;
CREATE MATERIALIZED VIEW mv_policy AS SELECT count(*) FROM l_policy WITH NO DATA`

// Code that runs inside a node never answers for that node only, however it is set off.
func TestHiddenSQLIsRefused(t *testing.T) {
	t.Parallel()
	conn := hiddenDatabase(t, "hidden_sql")
	run(t, conn, hiddenTables)
	for _, table := range []string{"d", "d2", "d_check", "d_policy", "d_default", `"odd ""name"`} {
		run(t, conn, "SELECT create_distributed_table('"+table+"', 'id')")
	}
	run(t, conn, "SELECT create_reference_table('r')", "INSERT INTO d SELECT g FROM generate_series(1, 300) g", "INSERT INTO d2 SELECT g FROM generate_series(1, 30) g")
	for _, sql := range hiddenAttacks {
		t.Run(sql, func(t *testing.T) {
			_, err := conn.Exec(t.Context(), sql)
			if err == nil {
				t.Fatal("was not refused")
			}
			refused(t, err, "0A000")
			if strings.HasSuffix(describe(err), "HINT: ") {
				t.Errorf("no hint: %s", describe(err))
			}
		})
	}
	expect(t, conn, "0", "SELECT count(*) FROM audit")
	expect(t, conn, "300|1", "SELECT count(*), max(v) FROM d")
}

var hiddenAttacks = []string{
	"SELECT f_sql()", "SELECT f_std()", "SELECT f_plain()", "SELECT f_dynamic()", "SELECT f_escaped()", "SELECT f_odd()", "SELECT f_definer()",
	"SELECT other.f_path()", "SELECT f_nested()", "SELECT f_argument()", "SELECT f_cursor()", "SELECT * FROM f_rows()", "SELECT f_view()", "SELECT f_policy()",
	"SELECT f_xml('SELECT count(*) FROM d', false, false, '')", "SELECT query_to_xml('SELECT count(*) FROM d', false, false, '')",
	"SELECT id FROM l WHERE id < f_sql()", "SELECT count(*) FILTER (WHERE f_sql() > 1) FROM l", "SELECT id FROM l ORDER BY f_sql()",
	"SELECT id FROM l LIMIT f_sql()", "SELECT * FROM ROWS FROM (f_sql()) x", "VALUES (f_sql())", "WITH w AS (SELECT f_sql()) TABLE w",
	"SELECT * FROM l JOIN LATERAL f_sql() x ON true", "SELECT (SELECT f_sql())", "SELECT * FROM l TABLESAMPLE bernoulli (f_dynamic())",
	"SELECT l.of_l FROM l", "SELECT (l).of_l FROM l", "SELECT (x).of_l FROM (SELECT l FROM l) y(x)",
	"SELECT agg(id) FROM l", "SELECT agg(id) FROM d", "SELECT local_agg(id) FROM d", "SELECT agg(id) OVER () FROM l",
	"SELECT sum(i_local(id)) FROM d", "SELECT * FROM d WHERE i_local(id) = 10 AND id = 5", "INSERT INTO d SELECT id + 1000, i_local(id) FROM d",
	"SELECT n FROM v_function", "SELECT * FROM l_policy", "SELECT * FROM l_policy2", "SELECT * FROM l_policy_view", "SELECT * FROM d_policy WHERE id = 1",
	"UPDATE l_policy SET id = 1", "COPY l_policy TO STDOUT", "SELECT count(*) FROM d_policy",
	"CALL p()", "CALL p_local()", "DO $$ BEGIN PERFORM count(*) FROM d; END $$", "DO $$ BEGIN EXECUTE 'SELECT count(*) FROM ' || 'd'; END $$",
	"DO LANGUAGE plpgsql 'BEGIN PERFORM f_sql(); END'", "DO $$ BEGIN INSERT INTO l_trigger VALUES (1); END $$", "DO $$ BEGIN INSERT INTO l_default VALUES (5); END $$",
	"DO $$ BEGIN CREATE TABLE x (); PERFORM count(*) FROM l, d; END $$", "DO $$ BEGIN CREATE TABLE x (); PERFORM f_sql(); END $$",
	"DO $$ BEGIN CREATE TABLE x (); EXECUTE concat('SELECT count(*) FROM ', chr(100)); END $$", "DO $$ BEGIN CREATE TABLE x AS SELECT * FROM d; END $$",
	"DO $$ BEGIN IF (SELECT count(*) FROM d) > 150 THEN CREATE TABLE x (); END IF; END $$", "DO $$ BEGIN CREATE TABLE x (); INSERT INTO l VALUES (77); END $$",
	"INSERT INTO l_trigger VALUES (1)", "UPDATE l_trigger SET id = 1", "TRUNCATE l_trigger", "INSERT INTO l_view VALUES (1)", "DELETE FROM l_parent", "INSERT INTO l_parts VALUES (1)",
	"INSERT INTO l_when VALUES (1)", "INSERT INTO l_check VALUES (1)", "INSERT INTO l_generated VALUES (1)", "INSERT INTO l_index VALUES (1)", "INSERT INTO l_predicate VALUES (1)",
	"INSERT INTO l_default VALUES (2)", "INSERT INTO l_default_view VALUES (2)", "UPDATE l_default SET n = DEFAULT", "UPDATE l_default SET (n) = ROW (DEFAULT)",
	"INSERT INTO l_default VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = DEFAULT",
	"MERGE INTO l_default t USING l ON t.id = l.id WHEN NOT MATCHED THEN INSERT (id) VALUES (l.id)", "MERGE INTO l USING (VALUES (1)) s(x) ON id = x WHEN MATCHED THEN UPDATE SET v = f_sql()",
	"INSERT INTO l_rule VALUES (1)", "INSERT INTO audit VALUES (1) RETURNING f_sql()", "UPDATE l SET v = f_sql()", "DELETE FROM l WHERE v = f_sql()",
	"INSERT INTO d_check SELECT g FROM generate_series(1, 9) g", "INSERT INTO d_check VALUES (1)", "INSERT INTO d_default VALUES (1)", "INSERT INTO d_default SELECT id FROM d",
	"CREATE TABLE x AS SELECT f_sql()", "SELECT f_sql() INTO x", "CREATE MATERIALIZED VIEW x AS SELECT f_sql()", "REFRESH MATERIALIZED VIEW mv_function", "REFRESH MATERIALIZED VIEW mv_policy",
	"CREATE MATERIALIZED VIEW x AS SELECT ctid FROM d", "CREATE MATERIALIZED VIEW x AS SELECT count(*) FROM ONLY d", "CREATE MATERIALIZED VIEW x AS SELECT count(*) FROM l_policy",
	"ALTER TABLE l ADD COLUMN w bigint DEFAULT f_dynamic()", "ALTER TABLE l ALTER COLUMN v TYPE bigint USING i_count(v)", "CREATE INDEX ON l (i_count(id))",
	"CREATE INDEX CONCURRENTLY ON l (i_count(id))", "ALTER TABLE l ADD CHECK (i_count(id) > 0)", "ALTER TABLE d ADD COLUMN w bigint DEFAULT i_local(1)",
	"ALTER TABLE d ADD COLUMN w bigint GENERATED ALWAYS AS (i_local(id)) STORED", "CREATE INDEX ON d (i_local(id))",
	"PREPARE x AS SELECT f_sql()", "DECLARE x CURSOR WITH HOLD FOR SELECT f_sql()", "COPY (SELECT f_sql()) TO STDOUT", "EXPLAIN ANALYZE SELECT f_sql()",
	"CREATE TEMP VIEW x AS SELECT f_sql()", "CREATE TEMP TABLE x (n bigint DEFAULT f_sql())", "CREATE TEMP TABLE x (n bigint CHECK (i_count(n) > 0))", "CREATE TEMP TABLE x AS SELECT f_sql()",
	// In the schema itself: no statement shows that these run.
	"CREATE CAST (l AS bigint) WITH FUNCTION of_l(l) AS IMPLICIT", "CREATE OPERATOR ### (leftarg = bigint, rightarg = bigint, function = step)",
	"CREATE DOMAIN x AS bigint CHECK (i_count(VALUE) > 0)", "CREATE DOMAIN x AS bigint DEFAULT f_sql()", "CREATE DOMAIN x AS bigint CHECK (query_to_xml('TABLE d', false, false, '') IS NULL)",
	"CREATE FUNCTION ev() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO audit SELECT count(*) FROM d; END'; CREATE EVENT TRIGGER ev ON ddl_command_end EXECUTE FUNCTION ev()",
	"CREATE FUNCTION t1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW := ROW (1000, 7); RETURN NEW; END'; CREATE TRIGGER t BEFORE INSERT ON d FOR EACH ROW EXECUTE FUNCTION t1()",
	"CREATE FUNCTION t1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN ROW (1000, 7); END'; CREATE TRIGGER t BEFORE INSERT ON d FOR EACH ROW EXECUTE FUNCTION t1()",
	"CREATE FUNCTION t1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN \"new\"/**/.id := 1000; RETURN NEW; END'; CREATE TRIGGER t BEFORE INSERT ON d FOR EACH ROW EXECUTE FUNCTION t1()",
	"CREATE FUNCTION t1() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.v := (SELECT count(*) FROM d); RETURN NEW; END'; CREATE TRIGGER t BEFORE INSERT ON d FOR EACH ROW EXECUTE FUNCTION t1()",
	"CREATE RULE x AS ON INSERT TO d DO ALSO NOTHING", "CREATE RULE x AS ON INSERT TO l DO ALSO DELETE FROM d",
	"CREATE POLICY x ON d USING (id < (SELECT count(*) FROM l))",
}

// Code that uses no rows of other nodes goes on working.
func TestHiddenSQLThatIsRight(t *testing.T) {
	t.Parallel()
	conn := hiddenDatabase(t, "hidden_right")
	run(t, conn, `
CREATE TABLE d (id bigint PRIMARY KEY, v bigint, changed timestamptz);
CREATE TABLE r (id bigint PRIMARY KEY, v bigint);
CREATE TABLE l (id bigint PRIMARY KEY, v bigint);
CREATE TABLE log (n bigint);
CREATE FUNCTION tr_changed() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN -- the row's own columns
		IF TG_OP = 'UPDATE' AND NEW.v IS NOT DISTINCT FROM OLD.v THEN RETURN OLD; END IF;
		NEW.changed := date_trunc('year', timestamptz '2024-05-05 00:00:00+00'); RETURN NEW;
	END $$;
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON d FOR EACH ROW EXECUTE FUNCTION tr_changed();
CREATE FUNCTION tr_log() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO log VALUES (NEW.id); RETURN NULL; END';
CREATE TRIGGER t AFTER INSERT ON l FOR EACH ROW EXECUTE FUNCTION tr_log();
CREATE FUNCTION half(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1 / 2';
CREATE FUNCTION of_r(bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT v FROM r WHERE id = $1';
CREATE FUNCTION of_l() RETURNS bigint LANGUAGE sql STABLE AS 'SELECT count(*) FROM l';
CREATE FUNCTION add(bigint, bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1 + $2';
CREATE AGGREGATE own_sum(bigint) (sfunc = add, stype = bigint, initcond = '0');
CREATE FUNCTION d_half(d) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT $1.v / 2';
CREATE OPERATOR ### (leftarg = bigint, rightarg = bigint, function = add);
CREATE DOMAIN even AS bigint CHECK (half(VALUE) * 2 = VALUE);
ALTER TABLE d ADD CHECK (half(v) >= 0);
CREATE INDEX ON d (half(v));
CREATE FUNCTION tenant() RETURNS bigint LANGUAGE sql STABLE AS $$ SELECT current_setting('app.tenant')::bigint $$;
CREATE POLICY p ON d USING (id = tenant());
CREATE FUNCTION ev() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'ddl'; END $$;
CREATE EVENT TRIGGER ev ON ddl_command_end EXECUTE FUNCTION ev();
CREATE TABLE e (id bigint PRIMARY KEY, x even)`,
		"SELECT create_distributed_table('d', 'id')", "SELECT create_distributed_table('e', 'id')", "SELECT create_reference_table('r')",
		"INSERT INTO d SELECT g, g FROM generate_series(1, 300) g", "INSERT INTO r SELECT g, 2 * g FROM generate_series(1, 300) g", "INSERT INTO l VALUES (1, 1), (2, 2)",
		"INSERT INTO e SELECT g, 2 * g FROM generate_series(1, 300) g")
	expect(t, conn, "300|45150|90300", "SELECT count(*), own_sum(v)::text, sum(of_r(id))::text FROM d WHERE changed < '2024-02-02'")
	expect(t, conn, "3", "SELECT v ### 0 FROM d WHERE half(v) = 1 AND v = 3")
	expect(t, conn, "1", "SELECT d.d_half FROM d WHERE id = 3")
	expect(t, conn, "2|2", "SELECT of_l(), count(*) FROM log")
	fails(t, conn, "23514", "INSERT INTO e VALUES (1000, 3)")
	fails(t, conn, "0A000", "SELECT d.d_half, of_l() FROM d", "function \"of_l\"")
	run(t, conn, "CREATE TEMP TABLE tt (n bigint DEFAULT half(10))", "INSERT INTO tt DEFAULT VALUES")
	expect(t, conn, "5", "SELECT n FROM tt")
	// Blocks as migrations have them.
	run(t, conn, `DO $$ BEGIN
		IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute WHERE attrelid = 'd'::regclass AND attname = 'extra') THEN
			ALTER TABLE d ADD COLUMN extra text;
		END IF;
		BEGIN CREATE TYPE mood AS ENUM ('ok'); EXCEPTION WHEN duplicate_object THEN NULL; END;
		EXECUTE format('ALTER TABLE %I ADD COLUMN %I int', 'd', 'more');
		CREATE TABLE kid (id bigint REFERENCES d ON DELETE CASCADE ON UPDATE NO ACTION, n bigint, PRIMARY KEY (id, n));
		CREATE TRIGGER t2 BEFORE UPDATE OF v ON d FOR EACH ROW EXECUTE FUNCTION tr_changed();
		GRANT SELECT, UPDATE ON d TO CURRENT_USER;
		COMMENT ON TABLE d IS 'spread';
		DROP TABLE kid;
	END $$`)
	expect(t, conn, "2", "SELECT count(*) FROM pg_attribute WHERE attrelid = 'd'::regclass AND attname IN ('extra', 'more')")
	run(t, conn, "DO $$ BEGIN UPDATE l SET v = 5 WHERE id = 1; END $$")
	expect(t, conn, "7", "SELECT sum(v)::bigint FROM l")
}

// A sample of a table on several nodes is one of all its rows.
func TestSamples(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sampled")
	const half = "SELECT count(*) BETWEEN 14400 AND 15600 FROM sampled_a TABLESAMPLE BERNOULLI (50)" // seven standard deviations
	expect(t, conn, "true", half)
	expect(t, conn, "true", half+" REPEATABLE (3)")
	expect(t, conn, "true", "SELECT count(*) BETWEEN 14400 AND 15600 FROM sampled_a TABLESAMPLE BERNOULLI ($1)", 50.0)
	expect(t, conn, "30000|0", "SELECT count(*), (SELECT count(*) FROM sampled_a TABLESAMPLE SYSTEM (0)) FROM sampled_a TABLESAMPLE SYSTEM (100)")
	sum := "SELECT sum(id)::text FROM sampled_a TABLESAMPLE BERNOULLI (10) REPEATABLE (42)"
	expect(t, conn, ask(t, conn, sum), sum)
	if ask(t, conn, sum) == ask(t, conn, strings.Replace(sum, "42", "43", 1)) {
		t.Error("another seed gives the same sample")
	}
	fails(t, conn, "0A000", "SELECT count(*) FROM sampled_a TABLESAMPLE BERNOULLI (random() * 100)", "computed arguments", "HINT: ")
	for _, column := range []string{"ctid", "tableoid", "xmin", "xmax", "cmin", "cmax"} {
		fails(t, conn, "0A000", "SELECT "+column+" FROM sampled_a", "system column", "HINT: Fix the key")
	}
	fails(t, conn, "0A000", "DELETE FROM sampled_a WHERE ctid IN (SELECT ctid FROM sampled_a LIMIT 10)", "HINT: ")
	fails(t, conn, "0A000", "UPDATE sampled_a SET grp = 1 WHERE tableoid = 'sampled_a'::regclass", "HINT: ")
	fails(t, conn, "0A000", "DELETE FROM sampled_a WHERE ctid = '(0,1)'", "HINT: ")
	fails(t, conn, "0A000", "UPDATE sampled_a SET grp = 1 RETURNING xmin", "HINT: ")
	fails(t, conn, "0A000", "INSERT INTO sampled_a VALUES (100001), (100002), (100003) RETURNING tableoid", "HINT: ")
	fails(t, conn, "0A000", "SELECT a.ctid FROM sampled_a a JOIN sampled_a b USING (id)", "HINT: ")
	fails(t, conn, "0A000", "SELECT DISTINCT tableoid::regclass FROM sampled_a", "HINT: ")
	expect(t, conn, "30000", "SELECT count(*) FROM sampled_a")
}

// What a session made before a table was distributed is refused afterwards: prepared statements, temporary tables and views.
func TestHiddenSQLFromBefore(t *testing.T) {
	t.Parallel()
	other := hiddenDatabase(t, "hidden_before")
	run(t, other, `
CREATE TABLE d (id bigint PRIMARY KEY); INSERT INTO d SELECT generate_series(1, 300);
CREATE FUNCTION f() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM d';
CREATE FUNCTION i(bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT count(*) FROM d WHERE $1 IS NOT NULL';
CREATE FUNCTION tr() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN IF (SELECT count(*) FROM d) < 300 THEN RAISE ''one node''; END IF; RETURN NULL; END';
CREATE TABLE l_default (id bigint, n bigint DEFAULT f());
CREATE FUNCTION of_temporary() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RETURN (SELECT n FROM t_view); END'`)
	cases := []struct {
		made string
		use  string
	}{
		{"CREATE TEMP TABLE t_default (id int, n bigint DEFAULT f())", "INSERT INTO t_default VALUES (1)"},
		{"CREATE TEMP TABLE t_check (id int CHECK (i(id) = 300))", "INSERT INTO t_check VALUES (1)"},
		{"CREATE TEMP TABLE t_trigger (id int); CREATE TRIGGER t AFTER INSERT ON t_trigger FOR EACH ROW EXECUTE FUNCTION tr()", "INSERT INTO t_trigger VALUES (1)"},
		{"CREATE TEMP TABLE t_like (LIKE l_default INCLUDING DEFAULTS)", "INSERT INTO t_like VALUES (1)"},
		{"CREATE TEMP VIEW t_view AS SELECT count(*) AS n FROM d", "SELECT n FROM t_view"},
		{"CREATE TEMP VIEW t_call AS SELECT f() AS n", "SELECT n FROM t_call"},
		{"CREATE FUNCTION pg_temp.t_function() RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM d'", "SELECT pg_temp.t_function()"},
		{"PREPARE p AS SELECT f()", "EXECUTE p"},
	}
	sessions := make([]*pgx.Conn, len(cases))
	for k, c := range cases {
		sessions[k] = connect(t, shared().RoleDSN(k%2, cluster.Superuser, cluster.Password, "hidden_before"))
		run(t, sessions[k], append(strings.Split(c.made, "; "), c.use)...)
	}
	expect(t, sessions[4], "300", "SELECT of_temporary()")
	run(t, other, "SELECT create_distributed_table('d', 'id')")
	for k, c := range cases {
		fails(t, sessions[k], "0A000", c.use, "HINT: ")
	}
	fails(t, sessions[4], "0A000", "SELECT of_temporary()", "HINT: ")
	fails(t, sessions[4], "0A000", "DO $$ BEGIN PERFORM n FROM t_view; END $$", "HINT: ")
	run(t, sessions[5], "DROP VIEW t_call", "CREATE TEMP TABLE plain (id bigint)", "INSERT INTO plain VALUES (1)")
	expect(t, sessions[5], "1", "SELECT count(*) FROM plain JOIN d USING (id)")
}
