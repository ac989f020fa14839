package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
)

var (
	alice = Key{Node: "n1", Role: "alice", Database: "app"}
	bob   = Key{Node: "n1", Role: "bob", Database: "app"}
)

func mustAcquire(t *testing.T, p *Pool, key Key) *Conn {
	t.Helper()
	c, err := p.Acquire(t.Context(), key, Credentials{})
	if err != nil {
		t.Fatalf("Acquire(%v): %v", key, err)
	}
	return c
}

func TestLastReleasedIsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSilent(t, Config{})
		defer p.Close()
		a, b := mustAcquire(t, p, alice), mustAcquire(t, p, alice)
		p.Release(a)
		p.Release(b)
		if got := mustAcquire(t, p, alice); got != b {
			t.Errorf("got pid %d, want the last released, %d", got.PID, b.PID)
		} else {
			p.Release(got)
		}
	})
}

func TestReleaseCloses(t *testing.T) {
	for name, spoil := range map[string]func(*Conn){
		"broken":         func(c *Conn) { c.Broken = true },
		"in transaction": func(c *Conn) { c.TxStatus = 'T' },
		"failed":         func(c *Conn) { c.TxStatus = 'E' },
		"unsent output":  func(c *Conn) { c.SendQuery("SELECT 1") },
	} {
		t.Run(name, func(t *testing.T) {
			p := newSilent(t, Config{})
			defer p.Close()
			c := mustAcquire(t, p, alice)
			spoil(c)
			p.Release(c)
			if !isClosed(c) {
				t.Error("the connection was kept")
			}
			if s := p.Stats()[0]; s.Idle != 0 || s.Active != 0 || s.Closed != 1 {
				t.Errorf("stats %+v", s)
			}
		})
	}
}

func TestQueueIsFirstInFirstOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSilent(t, Config{MaxPerPool: 1})
		defer p.Close()
		held := mustAcquire(t, p, alice)
		var order []int
		for i := range 5 {
			go func() {
				c := mustAcquire(t, p, alice)
				order = append(order, i) // one connection: no two of them at once
				p.Release(c)
			}()
			synctest.Wait()
		}
		if s := p.Stats()[0]; s.Waiting != 5 || s.Active != 1 {
			t.Errorf("stats %+v, want 5 waiting", s)
		}
		p.Release(held)
		synctest.Wait()
		if want := []int{0, 1, 2, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}
	})
}

func TestQueueTimeout(t *testing.T) {
	for name, tc := range map[string]struct {
		cfg     Config
		setting string
	}{
		"pool": {Config{MaxPerPool: 1, QueueTimeout: 3 * time.Second}, "max_per_pool"},
		"node": {Config{MaxPerPool: 5, MaxPerNode: 1, QueueTimeout: 3 * time.Second}, "max_per_pool"},
	} {
		t.Run(name, func(t *testing.T) { timeOut(t, tc.cfg, alice, tc.setting) })
	}
	t.Run("other pool", func(t *testing.T) {
		timeOut(t, Config{MaxPerPool: 2, MaxPerNode: 2, QueueTimeout: 3 * time.Second}, bob, "max_per_node")
	})
}

func timeOut(t *testing.T, cfg Config, second Key, setting string) {
	synctest.Test(t, func(t *testing.T) {
		p := newSilent(t, cfg)
		defer p.Close()
		for range p.cfg.MaxPerPool {
			defer p.Release(mustAcquire(t, p, alice))
		}
		start := time.Now()
		_, err := p.Acquire(t.Context(), second, Credentials{})
		var e *pgwire.Error
		if !errors.As(err, &e) || e.Code != "53300" || !strings.Contains(e.Message, `"n1"`) || !strings.Contains(e.Hint, setting) {
			t.Fatalf("error %+v, want 53300 that names the node and %s", err, setting)
		}
		if waited := time.Since(start); waited != 3*time.Second {
			t.Errorf("waited %v", waited)
		}
		for _, s := range p.Stats() {
			if s.Key == second && (s.Timeouts != 1 || s.Waiting != 0) {
				t.Errorf("stats %+v, want one timeout and nobody waiting", s)
			}
		}
	})
}

func TestCancelledWaiterLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSilent(t, Config{MaxPerPool: 1})
		defer p.Close()
		held := mustAcquire(t, p, alice)
		why := errors.New("the client left")
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := p.Acquire(ctx, alice, Credentials{})
			failed <- err
		}()
		synctest.Wait()
		cancel(why)
		if err := <-failed; !errors.Is(err, why) {
			t.Errorf("error %v, want the cause", err)
		}
		p.Release(held)
		p.Release(mustAcquire(t, p, alice))
	})
}

func TestIdleOfOtherPoolGivesWay(t *testing.T) {
	p := newSilent(t, Config{MaxPerNode: 2})
	defer p.Close()
	a, b := mustAcquire(t, p, alice), mustAcquire(t, p, alice)
	p.Release(a)
	p.Release(b)
	c := mustAcquire(t, p, bob)
	if !isClosed(a) || isClosed(b) {
		t.Errorf("closed: %v, %v; want the one that was idle longest", isClosed(a), isClosed(b))
	}
	p.Release(c)
}

func TestWaiterOfOtherPoolGetsThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSilent(t, Config{MaxPerPool: 1, MaxPerNode: 1})
		defer p.Close()
		held := mustAcquire(t, p, alice)
		got := make(chan *Conn)
		go func() { got <- mustAcquire(t, p, bob) }()
		synctest.Wait()
		p.Release(held)
		c := <-got
		if !isClosed(held) || c.Key != bob {
			t.Errorf("alice's connection closed: %v; got one of %v", isClosed(held), c.Key)
		}
		p.Release(c)
	})
}

// TestPlacesChangePoolsRarely: own waiters come first, unless another pool's has waited much longer.
func TestPlacesChangePoolsRarely(t *testing.T) {
	for _, tc := range []struct {
		lead  time.Duration
		first Key
	}{{50 * time.Millisecond, alice}, {200 * time.Millisecond, bob}} {
		t.Run(tc.lead.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newSilent(t, Config{MaxPerNode: 1})
				defer p.Close()
				held := mustAcquire(t, p, alice)
				got := make(chan *Conn)
				go func() { got <- mustAcquire(t, p, bob) }()
				time.Sleep(tc.lead)
				go func() { got <- mustAcquire(t, p, alice) }()
				synctest.Wait()
				p.Release(held)
				first := <-got
				if first.Key != tc.first || isClosed(held) != (tc.first == bob) {
					t.Errorf("first came %v, alice's connection closed: %v", first.Key, isClosed(held))
				}
				p.Release(first)
				p.Release(<-got)
			})
		})
	}
}

func TestLifetimeAndIdleTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSilent(t, Config{Lifetime: time.Hour, IdleTimeout: 10 * time.Minute})
		defer p.Close()
		c := mustAcquire(t, p, alice)
		for range 10 { // used often: not idle long enough
			time.Sleep(5 * time.Minute)
			p.Release(c)
			if next := mustAcquire(t, p, alice); next != c {
				t.Fatal("the connection was replaced before its time")
			}
		}
		time.Sleep(17 * time.Minute) // 67 minutes: an hour and a tenth have passed
		p.Release(c)
		if !isClosed(c) {
			t.Error("an old connection was kept")
		}
		c = mustAcquire(t, p, alice)
		p.Release(c)
		time.Sleep(9 * time.Minute)
		if isClosed(c) {
			t.Error("closed before the idle timeout")
		}
		time.Sleep(2 * time.Minute)
		if !isClosed(c) {
			t.Error("an idle connection was kept beyond the timeout")
		}
		time.Sleep(time.Hour)
		if s := p.Stats(); len(s) != 0 {
			t.Errorf("an unused pool is still there: %+v", s)
		}
		p.Release(mustAcquire(t, p, alice))
	})
}

func TestLifetimeJitter(t *testing.T) {
	p := newSilent(t, Config{Lifetime: time.Hour})
	defer p.Close()
	seen := make(map[int64]bool)
	for range 50 {
		l := p.lifetime()
		if l < int64(54*time.Minute) || l > int64(66*time.Minute) {
			t.Fatalf("lifetime %v", time.Duration(l))
		}
		seen[l] = true
	}
	if len(seen) < 2 {
		t.Error("all connections live equally long")
	}
}

func TestSetNodes(t *testing.T) {
	p := newSilent(t, Config{})
	defer p.Close()
	idle, held := mustAcquire(t, p, alice), mustAcquire(t, p, alice)
	p.Release(idle)
	p.SetNodes([]keyspace.Node{{Name: "n1", Addresses: []string{"elsewhere:1"}}})
	if !isClosed(idle) || isClosed(held) {
		t.Errorf("closed: idle %v, held %v; want only the idle one", isClosed(idle), isClosed(held))
	}
	p.Release(held)
	if !isClosed(held) {
		t.Error("a connection to an old address was kept")
	}
	c := mustAcquire(t, p, alice)
	if c.Address != "elsewhere:1" {
		t.Errorf("connected to %s", c.Address)
	}
	p.SetNodes(nil)
	p.Release(c)
	if !isClosed(c) {
		t.Error("a connection to a node that left the map was kept")
	}
	var e *pgwire.Error
	if _, err := p.Acquire(t.Context(), alice, Credentials{}); !errors.As(err, &e) || e.Code != "08001" {
		t.Errorf("error %v, want 08001", err)
	}
}

func TestCloseFailsWaitersAndCutsHeldOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSilent(t, Config{MaxPerPool: 1})
		held := mustAcquire(t, p, alice)
		failed := make(chan error, 1)
		go func() {
			_, err := p.Acquire(t.Context(), alice, Credentials{})
			failed <- err
		}()
		synctest.Wait()
		closed := make(chan struct{})
		go func() { p.Close(); close(closed) }()
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("waiter got %v", err)
		}
		synctest.Wait()
		if !isClosed(held) {
			t.Error("the held connection was not cut off")
		}
		select {
		case <-closed:
			t.Error("Close did not wait for the held connection")
		default:
		}
		p.Release(held)
		<-closed
		if _, err := p.Acquire(t.Context(), alice, Credentials{}); !errors.Is(err, ErrClosed) {
			t.Errorf("Acquire after Close: %v", err)
		}
	})
}

func TestAdmit(t *testing.T) {
	refuse := errors.New("too old an epoch")
	var p *Pool
	var admitted []string
	p = newSilent(t, Config{MaxPerPool: 1, MaxPerNode: 1, Admit: func(ctx context.Context, node string, pid uint32) error {
		// The service connection must neither be admitted in turn nor wait for this one's place.
		service, err := p.Acquire(ctx, Key{Node: node, Role: "pgshoal", Database: "app"}, Credentials{})
		if err != nil {
			return err
		}
		p.Release(service)
		admitted = append(admitted, fmt.Sprint(node, " ", pid))
		if len(admitted) == 2 {
			return refuse
		}
		return nil
	}})
	defer p.Close()
	c := mustAcquire(t, p, alice)
	p.Release(c)
	p.Release(mustAcquire(t, p, alice)) // not fresh
	if want := []string{"n1 1"}; !slices.Equal(admitted, want) {
		t.Errorf("admitted %v, want %v", admitted, want)
	}
	if _, err := p.Acquire(t.Context(), bob, Credentials{}); !errors.Is(err, refuse) {
		t.Errorf("error %v, want the refusal", err)
	}
}
