package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

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
