// Package memtopo is a topology store in memory, so that tests can cut a process off, expire its
// leases and forget history at will.
package memtopo

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

// Server holds the data that all stores connected to it share.
type Server struct {
	mu        sync.Mutex
	revision  int64
	entries   map[string]entry
	history   []change
	compacted int64 // the last revision that history does not have
	leases    map[int64]*lease
	lastLease int64
	changed   chan struct{} // closed and replaced with each revision
}

type entry struct {
	topo.Entry
	lease int64
}

// change is what one revision did.
type change struct {
	revision int64
	puts     []topo.Entry
	deletes  []string
}

// NewServer returns an empty server. It needs no closing.
func NewServer() *Server {
	return &Server{
		revision: 1,
		entries:  map[string]entry{},
		leases:   map[int64]*lease{},
		changed:  make(chan struct{}),
	}
}

// Compact forgets history: a watch that is behind gets everything again.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.compacted = nil, s.revision
}

func (s *Server) list(prefix string) topo.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.snapshot(prefix)
}

func (s *Server) snapshot(prefix string) topo.Snapshot {
	snap := topo.Snapshot{Revision: s.revision}
	for key, e := range s.entries {
		if strings.HasPrefix(key, prefix) {
			snap.Entries = append(snap.Entries, e.Entry)
		}
	}
	slices.SortFunc(snap.Entries, func(a, b topo.Entry) int { return strings.Compare(a.Key, b.Key) })
	return snap
}

func (s *Server) get(key string) (topo.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok := s.entries[key]
	if !ok {
		return topo.Entry{}, topo.ErrNotFound
	}
	return e.Entry, nil
}

func (s *Server) txn(conds []topo.Cond, ops []topo.Op) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range conds {
		if s.entries[c.Key].Revision != c.Revision {
			return 0, topo.ErrConflict
		}
	}
	for _, op := range ops {
		if op.Lease != nil && s.leases[op.Lease.ID()] == nil {
			return 0, topo.ErrLeaseLost
		}
	}
	return s.apply(ops), nil
}

// apply makes the next revision out of ops. A revision that changes nothing is not made.
func (s *Server) apply(ops []topo.Op) int64 {
	c := change{revision: s.revision + 1}
	for _, op := range ops {
		if op.Delete {
			if _, ok := s.entries[op.Key]; ok {
				delete(s.entries, op.Key)
				c.deletes = append(c.deletes, op.Key)
			}
			continue
		}
		e := entry{Entry: topo.Entry{Key: op.Key, Value: slices.Clone(op.Value), Revision: c.revision}}
		if op.Lease != nil {
			e.lease = op.Lease.ID()
		}
		s.entries[op.Key] = e
		c.puts = append(c.puts, e.Entry)
	}
	if len(c.puts)+len(c.deletes) > 0 {
		s.revision = c.revision
		s.history = append(s.history, c)
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return s.revision
}

// since returns what happened under a prefix after a revision as one event, with the channel
// that is closed when more happens.
func (s *Server) since(prefix string, revision int64) (topo.Event, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if revision < s.compacted {
		snap := s.snapshot(prefix)
		return topo.Event{Revision: snap.Revision, Full: true, Puts: snap.Entries}, s.changed
	}
	last := map[string]*topo.Entry{}
	for _, c := range s.history {
		if c.revision <= revision {
			continue
		}
		for _, p := range c.puts {
			last[p.Key] = &p
		}
		for _, key := range c.deletes {
			last[key] = nil
		}
	}
	e := topo.Event{Revision: s.revision}
	for key, p := range last {
		switch {
		case !strings.HasPrefix(key, prefix):
		case p == nil:
			e.Deletes = append(e.Deletes, key)
		default:
			e.Puts = append(e.Puts, *p)
		}
	}
	return e, s.changed
}

func (s *Server) grant(owner *Store, ttl time.Duration) *lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastLease++
	l := &lease{id: s.lastLease, ttl: ttl, owner: owner, done: make(chan struct{})}
	s.leases[l.id] = l
	return l
}

// expire ends a lease and deletes its keys.
func (s *Server) expire(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[l.id] == nil {
		return
	}
	delete(s.leases, l.id)
	if l.clock != nil {
		l.clock.Stop()
	}
	var ops []topo.Op
	for key, e := range s.entries {
		if e.lease == l.id {
			ops = append(ops, topo.Delete(key))
		}
	}
	s.apply(ops)
	l.end()
}
