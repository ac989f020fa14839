package main

import (
	"context"
	"encoding/json"
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
)

// transferRun measures what transactions over nodes cost: the same transfers on one PostgreSQL, through a router on one
// node, and between two nodes; and sums over both nodes while transfers go on, with and without atomic reads.
type transferRun struct {
	options
	dir    string
	router string
	nodes  [2]string // the nodes themselves; the first, the home node, has a table that is not distributed
	pids   struct {
		router int
		nodes  []int
	}
	left  []int // ids on the first node
	right []int // ids on the second

	hands int // counts clients that do it by hand, so that their gids differ
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
	if o.only != "" {
		return nil
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
	var status struct {
		Nodes, Routers []struct {
			DSN string
			PID int
		}
	}
	if err := json.Unmarshal(out, &status); err != nil {
		return err
	}
	r.router, r.pids.router = status.Routers[0].DSN, status.Routers[0].PID
	const rows = 10000
	fill := func(table string) []string {
		return []string{
			"CREATE TABLE " + table + " (id bigint PRIMARY KEY, balance bigint NOT NULL)",
			fmt.Sprintf("INSERT INTO %s SELECT i, 1000 FROM generate_series(1, %d) i", table, rows),
		}
	}
	if err := execAll(ctx, r.router, append(append(fill("plain"), fill("account")...),
		"SELECT create_distributed_table('account', 'id')", "CREATE TABLE hand_decisions (gid text PRIMARY KEY)")...); err != nil {
		return err
	}
	for i, ids := range []*[]int{&r.left, &r.right} {
		r.nodes[i], r.pids.nodes = status.Nodes[i].DSN, append(r.pids.nodes, status.Nodes[i].PID)
		conn, err := pgx.Connect(ctx, r.nodes[i])
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

// timing is one measurement of a rate and a latency, and of the CPU time that one transaction took.
type timing struct {
	rate float64
	p99  time.Duration
	// Microseconds of CPU per transaction.
	nodes, router, client float64
}

func (t timing) cpu() float64 { return t.nodes + t.router + t.client }

// transferTarget is one way to make transfers.
type transferTarget struct {
	name string
	run  func(ctx context.Context) (timing, error)
}

func (r *transferRun) targets() []transferTarget {
	via := func(dsn, table string, from, to []int) func(context.Context) (timing, error) {
		return func(ctx context.Context) (timing, error) { return r.transfer(ctx, dsn, table, 8, from, to) }
	}
	all := []transferTarget{
		{"one PostgreSQL", via(r.nodes[0], "plain", r.left, r.left)},
		{"router, local table", via(r.router, "plain", r.left, r.left)},
		{"router, one node", via(r.router, "account", r.left, r.left)},
		{"router, two nodes", via(r.router, "account", r.left, r.right)},
		{"by hand, two nodes", func(ctx context.Context) (timing, error) { return r.byHand(ctx, 8) }},
	}
	return slices.DeleteFunc(all, func(t transferTarget) bool { return t.name != all[0].name && !strings.Contains(t.name, r.only) })
}

func (r *transferRun) writers(ctx context.Context) error {
	targets := r.targets()
	samples := make([][]timing, len(targets))
	for range r.rounds {
		for i, target := range targets {
			nodes, router, client := cpuOf(r.pids.nodes...), cpuOf(r.pids.router), cpuTime(os.Getpid())
			got, err := target.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", target.name, err)
			}
			each := 1e6 / (got.rate * r.duration.Seconds())
			got.nodes, got.router, got.client = (cpuOf(r.pids.nodes...)-nodes)*each, (cpuOf(r.pids.router)-router)*each, (cpuTime(os.Getpid())-client)*each
			samples[i] = append(samples[i], got)
		}
	}
	fmt.Printf("%-20s %7s %9s | %8s %8s | %7s %7s %7s | %8s\n", "", "", "", "rate", "p99", "us CPU", "us CPU", "us CPU", "all CPU")
	fmt.Printf("%-20s %7s %9s | %8s %8s | %7s %7s %7s | %8s\n", "", "per s", "p99", "of plain", "of plain", "nodes", "router", "client", "of plain")
	rate, p99 := func(t timing) float64 { return t.rate }, func(t timing) float64 { return float64(t.p99) }
	for i, target := range targets {
		m := samples[i]
		fmt.Printf("%-20s %7.0f %9v | %8.2f %8.2f | %7.0f %7.0f %7.0f | %8.2f\n", target.name, middle(m, rate), time.Duration(middle(m, p99)).Round(10*time.Microsecond),
			r.ofPlain(samples, i, rate), r.ofPlain(samples, i, p99),
			middle(m, func(t timing) float64 { return t.nodes }), middle(m, func(t timing) float64 { return t.router }), middle(m, func(t timing) float64 { return t.client }),
			r.ofPlain(samples, i, timing.cpu))
	}
	return nil
}

// ofPlain is the median of the ratios within each round: a machine that is slow for a while is slow for all targets.
func (r *transferRun) ofPlain(samples [][]timing, i int, value func(timing) float64) float64 {
	ratios := make([]timing, r.rounds)
	for round := range ratios {
		ratios[round].rate = value(samples[i][round]) / value(samples[0][round])
	}
	return middle(ratios, func(t timing) float64 { return t.rate })
}

func middle(samples []timing, value func(timing) float64) float64 {
	var list []float64
	for _, s := range samples {
		list = append(list, value(s))
	}
	slices.Sort(list)
	return list[len(list)/2]
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

// clients runs work over and over, each client on a connection of its own.
func (r *transferRun) clients(ctx context.Context, dsn string, n int, work func(*pgx.Conn, *rand.Rand) error) (timing, error) {
	return measureClients(r.duration, n, func() (func(*rand.Rand) error, func(), error) {
		conn, err := pgx.Connect(ctx, dsn)
		if err != nil {
			return nil, nil, err
		}
		return func(random *rand.Rand) error { return work(conn, random) }, func() { _ = conn.Close(ctx) }, nil
	})
}

// measureClients opens clients and then lets them work over and over for the time of one measurement.
func measureClients(duration time.Duration, n int, open func() (work func(*rand.Rand) error, shut func(), err error)) (timing, error) {
	works := make([]func(*rand.Rand) error, n)
	for i := range n {
		work, shut, err := open()
		if err != nil {
			return timing{}, err
		}
		defer shut()
		works[i] = work
	}
	times := make([][]time.Duration, n)
	errs := make([]error, n)
	var group sync.WaitGroup
	end := time.Now().Add(duration)
	for i := range n {
		group.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 1))
			for time.Now().Before(end) {
				began := time.Now()
				if errs[i] = works[i](random); errs[i] != nil {
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
	return timing{rate: float64(len(all)) / duration.Seconds(), p99: all[len(all)*99/100]}, nil
}
