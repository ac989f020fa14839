package topotest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/topo"
)

// testLock lets several take a lock again and again; it is never held twice, and a lock of
// another name does not matter.
func testLock(t *testing.T, svc Service) {
	const holders, rounds = 4, 5
	ctx := testContext(t)
	other, err := topo.Lock(ctx, connect(t, svc), "schema2", ttl)
	check(t, err)
	defer other.Unlock(ctx)
	var held atomic.Int32
	group, ctx := errgroup.WithContext(ctx)
	for range holders {
		s := connect(t, svc)
		group.Go(func() error {
			for range rounds {
				l, err := topo.Lock(ctx, s, topo.LockSchema, ttl)
				if err != nil {
					return err
				}
				if n := held.Add(1); n != 1 {
					return fmt.Errorf("held %d times", n)
				}
				held.Add(-1)
				l.Unlock(ctx)
				<-l.Done()
			}
			return nil
		})
	}
	check(t, group.Wait())
}

func testLockAway(t *testing.T, svc Service) {
	ctx := testContext(t)
	holder, link := svc.Connect(t)
	l, err := topo.Lock(ctx, holder, topo.LockSchema, ttl)
	check(t, err)
	s, cut := svc.Connect(t)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := topo.Lock(short, s, topo.LockSchema, ttl); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("lock that is held: %v", err)
	}
	cut.Cut()
	if _, err := topo.Lock(ctx, s, topo.LockSchema, ttl); !errors.Is(err, topo.ErrUnavailable) {
		t.Fatalf("lock without a store: %v", err)
	}
	link.Cut() // the holder dies
	next, err := topo.Lock(ctx, connect(t, svc), topo.LockSchema, ttl)
	check(t, err)
	next.Unlock(ctx)
	closed(t, "lock of a holder that is cut off", l.Done())
}
