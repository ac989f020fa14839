package topo_test

import (
	"context"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
)

func TestTimelines(t *testing.T) {
	store := memtopo.NewServer().Connect()
	t.Cleanup(func() { _ = store.Close() })
	timelines := topo.Timelines{Store: store}
	a, b := keyspace.Node{Name: "a", ID: 0, Addresses: []string{"x:1", "x:2"}}, keyspace.Node{Name: "b", ID: 7, Addresses: []string{"y:1"}}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan [2]uint32, 10)
	done, err := timelines.Follow(ctx, func(seen topo.SeenTimelines) { told <- [2]uint32{seen.Of(a), seen.Of(b)} })
	if err != nil || <-told != [2]uint32{} {
		t.Fatalf("something was seen in an empty store; %v", err)
	}
	for _, step := range []struct {
		node     keyspace.Node
		timeline uint32
		want     uint32
	}{{a, 1, 1}, {b, 4, 4}, {a, 3, 3}, {a, 2, 3}, {b, 4, 4}} {
		before, _ := timelines.Highest(ctx, step.node)
		if err := timelines.Raise(ctx, step.node, step.timeline); err != nil {
			t.Fatal(err)
		}
		if got, err := timelines.Highest(ctx, step.node); got != step.want || err != nil {
			t.Errorf("after %d node %s has %d, not %d; %v", step.timeline, step.node.Name, got, step.want, err)
		}
		if before < step.want {
			<-told
		}
	}
	grown, moved := a, a
	grown.Addresses, moved.Addresses = []string{"x:2", "x:3"}, []string{"z:1"}
	for _, step := range []struct {
		node keyspace.Node
		want uint32
	}{{grown, 3}, {moved, 0}} {
		if got, err := timelines.Highest(ctx, step.node); got != step.want || err != nil {
			t.Errorf("at %v it has %d, not %d; %v", step.node.Addresses, got, step.want, err)
		}
	}
	if err := timelines.Raise(ctx, moved, 1); err != nil {
		t.Fatal(err)
	}
	if got := <-told; got != [2]uint32{0, 4} {
		t.Errorf("told of %v after the node moved", got)
	}
	cancel()
	<-done
}
