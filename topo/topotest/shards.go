package topotest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// picture is who owns what: the node of each shard, by the distribution and the shard's bound.
type picture map[string]string

func pictureOf(m *keyspace.Map) picture {
	p := picture{}
	for _, d := range m.Distributions {
		for _, s := range d.Shards {
			p[place(d.ID, s.Low)] = s.Node
		}
	}
	return p
}

func place(distribution uint32, low []byte) string { return fmt.Sprintf("%d/%x", distribution, low) }

// shardEdit is one edit: after it the shard that begins at a place is on a node, or, without a node, does not begin
// there any more.
type shardEdit struct {
	place, node string
	epoch       uint64
}

// randomEdit makes one random edit that the map takes.
func randomEdit(m *keyspace.Map, r *rand.Rand) (*keyspace.Map, shardEdit, error) {
	for range 1000 {
		d := m.Distributions[r.IntN(len(m.Distributions))]
		i := r.IntN(len(d.Shards))
		shard := d.Shards[i]
		switch r.IntN(3) {
		case 0:
			at, err := d.ParseBound([]string{fmt.Sprint(int64(r.Uint64()))})
			if err != nil {
				return nil, shardEdit{}, err
			}
			shard = d.Shards[d.Find(at)]
			if next, err := m.SplitShard(shard.ID, at); err == nil {
				low := next.Distribution(d.ID).Shards[next.Distribution(d.ID).Find(at)].Low
				return next, shardEdit{place: place(d.ID, low), node: shard.Node}, nil
			}
		case 1:
			if i > 0 && d.Shards[i-1].Node == shard.Node {
				next, err := m.MergeShards(d.Shards[i-1].ID, shard.ID)
				return next, shardEdit{place: place(d.ID, shard.Low)}, err
			}
		case 2:
			to := other(m, shard.ID)
			next, err := m.MoveShard(shard.ID, to)
			return next, shardEdit{place: place(d.ID, shard.Low), node: to}, err
		}
	}
	return nil, shardEdit{}, errors.New("no edit fits")
}

// testShardEditors lets editors split, merge and move shards of a hash and a range at once, each on a store of its own.
// Every map that was read is valid and is what the edits up to its epoch make of the first one: none is lost, and none
// is made on a picture that is not there any more.
func testShardEditors(t *testing.T, svc Service) {
	const editors, edits, reads = 5, 10, 20
	createMap(t, connect(t, svc), 12)
	base, err := topo.UpdateMap(testContext(t), connect(t, svc), func(m *keyspace.Map) (*keyspace.Map, error) {
		key := keyspace.HashKey(keyspace.Int8)
		key.Dimensions[0].Method = keyspace.Range
		next, _, err := m.CreateDistribution("app", key, keyspace.Layout{})
		return next, err
	})
	check(t, err)
	var mu sync.Mutex
	var done []shardEdit
	seen := map[uint64]picture{}
	note := func(m *keyspace.Map, edit *shardEdit) error {
		mu.Lock()
		defer mu.Unlock()
		if edit != nil {
			edit.epoch = m.Epoch
			done = append(done, *edit)
		}
		p := pictureOf(m)
		if before, twice := seen[m.Epoch]; twice && !maps.Equal(before, p) {
			return fmt.Errorf("epoch %d has two pictures", m.Epoch)
		}
		seen[m.Epoch] = p
		return m.Validate()
	}
	group, ctx := errgroup.WithContext(testContext(t))
	for i := range editors {
		s, r := connect(t, svc), rand.New(rand.NewPCG(uint64(i), 1))
		group.Go(func() error { return editShards(ctx, s, r, edits, note) })
	}
	for range 2 {
		s := connect(t, svc)
		group.Go(func() error { return readShards(ctx, s, reads, note) })
	}
	check(t, group.Wait())
	check(t, readShards(testContext(t), connect(t, svc), 1, note))
	replay(t, base, done, seen, editors*edits)
}

func editShards(ctx context.Context, s topo.Store, r *rand.Rand, n int, note func(*keyspace.Map, *shardEdit) error) error {
	for range n {
		var made shardEdit
		m, err := topo.UpdateMap(ctx, s, func(m *keyspace.Map) (next *keyspace.Map, err error) {
			next, made, err = randomEdit(m, r)
			return next, err
		})
		if err != nil {
			return err
		}
		if err := note(m, &made); err != nil {
			return err
		}
	}
	return nil
}

func readShards(ctx context.Context, s topo.Store, n int, note func(*keyspace.Map, *shardEdit) error) error {
	for range n {
		m, err := topo.LoadMap(ctx, s)
		if err != nil {
			return err
		}
		if err := note(m, nil); err != nil {
			return err
		}
	}
	return nil
}

// replay applies the edits in the order of their epochs and compares every picture that was seen.
func replay(t *testing.T, base *keyspace.Map, done []shardEdit, seen map[uint64]picture, edits int) {
	t.Helper()
	slices.SortFunc(done, func(a, b shardEdit) int { return int(a.epoch) - int(b.epoch) })
	if len(done) != edits {
		t.Fatalf("%d edits were made, want %d", len(done), edits)
	}
	now := pictureOf(base)
	for i, e := range done {
		if e.epoch != base.Epoch+uint64(i)+1 {
			t.Fatalf("edit %d made epoch %d after epoch %d", i, e.epoch, base.Epoch+uint64(i))
		}
		if e.node == "" {
			delete(now, e.place)
		} else {
			now[e.place] = e.node
		}
		if p, ok := seen[e.epoch]; ok && !maps.Equal(p, now) {
			t.Fatalf("epoch %d is\n%v, want\n%v", e.epoch, p, now)
		}
	}
	if last := base.Epoch + uint64(edits); seen[last] == nil {
		t.Fatalf("the last map was not epoch %d", last)
	}
}
