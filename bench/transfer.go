package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// transferRun measures what transactions over nodes cost: the same transfers on one PostgreSQL, through a router on one
// node, and between two nodes; and sums over both nodes while transfers go on, with and without atomic reads.
type transferRun struct {
	options
	dir    string
	router string
	node   string // the home node itself, with a table that is not distributed
	left   []int  // ids on one node
	right  []int  // ids on the other one
}

func runTransfers(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "pgshoal-bench")
	if err != nil {
		return err
	}
	r := &transferRun{options: o, dir: dir}
	defer r.stop()
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	fmt.Printf("transfers, 8 clients, %d rounds of %v; medians\n", o.rounds, o.duration)
	if err := r.writers(ctx); err != nil {
		return err
	}
	return r.readers(ctx)
}

func (r *transferRun) cluster() string { return filepath.Join(r.dir, "cluster") }

func (r *transferRun) stop() {
	_ = exec.Command(r.pgshoal, "down", "--dir", r.cluster()).Run()
	_ = os.RemoveAll(r.dir)
}

func (r *transferRun) start(ctx context.Context) error {
	up := exec.CommandContext(ctx, r.pgshoal, "up", "--dir", r.cluster(), "--nodes", "2", "--port", "0", "--http", "127.0.0.1:0", "--detach")
	if out, err := up.CombinedOutput(); err != nil {
		return fmt.Errorf("starting the cluster: %w: %s", err, out)
	}
	out, err := exec.CommandContext(ctx, r.pgshoal, "status", "--dir", r.cluster(), "--json").Output()
	if err != nil {
		return fmt.Errorf("reading the cluster's status: %w", err)
	}
	var status struct{ Nodes, Routers []struct{ DSN string } }
	if err := json.Unmarshal(out, &status); err != nil {
		return err
	}
	r.router, r.node = status.Routers[0].DSN, status.Nodes[0].DSN
	const rows = 10000
	fill := func(table string) []string {
		return []string{
			"CREATE TABLE " + table + " (id bigint PRIMARY KEY, balance bigint NOT NULL)",
			fmt.Sprintf("INSERT INTO %s SELECT i, 1000 FROM generate_series(1, %d) i", table, rows),
		}
	}
	if err := execAll(ctx, r.router, append(append(fill("plain"), fill("account")...), "SELECT create_distributed_table('account', 'id')")...); err != nil {
		return err
	}
	for i, ids := range []*[]int{&r.left, &r.right} {
		conn, err := pgx.Connect(ctx, status.Nodes[i].DSN)
		if err != nil {
			return err
		}
		found, err := conn.Query(ctx, "SELECT id::int FROM account")
		if err == nil {
			*ids, err = pgx.CollectRows(found, pgx.RowTo[int])
		}
		_ = conn.Close(ctx)
		if err != nil {
			return err
		}
	}
	return nil
}

func execAll(ctx context.Context, dsn string, statements ...string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// timing is one measurement of a rate and a latency.
type timing struct {
	rate float64
	p99  time.Duration
}

func (r *transferRun) writers(ctx context.Context) error {
	targets := []struct {
		name, dsn, table string
		from, to         []int
	}{
		{"one PostgreSQL", r.node, "plain", r.left, r.left},
		{"router, local table", r.router, "plain", r.left, r.left},
		{"router, one node", r.router, "account", r.left, r.left},
		{"router, two nodes", r.router, "account", r.left, r.right},
	}
	samples := make([][]timing, len(targets))
	for range r.rounds {
		for i, target := range targets {
			got, err := r.transfer(ctx, target.dsn, target.table, 8, target.from, target.to)
			if err != nil {
				return fmt.Errorf("%s: %w", target.name, err)
			}
			samples[i] = append(samples[i], got)
		}
	}
	base := middle(samples[0])
	fmt.Printf("%-22s %8s %10s %8s %8s\n", "", "per s", "p99", "of plain", "p99 of plain")
	for i, target := range targets {
		m := middle(samples[i])
		fmt.Printf("%-22s %8.0f %10v %8.2f %8.2f\n", target.name, m.rate, m.p99.Round(10*time.Microsecond), m.rate/base.rate, float64(m.p99)/float64(base.p99))
	}
	return nil
}

func middle(samples []timing) timing {
	var rates, p99 []float64
	for _, s := range samples {
		rates, p99 = append(rates, s.rate), append(p99, float64(s.p99))
	}
	slices.Sort(rates)
	slices.Sort(p99)
	return timing{rates[len(rates)/2], time.Duration(p99[len(p99)/2])}
}

// transfer lets clients move money, always in the order of ids so that they do not wait for each other in a ring.
func (r *transferRun) transfer(ctx context.Context, dsn, table string, clients int, from, to []int) (timing, error) {
	sql := "UPDATE " + table + " SET balance = balance + $1 WHERE id = $2"
	return r.clients(ctx, dsn, clients, func(conn *pgx.Conn, random *rand.Rand) error {
		a, b := from[random.IntN(len(from))], to[random.IntN(len(to))]
		if a == b {
			return nil
		}
		if a > b && &from[0] == &to[0] {
			a, b = b, a
		}
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, sql, -1, a); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sql, 1, b)
			return err
		})
	})
}

// clients runs work over and over for the time of one measurement.
func (r *transferRun) clients(ctx context.Context, dsn string, n int, work func(*pgx.Conn, *rand.Rand) error) (timing, error) {
	times := make([][]time.Duration, n)
	errs := make([]error, n)
	var group sync.WaitGroup
	end := time.Now().Add(r.duration)
	for i := range n {
		group.Go(func() {
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close(ctx)
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Now().Before(end) {
				began := time.Now()
				if errs[i] = work(conn, random); errs[i] != nil {
					return
				}
				times[i] = append(times[i], time.Since(began))
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		if err != nil {
			return timing{}, err
		}
	}
	all := slices.Concat(times...)
	slices.Sort(all)
	if len(all) == 0 {
		return timing{}, fmt.Errorf("nothing was done")
	}
	return timing{float64(len(all)) / r.duration.Seconds(), all[len(all)*99/100]}, nil
}

// readers measures sums over both nodes, quiet and under transfers.
func (r *transferRun) readers(ctx context.Context) error {
	fmt.Printf("\nsums over two nodes, 2 readers\n%-34s %8s %10s %8s %8s\n", "", "per s", "p99", "torn", "40001")
	for _, load := range []int{0, 4, 16} {
		for _, consistency := range []string{"node", "atomic"} {
			var wrong, refused, total int
			var mu sync.Mutex
			stopped := make(chan error, 1)
			go func() {
				var err error
				if load > 0 {
					_, err = r.transfer(ctx, r.router, "account", load, r.left, r.right)
				}
				stopped <- err
			}()
			got, err := r.clients(ctx, r.router, 2, func(conn *pgx.Conn, _ *rand.Rand) error {
				if conn.PgConn().CustomData()["set"] == nil {
					conn.PgConn().CustomData()["set"] = true
					if _, err := conn.Exec(ctx, "SET shoal.read_consistency = '"+consistency+"'"); err != nil {
						return err
					}
				}
				var sum int64
				err := conn.QueryRow(ctx, "SELECT sum(balance)::bigint FROM account").Scan(&sum)
				mu.Lock()
				defer mu.Unlock()
				total++
				var e *pgconn.PgError
				switch {
				case errors.As(err, &e) && e.Code == "40001": // the snapshots did not agree in time
					refused++
					return nil
				case err == nil && sum != int64(1000*(len(r.left)+len(r.right))):
					wrong++
				}
				return err
			})
			if other := <-stopped; err == nil {
				err = other
			}
			if err != nil {
				return err
			}
			name := strings.TrimSpace(fmt.Sprintf("%s, %d writers", consistency, load))
			fmt.Printf("%-34s %8.0f %10v %7.1f%% %8d\n", name, got.rate, got.p99.Round(10*time.Microsecond), 100*float64(wrong)/float64(max(total, 1)), refused)
		}
	}
	return nil
}
