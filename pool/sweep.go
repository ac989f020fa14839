package pool

import (
	"slices"
	"time"
)

// restAfter is how long a connection is idle before its buffers are given back.
const restAfter = int64(10 * time.Second)

func (p *Pool) sweepOften() {
	every := min(max(min(p.cfg.IdleTimeout, p.cfg.Lifetime)/10, 10*time.Millisecond), 5*time.Second)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-p.life.Done():
			return
		case <-ticker.C:
			p.sweep()
		}
	}
}

// sweep closes idle connections whose time is over and drops pools that nobody uses: roles and
// databases are many and come and go.
func (p *Pool) sweep() {
	for n, closing := range p.sweepBooks() {
		n.closeAll(closing)
	}
}

// LetGo closes the idle connections to a database, because it is about to be dropped or renamed.
func (p *Pool) LetGo(database string) {
	for _, n := range p.servers() {
		n.mu.Lock()
		closing := n.removeIdle(func(c *Conn) bool { return c.Key.Database == database })
		n.mu.Unlock()
		n.closeAll(closing)
	}
}

// servers lists all servers of all nodes, replicas included.
func (p *Pool) servers() []*node {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*node
	for _, n := range p.nodes {
		all = append(append(all, n.replicas.servers()...), n)
	}
	return all
}

func (p *Pool) sweepBooks() map[*node][]*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	now := p.now()
	closing := make(map[*node][]*Conn)
	dropped := false
	for _, n := range p.nodes {
		for _, server := range append(n.replicas.servers(), n) {
			conns, dropsPool := server.sweep(now)
			if len(conns) > 0 {
				closing[server] = conns
			}
			dropped = dropped || dropsPool
		}
	}
	if dropped {
		p.dropPools((*keyPool).isGone)
	}
	p.retired = slices.DeleteFunc(p.retired, func(n *node) bool { return !n.inUse() })
	return closing
}

func (n *node) sweep(now int64) (closing []*Conn, dropped bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	idleLimit := int64(n.pool.cfg.IdleTimeout)
	closing = n.removeIdle(func(c *Conn) bool {
		if now-c.idleSince > restAfter {
			c.Stream.Idle()
		}
		return c.expires <= now || now-c.idleSince >= idleLimit
	})
	for key, k := range n.pools {
		if k.total == 0 && k.queue.first() == nil && now-k.used >= idleLimit {
			k.gone = true
			delete(n.pools, key)
			dropped = true
		}
	}
	return closing, dropped
}

func (n *node) inUse() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.total > 0
}

func (k *keyPool) isGone() bool {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	return k.gone
}
