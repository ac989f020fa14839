package torture

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var (
	duration = flag.Duration("time", 12*time.Second, "how long parts are hurt")
	seed     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the faults")
)

const (
	accounts = 60
	balance  = 1000
	workers  = 6
	// settleLimit is how long a transaction may stay prepared once all nodes are up.
	settleLimit = 10 * time.Second
)

// TestTorture is the whole story.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("kills clusters for seconds")
	}
	c := startCluster(t)
	start := c.awaitHealthy()
	router := start.Routers[0].DSN
	execute(t, router, "CREATE TABLE account (id bigint PRIMARY KEY, balance int NOT NULL)",
		fmt.Sprintf("INSERT INTO account SELECT i, %d FROM generate_series(1, %d) i", balance, accounts),
		"CREATE TABLE entry (account bigint NOT NULL, transfer bigint NOT NULL, amount int NOT NULL)",
		"SELECT create_distributed_table('account', 'id')", "SELECT create_distributed_table('entry', 'account', colocate_with => 'account')")
	t.Logf("seed %d", *seed)
	ctx, stop := context.WithTimeout(t.Context(), *duration)
	defer stop()
	var all outcomes
	var reads reader
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() { all.work(ctx, router, w) })
	}
	group.Go(func() { reads.watch(ctx, router) })
	longest := make([]time.Duration, len(start.Nodes))
	for i, n := range start.Nodes {
		group.Go(func() { longest[i] = watchPrepared(ctx, n.DSN) })
	}
	done := c.faults(ctx, rand.New(rand.NewPCG(*seed, 0)))
	group.Wait()
	healthy := c.awaitHealthy()
	settled := awaitSettled(t, healthy)
	problems := all.check(t, healthy)
	t.Logf("faults: %v", done)
	t.Logf("transfers: %v", &all)
	t.Logf("atomic sums: %d right, %d wrong, %d not answered", reads.right, reads.wrong, reads.errors)
	t.Logf("lost %d, duplicated %d, half %d", problems.lost, problems.doubled, problems.half)
	t.Logf("longest time prepared %v (nodes and controllers that were down included); all settled %v after everything was up again",
		slices.Max(longest).Round(time.Millisecond), settled.Round(time.Millisecond))
	if all.count(committed) == 0 {
		t.Error("no transfer was committed: nothing was tested")
	}
	if problems != (problemCounts{}) || reads.wrong > 0 {
		t.Errorf("problems: %+v, %d wrong sums", problems, reads.wrong)
	}
	if settled > settleLimit {
		t.Errorf("settling took %v", settled)
	}
}

func execute(t *testing.T, dsn string, statements ...string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range statements {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
}

type outcome uint8

const (
	failed    outcome = iota // certainly not
	committed                // certainly
	unknown                  // the client cannot tell
)

// transfer is one that was tried; its number is its place in the list.
type transfer struct {
	from, to int
	outcome  outcome
}

type outcomes struct {
	mu        sync.Mutex
	list      []transfer
	deadlocks int
}

func (o *outcomes) count(what outcome) int {
	n := 0
	for _, x := range o.list {
		if x.outcome == what {
			n++
		}
	}
	return n
}

// work makes transfers until the time is over; connections come and go.
func (o *outcomes) work(ctx context.Context, dsn string, worker int) {
	random := rand.New(rand.NewPCG(*seed, uint64(worker+1)))
	var conn *pgx.Conn
	for ctx.Err() == nil {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = connect(ctx, dsn); err != nil {
				pause(ctx, 50*time.Millisecond) // nobody listens: the router is being started
				continue
			}
		}
		x := transfer{from: 1 + random.IntN(accounts), to: 1 + random.IntN(accounts)}
		if x.from == x.to {
			continue
		}
		o.mu.Lock()
		number := len(o.list)
		o.list = append(o.list, x)
		o.mu.Unlock()
		result, err := try(conn, x, number)
		o.mu.Lock()
		o.list[number].outcome = result
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == "40P01" {
			o.deadlocks++
		}
		o.mu.Unlock()
	}
	if conn != nil {
		closeSoon(conn)
	}
}

func connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return pgx.Connect(ctx, dsn)
}

func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// try makes one transfer, with an entry for each account.
func try(conn *pgx.Conn, x transfer, number int) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	statements := []string{"BEGIN"}
	for _, side := range []struct{ account, amount int }{{x.from, -1}, {x.to, 1}} {
		statements = append(statements,
			fmt.Sprintf("UPDATE account SET balance = balance + %d WHERE id = %d", side.amount, side.account),
			fmt.Sprintf("INSERT INTO entry VALUES (%d, %d, %d)", side.account, number, side.amount))
	}
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			rollBack(conn)
			return failed, err
		}
	}
	tag, err := conn.Exec(ctx, "COMMIT")
	var e *pgconn.PgError
	switch {
	case err == nil && tag.String() == "COMMIT":
		return committed, nil
	case err == nil:
		return failed, nil
	case errors.As(err, &e) && !strings.HasPrefix(e.Code, "08") && !strings.HasPrefix(e.Code, "57P"):
		return failed, err
	}
	closeSoon(conn)
	return unknown, err
}

func rollBack(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		closeSoon(conn)
	}
}

// reader sums all balances with atomic reads.
type reader struct{ right, wrong, errors int }

func (r *reader) watch(ctx context.Context, dsn string) {
	var conn *pgx.Conn
	for ctx.Err() == nil {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = connect(ctx, dsn); err != nil {
				pause(ctx, 50*time.Millisecond)
				continue
			}
		}
		sum, err := r.sum(conn)
		switch {
		case err != nil:
			r.errors++
			closeSoon(conn)
		case sum == accounts*balance:
			r.right++
		default:
			r.wrong++
		}
	}
	if conn != nil {
		closeSoon(conn)
	}
}

func (r *reader) sum(conn *pgx.Conn) (sum int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := conn.Exec(ctx, "SET shoal.read_consistency = 'atomic'"); err != nil {
		return 0, err
	}
	return sum, conn.QueryRow(ctx, "SELECT sum(balance) FROM account").Scan(&sum)
}
