package integration

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/control"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/twopc"
)

// hooked is a cluster whose router calls back at the points of a commit.
type hooked struct {
	*cluster.Cluster
	hook    atomic.Pointer[func(point string)]
	settler *twopc.Settler
	keys    map[string]int // a key of each node
}

// at runs something once when a commit reaches the point.
func (c *hooked) at(point string, work func()) {
	var done atomic.Bool
	hook := func(at string) {
		if at == point && done.CompareAndSwap(false, true) {
			work()
		}
	}
	c.hook.Store(&hook)
}

func startHooked(t *testing.T, opts cluster.Options) *hooked {
	t.Helper()
	c := &hooked{keys: map[string]int{}}
	opts.Configure = func(_ int, cfg *router.Config) {
		cfg.Pool.PrimaryTimeout = 2 * time.Second
		cfg.CommitHook = func(point string) {
			if hook := c.hook.Load(); hook != nil {
				(*hook)(point)
			}
		}
	}
	c.Cluster = cluster.Start(t, opts)
	access := control.NodeAccess{
		User: cluster.Superuser, Password: cluster.Password, Database: cluster.Superuser, SSLMode: "disable",
		Timelines: topo.Timelines{Store: c.Store()},
	}
	var err error
	if c.settler, err = twopc.NewSettler(twopc.SettlerConfig{Grace: time.Millisecond}, access.Connect); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.settler.Close(t.Context()) })
	conn := connect(t, c.DSN(0))
	run(t, conn, "CREATE TABLE hooked (id bigint PRIMARY KEY, v int)", "SELECT create_distributed_table('hooked', 'id')",
		"INSERT INTO hooked SELECT i, 0 FROM generate_series(0, 99) i")
	for _, name := range c.NodeNames() {
		node := connect(t, c.NodeDSN(name))
		var id int
		if err := node.QueryRow(t.Context(), "SELECT min(id) FROM hooked").Scan(&id); err != nil {
			t.Fatal(err)
		}
		c.keys[name] = id
		hangUp(node)
	}
	return c
}

// settle runs recovery until all nodes answer and nothing is prepared, and returns what was found lost.
func (c *hooked) settle(t *testing.T) (lost []twopc.LostPart) {
	t.Helper()
	waitFor(t, "everything to be settled", func() bool {
		report, err := c.settler.Settle(t.Context(), c.Map())
		lost = append(lost, report.Lost...)
		if err != nil {
			return false
		}
		prepared, away := c.settler.List(t.Context(), c.Map())
		return len(prepared)+len(away) == 0
	})
	return lost
}

// commitBoth writes a value on two nodes and commits.
func (c *hooked) commitBoth(t *testing.T, value int, a, b string) error {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), c.DSN(0))
	if err != nil {
		return err
	}
	defer hangUp(conn)
	for _, sql := range []string{"BEGIN", c.set(value, a), c.set(value, b), "COMMIT"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func (c *hooked) set(value int, node string) string {
	return fmt.Sprintf("UPDATE hooked SET v = %d WHERE id = %d", value, c.keys[node])
}

// has waits until the router reaches the node's primary, and compares.
func (c *hooked) has(t *testing.T, value, node string) {
	t.Helper()
	var conn *pgx.Conn
	waitFor(t, "the primary of "+node, func() bool {
		var err error
		if conn == nil {
			conn, err = pgx.Connect(t.Context(), c.DSN(0)) // a login asks the home node
		}
		if err == nil {
			_, err = conn.Exec(t.Context(), "UPDATE hooked SET v = v WHERE id = $1", c.keys[node])
		}
		return err == nil
	})
	defer hangUp(conn)
	expect(t, conn, value, "SELECT v FROM hooked WHERE id = $1", c.keys[node])
}

// synchronous makes a node's commits wait for its replica.
func (c *hooked) synchronous(t *testing.T, node string) {
	t.Helper()
	conn := connect(t, c.NodeDSN(node))
	defer hangUp(conn)
	run(t, conn, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
	waitFor(t, "synchronous replication", func() bool {
		return ask(t, conn, "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'") == "1"
	})
}

// TestFailoverDuringCommit lets nodes fail over to their replicas in the middle of a two-phase commit.
func TestFailoverDuringCommit(t *testing.T) {
	c := startHooked(t, cluster.Options{Nodes: 3, Replicas: 1})
	c.synchronous(t, "node1")
	c.synchronous(t, "node2")
	third := connect(t, c.NodeDSN("node3"))
	run(t, third, "CREATE DATABASE nowhere_else") // must not keep anybody from looking
	caughtUp(t, c.Node("node3"), c.Replicas("node3")[0])
	hangUp(third)
	if lost := c.settle(t); len(lost) > 0 {
		t.Errorf("lost before anything happened: %+v", lost)
	}
	t.Run("a participant that has prepared", func(t *testing.T) {
		c.at("before commit node1", func() {
			c.KillNode("node2")
			c.Replicas("node2")[0].Promote()
		})
		if err := c.commitBoth(t, 1, "node1", "node2"); err != nil {
			t.Fatal(describe(err))
		}
		if lost := c.settle(t); len(lost) > 0 {
			t.Errorf("lost with synchronous replication: %+v", lost)
		}
		c.has(t, "1", "node1")
		c.has(t, "1", "node2")
	})
	t.Run("the decider that has decided", func(t *testing.T) {
		c.at("before commit prepared node2", func() {
			c.KillNode("node1")
			c.Replicas("node1")[0].Promote()
			second := c.Replicas("node2")[0] // its primary by now
			second.Kill()
			second.Start()
		})
		if err := c.commitBoth(t, 2, "node1", "node2"); err != nil {
			t.Fatal(describe(err))
		}
		if lost := c.settle(t); len(lost) > 0 {
			t.Errorf("lost with synchronous replication: %+v", lost)
		}
		c.has(t, "2", "node1")
		c.has(t, "2", "node2")
	})
	t.Run("the decider of the past is up", func(t *testing.T) { testDeciderOfThePast(t, c) })
	t.Run("a part that the replica does not have", func(t *testing.T) {
		replica := c.Replicas("node3")[0]
		replica.StopImmediately()
		c.at("before commit node1", func() {
			c.KillNode("node3")
			replica.Start()
			replica.Promote()
		})
		if err := c.commitBoth(t, 4, "node1", "node3"); err != nil {
			t.Fatal(describe(err))
		}
		lost := c.settle(t)
		if len(lost) != 1 || lost[0].Node != "node3" || lost[0].Found != "node1" || lost[0].Database != "postgres" {
			t.Errorf("found as lost: %+v", lost)
		}
		c.has(t, "4", "node1")
		c.has(t, "0", "node3")
		if again := c.settle(t); len(again) > 0 {
			t.Errorf("found again: %+v", again)
		}
	})
}

// testDeciderOfThePast starts the old primary of the decider again, which takes writes and knows nothing of what its successor decides:
// recovery must not ask it.
func testDeciderOfThePast(t *testing.T, c *hooked) {
	c.StartNode("node1")
	c.at("before commit prepared node2", func() {
		second := c.Replicas("node2")[0]
		second.Kill()
		second.Start()
	})
	waitFor(t, "a commit on the new primary", func() bool { return c.commitBoth(t, 3, "node1", "node2") == nil })
	if lost := c.settle(t); len(lost) > 0 {
		t.Errorf("lost: %+v", lost)
	}
	c.has(t, "3", "node1")
	c.has(t, "3", "node2")
	c.StopNode("node1")
}
