package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
	"github.com/pgshoal/pgshoal/topo"
)

// writers insert ids and read them back through one router until they are stopped; every insert
// that was acknowledged must be there in the end, and every read must find its row.
type writers struct {
	stop   atomic.Bool
	next   atomic.Int64
	done   sync.WaitGroup
	mu     sync.Mutex
	stored map[int64]bool
	errs   []error
}

func startWriters(t *testing.T, dsn, table string, n int) *writers {
	t.Helper()
	w := &writers{stored: map[int64]bool{}}
	for i := range n {
		w.done.Go(func() {
			mode := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec}[i%3]
			if err := w.work(t.Context(), dsn, table, mode); err != nil {
				w.mu.Lock()
				w.errs = append(w.errs, err)
				w.mu.Unlock()
			}
		})
	}
	return w
}

func (w *writers) work(ctx context.Context, dsn, table string, mode pgx.QueryExecMode) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	for !w.stop.Load() {
		id := w.next.Add(1)
		if _, err := conn.Exec(ctx, "INSERT INTO "+table+" (id, v) VALUES ($1, $2)", mode, id, fmt.Sprint("v", id)); err != nil {
			return fmt.Errorf("insert %d: %w", id, err)
		}
		w.mu.Lock()
		w.stored[id] = true
		w.mu.Unlock()
		var v string
		if err := conn.QueryRow(ctx, "SELECT v FROM "+table+" WHERE id = $1", mode, id).Scan(&v); err != nil || v != fmt.Sprint("v", id) {
			return fmt.Errorf("read %d back: %q, %w", id, v, err)
		}
		if id%3 == 0 {
			tag, err := conn.Exec(ctx, "UPDATE "+table+" SET v = v || '+' WHERE id = $1", mode, id)
			if err != nil || tag.RowsAffected() != 1 {
				return fmt.Errorf("update %d: %q, %w", id, tag, err)
			}
		}
	}
	return nil
}

// after waits until that many more rows were written.
func (w *writers) after(t *testing.T, rows int64) {
	t.Helper()
	start := w.next.Load()
	waitFor(t, "the writers to go on", func() bool { return w.next.Load() >= start+rows || w.failed() })
}

func (w *writers) failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.errs) > 0
}

// finish stops the writers and returns how many rows they stored.
func (w *writers) finish(t *testing.T) int {
	t.Helper()
	w.stop.Store(true)
	w.done.Wait()
	for _, err := range w.errs {
		t.Errorf("a writer: %s", describe(err))
	}
	return len(w.stored)
}

// TestTwoRouters changes a table's placement and shape through one router while clients of the
// other keep writing: no row is lost or misplaced, no statement fails, no answer is wrong.
func TestTwoRouters(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE two_t (id bigint PRIMARY KEY, v text)")
	w := startWriters(t, shared().DSN(1), "two_t", 4)
	for _, sql := range []string{
		"SELECT create_distributed_table('two_t', 'id')",
		"ALTER TABLE two_t ADD COLUMN extra int DEFAULT 7",
		"CREATE INDEX two_v ON two_t (v)",
		"ALTER TABLE two_t ALTER COLUMN extra TYPE bigint",
		"SELECT undistribute_table('two_t')",
		"ALTER TABLE two_t DROP COLUMN extra",
		"SELECT create_distributed_table('two_t', 'id', colocate_with => 'none', shard_count => 5)",
		"CREATE INDEX CONCURRENTLY two_w ON two_t (v, id)",
		"BEGIN; ALTER TABLE two_t ADD COLUMN a int; ALTER TABLE two_t ADD COLUMN b int; ROLLBACK",
	} {
		w.after(t, 100)
		started := time.Now()
		if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
			t.Errorf("%s\n%s", sql, describe(err))
		}
		t.Logf("%v: %s", time.Since(started).Round(time.Millisecond), sql)
	}
	w.after(t, 100)
	stored := w.finish(t)
	checkPlaced(t, shared(), "two_t", "id", stored)
	checkNoDrift(t, shared())
	for _, m := range []int{0, 1} {
		if e := shared().Router(m).Map().Epoch; e != shared().Map().Epoch {
			t.Errorf("router %d is at epoch %d, the store at %d", m, e, shared().Map().Epoch)
		}
	}
	if n := len(shared().Map().Fences); n != 0 {
		t.Errorf("%d fences are left", n)
	}
}

// TestRoutersConverge changes the map in the store: all routers have it within a second.
func TestRoutersConverge(t *testing.T) {
	shared()
	for range 5 {
		m, err := topo.UpdateMap(t.Context(), shared().Store(), func(m *keyspace.Map) (*keyspace.Map, error) { return m.BumpSchema("postgres") })
		if err != nil {
			t.Fatal(err)
		}
		changed := time.Now()
		waitFor(t, "the routers to follow", func() bool {
			return shared().Router(0).Map().Epoch >= m.Epoch && shared().Router(1).Map().Epoch >= m.Epoch
		})
		if d := time.Since(changed); d > time.Second {
			t.Errorf("the routers needed %v", d)
		}
	}
}

// TestChangesAtOnce lets clients of both routers change the schema at the same time.
func TestChangesAtOnce(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE once_t (id bigint PRIMARY KEY)", "SELECT create_distributed_table('once_t', 'id')")
	const clients, rounds = 4, 5
	errs := make(chan error, clients)
	for i := range clients {
		go func() { errs <- changeAround(t.Context(), shared().DSN(i%2), i, rounds) }()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Error(describe(err))
		}
	}
	sameOnNodes(t, shared(), fmt.Sprint(1+clients*rounds), "SELECT count(*) FROM pg_attribute WHERE attrelid = 'once_t'::regclass AND attnum > 0")
	sameOnNodes(t, shared(), fmt.Sprint(clients*rounds), "SELECT count(*) FROM pg_class WHERE relname LIKE 'once\\_own%' AND relkind = 'r'")
	checkNoDrift(t, shared())
}

func changeAround(ctx context.Context, dsn string, who, rounds int) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	for r := range rounds {
		for _, sql := range []string{
			fmt.Sprintf("CREATE TABLE once_own_%d_%d (id bigint, v text)", who, r),
			fmt.Sprintf("SELECT create_distributed_table('once_own_%d_%d', 'id')", who, r),
			fmt.Sprintf("ALTER TABLE once_t ADD COLUMN c_%d_%d int", who, r),
		} {
			for {
				_, err := conn.Exec(ctx, sql)
				var e *pgconn.PgError
				if errors.As(err, &e) && (e.Code == "55P03" || e.Code == "40P01" || e.Code == "40001") {
					continue // another change is under way: try again, as the error says
				}
				if err != nil {
					return fmt.Errorf("%s: %w", sql, err)
				}
				break
			}
		}
	}
	return nil
}

// TestRouterEndsInTheMiddle cuts clients off in transactions on several nodes: nothing stays open.
func TestRouterEndsInTheMiddle(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 2, Routers: 2})
	conn := connect(t, c.DSN(0))
	run(t, conn, "CREATE TABLE end_t (id bigint PRIMARY KEY, v int)", "INSERT INTO end_t SELECT i, 0 FROM generate_series(1, 50) i",
		"SELECT create_distributed_table('end_t', 'id')")
	victim := connect(t, c.DSN(1))
	run(t, victim, "BEGIN")
	for i := 1; i <= 50; i++ {
		if _, err := victim.Exec(t.Context(), "UPDATE end_t SET v = 1 WHERE id = $1", i); err != nil {
			t.Fatal(describe(err))
		}
	}
	c.StopRouter(1)
	if _, err := victim.Exec(t.Context(), "COMMIT"); err == nil {
		t.Error("a COMMIT succeeded without a router")
	}
	for i := 1; i <= 50; i++ { // the locks are gone
		if _, err := conn.Exec(t.Context(), "UPDATE end_t SET v = v + 10 WHERE id = $1", i); err != nil {
			t.Fatal(describe(err))
		}
	}
	if got := totals(t, c, "end_t", "v"); got != 500 {
		t.Errorf("the values are %d together, not 500", got)
	}
	c.StartRouter(1)
	expect(t, connect(t, c.DSN(1)), "10", "SELECT v FROM end_t WHERE id = 5")
	t.Run("a node that is away", func(t *testing.T) {
		_, b := apart(t, c, "end_t")
		a, _ := apart(t, c, "end_t")
		c.StopNode("node2")
		expect(t, conn, "10", "SELECT v FROM end_t WHERE id = $1", a)
		_, err := conn.Exec(t.Context(), "CREATE TABLE end_never (a int)")
		if err == nil {
			t.Error("DDL succeeded without a node")
		} else {
			t.Logf("DDL without a node: %s", describe(err))
		}
		expect(t, conn, "10", "SELECT v FROM end_t WHERE id = $1", a)
		c.StartNode("node2")
		waitFor(t, "the node to be back", func() bool {
			_, err := conn.Exec(t.Context(), "SELECT v FROM end_t WHERE id = $1", b)
			return err == nil
		})
		sameOnNodes(t, c, "<nil>", "SELECT to_regclass('end_never')::text")
		run(t, conn, "CREATE TABLE end_never (a int)")
		checkPlaced(t, c, "end_t", "id", 50)
		checkNoDrift(t, c)
	})
}

// TestAdmissionWaitsForTheMap tells a node of an epoch before a router hears of it: a connection that the router opens
// meanwhile waits for the map.
func TestAdmissionWaitsForTheMap(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 1, Routers: 1})
	node := connect(t, c.NodeDSN("node1"))
	run(t, node, "CREATE ROLE late LOGIN PASSWORD '"+cluster.Password+"'")
	next := c.Map().Epoch + 1
	expect(t, node, fmt.Sprint(next), "SELECT pg_shoal.raise_epoch($1)", next)
	raised := ask(t, node, "SELECT clock_timestamp()::text") // whoever asks from now on is refused
	done := make(chan error, 1)
	go func() {
		conn, err := pgx.Connect(t.Context(), c.RoleDSN(0, "late", cluster.Password, "postgres"))
		if err == nil {
			hangUp(conn)
		}
		done <- err
	}()
	waitFor(t, "the node to refuse the router", func() bool {
		return ask(t, node, "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle' AND query LIKE $1 AND query_start > $2::timestamptz",
			fmt.Sprintf("SELECT pg_shoal.admit(%%, %d, %%", next-1), raised) != "0"
	})
	if _, err := topo.UpdateMap(t.Context(), c.Store(), func(m *keyspace.Map) (*keyspace.Map, error) {
		same := *m
		return &same, nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("the router was not admitted: %s", describe(err))
	}
}
