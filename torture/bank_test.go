package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	accounts = 24
	balance  = 1000
	workers  = 6
	// patience is how long a client waits for an answer.
	patience = 5 * time.Second
)

// Each account counts its changes, and each transfer leaves an entry with the count that it made at each of its accounts. So the entries of an
// account are a list that only grows, every read says how much of it there was, and transfers that two accounts share tie the lists together.
var schema = []string{
	"CREATE TABLE account (id bigint PRIMARY KEY, balance int NOT NULL, version int NOT NULL, last int NOT NULL)",
	fmt.Sprintf("INSERT INTO account SELECT i, %d, 0, -1 FROM generate_series(1, %d) i", balance, accounts),
	"CREATE TABLE entry (account bigint NOT NULL, transfer int NOT NULL, amount int NOT NULL, version int NOT NULL)",
	"SELECT create_distributed_table('account', 'id')",
	"SELECT create_distributed_table('entry', 'account', colocate_with => 'account')",
}

type outcome uint8

const (
	failed    outcome = iota // certainly not
	committed                // certainly
	unknown                  // the client cannot tell
)

// side is what a transfer does to one account.
type side struct{ account, amount int }

// transfer is one that was tried; its number is its place in the list.
type transfer struct {
	sides        []side
	outcome      outcome
	began, ended time.Time
}

// point is a read of one account.
type point struct {
	account, version, last int
	began, ended           time.Time
}

// picture is a read of all accounts with atomic reads: their versions.
type picture [accounts + 1]int

// bank is what clients did and were told.
type bank struct {
	dsns []string
	seed uint64

	mu        sync.Mutex
	transfers []transfer
	points    []point
	pictures  []picture
	wrongSums int
	unread    int // atomic reads that got an error
	disagreed int // of these: snapshots that did not agree in time
	deadlocks int
}

func (b *bank) count(what outcome) (n int) {
	for _, x := range b.transfers {
		if x.outcome == what {
			n++
		}
	}
	return n
}

// client works until the context ends, through any router; connections come and go.
func (b *bank) client(ctx context.Context, number int, work func(context.Context, *pgx.Conn, *rand.Rand) error) {
	random := rand.New(rand.NewPCG(b.seed, uint64(number+1)))
	var conn *pgx.Conn
	for ctx.Err() == nil {
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = connect(ctx, one(random, b.dsns)); err != nil {
				pause(ctx, 30*time.Millisecond) // nobody listens: the router is being started
				continue
			}
		}
		within, cancel := context.WithTimeout(context.Background(), patience)
		err := work(within, conn, random)
		if err != nil && !conn.IsClosed() {
			if _, again := conn.Exec(within, "ROLLBACK"); again != nil {
				closeSoon(conn)
			}
		}
		cancel()
		if err == nil && random.IntN(200) == 0 {
			closeSoon(conn) // another router next time
		}
	}
	if conn != nil {
		closeSoon(conn)
	}
}

func connect(ctx context.Context, dsn string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return pgx.Connect(ctx, dsn)
}

func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// transfer makes one transfer between two or three accounts.
func (b *bank) transfer(ctx context.Context, conn *pgx.Conn, random *rand.Rand) error {
	picked := random.Perm(accounts)
	x := transfer{sides: []side{{1 + picked[0], -1}, {1 + picked[1], 1}}, outcome: unknown, began: time.Now()}
	if random.IntN(3) == 0 {
		x.sides = []side{{1 + picked[0], -2}, {1 + picked[1], 1}, {1 + picked[2], 1}}
	}
	if random.IntN(10) > 0 { // else it may take part in a deadlock
		slices.SortFunc(x.sides, func(a, b side) int { return a.account - b.account })
	}
	b.mu.Lock()
	number := len(b.transfers)
	b.transfers = append(b.transfers, x)
	b.mu.Unlock()
	result, err := try(ctx, conn, x, number)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.transfers[number].outcome, b.transfers[number].ended = result, time.Now()
	if sqlState(err) == "40P01" {
		b.deadlocks++
	}
	return err
}

func try(ctx context.Context, conn *pgx.Conn, x transfer, number int) (outcome, error) {
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return failed, err
	}
	for _, s := range x.sides {
		var version int
		err := conn.QueryRow(ctx, fmt.Sprintf("UPDATE account SET balance = balance + %d, version = version + 1, last = %d WHERE id = %d RETURNING version",
			s.amount, number, s.account)).Scan(&version)
		if err == nil {
			_, err = conn.Exec(ctx, fmt.Sprintf("INSERT INTO entry VALUES (%d, %d, %d, %d)", s.account, number, s.amount, version))
		}
		if err != nil {
			return failed, err
		}
	}
	tag, err := conn.Exec(ctx, "COMMIT")
	code := sqlState(err)
	switch {
	case err == nil && tag.String() == "COMMIT":
		return committed, nil
	case err == nil, code != "" && !strings.HasPrefix(code, "08") && !strings.HasPrefix(code, "57P"):
		return failed, err
	}
	return unknown, err
}

func sqlState(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// read reads one account.
func (b *bank) read(ctx context.Context, conn *pgx.Conn, random *rand.Rand) error {
	p := point{account: 1 + random.IntN(accounts), began: time.Now()}
	if err := conn.QueryRow(ctx, "SELECT version, last FROM account WHERE id = $1", p.account).Scan(&p.version, &p.last); err != nil {
		return err
	}
	p.ended = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.points = append(b.points, p)
	return nil
}

// readAll reads all accounts at once, half of the time in a transaction that reads some of them again one by one.
func (b *bank) readAll(ctx context.Context, conn *pgx.Conn, random *rand.Rand) error {
	sum, seen, err := b.look(ctx, conn, random)
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err != nil:
		b.unread++
		if sqlState(err) == "40001" {
			b.disagreed++
		}
	case sum != accounts*balance:
		b.wrongSums++
	}
	if err == nil {
		b.pictures = append(b.pictures, seen)
	}
	return err
}

func (b *bank) look(ctx context.Context, conn *pgx.Conn, random *rand.Rand) (sum int, seen picture, err error) {
	within := random.IntN(2) == 0
	begin := "SET shoal.read_consistency = 'atomic'"
	if within {
		begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SET LOCAL shoal.read_consistency = 'atomic'"
	}
	if _, err := conn.PgConn().Exec(ctx, begin).ReadAll(); err != nil {
		return 0, seen, err
	}
	first := 1 + random.IntN(accounts)
	var again int
	if within {
		if err := conn.QueryRow(ctx, "SELECT version FROM account WHERE id = $1", first).Scan(&again); err != nil {
			return 0, seen, err
		}
	}
	rows, err := conn.Query(ctx, "SELECT id, balance, version FROM account")
	if err != nil {
		return 0, seen, err
	}
	var id, amount, version int
	if _, err := pgx.ForEachRow(rows, []any{&id, &amount, &version}, func() error {
		sum += amount
		seen[id] = version
		return nil
	}); err != nil {
		return 0, seen, err
	}
	if within {
		if seen[first] != again {
			return -1, seen, nil // counted as a wrong sum
		}
		_, err = conn.Exec(ctx, "COMMIT")
	}
	return sum, seen, err
}
