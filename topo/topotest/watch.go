package topotest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

func testWatch(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	put(t, s, "w/a", "1")
	put(t, s, "x/a", "other prefix")
	events := connect(t, svc).Watch(ctx, "w/")
	e := next(t, events)
	if !e.Full || e.Err != nil {
		t.Fatalf("first event %+v", e)
	}
	wantKeys(t, e.Puts, "w/a")

	put(t, s, "x/b", "other prefix")
	rev := put(t, s, "w/b", "2")
	e = next(t, events)
	if e.Full || e.Revision != rev || string(e.Puts[0].Value) != "2" || e.Puts[0].Revision != rev {
		t.Fatalf("event %+v, want revision %d", e, rev)
	}
	wantKeys(t, e.Puts, "w/b")

	_, err := s.Txn(ctx, nil, []topo.Op{topo.Delete("w/a")})
	check(t, err)
	if e = next(t, events); len(e.Puts) != 0 || len(e.Deletes) != 1 || e.Deletes[0] != "w/a" {
		t.Fatalf("event %+v", e)
	}
}

// testWatchAtomic writes two keys in each transaction and deletes one of three, which readers
// must always see together, however events are put together on the way.
func testWatchAtomic(t *testing.T, svc Service) {
	const rounds = 200
	s, ctx := connect(t, svc), testContext(t)
	events := connect(t, svc).Watch(ctx, "p/")
	next(t, events)
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 1; i <= rounds && err == nil; i++ {
			value := fmt.Appendf(nil, "%d", i)
			third := topo.Put("p/c", value)
			if i%2 == 0 {
				third = topo.Delete("p/c")
			}
			_, err = s.Txn(ctx, nil, []topo.Op{topo.Put("p/a", value), third, topo.Put("p/b", value)})
		}
		done <- err
	}()
	seen := map[string]string{}
	for last := ""; last != fmt.Sprint(rounds); {
		e := next(t, events)
		for _, p := range e.Puts {
			seen[p.Key] = string(p.Value)
		}
		for _, key := range e.Deletes {
			delete(seen, key)
		}
		if last = seen["p/a"]; seen["p/b"] != last {
			t.Fatalf("half a transaction: %v", seen)
		}
		if c, ok := seen["p/c"]; ok != (c == last) {
			t.Fatalf("half a transaction: %v", seen)
		}
	}
	check(t, <-done)
}

func testWatchCut(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	put(t, s, "w/a", "1")
	watcher, link := svc.Connect(t)
	events := watcher.Watch(ctx, "w/")
	next(t, events)
	for round := range 2 {
		link.Cut()
		begin := time.Now()
		await(t, events, func(e topo.Event) bool { return e.Err != nil })
		if took := time.Since(begin); took > 8*time.Second {
			t.Fatalf("told of the cut after %v", took)
		}
		key := fmt.Sprintf("w/round%d", round)
		put(t, s, key, "2")
		_, err := s.Txn(ctx, nil, []topo.Op{topo.Delete("w/a")})
		check(t, err)
		link.Restore()
		e := await(t, events, func(e topo.Event) bool { return e.Err == nil })
		if !e.Full {
			t.Fatalf("first event after a cut: %+v", e)
		}
		if got := keys(e.Puts); !slices.Contains(got, key) || slices.Contains(got, "w/a") {
			t.Fatalf("keys after a cut: %q", got)
		}
		put(t, s, "w/z", "live again")
		await(t, events, func(e topo.Event) bool { return len(e.Puts) == 1 && e.Puts[0].Key == "w/z" })
	}
}

func testWatchCompaction(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	watcher, link := svc.Connect(t)
	events := watcher.Watch(ctx, "w/")
	next(t, events)
	link.Cut()
	for i := range 10 {
		put(t, s, "w/a", fmt.Sprint(i))
	}
	svc.Compact(t)
	put(t, s, "w/b", "after")
	link.Restore()
	e := await(t, events, func(e topo.Event) bool { return e.Full })
	wantKeys(t, e.Puts, "w/a", "w/b")
	svc.Compact(t) // a watch that is not behind does not notice
	put(t, s, "w/c", "live")
	if e = next(t, events); e.Full {
		t.Fatalf("event %+v", e)
	}
	wantKeys(t, e.Puts, "w/c")
}

func testWatchEnds(t *testing.T, svc Service) {
	s, _ := svc.Connect(t)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := s.Watch(ctx, "w/"), s.Watch(t.Context(), "w/")
	next(t, first)
	next(t, second)
	cancel()
	if _, open := <-first; open {
		t.Fatal("an event after the context ended")
	}
	put(t, s, "w/a", "1")
	next(t, second)
	check(t, s.Close())
	if _, open := <-second; open {
		t.Fatal("an event after the store was closed")
	}
}
