package topotest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// operation is one entry of a history: an edit that added a fence of this name, or a read, which
// has none and keeps the fences it saw.
type operation struct {
	name       string
	epoch      uint64
	fences     []string
	begin, end time.Time
}

type history struct {
	mu  sync.Mutex
	ops []operation
}

func (h *history) add(op operation) {
	op.end = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, op)
}

func fenceNames(m *keyspace.Map) []string {
	var names []string
	for _, f := range m.Fences {
		names = append(names, f.ID)
	}
	return names
}

// testEditors lets 8 editors and 2 readers work at once, each on a store of its own, and checks
// that their history is linearizable: there is one order of all edits, the order of their epochs,
// that agrees with real time and explains everything that was read.
func testEditors(t *testing.T, svc Service) {
	const editors, edits, reads = 8, 12, 40
	base := createMap(t, connect(t, svc), 200)
	ctx, h := testContext(t), &history{}
	group, ctx := errgroup.WithContext(ctx)
	for i := range editors {
		s := connect(t, svc)
		group.Go(func() error { return edit(ctx, s, h, fmt.Sprintf("editor%d", i), edits) })
	}
	for range 2 {
		s := connect(t, svc)
		group.Go(func() error { return read(ctx, s, h, reads) })
	}
	check(t, group.Wait())
	check(t, read(testContext(t), connect(t, svc), h, 1))
	checkHistory(t, h.ops, base.Epoch, editors*edits)
}

func edit(ctx context.Context, s topo.Store, h *history, who string, n int) error {
	for i := range n {
		op := operation{name: fmt.Sprintf("%s/%d", who, i), begin: time.Now()}
		m, err := topo.UpdateMap(ctx, s, func(m *keyspace.Map) (*keyspace.Map, error) {
			return m.AddFence(keyspace.Fence{ID: op.name, Database: "app", Router: who})
		})
		if err != nil {
			return err
		}
		op.epoch, op.fences = m.Epoch, fenceNames(m)
		h.add(op)
	}
	return nil
}

func read(ctx context.Context, s topo.Store, h *history, n int) error {
	for range n {
		op := operation{begin: time.Now()}
		m, err := topo.LoadMap(ctx, s)
		if err != nil {
			return err
		}
		op.epoch, op.fences = m.Epoch, fenceNames(m)
		h.add(op)
	}
	return nil
}

func checkHistory(t *testing.T, ops []operation, base uint64, edits int) {
	t.Helper()
	order := make([]string, edits) // the edit that made epoch base+1+i
	for _, op := range ops {
		if op.name == "" {
			continue
		}
		i := int(op.epoch - base - 1)
		if op.epoch <= base || i >= edits || order[i] != "" {
			t.Fatalf("edit %s made epoch %d, which is taken or out of range", op.name, op.epoch)
		}
		order[i] = op.name
	}
	for _, op := range ops {
		// What an operation saw is exactly the edits up to its epoch, in their order.
		if want := order[:op.epoch-base]; !slices.Equal(op.fences, want) {
			t.Fatalf("epoch %d has edits %q, want %q", op.epoch, op.fences, want)
		}
	}
	slices.SortFunc(ops, func(a, b operation) int { return a.begin.Compare(b.begin) })
	for i, a := range ops {
		for _, b := range ops[i+1:] {
			if a.end.Before(b.begin) && (b.epoch < a.epoch || b.name != "" && b.epoch == a.epoch) {
				t.Fatalf("%+v ended before %+v began", a, b)
			}
		}
	}
	if last := ops[len(ops)-1]; last.epoch != base+uint64(edits) {
		t.Fatalf("%d edits led from epoch %d to %d", edits, base, last.epoch)
	}
}
