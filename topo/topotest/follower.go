package topotest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

func follow(t *testing.T, s topo.Store, l *logs, onMap func(*keyspace.Map)) *topo.Follower {
	t.Helper()
	f, err := topo.NewFollower(testContext(t), s, l.logger(), onMap)
	check(t, err)
	t.Cleanup(f.Close)
	return f
}

func testFollowerConverges(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	first := createMap(t, s, 1000)
	var followers []*topo.Follower
	for range 3 {
		f := follow(t, connect(t, svc), newLogs(t), nil)
		wantMap(t, f.Map(), first)
		if !f.Connected() {
			t.Fatal("a new follower is not connected")
		}
		followers = append(followers, f)
	}
	for id := uint32(1); id <= 5; id++ {
		m, err := topo.UpdateMap(ctx, s, func(m *keyspace.Map) (*keyspace.Map, error) { return m.MoveShard(id*128, other(m, id*128)) })
		check(t, err)
		begin := time.Now()
		for _, f := range followers {
			got, err := f.Wait(ctx, m.Epoch)
			check(t, err)
			wantMap(t, got, m)
		}
		if took := time.Since(begin); took > time.Second {
			t.Fatalf("followers took %v", took)
		}
	}
}

// other returns a node that does not own the shard.
func other(m *keyspace.Map, shard uint32) string {
	d, i, err := m.Shard(shard)
	if err == nil && d.Shards[i].Node == "n0" {
		return "n1"
	}
	return "n0"
}

func testFollowerAway(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	first := createMap(t, s, 10)
	mine, link := svc.Connect(t)
	l := newLogs(t)
	f := follow(t, mine, l, nil)
	begin := time.Now()
	link.Cut()
	l.until(t, "follower says that it is not connected", 8*time.Second, func() bool { return !f.Connected() })
	wantMap(t, f.Map(), first)
	if since := f.Since(); since.Before(begin) || since.After(time.Now()) {
		t.Fatalf("away since %v, cut at %v", since, begin)
	}
	m, err := topo.UpdateMap(ctx, s, bump)
	check(t, err)
	if f.Map().Epoch != first.Epoch {
		t.Fatal("the map came through a link that is cut")
	}
	link.Restore()
	_, err = f.Wait(ctx, m.Epoch)
	check(t, err)
	if !f.Connected() {
		t.Fatal("caught up, but not connected")
	}
}

func testFollowerFirst(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if _, err := topo.NewFollower(short, s, newLogs(t).logger(), nil); !errors.Is(err, topo.ErrNotFound) {
		t.Fatalf("follower of nothing: %v", err)
	}
	away, link := svc.Connect(t)
	link.Cut()
	short, cancel = context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := topo.NewFollower(short, away, newLogs(t).logger(), nil); !errors.Is(err, topo.ErrUnavailable) {
		t.Fatalf("follower without a store: %v", err)
	}
	made := make(chan error)
	go func() {
		f, err := topo.NewFollower(ctx, s, newLogs(t).logger(), nil)
		if err == nil {
			f.Close()
		}
		made <- err
	}()
	createMap(t, s, 3)
	check(t, <-made)
}

// testFollowerOrder checks that what onMap gets only ever grows, without gaps in content, while
// the link fails now and then.
func testFollowerOrder(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	last := createMap(t, s, 10)
	mine, link := svc.Connect(t)
	var mu sync.Mutex
	var epochs []uint64
	f := follow(t, mine, newLogs(t), func(m *keyspace.Map) {
		mu.Lock()
		defer mu.Unlock()
		epochs = append(epochs, m.Epoch)
		if m.Schemas["app"] != m.Epoch-last.Epoch {
			t.Errorf("epoch %d with schema version %d", m.Epoch, m.Schemas["app"])
		}
	})
	var m *keyspace.Map
	for i := range 60 {
		var err error
		m, err = topo.UpdateMap(ctx, s, bump)
		check(t, err)
		switch i % 20 {
		case 5:
			link.Cut()
		case 15:
			link.Restore()
		}
	}
	_, err := f.Wait(ctx, m.Epoch)
	check(t, err)
	mu.Lock()
	defer mu.Unlock()
	for i := range epochs[1:] {
		if epochs[i] >= epochs[i+1] {
			t.Fatalf("epochs %v", epochs)
		}
	}
	if epochs[len(epochs)-1] != m.Epoch {
		t.Fatalf("epochs %v, want the last to be %d", epochs, m.Epoch)
	}
}
