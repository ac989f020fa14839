package pool

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

// step is one thing that happens to the pool: a session asks, one ends, or time passes.
type step struct {
	What    string
	Role    string
	Nth     int
	Broken  bool
	Seconds int
}

func drawStep(r *rapid.T) step {
	return step{
		What: rapid.SampledFrom([]string{"ask", "ask", "release", "sleep"}).Draw(r, "what"),
		Role: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "role"),
		Nth:  rapid.IntRange(0, 10).Draw(r, "nth"), Broken: rapid.Bool().Draw(r, "broken"),
		Seconds: rapid.IntRange(1, 30).Draw(r, "seconds"),
	}
}

// TestBooks lets sessions of three pools come and go at random and checks limits and the queue
// after each step.
func TestBooks(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		cfg := Config{
			MaxPerPool: rapid.IntRange(1, 3).Draw(r, "perPool"), MaxPerNode: rapid.IntRange(1, 5).Draw(r, "perNode"),
			QueueTimeout: time.Hour, Lifetime: time.Minute, IdleTimeout: 20 * time.Second,
		}
		steps := rapid.SliceOfN(rapid.Custom(drawStep), 1, 60).Draw(r, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = runSteps(newSilent(t, cfg), steps) })
		if err != nil {
			r.Fatal(err)
		}
	})
}

// sessions are those of one run.
type sessions struct {
	pool  *Pool
	got   chan *Conn
	held  []*Conn
	asked int // and not released
}

func runSteps(p *Pool, steps []step) error {
	s := &sessions{pool: p, got: make(chan *Conn, len(steps))}
	defer func() {
		for len(s.held) > 0 { // only after a failure: let everybody go
			s.release(0, true)
			_ = s.settle()
		}
		p.Close()
	}()
	for _, st := range steps {
		switch {
		case st.What == "ask":
			s.ask(st.Role)
		case st.What == "release" && len(s.held) > 0:
			s.release(st.Nth%len(s.held), st.Broken)
		case st.What == "sleep":
			time.Sleep(time.Duration(st.Seconds) * time.Second)
		}
		if err := s.settle(); err != nil {
			return err
		}
	}
	for s.asked > 0 {
		if len(s.held) == 0 {
			return fmt.Errorf("%d sessions wait for nobody", s.asked)
		}
		s.release(0, false)
		if err := s.settle(); err != nil {
			return err
		}
	}
	return nil
}

func (s *sessions) ask(role string) {
	s.asked++
	go func() {
		// A failure shows in the books: the session neither holds nor waits.
		if c, err := s.pool.Acquire(context.Background(), Key{Node: "n1", Role: role}, Credentials{}); err == nil {
			s.got <- c
		}
	}()
}

func (s *sessions) release(i int, broken bool) {
	s.held[i].Broken = broken
	s.pool.Release(s.held[i])
	s.held = slices.Delete(s.held, i, i+1)
	s.asked--
}

func (s *sessions) settle() error {
	synctest.Wait()
	for len(s.got) > 0 {
		s.held = append(s.held, <-s.got)
	}
	return s.check()
}

// check compares the books with what the sessions know, and with the promise of keyPool.
func (s *sessions) check() error {
	n, cfg := s.pool.nodes["n1"], s.pool.cfg
	n.mu.Lock()
	defer n.mu.Unlock()
	total, idle, waiting := 0, 0, 0
	for _, k := range n.pools {
		if k.total != len(k.open) || k.total > cfg.MaxPerPool {
			return fmt.Errorf("%v: total %d, open %d", k.key, k.total, len(k.open))
		}
		total += k.total
		idle += len(k.idle)
		waiting += len(k.queue.waiters)
	}
	if idle != n.idle {
		return fmt.Errorf("idle %d (counted %d)", n.idle, idle)
	}
	if total != n.total || total > cfg.MaxPerNode || total-idle != len(s.held) || len(s.held)+waiting != s.asked {
		return fmt.Errorf("total %d (counted %d), idle %d, held %d, waiting %d, asked %d", n.total, total, idle, len(s.held), waiting, s.asked)
	}
	for _, k := range n.pools {
		needless := len(k.idle) > 0 || k.total < cfg.MaxPerPool && (total < cfg.MaxPerNode || idle > 0)
		if len(k.queue.waiters) > 0 && needless {
			return fmt.Errorf("%v waits without need: total %d of %d, node %d, idle %d", k.key, k.total, cfg.MaxPerPool, total, idle)
		}
	}
	return nil
}
