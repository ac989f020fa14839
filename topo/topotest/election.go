package topotest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

// testElection lets candidates lead in turn; there is never more than one.
func testElection(t *testing.T, svc Service) {
	const candidates = 5
	ctx := testContext(t)
	var leaders atomic.Int32
	led := make(chan error)
	for i := range candidates {
		s := connect(t, svc)
		go func() {
			led <- lead(ctx, s, fmt.Sprintf("c%d", i), &leaders)
		}()
	}
	for range candidates {
		check(t, <-led)
	}
	s := connect(t, svc)
	if _, err := topo.Leader(ctx, s, "control"); !errors.Is(err, topo.ErrNotFound) {
		t.Fatalf("leader after all resigned: %v", err)
	}
	l, err := topo.Campaign(ctx, s, "control", "last", ttl)
	check(t, err)
	defer l.Resign(ctx)
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := topo.Campaign(short, s, "control", "late", ttl); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("second leader: %v", err)
	}
	other, err := topo.Campaign(ctx, s, "controlled", "other", ttl)
	check(t, err)
	other.Resign(ctx)
}

// lead campaigns, leads for a moment and resigns.
func lead(ctx context.Context, s topo.Store, who string, leaders *atomic.Int32) error {
	l, err := topo.Campaign(ctx, s, "control", who, ttl)
	if err != nil {
		return err
	}
	if n := leaders.Add(1); n != 1 {
		return fmt.Errorf("%d leaders", n)
	}
	if got, err := topo.Leader(ctx, s, "control"); err != nil || got != who {
		return fmt.Errorf("%s leads, but the store says %q, %w", who, got, err)
	}
	select {
	case <-l.Done():
		return errors.New("lost the leadership for no reason")
	default:
	}
	leaders.Add(-1) // before the store knows, so that the next leader finds none
	l.Resign(ctx)
	<-l.Done()
	return nil
}

// testElectionCut cuts the leader off: it learns that it lost, and another one is elected.
func testElectionCut(t *testing.T, svc Service) {
	ctx := testContext(t)
	first, link := svc.Connect(t)
	s := connect(t, svc)
	l, err := topo.Campaign(ctx, first, "control", "first", ttl)
	check(t, err)
	elected := make(chan error, 1)
	go func() {
		l, err := topo.Campaign(ctx, s, "control", "second", ttl)
		if err == nil {
			l.Resign(ctx)
		}
		elected <- err
	}()
	begin := time.Now()
	link.Cut()
	check(t, <-elected)
	closed(t, "leadership of a leader that is cut off", l.Done())
	if took := time.Since(begin); took > 4*ttl {
		t.Fatalf("it took %v to replace the leader", took)
	}
}
