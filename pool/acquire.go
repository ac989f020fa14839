package pool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
)

// admitting marks the context that Admit gets.
type admitting struct{}

// acquireSlowly opens a connection or waits for one. It returns neither connection nor error when
// the caller should look again.
func (p *Pool) acquireSlowly(ctx context.Context, k *keyPool, creds Credentials) (*Conn, error) {
	w, victim, err := k.request(ctx, p.now())
	if victim != nil {
		k.node.closeAll([]*Conn{victim})
	}
	if err == errLookAgain {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if w != nil {
		g, err := p.wait(ctx, w)
		if err != nil {
			return nil, err
		}
		if g.conn != nil {
			return g.conn, nil // straight from another session: it was alive a moment ago
		}
	}
	return p.open(ctx, k, creds)
}

var errLookAgain = errors.New("pool: look again")

// request reserves a place for a new connection, closing an idle one of another pool when that is
// what it takes, or else joins the queue.
func (k *keyPool) request(ctx context.Context, now int64) (w *waiter, victim *Conn, err error) {
	n, cfg := k.node, &k.node.pool.cfg
	n.mu.Lock()
	defer n.mu.Unlock()
	k.used = now
	switch {
	case n.ended != nil:
		return nil, nil, n.ended
	case k.gone || len(k.idle) > 0:
		return nil, nil, errLookAgain
	case k.total < cfg.MaxPerPool && n.total < cfg.MaxPerNode:
		k.reserve()
		return nil, nil, nil
	case k.total < cfg.MaxPerPool:
		victim = n.leastRecentIdle(k)
		if victim != nil || ctx.Value(admitting{}) != nil {
			k.reserve()
			return nil, victim, nil
		}
	}
	w = n.pool.waiter()
	w.pool, w.since = k, now
	n.enqueue(w)
	return w, nil, nil
}

// waiter makes one, of the memory of an earlier one if there is: under a load beyond the pool's limit
// every statement waits.
func (p *Pool) waiter() *waiter {
	if w, ok := p.waiters.Get().(*waiter); ok {
		return w
	}
	timer := time.NewTimer(p.cfg.QueueTimeout)
	timer.Stop()
	return &waiter{granted: make(chan grant, 1), timer: timer}
}

// wait waits for w's turn. Afterwards w is out of the queue with nothing granted, so another can use it.
func (p *Pool) wait(ctx context.Context, w *waiter) (grant, error) {
	w.timer.Reset(p.cfg.QueueTimeout)
	defer func() {
		w.timer.Stop()
		w.pool = nil
		p.waiters.Put(w)
	}()
	var err error
	select {
	case g := <-w.granted:
		return g, g.err
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-w.timer.C:
		err = p.queueError(w.pool)
	}
	n := w.pool.node
	n.mu.Lock()
	left := n.dequeue(w)
	if left && ctx.Err() == nil {
		w.pool.timeouts++
	}
	n.mu.Unlock()
	if left {
		return grant{}, err
	}
	// It was granted at the same moment. Good for one whose time ran out; give it back otherwise.
	g := <-w.granted
	if g.err == nil && ctx.Err() != nil {
		p.giveBack(w.pool, g)
		return grant{}, err
	}
	return g, g.err
}

func (p *Pool) giveBack(k *keyPool, g grant) {
	if g.conn != nil {
		p.Release(g.conn)
		return
	}
	k.abandon(false)
}

// abandon gives an unused place back.
func (k *keyPool) abandon(failed bool) {
	n := k.node
	n.mu.Lock()
	if failed {
		k.failed++
	}
	k.unreserve()
	n.grantFree()
	n.mu.Unlock()
	n.pool.conns.Done()
}

// queueError says which limit it was.
func (p *Pool) queueError(k *keyPool) error {
	n := k.node
	n.mu.Lock()
	poolTotal, nodeTotal := k.total, n.total
	n.mu.Unlock()
	e := pgwire.Errorf(pgwire.CodeTooManyConnections, "no connection to node %q became free within %v", n.name, p.cfg.QueueTimeout)
	if poolTotal >= p.cfg.MaxPerPool {
		return e.WithDetail("All %d connections of role %q to database %q on this node are in use.", poolTotal, k.key.Role, k.key.Database).
			WithHint("Shorten transactions, or raise max_per_pool (now %d) or queue_timeout.", p.cfg.MaxPerPool)
	}
	return e.WithDetail("All %d connections to this node are in use.", nodeTotal).
		WithHint("Shorten transactions, or raise max_per_node (now %d) or queue_timeout.", p.cfg.MaxPerNode)
}

// open uses a reserved place.
func (p *Pool) open(ctx context.Context, k *keyPool, creds Credentials) (*Conn, error) {
	c, err := p.openConn(ctx, k, creds)
	if err != nil {
		k.abandon(true)
		return nil, err
	}
	return c, nil
}

func (p *Pool) openConn(ctx context.Context, k *keyPool, creds Credentials) (*Conn, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(p.life, func() { cancel(ErrClosed) })()
	dial := p.dialPrimary
	if k.key.Replica {
		dial = p.dialReplica
	}
	b, generation, err := dial(ctx, k, creds)
	if err != nil {
		return nil, err
	}
	c := &Conn{
		Backend: b, Key: k.key, TxStatus: 'I', Statements: NewStatements(p.cfg.MaxStatements),
		pool: k, generation: generation, held: true, expires: p.now() + p.lifetime(),
	}
	c.probe.start(b.Stream.Conn)
	if p.cfg.Admit != nil && !k.key.Replica && ctx.Value(admitting{}) == nil {
		if err := p.cfg.Admit(context.WithValue(ctx, admitting{}, true), k.key.Node, b.PID); err != nil {
			c.close()
			return nil, fmt.Errorf("pool: admitting a connection to node %q: %w", k.key.Node, err)
		}
	}
	if err := k.register(c); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (k *keyPool) register(c *Conn) error {
	n := k.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended != nil {
		return n.ended
	}
	if n.replica == nil && c.generation != n.primary.generation {
		return nodeFailure(n.name, fmt.Errorf("%s: %w", c.Address, errMoved))
	}
	k.open[c] = struct{}{}
	k.opened++
	return nil
}
