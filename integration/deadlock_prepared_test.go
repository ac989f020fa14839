package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestDeadlockThroughPrepared makes a ring in which one transaction is being committed: it is prepared on one node, where the other
// waits for a row of it, and on another node its PREPARE checks a deferred foreign key, for a row that the other has deleted.
func TestDeadlockThroughPrepared(t *testing.T) {
	setup := client(t)
	run(t, setup, "CREATE TABLE ring_p (id bigint PRIMARY KEY, n int)",
		"CREATE TABLE ring_c (id bigint REFERENCES ring_p DEFERRABLE INITIALLY DEFERRED, c int)",
		"BEGIN", "SELECT create_distributed_table('ring_p', 'id')", "SELECT create_distributed_table('ring_c', 'id', colocate_with => 'ring_p')", "COMMIT",
		"INSERT INTO ring_p SELECT i, 0 FROM generate_series(0, 59) i")
	var ids [][]int // by node; node1, if it takes part, decides and never prepares
	onNodes(t, shared(), "postgres", func(_ string, conn *pgx.Conn) {
		rows, err := conn.Query(t.Context(), "SELECT id::int FROM ring_p ORDER BY id LIMIT 4")
		if err != nil {
			t.Fatal(err)
		}
		some, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil || len(some) < 4 {
			t.Fatal(some, err)
		}
		ids = append(ids, some)
	})
	for i, test := range []struct {
		name   string
		victim string // the younger one
	}{{"the one that waits for a prepared one is younger", "waiter"}, {"the one that commits is younger", "committer"}} {
		t.Run(test.name, func(t *testing.T) {
			decider, held, parent := ids[0][i], ids[1][i], ids[2][i]
			committer, waiter := connect(t, shared().DSN(0)), connect(t, shared().DSN(1))
			commits := func() {
				run(t, committer, "BEGIN", fmt.Sprintf("UPDATE ring_p SET n = 1 WHERE id = %d", decider),
					fmt.Sprintf("UPDATE ring_p SET n = 1 WHERE id = %d", held), fmt.Sprintf("INSERT INTO ring_c VALUES (%d, 1)", parent))
			}
			waits := func() {
				run(t, waiter, "BEGIN", fmt.Sprintf("DELETE FROM ring_p WHERE id = %d", parent), fmt.Sprintf("UPDATE ring_p SET n = 2 WHERE id = %d", ids[0][i+2]))
			}
			if test.victim == "waiter" {
				commits()
				waits()
			} else {
				waits()
				commits()
			}
			commit := later(t, committer, "COMMIT")
			node := nodeWith(t, "ring_p", parent)
			awaitLock(t, node, "PREPARE TRANSACTION")
			watch := connect(t, shared().NodeDSN(nodeWith(t, "ring_p", held)))
			waitFor(t, "the other part to be prepared", func() bool { return ask(t, watch, "SELECT count(*) > 0 FROM pg_prepared_xacts") == "true" })
			began := time.Now()
			wait := later(t, waiter, fmt.Sprintf("UPDATE ring_p SET n = 2 WHERE id = %d", held))
			first, second := <-wait, <-commit
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("it took %v", took)
			}
			if test.victim == "waiter" {
				refused(t, first, "40P01", "deadlock detected", "on node "+node)
				if second != nil {
					t.Errorf("COMMIT: %s", describe(second))
				}
				run(t, waiter, "ROLLBACK")
				expect(t, setup, "1", "SELECT n FROM ring_p WHERE id = $1", held)
				return
			}
			refused(t, second, "40P01", "deadlock detected", "on node "+node)
			if first != nil {
				t.Fatalf("the one that waited: %s", describe(first))
			}
			run(t, waiter, "COMMIT")
			expect(t, setup, "2", "SELECT n FROM ring_p WHERE id = $1", held)
			expect(t, setup, "0", "SELECT n FROM ring_p WHERE id = $1", decider)
			waitFor(t, "nothing to be prepared", func() bool { return ask(t, watch, "SELECT count(*) FROM pg_prepared_xacts") == "0" })
		})
	}
}
