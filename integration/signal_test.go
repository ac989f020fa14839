package integration

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// sleepOn runs a long statement and returns its error; waiting ends when the node runs it.
func sleepOn(t *testing.T, conn *pgx.Conn, mark string) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), "SELECT pg_sleep(60) /* "+mark+" */", pgx.QueryExecModeSimpleProtocol)
		done <- err
	}()
	node, end := nodeConnection(t, shared(), "node1", "postgres")
	defer end()
	waitFor(t, "the statement to run", func() bool {
		return ask(t, node, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query LIKE $1 AND query LIKE 'SELECT pg_sleep%'", "%"+mark+"%") == "1"
	})
	return done
}

// TestSignalByClientPID cancels and ends sessions by the process number that their drivers know.
func TestSignalByClientPID(t *testing.T) {
	conn := client(t)
	for name, mode := range allModes {
		t.Run(name, func(t *testing.T) {
			other := client(t)
			pid := other.PgConn().PID()
			if pid < 1<<22 || pid > 1<<31-1 {
				t.Errorf("process number %d may be a node's own, or is none", pid)
			}
			call := func(function string) bool {
				t.Helper()
				var done bool
				if err := conn.QueryRow(t.Context(), "SELECT "+function+"($1)", mode, int32(pid)).Scan(&done); err != nil {
					t.Fatal(describe(err))
				}
				return done
			}
			running := sleepOn(t, other, "cancel "+name)
			if !call("pg_cancel_backend") {
				t.Error("not cancelled")
			}
			refused(t, <-running, "57014", "canceling statement due to user request")
			expect(t, other, "1", "SELECT 1")
			if !call("pg_cancel_backend") {
				t.Error("an idle session cannot be cancelled, but it is there")
			}
			expect(t, other, "1", "SELECT 1")
			running = sleepOn(t, other, "terminate "+name)
			if !call("pg_terminate_backend") {
				t.Error("not terminated")
			}
			if err := <-running; err == nil {
				t.Error("the statement of a terminated session ended well")
			}
			waitFor(t, "the session to end", func() bool { return !call("pg_terminate_backend") })
			idle := client(t)
			run(t, idle, "BEGIN", "SELECT 1")
			pid = idle.PgConn().PID()
			if !call("pg_terminate_backend") {
				t.Error("a session idle in a transaction was not terminated")
			}
			waitFor(t, "the session to end", func() bool { return !call("pg_terminate_backend") })
			_, err := idle.Exec(t.Context(), "SELECT 1")
			if e := (*pgconn.PgError)(nil); err == nil || errors.As(err, &e) && e.Code != "57P01" {
				t.Errorf("an ended session answers %v", err)
			}
		})
	}
}

func TestSignalRights(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE ROLE sig_a LOGIN PASSWORD 'a'", "CREATE ROLE sig_b LOGIN PASSWORD 'b'")
	a := connect(t, shared().RoleDSN(0, "sig_a", "a", cluster.Superuser))
	b := connect(t, shared().RoleDSN(0, "sig_b", "b", cluster.Superuser))
	_, err := a.Exec(t.Context(), "SELECT pg_cancel_backend($1)", int32(b.PgConn().PID()))
	refused(t, err, "42501", "must be a member of the role whose query is being canceled")
	_, err = a.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int32(conn.PgConn().PID()))
	refused(t, err, "42501", "must be a superuser to terminate superuser process")
	run(t, conn, "GRANT sig_b TO sig_a")
	expect(t, a, "true", "SELECT pg_cancel_backend($1)", int32(b.PgConn().PID()))
	_, err = a.Exec(t.Context(), "SELECT pg_cancel_backend($1)", int32(a.PgConn().PID()))
	refused(t, err, "57014")
	expect(t, a, "1", "SELECT 1")
	// A client of another router is under the same rules.
	far := connect(t, shared().DSN(1))
	_, err = a.Exec(t.Context(), "SELECT pg_cancel_backend($1)", int32(far.PgConn().PID()))
	refused(t, err, "42501", "must be a superuser to cancel superuser query")
	run(t, conn, "SET ROLE sig_b")
	_, err = conn.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int32(far.PgConn().PID()))
	refused(t, err, "42501", "must be a superuser to terminate superuser process")
	run(t, conn, "RESET ROLE")
	expect(t, conn, "false", "SELECT pg_cancel_backend(2147483647)")
	// A node's own process numbers are the node's.
	node, done := nodeConnection(t, shared(), "node1", "postgres")
	defer done()
	expect(t, conn, "true", "SELECT pg_cancel_backend($1)", ask(t, node, "SELECT pg_backend_pid()"))
	hangUp(a)
	hangUp(b)
	run(t, conn, "DROP ROLE sig_a, sig_b")
}

// TestSignalThroughAnotherRouter cancels and ends sessions that are connected elsewhere, and waits for their end.
func TestSignalThroughAnotherRouter(t *testing.T) {
	conn := client(t)
	for name, mode := range allModes {
		far := connect(t, shared().DSN(1))
		pid := int32(far.PgConn().PID())
		call := func(sql string, want bool, args ...any) {
			t.Helper()
			var done bool
			if err := conn.QueryRow(t.Context(), sql, append([]any{mode}, args...)...).Scan(&done); err != nil || done != want {
				t.Errorf("%s: %s: %v, %v", name, sql, done, err)
			}
		}
		running := sleepOn(t, far, "far "+name)
		call("SELECT pg_cancel_backend($1)", true, pid)
		refused(t, <-running, "57014", "canceling statement due to user request")
		running = sleepOn(t, far, "far end "+name)
		call("SELECT pg_terminate_backend($1, $2)", true, pid, int64(20000))
		if err := <-running; err == nil {
			t.Error("the statement of a terminated session ended well")
		}
		call("SELECT pg_terminate_backend($1, $2)", false, pid, int64(20000)) // it has ended

		near := client(t)
		pid = int32(near.PgConn().PID())
		_, err := conn.Exec(t.Context(), "SELECT pg_terminate_backend($1, $2)", mode, pid, int64(-1))
		refused(t, err, "22003", "must not be negative")
		call("SELECT pg_terminate_backend($1, $2)", true, pid, int64(20000))
		call("SELECT pg_terminate_backend($1)", false, pid)
	}
}
