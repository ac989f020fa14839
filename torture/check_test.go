package torture

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// awaitSettled waits until no node has anything prepared, and returns how long that took.
func awaitSettled(t *testing.T, s status) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		left := 0
		onNodes(t, s, func(conn *pgx.Conn) {
			var n int
			if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_xacts").Scan(&n); err != nil {
				t.Fatal(err)
			}
			left += n
		})
		if left == 0 {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%d transactions are still prepared after a minute", left)
		}
	}
}

// watchPrepared follows what is prepared on a node until the context ends, and returns the greatest age that it saw. While
// parts are down this includes the time that they are.
func watchPrepared(ctx context.Context, dsn string) (longest time.Duration) {
	var conn *pgx.Conn
	for pause(ctx, 100*time.Millisecond) {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = connect(ctx, dsn); err != nil {
				continue
			}
		}
		var seconds float64
		if err := conn.QueryRow(ctx, "SELECT coalesce(extract(epoch FROM max(now() - prepared)), 0)::float8 FROM pg_prepared_xacts").Scan(&seconds); err == nil {
			longest = max(longest, time.Duration(seconds*float64(time.Second)))
		}
	}
	if conn != nil {
		closeSoon(conn)
	}
	return longest
}

// onNodes asks the nodes behind the router's back.
func onNodes(t *testing.T, s status, f func(*pgx.Conn)) {
	t.Helper()
	for _, n := range s.Nodes {
		conn, err := pgx.Connect(t.Context(), n.DSN)
		if err != nil {
			t.Fatal(err)
		}
		f(conn)
		_ = conn.Close(context.Background())
	}
}

// problemCounts must all be 0.
type problemCounts struct {
	lost    int // the client was told COMMIT, and an entry is missing
	doubled int // an entry is there twice
	half    int // one side is there, the other is not
	revived int // the client was told that it failed, and it is there
	balance int // accounts whose balance is not what its entries say
	sum     int // by how much the sum of all balances is off
}

// check compares what clients were told with what the nodes have.
func (o *outcomes) check(t *testing.T, s status) (p problemCounts) {
	t.Helper()
	type side struct{ account, transfer int }
	entries := map[side]int{}
	balances := map[int]int{}
	onNodes(t, s, func(conn *pgx.Conn) {
		var account, number, amount int
		rows, err := conn.Query(t.Context(), "SELECT account, transfer, amount FROM entry")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = pgx.ForEachRow(rows, []any{&account, &number, &amount}, func() error {
			entries[side{account, number}]++
			balances[account] -= amount
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if rows, err = conn.Query(t.Context(), "SELECT id, balance FROM account"); err != nil {
			t.Fatal(err)
		}
		if _, err = pgx.ForEachRow(rows, []any{&account, &amount}, func() error {
			balances[account] += amount
			p.sum += amount
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	p.sum -= accounts * balance
	for account := 1; account <= accounts; account++ {
		if balances[account] != balance {
			p.balance++
		}
	}
	for number, x := range o.list {
		from, to := entries[side{x.from, number}], entries[side{x.to, number}]
		switch {
		case from > 1 || to > 1:
			p.doubled++
		case from != to:
			p.half++
		case x.outcome == committed && from == 0:
			p.lost++
		case x.outcome == failed && from == 1:
			p.revived++
		}
	}
	return p
}
