package torture

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// settleLimit is how long a transaction may stay prepared once all nodes can be reached.
const settleLimit = 10 * time.Second

// watch follows what is prepared on a node until the context ends: how long it stays there in all, while all nodes are up, and while
// controllers are left alone besides.
func (f *faults) watch(ctx context.Context, n *node, note func(age, nodes, all time.Duration)) {
	var conn *pgx.Conn
	for pause(ctx, 50*time.Millisecond) {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = connect(ctx, n.server.DSN("", "")); err != nil {
				continue
			}
		}
		var seconds float64
		err := conn.QueryRow(ctx, "SELECT coalesce(extract(epoch FROM max(clock_timestamp() - prepared)), 0)::float8 FROM pg_prepared_xacts").Scan(&seconds)
		nodes, all := f.undisturbed()
		age := time.Duration(seconds * float64(time.Second))
		if err == nil {
			note(age, min(age, nodes), min(age, all))
		}
	}
	if conn != nil {
		closeSoon(conn)
	}
}

// awaitSettled waits until no node has anything prepared, and returns how long that took. Processes that end meanwhile are started again.
func (f *faults) awaitSettled() time.Duration {
	f.t.Helper()
	began := time.Now()
	for {
		for len(f.events) > 0 {
			f.react(<-f.events)
		}
		left := 0
		f.onNodes(func(conn *pgx.Conn) {
			var n int
			if err := conn.QueryRow(f.t.Context(), "SELECT count(*) FROM pg_prepared_xacts").Scan(&n); err != nil {
				f.t.Fatal(err)
			}
			left += n
		})
		if left == 0 {
			return time.Since(began)
		}
		if time.Since(began) > time.Minute {
			f.t.Fatalf("%d transactions are still prepared after a minute", left)
		}
		pause(f.t.Context(), 50*time.Millisecond)
	}
}

// entry is one that a node has.
type entry struct {
	amount, version int
	at              time.Time // when it was committed, by the node's clock
}

// ledger is what the nodes have in the end.
type ledger struct {
	entries  map[[2]int][]entry // by account and transfer
	balances map[int]int
	versions map[int]int
}

func (c *cluster) ledger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{entries: map[[2]int][]entry{}, balances: map[int]int{}, versions: map[int]int{}}
	c.onNodes(func(conn *pgx.Conn) {
		var account, number int
		var e entry
		rows, err := conn.Query(t.Context(), "SELECT account, transfer, amount, version, pg_xact_commit_timestamp(xmin) FROM entry")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = pgx.ForEachRow(rows, []any{&account, &number, &e.amount, &e.version, &e.at}, func() error {
			l.entries[[2]int{account, number}] = append(l.entries[[2]int{account, number}], e)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var money, version int
		if rows, err = conn.Query(t.Context(), "SELECT id, balance, version FROM account"); err != nil {
			t.Fatal(err)
		}
		if _, err = pgx.ForEachRow(rows, []any{&account, &money, &version}, func() error {
			l.balances[account] += money
			l.versions[account] += version
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	return l
}

// problems must all be 0, but for what is late.
type problems struct {
	lost    int // the client was told COMMIT, and an entry is missing
	doubled int // an entry is there twice
	half    int // some sides are there, others are not
	revived int // the client was told that it failed, and it is there
	account int // accounts whose balance or version is not what their entries say
	sum     int // by how much the sum of all balances is off

	late    int // a node committed its side after the client was told COMMIT
	latest  time.Duration
	example string
}

func (p problems) any() bool { return p.lost+p.doubled+p.half+p.revived+p.account+p.sum != 0 }

// check compares what clients were told with what the nodes have.
func (b *bank) check(l *ledger) (p problems) {
	count := map[int]int{}
	for key, list := range l.entries {
		for _, e := range list {
			l.balances[key[0]] -= e.amount
			count[key[0]]++
		}
	}
	for account := 1; account <= accounts; account++ {
		p.sum += l.balances[account] - balance
		if l.balances[account] != balance || l.versions[account] != count[account] {
			p.account++
		}
	}
	for number := range b.transfers {
		b.checkTransfer(l, number, &p)
	}
	return p
}

func (b *bank) checkTransfer(l *ledger, number int, p *problems) {
	x := &b.transfers[number]
	there := 0
	for _, s := range x.sides {
		list := l.entries[[2]int{s.account, number}]
		if len(list) > 1 {
			p.doubled++
		}
		if len(list) > 0 {
			there++
			if late := list[0].at.Sub(x.ended); x.outcome == committed && late > 0 {
				p.late++
				p.latest = max(p.latest, late)
			}
		}
	}
	switch {
	case there != 0 && there != len(x.sides):
		p.half++
	case x.outcome == committed && there == 0:
		p.lost++
	case x.outcome == failed && there > 0:
		p.revived++
	default:
		return
	}
	p.example = fmt.Sprintf("transfer %d: %+v, %d of its sides are there", number, *x, there)
}
