// Command bench compares plain PostgreSQL, pgbouncer and pgshoal in front of the same server, in
// interleaved rounds on one machine, and prints medians as ratios: absolute numbers of a shared
// machine mean nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"time"
)

type options struct {
	pgshoal   string
	rounds    int
	duration  time.Duration
	clients   string
	rows      int
	only      string
	crowd     bool
	transfer  bool
	cross     bool
	crossRows int
	memory    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.pgshoal, "pgshoal", "bin/pgshoal", "the binary to measure")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds; each measures every target once")
	flag.DurationVar(&o.duration, "duration", 5*time.Second, "time of one measurement")
	flag.StringVar(&o.clients, "clients", "8,32", "numbers of clients")
	flag.IntVar(&o.rows, "rows", 100000, "rows of the table")
	flag.StringVar(&o.only, "only", "", "measure only workloads whose name contains this, e.g. select/prepared")
	flag.BoolVar(&o.crowd, "crowd", true, "measure 5000 idle clients, and 200 active ones among them")
	flag.BoolVar(&o.transfer, "transfer", false, "measure transactions over two nodes and atomic reads instead")
	flag.BoolVar(&o.cross, "cross", false, "measure only statements over two nodes, against one PostgreSQL with all rows")
	flag.IntVar(&o.crossRows, "cross-rows", 1000000, "rows of the largest table for statements over nodes")
	flag.DurationVar(&o.memory, "memory", 0, "instead let 20 clients move rows of a table of 5 million for this time, and watch the router's memory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	work := run
	switch {
	case o.transfer:
		work = runTransfers
	case o.memory > 0:
		work = runMemory
	case o.cross:
		work = runCross
	}
	if err := work(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	s, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	workloads, err := s.workloads(o)
	if err != nil {
		return err
	}
	fmt.Printf("%d rounds of %v per target, %d rows, one server, %d workloads\n\n", o.rounds, o.duration, o.rows, len(workloads))
	fmt.Printf("%-24s %10s | %9s %9s %9s | %9s %9s %9s\n", "", "PostgreSQL",
		"pgbouncer", "pgshoal", "pgshoal/", "pgbouncer", "pgshoal", "pgshoal/")
	fmt.Printf("%-24s %10s | %9s %9s %9s | %9s %9s %9s\n", "workload", "per s",
		"of plain", "of plain", "pgbouncer", "us CPU", "us CPU", "pgbouncer")
	for _, w := range workloads {
		if err := s.measure(ctx, w, o); err != nil {
			return err
		}
	}
	if o.crowd {
		if err := s.crowd(ctx, o); err != nil {
			return err
		}
	}
	if o.only != "" {
		return nil
	}
	fmt.Println()
	return runCross(ctx, o)
}
