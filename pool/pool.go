package pool

import (
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
)

// Pool holds all connections of one router to all nodes.
type Pool struct {
	cfg Config
	log *slog.Logger
	// dial, examine and now are the only ways out, so that bookkeeping can be tested without them.
	dial    func(ctx context.Context, address string, key Key, creds Credentials) (*pgwire.Backend, error)
	examine func(ctx context.Context, c *Conn) (report, error)
	now     func() int64

	// pools are those of the primaries. It is copied on write: finding a pool takes no lock.
	pools atomic.Pointer[map[primaryKey]*keyPool]
	// replicas are those of each node, by its name; copied on write likewise.
	replicas atomic.Pointer[map[string]*replicas]

	mu      sync.Mutex // guards what follows and every change of pools; taken before a node's mutex
	nodes   map[string]*node
	retired []*node // left the map, but some of their connections are still held
	closed  bool

	waiters sync.Pool // of *waiter that nobody uses

	conns sync.WaitGroup // every connection, from its reservation to its end
	tasks sync.WaitGroup // goroutines of the pool
	life  context.Context
	end   context.CancelFunc
}

// New makes a pool that knows no node yet; see SetNodes.
func New(cfg Config, log *slog.Logger) (*Pool, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	start := time.Now()
	p := &Pool{
		cfg: cfg, log: log, nodes: make(map[string]*node),
		now: func() int64 { return int64(time.Since(start)) },
	}
	p.dial, p.examine = p.login, examine
	p.pools.Store(&map[primaryKey]*keyPool{})
	p.replicas.Store(&map[string]*replicas{})
	p.life, p.end = context.WithCancel(context.Background())
	p.tasks.Go(p.sweepOften)
	return p, nil
}

// SetNodes makes the pool follow the map. Connections to addresses and nodes that are gone are
// closed: idle ones now, held ones when they are released.
func (p *Pool) SetNodes(nodes []keyspace.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return
	}
	names := make(map[string]bool, len(nodes))
	for _, info := range nodes {
		names[info.Name] = true
		if n := p.nodes[info.Name]; n != nil {
			n.setAddresses(info.Addresses)
			p.retired = append(p.retired, n.replicas.setAddresses(info.Addresses)...)
		} else {
			p.nodes[info.Name] = newNode(p, info.Name, info.Addresses)
		}
		p.nodes[info.Name].replicas.guard()
	}
	for name, n := range p.nodes {
		if names[name] {
			continue
		}
		n.shut(unknownNode(name))
		delete(p.nodes, name)
		p.retired = append(p.retired, n)
		for _, server := range n.replicas.end(unknownNode(name)) {
			server.shut(unknownNode(name))
			p.retired = append(p.retired, server)
		}
		p.dropPools(func(k *keyPool) bool { return k.node == n })
	}
	byName := make(map[string]*replicas, len(p.nodes))
	for name, n := range p.nodes {
		byName[name] = n.replicas
	}
	p.replicas.Store(&byName)
}

// Acquire returns a connection that is idle or, within the limits, a fresh one; else it waits its
// turn. The caller gives it back with Release. What a node answers to a login comes back as the
// *pgwire.Error it sent.
func (p *Pool) Acquire(ctx context.Context, key Key, creds Credentials) (*Conn, error) {
	return p.acquire(ctx, key, creds, false)
}

// AcquireAlive is Acquire that looks at the socket however short the connection was idle: for what a session
// does before its first statement, which no client is ready to try again.
func (p *Pool) AcquireAlive(ctx context.Context, key Key, creds Credentials) (*Conn, error) {
	return p.acquire(ctx, key, creds, true)
}

func (p *Pool) acquire(ctx context.Context, key Key, creds Credentials, look bool) (*Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if key.Replica {
		return p.AcquireReplica(ctx, key, creds, 0)
	}
	for {
		k, err := p.pool(key)
		if err != nil {
			return nil, err
		}
		c, suspect := k.take(p.now())
		switch {
		case c == nil:
			if c, err = p.acquireSlowly(ctx, k, creds); c == nil && err == nil {
				continue // the pool was dropped or got an idle connection meanwhile
			}
			return c, err
		case !suspect && !look || c.alive():
			return c, nil
		}
		c.Broken = true
		p.Release(c)
	}
}

// TryAcquire is Acquire of a primary's idle connection that was used a moment ago; nil if there is none. It never waits.
func (p *Pool) TryAcquire(key Key) *Conn {
	k := (*p.pools.Load())[primaryKey{key.Node, key.Role, key.Database}]
	if k == nil {
		return nil
	}
	c, suspect := k.take(p.now())
	if c != nil && suspect && !c.alive() {
		c.Broken = true
		p.Release(c)
		return nil
	}
	return c
}

// Release gives a connection back. It is closed instead of kept when it is broken or spent, inside a
// transaction, too old, or a replica's that was promoted.
func (p *Pool) Release(c *Conn) {
	switch {
	case c.Broken || c.Spent || c.TxStatus != 'I' || c.Stream.Pending() > 0:
		p.discard(c)
	case c.Key.Replica && c.promoted():
		r := c.pool.node.replica
		r.set.learn(r, standing{}, errPrimary)
		p.discard(c)
	case c.Dirty:
		p.tasks.Go(func() { p.reset(c) })
	case !c.pool.put(c, p.now()):
		p.discard(c)
	}
}

// resetTimeout bounds DISCARD ALL; a connection that takes longer is not worth keeping.
const resetTimeout = 5 * time.Second

func (p *Pool) reset(c *Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), resetTimeout)
	defer cancel()
	err := c.Exec(ctx, "DISCARD ALL")
	if err != nil {
		p.log.Warn("resetting a connection failed", "node", c.Key.Node, "error", err)
		c.Broken = true
	}
	c.Statements.Clear()
	c.Settings = nil
	c.Dirty = false
	p.Release(c)
}

// discard closes a held connection and gives its place to whoever waits longest.
func (p *Pool) discard(c *Conn) {
	c.close()
	c.pool.forget(c, p.now())
	p.conns.Done()
}

// Close fails everybody who waits, closes idle connections, cuts held ones off so that their
// sessions end, and waits until all are released.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	servers := slices.Clone(p.retired)
	for _, n := range p.nodes {
		servers = append(append(servers, n), n.replicas.end(ErrClosed)...)
	}
	p.pools.Store(&map[primaryKey]*keyPool{})
	p.replicas.Store(&map[string]*replicas{})
	p.mu.Unlock()
	p.end()
	for _, n := range servers {
		n.shut(ErrClosed)
		n.cutOff()
	}
	p.conns.Wait()
	p.tasks.Wait()
}

// primaryKey is a Key that is not of a replica: every statement looks one up, and each field costs.
type primaryKey struct{ node, role, database string }

// pool finds or makes the pool of a primary's key.
func (p *Pool) pool(key Key) (*keyPool, error) {
	name := primaryKey{key.Node, key.Role, key.Database}
	if k := (*p.pools.Load())[name]; k != nil {
		return k, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	pools := *p.pools.Load()
	if k := pools[name]; k != nil {
		return k, nil
	}
	n := p.nodes[key.Node]
	if n == nil {
		return nil, unknownNode(key.Node)
	}
	k := n.poolOf(key)
	pools = maps.Clone(pools)
	pools[name] = k
	p.pools.Store(&pools)
	return k, nil
}

// dropPools takes pools out of the lookup. p.mu is held.
func (p *Pool) dropPools(drop func(*keyPool) bool) {
	pools := maps.Clone(*p.pools.Load())
	maps.DeleteFunc(pools, func(_ primaryKey, k *keyPool) bool { return drop(k) })
	p.pools.Store(&pools)
}

// login is the dial of production.
func (p *Pool) login(ctx context.Context, address string, key Key, creds Credentials) (*pgwire.Backend, error) {
	return pgwire.Dial(ctx, pgwire.DialConfig{
		Address: address, TLS: p.cfg.TLS, SSLMode: p.cfg.SSLMode, User: key.Role, Database: key.Database,
		Params: p.cfg.Params, Password: creds.Password, Keys: creds.Keys, Timeout: p.cfg.ConnectTimeout,
	})
}

// lifetime is the configured one, give or take a tenth.
func (p *Pool) lifetime() int64 {
	tenth := int64(p.cfg.Lifetime) / 10
	return int64(p.cfg.Lifetime) - tenth + rand.Int64N(2*tenth+1)
}
