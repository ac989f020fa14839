package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

const (
	memoryRows    = 5_000_000
	memoryClients = 20
	memoryWanted  = 256 // MB
)

// memoryStatements move millions of rows: to one node, between nodes, and to the client.
var memoryStatements = []string{
	"SELECT count(DISTINCT serial) FROM item",
	"SELECT count(*), sum(v.n) FROM item i JOIN visit v ON v.serial = i.id",
	"SELECT count(*), sum(v.n) FROM item i FULL JOIN visit v ON v.serial = i.serial",
	"SELECT max(r) FROM (SELECT row_number() OVER (ORDER BY amount) AS r FROM item) x",
	"SELECT id, serial FROM item ORDER BY id",
}

// runMemory lets clients move millions of rows and watches what the router takes meanwhile.
func runMemory(ctx context.Context, o options) error {
	o.crossRows = memoryRows
	r, err := newCross(ctx, o)
	if err != nil {
		return err
	}
	defer r.stop()
	before := residentKB(r.router.pid)
	ctx, cancel := context.WithTimeout(ctx, o.memory)
	defer cancel()
	var most, rows, done atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for i := range memoryClients {
		g.Go(func() error { return moveMillions(ctx, r.router.dsn, i, &rows, &done) })
	}
	g.Go(func() error {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				most.Store(max(most.Load(), int64(residentKB(r.router.pid))))
			}
		}
	})
	if err := g.Wait(); err != nil {
		return err
	}
	fmt.Printf("%d clients move rows of a table of %d for %v: %d statements done, %d rows answered\n", memoryClients, memoryRows, o.memory, done.Load(), rows.Load())
	fmt.Printf("the router's memory: %d MB before, at most %d MB (wanted: under %d)\n", before/1024, most.Load()/1024, memoryWanted)
	if most.Load()/1024 >= memoryWanted {
		return errors.New("the router took too much memory")
	}
	return nil
}

// moveMillions runs one statement after the other until the time is over.
func moveMillions(ctx context.Context, dsn string, first int, rows, done *atomic.Int64) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	for i := first; ctx.Err() == nil; i++ {
		result, err := conn.Query(ctx, memoryStatements[i%len(memoryStatements)])
		if err == nil {
			for result.Next() {
				rows.Add(1)
			}
			err = result.Err()
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			done.Add(1)
		}
	}
	return nil
}
