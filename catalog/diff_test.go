package catalog_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/shardtest"
)

// furtherSchema has what richSchema has not, because only the comparison looks at it.
const furtherSchema = `
COMMENT ON TABLE customers IS 'who buys'; COMMENT ON COLUMN customers.name IS 'their name'; COMMENT ON SCHEMA public IS 'ours';
CREATE POLICY own ON customers FOR SELECT TO app USING (name = current_user);
GRANT SELECT ON customers TO PUBLIC; GRANT UPDATE (name) ON customers TO app; GRANT USAGE ON SCHEMA "Odd ""one"" space" TO app;
REVOKE EXECUTE ON FUNCTION twice(int) FROM PUBLIC;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO app;
CREATE AGGREGATE total(int) (SFUNC = int4pl, STYPE = int, INITCOND = '0');
CREATE TYPE span AS RANGE (SUBTYPE = float8);
CREATE STATISTICS st ON customer, n FROM orders;
CREATE CAST (pair AS text) WITH INOUT;
CREATE INDEX by_note ON logged (a) WHERE a > 0;
CREATE ROLE member LOGIN PASSWORD 'pw' VALID UNTIL '2040-01-01' IN ROLE app; GRANT pg_monitor TO member;
ALTER ROLE member SET search_path = "Odd ""one"" space", public; ALTER ROLE member SET work_mem = '5MB';
ALTER ROLE member IN DATABASE postgres SET application_name = 'it''s'; COMMENT ON ROLE member IS 'of the club';
ALTER DATABASE postgres SET datestyle = 'ISO, DMY';
`

func source(t *testing.T, p *shardtest.Postgres, name string) catalog.Source {
	return catalog.Source{Node: name, Config: config(t, p, "", "")}
}

func TestDiff(t *testing.T) {
	t.Parallel()
	home, node := startServer(t), startServer(t)
	for i, p := range []*shardtest.Postgres{home, node} {
		bootstrap(t, p, i)
		// OIDs differ between nodes and do not count.
		run(t, connect(t, p, "", ""), strings.Repeat("CREATE TABLE x (a int); DROP TABLE x;", i)+richSchema+furtherSchema)
		run(t, connect(t, p, "", ""), "CREATE DATABASE shop")
	}
	// The same password has a verifier of its own on each server.
	run(t, connect(t, node, "", ""), fmt.Sprintf("ALTER ROLE member PASSWORD '%s'",
		one[string](t, connect(t, home, "", ""), "SELECT rolpassword FROM pg_authid WHERE rolname = 'member'")))
	run(t, connect(t, node, "", ""), "SELECT * FROM pg_shoal.place_sequences()")
	same, err := catalog.Diff(testContext(t), source(t, home, "home"), source(t, node, "one"))
	if err != nil {
		t.Fatal(err)
	}
	if len(same) != 0 {
		var text bytes.Buffer
		if err := catalog.WriteDifferences(&text, same); err != nil {
			t.Fatal(err)
		}
		t.Fatalf("equal nodes differ:\n%s", text.String())
	}
	checkPlanted(t, home, node)
}

// planted are changes made on the node only, and what Diff must say.
var planted = []struct{ sql, want string }{
	{`ALTER TABLE counted ADD COLUMN extra int`, "table public.counted differs"},
	{`ALTER TABLE customers ALTER COLUMN code SET DEFAULT 'z'`, "table public.customers differs"},
	{`ALTER TABLE countries ADD CONSTRAINT short CHECK (length(code) < 9)`, "table public.countries differs"},
	{`CREATE TABLE only_here (a int)`, "table public.only_here extra"},
	{`DROP INDEX by_note`, "index public.by_note missing"},
	{`CREATE OR REPLACE VIEW v2 AS SELECT id FROM v1 WHERE id > 0`, "view public.v2 differs"},
	{`CREATE OR REPLACE FUNCTION std() RETURNS int LANGUAGE sql STABLE BEGIN ATOMIC SELECT 43; END`, "function public.std() differs"},
	{`ALTER TYPE mood ADD VALUE 'fine'`, "type public.mood differs"},
	{`CREATE SCHEMA further`, "schema further extra"},
	{`ALTER ROLE member CREATEDB`, "role member differs"},
	{`CREATE ROLE stranger`, "role stranger extra"},
	{`GRANT INSERT ON customers TO app`, ""}, // the owner has it
	{`GRANT DELETE ON customers TO PUBLIC`, "grant table public.customers differs"},
	{`DROP TRIGGER tg ON logged`, "trigger public.logged.tg missing"},
	{`ALTER POLICY own ON customers USING (true)`, "policy public.customers.own differs"},
	{`ALTER SEQUENCE counter INCREMENT 2`, "sequence public.counter differs"},
	{`ALTER SEQUENCE bounded MAXVALUE 99 RESTART 5`, ""}, // bounds are the node's own
	{`COMMENT ON TABLE customers IS 'others'`, "comment table public.customers differs"},
	{`SELECT pg_shoal.unset_table('orders')`, "placement public.orders missing"},
	{`DROP RULE quiet ON logged`, "rule public.logged.quiet missing"},
	{`ALTER DATABASE postgres SET datestyle = 'ISO, MDY'`, "database postgres differs"},
	{`CREATE EXTENSION file_fdw SCHEMA public`, "extension file_fdw extra"},
	{`DROP DATABASE shop`, "database shop missing"},
}

func checkPlanted(t *testing.T, home, node *shardtest.Postgres) {
	conn := connect(t, node, "", "")
	missing := map[string]bool{}
	for _, p := range planted {
		if strings.Contains(p.sql, "file_fdw") && one[int](t, conn, "SELECT count(*)::int FROM pg_available_extensions WHERE name = 'file_fdw'") == 0 {
			continue
		}
		run(t, conn, p.sql)
		if p.want != "" {
			missing[p.want] = true
		}
	}
	// What comes along with the planted ones.
	expected := map[string]bool{
		"grant table public.only_here extra": true, "grant schema further extra": true, "comment extension file_fdw extra": true,
	}
	list, err := catalog.Diff(testContext(t), source(t, home, "home"), source(t, node, "one"))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range list {
		key := fmt.Sprint(d.Kind, " ", d.Name, " ", d.Change)
		if !missing[key] && !expected[key] {
			t.Errorf("not planted: %s\nhome: %s\nnode: %s", d, d.Home, d.Other)
		}
		delete(missing, key)
		if (d.Change == catalog.Differs) != (d.Home != "" && d.Other != "") {
			t.Errorf("%s: texts %q and %q", d, d.Home, d.Other)
		}
		if strings.Contains(d.Home+d.Other, "SCRAM-SHA-256") {
			t.Errorf("%s shows a verifier", d)
		}
	}
	for key := range missing {
		t.Errorf("not found: %s", key)
	}
	checkPrinting(t, list)
}

func checkPrinting(t *testing.T, list []catalog.Difference) {
	var text bytes.Buffer
	if err := catalog.WriteDifferences(&text, list); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"node one, database postgres: table public.counted differs\n    one: extra integer\n",
		"node one: role stranger extra\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("printed:\n%s\nwithout:\n%s", text.String(), want)
		}
	}
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	if want := `"kind":"table","name":"public.only_here","change":"extra"`; !strings.Contains(string(data), want) {
		t.Errorf("no %s in %s", want, data)
	}
}
