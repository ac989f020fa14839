package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// caughtUp waits until a replica has everything that its primary has.
func caughtUp(t *testing.T, primary, replica *shardtest.Postgres) {
	t.Helper()
	from, to := connect(t, cluster.ServerDSN(primary)), connect(t, cluster.ServerDSN(replica))
	at := ask(t, from, "SELECT pg_current_wal_flush_lsn()::text")
	waitFor(t, "the replica to catch up", func() bool {
		return ask(t, to, "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn", at) == "true"
	})
	hangUp(from)
	hangUp(to)
}

// written counts the rows that a server has of what mark says.
func written(t *testing.T, server *shardtest.Postgres, mark string) string {
	t.Helper()
	conn := connect(t, cluster.ServerDSN(server))
	defer hangUp(conn)
	return ask(t, conn, "SELECT count(*) FROM rep_t WHERE v = $1", mark)
}

// firstWrite writes to a key until it succeeds and says how long that took.
func firstWrite(t *testing.T, conn *pgx.Conn, key int, mark string) time.Duration {
	t.Helper()
	started := time.Now()
	waitFor(t, "a write to succeed", func() bool {
		_, err := conn.Exec(t.Context(), "UPDATE rep_t SET v = $2 WHERE id = $1", key, mark)
		if err != nil {
			lostConnection(t, err)
		}
		return err == nil
	})
	return time.Since(started)
}

// testFailover is what Patroni and its like do to node2: the primary dies, its replica is promoted, and
// the old primary comes back before anybody has demoted it.
func testFailover(t *testing.T, c withReplicas) {
	old, promoted := c.Node("node2"), c.Replicas("node2")[0]
	conns := []*pgx.Conn{connect(t, c.DSN(0)), connect(t, c.DSN(1))}
	for _, conn := range conns {
		expect(t, conn, "1", "SELECT 1 FROM rep_t WHERE id = $1", c.b)
	}
	inside, running := connect(t, c.DSN(0)), connect(t, c.DSN(1))
	run(t, inside, "BEGIN", fmt.Sprintf("UPDATE rep_t SET v = 'open' WHERE id = %d", c.b), fmt.Sprintf("UPDATE rep_t SET v = 'open' WHERE id = %d", c.a))
	answer := make(chan error, 1)
	go func() {
		_, err := running.PgConn().Exec(t.Context(), fmt.Sprintf("SELECT pg_sleep(60) FROM rep_t WHERE id = %d", c.b)).ReadAll()
		answer <- err
	}()
	watcher := connect(t, cluster.ServerDSN(old))
	waitFor(t, "the statement to run", func() bool {
		return ask(t, watcher, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
	})
	caughtUp(t, old, promoted)
	old.Kill()
	lostConnection(t, <-answer)
	_, err := inside.Exec(t.Context(), "COMMIT")
	if err == nil {
		t.Error("a transaction on a dead node was committed")
	}
	expect(t, running, "1", "SELECT 1") // the sessions live
	run(t, inside, "ROLLBACK")
	died := time.Now()
	promoted.Promote()
	for i, conn := range conns {
		t.Logf("router %d wrote %v after the promotion was over", i, firstWrite(t, conn, c.b, fmt.Sprint("after", i)).Round(time.Millisecond))
	}
	if took := time.Since(died); took > 10*time.Second {
		t.Errorf("the new primary was found after %v", took)
	}
	expect(t, conns[1], "0", "SELECT count(*) FROM rep_t WHERE id = $1 AND v = 'open'", c.b)

	old.Start() // a primary of the past, which takes writes
	neverTo(t, c, old, promoted, c.b)
	t.Run("a router that starts now", func(t *testing.T) {
		c.StopRouter(1)
		c.StartRouter(1)
		neverTo(t, c, old, promoted, c.b)
	})
	t.Run("it is the only one that is left", func(t *testing.T) {
		promoted.Stop()
		for i := range 2 {
			_, err := connect(t, c.DSN(i)).Exec(t.Context(), "UPDATE rep_t SET v = 'lost' WHERE id = $1", c.b)
			lostConnection(t, err)
		}
		// One that starts now has not seen the other timeline itself.
		c.StopRouter(1)
		c.StartRouter(1)
		_, err := connect(t, c.DSN(1)).Exec(t.Context(), "UPDATE rep_t SET v = 'lost' WHERE id = $1", c.b)
		lostConnection(t, err)
		promoted.Start()
		neverTo(t, c, old, promoted, c.b)
		if n := written(t, old, "lost"); n != "0" {
			t.Errorf("%s rows were written to the primary of the past", n)
		}
	})
}

// neverTo writes through all routers, in old and new sessions: all goes to one server, nothing to the other.
func neverTo(t *testing.T, c withReplicas, stale, primary *shardtest.Postgres, key int) {
	t.Helper()
	onStale, onPrimary := connect(t, cluster.ServerDSN(stale)), connect(t, cluster.ServerDSN(primary))
	defer hangUp(onStale)
	defer hangUp(onPrimary)
	const count = "SELECT count(*) FROM rep_t WHERE v = $1"
	for i := range 6 {
		mark := fmt.Sprint("mark", time.Now().UnixNano())
		conn := connect(t, c.DSN(i%2))
		run(t, conn, "BEGIN", fmt.Sprintf("SELECT v FROM rep_t WHERE id = %d", key), fmt.Sprintf("UPDATE rep_t SET v = '%s' WHERE id = %d", mark, key), "COMMIT")
		hangUp(conn)
		if s, p := ask(t, onStale, count, mark), ask(t, onPrimary, count, mark); s != "0" || p != "1" {
			t.Fatalf("write %d is on the primary of the past %s times, on the primary %s times", i, s, p)
		}
	}
}

// testTwoPrimaries promotes the home node's replica while its primary goes on: nobody fenced it, and
// routers have good connections to it. Until they notice, what it takes is lost; from then on it gets nothing.
func testTwoPrimaries(t *testing.T, c withReplicas) {
	old, promoted := c.Node("node1"), c.Replicas("node1")[0]
	inside := []*pgx.Conn{connect(t, c.DSN(0)), connect(t, c.DSN(1))}
	for _, conn := range inside {
		run(t, conn, "BEGIN", "INSERT INTO rep_local VALUES ('split')")
	}
	caughtUp(t, old, promoted)
	promoted.Promote()
	began := time.Now()
	conn := connect(t, c.DSN(0))
	waitFor(t, "writes to go to the new primary", func() bool {
		mark := fmt.Sprint("split", time.Now().UnixNano())
		firstWrite(t, conn, c.a, mark)
		return written(t, promoted, mark) == "1"
	})
	t.Logf("router 0 wrote to the new primary %v after the promotion", time.Since(began).Round(time.Millisecond))
	waitFor(t, "the other router to follow", func() bool {
		mark := fmt.Sprint("split", time.Now().UnixNano())
		firstWrite(t, connect(t, c.DSN(1)), c.a, mark)
		return written(t, promoted, mark) == "1"
	})
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the new primary was found after %v", took)
	}
	// What was begun on the old one is not acknowledged.
	for i, conn := range inside {
		if tag, err := conn.Exec(t.Context(), "COMMIT"); err == nil && tag.String() == "COMMIT" {
			t.Errorf("session %d committed on the primary of the past", i)
		}
	}
	neverTo(t, c, old, promoted, c.a)
	run(t, conn, "INSERT INTO rep_local VALUES ('after')")
	stale := connect(t, cluster.ServerDSN(old))
	expect(t, stale, "0", "SELECT count(*) FROM rep_local WHERE v IN ('after', 'split')")
}
