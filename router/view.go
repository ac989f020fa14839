package router

import (
	"context"
	"slices"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// view is one map as the sessions see it.
type view struct {
	m       *keyspace.Map
	changed chan struct{} // closed when a newer view is there
	quiet   bool          // no fence is up
	since   time.Time     // when this router got the map
}

// joinFence holds back changes of the schema in all databases while a node is joining.
var joinFence = &keyspace.Fence{ID: topo.FenceJoining, Tables: []uint32{schemaTable}}

// joining reports that a node is getting the schema.
func (v *view) joining() bool {
	return slices.ContainsFunc(v.m.Nodes, func(n keyspace.Node) bool { return n.State == keyspace.NodeJoining })
}

// fence returns the fence that holds one of these tables, or nil.
func (v *view) fence(database string, tables []uint32) *keyspace.Fence {
	if slices.Contains(tables, schemaTable) && v.joining() {
		return joinFence
	}
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
	v := &view{m: m, changed: make(chan struct{}), since: time.Now()}
	v.quiet = len(m.Fences) == 0 && !v.joining()
	r.view.Store(v)
	r.timelines.apply()
	if old != nil {
		close(old.changed)
	}
	select {
	case r.acks <- struct{}{}:
	default:
	}
}

// acknowledge tells the cluster which epoch this router works under, and which fences of it are
// quiet: nothing that began before they went up is still under way.
func (r *Router) acknowledge(ctx context.Context) {
	var acked uint64
	var told []string
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.acks:
		case <-r.left:
		}
		v := r.view.Load()
		quiet := r.quietFences(v)
		if acked == v.m.Epoch && slices.Equal(quiet, told) {
			continue
		}
		err := r.member.Load().Update(ctx, func(m *topo.Member) {
			m.AckedEpoch, m.Quiet = max(m.AckedEpoch, v.m.Epoch), quiet
		})
		if err != nil {
			if ctx.Err() == nil {
				r.log.Warn("cannot acknowledge the map", "epoch", v.m.Epoch, "error", err)
			}
			continue
		}
		acked, told = v.m.Epoch, quiet
	}
}

// quietFences are the fences on whose tables no session works, except the one that set it.
func (r *Router) quietFences(v *view) []string {
	var quiet []string
	for i := range v.m.Fences {
		if f := &v.m.Fences[i]; !r.clients.touching(f) {
			quiet = append(quiet, f.ID)
		}
	}
	if v.joining() && !r.clients.touching(joinFence) {
		quiet = append(quiet, joinFence.ID)
	}
	return quiet
}

// enter notes that the session works on these tables, waiting while a fence holds them. It
// returns the view that the statement must be planned under; a plan of another epoch is stale.
func (s *session) enter(ctx context.Context, tables []uint32, epoch uint64) (*view, error) {
	for {
		v := s.router.view.Load()
		if v.m.Epoch != epoch {
			return v, nil
		}
		var f *keyspace.Fence
		if !v.quiet {
			f = v.fence(s.database, tables)
		}
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
	s.task.Detach()
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
	if !s.router.view.Load().quiet {
		s.router.signalLeft()
	}
}

func (r *Router) signalLeft() {
	select {
	case r.left <- struct{}{}:
	default:
	}
}
