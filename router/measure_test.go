package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/twopc"
)

func TestDurationBuckets(t *testing.T) {
	if !slices.IsSorted(durationBounds[:]) {
		t.Fatal("the bounds are not in order")
	}
	rapid.Check(t, func(rt *rapid.T) {
		took := rapid.SliceOf(rapid.Int64Range(0, int64(time.Minute))).Draw(rt, "took")
		var d durations
		var sum time.Duration
		for _, ns := range took {
			d.add(time.Duration(ns))
			sum += time.Duration(ns)
		}
		h := d.histogram()
		if h.Sum != sum {
			rt.Fatalf("sum %v, want %v", h.Sum, sum)
		}
		upTo := uint64(0)
		for i, bound := range h.Bounds {
			upTo += h.Counts[i]
			want := uint64(0)
			for _, ns := range took {
				if time.Duration(ns) <= bound {
					want++
				}
			}
			if upTo != want {
				rt.Fatalf("%d took at most %v, want %d", upTo, bound, want)
			}
		}
		if all := upTo + h.Counts[len(h.Bounds)]; all != uint64(len(took)) {
			rt.Fatalf("%d in all, want %d", all, len(took))
		}
	})
}

func TestMeasures(t *testing.T) {
	var m measures
	for _, code := range []string{"23505", "23503", "40P01", "P0001", "", "2", "ab123", "\xff\xff000"} {
		m.failure(code)
	}
	for _, err := range []error{nil, nil, twopc.ErrInDoubt, fmt.Errorf("wrapped: %w", twopc.ErrInDoubt), errors.New("refused")} {
		m.twoPhase(err)
	}
	m.statement(plan.Every, 3*time.Millisecond)
	m.accept()
	m.refuse(refusedLimit)
	m.refuse(refusedLimit)
	m.refuse(refusedOther)
	var s Stats
	m.fill(&s)
	if want := map[string]uint64{"23": 2, "40": 1, "P0": 1, "XX": 4}; !maps.Equal(s.ErrorClasses, want) {
		t.Errorf("classes %v, want %v", s.ErrorClasses, want)
	}
	if want := (TwoPhase{Committed: 2, Aborted: 1, InDoubt: 2}); s.TwoPhase != want {
		t.Errorf("two-phase %+v, want %+v", s.TwoPhase, want)
	}
	if h := s.Durations["Every"]; h.Sum != 3*time.Millisecond || h.Counts[4] != 1 {
		t.Errorf("durations %+v", h)
	}
	if want := map[string]uint64{"limit": 2, "authentication": 0, "other": 1}; !maps.Equal(s.Refused, want) || s.Accepted != 1 {
		t.Errorf("refused %v, accepted %d", s.Refused, s.Accepted)
	}
}

func TestPlanCacheSize(t *testing.T) {
	var p planSpaces
	p.init()
	p.get(spaceKey{database: "a"}).store([]byte("n"), []byte("t"), &planned{}, false)
	p.get(spaceKey{database: "b"}).store(nil, []byte("t"), &planned{}, true)
	if n := p.size(); n != 2 {
		t.Errorf("%d plans, want 2", n)
	}
}

func TestNoTracer(t *testing.T) {
	cfg := Config{Name: "r", Listen: ":0", ServiceUser: "s"}
	if err := cfg.validate(); err != nil {
		t.Fatal(err)
	}
	ctx, end := cfg.Tracer.Statement(context.Background(), TracedStatement{Text: []byte("SELECT 1")})
	if ctx == nil || end != nil {
		t.Error("a statement is recorded")
	}
	if ctx, end = cfg.Tracer.Step(ctx, "plan", ""); ctx == nil || end != nil {
		t.Error("a step is recorded")
	}
}

func BenchmarkMeasureStatement(b *testing.B) {
	var m measures
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			m.statement(plan.Route, 800*time.Microsecond)
		}
	})
}
