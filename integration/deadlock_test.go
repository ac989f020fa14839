package integration

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/twopc"
)

// later runs a statement that will wait; its error comes through the channel.
func later(t *testing.T, conn *pgx.Conn, sql string, args ...any) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(t.Context(), sql, args...)
		done <- err
	}()
	return done
}

// awaitLock waits until somebody on the node waits for a lock in a statement with this text.
func awaitLock(t *testing.T, node, text string) {
	t.Helper()
	conn := connect(t, shared().NodeDSN(node))
	deadline := time.Now().Add(20 * time.Second)
	for ask(t, conn, "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND strpos(query, $1) > 0", text) == "0" {
		if time.Now().After(deadline) {
			t.Fatalf("nobody waits on node %s in %q", node, text)
		}
	}
}

// nodeWith finds the node of a row behind the routers' back.
func nodeWith(t *testing.T, table string, id int) (node string) {
	t.Helper()
	onNodes(t, shared(), "postgres", func(name string, conn *pgx.Conn) {
		if ask(t, conn, "SELECT count(*) FROM "+table+" WHERE id = $1", id) == "1" {
			node = name
		}
	})
	return node
}

// TestDeadlockOverNodes lets two transactions of two routers wait for each other on two nodes.
func TestDeadlockOverNodes(t *testing.T) {
	setup := client(t)
	a, b := accounts(t, setup, "dead", 30)
	add := func(id, n int) string {
		return fmt.Sprintf("UPDATE dead SET balance = balance + %d WHERE id = %d", n, id)
	}
	old, young := connect(t, shared().DSN(0)), connect(t, shared().DSN(1))
	for _, test := range []struct {
		name string
		wait func(*pgx.Conn, string, int) <-chan error
	}{
		{"simple", func(c *pgx.Conn, sql string, _ int) <-chan error { return later(t, c, sql) }},
		{"extended", func(c *pgx.Conn, _ string, id int) <-chan error {
			return later(t, c, "UPDATE dead SET balance = balance + 5 WHERE id = $1", id)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			run(t, old, "BEGIN", add(a, 1))
			run(t, young, "BEGIN", add(b, 1))
			first := test.wait(old, add(b, 5), b)
			awaitLock(t, nodeWith(t, "dead", b), "UPDATE dead")
			began := time.Now()
			second := test.wait(young, add(a, 5), a)
			err := <-second
			refused(t, err, "40P01", "deadlock detected", "on node "+nodeWith(t, "dead", a), "on node "+nodeWith(t, "dead", b), "UPDATE dead SET balance")
			// The victim's locks are gone although its client has not said ROLLBACK yet.
			if err := <-first; err != nil {
				t.Fatalf("the other transaction failed too: %s", describe(err))
			}
			t.Logf("broken after %v", time.Since(began))
			fails(t, young, "25P02", "SELECT 1")
			run(t, young, "ROLLBACK", "SELECT 1")
			run(t, old, "COMMIT")
		})
	}
	expect(t, setup, "102", "SELECT balance FROM dead WHERE id = $1", a)
	expect(t, setup, "110", "SELECT balance FROM dead WHERE id = $1", b)
}

// TestDeadlockAfterSavepoint checks that the victim can go on from its savepoint, as with PostgreSQL.
func TestDeadlockAfterSavepoint(t *testing.T) {
	setup := client(t)
	a, b := accounts(t, setup, "dead_save", 30)
	old, young := connect(t, shared().DSN(0)), connect(t, shared().DSN(0))
	add := func(id, n int) string {
		return fmt.Sprintf("UPDATE dead_save SET balance = balance + %d WHERE id = %d", n, id)
	}
	run(t, old, "BEGIN", add(a, 1))
	run(t, young, "BEGIN", "SAVEPOINT s", add(b, 1))
	first := later(t, old, add(b, 1))
	awaitLock(t, nodeWith(t, "dead_save", b), "UPDATE dead_save")
	fails(t, young, "40P01", add(a, 1))
	if err := <-first; err != nil {
		t.Fatal(describe(err))
	}
	run(t, old, "COMMIT")
	run(t, young, "ROLLBACK TO s", add(a, 10), add(b, 10), "COMMIT")
	expect(t, setup, "111", "SELECT balance FROM dead_save WHERE id = $1", a)
	expect(t, setup, "111", "SELECT balance FROM dead_save WHERE id = $1", b)
}

// TestWaitIsNoDeadlock lets a transaction wait for one whose client does nothing.
func TestWaitIsNoDeadlock(t *testing.T) {
	setup := client(t)
	a, b := accounts(t, setup, "dead_idle", 30)
	sql := "UPDATE dead_idle SET balance = balance + 1 WHERE id = %d"
	idle, waits := connect(t, shared().DSN(0)), connect(t, shared().DSN(1))
	run(t, idle, "BEGIN", fmt.Sprintf(sql, a), fmt.Sprintf(sql, b))
	run(t, waits, "BEGIN", "SET LOCAL lock_timeout = '3s'", "UPDATE dead_idle SET balance = 0 WHERE id = 29 OR id = 28")
	fails(t, waits, "55P03", fmt.Sprintf(sql, a))
	run(t, waits, "ROLLBACK")
	run(t, idle, "COMMIT")
}

func TestShowTransactions(t *testing.T) {
	conn := client(t)
	a, b := accounts(t, conn, "show_txn", 30)
	other := client(t)
	run(t, other, "BEGIN", fmt.Sprintf("UPDATE show_txn SET balance = 1 WHERE id = %d", a))
	before := ask(t, conn, "SHOW shoal.transactions")
	run(t, other, fmt.Sprintf("UPDATE show_txn SET balance = 1 WHERE id = %d", b))
	pid := fmt.Sprint(other.PgConn().PID())
	if shown := ask(t, conn, "SHOW shoal.transactions"); strings.Contains(before, pid+"/") || !strings.Contains(shown, pid+"/") || !strings.Contains(shown, "|idle||router-1") {
		t.Errorf("shown: %q", shown)
	}
	run(t, other, "ROLLBACK")
	// What another coordinator left prepared is shown as well.
	gid := twopc.NewID("testcluster", "node1").GID
	onNodes(t, shared(), "postgres", func(name string, c *pgx.Conn) {
		if name == "node2" {
			run(t, c, "BEGIN", "CREATE TABLE show_txn_prepared ()", "PREPARE TRANSACTION '"+gid+"'")
		}
	})
	shown := ask(t, conn, "SHOW shoal.transactions")
	onNodes(t, shared(), "postgres", func(name string, c *pgx.Conn) {
		if name == "node2" {
			run(t, c, "ROLLBACK PREPARED '"+gid+"'")
		}
	})
	if strings.Contains(shown, pid+"/") || !strings.Contains(shown, gid+"|") || !strings.Contains(shown, "|node2|prepared, undecided|node1|") {
		t.Errorf("shown: %q", shown)
	}
}
