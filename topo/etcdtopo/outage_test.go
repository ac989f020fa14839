package etcdtopo_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

func createMap(t *testing.T, s topo.Store, cluster string) *keyspace.Map {
	t.Helper()
	m, err := keyspace.NewMap(cluster).AddNode(keyspace.Node{Name: "n0", Addresses: []string{"h:1"}, State: keyspace.NodeActive})
	if err != nil {
		t.Fatal(err)
	}
	if err := topo.CreateMap(t.Context(), s, m); err != nil {
		t.Fatal(err)
	}
	return m
}

func bump(m *keyspace.Map) (*keyspace.Map, error) { return m.BumpSchema("app") }

func waitContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// connection watches a store and tells when it goes and comes.
type connection struct{ events <-chan topo.Event }

func (c connection) await(t *testing.T, away bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case e := <-c.events:
			if (e.Err != nil) == away {
				return
			}
		case <-deadline:
			t.Fatalf("not told in time that etcd is away=%v", away)
		}
	}
}

func TestFollowerSurvivesRestart(t *testing.T) {
	dir := t.TempDir()
	srv := startServer(t, dir, "127.0.0.1:0")
	s := open(t, "c", srv.Endpoint())
	first := createMap(t, s, "x")
	f, err := topo.NewFollower(waitContext(t), s, testLog(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reg, err := topo.Register(waitContext(t), s, topo.Member{Name: "r", Role: topo.RoleRouter}, 5*time.Second, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	conn := connection{s.Watch(t.Context(), "map/")}
	conn.await(t, false)

	srv.Close()
	begin := time.Now()
	conn.await(t, true)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("noticed after %v", took)
	}
	if f.Map().Epoch != first.Epoch {
		t.Fatalf("epoch %d without a store", f.Map().Epoch)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := topo.UpdateMap(ctx, s, bump); !errors.Is(err, topo.ErrUnavailable) {
		t.Fatalf("update without a store: %v", err)
	}

	srv = startServer(t, dir, srv.Endpoint())
	defer srv.Close()
	begin = time.Now()
	m, err := topo.UpdateMap(waitContext(t), open(t, "c", srv.Endpoint()), bump)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Wait(waitContext(t), m.Epoch); err != nil {
		t.Fatal(err)
	}
	if !f.Connected() {
		t.Error("caught up, but not connected")
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("caught up after %v", took)
	}
	if err := reg.Update(waitContext(t), func(m *topo.Member) { m.AckedEpoch = 2 }); err != nil {
		t.Fatal(err)
	}
	if err := topo.WaitAcked(waitContext(t), s, 2, ""); err != nil {
		t.Fatal(err)
	}
}

// TestFrozenEtcd is a server that keeps its connections but no longer answers.
func TestFrozenEtcd(t *testing.T) {
	srv := startServer(t, t.TempDir(), "127.0.0.1:0")
	defer srv.Close()
	k := newLink(t, srv.Endpoint())
	s := open(t, "c", k.address())
	createMap(t, s, "x")
	conn := connection{s.Watch(t.Context(), "map/")}
	conn.await(t, false)
	k.freeze()
	begin := time.Now()
	conn.await(t, true)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("noticed after %v", took)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := topo.UpdateMap(ctx, s, bump); !errors.Is(err, topo.ErrUnavailable) {
		t.Errorf("update: %v", err)
	}
	k.thaw()
	conn.await(t, false)
	if _, err := topo.UpdateMap(waitContext(t), s, bump); err != nil {
		t.Fatal(err)
	}
}

// TestStoreReplaced restarts etcd with nothing in it: what was known must not be given up for it.
func TestStoreReplaced(t *testing.T) {
	srv := startServer(t, t.TempDir(), "127.0.0.1:0")
	s := open(t, "c", srv.Endpoint())
	createMap(t, s, "x")
	for range 5 {
		if _, err := topo.UpdateMap(t.Context(), s, bump); err != nil {
			t.Fatal(err)
		}
	}
	f, err := topo.NewFollower(waitContext(t), s, testLog(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	last := f.Map()
	srv.Close()
	srv = startServer(t, t.TempDir(), srv.Endpoint())
	defer srv.Close()
	fresh := open(t, "c", srv.Endpoint())
	createMap(t, fresh, "x")
	conn := connection{s.Watch(t.Context(), "map/")}
	conn.await(t, false)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if _, err := f.Wait(ctx, last.Epoch+1); err == nil {
		t.Fatal("a newer map came from an older store")
	}
	if f.Map() != last || f.Connected() {
		t.Fatalf("epoch %d, connected %v after the store was replaced", f.Map().Epoch, f.Connected())
	}
}

// TestEditorsSurviveRestart restarts etcd under editors. An edit that succeeded is there, one that
// failed is not, except where the error says that this is not known.
func TestEditorsSurviveRestart(t *testing.T) {
	dir := t.TempDir()
	srv := startServer(t, dir, "127.0.0.1:0")
	endpoint := srv.Endpoint()
	base := createMap(t, open(t, "c", endpoint), "x")
	var mu sync.Mutex
	made, failed, unknown := map[string]uint64{}, map[string]bool{}, map[string]bool{}
	stop := make(chan struct{})
	progress := make(chan struct{}, 1000)
	var editors sync.WaitGroup
	for i := range 4 {
		s := open(t, "c", endpoint)
		editors.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("%d/%d", i, n)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				m, err := topo.UpdateMap(ctx, s, func(m *keyspace.Map) (*keyspace.Map, error) {
					return m.AddFence(keyspace.Fence{ID: name, Database: "app"})
				})
				cancel()
				mu.Lock()
				switch {
				case err == nil:
					made[name] = m.Epoch
				case errors.Is(err, topo.ErrUncertain):
					unknown[name] = true
				case errors.Is(err, topo.ErrUnavailable):
					failed[name] = true
				default:
					t.Errorf("edit %s: %v", name, err)
				}
				mu.Unlock()
				if err == nil {
					select {
					case progress <- struct{}{}:
					default:
					}
				}
			}
		})
	}
	for range 3 {
		for range 40 {
			<-progress
		}
		srv.Close()
		srv = startServer(t, dir, endpoint)
		for len(progress) > 0 {
			<-progress
		}
	}
	for range 20 {
		<-progress
	}
	close(stop)
	editors.Wait()
	defer srv.Close()
	m, err := topo.LoadMap(waitContext(t), open(t, "c", endpoint))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d made, %d failed, %d unknown", len(made), len(failed), len(unknown))
	if got := uint64(len(m.Fences)) + base.Epoch; m.Epoch != got {
		t.Fatalf("%d edits led from epoch %d to %d", len(m.Fences), base.Epoch, m.Epoch)
	}
	for i, fence := range m.Fences {
		if failed[fence.ID] {
			t.Errorf("edit %s was made although it failed", fence.ID)
		}
		if epoch, ok := made[fence.ID]; ok && epoch != base.Epoch+uint64(i)+1 {
			t.Errorf("edit %s made epoch %d, was told %d", fence.ID, base.Epoch+uint64(i)+1, epoch)
		}
	}
	for name := range made {
		if !slices.ContainsFunc(m.Fences, func(f keyspace.Fence) bool { return f.ID == name }) {
			t.Errorf("edit %s is lost", name)
		}
	}
}
