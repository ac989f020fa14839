package analyze_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/shardtest"
)

// statements has one or more of every kind of statement in PostgreSQL's grammar, by class.
var statements = map[analyze.Class][]string{
	analyze.Query: {
		"SELECT 1", "TABLE t", "VALUES (1)", "INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "DELETE FROM t",
		"MERGE INTO t USING t s ON t.a = s.a WHEN MATCHED THEN DELETE", "WITH x AS (SELECT 1) SELECT * FROM x",
		"SELECT 1 UNION SELECT 2", "(SELECT 1)",
	},
	analyze.Explain:            {"EXPLAIN SELECT 1", "EXPLAIN ANALYZE DELETE FROM t"},
	analyze.Begin:              {"BEGIN", "START TRANSACTION READ ONLY", "BEGIN ISOLATION LEVEL SERIALIZABLE"},
	analyze.Commit:             {"COMMIT", "END", "COMMIT AND CHAIN"},
	analyze.Rollback:           {"ROLLBACK", "ABORT", "ROLLBACK AND NO CHAIN"},
	analyze.Savepoint:          {"SAVEPOINT s"},
	analyze.Release:            {"RELEASE s"},
	analyze.RollbackTo:         {"ROLLBACK TO SAVEPOINT s"},
	analyze.PrepareTransaction: {"PREPARE TRANSACTION 'x'"},
	analyze.FinishPrepared:     {"COMMIT PREPARED 'x'", "ROLLBACK PREPARED 'x'"},
	analyze.Set: {
		"SET work_mem = '1MB'", "SET LOCAL work_mem = '1MB'", "RESET work_mem", "RESET ALL", "SET TIME ZONE 'UTC'",
		"SET SESSION AUTHORIZATION DEFAULT", "SET ROLE NONE", "SET TRANSACTION READ ONLY",
		"SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
	},
	analyze.Show:           {"SHOW work_mem", "SHOW ALL"},
	analyze.Discard:        {"DISCARD ALL", "DISCARD TEMP", "DISCARD PLANS", "DISCARD SEQUENCES"},
	analyze.Prepare:        {"PREPARE p AS SELECT 1"},
	analyze.Execute:        {"EXECUTE p"},
	analyze.Deallocate:     {"DEALLOCATE p", "DEALLOCATE ALL"},
	analyze.Declare:        {"DECLARE c CURSOR FOR SELECT 1"},
	analyze.Fetch:          {"FETCH c", "MOVE c"},
	analyze.CloseCursor:    {"CLOSE c", "CLOSE ALL"},
	analyze.Listen:         {"LISTEN a", "UNLISTEN a", "UNLISTEN *"},
	analyze.Notify:         {"NOTIFY a", "NOTIFY a, 'b'"},
	analyze.Copy:           {"COPY t TO STDOUT", "COPY t FROM STDIN", "COPY (SELECT 1) TO STDOUT"},
	analyze.Lock:           {"LOCK t"},
	analyze.Call:           {"CALL p()"},
	analyze.Do:             {"DO ''"},
	analyze.Truncate:       {"TRUNCATE t"},
	analyze.CreateAs:       {"CREATE TABLE x AS SELECT 1", "SELECT 1 INTO x", "CREATE MATERIALIZED VIEW x AS SELECT 1", "CREATE TABLE x AS EXECUTE p"},
	analyze.Refresh:        {"REFRESH MATERIALIZED VIEW m", "REFRESH MATERIALIZED VIEW CONCURRENTLY m"},
	analyze.SetConstraints: {"SET CONSTRAINTS ALL DEFERRED"},
	analyze.Load:           {"LOAD 'x'"},
	analyze.NodeWise: {
		"VACUUM", "VACUUM t", "VACUUM (FULL) t", "ANALYZE", "ANALYZE t", "CREATE INDEX CONCURRENTLY ON t (a)", "DROP INDEX CONCURRENTLY i",
		"REINDEX INDEX CONCURRENTLY i", "REINDEX (CONCURRENTLY) TABLE t", "REINDEX SCHEMA public", "REINDEX DATABASE postgres", "REINDEX SYSTEM postgres",
		"CLUSTER", "CREATE DATABASE d", "DROP DATABASE d", "CREATE TABLESPACE s LOCATION '/x'", "DROP TABLESPACE s",
		"ALTER SYSTEM SET work_mem = '1MB'", "CHECKPOINT", "CREATE SUBSCRIPTION s CONNECTION 'x' PUBLICATION p",
		"ALTER SUBSCRIPTION s REFRESH PUBLICATION", "DROP SUBSCRIPTION s", "ALTER DATABASE d SET TABLESPACE s",
		"ALTER TABLE q DETACH PARTITION q1 CONCURRENTLY",
	},
	analyze.DDL: ddl,
}

var ddl = []string{
	"CREATE TABLE x (a int)", "CREATE TEMP TABLE x (a int)", "CREATE TABLE x (LIKE t)", "ALTER TABLE t ADD COLUMN b int", "ALTER TABLE t RENAME TO x",
	"ALTER TABLE t SET SCHEMA public", "ALTER TABLE q DETACH PARTITION q1", "DROP TABLE t", "CREATE INDEX ON t (a)", "DROP INDEX i", "ALTER INDEX i RENAME TO j",
	"REINDEX TABLE t", "REINDEX INDEX i", "CLUSTER t USING i", "CREATE VIEW x AS SELECT 1", "ALTER VIEW v RENAME TO x", "DROP VIEW v",
	"ALTER MATERIALIZED VIEW m RENAME TO x", "DROP MATERIALIZED VIEW m", "CREATE SEQUENCE x", "ALTER SEQUENCE s RESTART", "DROP SEQUENCE s",
	"CREATE FUNCTION x() RETURNS int LANGUAGE sql AS 'SELECT 1'", "CREATE PROCEDURE x() LANGUAGE sql AS ''", "ALTER FUNCTION f() STABLE", "DROP FUNCTION f()",
	"CREATE AGGREGATE x (int) (SFUNC = int4pl, STYPE = int)", "CREATE OPERATOR === (LEFTARG = int, RIGHTARG = int, FUNCTION = int4eq)", "ALTER OPERATOR = (int, int) OWNER TO postgres",
	"CREATE OPERATOR FAMILY x USING btree", "CREATE OPERATOR CLASS x FOR TYPE int USING btree AS OPERATOR 1 <", "ALTER OPERATOR FAMILY integer_ops USING btree ADD OPERATOR 1 < (int4, int4)",
	"CREATE CAST (int AS box) WITHOUT FUNCTION", "CREATE TYPE x AS (a int)", "CREATE TYPE x AS ENUM ('a')", "CREATE TYPE x AS RANGE (SUBTYPE = int)", "CREATE TYPE x",
	"ALTER TYPE e ADD VALUE 'z'", "ALTER TYPE e RENAME VALUE 'a' TO 'b'", "DROP TYPE e", "CREATE DOMAIN x AS int", "ALTER DOMAIN d SET NOT NULL",
	"CREATE SCHEMA x", "ALTER SCHEMA x RENAME TO y", "DROP SCHEMA x", "CREATE EXTENSION x", "ALTER EXTENSION x UPDATE", "ALTER EXTENSION x ADD TABLE t", "DROP EXTENSION x",
	"CREATE TRIGGER x BEFORE INSERT ON t EXECUTE FUNCTION f()", "DROP TRIGGER x ON t", "CREATE EVENT TRIGGER x ON ddl_command_start EXECUTE FUNCTION f()", "ALTER EVENT TRIGGER x DISABLE",
	"CREATE RULE x AS ON DELETE TO t DO NOTHING", "CREATE POLICY x ON t USING (true)", "ALTER POLICY x ON t USING (false)", "CREATE STATISTICS x ON a, a FROM t", "ALTER STATISTICS x SET STATISTICS 1",
	"CREATE ROLE x", "CREATE USER x", "CREATE GROUP x", "ALTER ROLE x LOGIN", "ALTER ROLE x SET work_mem = '1MB'", "DROP ROLE x", "GRANT SELECT ON t TO public",
	"REVOKE SELECT ON t FROM public", "GRANT pg_monitor TO postgres", "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public", "REASSIGN OWNED BY x TO postgres", "DROP OWNED BY x",
	"COMMENT ON TABLE t IS 'x'", "SECURITY LABEL ON TABLE t IS 'x'", "CREATE PUBLICATION x", "ALTER PUBLICATION x SET (publish = 'insert')", "DROP PUBLICATION x",
	"CREATE FOREIGN DATA WRAPPER x", "ALTER FOREIGN DATA WRAPPER x NO VALIDATOR", "CREATE SERVER x FOREIGN DATA WRAPPER w", "ALTER SERVER x VERSION '1'", "CREATE FOREIGN TABLE x (a int) SERVER s",
	"CREATE USER MAPPING FOR public SERVER s", "ALTER USER MAPPING FOR public SERVER s OPTIONS (SET a 'b')", "DROP USER MAPPING FOR public SERVER s", "IMPORT FOREIGN SCHEMA x FROM SERVER s INTO public",
	"CREATE TEXT SEARCH CONFIGURATION x (COPY = english)", "ALTER TEXT SEARCH CONFIGURATION x DROP MAPPING FOR word", "ALTER TEXT SEARCH DICTIONARY simple (accept = false)", "CREATE COLLATION x (LOCALE = 'C')",
	"ALTER COLLATION x REFRESH VERSION", "CREATE CONVERSION x FOR 'UTF8' TO 'LATIN1' FROM utf8_to_iso8859_1", "CREATE ACCESS METHOD x TYPE INDEX HANDLER bthandler", "CREATE LANGUAGE x",
	"CREATE TRANSFORM FOR int LANGUAGE sql (FROM SQL WITH FUNCTION f(internal))", "ALTER DATABASE d SET work_mem = '1MB'", "ALTER DATABASE d CONNECTION LIMIT 5", "ALTER DATABASE d REFRESH COLLATION VERSION",
	"ALTER DATABASE d RENAME TO x", "ALTER TABLESPACE s SET (seq_page_cost = 1)", "ALTER TABLE ALL IN TABLESPACE s SET TABLESPACE u", "ALTER TABLE t OWNER TO postgres",
	"ALTER TYPE c ADD ATTRIBUTE b int", "ALTER FUNCTION f() DEPENDS ON EXTENSION x", "ALTER LARGE OBJECT 1 OWNER TO postgres", "CREATE TABLE p1 PARTITION OF q FOR VALUES IN (1)",
}

func TestClasses(t *testing.T) {
	t.Parallel()
	for class, list := range statements {
		for _, sql := range list {
			got, err := analyze.Parse(sql)
			if err != nil || len(got) != 1 {
				t.Errorf("%s: %d statements, %v", sql, len(got), err)
				continue
			}
			if got[0].Class != class {
				t.Errorf("%s: class %s, want %s", sql, got[0].Class, class)
			}
		}
	}
	for c := analyze.Query; c <= analyze.Load; c++ {
		if len(statements[c]) == 0 || c.String() == "" {
			t.Errorf("class %d has no statement or no name", c)
		}
	}
}

// TestRefusedInTransaction asks a server which statements it refuses inside a transaction block:
// exactly those must not be run in one by a router.
func TestRefusedInTransaction(t *testing.T) {
	t.Parallel()
	server := shardtest.StartPostgres(t)
	conn, err := pgx.Connect(t.Context(), server.DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	run := func(sql string) error {
		_, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
		return err
	}
	for _, sql := range []string{
		`CREATE TABLE t (a int); CREATE INDEX i ON t (a); CREATE VIEW v AS SELECT 1; CREATE MATERIALIZED VIEW m AS SELECT 1;
		CREATE TABLE q (a int) PARTITION BY LIST (a); CREATE TABLE q1 PARTITION OF q FOR VALUES IN (5); CREATE SEQUENCE s;
		CREATE TYPE e AS ENUM ('a'); CREATE TYPE c AS (a int); CREATE DOMAIN d AS int; CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
		"CREATE DATABASE d",
	} {
		if err := run(sql); err != nil {
			t.Fatal(err)
		}
	}
	alone := []analyze.Class{analyze.NodeWise, analyze.Discard, analyze.FinishPrepared}
	for class, list := range statements {
		if class == analyze.Copy || class == analyze.Begin || class == analyze.PrepareTransaction {
			continue
		}
		for _, sql := range list {
			if err := run("BEGIN"); err != nil {
				t.Fatal(err)
			}
			err := run(sql)
			_ = run("ROLLBACK")
			_ = run("DEALLOCATE ALL; RESET ALL")
			var pgErr *pgconn.PgError
			refused := errors.As(err, &pgErr) && pgErr.Code == "25001"
			if refused && !slices.Contains(alone, class) {
				t.Errorf("%s is refused in a transaction, but its class is %s", sql, class)
			}
		}
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	text := "  SELECT 1 ; ;\n\tSELECT 2 -- c\n;/* x */ INSERT INTO t VALUES ('a;b')"
	got, err := analyze.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, s := range got {
		all = append(all, s.Text)
		if !strings.HasPrefix(text[s.Offset:], s.Text) {
			t.Errorf("offset %d of %q", s.Offset, s.Text)
		}
	}
	want := []string{"SELECT 1 ", "SELECT 2 -- c\n", "/* x */ INSERT INTO t VALUES ('a;b')"}
	if !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
	if got, err := analyze.Parse(" ; -- nothing\n"); err != nil || len(got) != 0 {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := analyze.Parse("SELEC 1"); !errors.Is(err, analyze.ErrSyntax) {
		t.Errorf("%v", err)
	}
}

func TestWalk(t *testing.T) {
	t.Parallel()
	s, err := analyze.Parse(`WITH c AS (SELECT f(1) FROM a) SELECT (SELECT g(x.b) FROM s.x), h(i(2)) FROM c JOIN d USING (k)
		WHERE EXISTS (SELECT FROM e) ORDER BY (SELECT 1 FROM z)`)
	if err != nil {
		t.Fatal(err)
	}
	var relations, calls []string
	for _, rv := range analyze.Relations(s[0].Tree) {
		relations = append(relations, strings.TrimPrefix(rv.Schemaname+"."+rv.Relname, "."))
	}
	for _, c := range analyze.Calls(s[0].Tree) {
		_, name := analyze.Name(c.Funcname)
		calls = append(calls, name)
	}
	slices.Sort(relations)
	slices.Sort(calls)
	if got := fmt.Sprint(relations, calls); got != "[a c d e s.x z] [f g h i]" {
		t.Error(got)
	}
	outer := 0
	analyze.Walk(s[0].Tree, func(m proto.Message) bool {
		if _, ok := m.(*pg.RangeVar); ok {
			outer++
		}
		_, sub := m.(*pg.SubLink)
		return !sub
	})
	if outer != 3 {
		t.Errorf("%d relations outside of sublinks, want 3", outer)
	}
	analyze.Walk(nil, func(proto.Message) bool { t.Error("visited"); return true })
	if schema, name := analyze.Name(nil); schema != "" || name != "" {
		t.Errorf("%q %q", schema, name)
	}
}

// TestDeparse checks that a tree written as SQL is the same tree when it is read again.
func TestDeparse(t *testing.T) {
	t.Parallel()
	for _, list := range statements {
		for _, sql := range list {
			s, err := analyze.Parse(sql)
			if err != nil {
				t.Fatal(err)
			}
			text, err := analyze.Deparse(s[0].Tree)
			if sql == "ALTER DATABASE d REFRESH COLLATION VERSION" {
				continue // the library cannot write it, and nobody needs it written
			}
			if err != nil {
				t.Errorf("%s: %v", sql, err)
				continue
			}
			want, err := pg.Fingerprint(sql)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := pg.Fingerprint(text); err != nil || got != want {
				t.Errorf("%s became %s: %v", sql, text, err)
			}
		}
	}
}
