package memtopo

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

// Store is one process's connection to a Server. It can be cut off on its own.
type Store struct {
	server *Server
	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	cut    bool
	flip   chan struct{} // closed and replaced when cut changes
	closed bool
}

var _ topo.Store = (*Store)(nil)

// Connect returns a new store on the server.
func (s *Server) Connect() *Store {
	ctx, cancel := context.WithCancel(context.Background())
	return &Store{server: s, ctx: ctx, cancel: cancel, flip: make(chan struct{})}
}

// Cut makes the server unreachable for this store. Its leases expire when their ttl is over.
func (s *Store) Cut() { s.setCut(true) }

// Restore ends a Cut.
func (s *Store) Restore() { s.setCut(false) }

func (s *Store) setCut(cut bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut == cut {
		return
	}
	s.cut = cut
	close(s.flip)
	s.flip = make(chan struct{})
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	for _, l := range s.server.leases {
		if l.owner == s {
			s.server.setKept(l, !cut)
		}
	}
}

// ExpireLeases ends all leases of this store at once, as if it had been away for their ttl.
func (s *Store) ExpireLeases() {
	for _, l := range s.own() {
		s.server.expire(l)
	}
}

func (s *Store) own() []*lease {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	var own []*lease
	for _, l := range s.server.leases {
		if l.owner == s {
			own = append(own, l)
		}
	}
	return own
}

// state returns why the server cannot be reached, if so, and the channel closed when that changes.
func (s *Store) state() (flip <-chan struct{}, away error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return s.flip, topo.ErrClosed
	case s.cut:
		return s.flip, fmt.Errorf("%w: cut off", topo.ErrUnavailable)
	}
	return s.flip, nil
}

// reach returns why a call cannot be made, or nil.
func (s *Store) reach(ctx context.Context) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", topo.ErrUnavailable, context.Cause(ctx))
	}
	_, err := s.state()
	return err
}

// Get implements topo.Store.
func (s *Store) Get(ctx context.Context, key string) (topo.Entry, error) {
	if err := s.reach(ctx); err != nil {
		return topo.Entry{}, err
	}
	return s.server.get(key)
}

// List implements topo.Store.
func (s *Store) List(ctx context.Context, prefix string) (topo.Snapshot, error) {
	if err := s.reach(ctx); err != nil {
		return topo.Snapshot{}, err
	}
	return s.server.list(prefix), nil
}

// Txn implements topo.Store.
func (s *Store) Txn(ctx context.Context, conds []topo.Cond, ops []topo.Op) (int64, error) {
	if err := topo.CheckTxn(conds, ops); err != nil {
		return 0, err
	}
	if err := s.reach(ctx); err != nil {
		return 0, err
	}
	return s.server.txn(conds, ops)
}

// Healthy implements topo.Store.
func (s *Store) Healthy(ctx context.Context) error { return s.reach(ctx) }

// Lease implements topo.Store.
func (s *Store) Lease(ctx context.Context, ttl time.Duration) (topo.Lease, error) {
	if err := s.reach(ctx); err != nil {
		return nil, err
	}
	return s.server.grant(s, ttl), nil
}

// Watch implements topo.Store.
func (s *Store) Watch(ctx context.Context, prefix string) <-chan topo.Event {
	events := make(chan topo.Event)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		close(events)
		return events
	}
	s.work.Go(func() { s.watch(ctx, prefix, events) })
	return events
}

// watch tells everything, then the changes, and begins again after each cut.
func (s *Store) watch(ctx context.Context, prefix string, events chan<- topo.Event) {
	defer close(events)
	send := func(e topo.Event) bool {
		select {
		case events <- e:
			return true
		case <-ctx.Done():
		case <-s.ctx.Done():
		}
		return false
	}
	for {
		flip, away := s.state()
		if away != nil {
			if !send(topo.Event{Err: away}) || !s.wait(ctx, flip, nil) {
				return
			}
			continue
		}
		snap := s.server.list(prefix)
		if !send(topo.Event{Revision: snap.Revision, Full: true, Puts: snap.Entries}) {
			return
		}
		for seen := snap.Revision; !over(flip); {
			e, more := s.server.since(prefix, seen)
			seen = e.Revision
			if e.Full || len(e.Puts)+len(e.Deletes) > 0 {
				if !send(e) {
					return
				}
			} else if !s.wait(ctx, flip, more) {
				return
			}
		}
	}
}

// wait returns true when one of the channels was closed, false when the watch is to end.
func (s *Store) wait(ctx context.Context, flip, more <-chan struct{}) bool {
	select {
	case <-flip:
	case <-more:
	case <-ctx.Done():
		return false
	case <-s.ctx.Done():
		return false
	}
	return true
}

func over(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Close implements topo.Store. The leases of the store expire when their ttl is over.
func (s *Store) Close() error {
	s.setCut(true)
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
	for _, l := range s.own() {
		s.server.abandon(l)
	}
	return nil
}
