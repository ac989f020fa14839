package integration

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// busy says what of a cluster is not at rest; "" when nothing is: all server connections are idle in the
// pools, and the nodes know of no others, of no open and of no prepared transaction.
func busy(t testing.TB, c *cluster.Cluster, routers int) string {
	t.Helper()
	idle := map[string]int{}
	var why []string
	for i := range routers {
		for _, p := range c.Router(i).Stats().Pools {
			idle[p.Key.Node] += p.Idle
			if p.Active+p.Opening+p.Waiting > 0 {
				why = append(why, fmt.Sprintf("router %d: %+v", i, p))
			}
		}
	}
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		// A pool may have a connection that its server has ended: it notices when it uses it next.
		got := ask(t, conn, `SELECT greatest(count(*) - $2::int, 0), count(*) FILTER (WHERE state <> 'idle'), (SELECT count(*) FROM pg_prepared_xacts)
			FROM pg_stat_activity WHERE backend_type = 'client backend' AND application_name <> $1`, cluster.TestName, idle[node])
		if got != "0|0|0" {
			why = append(why, fmt.Sprintf("%s: connections beyond the pools' %d, those at work and prepared transactions are %s", node, idle[node], got))
		}
	})
	return strings.Join(why, "\n")
}

// atRest waits until nothing is left of what clients did, goroutines included.
func atRest(t *testing.T, c *cluster.Cluster, routers, goroutines int) {
	t.Helper()
	var why string
	defer func() {
		if why != "" {
			t.Logf("something is left:\n%s", why)
		}
	}()
	waitFor(t, "everything to be at rest", func() bool {
		why = busy(t, c, routers)
		if n := runtime.NumGoroutine(); why == "" && n > goroutines {
			why = fmt.Sprintf("%d goroutines, %d before", n, goroutines)
		}
		return why == ""
	})
}

// vanish closes a client's socket without a word; with reset the other side gets an RST.
func vanish(t testing.TB, conn *pgx.Conn, reset bool) {
	t.Helper()
	socket := conn.PgConn().Conn()
	if tcp, ok := socket.(*net.TCPConn); ok && reset {
		_ = tcp.SetLinger(0)
	}
	if err := socket.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestClientsVanish lets clients go in the middle of everything. Nothing of theirs stays: no connection
// in use, no transaction, no row, no goroutine.
func TestClientsVanish(t *testing.T) {
	c := shared()
	conn := client(t)
	run(t, conn, "CREATE TABLE gone_t (id bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('gone_t', 'id')", "CREATE TABLE gone_l (v text)")
	for id := range 20 {
		run(t, conn, fmt.Sprintf("INSERT INTO gone_t VALUES (%d, 'first')", id))
	}
	a, b := apart(t, c, "gone_t")
	hangUp(conn)
	atRest(t, c, 2, 1<<20)
	goroutines := runtime.NumGoroutine() + 2 // timers of the runtime and of the test come and go
	writes := []string{"BEGIN", fmt.Sprintf("UPDATE gone_t SET v = 'x' WHERE id = %d", a), fmt.Sprintf("UPDATE gone_t SET v = 'x' WHERE id = %d", b)}
	for name, leave := range map[string]func(t *testing.T, conn *pgx.Conn){
		"idle":                    func(*testing.T, *pgx.Conn) {},
		"in a transaction":        func(t *testing.T, conn *pgx.Conn) { run(t, conn, writes...) },
		"in a failed transaction": func(t *testing.T, conn *pgx.Conn) { run(t, conn, writes...); fails(t, conn, "22012", "SELECT 1/0") },
		"with a cursor": func(t *testing.T, conn *pgx.Conn) {
			run(t, conn, writes...)
			run(t, conn, fmt.Sprintf("DECLARE c CURSOR FOR SELECT * FROM gone_t WHERE id = %d", b), "FETCH 1 FROM c")
		},
		"with everything that a session can keep": func(t *testing.T, conn *pgx.Conn) {
			run(t, conn, "CREATE TEMP TABLE gone_temp (a int)", "LISTEN gone", "SELECT pg_advisory_lock(815)", "SET work_mem = '9MB'",
				"DECLARE h CURSOR WITH HOLD FOR SELECT 1")
		},
		"before Sync":          beforeSync,
		"in a statement":       func(t *testing.T, conn *pgx.Conn) { inStatement(t, c, conn, a) },
		"in COPY FROM, local":  func(t *testing.T, conn *pgx.Conn) { inCopyFrom(t, conn, "gone_l (v)", "row\n") },
		"in COPY FROM, by key": func(t *testing.T, conn *pgx.Conn) { inCopyFrom(t, conn, "gone_t", "") },
		"in COPY TO": func(t *testing.T, conn *pgx.Conn) {
			inAnswer(t, conn, "COPY (SELECT repeat('x', 1000) FROM generate_series(1, 1000000)) TO STDOUT")
		},
		"in a result": func(t *testing.T, conn *pgx.Conn) {
			inAnswer(t, conn, "SELECT repeat('x', 1000) FROM generate_series(1, 1000000)")
		},
	} {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", reset ", reset), func(t *testing.T) {
				conn, err := pgx.Connect(t.Context(), c.DSN(0))
				if err != nil {
					t.Fatal(err)
				}
				leave(t, conn)
				vanish(t, conn, reset)
				atRest(t, c, 2, goroutines)
			})
		}
	}
	conn = client(t)
	expect(t, conn, "first\nfirst", "SELECT v FROM gone_t WHERE id = $1 UNION ALL SELECT 'first'", a)
	expect(t, conn, "0", "SELECT count(*) FROM gone_l")
	checkPlaced(t, c, "gone_t", "id", 20)
}

// beforeSync leaves a batch of the extended protocol open, with rows pending.
func beforeSync(t *testing.T, conn *pgx.Conn) {
	f := conn.PgConn().Frontend()
	f.Send(&pgproto3.Parse{Query: "INSERT INTO gone_l VALUES ('never')"})
	f.Send(&pgproto3.Bind{})
	f.Send(&pgproto3.Execute{})
	f.Send(&pgproto3.Parse{Query: "SELECT generate_series(1, 100)"})
	f.Send(&pgproto3.Bind{})
	f.Send(&pgproto3.Execute{MaxRows: 10})
	f.Send(&pgproto3.Flush{})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	for {
		msg, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := msg.(*pgproto3.PortalSuspended); ok {
			return
		}
	}
}

// inStatement starts a statement that ends by itself soon after the client is gone: PostgreSQL does not
// end it earlier either.
func inStatement(t *testing.T, c *cluster.Cluster, conn *pgx.Conn, key int) {
	f := conn.PgConn().Frontend()
	f.Send(&pgproto3.Query{String: fmt.Sprintf("SELECT pg_sleep(0.5) FROM gone_t WHERE id = %d", key)})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the statement to run", func() bool { return busy(t, c, 2) != "" })
}

// inCopyFrom sends a megabyte of rows and does not end.
func inCopyFrom(t *testing.T, conn *pgx.Conn, table, row string) {
	f := conn.PgConn().Frontend()
	f.Send(&pgproto3.Query{String: "COPY " + table + " FROM STDIN"})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if msg, err := f.Receive(); err != nil {
		t.Fatal(err)
	} else if _, ok := msg.(*pgproto3.CopyInResponse); !ok {
		t.Fatalf("COPY was answered with %#v", msg)
	}
	var rows bytes.Buffer
	for i := 1000; rows.Len() < 1<<20; i++ {
		if row != "" {
			rows.WriteString(row)
			continue
		}
		fmt.Fprintf(&rows, "%d\trow\n", i)
	}
	f.Send(&pgproto3.CopyData{Data: rows.Bytes()})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
}

// inAnswer asks for a gigabyte and reads a little of it.
func inAnswer(t *testing.T, conn *pgx.Conn, sql string) {
	f := conn.PgConn().Frontend()
	f.Send(&pgproto3.Query{String: sql})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.CopyN(io.Discard, conn.PgConn().Conn(), 1<<20); err != nil {
		t.Fatal(err)
	}
}

// TestNodeKilled crashes a node under clients that write, twice: what was acknowledged is there, what
// needs the node fails as it does in PostgreSQL, the other node serves, and everything is at rest after.
func TestNodeKilled(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 2, Routers: 2})
	conn := connect(t, c.DSN(0))
	run(t, conn, "CREATE TABLE kill_t (id bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('kill_t', 'id')")
	var stop atomic.Bool
	var acknowledged, lost atomic.Int64
	var all sync.WaitGroup
	for who := range 8 {
		all.Go(func() {
			for n := int64(who); !stop.Load(); n += 8 {
				if err := writeOnce(t.Context(), c.DSN(who%2), n); err == nil {
					acknowledged.Add(1)
				} else {
					lost.Add(1)
					lostConnection(t, err)
				}
			}
		})
	}
	for _, node := range []string{"node2", "node1"} {
		before := acknowledged.Load()
		waitFor(t, "the clients to write", func() bool { return acknowledged.Load() > before+100 })
		failed := lost.Load()
		c.KillNode(node)
		waitFor(t, "a client to notice", func() bool { return lost.Load() > failed })
		c.StartNode(node)
	}
	before := acknowledged.Load()
	waitFor(t, "the clients to write again", func() bool { return acknowledged.Load() > before+100 })
	stop.Store(true)
	all.Wait()
	hangUp(conn)
	stored := 0
	onNodes(t, c, "postgres", func(_ string, conn *pgx.Conn) {
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM kill_t").Scan(&n); err != nil {
			t.Fatal(err)
		}
		stored += n
	})
	t.Logf("%d rows acknowledged, %d attempts lost, %d rows stored", acknowledged.Load(), lost.Load(), stored)
	if stored < int(acknowledged.Load()) || stored > int(acknowledged.Load()+lost.Load()) {
		t.Errorf("%d rows are stored, %d were acknowledged and %d attempts failed", stored, acknowledged.Load(), lost.Load())
	}
	checkPlaced(t, c, "kill_t", "id", stored)
	atRest(t, c, 2, 1<<20)
}

// writeOnce connects and inserts one row, so that logins meet the crash too.
func writeOnce(ctx context.Context, dsn string, id int64) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	_, err = conn.Exec(ctx, "INSERT INTO kill_t VALUES ($1, 'v')", id)
	return err
}

// TestLoginAfterCrash logs in after the home node has come back, with connections in the pool that it has ended and
// that were used a moment ago.
func TestLoginAfterCrash(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 1, Configure: func(_ int, cfg *router.Config) { cfg.Pool.CheckAfter = time.Hour }})
	for range 2 {
		hangUp(connect(t, c.DSN(0)))
		c.KillNode("node1")
		c.StartNode("node1")
		expect(t, connect(t, c.DSN(0)), "1", "SELECT 1")
	}
}
