package topotest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

func testGetPutDelete(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	check(t, s.Healthy(ctx))
	if _, err := s.Get(ctx, "a"); !errors.Is(err, topo.ErrNotFound) {
		t.Fatalf("get of nothing: %v", err)
	}
	rev := put(t, s, "a", "1")
	e, err := s.Get(ctx, "a")
	check(t, err)
	if e.Key != "a" || string(e.Value) != "1" || e.Revision != rev {
		t.Fatalf("got %+v, want revision %d", e, rev)
	}
	if second := put(t, s, "a", "2"); second <= rev {
		t.Fatalf("revision %d after %d", second, rev)
	}
	e, err = connect(t, svc).Get(ctx, "a")
	check(t, err)
	if string(e.Value) != "2" {
		t.Fatalf("another store reads %q", e.Value)
	}
	_, err = s.Txn(ctx, nil, []topo.Op{topo.Delete("a"), topo.Delete("never was")})
	check(t, err)
	if _, err := s.Get(ctx, "a"); !errors.Is(err, topo.ErrNotFound) {
		t.Fatalf("get after delete: %v", err)
	}
}

func testTxnConditions(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	rev := put(t, s, "a", "1")
	old := rev
	rev = put(t, s, "a", "2")
	tests := []struct {
		name  string
		conds []topo.Cond
		ok    bool
	}{
		{"absent but there", []topo.Cond{topo.Absent("a")}, false},
		{"older revision", []topo.Cond{{Key: "a", Revision: old}}, false},
		{"revision of a key that is not there", []topo.Cond{{Key: "b", Revision: rev}}, false},
		{"one of two", []topo.Cond{{Key: "a", Revision: rev}, topo.Absent("a")}, false},
		{"revision and absent", []topo.Cond{{Key: "a", Revision: rev}, topo.Absent("b")}, true},
	}
	for _, tt := range tests {
		_, err := s.Txn(ctx, tt.conds, []topo.Op{topo.Put("b", nil), topo.Delete("a")})
		snap, listErr := s.List(ctx, "")
		check(t, listErr)
		if !tt.ok {
			if !errors.Is(err, topo.ErrConflict) {
				t.Fatalf("%s: %v", tt.name, err)
			}
			wantKeys(t, snap.Entries, "a")
			continue
		}
		check(t, err)
		wantKeys(t, snap.Entries, "b")
	}
}

func testTxnLimits(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	var ops []topo.Op
	for i := range topo.MaxTxnOps {
		ops = append(ops, topo.Put(fmt.Sprintf("k%d", i), bytes.Repeat([]byte{1}, 10_000)))
	}
	_, err := s.Txn(ctx, nil, ops)
	check(t, err)
	for name, ops := range map[string][]topo.Op{
		"ops":   append(ops, topo.Put("one more", nil)),
		"bytes": {topo.Put("large", make([]byte, topo.MaxTxnBytes))},
	} {
		if _, err := s.Txn(ctx, nil, ops); !errors.Is(err, topo.ErrTooLarge) {
			t.Fatalf("too many %s: %v", name, err)
		}
	}
	if _, err := s.Txn(ctx, nil, []topo.Op{topo.Put("twice", nil), topo.Delete("twice")}); err == nil {
		t.Fatal("a key was written twice in one transaction")
	}
}

func testList(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	snap, err := s.List(ctx, "a/")
	check(t, err)
	if len(snap.Entries) != 0 || snap.Revision == 0 {
		t.Fatalf("empty list: %+v", snap)
	}
	for _, key := range []string{"a/z", "a/b", "a", "ab/c", "b/a", "a/b/c", "a/\xff"} {
		put(t, s, key, key)
	}
	snap, err = s.List(ctx, "a/")
	check(t, err)
	want := []string{"a/b", "a/b/c", "a/z", "a/\xff"}
	if fmt.Sprintf("%q", keys(snap.Entries)) != fmt.Sprintf("%q", want) {
		t.Fatalf("keys %q, want %q", keys(snap.Entries), want)
	}
	for _, e := range snap.Entries {
		if string(e.Value) != e.Key || e.Revision == 0 || e.Revision > snap.Revision {
			t.Fatalf("entry %+v in a snapshot of revision %d", e, snap.Revision)
		}
	}
}

// testListSnapshot changes many keys together, more than one page of any store, and checks that
// a list never sees some of them changed and some not.
func testListSnapshot(t *testing.T, svc Service) {
	const groups = 12 // of 100 keys
	s, ctx := connect(t, svc), testContext(t)
	marker := func(round int) []byte { return fmt.Appendf(nil, "%d", round) }
	fill := func(round int) {
		for g := groups - 1; g >= 0; g-- {
			var ops []topo.Op
			for i := range 100 {
				ops = append(ops, topo.Put(fmt.Sprintf("k/%02d%02d", g, i), marker(round)))
			}
			_, err := s.Txn(ctx, nil, ops)
			check(t, err)
		}
	}
	fill(0)
	reader := connect(t, svc)
	done := make(chan error)
	go func() {
		var err error
		for round := 0; round < 40 && err == nil; round++ {
			err = checkSnapshot(ctx, reader, groups*100)
		}
		done <- err
	}()
	for round := 1; ; round++ {
		select {
		case err := <-done:
			check(t, err)
			return
		default:
			fill(round)
		}
	}
}

// checkSnapshot lists keys that are written from the last to the first, so in each snapshot the
// rounds must not fall from one key to the next and differ by one at most.
func checkSnapshot(ctx context.Context, s topo.Store, want int) error {
	snap, err := s.List(ctx, "k/")
	if err != nil {
		return err
	}
	if len(snap.Entries) != want {
		return fmt.Errorf("%d entries, want %d", len(snap.Entries), want)
	}
	var first, before int
	for i, e := range snap.Entries {
		var round int
		if _, err := fmt.Sscan(string(e.Value), &round); err != nil {
			return err
		}
		if i == 0 {
			first, before = round, round
		}
		if round < before || round > first+1 {
			return fmt.Errorf("key %s is of round %d after %d in one snapshot", e.Key, round, before)
		}
		before = round
	}
	return nil
}

func testAway(t *testing.T, svc Service) {
	s, link := svc.Connect(t)
	check(t, s.Healthy(testContext(t)))
	link.Cut()
	calls := map[string]func(context.Context) error{
		"get":     func(ctx context.Context) error { _, err := s.Get(ctx, "a"); return err },
		"list":    func(ctx context.Context) error { _, err := s.List(ctx, "a"); return err },
		"txn":     func(ctx context.Context) error { _, err := s.Txn(ctx, nil, []topo.Op{topo.Put("a", nil)}); return err },
		"lease":   func(ctx context.Context) error { _, err := s.Lease(ctx, time.Second); return err },
		"healthy": s.Healthy,
	}
	for name, call := range calls {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		begin := time.Now()
		err := call(ctx)
		cancel()
		if !errors.Is(err, topo.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("%s took %v with a deadline of 300 ms", name, took)
		}
	}
	link.Restore()
	check(t, s.Healthy(testContext(t)))
}

func testClosed(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	lease, err := s.Lease(ctx, 10*time.Second)
	check(t, err)
	check(t, s.Close())
	closed(t, "lease of a closed store", lease.Done())
	if _, err := s.Get(ctx, "a"); !errors.Is(err, topo.ErrClosed) {
		t.Fatalf("get: %v", err)
	}
	if _, open := <-s.Watch(ctx, "a"); open {
		t.Fatal("watch on a closed store")
	}
}
