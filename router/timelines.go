package router

import (
	"context"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

// timelines shares with the cluster on which timeline each node's primary was seen. Without that a router that starts
// while only a primary of the past is up would use it.
type timelines struct {
	router *Router
	news   chan struct{}

	mu   sync.Mutex
	seen topo.SeenTimelines
	own  map[string]uint32 // by node: what this router has found and not stored yet
}

// storeAgain is when the store is tried again that was away.
const storeAgain = time.Second

func (t *timelines) init(r *Router) {
	t.router, t.news, t.own = r, make(chan struct{}, 1), map[string]uint32{}
}

// note is told by the pool, which holds locks meanwhile.
func (t *timelines) note(node string, timeline uint32) {
	t.mu.Lock()
	t.own[node] = max(t.own[node], timeline)
	t.mu.Unlock()
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// follow learns what is known and goes on with it until ctx ends.
func (t *timelines) follow(ctx context.Context) error {
	done, err := topo.Timelines{Store: t.router.store}.Follow(ctx, func(seen topo.SeenTimelines) {
		t.mu.Lock()
		t.seen = seen
		t.mu.Unlock()
		t.apply()
	})
	if err != nil {
		return err
	}
	t.router.work.Go(func() {
		t.share(ctx)
		<-done
	})
	return nil
}

// apply tells the pool, also of nodes that have just come or have got other addresses.
func (t *timelines) apply() {
	v := t.router.view.Load()
	t.mu.Lock()
	seen := t.seen
	t.mu.Unlock()
	if v == nil {
		return
	}
	for _, n := range v.m.Nodes {
		if timeline := seen.Of(n); timeline > 0 {
			t.router.pool.RaiseTimeline(n.Name, timeline)
		}
	}
}

// share stores what this router has found.
func (t *timelines) share(ctx context.Context) {
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.news:
		case <-again:
		}
		again = nil
		t.mu.Lock()
		own := t.own
		t.own = map[string]uint32{}
		t.mu.Unlock()
		for name, timeline := range own {
			n, err := t.router.view.Load().m.Node(name)
			if err != nil {
				continue // it has left
			}
			if err := (topo.Timelines{Store: t.router.store}).Raise(ctx, n, timeline); err != nil && ctx.Err() == nil {
				t.router.log.Warn("cannot store the timeline of a primary", "node", name, "timeline", timeline, "error", err)
				t.mu.Lock()
				t.own[name] = max(t.own[name], timeline)
				t.mu.Unlock()
				again = time.After(storeAgain)
			}
		}
	}
}
