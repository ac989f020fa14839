package router

import (
	"context"
	"slices"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
)

// view is one map as the sessions see it.
type view struct {
	m       *keyspace.Map
	changed chan struct{} // closed when a newer view is there
}

// fence returns the fence that holds one of these tables, or nil.
func (v *view) fence(database string, tables []uint32) *keyspace.Fence {
	for i := range v.m.Fences {
		f := &v.m.Fences[i]
		if f.Database == database && slices.ContainsFunc(f.Tables, func(t uint32) bool { return slices.Contains(tables, t) }) {
			return f
		}
	}
	return nil
}

// onMap makes a new map the one that statements are planned under.
func (r *Router) onMap(m *keyspace.Map) {
	old := r.view.Load()
	if old != nil && old.m.Epoch >= m.Epoch {
		return
	}
	r.pool.SetNodes(m.Nodes)
	r.view.Store(&view{m: m, changed: make(chan struct{})})
	if old != nil {
		close(old.changed)
	}
	select {
	case r.acks <- struct{}{}:
	default:
	}
}

// acknowledge tells the cluster which epoch this router works under: every statement that began
// before has ended, as far as a fence of that epoch is concerned.
func (r *Router) acknowledge(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.acks:
		}
		v := r.view.Load()
		for _, f := range v.m.Fences {
			r.awaitQuiet(ctx, v, &f)
		}
		if r.view.Load() != v {
			continue // a newer one is already waiting
		}
		err := r.member.Load().Update(ctx, func(m *memberRecord) { m.AckedEpoch = max(m.AckedEpoch, v.m.Epoch) })
		if err != nil && ctx.Err() == nil {
			r.log.Warn("cannot acknowledge the map", "epoch", v.m.Epoch, "error", err)
		}
	}
}

// awaitQuiet waits until no session works on the fence's tables, except the one that set it.
func (r *Router) awaitQuiet(ctx context.Context, v *view, f *keyspace.Fence) {
	for r.clients.touching(f) {
		select {
		case <-ctx.Done():
			return
		case <-v.changed: // the fence may be gone
			if !slices.ContainsFunc(r.view.Load().m.Fences, func(g keyspace.Fence) bool { return g.ID == f.ID }) {
				return
			}
			v = r.view.Load()
		case <-r.left:
		}
	}
}

// enter notes that the session works on these tables, waiting while a fence holds them. It
// returns the view that the statement must be planned under; a plan of another epoch is stale.
func (s *session) enter(ctx context.Context, tables []uint32, epoch uint64) (*view, error) {
	for {
		v := s.router.view.Load()
		if v.m.Epoch != epoch {
			return v, nil
		}
		f := v.fence(s.database, tables)
		if f != nil && f.ID != s.fenceID && !s.touches(f.Tables) {
			if err := s.awaitChange(ctx, v); err != nil {
				return nil, err
			}
			continue
		}
		s.touch(tables)
		if s.router.view.Load() == v {
			return v, nil
		}
		s.untouch(tables)
	}
}

// awaitChange waits for the next view.
func (s *session) awaitChange(ctx context.Context, v *view) error {
	ctx, cancel := context.WithTimeout(ctx, fenceTimeout)
	defer cancel()
	select {
	case <-v.changed:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fenceTimeout bounds how long a statement waits for a table whose placement is changing.
const fenceTimeout = 10 * time.Minute

func (s *session) touch(tables []uint32) {
	s.mu.Lock()
	s.touched = append(s.touched, tables...)
	s.mu.Unlock()
}

func (s *session) untouch(tables []uint32) {
	s.mu.Lock()
	s.touched = s.touched[:len(s.touched)-len(tables)]
	s.mu.Unlock()
	s.router.signalLeft()
}

func (s *session) touches(tables []uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.touched, func(t uint32) bool { return slices.Contains(tables, t) })
}

// leave ends the session's work on all tables; called when its transaction is over.
func (s *session) leave() {
	s.mu.Lock()
	s.touched = s.touched[:0]
	s.mu.Unlock()
	if len(s.router.view.Load().m.Fences) > 0 {
		s.router.signalLeft()
	}
}

func (r *Router) signalLeft() {
	select {
	case r.left <- struct{}{}:
	default:
	}
}
