package pool

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/shardtest"
	"go.uber.org/goleak"
)

var super = Key{Node: "n1", Role: "postgres", Database: "postgres"}

// TestMain looks for goroutines that stay behind; the loop lives as long as the process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/pgshoal/pgshoal/ioloop.(*loop).poll.func1"),
		goleak.IgnoreAnyFunction("github.com/pgshoal/pgshoal/ioloop.(*loop).watch"))
}

// newPool makes a pool for one node at these addresses.
func newPool(tb testing.TB, cfg Config, addresses ...string) *Pool {
	tb.Helper()
	p, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	p.SetNodes([]keyspace.Node{{Name: "n1", Addresses: addresses}})
	return p
}

func acquire(tb testing.TB, p *Pool) *Conn {
	tb.Helper()
	c, err := p.Acquire(tb.Context(), super, Credentials{})
	if err != nil {
		tb.Fatalf("Acquire: %v", err)
	}
	releaseAfterFailure(tb, p, c)
	return c
}

// releaseAfterFailure: a test that failed may not have come to its Release, for which Close would wait.
func releaseAfterFailure(tb testing.TB, p *Pool, c *Conn) {
	tb.Cleanup(func() {
		c.pool.node.mu.Lock()
		held := c.held
		c.pool.node.mu.Unlock()
		if held && tb.Failed() {
			c.Broken = true
			p.Release(c)
		}
	})
}

func one(tb testing.TB, c *Conn, sql string) string {
	tb.Helper()
	rows, err := c.Query(tb.Context(), sql)
	if err != nil || len(rows) != 1 || len(rows[0]) != 1 {
		tb.Fatalf("%s: %q, %v", sql, rows, err)
	}
	return string(rows[0][0])
}

func hasCode(err error, code string) bool {
	var e *pgwire.Error
	return errors.As(err, &e) && e.Code == code
}

// TestOneServer are the tests that leave their server as it was.
func TestOneServer(t *testing.T) {
	pg := shardtest.StartPostgres(t)
	for _, tc := range []struct {
		name string
		test func(*testing.T, *shardtest.Postgres)
	}{
		{"queries", testQueries},
		{"copy from stdin gives the connection up", testCopyFromStdinGivesTheConnectionUp},
		{"context cancels the statement", testContextCancelsTheStatement},
		{"dirty is reset", testDirtyIsReset},
		{"terminated while idle", testTerminatedWhileIdle},
		{"notification while idle is no death", testNotificationWhileIdleIsNoDeath},
		{"server errors pass unchanged", testServerErrorsPassUnchanged},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, pg) })
	}
}

func testQueries(t *testing.T, pg *shardtest.Postgres) {
	p := newPool(t, Config{}, pg.SocketDir+":"+strconv.Itoa(pg.Port))
	c := acquire(t, p)
	defer p.Release(c)
	ctx := t.Context()

	rows, err := c.Query(ctx, "SELECT 1, NULL, ''; SELECT 2, 'x', 'y'")
	if err != nil || len(rows) != 2 {
		t.Fatalf("rows %q, %v", rows, err)
	}
	if string(rows[0][0]) != "1" || rows[0][1] != nil || rows[0][2] == nil || len(rows[0][2]) != 0 || string(rows[1][2]) != "y" {
		t.Errorf("rows %q", rows)
	}
	rows, err = c.QueryParams(ctx, "SELECT $1::int + 1, $2::text IS NULL", []byte("41"), nil)
	if err != nil || string(rows[0][0]) != "42" || string(rows[0][1]) != "t" {
		t.Errorf("rows %q, %v", rows, err)
	}
	if err := c.Exec(ctx, "BEGIN; SELECT 1/0; SELECT 1"); !hasCode(err, "22012") || c.TxStatus != 'E' || c.Broken {
		t.Errorf("error %v, status %c, broken %v", err, c.TxStatus, c.Broken)
	}
	if err := c.Exec(ctx, "ROLLBACK"); err != nil || c.TxStatus != 'I' {
		t.Errorf("error %v, status %c", err, c.TxStatus)
	}
	if _, err := c.QueryParams(ctx, "SELECT $1::int", []byte("no number")); !hasCode(err, "22P02") || c.TxStatus != 'I' {
		t.Errorf("error %v, status %c", err, c.TxStatus)
	}
	if err := c.Exec(ctx, "COPY (SELECT generate_series(1, 1000)) TO STDOUT"); err != nil {
		t.Errorf("COPY TO: %v", err)
	}
	if err := c.Exec(ctx, "SET application_name = 'shoal'; DO $$ BEGIN RAISE NOTICE 'hello'; END $$; LISTEN x; NOTIFY x"); err != nil {
		t.Fatal(err)
	}
	if got := c.Params["application_name"]; got != "shoal" {
		t.Errorf("application_name is %q after SET", got)
	}
	if big := one(t, c, "SELECT repeat('x', 5000000)"); len(big) != 5000000 {
		t.Errorf("got %d bytes", len(big))
	}
}

func testCopyFromStdinGivesTheConnectionUp(t *testing.T, pg *shardtest.Postgres) {
	p := newPool(t, Config{}, pg.Address())
	c := acquire(t, p)
	defer func() { p.Release(c) }()
	if err := c.Exec(t.Context(), "CREATE TABLE t (i int); COPY t FROM STDIN"); err == nil || !c.Broken {
		t.Errorf("error %v, broken %v", err, c.Broken)
	}
	if err := c.Exec(t.Context(), "SELECT 1"); !hasCode(err, "08006") {
		t.Errorf("a broken connection was used: %v", err)
	}
}

func testContextCancelsTheStatement(t *testing.T, pg *shardtest.Postgres) {
	p := newPool(t, Config{}, pg.Address())
	c := acquire(t, p)
	defer p.Release(c)
	why := errors.New("the client left")
	ctx, cancel := context.WithCancelCause(t.Context())
	watcher := acquire(t, p)
	defer p.Release(watcher)
	go func() {
		// Cancel when the server says that the statement runs.
		for one(t, watcher, "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = 'SELECT pg_sleep(60)'") != "1" {
			continue
		}
		cancel(why)
	}()
	start := time.Now()
	err := c.Exec(ctx, "SELECT pg_sleep(60)")
	if !errors.Is(err, why) || !hasCode(err, "57014") || time.Since(start) > 30*time.Second {
		t.Errorf("error %v after %v", err, time.Since(start))
	}
	if c.Broken || c.TxStatus != 'I' {
		t.Errorf("broken %v, status %c", c.Broken, c.TxStatus)
	}
	for range 20 { // a late cancel would hit one of these
		if got := one(t, c, "SELECT 7"); got != "7" {
			t.Errorf("got %s", got)
		}
	}
	if err := c.Exec(ctx, "SELECT 1"); !errors.Is(err, why) || c.Broken || c.Stream.Pending() != 0 {
		t.Errorf("with an ended context: %v, broken %v", err, c.Broken)
	}
}

func testDirtyIsReset(t *testing.T, pg *shardtest.Postgres) {
	p := newPool(t, Config{MaxPerPool: 1}, pg.Address())
	c := acquire(t, p)
	if err := c.Exec(t.Context(), "SET work_mem = '77MB'; PREPARE shoal_1 AS SELECT 1; CREATE TEMP TABLE t (i int)"); err != nil {
		t.Fatal(err)
	}
	c.Statements.Add(1)
	c.Settings = "applied"
	c.Dirty = true
	p.Release(c)
	again := acquire(t, p) // waits for the reset: the pool has room for one
	defer p.Release(again)
	if again != c {
		t.Fatal("the connection was replaced, not reset")
	}
	if c.Dirty || c.Settings != nil || c.Statements.Len() != 0 {
		t.Errorf("dirty %v, settings %v, statements %d", c.Dirty, c.Settings, c.Statements.Len())
	}
	got := one(t, c, "SELECT current_setting('work_mem') || (SELECT count(*) FROM pg_prepared_statements)::text || (to_regclass('pg_temp.t') IS NULL)::text")
	if got != "4MB0true" {
		t.Errorf("session state is %s", got)
	}
}

func TestDeadIdleConnectionsAreNotHandedOut(t *testing.T) {
	for name, cfg := range map[string]Config{
		"always looked at":     {CheckAfter: -1},
		"one was found broken": {CheckAfter: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			pg := shardtest.StartPostgres(t)
			p := newPool(t, cfg, pg.Address())
			var conns []*Conn
			for range 5 {
				conns = append(conns, acquire(t, p))
			}
			for _, c := range conns[1:] {
				p.Release(c)
			}
			pg.Stop()
			if err := conns[0].Exec(t.Context(), "SELECT 1"); err == nil || !conns[0].Broken {
				t.Fatalf("error %v, broken %v", err, conns[0].Broken)
			}
			p.Release(conns[0])
			if _, err := p.Acquire(t.Context(), super, Credentials{}); !hasCode(err, "08001") {
				t.Errorf("Acquire while the server is down: %v", err)
			}
			pg.Start()
			c := acquire(t, p)
			defer p.Release(c)
			if slices.Contains(conns, c) || one(t, c, "SELECT 1") != "1" {
				t.Error("a dead connection was handed out")
			}
			if s := p.Stats()[0]; s.Idle != 0 || s.Active != 1 || s.Closed != 5 || s.Errors != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func testTerminatedWhileIdle(t *testing.T, pg *shardtest.Postgres) {
	p := newPool(t, Config{CheckAfter: -1}, pg.Address())
	killer, idle := acquire(t, p), acquire(t, p)
	p.Release(idle)
	one(t, killer, "SELECT pg_terminate_backend("+strconv.Itoa(int(idle.PID))+", 10000)")
	p.Release(killer)
	first, second := acquire(t, p), acquire(t, p)
	if first == idle || second == idle {
		t.Error("a terminated connection was handed out")
	}
	p.Release(first)
	p.Release(second)
}

func testNotificationWhileIdleIsNoDeath(t *testing.T, pg *shardtest.Postgres) {
	p := newPool(t, Config{CheckAfter: -1}, pg.Address())
	sender, listener := acquire(t, p), acquire(t, p)
	if err := listener.Exec(t.Context(), "LISTEN x"); err != nil {
		t.Fatal(err)
	}
	p.Release(listener)
	if err := sender.Exec(t.Context(), "NOTIFY x, 'hello'"); err != nil {
		t.Fatal(err)
	}
	for listener.probe.look() == quiet { // until it arrived
		one(t, sender, "SELECT 1")
	}
	got := acquire(t, p)
	if got != listener || one(t, got, "SELECT 1") != "1" {
		t.Error("a living connection was given up")
	}
	p.Release(got)
	p.Release(sender)
}

func testServerErrorsPassUnchanged(t *testing.T, pg *shardtest.Postgres) {
	p := newPool(t, Config{}, pg.Address())
	_, err := p.Acquire(t.Context(), Key{Node: "n1", Role: "postgres", Database: "nowhere"}, Credentials{})
	if e, ok := err.(*pgwire.Error); !ok || e.Code != "3D000" || e.Message != `database "nowhere" does not exist` {
		t.Errorf("error %#v", err)
	}
	_, err = p.Acquire(t.Context(), Key{Node: "n1", Role: "nobody", Database: "postgres"}, Credentials{})
	if e, ok := err.(*pgwire.Error); !ok || e.Code != "28000" || e.Message != `role "nobody" does not exist` {
		t.Errorf("error %#v", err)
	}
}

// postgresTool runs a program of PostgreSQL as the user that owns dir.
func postgresTool(tb testing.TB, dir, name string, args ...string) {
	tb.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
		if len(found) == 0 {
			tb.Fatalf("%s not found", name)
		}
		path = found[len(found)-1]
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if info, err := os.Stat(dir); err == nil && os.Geteuid() == 0 {
		owner := info.Sys().(*syscall.Stat_t)
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}
	}
	// Not a pipe: the server that pg_ctl leaves behind would hold it open.
	out, err := os.CreateTemp(tb.TempDir(), name)
	if err != nil {
		tb.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		tb.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, text)
	}
}

// giveToPostgres lets the server's user own a path; PostgreSQL does not run as root.
func giveToPostgres(tb testing.TB, path string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		return
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		tb.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(path, uid, gid); err != nil {
		tb.Fatal(err)
	}
}

// startReplica makes a streaming replica of pg and returns its directory and address.
func startReplica(tb testing.TB, pg *shardtest.Postgres) (dir, address string) {
	tb.Helper()
	dir, err := os.MkdirTemp("", "pgshoal-replica-")
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	giveToPostgres(tb, dir)
	data := filepath.Join(dir, "data")
	postgresTool(tb, dir, "pg_basebackup", "-D", data, "-R", "-h", pg.SocketDir, "-p", strconv.Itoa(pg.Port), "-U", "postgres", "-c", "fast")
	port := freePort(tb)
	postgresTool(tb, dir, "pg_ctl", "-D", data, "-w", "-l", filepath.Join(dir, "log"),
		"-o", "-p "+port+" -c listen_addresses=127.0.0.1 -c unix_socket_directories="+dir+" -c fsync=off -c shared_buffers=16MB -c max_prepared_transactions=64",
		"start")
	tb.Cleanup(func() { postgresTool(tb, dir, "pg_ctl", "-D", data, "-w", "-m", "immediate", "stop") })
	return dir, "127.0.0.1:" + port
}
