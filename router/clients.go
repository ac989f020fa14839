package router

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// clients are the sessions of a router, by the process number they were given.
type clients struct {
	mu       sync.Mutex
	sessions map[uint32]*session
	last     uint32
	empty    chan struct{} // closed when the last one has left while draining
}

func (c *clients) init() { c.sessions = map[uint32]*session{} }

const (
	sessionBits = 19 // of a process number; the rest is the router's number, from firstRouter on
	// firstRouter puts the numbers of clients above those that Linux gives to processes.
	firstRouter    = 8
	firstClientPID = firstRouter << sessionBits
)

// routerOf is the number of the router that gave a process number.
func routerOf(pid uint32) int { return int(pid>>sessionBits) - firstRouter }

// add gives the session its process number: the router's number above, so that any router knows
// where a cancel request belongs, and a running number below.
func (c *clients) add(s *session, router uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		c.last = (c.last + 1) & (1<<sessionBits - 1)
		pid := (router+firstRouter)<<sessionBits | c.last
		if _, taken := c.sessions[pid]; !taken && pid != 0 {
			s.pid, s.gone = pid, make(chan struct{})
			c.sessions[pid] = s
			return
		}
	}
}

func (c *clients) remove(s *session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sessions, s.pid)
	close(s.gone)
	if len(c.sessions) == 0 && c.empty != nil {
		close(c.empty)
		c.empty = nil
	}
}

func (c *clients) find(pid uint32) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions[pid]
}

func (c *clients) all() []*session {
	c.mu.Lock()
	defer c.mu.Unlock()
	list := make([]*session, 0, len(c.sessions))
	for _, s := range c.sessions {
		list = append(list, s)
	}
	return list
}

// count tells how many sessions there are, and how many keep server connections, by why.
func (c *clients) count() (total, pinned int, reasons map[string]int) {
	reasons = map[string]int{}
	for _, s := range c.all() {
		total++
		if why := s.pinned.Load(); why != "" {
			pinned++
			reasons[why]++
		}
	}
	return total, pinned, reasons
}

// touching reports whether a session other than the fence's own works on its tables.
func (c *clients) touching(f *keyspace.Fence) bool {
	for _, s := range c.all() {
		if (f == joinFence || s.database == f.Database) && s.fence.Load() != f.ID && s.touches(f.Tables) {
			return true
		}
	}
	return false
}

// drain lets idle clients go, waits for the transactions of the others, and reports whether ctx
// ended first.
func (c *clients) drain(ctx context.Context) error {
	c.mu.Lock()
	if len(c.sessions) == 0 {
		c.mu.Unlock()
		return nil
	}
	empty := make(chan struct{})
	c.empty = empty
	c.mu.Unlock()
	for _, s := range c.all() {
		s.interrupt()
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *clients) closeAll() {
	for _, s := range c.all() {
		_ = s.client.Conn.SetDeadline(time.Unix(1, 0))
	}
}

// counters count what telemetry shows.
type counters struct {
	kinds  [8]atomic.Uint64
	errors atomic.Uint64
}

func (c *counters) statement(k plan.Kind) { c.kinds[k].Add(1) }

func (c *counters) statements() map[string]uint64 {
	out := map[string]uint64{}
	for k := plan.Route; k <= plan.Distribute; k++ {
		out[k.String()] = c.kinds[k].Load()
	}
	return out
}
