package integration

import (
	"runtime"
	"testing"

	"golang.org/x/sync/errgroup"
)

// Rows that move are never held by the router: while clients move many times as much, its live memory hardly grows.
func TestExchangeMemory(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE held (id bigint PRIMARY KEY, other bigint, pad text)",
		"INSERT INTO held SELECT g, 100000 - g, repeat(g::text, 30) FROM generate_series(1, 100000) g",
		"SELECT create_distributed_table('held', 'id')", "ANALYZE held")
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	before := live()
	var g errgroup.Group
	for i := range 6 {
		c := client(t)
		g.Go(func() error {
			_, err := c.Exec(t.Context(), []string{
				"SELECT count(*), array_length(array_agg(pad), 1) FROM held",
				"SELECT count(*), max(a.pad), max(b.pad) FROM held a FULL JOIN held b ON a.other = b.other",
			}[i%2])
			return err
		})
	}
	done := make(chan error, 1)
	go func() { done <- g.Wait() }()
	most := before
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			if grown := (most - before) >> 20; grown > 40 {
				t.Errorf("live memory grew by %d MB while 6 clients moved some 100 MB", grown)
			}
			return
		default:
			most = max(most, live())
		}
	}
}
