package pool

import (
	"slices"
	"time"
)

// keyPool is the connections of one Key. Everything in it is guarded by its node's mutex.
//
// Invariant: while somebody waits here, nothing here is idle, and either this pool is at its limit
// or the node is at its limit with nothing idle anywhere.
type keyPool struct {
	key  Key
	node *node

	idle  []*Conn // the last is the most recently used
	open  map[*Conn]struct{}
	total int // open and opening
	queue queue
	used  int64 // pool time of the last Acquire that found nothing idle
	gone  bool  // dropped from the lookup

	opened, closed, failed, timeouts uint64
}

// take pops the most recently used idle connection. Suspect means that its socket must be looked
// at before use.
func (k *keyPool) take(now int64) (c *Conn, suspect bool) {
	n := k.node
	n.mu.Lock()
	for {
		last := len(k.idle) - 1
		if last < 0 {
			n.mu.Unlock()
			return nil, false
		}
		c = k.idle[last]
		k.idle[last] = nil
		k.idle = k.idle[:last]
		n.idle--
		if c.expires > now {
			break
		}
		// Rare: the sweeper closes such connections soon after they expire.
		k.uncount(c)
		n.grantFree()
		n.mu.Unlock()
		n.closeAll([]*Conn{c})
		n.mu.Lock()
	}
	c.held = true
	broken := n.primary.brokenAt
	n.mu.Unlock()
	suspect = now-c.idleSince > int64(n.pool.cfg.CheckAfter) || broken >= c.idleSince || c.Stream.Buffered() > 0
	return c, suspect
}

// put gives c to the longest waiting session or makes it idle; false means that c must be closed.
func (k *keyPool) put(c *Conn, now int64) bool {
	n := k.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if !c.held {
		panic("pool: Release of a connection that is not held")
	}
	if n.ended != nil || c.expires <= now || c.generation != n.primary.generation {
		return false
	}
	c.idleSince = now
	if len(n.waiting) > 0 {
		if w := n.nextWaiter(k); w != nil {
			if w.pool != k {
				return false // forget grants the place to w
			}
			n.dequeue(w)
			w.granted <- grant{conn: c}
			return true
		}
	}
	c.held = false
	k.idle = append(k.idle, c)
	n.idle++
	return true
}

// forget takes a held connection that was closed out of the books.
func (k *keyPool) forget(c *Conn, now int64) {
	n := k.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if !c.held {
		panic("pool: Release of a connection that is not held")
	}
	c.held = false
	k.uncount(c)
	if c.Broken {
		n.primary.doubt(c.generation, now)
	}
	n.grantFree()
}

func (k *keyPool) uncount(c *Conn) {
	delete(k.open, c)
	k.closed++
	k.unreserve()
}

// reserve takes a place for a connection that is going to be opened.
func (k *keyPool) reserve() {
	k.total++
	k.node.total++
	k.node.pool.conns.Add(1)
}

func (k *keyPool) unreserve() {
	k.total--
	k.node.total--
}

// waiter is a session in the queue.
type waiter struct {
	pool    *keyPool
	since   int64
	granted chan grant // of capacity 1; receives once, after the waiter left the queue
	timer   *time.Timer
}

// grant ends the wait with a connection, with a place to open one (both nil), or with an error.
type grant struct {
	conn *Conn
	err  error
}

// queue is first in, first out.
type queue struct{ waiters []*waiter }

func (q *queue) first() *waiter {
	if len(q.waiters) == 0 {
		return nil
	}
	return q.waiters[0]
}

func (q *queue) push(w *waiter) { q.waiters = append(q.waiters, w) }

// remove reports whether w was in the queue.
func (q *queue) remove(w *waiter) bool {
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return false
	}
	if i == 0 {
		q.waiters[0] = nil
		q.waiters = q.waiters[1:]
		return true
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	return true
}
