package catalog_test

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/shardtest"
)

func TestBootstrapNode(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	admin := connect(t, p, "", "")
	run(t, admin, "CREATE DATABASE shop")
	run(t, admin, "CREATE DATABASE closed ALLOW_CONNECTIONS false")
	bootstrap(t, p, 1)
	bootstrap(t, p, 1)
	run(t, admin, "CREATE DATABASE later")
	for _, database := range []string{"postgres", "template1", "shop", "later"} {
		conn := connect(t, p, "", database)
		id, ok, err := catalog.ReadIdentity(testContext(t), conn)
		if err != nil || !ok || id != identity(1) {
			t.Errorf("%s: identity %+v, %v, %v", database, id, ok, err)
		}
		if !one[bool](t, conn, "SELECT count(*) > 0 AND count(*) = max(step) FROM pg_shoal.version") {
			t.Errorf("%s: steps are missing", database)
		}
	}
	if got := one[string](t, admin, "SELECT concat_ws(' ', rolsuper, rolcanlogin, rolpassword) FROM pg_authid WHERE rolname = 'pgshoal'"); got != "f t "+verifier {
		t.Errorf("role pgshoal: %s", got)
	}
	t.Run("invisible", func(t *testing.T) { checkInvisible(t, p) })
	t.Run("refusals", func(t *testing.T) { checkRefusals(t, p) })
}

// TestBootstrapOfAnotherBuild has pg_shoal of a build whose steps were others.
func TestBootstrapOfAnotherBuild(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 1)
	conn := connect(t, p, "", "")
	for _, change := range []string{
		"UPDATE pg_shoal.version SET digest = 'x' WHERE step = 1",
		"ALTER TABLE pg_shoal.version DROP COLUMN digest",
	} {
		run(t, conn, change)
		if err := catalog.Bootstrap(testContext(t), conn, identity(1), catalog.RouterRole{}); !errors.Is(err, catalog.ErrOtherBuild) {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// checkInvisible checks that neither a dump nor psql's list of schemas shows pg_shoal.
func checkInvisible(t *testing.T, p *shardtest.Postgres) {
	for _, program := range [][]string{
		{"pg_dump", "--dbname=" + p.DSN("", "shop")},
		{"psql", "--dbname=" + p.DSN("", "shop"), "--command=\\dn", "--command=\\dt *", "--command=\\df"},
	} {
		path, err := exec.LookPath(program[0])
		if err != nil {
			t.Skip(err)
		}
		out, err := exec.Command(path, program[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", program[0], err, out)
		}
		if strings.Contains(string(out), "pg_shoal") || !strings.Contains(string(out), "public") && program[0] == "psql" {
			t.Errorf("%s shows:\n%s", program[0], out)
		}
	}
}

func checkRefusals(t *testing.T, p *shardtest.Postgres) {
	run(t, connect(t, p, "", ""), "CREATE ROLE plain LOGIN")
	locale, err := catalog.ReadLocale(testContext(t), connect(t, p, "", ""))
	if err != nil {
		t.Fatal(err)
	}
	other := locale
	other.Collate = "de_DE.UTF-8"
	for _, c := range []struct {
		name, role string
		id         catalog.Identity
		like       *catalog.Locale
		want       string
	}{
		{"cluster", "", catalog.Identity{Cluster: "c2", Name: "one", ID: 1}, nil, `belongs to cluster "c1" already`},
		{"name", "", catalog.Identity{Cluster: "c1", Name: "two", ID: 2}, nil, "is node one with id 1"},
		{"superuser", "plain", identity(1), nil, `role "plain" is not a superuser`},
		{"locale", "", identity(1), &other, `lc_collate is "C", the home node's is "de_DE.UTF-8"`},
		{"same locale", "", identity(1), &locale, ""},
		{"id", "", catalog.Identity{Cluster: "c1", Name: "one", ID: 40000}, nil, "outside 0 to 32766"},
	} {
		_, err := catalog.BootstrapNode(testContext(t), config(t, p, c.role, ""), c.id, catalog.RouterRole{}, c.like)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
}

// TestBootstrapNewer checks that an older pgshoal leaves a newer schema alone.
func TestBootstrapNewer(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	run(t, connect(t, p, "", ""), "INSERT INTO pg_shoal.version VALUES (99, '')")
	_, err := catalog.BootstrapNode(testContext(t), config(t, p, "", ""), identity(0), catalog.RouterRole{}, nil)
	if err == nil || !strings.Contains(err.Error(), "use a newer pgshoal") {
		t.Errorf("a newer schema: %v", err)
	}
}

func TestBootstrapSettings(t *testing.T) {
	t.Parallel()
	p := shardtest.StartPostgres(t, "max_prepared_transactions=0")
	_, err := catalog.BootstrapNode(testContext(t), config(t, p, "", ""), identity(0), catalog.RouterRole{Verifier: verifier}, nil)
	if err == nil || !strings.Contains(err.Error(), "max_prepared_transactions is 0") {
		t.Errorf("without prepared transactions: %v", err)
	}
	p2 := shardtest.StartPostgres(t, "max_prepared_transactions=1", "wal_level=replica")
	warnings, err := catalog.BootstrapNode(testContext(t), config(t, p2, "", ""), identity(0), catalog.RouterRole{Verifier: verifier}, nil)
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "wal_level is replica") {
		t.Errorf("without logical decoding: %q, %v", warnings, err)
	}
}

func TestSecurity(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	admin := connect(t, p, "", "")
	run(t, admin, `CREATE ROLE owner LOGIN; CREATE ROLE other LOGIN; CREATE ROLE helper LOGIN; GRANT owner TO helper;
		GRANT CREATE ON SCHEMA public TO PUBLIC; SET ROLE owner; CREATE TABLE mine (id bigint, v text); CREATE VIEW look AS SELECT 1; RESET ROLE`)
	const place = "SELECT pg_shoal.set_table('mine', 'distributed', 1, '{id}')"
	for _, c := range []struct{ role, sql, state string }{
		{"other", place, "42501"},
		{"other", "SELECT pg_shoal.unset_table('mine')", "42501"},
		{"other", "SELECT pg_shoal.check_owner('mine'::regclass)", "42501"},
		{"other", "INSERT INTO pg_shoal.tables VALUES ('mine'::regclass, 'reference')", "42501"},
		{"other", "DELETE FROM pg_shoal.tables", "42501"},
		{"other", "SELECT * FROM pg_shoal.verifier('postgres')", "42501"},
		{"other", "SELECT * FROM pg_shoal.decisions", "42501"},
		{"other", "SELECT * FROM pg_shoal.decide, pg_shoal.record", "42501"},
		{"other", "SELECT pg_shoal.evict('r')", "42501"},
		{"other", "SELECT pg_shoal.raise_epoch(9)", "42501"},
		{"other", "SELECT pg_shoal.admit('r', 9, 1)", "42501"},
		{"other", "CREATE TABLE pg_shoal.x (a int)", "42501"},
		{"other", "SELECT * FROM pg_shoal.read('SELECT rolpassword FROM pg_authid') AS (p text)", "42501"},
		{"other", "UPDATE pg_shoal.node SET id = 5", "42501"},
		{"pgshoal", "SELECT pg_shoal.evict('r')", "42501"},
		{"pgshoal", "SELECT rolpassword FROM pg_authid", "42501"},
		{"pgshoal", "SELECT * FROM pg_shoal.verifier('postgres')", ""},
		{"pgshoal", "SELECT * FROM pg_shoal.decisions", ""},
		{"other", "SELECT pg_shoal.remove_rows('mine', '[]')", "42501"},
		{"other", "SELECT pg_shoal.filter_condition('mine'::regclass, '{}')", "42501"},
		{"other", "SELECT * FROM pg_shoal.tables, pg_shoal.node", ""},
		{"owner", place, ""},
		{"helper", "SELECT pg_shoal.unset_table('mine')", ""},
		{"postgres", place, ""},
		{"owner", "SELECT pg_shoal.set_table('mine', 'distributed', 1, '{nope}')", "42703"},
		{"owner", "SELECT pg_shoal.set_table('mine', 'distributed', NULL, '{id}')", "23514"},
		{"owner", "SELECT pg_shoal.set_table('mine', 'odd', 1, '{id}')", "23514"},
		{"owner", "SELECT pg_shoal.set_table('look', 'reference', NULL, NULL)", "42809"},
		{"postgres", "SELECT pg_shoal.set_table('pg_class', 'reference', NULL, NULL)", "42809"},
	} {
		_, err := connect(t, p, c.role, "").Exec(testContext(t), c.sql)
		if state := sqlState(err); state != c.state {
			t.Errorf("%s: %s: SQLSTATE %q, want %q (%v)", c.role, c.sql, state, c.state, err)
		}
	}
	for _, f := range column(t, admin, `SELECT oid::regprocedure::text FROM pg_proc WHERE pronamespace = 'pg_shoal'::regnamespace
		AND NOT coalesce(proconfig @> '{"search_path=pg_catalog, pg_temp"}', false)`) {
		t.Errorf("%s has no fixed search_path", f)
	}
}

// TestTables checks that placements follow tables through renames, drops and rollbacks.
func TestTables(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	conn := connect(t, p, "", "")
	const show = "SELECT coalesce(string_agg(concat_ws(' ', relid::regclass, kind, distribution, key_columns), ', '), '') FROM pg_shoal.tables"
	for _, c := range []struct{ sql, want string }{
		{`CREATE TABLE a (gone int, x int, y int); ALTER TABLE a DROP COLUMN gone`, ""},
		{`SELECT pg_shoal.set_table('a', 'distributed', 2, '{y,x}')`, "a distributed 2 {3,2}"},
		{`ALTER TABLE a RENAME TO b; ALTER TABLE b RENAME COLUMN x TO z`, "b distributed 2 {3,2}"},
		{`SELECT pg_shoal.set_table('b', 'reference', NULL, NULL)`, "b reference {}"},
		{`BEGIN; DROP TABLE b; SELECT pg_shoal.forget_dropped(); ROLLBACK`, "b reference {}"},
		{`DROP TABLE b; SELECT pg_shoal.forget_dropped()`, ""},
	} {
		run(t, conn, c.sql)
		if got := one[string](t, conn, show); got != c.want {
			t.Errorf("after %s: %q, want %q", c.sql, got, c.want)
		}
	}
}

func TestDecide(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	admin := connect(t, p, "", "")
	run(t, admin, "CREATE ROLE someone LOGIN")
	someone := connect(t, p, "someone", "")
	gid := func(secret string) string {
		return one[string](t, admin, "SELECT 'g:' || left(encode(sha256('"+secret+"'), 'hex'), 32)")
	}
	write := func(view, gid, secret string) error {
		_, err := someone.Exec(testContext(t), "INSERT INTO pg_shoal."+view+" (gid, nodes, secret) VALUES ($1, '{n1,n2}', $2)", gid, secret)
		return err
	}
	for _, view := range []string{"decide", "record"} {
		if err := write(view, gid("one"), "guess"); sqlState(err) != "44000" {
			t.Errorf("%s by a role that does not know the secret: %v", view, err)
		}
		if err := write(view, gid("one"), "one"); err != nil {
			t.Error(err)
		}
	}
	if got := one[string](t, admin, "SELECT concat_ws(' ', gid, outcome, decided_by) FROM pg_shoal.decisions"); got != gid("one")+" commit someone" {
		t.Errorf("decision: %s", got)
	}
	run(t, admin, "INSERT INTO pg_shoal.decisions (gid, outcome) VALUES ('"+gid("two")+"', 'abort')")
	for _, secret := range []string{"one", "two"} {
		if err := write("decide", gid(secret), secret); sqlState(err) != "23505" {
			t.Errorf("%s decided twice: %v", secret, err)
		}
	}
	if got := one[string](t, someone, "SELECT string_agg(concat_ws(' ', gid, nodes), ';') FROM pg_shoal.seen"); got != gid("one")+" {n1,n2};"+gid("one")+" {n1,n2}" {
		t.Errorf("seen: %s", got)
	}
}

func TestFencing(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	admin := connect(t, p, "", "")
	run(t, admin, "CREATE ROLE app LOGIN")
	client, other := connect(t, p, "app", ""), connect(t, p, "app", "")
	admit := func(conn *pgx.Conn, router string, epoch int) bool {
		t.Helper()
		var ok bool
		if err := conn.QueryRow(testContext(t), "SELECT pg_shoal.admit($1, $2, pg_backend_pid())", router, epoch).Scan(&ok); err != nil {
			t.Fatal(err)
		}
		return ok
	}
	if !admit(client, "r1", 4) || !admit(other, "r2", 4) || !admit(client, "r1", 5) {
		t.Error("a backend was not admitted")
	}
	if got := one[int64](t, admin, "SELECT pg_shoal.raise_epoch(5)"); got != 5 {
		t.Errorf("epoch %d", got)
	}
	if got := one[int64](t, admin, "SELECT pg_shoal.raise_epoch(3)"); got != 5 {
		t.Errorf("the epoch went back to %d", got)
	}
	if admit(other, "r2", 4) || !admit(other, "r2", 5) {
		t.Error("the epoch does not decide")
	}
	if n := one[int32](t, admin, "SELECT pg_shoal.evict('r1')"); n != 1 {
		t.Errorf("%d backends were evicted", n)
	}
	if _, err := client.Exec(testContext(t), "SELECT 1"); err == nil {
		t.Error("an evicted backend still answers")
	}
	if _, err := other.Exec(testContext(t), "SELECT 1"); err != nil {
		t.Errorf("the other router's backend: %v", err)
	}
	if got := column(t, admin, "SELECT router FROM pg_shoal.backends"); len(got) != 1 || got[0] != "r2" {
		t.Errorf("backends of %v", got)
	}
}

func TestPlaceSequences(t *testing.T) {
	t.Parallel()
	home, node := startServer(t), startServer(t)
	for i, p := range []*shardtest.Postgres{home, node} {
		bootstrap(t, p, i*2)
		admin := connect(t, p, "", "")
		run(t, admin, `CREATE ROLE owner LOGIN; GRANT CREATE ON SCHEMA public TO owner; CREATE SEQUENCE foreign_one;
			SET ROLE owner; CREATE TABLE a (id bigserial, i bigint GENERATED BY DEFAULT AS IDENTITY, s serial);
			CREATE SEQUENCE bounded MAXVALUE 100; CREATE SEQUENCE down INCREMENT -1; CREATE SEQUENCE "Odd name" START 50; CREATE TEMP SEQUENCE passing`)
	}
	const place = `SELECT concat_ws(' ', sequence, placed, reason) FROM pg_shoal.place_sequences() ORDER BY 1`
	owner := connect(t, node, "owner", "")
	want := []string{
		`public."Odd name" t`, `public.a_i_seq t`, `public.a_id_seq t`,
		`public.a_s_seq f its type is integer, blocks need bigint`,
		`public.bounded f it has bounds of its own`, `public.down f it descends`,
		`public.foreign_one f it belongs to role postgres`,
	}
	if got := column(t, owner, place); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("placed:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	const low = 2<<48 + 1
	for _, s := range []string{"a_id_seq", "a_i_seq", `"Odd name"`} {
		if got := one[int64](t, owner, "SELECT nextval('"+s+"')"); got != low {
			t.Errorf("%s gives %d, want %d", s, got, low)
		}
	}
	for _, line := range column(t, owner, place) {
		if strings.Contains(line, " t") && !strings.Contains(line, " f ") {
			t.Errorf("placed again: %s", line)
		}
	}
	if got := one[int64](t, owner, "SELECT nextval('a_id_seq')"); got != low+1 {
		t.Errorf("the second value is %d", got)
	}
	if got := column(t, connect(t, home, "owner", ""), place); len(got) != 0 {
		t.Errorf("the home node placed %v", got)
	}
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	if err != nil {
		return err.Error()
	}
	return ""
}
