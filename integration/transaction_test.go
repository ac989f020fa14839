package integration

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// accounts makes a distributed table with the ids 0 to n-1 and 100 in each, and returns two ids
// that are on different nodes.
func accounts(t *testing.T, conn *pgx.Conn, table string, n int) (a, b int) {
	t.Helper()
	run(t, conn, "CREATE TABLE "+table+" (id bigint PRIMARY KEY, balance int CHECK (balance >= 0))",
		fmt.Sprintf("INSERT INTO %s SELECT i, 100 FROM generate_series(0, %d) i", table, n-1),
		"SELECT create_distributed_table('"+table+"', 'id')")
	return apart(t, shared(), table)
}

// apart returns keys of rows on two different nodes.
func apart(t *testing.T, c *cluster.Cluster, table string) (a, b int) {
	t.Helper()
	var ids []int
	onNodes(t, c, "postgres", func(_ string, conn *pgx.Conn) {
		var id *int
		if err := conn.QueryRow(t.Context(), "SELECT min(id) FROM "+table).Scan(&id); err != nil {
			t.Fatal(err)
		}
		if id != nil {
			ids = append(ids, *id)
		}
	})
	if len(ids) < 2 {
		t.Fatalf("the rows of %s are all on one node", table)
	}
	return ids[0], ids[1]
}

// totals asks the nodes directly for the sum of a column.
func totals(t testing.TB, c *cluster.Cluster, table, column string) int {
	t.Helper()
	sum := 0
	onNodes(t, c, "postgres", func(_ string, conn *pgx.Conn) {
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT coalesce(sum("+column+"), 0) FROM "+table).Scan(&n); err != nil {
			t.Fatal(err)
		}
		sum += n
	})
	return sum
}

func TestTransactionOnOneNode(t *testing.T) {
	conn := client(t)
	a, _ := accounts(t, conn, "txn_one", 30)
	sql := fmt.Sprintf("UPDATE txn_one SET balance = balance - 10 WHERE id = %d", a)
	run(t, conn, "BEGIN", sql, "COMMIT")
	expect(t, conn, "90", "SELECT balance FROM txn_one WHERE id = $1", a)
	run(t, conn, "BEGIN ISOLATION LEVEL SERIALIZABLE", sql)
	expect(t, conn, "80", "SELECT balance FROM txn_one WHERE id = $1", a)
	expect(t, conn, "serializable", "SHOW transaction_isolation")
	run(t, conn, "ROLLBACK")
	expect(t, conn, "90", "SELECT balance FROM txn_one WHERE id = $1", a)
	run(t, conn, "BEGIN READ ONLY")
	fails(t, conn, "25006", sql)
	run(t, conn, "ROLLBACK")
}

func TestTransactionOnSeveralNodes(t *testing.T) {
	conn := client(t)
	a, b := accounts(t, conn, "txn_two", 30)
	take := func(id, n int) string {
		return fmt.Sprintf("UPDATE txn_two SET balance = balance - %d WHERE id = %d", n, id)
	}
	t.Run("commit", func(t *testing.T) {
		run(t, conn, "BEGIN", take(a, 10), take(b, -10), "COMMIT")
		expect(t, conn, "90", "SELECT balance FROM txn_two WHERE id = $1", a)
		expect(t, conn, "110", "SELECT balance FROM txn_two WHERE id = $1", b)
	})
	t.Run("rollback", func(t *testing.T) {
		run(t, conn, "BEGIN", take(a, 10), take(b, -10))
		expect(t, conn, "80", "SELECT balance FROM txn_two WHERE id = $1", a)
		run(t, conn, "ROLLBACK")
		expect(t, conn, "90", "SELECT balance FROM txn_two WHERE id = $1", a)
	})
	t.Run("savepoints", func(t *testing.T) {
		run(t, conn, "BEGIN", take(a, 1), "SAVEPOINT one", take(b, -1), "SAVEPOINT two", take(a, 50),
			"ROLLBACK TO one", take(b, -1), "RELEASE one", "COMMIT")
		expect(t, conn, "89", "SELECT balance FROM txn_two WHERE id = $1", a)
		expect(t, conn, "111", "SELECT balance FROM txn_two WHERE id = $1", b)
	})
	t.Run("a savepoint saves the transaction", func(t *testing.T) {
		run(t, conn, "BEGIN", take(a, 1), "SAVEPOINT s")
		fails(t, conn, "23514", take(b, 1000), "balance")
		fails(t, conn, "25P02", take(a, 1))
		run(t, conn, "ROLLBACK TO SAVEPOINT s", take(b, -1), "COMMIT")
		expect(t, conn, "88", "SELECT balance FROM txn_two WHERE id = $1", a)
	})
	t.Run("error state", func(t *testing.T) {
		run(t, conn, "BEGIN", take(a, 1), take(b, -1))
		fails(t, conn, "23514", take(b, 1000))
		if s := conn.PgConn().TxStatus(); s != 'E' {
			t.Errorf("the transaction's status is %c", s)
		}
		fails(t, conn, "25P02", "SELECT 1", "current transaction is aborted")
		fails(t, conn, "25P02", take(a, 1))
		tag, err := conn.Exec(t.Context(), "COMMIT")
		if err != nil || tag.String() != "ROLLBACK" {
			t.Errorf("COMMIT of a failed transaction: %q, %v", tag, err)
		}
		expect(t, conn, "88", "SELECT balance FROM txn_two WHERE id = $1", a)
	})
	t.Run("what the router refuses fails the transaction too", func(t *testing.T) {
		run(t, conn, "BEGIN", take(a, 1))
		fails(t, conn, "0A000", "SELECT ctid FROM txn_two")
		fails(t, conn, "25P02", take(b, 1))
		run(t, conn, "ROLLBACK")
		fails(t, conn, "42P01", "SELECT * FROM txn_nothing")
		run(t, conn, "BEGIN")
		fails(t, conn, "42P01", "SELECT * FROM txn_nothing")
		fails(t, conn, "25P02", "SELECT 1")
		run(t, conn, "ROLLBACK")
	})
	if got := totals(t, shared(), "txn_two", "balance"); got != 3000 {
		t.Errorf("the balances are %d together, not 3000", got)
	}
	onNodes(t, shared(), "postgres", func(node string, c *pgx.Conn) {
		expect(t, c, "0", "SELECT count(*) FROM pg_prepared_xacts")
	})
}

func TestDeferredConstraintFailsBothNodes(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE txn_def (id bigint, n int, UNIQUE (id, n) DEFERRABLE INITIALLY DEFERRED)",
		"SELECT create_distributed_table('txn_def', 'id')")
	for i := range 20 {
		run(t, conn, fmt.Sprintf("INSERT INTO txn_def VALUES (%d, 1)", i))
	}
	a, b := apart(t, shared(), "txn_def")
	run(t, conn, "BEGIN", fmt.Sprintf("INSERT INTO txn_def VALUES (%d, 2)", a), fmt.Sprintf("INSERT INTO txn_def VALUES (%d, 1)", b))
	_, err := conn.Exec(t.Context(), "COMMIT")
	refused(t, err, "23505", "txn_def")
	if s := conn.PgConn().TxStatus(); s != 'I' {
		t.Errorf("after a failed COMMIT the status is %c", s)
	}
	checkPlaced(t, shared(), "txn_def", "id", 20)
	onNodes(t, shared(), "postgres", func(node string, c *pgx.Conn) {
		expect(t, c, "0", "SELECT count(*) FROM pg_prepared_xacts")
	})
}

func TestTransactionMixesTablesOfAllKinds(t *testing.T) {
	conn := client(t)
	a, b := accounts(t, conn, "txn_mix", 30)
	run(t, conn, "CREATE TABLE txn_mix_l (note text)", "CREATE TABLE txn_mix_r (note text)", "SELECT create_reference_table('txn_mix_r')")
	write := []string{
		fmt.Sprintf("UPDATE txn_mix SET balance = 1 WHERE id = %d", a), "INSERT INTO txn_mix_l VALUES ('l')",
		"INSERT INTO txn_mix_r VALUES ('r')", fmt.Sprintf("UPDATE txn_mix SET balance = 2 WHERE id = %d", b),
		"CREATE TABLE txn_mix_new (x int)", "ALTER TABLE txn_mix ADD COLUMN extra text DEFAULT 'e'",
	}
	run(t, conn, append(append([]string{"BEGIN"}, write...), "ROLLBACK")...)
	checkLocal(t, shared(), "txn_mix_l", 0)
	checkReference(t, shared(), "txn_mix_r", 0)
	sameOnNodes(t, shared(), "<nil>", "SELECT to_regclass('txn_mix_new')::text")
	run(t, conn, append(append([]string{"BEGIN"}, write...), "COMMIT")...)
	checkLocal(t, shared(), "txn_mix_l", 1)
	checkReference(t, shared(), "txn_mix_r", 1)
	sameOnNodes(t, shared(), "txn_mix_new", "SELECT to_regclass('txn_mix_new')::text")
	expect(t, conn, "1|e", "SELECT balance, extra FROM txn_mix WHERE id = $1", a)
}

// TestSeveralStatementsInOneQuery checks that one Query message is one transaction.
func TestSeveralStatementsInOneQuery(t *testing.T) {
	conn := client(t)
	a, b := accounts(t, conn, "txn_multi", 30)
	send := func(sql string) ([]*pgconn.Result, error) { return conn.PgConn().Exec(t.Context(), sql).ReadAll() }
	both := fmt.Sprintf("UPDATE txn_multi SET balance = balance - 5 WHERE id = %d; UPDATE txn_multi SET balance = balance + 5 WHERE id = %d", a, b)
	results, err := send(both + "; SELECT 'done'")
	if err != nil || len(results) != 3 || string(results[2].Rows[0][0]) != "done" {
		t.Fatalf("%d results, %v", len(results), err)
	}
	_, err = send(both + "; SELECT 1/0; " + both)
	refused(t, err, "22012")
	expect(t, conn, "95", "SELECT balance FROM txn_multi WHERE id = $1", a)
	_, err = send("BEGIN; " + both + "; ROLLBACK; " + both)
	if err != nil {
		t.Fatal(describe(err))
	}
	expect(t, conn, "90", "SELECT balance FROM txn_multi WHERE id = $1", a)
	// What the router refused before must not reach into the next message.
	fails(t, conn, "42P01", "DROP TABLE txn_nothing_there")
	fails(t, conn, "0A000", "SELECT ctid FROM txn_multi")
	results, err = send(both + "; CREATE TABLE txn_multi_2 (a int); CREATE TABLE txn_multi_3 (a int)")
	if err != nil || len(results) != 4 {
		t.Errorf("4 statements had %d results: %v", len(results), err)
	}
	sameOnNodes(t, shared(), "2", "SELECT count(*) FROM pg_class WHERE relname IN ('txn_multi_2', 'txn_multi_3')")
	if _, err = send(""); err != nil {
		t.Errorf("an empty query: %v", err)
	}
	if s := conn.PgConn().TxStatus(); s != 'I' {
		t.Errorf("status %c", s)
	}
	if got := totals(t, shared(), "txn_multi", "balance"); got != 3000 {
		t.Errorf("the balances are %d together, not 3000", got)
	}
}

// TestTransfers moves money between nodes from many clients of two routers: the sum never changes.
func TestTransfers(t *testing.T) {
	conn := client(t)
	accounts(t, conn, "txn_transfer", 20)
	const clients, rounds = 6, 25
	errs := make(chan error, clients)
	for i := range clients {
		go func() { errs <- transferAround(t, connectOr(shared().DSN(i%2)), i, rounds) }()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if got := totals(t, shared(), "txn_transfer", "balance"); got != 2000 {
		t.Errorf("the balances are %d together, not 2000", got)
	}
	onNodes(t, shared(), "postgres", func(node string, c *pgx.Conn) {
		expect(t, c, "0", "SELECT count(*) FROM pg_prepared_xacts")
	})
}

// connectOr is connect for goroutines, which must not end the test.
func connectOr(dsn string) func(t *testing.T) (*pgx.Conn, error) {
	return func(t *testing.T) (*pgx.Conn, error) { return pgx.Connect(t.Context(), dsn) }
}

func transferAround(t *testing.T, open func(*testing.T) (*pgx.Conn, error), who, rounds int) error {
	conn, err := open(t)
	if err != nil {
		return err
	}
	defer hangUp(conn)
	for r := range rounds {
		from, to := (who*7+r)%20, (who*3+r*11+1)%20
		if from == to {
			continue
		}
		if from > to {
			from, to = to, from // always in one order: no deadlocks
		}
		err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "UPDATE txn_transfer SET balance = balance - 1 WHERE id = $1", from); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), "UPDATE txn_transfer SET balance = balance + 1 WHERE id = $1", to)
			return err
		})
		var e *pgconn.PgError
		if err != nil && !(errors.As(err, &e) && e.Code == "23514") {
			return fmt.Errorf("client %d: %w", who, err)
		}
	}
	return nil
}
