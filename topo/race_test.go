package topo_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
)

// together makes the first transactions of several stores wait for each other, so that all of
// them were decided on before any of them is made.
type together struct {
	topo.Store
	once  sync.Once
	start *sync.WaitGroup
}

func (s *together) Txn(ctx context.Context, conds []topo.Cond, ops []topo.Op) (int64, error) {
	s.once.Do(func() {
		s.start.Done()
		s.start.Wait()
	})
	return s.Store.Txn(ctx, conds, ops)
}

func connectTogether(t *testing.T, n int) []topo.Store {
	srv, start := memtopo.NewServer(), new(sync.WaitGroup)
	start.Add(n)
	var stores []topo.Store
	for range n {
		s := srv.Connect()
		t.Cleanup(func() { s.Close() })
		stores = append(stores, &together{Store: s, start: start})
	}
	return stores
}

func TestOneOfManyIsElected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		leaders := make(chan *topo.Leadership, 3)
		for _, s := range connectTogether(t, 3) {
			go func() {
				if l, err := topo.Campaign(ctx, s, "control", "x", time.Second); err == nil {
					leaders <- l
				}
			}()
		}
		for left := 3; left > 0; left-- {
			synctest.Wait()
			if n := len(leaders); n != 1 {
				t.Fatalf("%d leaders", n)
			}
			(<-leaders).Resign(ctx)
		}
		cancel()
	})
}

func TestNumbersWhenManyChooseAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		numbers := make(chan int, 3)
		for i, s := range connectTogether(t, 3) {
			go func() {
				m := topo.Member{Name: string(rune('a' + i)), Role: topo.RoleRouter}
				r, err := topo.Register(t.Context(), s, m, time.Second, slog.New(slog.DiscardHandler))
				if err != nil {
					t.Error(err)
					numbers <- 0
					return
				}
				numbers <- r.Member().Number
				<-t.Context().Done()
				r.Close()
			}()
		}
		if sum := <-numbers + <-numbers + <-numbers; sum != 1+2+3 {
			t.Fatalf("the sum of the numbers is %d", sum)
		}
	})
}

// TestNameTakenAtOnce lets two processes of one name register at the same time; the second gets
// its turn when the first is gone.
func TestNameTakenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registered := make(chan *topo.Registration, 2)
		for _, s := range connectTogether(t, 2) {
			go func() {
				m := topo.Member{Name: "a", Role: topo.RoleController}
				if r, err := topo.Register(t.Context(), s, m, time.Second, slog.New(slog.DiscardHandler)); err == nil {
					registered <- r
				}
			}()
		}
		for range 2 {
			time.Sleep(time.Minute) // in the bubble
			if n := len(registered); n != 1 {
				t.Fatalf("%d members of one name", n)
			}
			(<-registered).Close()
		}
	})
}
