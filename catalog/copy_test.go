package catalog_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/shardtest"
)

const referenceRows = `
CREATE TABLE kinds (id int PRIMARY KEY, mood mood, moods mood[], p pair, rel regclass, gone int, big int8range,
    twice int GENERATED ALWAYS AS (id * 2) STORED, seq bigint GENERATED ALWAYS AS IDENTITY);
ALTER TABLE kinds DROP COLUMN gone;
CREATE TABLE sub (id int PRIMARY KEY REFERENCES kinds, t text) PARTITION BY RANGE (id);
CREATE TABLE sub_1 PARTITION OF sub FOR VALUES FROM (0) TO (500); CREATE TABLE sub_2 PARTITION OF sub FOR VALUES FROM (500) TO (5000);
INSERT INTO kinds SELECT i, 'ok', '{sad,ok}', (i, 'b')::pair, 'customers', int8range(i, i + 1) FROM generate_series(1, 1000) i;
INSERT INTO sub SELECT i, repeat('x', i) || E'\t\n\\' FROM generate_series(1, 1000) i;
INSERT INTO countries VALUES ('de'), ('fr'), ('');
CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''never''; END';
CREATE TRIGGER never BEFORE INSERT OR DELETE ON countries EXECUTE FUNCTION never();
SELECT pg_shoal.set_table('kinds', 'reference', NULL, NULL); SELECT pg_shoal.set_table('sub', 'reference', NULL, NULL);
`

func TestCopy(t *testing.T) {
	t.Parallel()
	home, node := startServer(t), startServer(t)
	bootstrap(t, home, 0)
	conn := connect(t, home, "", "")
	run(t, conn, richSchema+furtherSchema+referenceRows)
	run(t, conn, `CREATE DATABASE "Shop ""1""" OWNER app CONNECTION LIMIT 50`)
	run(t, conn, `REVOKE ALL ON DATABASE "Shop ""1""" FROM PUBLIC; GRANT CONNECT ON DATABASE "Shop ""1""" TO member, pgshoal`)
	run(t, connect(t, home, "", `Shop "1"`), `DROP SCHEMA public; CREATE SCHEMA s; CREATE TABLE s.t (id bigserial PRIMARY KEY);
		SELECT pg_shoal.set_table('s.t', 'distributed', 9, '{id}');
		CREATE SCHEMA "Ten ""a"""; CREATE TABLE "Ten ""a""".t (id int); SELECT pg_shoal.set_schema('Ten "a"', 10, -5), pg_shoal.place_directory(11)`)

	if _, err := catalog.CopySchema(testContext(t), home.DSN("", ""), node.DSN("", "")); err == nil || !strings.Contains(err.Error(), "bootstrap it first") {
		t.Errorf("without bootstrap: %v", err)
	}
	bootstrap(t, node, 1)
	// The second time finds everything done.
	for range 2 {
		warnings, err := catalog.CopySchema(testContext(t), home.DSN("", ""), node.DSN("", ""))
		if err != nil {
			t.Fatal(err)
		}
		if text := strings.Join(warnings, "\n"); len(warnings) != 2 || !strings.Contains(text, "public.bounded") || !strings.Contains(text, "customers_small_seq") {
			t.Errorf("warnings: %s", text)
		}
	}
	expectSame(t, home, node)
	if got := one[int64](t, connect(t, node, "", `Shop "1"`), "SELECT nextval('s.t_id_seq')"); got != 1<<48+1 {
		t.Errorf("a sequence of the new node gives %d", got)
	}
	const places = `SELECT string_agg(relid::regclass || ' ' || distribution || ' ' || cardinality(key_columns) || ' ' || coalesce(entry::text, '-'), ', ' ORDER BY distribution) FROM pg_shoal.placed`
	if got := one[string](t, connect(t, node, "", `Shop "1"`), places); got != `s.t 9 1 -, "Ten ""a""".t 10 0 -5, pg_shoal.directory 11 1 -` {
		t.Errorf("the new node knows these placements: %s", got)
	}
	checkReferenceRows(t, home, node)
	checkCopyRefusals(t, home, node)
}

func expectSame(t *testing.T, home, node *shardtest.Postgres) {
	t.Helper()
	list, err := catalog.Diff(testContext(t), source(t, home, "home"), source(t, node, "one"))
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := catalog.WriteDifferences(&text, list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 0 {
		t.Errorf("after the copy:\n%s", text.String())
	}
}

func checkReferenceRows(t *testing.T, home, node *shardtest.Postgres) {
	a, b := connect(t, home, "", ""), connect(t, node, "", "")
	for range 2 {
		if err := catalog.CopyReferenceTables(testContext(t), home.DSN("", ""), node.DSN("", "")); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"kinds", "sub", "sub_1", "countries", "customers"} {
			sum := fmt.Sprintf("SELECT count(*) || ' ' || coalesce(md5(string_agg(x::text, '|' ORDER BY x::text)), '') FROM %s x", table)
			if theirs, ours := one[string](t, b, sum), one[string](t, a, sum); theirs != ours {
				t.Errorf("%s: %s, want %s", table, theirs, ours)
			}
		}
	}
	// A failure changes nothing.
	run(t, b, "ALTER TABLE sub ADD CONSTRAINT small CHECK (id < 900) NOT VALID")
	if err := catalog.CopyReferenceTables(testContext(t), home.DSN("", ""), node.DSN("", "")); sqlState(err) != "23514" {
		t.Errorf("against a constraint: %v", err)
	}
	if n := one[int](t, b, "SELECT count(*)::int FROM countries"); n != 3 {
		t.Errorf("countries has %d rows after a failed copy", n)
	}
	run(t, b, "ALTER TABLE sub DROP CONSTRAINT small")
}

// TestCopyAsOwner checks that code of a table's owner does not run with the administrator's rights.
func TestCopyAsOwner(t *testing.T) {
	t.Parallel()
	home, node := startServer(t), startServer(t)
	bootstrap(t, home, 0)
	bootstrap(t, node, 1)
	conn := connect(t, home, "", "")
	run(t, conn, `CREATE ROLE sly LOGIN; GRANT CREATE ON SCHEMA public TO sly; SET ROLE sly; CREATE TABLE seen (who text);
		CREATE FUNCTION look(int) RETURNS bool LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen VALUES (current_user); RETURN true; END';
		CREATE TABLE ref (a int CHECK (look(a))); INSERT INTO ref VALUES (1), (2); RESET ROLE;
		SELECT pg_shoal.set_table('ref', 'reference', NULL, NULL)`)
	if _, err := catalog.CopySchema(testContext(t), home.DSN("", ""), node.DSN("", "")); err != nil {
		t.Fatal(err)
	}
	if err := catalog.CopyReferenceTables(testContext(t), home.DSN("", ""), node.DSN("", "")); err != nil {
		t.Fatal(err)
	}
	if got := column(t, connect(t, node, "", ""), "SELECT DISTINCT who FROM seen"); len(got) != 1 || got[0] != "sly" {
		t.Errorf("the constraint ran as %q", got)
	}
	for _, c := range []struct{ sql, want string }{
		{"ALTER TABLE ref ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY", "row security is forced"},
		{"ALTER TABLE ref NO FORCE ROW LEVEL SECURITY; REVOKE ALL ON SCHEMA public FROM PUBLIC, sly", "may not use schema public"},
	} {
		run(t, conn, c.sql)
		if err := catalog.CopyReferenceTables(testContext(t), home.DSN("", ""), node.DSN("", "")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.sql, err)
		}
	}
}

func checkCopyRefusals(t *testing.T, home, node *shardtest.Postgres) {
	for _, c := range []struct{ sql, undo, want string }{
		{"CREATE TABLE mine (a int)", "DROP TABLE mine", "the target has objects already"},
		{"CREATE DATABASE mine", "DROP DATABASE mine", `the target has a database "mine"`},
	} {
		conn := connect(t, node, "", "")
		run(t, conn, c.sql)
		if _, err := catalog.CopySchema(testContext(t), home.DSN("", ""), node.DSN("", "")); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("after %s: %v", c.sql, err)
		}
		run(t, conn, c.undo)
	}
	if _, err := catalog.CopySchema(testContext(t), node.DSN("", ""), home.DSN("", "")); err == nil || !strings.Contains(err.Error(), "not the home node") {
		t.Errorf("the wrong way: %v", err)
	}
	if _, err := catalog.CopySchema(testContext(t), home.DSN("", ""), node.DSN("member", "")); err == nil || !strings.Contains(err.Error(), "same name") {
		t.Errorf("another administrator: %v", err)
	}
}

// TestCopyAdminPassword checks that the copy never locks out the connection string it was given.
func TestCopyAdminPassword(t *testing.T) {
	t.Parallel()
	home, node := startServer(t), startServer(t)
	bootstrap(t, home, 0)
	bootstrap(t, node, 1)
	const read = "SELECT coalesce(rolpassword, '') FROM pg_authid WHERE rolname = 'postgres'"
	a, b := connect(t, home, "", ""), connect(t, node, "", "")
	run(t, a, "ALTER ROLE postgres PASSWORD 'one secret'")
	run(t, b, "ALTER ROLE postgres PASSWORD 'another'")
	before := one[string](t, b, read)
	withPassword := func(password string) string {
		return strings.Replace(node.DSN("", ""), "postgres@", "postgres:"+password+"@", 1)
	}
	warnings, err := catalog.CopySchema(testContext(t), home.DSN("", ""), withPassword("another"))
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "another password") {
		t.Errorf("other password: %q, %v", warnings, err)
	}
	if one[string](t, b, read) != before {
		t.Error("the administrator's password was changed")
	}
	warnings, err = catalog.CopySchema(testContext(t), home.DSN("", ""), withPassword("one%20secret"))
	if err != nil || len(warnings) != 0 {
		t.Errorf("same password: %q, %v", warnings, err)
	}
	if one[string](t, b, read) != one[string](t, a, read) {
		t.Error("the verifiers differ after the copy")
	}
}
