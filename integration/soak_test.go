package integration

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	soakFor = flag.Duration("soak", 0, "how long TestSoak runs; it is left out without this")
	soakBin = flag.String("pgshoal", "../bin/pgshoal", "the program that TestSoak runs")
)

// processes is a cluster as `pgshoal up` makes it.
type processes struct {
	bin, dir string
	Nodes    []struct{ DSN string }
	Routers  []struct {
		DSN, HTTP string
		PID       int
	}
}

func startProcesses(t *testing.T) *processes {
	t.Helper()
	bin, err := filepath.Abs(*soakBin)
	if err != nil {
		t.Fatal(err)
	}
	root, err := os.MkdirTemp("", "pgshoal-soak-") // not t.TempDir: the servers' user must reach it
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(root) })
	p := &processes{bin: bin, dir: filepath.Join(root, "d")}
	t.Cleanup(func() { _, _ = exec.Command(bin, "down", "--dir", p.dir).CombinedOutput() })
	out, err := exec.CommandContext(t.Context(), bin, "up", "--dir", p.dir, "--nodes", "2", "--port", "0", "--http", "127.0.0.1:0", "--detach", "--unsafe-fast").CombinedOutput()
	if err != nil {
		t.Fatalf("pgshoal up: %v\n%s", err, out)
	}
	p.refresh(t)
	return p
}

func (p *processes) refresh(t *testing.T) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), p.bin, "status", "--dir", p.dir, "--json").Output()
	if err != nil {
		t.Fatalf("pgshoal status: %v", err)
	}
	p.Nodes, p.Routers = nil, nil
	if err := json.Unmarshal(out, p); err != nil {
		t.Fatal(err)
	}
}

// usage is what a router process takes.
type usage struct{ goroutines, resident, sockets int }

func (u usage) String() string {
	return fmt.Sprintf("%d goroutines, %d MB resident, %d files and sockets", u.goroutines, u.resident>>20, u.sockets)
}

var metric = regexp.MustCompile(`(?m)^(go_goroutines|process_resident_memory_bytes|process_open_fds) (\S+)$`)

func (p *processes) usage(t *testing.T) (u usage) {
	t.Helper()
	response, err := http.Get("http://" + p.Routers[0].HTTP + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range metric.FindAllStringSubmatch(string(text), -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatal(err)
		}
		switch m[1] {
		case "go_goroutines":
			u.goroutines = int(v)
		case "process_resident_memory_bytes":
			u.resident = int(v)
		default:
			u.sockets = int(v)
		}
	}
	return u
}

// leftOver counts on the nodes what no client needs any more.
func (p *processes) leftOver(t *testing.T) string {
	t.Helper()
	var all []string
	for _, n := range p.Nodes {
		conn := connect(t, n.DSN)
		all = append(all, ask(t, conn, `SELECT count(*) FILTER (WHERE state <> 'idle' AND pid <> pg_backend_pid()), (SELECT count(*) FROM pg_prepared_xacts),
			(SELECT count(*) FROM pg_locks WHERE locktype = 'advisory') FROM pg_stat_activity WHERE backend_type = 'client backend' AND usename <> 'pgshoal'
			AND application_name <> 'pgshoal controller'`))
		hangUp(conn)
	}
	return strings.Join(all, " ")
}

// TestSoak lets sessions come, work and go, politely and not, on a cluster of real processes, and
// prints what the router takes before and after. It runs with `make soak` only.
func TestSoak(t *testing.T) {
	if *soakFor == 0 {
		t.Skip("runs with `make soak`")
	}
	p := startProcesses(t)
	dsn := p.Routers[0].DSN
	setup := connect(t, dsn)
	run(t, setup, "CREATE TABLE soak_t (id bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('soak_t', 'id')",
		"CREATE TABLE soak_in (id bigint, v text)", "SELECT create_distributed_table('soak_in', 'id')")
	for id := range 200 {
		run(t, setup, fmt.Sprintf("INSERT INTO soak_t VALUES (%d, 'v')", id))
	}
	hangUp(setup)
	soak(t, dsn, *soakFor/6) // pools, caches and buffers get their size
	p.atRest(t)
	before := p.usage(t)
	t.Logf("before: %v", before)
	sessions := soak(t, dsn, *soakFor)
	p.atRest(t)
	after := p.usage(t)
	t.Logf("after %v and %d sessions: %v", *soakFor, sessions, after)
	if after.goroutines > before.goroutines+10 || after.sockets > before.sockets+60 {
		t.Errorf("something leaks: %v before, %v after", before, after)
	}
	if after.resident > 2*before.resident+64<<20 {
		t.Errorf("memory leaks: %v before, %v after", before, after)
	}
	p.killRouter(t)
}

func (p *processes) atRest(t *testing.T) {
	t.Helper()
	waitFor(t, "the nodes to be at rest", func() bool { return p.leftOver(t) == "0|0|0 0|0|0" })
}

// killRouter kills the router under clients in transactions: another one takes its place, and the nodes
// keep nothing.
func (p *processes) killRouter(t *testing.T) {
	t.Helper()
	conn := connect(t, p.Routers[0].DSN)
	run(t, conn, "BEGIN", "SELECT pg_advisory_xact_lock(4711)", "UPDATE soak_t SET v = 'lost' WHERE id = 1", "UPDATE soak_t SET v = 'lost' WHERE id = 2")
	if p.leftOver(t) == "0|0|0 0|0|0" {
		t.Fatal("the transaction is nowhere")
	}
	if err := syscall.Kill(p.Routers[0].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	p.atRest(t)
	t.Logf("nodes at rest %v after the router was killed", time.Since(killed).Round(time.Millisecond))
	waitFor(t, "a router to serve again", func() bool {
		conn, err := pgx.Connect(t.Context(), p.Routers[0].DSN)
		if err != nil {
			return false
		}
		defer hangUp(conn)
		return ask(t, conn, "SELECT count(*) FROM soak_t WHERE id = 1 AND v = 'lost'") == "0"
	})
	t.Logf("a router serves again after %v", time.Since(killed).Round(time.Millisecond))
}

// soak runs sessions side by side until the time is over and returns how many there were.
func soak(t *testing.T, dsn string, d time.Duration) int64 {
	t.Helper()
	end := time.Now().Add(d)
	var sessions, failures atomic.Int64
	err := inParallel(24, 24, func(int) error {
		for time.Now().Before(end) {
			sessions.Add(1)
			if err := soakSession(t.Context(), dsn); err != nil {
				failures.Add(1)
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Errorf("%d sessions failed, one with %s", failures.Load(), describe(err))
	}
	return sessions.Load()
}

// soakSession is one client: some of the things that clients do, then it leaves, one way or another.
func soakSession(ctx context.Context, dsn string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() {
		if rand.IntN(3) == 0 {
			_ = conn.PgConn().Conn().Close() // without a word
		}
		hangUp(conn)
	}()
	for range 1 + rand.IntN(8) {
		act := soakActions[rand.IntN(len(soakActions))]
		if err := act(ctx, conn); err == errLeft {
			return nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

var soakActions = []func(ctx context.Context, conn *pgx.Conn) error{
	func(ctx context.Context, conn *pgx.Conn) error {
		var v string
		return conn.QueryRow(ctx, "SELECT v FROM soak_t WHERE id = $1", rand.IntN(200)).Scan(&v)
	},
	func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf("SELECT v, %d FROM soak_t WHERE id = %d", rand.Int(), rand.IntN(200)), pgx.QueryExecModeSimpleProtocol)
		return err
	},
	func(ctx context.Context, conn *pgx.Conn) error { // over two nodes, in the order of keys: no deadlocks
		a := rand.IntN(199)
		return several(ctx, conn, "BEGIN", fmt.Sprintf("UPDATE soak_t SET v = 'a' WHERE id = %d", a), fmt.Sprintf("UPDATE soak_t SET v = 'b' WHERE id = %d", a+1),
			[]string{"COMMIT", "ROLLBACK"}[rand.IntN(2)])
	},
	func(ctx context.Context, conn *pgx.Conn) error {
		return several(ctx, conn, "CREATE TEMP TABLE IF NOT EXISTS soak_temp (a int)", "LISTEN soak", "SELECT pg_advisory_lock_shared(1)", "SET work_mem = '5MB'")
	},
	func(ctx context.Context, conn *pgx.Conn) error {
		rows := strings.NewReader(strings.Repeat(fmt.Sprintf("%d\trow\n", rand.Int32()), 2000))
		_, err := conn.PgConn().CopyFrom(ctx, rows, "COPY soak_in FROM STDIN")
		return err
	},
	func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.PgConn().CopyTo(ctx, io.Discard, "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 5000)) TO STDOUT")
		return err
	},
	func(ctx context.Context, conn *pgx.Conn) error { // an error leaves the session as it was
		_, err := conn.Exec(ctx, "SELECT 1/0")
		return expected(err, "22012")
	},
	func(ctx context.Context, conn *pgx.Conn) error {
		ended := make(chan error, 1)
		go func() { ended <- conn.PgConn().CancelRequest(ctx) }()
		_, err := conn.Exec(ctx, "SELECT pg_sleep(0.01)")
		return errors.Join(expected(err, "57014"), <-ended)
	},
	func(ctx context.Context, conn *pgx.Conn) error { // vanish in a transaction
		if err := several(ctx, conn, "BEGIN", fmt.Sprintf("UPDATE soak_t SET v = 'never' WHERE id = %d", rand.IntN(200))); err != nil {
			return err
		}
		_ = conn.PgConn().Conn().Close()
		return errLeft
	},
}

// errLeft ends a session that has left by itself.
var errLeft = errors.New("left")

func several(ctx context.Context, conn *pgx.Conn, statements ...string) error {
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// expected takes one SQLSTATE for success.
func expected(err error, code string) error {
	var e *pgconn.PgError
	if errors.As(err, &e) && e.Code == code {
		return nil
	}
	return err
}
