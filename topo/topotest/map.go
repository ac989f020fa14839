package topotest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// must returns the map of an edit that cannot fail in the test.
func must(t *testing.T) func(*keyspace.Map, error) *keyspace.Map {
	return func(m *keyspace.Map, err error) *keyspace.Map {
		t.Helper()
		check(t, err)
		return m
	}
}

// newMap returns the map of a cluster of three nodes and one distribution.
func newMap(t *testing.T, shards int) *keyspace.Map {
	t.Helper()
	m := keyspace.NewMap("c0ffee")
	for i := range 3 {
		m = must(t)(m.AddNode(keyspace.Node{
			Name: fmt.Sprintf("n%d", i), Addresses: []string{fmt.Sprintf("10.0.0.%d:5432", i)}, State: keyspace.NodeActive,
		}))
	}
	if shards == 0 {
		return m
	}
	m, _, err := m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: shards})
	check(t, err)
	return m
}

func createMap(t *testing.T, s topo.Store, shards int) *keyspace.Map {
	t.Helper()
	check(t, topo.CreateMap(testContext(t), s, newMap(t, shards)))
	m, err := topo.LoadMap(testContext(t), s)
	check(t, err)
	return m
}

func wantMap(t *testing.T, got, want *keyspace.Map) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("map %+v\nwant %+v", got, want)
	}
}

func bump(m *keyspace.Map) (*keyspace.Map, error) { return m.BumpSchema("app") }

func testMapRoundTrip(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	if _, err := topo.LoadMap(ctx, s); !errors.Is(err, topo.ErrNotFound) {
		t.Fatalf("load of nothing: %v", err)
	}
	if _, err := topo.UpdateMap(ctx, s, bump); !errors.Is(err, topo.ErrNotFound) {
		t.Fatalf("update of nothing: %v", err)
	}
	m := newMap(t, 300)
	m = must(t)(m.AddNode(keyspace.Node{Name: "a/b c%", Addresses: []string{"[::1]:5432", "/run/pg:5433"}, Region: "eu", Weight: 2.5}))
	m = must(t)(m.AddFence(keyspace.Fence{ID: "f", Database: "app", Tables: []uint32{1, 4_000_000_000}, Router: "r"}))
	m = must(t)(m.BumpSchema("app"))
	m = must(t)(m.MoveShard(5, "n2"))
	m, _, err := m.CreateDistribution("other", keyspace.HashKey(keyspace.Text), keyspace.Layout{Shards: 3})
	check(t, err)
	m = must(t)(m.AddNode(keyspace.Node{Name: "eu", Addresses: []string{"h:1"}, Region: "eu", State: keyspace.NodeActive}))
	m, _, err = m.CreateDistribution("app", keyspace.Key{
		Types: []keyspace.Type{keyspace.Text, keyspace.Numeric},
		Dimensions: []keyspace.Dimension{
			{Method: keyspace.List, Columns: []int{0}, Regions: []keyspace.Region{{Name: "eu", ID: 7, Values: []string{"de", "fr"}}}, Default: "eu"},
			{Method: keyspace.Hash, Columns: []int{0}},
			{Method: keyspace.Range, Columns: []int{1}},
		},
	}, keyspace.Layout{Shards: 3})
	check(t, err)
	check(t, topo.CreateMap(ctx, s, m))
	got, err := topo.LoadMap(ctx, connect(t, svc))
	check(t, err)
	wantMap(t, got, m)
	if err := topo.CreateMap(ctx, s, m); !errors.Is(err, topo.ErrExists) {
		t.Fatalf("create again: %v", err)
	}
}

func testMapUpdate(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	want := createMap(t, s, 300)
	steps := []struct {
		name string
		edit func(m *keyspace.Map) (*keyspace.Map, error)
	}{
		{"bump", bump},
		{"node", func(m *keyspace.Map) (*keyspace.Map, error) {
			return m.AddNode(keyspace.Node{Name: "n9", Addresses: []string{"x:1"}})
		}},
		{"split", func(m *keyspace.Map) (*keyspace.Map, error) { return m.SplitShard(300, []byte{0xff, 0xff}) }},
		{"move", func(m *keyspace.Map) (*keyspace.Map, error) { return m.MoveShard(1, "n2") }},
		{"merge", func(m *keyspace.Map) (*keyspace.Map, error) { return m.MergeShards(300, 301) }},
		{"drop", func(m *keyspace.Map) (*keyspace.Map, error) { return m.DropDistribution(1) }},
		{"several edits are one epoch", func(m *keyspace.Map) (*keyspace.Map, error) {
			m, err := bump(m)
			if err != nil {
				return nil, err
			}
			return bump(m)
		}},
	}
	for _, step := range steps {
		edited, err := step.edit(want)
		check(t, err)
		stored, err := topo.UpdateMap(ctx, s, step.edit)
		check(t, err)
		next := *edited
		next.Epoch = want.Epoch + 1
		loaded, err := topo.LoadMap(ctx, s)
		check(t, err)
		wantMap(t, stored, loaded)
		if want = &next; stored.Epoch != want.Epoch || !reflect.DeepEqual(stored.Schemas, want.Schemas) ||
			len(stored.Nodes) != len(want.Nodes) || len(stored.Distributions) != len(want.Distributions) {
			t.Fatalf("%s: stored %+v, want %+v", step.name, stored, want)
		}
		for i, d := range stored.Distributions {
			if !reflect.DeepEqual(d.Shards, want.Distributions[i].Shards) {
				t.Fatalf("%s: shards differ", step.name)
			}
		}
	}

	same, err := topo.UpdateMap(ctx, s, func(m *keyspace.Map) (*keyspace.Map, error) { return m, nil })
	check(t, err)
	if same.Epoch != want.Epoch {
		t.Fatalf("an edit without a change made epoch %d out of %d", same.Epoch, want.Epoch)
	}
	no := errors.New("no")
	if _, err := topo.UpdateMap(ctx, s, func(*keyspace.Map) (*keyspace.Map, error) { return nil, no }); err != no {
		t.Fatalf("error of the edit came back as %v", err)
	}
}

func testMapUpdateAway(t *testing.T, svc Service) {
	s, link := svc.Connect(t)
	createMap(t, s, 3)
	link.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	begin := time.Now()
	_, err := topo.UpdateMap(ctx, s, bump)
	if !errors.Is(err, topo.ErrUnavailable) || !strings.Contains(err.Error(), "not reachable") {
		t.Fatalf("error %v", err)
	}
	if errors.Is(err, topo.ErrUncertain) {
		t.Fatalf("nothing was sent, but: %v", err)
	}
	if took := time.Since(begin); took > 2*time.Second {
		t.Fatalf("took %v", took)
	}
}

// testMapRefusesBroken stores no map that contradicts itself, whoever made it.
func testMapRefusesBroken(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	before := createMap(t, s, 10)
	_, err := topo.UpdateMap(ctx, s, func(m *keyspace.Map) (*keyspace.Map, error) {
		broken, d := *m, *m.Distributions[0]
		d.Shards = d.Shards[1:]
		broken.Distributions = []*keyspace.Distribution{&d}
		return &broken, nil
	})
	if err == nil {
		t.Fatal("a map with a hole was stored")
	}
	if _, err := topo.UpdateMap(ctx, s, func(*keyspace.Map) (*keyspace.Map, error) { return nil, nil }); err == nil {
		t.Fatal("no map was stored")
	}
	after, err := topo.LoadMap(ctx, s)
	check(t, err)
	wantMap(t, after, before)
}

// meter counts what goes to the store.
type meter struct {
	topo.Store
	ops, bytes int
}

// Txn implements topo.Store.
func (m *meter) Txn(ctx context.Context, conds []topo.Cond, ops []topo.Op) (int64, error) {
	m.ops, m.bytes = len(ops), 0
	for _, op := range ops {
		m.bytes += len(op.Key) + len(op.Value)
	}
	return m.Store.Txn(ctx, conds, ops)
}

// testLargeMap is the promise that 10,000 shards are no pain.
func testLargeMap(t *testing.T, svc Service) {
	s, ctx := &meter{Store: connect(t, svc)}, testContext(t)
	createMap(t, s, 0)
	m, err := topo.UpdateMap(ctx, s, func(m *keyspace.Map) (*keyspace.Map, error) {
		m, _, err := m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: 10_000})
		return m, err
	})
	check(t, err)
	t.Logf("a distribution of 10,000 shards: %d records, %d bytes in one transaction", s.ops, s.bytes)
	if s.ops > topo.MaxTxnOps || s.bytes > 300_000 {
		t.Errorf("%d records, %d bytes in one transaction", s.ops, s.bytes)
	}
	begin := time.Now()
	loaded, err := topo.LoadMap(ctx, s)
	check(t, err)
	t.Logf("loaded in %v", time.Since(begin))
	wantMap(t, loaded, m)

	edits := map[string]func(*keyspace.Map) (*keyspace.Map, error){
		"split": func(m *keyspace.Map) (*keyspace.Map, error) { return m.SplitShard(10_000, []byte{0xff, 0xff, 0xff}) },
		"move":  func(m *keyspace.Map) (*keyspace.Map, error) { return m.MoveShard(1, "n2") },
		"bump":  bump,
	}
	for name, edit := range edits {
		begin := time.Now()
		_, err := topo.UpdateMap(ctx, s, edit)
		check(t, err)
		t.Logf("%s: %d records, %d bytes, %v", name, s.ops, s.bytes, time.Since(begin))
		if s.ops > 3 || s.bytes > 5000 {
			t.Errorf("a %s wrote %d records, %d bytes", name, s.ops, s.bytes)
		}
	}
	_, err = topo.UpdateMap(ctx, s, func(m *keyspace.Map) (*keyspace.Map, error) {
		m, _, err := m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: keyspace.MaxShards})
		return m, err
	})
	if !errors.Is(err, topo.ErrTooLarge) {
		t.Fatalf("more than a transaction can hold: %v", err)
	}
}
