package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/twopc"
)

// transferUntil moves money between two rows on different nodes until the context ends.
func transferUntil(ctx context.Context, dsn, table string, a, b int) error {
	conn, err := pgx.Connect(context.WithoutCancel(ctx), dsn)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	work := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		err := pgx.BeginFunc(work, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(work, "UPDATE "+table+" SET balance = balance - 1 WHERE id = $1", a); err != nil {
				return err
			}
			_, err := tx.Exec(work, "UPDATE "+table+" SET balance = balance + 1 WHERE id = $1", b)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// TestAtomicReads sums balances over all nodes while four writers transfer between nodes: no sum may show half a transfer.
func TestAtomicReads(t *testing.T) {
	setup := client(t)
	run(t, setup, "CREATE TABLE atomic (id bigint PRIMARY KEY, balance int)", "INSERT INTO atomic SELECT i, 100 FROM generate_series(0, 99) i",
		"SELECT create_distributed_table('atomic', 'id')")
	var byNode [][]int
	onNodes(t, shared(), "postgres", func(_ string, conn *pgx.Conn) {
		rows, err := conn.Query(t.Context(), "SELECT id::int FROM atomic ORDER BY id LIMIT 4")
		if err != nil {
			t.Fatal(err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil || len(ids) < 4 {
			t.Fatal(ids, err)
		}
		byNode = append(byNode, ids)
	})
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	errs := make(chan error, 4)
	for i := range 4 {
		go func() {
			errs <- transferUntil(ctx, shared().DSN(i%2), "atomic", byNode[i%3][i], byNode[(i+1)%3][3-i])
		}()
	}
	torn := func(conn *pgx.Conn, rounds int, query func(*pgx.Conn) int) int {
		n := 0
		for range rounds {
			if query(conn) != 10000 {
				n++
			}
		}
		return n
	}
	one := func(sql string) func(*pgx.Conn) int {
		return func(conn *pgx.Conn) (sum int) {
			if err := conn.QueryRow(t.Context(), sql).Scan(&sum); err != nil {
				t.Fatalf("%s: %s", sql, describe(err))
			}
			return sum
		}
	}
	const rounds = 150
	plain := client(t)
	t.Logf("torn sums without atomic reads: %d of %d", torn(plain, rounds, one("SELECT sum(balance) FROM atomic")), rounds)
	atomic := connect(t, shared().DSN(1))
	run(t, atomic, "SET shoal.read_consistency = 'atomic'")
	for _, sql := range []string{
		"SELECT sum(balance) FROM atomic",
		"SELECT sum(a.balance) FROM atomic a JOIN (SELECT generate_series(0, 99) AS g) s ON s.g = a.id",
		"WITH x AS (SELECT balance, row_number() OVER (ORDER BY balance) FROM atomic) SELECT sum(balance) FROM x",
	} {
		if n := torn(atomic, rounds/2, one(sql)); n > 0 {
			t.Errorf("%s: %d of %d sums show half a transfer", sql, n, rounds/2)
		}
	}
	// A transaction reads one state, also with statements that go to one node each.
	if n := torn(plain, rounds/3, func(conn *pgx.Conn) (sum int) {
		run(t, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ", "SET LOCAL shoal.read_consistency = 'atomic'")
		for id := range 100 {
			if id%10 == 0 {
				for _, ids := range byNode {
					_ = ask(t, conn, "SELECT balance FROM atomic WHERE id = $1", ids[0])
				}
			}
		}
		_ = conn.QueryRow(t.Context(), "SELECT sum(balance) FROM atomic").Scan(&sum)
		run(t, conn, "COMMIT")
		return sum
	}); n > 0 {
		t.Errorf("%d transactions saw half a transfer", n)
	}
	stop()
	for range 4 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	expect(t, setup, "10000", "SELECT sum(balance) FROM atomic")
}

func TestAtomicReadSettings(t *testing.T) {
	setup := client(t)
	accounts(t, setup, "atomic_set", 30)
	conn := client(t)
	fails(t, conn, "22023", "SET shoal.read_consistency = 'perhaps'", "atomic")
	sum := "SELECT sum(balance) FROM atomic_set"
	run(t, conn, "SET shoal.read_consistency = 'atomic'")
	expect(t, conn, "3000", sum)
	run(t, conn, "BEGIN")
	fails(t, conn, "0A000", sum, "REPEATABLE READ")
	run(t, conn, "ROLLBACK", "BEGIN", "SELECT 1")
	fails(t, conn, "0A000", sum)
	run(t, conn, "ROLLBACK", "RESET shoal.read_consistency", "BEGIN", "SELECT 1")
	fails(t, conn, "25001", "SET LOCAL shoal.read_consistency = 'atomic'")
	run(t, conn, "ROLLBACK", "BEGIN ISOLATION LEVEL SERIALIZABLE", "SET LOCAL shoal.read_consistency = 'atomic'", "SAVEPOINT s")
	expect(t, conn, "3000", sum)
	run(t, conn, "UPDATE atomic_set SET balance = balance + 1 WHERE id IN (1, 2, 3, 4, 5)")
	expect(t, conn, "3005", sum)
	run(t, conn, "ROLLBACK TO s")
	expect(t, conn, "3000", sum)
	run(t, conn, "COMMIT")
	// A role's own default.
	run(t, setup, "CREATE ROLE atomic_reader LOGIN PASSWORD 'secret'", "ALTER ROLE atomic_reader SET shoal.read_consistency = 'atomic'",
		"GRANT SELECT ON atomic_set TO atomic_reader")
	reader := connect(t, shared().RoleDSN(0, "atomic_reader", "secret", "postgres"))
	run(t, reader, "BEGIN")
	fails(t, reader, "0A000", sum)
	run(t, reader, "ROLLBACK")
	expect(t, reader, "3000", sum)
}

// TestAtomicReadWaitsForCommit takes a transaction that is decided and still prepared on one node: half of it is visible to others.
func TestAtomicReadWaitsForCommit(t *testing.T) {
	setup := client(t)
	a, b := accounts(t, setup, "atomic_wait", 30)
	nodeA, nodeB := nodeWith(t, "atomic_wait", a), nodeWith(t, "atomic_wait", b)
	gid := twopc.NewID("testcluster", nodeA).GID
	record := func(table, gid string) string {
		return fmt.Sprintf("INSERT INTO pg_shoal.%s (gid, nodes) VALUES ('%s', '{%s,%s}')", table, gid, nodeA, nodeB)
	}
	connA, connB := connect(t, shared().NodeDSN(nodeA)), connect(t, shared().NodeDSN(nodeB))
	run(t, connB, "BEGIN", fmt.Sprintf("UPDATE atomic_wait SET balance = balance + 10 WHERE id = %d", b), record("parts", gid), "PREPARE TRANSACTION '"+gid+"'")
	run(t, connA, "BEGIN", fmt.Sprintf("UPDATE atomic_wait SET balance = balance - 10 WHERE id = %d", a), record("decisions", gid), "COMMIT")
	reader := client(t)
	expect(t, reader, "2990", "SELECT sum(balance) FROM atomic_wait")
	run(t, reader, "SET shoal.read_consistency = 'atomic'")
	var sum string
	var done sync.WaitGroup
	done.Go(func() { sum = ask(t, reader, "SELECT sum(balance) FROM atomic_wait") })
	// The reader looks again and again while it waits: more than one of its statements on the node.
	watch := connect(t, shared().NodeDSN(nodeB))
	seen := map[string]bool{}
	for len(seen) < 3 {
		for start := range strings.FieldsSeq(ask(t, watch, "SELECT extract(epoch FROM xact_start) FROM pg_stat_activity WHERE strpos(query, 'pg_shoal.seen') > 0 AND pid <> pg_backend_pid() AND xact_start IS NOT NULL")) {
			seen[start] = true
		}
	}
	run(t, connB, "COMMIT PREPARED '"+gid+"'")
	done.Wait()
	if sum != "3000" {
		t.Errorf("the sum is %s", sum)
	}
	// A name that somebody has only written holds nobody up.
	run(t, connA, record("decisions", twopc.NewID("testcluster", nodeA).GID), record("parts", twopc.NewID("testcluster", nodeA).GID))
	expect(t, reader, "3000", "SELECT sum(balance) FROM atomic_wait")
}

// TestOthersCannotRecord lets a role record and decide a transaction that another one coordinates, whose name it can read while that is prepared.
func TestOthersCannotRecord(t *testing.T) {
	setup := client(t)
	run(t, setup, "CREATE ROLE recorder LOGIN PASSWORD 'secret'")
	conn := connect(t, shared().RoleDSN(0, "recorder", "secret", "postgres"))
	gid := twopc.NewID("testcluster", "node2").GID
	for _, secret := range []string{"'guess'", "NULL"} {
		for _, view := range []string{"record", "decide"} {
			_, err := conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO pg_shoal.%s VALUES ('%s', '{node1,node2}', %s)", view, gid, secret))
			refused(t, err, "44000", `violates check option for view "`+view+`"`)
		}
	}
	for table, code := range map[string]string{"parts": "42501", "decisions": "42501", "seen": "55000"} {
		_, err := conn.Exec(t.Context(), fmt.Sprintf("INSERT INTO pg_shoal.%s (gid, nodes) VALUES ('%s', '{node1}')", table, gid))
		refused(t, err, code)
	}
	for _, sql := range []string{"SELECT secret FROM pg_shoal.decide", "SELECT secret FROM pg_shoal.parts", "UPDATE pg_shoal.decide SET nodes = NULL", "DELETE FROM pg_shoal.record"} {
		_, err := conn.Exec(t.Context(), sql)
		refused(t, err, "42501")
	}
}

// TestHoldDecisions keeps decisions off as a reader does that finds no moment without a commit under way: writers wait, and go on when
// it is over, or when the one that holds them off sleeps on it.
func TestHoldDecisions(t *testing.T) {
	setup := client(t)
	a, b := accounts(t, setup, "atomic_hold", 30)
	run(t, setup, "CREATE ROLE holder LOGIN PASSWORD 'secret'")
	_, err := connect(t, shared().RoleDSN(0, "holder", "secret", "postgres")).Exec(t.Context(), "SELECT pg_shoal.hold_decisions()")
	refused(t, err, "42501")
	for _, wakes := range []bool{true, false} {
		writer := client(t)
		run(t, writer, "BEGIN", fmt.Sprintf("UPDATE atomic_hold SET balance = balance - 1 WHERE id = %d", a), fmt.Sprintf("UPDATE atomic_hold SET balance = balance + 1 WHERE id = %d", b))
		hold := connect(t, shared().NodeDSN("node1"))
		run(t, hold, "BEGIN", "SELECT pg_shoal.hold_decisions()")
		commit := later(t, writer, "COMMIT")
		awaitLock(t, "node1", "EXECUTE shoal_")
		if wakes {
			run(t, hold, "COMMIT")
		}
		if err := <-commit; err != nil {
			t.Fatal(describe(err))
		}
	}
	expect(t, setup, "98", "SELECT balance FROM atomic_hold WHERE id = $1", a)
	expect(t, setup, "102", "SELECT balance FROM atomic_hold WHERE id = $1", b)
}
