package twopc

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// BenchmarkTransfer moves money between two accounts: in one PostgreSQL with a plain transaction, and
// between two nodes with two-phase commit. No router is in between: it is the protocol's own cost.
func BenchmarkTransfer(b *testing.B) {
	c := startNodes(b, 2, "fsync=on")
	const accounts = 1000
	for _, name := range c.names {
		c.ask(name, "app", "CREATE TABLE account (id int PRIMARY KEY, balance int)")
		c.ask(name, "app", fmt.Sprintf("INSERT INTO account SELECT i, 0 FROM generate_series(1, %d) i", accounts))
	}
	var clients atomic.Int64
	open := func(b *testing.B, name string) *testPart {
		conn, err := pgconn.Connect(context.Background(), c.servers[name].DSN("", "app"))
		if err != nil {
			b.Error(err)
			return nil
		}
		b.Cleanup(func() { _ = conn.Close(context.Background()) })
		return &testPart{name: name, conn: conn, gone: new(atomic.Bool)}
	}
	// Each client has its own accounts, so that nobody waits for locks.
	update := func(id int64, amount int) string {
		return fmt.Sprintf("BEGIN; UPDATE account SET balance = balance + %d WHERE id = %d", amount, id)
	}
	for _, parallel := range []int{1, 8} {
		run := func(name string, each func(b *testing.B, next func() bool, id int64)) {
			b.Run(fmt.Sprintf("%s/clients=%d", name, parallel), func(b *testing.B) {
				var done atomic.Int64
				var group sync.WaitGroup
				b.ResetTimer()
				for range parallel {
					group.Go(func() { each(b, func() bool { return done.Add(1) <= int64(b.N) }, clients.Add(1)%accounts+1) })
				}
				group.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
			})
		}
		run("plain", func(b *testing.B, next func() bool, id int64) {
			p := open(b, "n1")
			for next() {
				for _, sql := range []string{update(id, -1), "UPDATE account SET balance = balance + 1 WHERE id = " + fmt.Sprint(id), "COMMIT"} {
					if err := p.Exec(context.Background(), sql); err != nil {
						b.Error(err)
						return
					}
				}
			}
		})
		run("twopc", func(b *testing.B, next func() bool, id int64) {
			list := []Participant{open(b, "n1"), open(b, "n2")}
			for next() {
				for i, p := range list {
					if err := exec(context.Background(), p, update(id, 2*i-1)); err != nil {
						b.Error(err)
						return
					}
				}
				if err := Commit(context.Background(), NewID(testCluster, "n1"), list); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
}
