package pool

import (
	"slices"
	"sync"
	"time"
)

// patience is how much longer than a pool's own next waiter another pool's must have waited to
// get a released connection's place: changing pools costs a login, so it must not happen each time.
const patience = int64(100 * time.Millisecond)

// node is one node's pools. One mutex guards them all, because they share the node's limit; it is
// held for a few instructions and never during I/O.
type node struct {
	name string
	pool *Pool

	mu      sync.Mutex
	pools   map[Key]*keyPool
	waiting []*keyPool // those with waiters
	total   int        // open and opening connections
	idle    int        // those of total that nobody uses
	ended   error      // why the node can no longer be used
	primary primary

	finding chan struct{} // of capacity 1: who holds it looks for the primary

	replicas *replicas // the node's standbys; nil in a standby's own pools
	replica  *replica  // the standby whose pools these are; nil in those of the primary
}

func newNode(p *Pool, name string, addresses []string) *node {
	n := newServer(p, name, addresses)
	n.replicas = newReplicas(n, addresses)
	return n
}

// newServer makes the pools of the primary or of one standby: each is a server with limits of its own.
func newServer(p *Pool, name string, addresses []string) *node {
	return &node{
		name: name, pool: p, pools: make(map[Key]*keyPool),
		primary: primary{addresses: slices.Clone(addresses), brokenAt: -1},
		finding: make(chan struct{}, 1),
	}
}

// poolOf finds or makes the pool of a key.
func (n *node) poolOf(key Key) *keyPool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k := n.pools[key]; k != nil {
		return k
	}
	k := &keyPool{key: key, node: n, open: make(map[*Conn]struct{}), used: n.pool.now()}
	n.pools[key] = k
	return k
}

// shut ends the node's use: waiters fail with why, idle connections are closed.
func (n *node) shut(why error) {
	n.mu.Lock()
	if n.ended == nil {
		n.ended = why
	}
	closing := n.clear(why)
	n.mu.Unlock()
	n.closeAll(closing)
}

// clear fails those who wait with why and returns the idle connections, for closeAll. n.mu is held.
func (n *node) clear(why error) []*Conn {
	for _, k := range n.pools {
		for w := k.queue.first(); w != nil; w = k.queue.first() {
			n.dequeue(w)
			w.granted <- grant{err: why}
		}
	}
	return n.removeIdle(func(*Conn) bool { return true })
}

// cutOff closes the sockets of held connections under their sessions.
func (n *node) cutOff() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cutHeld()
}

// cutHeld is cutOff with n.mu held.
func (n *node) cutHeld() {
	for _, k := range n.pools {
		for c := range k.open {
			_ = c.Stream.Conn.Close()
		}
	}
}

// removeIdle takes the idle connections that match out of the books. n.mu is held; the caller
// passes them to closeAll without it.
func (n *node) removeIdle(match func(*Conn) bool) []*Conn {
	var removed []*Conn
	for _, k := range n.pools {
		before := len(removed)
		k.idle = slices.DeleteFunc(k.idle, func(c *Conn) bool {
			if !match(c) {
				return false
			}
			removed = append(removed, c)
			return true
		})
		for _, c := range removed[before:] {
			k.uncount(c)
		}
	}
	n.idle -= len(removed)
	if len(removed) > 0 {
		n.grantFree()
	}
	return removed
}

func (n *node) closeAll(conns []*Conn) {
	for _, c := range conns {
		c.close()
		n.pool.conns.Done()
	}
}

// leastRecentIdle takes the connection that was idle longest from the pools other than k. n.mu is held.
func (n *node) leastRecentIdle(k *keyPool) *Conn {
	var oldest *Conn
	for _, other := range n.pools {
		if other != k && len(other.idle) > 0 && (oldest == nil || other.idle[0].idleSince < oldest.idleSince) {
			oldest = other.idle[0]
		}
	}
	if oldest != nil {
		oldest.pool.idle = slices.Delete(oldest.pool.idle, 0, 1)
		n.idle--
		oldest.pool.uncount(oldest)
	}
	return oldest
}

// nextWaiter is who gets the place of a connection that pool k gives back; k is nil for a place
// that belongs to no pool. n.mu is held.
func (n *node) nextWaiter(k *keyPool) *waiter {
	var own, other *waiter
	for _, candidate := range n.waiting {
		w := candidate.queue.first()
		switch {
		case candidate == k:
			own = w
		case candidate.total < n.pool.cfg.MaxPerPool && (other == nil || w.since < other.since):
			other = w
		}
	}
	if own == nil || other != nil && other.since+patience < own.since {
		return other
	}
	return own
}

// grantFree gives free places to those who wait for one. n.mu is held.
func (n *node) grantFree() {
	for n.total < n.pool.cfg.MaxPerNode {
		w := n.nextWaiter(nil)
		if w == nil {
			return
		}
		n.dequeue(w)
		w.pool.reserve()
		w.granted <- grant{}
	}
}

func (n *node) enqueue(w *waiter) {
	if w.pool.queue.first() == nil {
		n.waiting = append(n.waiting, w.pool)
	}
	w.pool.queue.push(w)
}

// dequeue reports whether w was still in the queue.
func (n *node) dequeue(w *waiter) bool {
	if !w.pool.queue.remove(w) {
		return false
	}
	if w.pool.queue.first() == nil {
		n.waiting = slices.DeleteFunc(n.waiting, func(k *keyPool) bool { return k == w.pool })
	}
	return true
}
