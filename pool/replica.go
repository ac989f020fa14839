package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
)

// replicas are the servers of one node, seen by those who want to read from a standby. Which of them
// are standbys changes; each is watched while anybody asks for one.
type replicas struct {
	node *node // the primary's

	// mu is taken after the pool's mutex and before a server's. members changes only while both are
	// held.
	mu      sync.Mutex
	members []*replica // one for each address of the node
	turn    int        // who is looked at first: equals take turns
	used    int64      // pool time of the last AcquireReplica
	client  *login     // who asks the servers when Config.Monitor does not
	history history
	news    chan struct{} // if not nil: closed when any standing is known anew
	ended   error
}

// replica is the server at one address of a node.
type replica struct {
	set     *replicas
	address string
	server  *node           // its pools
	life    context.Context // ends when the address leaves the node
	end     context.CancelFunc

	// What follows is guarded by the set's mutex.
	watched  bool
	checked  bool // since it is watched
	standing standing
}

// standing is what the last check found. The zero value is a server that must not be used.
type standing struct {
	standby bool
	lag     time.Duration
}

func (s standing) within(staleness time.Duration) bool { return s.standby && s.lag <= staleness }

type login struct {
	key   Key
	creds Credentials
}

var (
	errPrimary = errors.New("it is a primary")
	// errVacated tells a session that waits for a connection to a replica to choose another one.
	errVacated = errors.New("the replica cannot be used any more")
)

// refusal is the error of a login at one replica; another may let the role in.
type refusal struct{ err error }

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func newReplicas(n *node, addresses []string) *replicas {
	s := &replicas{node: n}
	for _, address := range addresses {
		s.members = append(s.members, s.newReplica(address))
	}
	return s
}

func (s *replicas) newReplica(address string) *replica {
	r := &replica{set: s, address: address, server: newServer(s.node.pool, s.node.name, []string{address})}
	r.server.replica = r
	r.life, r.end = context.WithCancel(s.node.pool.life)
	return r
}

// AcquireReplica is Acquire at the replica with the fewest connections in use, among those that are
// no further behind than staleness; 0 means Config.MaxStaleness. It waits neither for a replica to
// come up nor for one to catch up: the error is ErrNoReplica then. A node with one address has no
// replica.
func (p *Pool) AcquireReplica(ctx context.Context, key Key, creds Credentials, staleness time.Duration) (*Conn, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	s, err := p.replicasOf(key.Node)
	if err != nil {
		return nil, err
	}
	key.Replica = true
	if staleness <= 0 {
		staleness = p.cfg.MaxStaleness
	}
	var tried []*replica
	var refused error
	for {
		r, k, err := s.choose(ctx, key, creds, staleness, tried)
		if err == ErrNoReplica && refused != nil {
			return nil, fmt.Errorf("%w: %w", err, refused)
		}
		if err != nil {
			return nil, err
		}
		c, err := p.acquireAt(ctx, k, creds)
		switch refusal, _ := errors.AsType[*refusal](err); {
		case refusal != nil:
			tried, refused = append(tried, r), refusal
		case errors.Is(err, errVacated):
		case err != nil:
			return nil, err
		case c != nil && s.allows(r, staleness): // also after a wait
			return c, nil
		case c != nil:
			p.Release(c)
		}
	}
}

// acquireAt is Acquire at one server. It returns neither connection nor error when the caller should
// choose again.
func (p *Pool) acquireAt(ctx context.Context, k *keyPool, creds Credentials) (*Conn, error) {
	c, suspect := k.take(p.now())
	if c == nil {
		return p.acquireSlowly(ctx, k, creds)
	}
	if suspect && !c.alive() {
		c.Broken = true
	}
	if c.Broken || c.promoted() {
		p.Release(c)
		return nil, nil
	}
	return c, nil
}

func (p *Pool) replicasOf(node string) (*replicas, error) {
	if s := (*p.replicas.Load())[node]; s != nil {
		return s, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, ErrClosed
	}
	return nil, unknownNode(node)
}

// choose finds the best replica and its pool for the key. While nothing is known yet, it waits for
// the first checks.
func (s *replicas) choose(ctx context.Context, key Key, creds Credentials, staleness time.Duration, tried []*replica) (*replica, *keyPool, error) {
	for lent := false; ; lent = true {
		s.mu.Lock()
		if s.ended != nil || len(s.members) < 2 {
			err := s.ended
			s.mu.Unlock()
			return nil, nil, orNoReplica(err)
		}
		if !lent && s.client == nil { // once: it may be the one that is refused
			s.lend(key, creds)
		}
		s.watch()
		best, pending := s.best(key, staleness, tried)
		var news chan struct{}
		if best == nil && pending {
			if s.news == nil {
				s.news = make(chan struct{})
			}
			news = s.news
		}
		s.mu.Unlock()
		if best != nil {
			return best, best.server.poolOf(key), nil
		}
		if news == nil {
			return nil, nil, ErrNoReplica
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

func orNoReplica(err error) error {
	if err != nil {
		return err
	}
	return ErrNoReplica
}

// best also reports whether a check is still to come that may find a better answer than none. s.mu
// is held.
func (s *replicas) best(key Key, staleness time.Duration, tried []*replica) (best *replica, pending bool) {
	var least load
	s.turn++
	for i := range s.members {
		r := s.members[(s.turn+i)%len(s.members)]
		pending = pending || !r.checked
		if !r.standing.within(staleness) || slices.Contains(tried, r) {
			continue
		}
		if l := r.server.load(key); best == nil || l.less(least) {
			best, least = r, l
		}
	}
	return best, pending
}

func (s *replicas) allows(r *replica, staleness time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.standing.within(staleness)
}

// load is how busy a server is for one key.
type load struct {
	full   bool // the key's pool: one would have to wait
	active int  // connections in use, of all keys
}

func (l load) less(other load) bool {
	if l.full != other.full {
		return other.full
	}
	return l.active < other.active
}

func (n *node) load(key Key) load {
	n.mu.Lock()
	defer n.mu.Unlock()
	k := n.pools[key]
	return load{
		full:   k != nil && len(k.idle) == 0 && k.total >= n.pool.cfg.MaxPerPool,
		active: n.total - n.idle,
	}
}

// dialReplica logs in at a replica and refuses a primary.
func (p *Pool) dialReplica(ctx context.Context, k *keyPool, creds Credentials) (*pgwire.Backend, uint64, error) {
	r := k.node.replica
	generation := k.node.place().generation
	b, err := p.dial(ctx, r.address, k.key, creds)
	if err == nil && b.Params[inHotStandby] != "on" {
		_ = b.Stream.Conn.Close()
		err = fmt.Errorf("%s: %w", r.address, errPrimary)
	}
	switch {
	case err == nil:
		return b, generation, nil
	case ctx.Err() != nil:
		return nil, 0, context.Cause(ctx)
	}
	if errors.Is(err, errPrimary) || passes(err, 2) {
		r.set.learn(r, standing{}, err) // the server, not the login
	}
	return nil, 0, &refusal{err}
}

// vacate closes what is idle now and what is held when it is released, and sends those who wait away.
func (n *node) vacate() {
	n.mu.Lock()
	n.primary.generation++
	closing := n.clear(errVacated)
	n.mu.Unlock()
	n.closeAll(closing)
}

func (s *replicas) servers() []*node {
	s.mu.Lock()
	defer s.mu.Unlock()
	servers := make([]*node, 0, len(s.members)+1)
	for _, r := range s.members {
		servers = append(servers, r.server)
	}
	return servers
}

// setAddresses returns the servers that left, whose connections may still be held. The pool's mutex
// is held.
func (s *replicas) setAddresses(addresses []string) (left []*node) {
	s.mu.Lock()
	if !slices.EqualFunc(s.members, addresses, func(r *replica, address string) bool { return r.address == address }) {
		left = s.replace(addresses)
	}
	s.mu.Unlock()
	for _, server := range left {
		server.shut(errVacated)
	}
	return left
}

func (s *replicas) replace(addresses []string) (left []*node) {
	old := s.members
	s.members = nil
	for _, address := range addresses {
		if i := slices.IndexFunc(old, func(r *replica) bool { return r.address == address }); i >= 0 {
			s.members = append(s.members, old[i])
			old = slices.Delete(old, i, i+1)
			continue
		}
		s.members = append(s.members, s.newReplica(address))
	}
	for _, r := range old {
		r.end()
		r.standing = standing{}
		left = append(left, r.server)
	}
	s.history = history{} // perhaps other servers altogether
	s.tell()
	return left
}

// end stops watching and returns the servers, which the caller shuts.
func (s *replicas) end(why error) []*node {
	s.mu.Lock()
	s.ended = why
	for _, r := range s.members {
		r.end()
	}
	s.tell()
	s.mu.Unlock()
	return s.servers()
}

// tell wakes those who wait for a check. s.mu is held.
func (s *replicas) tell() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}
