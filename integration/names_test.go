package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest"
)

// nameScripts are the Query messages of one session each. What the name nm_t means changes in them.
var nameScripts = map[string][]string{
	"set":               {"SET search_path = nm_a; SELECT count(*) FROM nm_t; SET search_path = nm_b; SELECT count(*) FROM nm_t", "SELECT count(*) FROM nm_t"},
	"set, then a write": {"BEGIN; SET search_path = nm_b; UPDATE nm_t SET v = 'x'; SELECT count(*) FROM nm_t WHERE v = 'x'; ROLLBACK", "SELECT count(*) FROM nm_t"},
	"set local":         {"SELECT count(*) FROM nm_t", "BEGIN", "SET LOCAL search_path = nm_b", "SELECT count(*) FROM nm_t", "COMMIT", "SELECT count(*) FROM nm_t"},
	"set local, rolled back to a savepoint": {
		"BEGIN", "SAVEPOINT s", "SET LOCAL search_path = nm_b", "SELECT count(*) FROM nm_t", "ROLLBACK TO s", "SELECT count(*) FROM nm_t", "ROLLBACK",
	},
	"set, rolled back to a savepoint": {
		"BEGIN", "SET search_path = nm_a", "SAVEPOINT s", "SET search_path = nm_b", "SELECT count(*) FROM nm_t", "ROLLBACK TO s", "SELECT count(*) FROM nm_t", "ROLLBACK",
		"SELECT count(*) FROM nm_t",
	},
	"set local in one message": {"BEGIN; SET LOCAL search_path = nm_b; SELECT count(*) FROM nm_t; COMMIT; SELECT count(*) FROM nm_t"},
	"set local without a block": {
		"SET LOCAL search_path = nm_b; SELECT count(*) FROM nm_t", "SELECT count(*) FROM nm_t", "SET LOCAL search_path = nm_b", "SELECT count(*) FROM nm_t",
	},
	"set_config": {
		"SELECT set_config('search_path', 'nm_b', false); SELECT count(*) FROM nm_t", "SELECT count(*) FROM nm_t",
		"SELECT set_config('search_path', concat('nm', '_a'), false)", "SELECT count(*) FROM nm_t",
		"BEGIN", "SELECT set_config('search_path', concat('nm', '_b'), true)", "SELECT count(*) FROM nm_t", "COMMIT", "SELECT count(*) FROM nm_t",
	},
	"set_config in a function": {"SELECT nm_path('nm_b')", "SELECT count(*) FROM nm_t", "SELECT nm_path('nm_a'); SELECT count(*) FROM nm_t"},
	"set_config in a block":    {"DO $$ BEGIN PERFORM set_config('search_path', 'nm_b', false); END $$", "SELECT count(*) FROM nm_t"},
	"set in a block":           {"DO $$ BEGIN SET search_path = nm_b; END $$", "SELECT count(*) FROM nm_t"},
	"update of pg_settings":    {"UPDATE pg_settings SET setting = 'nm_b' WHERE name = 'search_path'", "SELECT count(*) FROM nm_t"},
	"reset": {
		"SET search_path = nm_b", "RESET search_path; SELECT count(*) FROM nm_t", "SET search_path = nm_b", "SELECT count(*) FROM nm_t", "RESET ALL", "SELECT count(*) FROM nm_t",
		"SET search_path = nm_b; RESET ALL; SELECT count(*) FROM nm_t", "SET search_path = nm_a", "DISCARD ALL", "SELECT count(*) FROM nm_t",
	},
	"prepared": {
		"PREPARE p AS SELECT count(*) FROM nm_t", "EXECUTE p", "SET search_path = nm_a", "EXECUTE p", "SET search_path = nm_b", "EXECUTE p",
		"CREATE TEMP TABLE nm_t (id int)", "EXECUTE p", "RESET search_path", "EXECUTE p", "DROP TABLE nm_t", "EXECUTE p",
	},
	"temporary": {
		"SELECT count(*) FROM nm_t", "CREATE TEMP TABLE nm_t (id int)", "SELECT count(*) FROM nm_t", "INSERT INTO nm_t VALUES (1), (2)", "SELECT count(*) FROM nm_t",
		"SELECT count(*) FROM public.nm_t", "DROP TABLE nm_t", "SELECT count(*) FROM nm_t",
	},
	"temporary in one message": {
		"CREATE TEMP TABLE nm_t (id int); INSERT INTO nm_t VALUES (1); SELECT count(*) FROM nm_t; DROP TABLE nm_t; SELECT count(*) FROM nm_t", "SELECT count(*) FROM nm_t",
	},
	"temporary, rolled back": {
		"BEGIN", "CREATE TEMP TABLE nm_t (id int)", "SELECT count(*) FROM nm_t", "ROLLBACK", "SELECT count(*) FROM nm_t",
		"BEGIN", "SAVEPOINT s", "CREATE TEMP TABLE nm_t (id int)", "SELECT count(*) FROM nm_t", "ROLLBACK TO s", "SELECT count(*) FROM nm_t", "COMMIT",
		"CREATE TEMP TABLE nm_t (id int)", "BEGIN", "DROP TABLE nm_t", "SELECT count(*) FROM nm_t", "ROLLBACK", "SELECT count(*) FROM nm_t",
	},
	"temporary, dropped on commit": {
		"BEGIN", "CREATE TEMP TABLE nm_t (id int) ON COMMIT DROP", "SELECT count(*) FROM nm_t", "COMMIT", "SELECT count(*) FROM nm_t",
		"BEGIN; CREATE TEMP TABLE nm_t (id int) ON COMMIT DROP; SELECT count(*) FROM nm_t; COMMIT; SELECT count(*) FROM nm_t",
		"CREATE TEMP TABLE nm_t (id int) ON COMMIT DROP", "SELECT count(*) FROM nm_t",
	},
	"temporary, renamed": {
		"CREATE TEMP TABLE nm_u (id int)", "SELECT count(*) FROM nm_t", "ALTER TABLE nm_u RENAME TO nm_t", "SELECT count(*) FROM nm_t", "ALTER TABLE nm_t RENAME TO nm_u",
		"SELECT count(*) FROM nm_t", "BEGIN; CREATE TEMP TABLE nm_w (id int); ALTER TABLE nm_w RENAME TO nm_t; SELECT count(*) FROM nm_t; COMMIT",
		"SELECT count(*) FROM nm_t",
	},
	"temporary, discarded": {"CREATE TEMP TABLE nm_t (id int)", "DISCARD TEMP", "SELECT count(*) FROM nm_t", "CREATE TEMP TABLE nm_t (id int)", "DISCARD ALL", "SELECT count(*) FROM nm_t"},
	"temporary with its schema": {
		"CREATE TABLE pg_temp.nm_t (id int)", "SELECT count(*) FROM nm_t", "SELECT count(*) FROM pg_temp.nm_t", "DROP TABLE pg_temp.nm_t", "SELECT count(*) FROM nm_t",
	},
	"temporary view and sequence": {
		"CREATE TEMP VIEW nm_t AS SELECT 1", "SELECT count(*) FROM nm_t", "DROP VIEW nm_t", "SELECT count(*) FROM nm_t",
		"CREATE TEMP TABLE nm_x AS SELECT 1 AS a; CREATE TEMP VIEW nm_t AS SELECT * FROM nm_x", "SELECT count(*) FROM nm_t", "DROP TABLE nm_x CASCADE", "SELECT count(*) FROM nm_t",
	},
	"temporary behind others": {
		"CREATE TEMP TABLE nm_t (id int)", "SET search_path = public, pg_temp", "SELECT count(*) FROM nm_t", "SET search_path = pg_temp, public", "SELECT count(*) FROM nm_t",
		"SET search_path = nm_b, pg_temp, public; SELECT count(*) FROM nm_t", "SET search_path = nm_empty, pg_temp, public", "SELECT count(*) FROM nm_t",
		"DROP TABLE pg_temp.nm_t", "SELECT count(*) FROM nm_t",
	},
	"temporary made by a block": {
		"DO $$ BEGIN CREATE TEMP TABLE nm_t (id int); END $$", "SELECT count(*) FROM nm_t", "DO $$ BEGIN DROP TABLE nm_t; END $$", "SELECT count(*) FROM nm_t",
	},
	"temporary made by SQL in a string": {"DO $$ BEGIN EXECUTE 'CREATE TEMP TABLE nm_t (id int)'; END $$", "SELECT count(*) FROM nm_t"},
	"temporary made by a function":      {"SELECT nm_make()", "SELECT count(*) FROM nm_t"},
	"temporary with a trigger": {
		`CREATE TEMP TABLE nm_u (a int); CREATE FUNCTION pg_temp.nm_f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.a := new.a + 1; RETURN new; END $$;
			CREATE TRIGGER x BEFORE INSERT ON nm_u FOR EACH ROW EXECUTE FUNCTION pg_temp.nm_f(); INSERT INTO nm_u VALUES (1) RETURNING a`,
		"CREATE TEMP TABLE nm_v (a int); CREATE INDEX nm_i ON nm_v (a); ALTER TABLE nm_v ADD b int; COMMENT ON TABLE nm_v IS 'x'; TRUNCATE nm_v; DROP TABLE nm_v",
	},
	"select into": {"SELECT 1 AS id INTO TEMP nm_t; SELECT count(*) FROM nm_t", "SELECT count(*) FROM nm_t", "CREATE TEMP TABLE IF NOT EXISTS nm_t AS SELECT 2", "SELECT count(*) FROM nm_t"},
	"a tenant that a function sets": {
		"SELECT nm_tenant('7')", "SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '7'",
		"BEGIN", "SELECT count(*) FROM nm_t", "SELECT nm_tenant('8')", "SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '8'", "ROLLBACK",
		"SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '7'",
		"BEGIN", "SELECT nm_tenant('9')", "COMMIT", "SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '9'",
		"SELECT nm_tenant('10'); SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '10'",
	},
	"a tenant that a function sets for the transaction": {
		"BEGIN", "SELECT nm_tenant_now('7')", "SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '7'", "COMMIT",
		"SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '7'", "SELECT nm_tenant_now('7')", "SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '7'",
		"SELECT nm_tenant_now('6'); SELECT count(*) FROM nm_t WHERE current_setting('nm.tenant', true) = '6'",
	},
	"a setting without a name": {"SELECT nm_any('nm.other', 'x')", "SELECT count(*) FROM nm_t WHERE current_setting('nm.other', true) = 'x'"},
	"role": {
		"SET ROLE nm_role", "SELECT count(*) FROM nm_t", "RESET ROLE; SELECT count(*) FROM nm_t", "SET ROLE nm_role; SELECT count(*) FROM nm_t; RESET ROLE", "SELECT count(*) FROM nm_t",
		"BEGIN", "SET LOCAL ROLE nm_role", "SELECT count(*) FROM nm_t", "COMMIT", "SELECT count(*) FROM nm_t",
	},
}

// refusedNames are the scripts that are refused at some point, rather than answered wrongly.
var refusedNames = map[string]bool{
	"update of pg_settings": true, "temporary made by a block": true, "temporary made by SQL in a string": true,
	"temporary made by a function": true, "a setting without a name": true,
}

// TestNamesMeanWhatTheyDoInPostgres changes, in all ways that a session has, which table a name means. Those of the
// cluster are distributed, so that a wrong guess is a wrong answer.
func TestNamesMeanWhatTheyDoInPostgres(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	setup := []string{
		"CREATE SCHEMA nm_a", "CREATE SCHEMA nm_b", "CREATE SCHEMA nm_empty", "CREATE ROLE nm_role", "CREATE SCHEMA nm_role", "GRANT USAGE ON SCHEMA nm_role TO nm_role",
		"CREATE TABLE nm_t (id int PRIMARY KEY, v text)", "CREATE TABLE nm_a.nm_t (id int PRIMARY KEY, v text)", "CREATE TABLE nm_b.nm_t (id int PRIMARY KEY, v text)",
		"CREATE TABLE nm_role.nm_t (id int PRIMARY KEY, v text)", "GRANT SELECT ON nm_t, nm_role.nm_t TO nm_role",
		"CREATE FUNCTION nm_path(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('search_path', $1, false); END $$",
		"CREATE FUNCTION nm_make() RETURNS void LANGUAGE plpgsql AS $$ BEGIN CREATE TEMP TABLE nm_t (id int); END $$",
		"CREATE FUNCTION nm_tenant(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('nm.tenant', $1, false); END $$",
		"CREATE FUNCTION nm_tenant_now(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('nm.tenant', $1, true); END $$",
		"CREATE FUNCTION nm_any(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config($1, $2, false); END $$",
		"INSERT INTO nm_t SELECT generate_series(1, 100)", "INSERT INTO nm_a.nm_t VALUES (1)", "INSERT INTO nm_b.nm_t SELECT generate_series(1, 50)",
		"INSERT INTO nm_role.nm_t SELECT generate_series(1, 30)",
	}
	run(t, connect(t, plain.DSN("", "")), setup...)
	run(t, client(t), append(setup, "SELECT create_distributed_table('nm_t', 'id')", "SELECT create_distributed_table('nm_b.nm_t', 'id')",
		"SELECT create_distributed_table('nm_role.nm_t', 'id')")...)
	for name, script := range nameScripts {
		t.Run(name, func(t *testing.T) {
			sameOutcomes(t, plain.DSN("", ""), script, refusedNames[name])
		})
	}
}

// sameOutcomes sends messages to a PostgreSQL and through a router. A script that may be refused ends there.
func sameOutcomes(t *testing.T, plain string, script []string, mayRefuse bool) {
	t.Helper()
	a, b := connect(t, plain), client(t)
	for _, message := range script {
		want, got := outcome(t, a, message), outcome(t, b, message)
		if mayRefuse && strings.HasPrefix(got, "0A000: ") {
			return
		}
		if got != want {
			t.Errorf("%s\nanswered %s, in PostgreSQL %s", message, got, want)
		}
	}
}

// outcome is what a Query message leads to: all rows and tags, and the error.
func outcome(t testing.TB, conn *pgx.Conn, message string) string {
	t.Helper()
	var said []string
	results, err := conn.PgConn().Exec(t.Context(), message).ReadAll()
	for _, r := range results {
		for _, row := range r.Rows {
			said = append(said, string(joined(row)))
		}
		said = append(said, r.CommandTag.String())
	}
	out := strings.Join(said, ", ")
	if err != nil {
		out = strings.SplitN(strings.TrimPrefix(describe(err), "ERROR "), "\n", 2)[0] + fmt.Sprintf(" after %q", out)
	}
	return out + " " + string(conn.PgConn().TxStatus())
}

func joined(row [][]byte) (out []byte) {
	for i, v := range row {
		if i > 0 {
			out = append(out, '|')
		}
		out = append(out, v...)
	}
	return out
}
