package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// narrow is a cluster whose routers have few connections to each node, so that sessions share them.
var narrow = sync.OnceValue(func() *cluster.Cluster {
	return cluster.Start(suite, cluster.Options{Nodes: 2, Configure: func(_ int, cfg *router.Config) { cfg.Pool.MaxPerPool = 3 }})
})

// TestSettingsStayInTheirSession runs many sessions over few server connections, each with its own
// settings, and looks for anything that leaks from one to another.
func TestSettingsStayInTheirSession(t *testing.T) {
	c := narrow()
	setup := connect(t, c.DSN(0))
	run(t, setup, "CREATE TABLE sess_t (id bigint PRIMARY KEY, who text)", "SELECT create_distributed_table('sess_t', 'id')",
		"CREATE SCHEMA sess_a", "CREATE TABLE sess_a.sess_s (v text)", "INSERT INTO sess_a.sess_s VALUES ('a')",
		"CREATE SCHEMA sess_b", "CREATE TABLE sess_b.sess_s (v text)", "INSERT INTO sess_b.sess_s VALUES ('b')")
	defaults := `SELECT current_setting('TimeZone'), current_setting('work_mem'), current_setting('my.tenant', true),
		current_setting('standard_conforming_strings'), current_setting('search_path')`
	want := ask(t, setup, defaults)
	const sessions, rounds = 24, 15
	errs := make(chan error, sessions)
	for i := range sessions {
		go func() { errs <- settingsRounds(t.Context(), c.DSN(0), i, rounds) }()
	}
	for range sessions {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	checkPlaced(t, c, "sess_t", "id", sessions*rounds)
	for range 6 {
		// A custom setting that was never set is NULL in a fresh session and "" where it was reset.
		if got := ask(t, connect(t, c.DSN(0)), defaults); got != want {
			t.Errorf("a new session begins with %s, not %s", got, want)
		}
	}
}

func settingsRounds(ctx context.Context, dsn string, who, rounds int) error {
	conn, err := pgx.Connect(ctx, dsn+fmt.Sprintf("&application_name=app-%d", who))
	if err != nil {
		return err
	}
	defer hangUp(conn)
	schema := []string{"a", "b"}[who%2]
	zone := []string{"Asia/Tokyo", "America/New_York", "UTC"}[who%3]
	memory := fmt.Sprintf("%dkB", 1000+who)
	for _, sql := range []string{
		"SET work_mem = '" + memory + "'", "SET search_path = sess_" + schema + ", public", "SET TIME ZONE '" + zone + "'",
		fmt.Sprintf("SET my.tenant = 't%d'", who),
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	want := fmt.Sprintf("%s %s t%d app-%d %s", memory, zone, who, who, schema)
	for r := range rounds {
		id := who*rounds + r
		if _, err := conn.Exec(ctx, "INSERT INTO sess_t VALUES ($1, current_setting('my.tenant'))", id); err != nil {
			return err
		}
		var got string
		sql := `SELECT concat_ws(' ', current_setting('work_mem'), current_setting('TimeZone'), current_setting('my.tenant'),
			current_setting('application_name'), (SELECT v FROM sess_s))`
		if err := conn.QueryRow(ctx, sql).Scan(&got); err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("session %d sees %q, not %q", who, got, want)
		}
		// On whichever node the row is, the session's settings hold too.
		if err := conn.QueryRow(ctx, "SELECT who || current_setting('work_mem') FROM sess_t WHERE id = $1", id).Scan(&got); err != nil {
			return err
		}
		if got != fmt.Sprintf("t%d%s", who, memory) {
			return fmt.Errorf("session %d sees %q by key", who, got)
		}
	}
	return nil
}

func TestSetResetDiscard(t *testing.T) {
	// Without statements that the driver prepares: DISCARD ALL takes them away.
	conn := connect(t, narrow().DSN(0, "options=-c%20work_mem%3D7MB", "default_query_exec_mode=exec"))
	show := func(want, name string) {
		t.Helper()
		expect(t, conn, want, "SHOW "+name)
	}
	show("7MB", "work_mem")
	run(t, conn, "SET work_mem = '9MB'")
	show("9MB", "work_mem")
	run(t, conn, "BEGIN", "SET work_mem = '11MB'", "SAVEPOINT a", "SET work_mem = '12MB'", "ROLLBACK TO a")
	show("11MB", "work_mem")
	run(t, conn, "ROLLBACK")
	show("9MB", "work_mem")
	run(t, conn, "BEGIN", "SET LOCAL work_mem = '13MB'")
	show("13MB", "work_mem")
	run(t, conn, "COMMIT")
	show("9MB", "work_mem")
	run(t, conn, "RESET work_mem")
	show("7MB", "work_mem")
	run(t, conn, "SET work_mem = '9MB'", "SET lock_timeout = '3s'", "RESET ALL")
	show("7MB", "work_mem")
	show("0", "lock_timeout")
	expect(t, conn, "8MB", "SELECT set_config('work_mem', '8MB', false)")
	show("8MB", "work_mem")
	run(t, conn, "BEGIN")
	expect(t, conn, "10MB", "SELECT set_config('work_mem', '10MB', true)")
	run(t, conn, "COMMIT")
	show("8MB", "work_mem")
	run(t, conn, "PREPARE p AS SELECT 1", "CREATE TEMP TABLE gone (a int)", "DISCARD ALL")
	show("7MB", "work_mem")
	fails(t, conn, "26000", "EXECUTE p")
	fails(t, conn, "42P01", "SELECT * FROM gone")
	run(t, conn, "SET default_transaction_isolation = 'repeatable read'")
	show("repeatable read", "transaction_isolation")
	run(t, conn, "SET DateStyle = 'German, DMY'")
	expect(t, conn, "15.11.2026", "SELECT '2026-11-15'::date::text")
	if got := conn.PgConn().ParameterStatus("DateStyle"); got != "German, DMY" {
		t.Errorf("the client was told DateStyle %q", got)
	}
	run(t, conn, "SET application_name = 'it''s me'")
	if got := conn.PgConn().ParameterStatus("application_name"); got != "it's me" {
		t.Errorf("the client was told application_name %q", got)
	}
	// Every statement of a failed transaction is gone, settings too.
	run(t, conn, "BEGIN", "SET work_mem = '99MB'")
	fails(t, conn, "22012", "SELECT 1/0")
	run(t, conn, "COMMIT")
	show("7MB", "work_mem")
}

// TestSettingsChangedInsideRoutines changes settings where no statement shows it: the session sees
// the change as long as it lives, and nobody else ever does.
func TestSettingsChangedInsideRoutines(t *testing.T) {
	// In a database without distributed tables, because functions that build SQL are refused elsewhere.
	run(t, connect(t, narrow().DSN(0)), "CREATE DATABASE sess_db")
	dsn := narrow().RoleDSN(0, cluster.Superuser, cluster.Password, "sess_db")
	setup := connect(t, dsn)
	run(t, setup, `CREATE FUNCTION sess_set(n text, v text) RETURNS text LANGUAGE plpgsql AS
			$$ BEGIN PERFORM set_config(n, v, false); RETURN v; END $$`,
		`CREATE FUNCTION sess_set_sql(n text, v text) RETURNS text LANGUAGE sql AS $$ SELECT set_config(n, v, false) $$`,
		`CREATE FUNCTION sess_execute() RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE $x$SET work_mem = '17MB'$x$; END $$`,
		`CREATE PROCEDURE sess_call() LANGUAGE plpgsql AS $$ BEGIN SET work_mem = '17MB'; END $$`)
	for _, change := range []string{
		"SELECT sess_set('work_mem', '17MB')", "SELECT sess_set_sql('work_mem', '17MB')", "SELECT sess_execute()", "CALL sess_call()",
		"DO $$ BEGIN PERFORM set_config('work_mem', '17MB', false); END $$", "UPDATE pg_settings SET setting = '17MB' WHERE name = 'work_mem'",
		"SELECT set_config(n, '17MB', false) FROM (VALUES ('work_mem')) v(n)",
	} {
		t.Run(change, func(t *testing.T) {
			conn := connect(t, dsn)
			run(t, conn, change)
			others := []*pgx.Conn{connect(t, dsn), connect(t, dsn)}
			for range 3 {
				expect(t, conn, "17MB", "SHOW work_mem")
				for _, other := range others {
					expect(t, other, "4MB", "SHOW work_mem")
				}
			}
			hangUp(conn)
			for range 4 {
				expect(t, connect(t, dsn), "4MB", "SHOW work_mem")
			}
		})
	}
}

func TestTemporaryTables(t *testing.T) {
	c := narrow()
	var conns []*pgx.Conn
	for i := range 3 {
		conn := connect(t, c.DSN(0))
		conns = append(conns, conn)
		run(t, conn, "CREATE TEMP TABLE tmp_t (v int)", fmt.Sprintf("INSERT INTO tmp_t VALUES (%d)", i))
		if i == 0 {
			run(t, conn, "DROP TABLE tmp_t", "CREATE TEMPORARY TABLE tmp_t AS SELECT 0 AS v")
		}
	}
	for i, conn := range conns {
		expect(t, conn, fmt.Sprint(i), "SELECT v FROM tmp_t")
		run(t, conn, "BEGIN", "CREATE TEMP TABLE tmp_drop (a int) ON COMMIT DROP", "INSERT INTO tmp_drop VALUES (1)", "COMMIT")
		fails(t, conn, "42P01", "SELECT * FROM tmp_drop")
	}
	for _, conn := range conns {
		hangUp(conn)
	}
	// The connections are given back clean.
	for range 5 {
		fails(t, connect(t, c.DSN(0)), "42P01", "SELECT v FROM tmp_t")
	}
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		waitFor(t, "temporary tables to go", func() bool {
			return ask(t, conn, "SELECT count(*) FROM pg_class WHERE relname = 'tmp_t'") == "0"
		})
	})
	t.Run("an ordinary table of the same name", func(t *testing.T) {
		conn := connect(t, c.DSN(0))
		run(t, conn, "CREATE TEMP TABLE tmp_same (a int)", "CREATE TABLE tmp_same (a int, b bool)")
		sameOnNodes(t, c, "1", "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename = 'tmp_same'")
		run(t, conn, "DROP TABLE tmp_same", "ALTER TABLE tmp_same ADD COLUMN c int", "DROP TABLE tmp_same")
		sameOnNodes(t, c, "0", "SELECT count(*) FROM pg_tables WHERE tablename = 'tmp_same'")
	})
	// A temporary table hides a distributed one of the same name, in its own session only.
	conn := connect(t, c.DSN(0))
	run(t, conn, "CREATE TABLE tmp_hide (id int PRIMARY KEY, v text)", "SELECT create_distributed_table('tmp_hide', 'id')", "INSERT INTO tmp_hide VALUES (1, 'real')")
	run(t, conn, "CREATE TEMP TABLE tmp_hide (id int, v text)", "INSERT INTO tmp_hide VALUES (1, 'temp'), (2, 'temp')")
	expect(t, conn, "2", "SELECT count(*) FROM tmp_hide")
	expect(t, conn, "temp", "SELECT v FROM tmp_hide WHERE id = 1")
	expect(t, conn, "real", "SELECT v FROM public.tmp_hide WHERE id = 1")
	expect(t, connect(t, c.DSN(0)), "real", "SELECT v FROM tmp_hide WHERE id = 1")
}

func TestListenNotify(t *testing.T) {
	c := shared()
	for i := range 2 {
		listener := connect(t, c.DSN(i))
		run(t, listener, "LISTEN news", `LISTEN "Odd Channel"`)
		notifier := connect(t, c.DSN(1-i))
		run(t, notifier, "NOTIFY news, 'one'", "SELECT pg_notify('Odd Channel', 'two')", "BEGIN", "NOTIFY news, 'never'", "ROLLBACK",
			"BEGIN", "NOTIFY news, 'three'", "COMMIT")
		for _, want := range []string{"one", "two", "three"} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			n, err := listener.WaitForNotification(ctx)
			cancel()
			if err != nil {
				t.Fatalf("waiting for %q: %v", want, err)
			}
			if n.Payload != want {
				t.Errorf("notified of %q, not %q", n.Payload, want)
			}
		}
		run(t, listener, "UNLISTEN *", "NOTIFY news, 'four'")
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if n, err := listener.WaitForNotification(ctx); err == nil {
			t.Errorf("notified of %q after UNLISTEN", n.Payload)
		}
		cancel()
	}
}

func TestAdvisoryLocks(t *testing.T) {
	a, b := connect(t, narrow().DSN(0)), connect(t, narrow().DSN(0))
	run(t, a, "SELECT pg_advisory_lock(4711)")
	for range 10 {
		expect(t, b, "false", "SELECT pg_try_advisory_lock(4711)")
		expect(t, a, "1", "SELECT 1")
	}
	run(t, b, "BEGIN", "SELECT pg_advisory_xact_lock(4712)")
	expect(t, a, "false", "SELECT pg_try_advisory_lock(4712)")
	run(t, b, "COMMIT")
	expect(t, a, "true", "SELECT pg_try_advisory_lock(4712)")
	expect(t, a, "true|true", "SELECT pg_advisory_unlock(4711), pg_advisory_unlock(4712)")
	expect(t, b, "true", "SELECT pg_try_advisory_lock(4711)")
	hangUp(b)
	waitFor(t, "the lock of a session that is gone", func() bool { return ask(t, a, "SELECT pg_try_advisory_lock(4711)") == "true" })
	run(t, a, "SELECT pg_advisory_unlock_all()")
}

// TestManyIdleSessions has more sessions than server connections, which only those at work hold.
func TestManyIdleSessions(t *testing.T) {
	c := narrow()
	var conns []*pgx.Conn
	for range 60 {
		conns = append(conns, connect(t, c.DSN(0)))
	}
	for i, conn := range conns {
		expect(t, conn, fmt.Sprint(i), "SELECT $1::int", i)
	}
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		if n := ask(t, conn, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'postgres' AND datname = 'postgres' AND pid <> pg_backend_pid() AND backend_type = 'client backend'"); len(n) > 1 {
			t.Errorf("%s has %s connections for 60 idle sessions", node, n)
		}
	})
}

// TestCancelInTheQueue cancels a statement that waits for a connection of a full pool.
func TestCancelInTheQueue(t *testing.T) {
	c := narrow()
	waiting := connect(t, c.DSN(0))
	for range 3 {
		holder := connect(t, c.DSN(0))
		run(t, holder, "BEGIN", "SELECT 1")
		defer run(t, holder, "ROLLBACK")
	}
	failed := later(t, waiting, "SELECT 2")
	waitFor(t, "the statement waits", func() bool {
		return slices.ContainsFunc(c.Router(0).Stats().Pools, func(p pool.Stats) bool { return p.Waiting > 0 })
	})
	if err := waiting.PgConn().CancelRequest(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused(t, <-failed, "57014", "canceling statement due to user request")
}

// TestBeginOfAKeptSession: BEGIN in a text of several statements is the client's own, also where the session has kept a connection
// that nothing has been begun on.
func TestBeginOfAKeptSession(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE begin_kept (id int)", "CREATE TEMP TABLE begin_temp (a int)")
	_, err := conn.PgConn().Exec(t.Context(), "BEGIN READ ONLY; INSERT INTO begin_kept VALUES (1)").ReadAll()
	refused(t, err, "25006")
	run(t, conn, "ROLLBACK")
	expect(t, conn, "0", "SELECT count(*) FROM begin_kept")
}
