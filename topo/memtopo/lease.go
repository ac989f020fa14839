package memtopo

import (
	"context"
	"sync"
	"time"
)

// lease is kept alive without any work while its owner can reach the server; a cut starts the clock.
type lease struct {
	id    int64
	ttl   time.Duration
	owner *Store
	done  chan struct{}
	once  sync.Once

	// Guarded by the server's lock.
	clock     *time.Timer
	cut       time.Time // when the clock was started
	abandoned bool
}

// ID implements topo.Lease.
func (l *lease) ID() int64 { return l.id }

// Done implements topo.Lease.
func (l *lease) Done() <-chan struct{} { return l.done }

// Confirmed implements topo.Lease.
func (l *lease) Confirmed() time.Time {
	s := l.owner.server
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.clock != nil {
		return l.cut
	}
	return time.Now()
}

// Revoke implements topo.Lease.
func (l *lease) Revoke(ctx context.Context) error {
	if err := l.owner.reach(ctx); err != nil {
		l.owner.server.abandon(l)
		return err
	}
	l.owner.server.expire(l)
	return nil
}

func (l *lease) end() { l.once.Do(func() { close(l.done) }) }

// setKept stops or starts the clock of a lease; the caller holds the server's lock.
func (s *Server) setKept(l *lease, kept bool) {
	if l.clock != nil {
		if l.abandoned {
			return
		}
		l.clock.Stop()
		l.clock = nil
	}
	if !kept {
		l.cut = time.Now()
		l.clock = time.AfterFunc(l.ttl, func() { s.expire(l) })
	}
}

// abandon lets a lease run out although its owner can reach the server.
func (s *Server) abandon(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.id] != nil {
		s.setKept(l, false)
		l.abandoned = true
	}
	l.end()
}
