package topo_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newStore(t testing.TB) *memtopo.Store {
	s := memtopo.NewServer().Connect()
	t.Cleanup(func() { s.Close() })
	return s
}

func largeMap(t testing.TB, shards int) *keyspace.Map {
	m, err := keyspace.NewMap("x").AddNode(keyspace.Node{Name: "n0", Addresses: []string{"h:1"}, State: keyspace.NodeActive})
	if err == nil && shards > 0 {
		m, _, err = m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: shards})
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func create(t testing.TB, s topo.Store, shards int) *keyspace.Map {
	m := largeMap(t, shards)
	if err := topo.CreateMap(t.Context(), s, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// mute is a store whose transactions get no answer, as told by a script: done and not answered,
// not done and not answered, or done and followed by edits of others.
type mute struct {
	topo.Store
	script []func(do func() (int64, error)) (int64, error)
}

func (m *mute) Txn(ctx context.Context, conds []topo.Cond, ops []topo.Op) (int64, error) {
	do := func() (int64, error) { return m.Store.Txn(ctx, conds, ops) }
	if len(m.script) == 0 {
		return do()
	}
	step := m.script[0]
	m.script = m.script[1:]
	return step(do)
}

// TestUpdateMapWithoutAnswer checks that an edit is made exactly once although its transaction
// got no answer, or that the error says that this is not known.
func TestUpdateMapWithoutAnswer(t *testing.T) {
	type step = func(do func() (int64, error)) (int64, error)
	lost := func(func() (int64, error)) (int64, error) { return 0, topo.ErrUnavailable }
	done := func(do func() (int64, error)) (int64, error) {
		if _, err := do(); err != nil {
			t.Error(err)
		}
		return 0, topo.ErrUnavailable
	}
	var late func() (int64, error) // a transaction that arrives after its sender gave up on it
	delayed := func(do func() (int64, error)) (int64, error) { late = do; return 0, topo.ErrUnavailable }
	arrives := func(do func() (int64, error)) (int64, error) {
		if _, err := late(); err != nil {
			t.Errorf("late transaction: %v", err)
		}
		return do()
	}
	tooLate := func(do func() (int64, error)) (int64, error) {
		rev, err := do()
		if _, late := late(); !errors.Is(late, topo.ErrConflict) {
			t.Errorf("late transaction: %v", late)
		}
		return rev, err
	}
	others := func(first step, n int, s topo.Store) step {
		return func(do func() (int64, error)) (int64, error) {
			rev, err := first(do)
			for range n {
				if _, err := topo.UpdateMap(context.Background(), s, func(m *keyspace.Map) (*keyspace.Map, error) { return m.BumpSchema("app") }); err != nil {
					t.Error(err)
				}
			}
			return rev, err
		}
	}
	tests := []struct {
		name   string
		script func(s topo.Store) []step
		epoch  uint64 // 0: not known
	}{
		{"done", func(topo.Store) []step { return []step{done} }, 3},
		{"lost", func(topo.Store) []step { return []step{lost, lost, lost} }, 3},
		{"lost, then done", func(topo.Store) []step { return []step{lost, done} }, 3},
		{"done, then others", func(s topo.Store) []step { return []step{others(done, 15, s)} }, 3},
		{"lost, then others", func(s topo.Store) []step { return []step{others(lost, 5, s)} }, 8},
		{"done, then too many others", func(s topo.Store) []step { return []step{others(done, 16, s)} }, 0},
		{"arrives late", func(topo.Store) []step { return []step{delayed, arrives} }, 3},
		{"arrives too late", func(topo.Store) []step { return []step{delayed, tooLate} }, 3},
	}
	for _, tt := range tests {
		s := newStore(t)
		create(t, s, 0)
		m, err := topo.UpdateMap(t.Context(), &mute{s, tt.script(s)}, func(m *keyspace.Map) (*keyspace.Map, error) {
			return m.AddFence(keyspace.Fence{ID: fmt.Sprint("f", m.Epoch), Database: "app"})
		})
		if tt.epoch == 0 {
			if !errors.Is(err, topo.ErrUncertain) {
				t.Errorf("%s: %v", tt.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		stored, err := topo.LoadMap(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		if len(stored.Fences) != 1 || len(m.Fences) != 1 || m.Epoch != tt.epoch || m.Fences[0].ID != stored.Fences[0].ID {
			t.Errorf("%s: returned epoch %d with fences %v, stored %v, want epoch %d", tt.name, m.Epoch, m.Fences, stored.Fences, tt.epoch)
		}
	}
}

// TestUpdateMapStoreGoesAway cuts the store off right after the transaction.
func TestUpdateMapStoreGoesAway(t *testing.T) {
	s := newStore(t)
	create(t, s, 0)
	gone := func(do func() (int64, error)) (int64, error) {
		s.Cut()
		return 0, topo.ErrUnavailable
	}
	_, err := topo.UpdateMap(t.Context(), &mute{s, []func(func() (int64, error)) (int64, error){gone}},
		func(m *keyspace.Map) (*keyspace.Map, error) { return m.BumpSchema("app") })
	if !errors.Is(err, topo.ErrUncertain) || !errors.Is(err, topo.ErrUnavailable) {
		t.Fatalf("error %v", err)
	}
}

func TestLoadMapRefuses(t *testing.T) {
	for name, damage := range map[string]topo.Op{
		"newer format":    topo.Put("map/header", []byte(`{"format":2,"epoch":1,"cluster":"x"}`)),
		"unknown record":  topo.Put("map/moons/1", nil),
		"damaged page":    topo.Put("map/shards/0", []byte{1, 2, 3}),
		"missing page":    topo.Delete("map/shards/0"),
		"missing middle":  topo.Delete("map/shards/1"),
		"emptied page":    topo.Put("map/shards/1", []byte{1, 0, 0}),
		"missing node":    topo.Delete("map/node/n0"),
		"missing dist":    topo.Delete("map/dist/1"),
		"not JSON":        topo.Put("map/header", []byte("x")),
		"page of nowhere": topo.Put("map/shards/x", nil),
	} {
		s := newStore(t)
		create(t, s, 300)
		if _, err := s.Txn(t.Context(), nil, []topo.Op{damage}); err != nil {
			t.Fatal(err)
		}
		m, err := topo.LoadMap(t.Context(), s)
		if err == nil || errors.Is(err, topo.ErrNotFound) {
			t.Errorf("%s: loaded %+v, %v", name, m, err)
		}
	}
}

// TestFollowerKeepsGoodMap damages the stored map under a follower and mends it again.
func TestFollowerKeepsGoodMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore(t)
		create(t, s, 300)
		f, err := topo.NewFollower(t.Context(), s, slog.New(slog.DiscardHandler), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		page, err := s.Get(t.Context(), "map/shards/1")
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			op        topo.Op
			connected bool
		}{
			{topo.Put("map/shards/1", []byte("damaged")), false},
			{topo.Put("map/shards/1", page.Value), true},
			{topo.Delete("map/shards/1"), false},
			{topo.Put("map/shards/1", page.Value), true},
			{topo.Delete("map/header"), false},
			{topo.Put("map/header", []byte(`{"format":1,"epoch":9,"cluster":"y"}`)), false},
		} {
			if _, err := s.Txn(t.Context(), nil, []topo.Op{step.op}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if f.Connected() != step.connected || len(f.Map().Distributions[0].Shards) != 300 {
				t.Fatalf("after %+v: connected %v", step.op.Key, f.Connected())
			}
		}
	})
}

// TestRegisterTakesAnotherNumber loses the lease and, while away, the number to another router.
func TestRegisterTakesAnotherNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := memtopo.NewServer()
		mine, other := srv.Connect(), srv.Connect()
		defer mine.Close()
		defer other.Close()
		log := slog.New(slog.DiscardHandler)
		r, err := topo.Register(t.Context(), mine, topo.Member{Name: "a", Role: topo.RoleRouter}, time.Second, log)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		mine.Cut()
		thief, err := topo.Register(t.Context(), other, topo.Member{Name: "b", Role: topo.RoleRouter}, time.Second, log)
		if err != nil {
			t.Fatal(err)
		}
		defer thief.Close()
		time.Sleep(2 * time.Second) // in the bubble: the lease of a is over
		second, err := topo.Register(t.Context(), other, topo.Member{Name: "c", Role: topo.RoleRouter}, time.Second, log)
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		mine.Restore()
		if err := r.Update(t.Context(), func(m *topo.Member) { m.AckedEpoch = 1 }); err != nil {
			t.Fatal(err)
		}
		if a, b, c := r.Member().Number, thief.Member().Number, second.Member().Number; a != 3 || b != 2 || c != 1 {
			t.Fatalf("numbers %d, %d, %d", a, b, c)
		}
		mine.ExpireLeases()
		synctest.Wait()
		members, err := topo.Members(t.Context(), other, topo.RoleRouter)
		if err != nil || len(members) != 3 {
			t.Fatalf("members %v, %v", members, err)
		}
	})
}

func BenchmarkLoadMap10000(b *testing.B) {
	s := newStore(b)
	create(b, s, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := topo.LoadMap(b.Context(), s); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFollow10000 is what an edit of a map of 10,000 shards costs each router.
func BenchmarkFollow10000(b *testing.B) {
	s := newStore(b)
	m := create(b, s, 10_000)
	next := make(chan *keyspace.Map)
	f, err := topo.NewFollower(b.Context(), s, slog.New(slog.DiscardHandler), func(got *keyspace.Map) {
		if got.Epoch > m.Epoch {
			next <- got
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	e, err := s.Get(b.Context(), "map/header")
	if err != nil {
		b.Fatal(err)
	}
	var header map[string]any
	if err := json.Unmarshal(e.Value, &header); err != nil {
		b.Fatal(err)
	}
	for epoch := m.Epoch + 1; b.Loop(); epoch++ {
		header["epoch"] = epoch
		value, err := json.Marshal(header)
		if err == nil {
			_, err = s.Txn(b.Context(), nil, []topo.Op{topo.Put("map/header", value)})
		}
		if err != nil {
			b.Fatal(err)
		}
		<-next
	}
}
