package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
)

// primary is what is known about where a node's primary is; guarded by the node's mutex.
type primary struct {
	addresses []string
	known     string // empty: it must be found
	last      string // the address of this generation
	// generation grows when the primary is found at another address; connections of an older one
	// are not used any more.
	generation uint64
	// timeline is the highest seen. A server on a lower one was left behind by a failover, even
	// when it takes itself for a primary.
	timeline uint32
	brokenAt int64 // pool time when a connection was last found dead
}

// doubt is called when a connection died: the primary may be elsewhere now.
func (p *primary) doubt(generation uint64, now int64) {
	p.brokenAt = now
	if generation == p.generation {
		p.known = ""
	}
}

var (
	errReplica = errors.New("it is a replica")
	errMoved   = errors.New("the primary is elsewhere now")
)

func (n *node) setAddresses(addresses []string) {
	n.mu.Lock()
	if slices.Equal(n.primary.addresses, addresses) {
		n.mu.Unlock()
		return
	}
	if !slices.ContainsFunc(addresses, func(a string) bool { return slices.Contains(n.primary.addresses, a) }) {
		n.primary.timeline = 0 // other servers altogether
	}
	n.primary.addresses = slices.Clone(addresses)
	n.primary.known = ""
	var closing []*Conn
	if !slices.Contains(addresses, n.primary.last) {
		n.primary.last = ""
		n.primary.generation++
		closing = n.removeIdle(func(*Conn) bool { return true })
	}
	n.mu.Unlock()
	n.closeAll(closing)
}

// remember notes where askAll found the primary and returns its generation.
func (n *node) remember(found candidate) (uint64, error) {
	n.mu.Lock()
	p := &n.primary
	if !slices.Contains(p.addresses, found.address) {
		n.mu.Unlock()
		return 0, fmt.Errorf("%s: %w", found.address, errMoved)
	}
	closing := n.moveTo(found.address, found.timeline)
	p.known = found.address
	generation := p.generation
	n.mu.Unlock()
	n.closeAll(closing)
	return generation, nil
}

// outrank is told of a server that is a primary on this timeline. A higher one than ever seen before
// means that a failover left the primary behind, even when that one does not know and takes writes.
func (n *node) outrank(address string, timeline uint32) {
	n.mu.Lock()
	p := &n.primary
	if timeline <= p.timeline || !slices.Contains(p.addresses, address) {
		n.mu.Unlock()
		return
	}
	closing := n.moveTo(address, timeline)
	p.known = address
	n.mu.Unlock()
	n.closeAll(closing)
}

// moveTo makes an address that of the primary and returns the idle connections to the one before, for
// closeAll. Those that sessions hold to a primary of the past are cut off: what they write is lost, so
// it must not be acknowledged. n.mu is held.
func (n *node) moveTo(address string, timeline uint32) (closing []*Conn) {
	p := &n.primary
	if p.last != address && p.last != "" {
		n.pool.log.Info("the primary is at another address", "node", n.name, "was", p.last, "is", address, "timeline", timeline)
		p.generation++
		closing = n.removeIdle(func(*Conn) bool { return true })
		if timeline > p.timeline {
			n.cutHeld()
		}
	}
	p.last = address
	if timeline > p.timeline {
		p.timeline = timeline
		if n.pool.cfg.Seen != nil {
			n.pool.cfg.Seen(n.name, timeline)
		}
	}
	return closing
}

// RaiseTimeline tells that others have seen a primary of a node on this timeline: one on a lower timeline is not used any more.
func (p *Pool) RaiseTimeline(name string, timeline uint32) {
	p.mu.Lock()
	n := p.nodes[name]
	p.mu.Unlock()
	if n != nil {
		n.raise(timeline)
	}
}

func (n *node) raise(timeline uint32) {
	n.mu.Lock()
	p := &n.primary
	if timeline <= p.timeline || len(p.addresses) < 2 {
		n.mu.Unlock()
		return
	}
	var closing []*Conn
	if p.last != "" {
		n.pool.log.Info("a primary on a higher timeline was seen", "node", n.name, "was", p.last, "timeline", timeline)
		p.known, p.last = "", ""
		p.generation++
		closing = n.removeIdle(func(*Conn) bool { return true })
		n.cutHeld()
	}
	p.timeline = timeline
	n.mu.Unlock()
	n.closeAll(closing)
}

// confirm notes that the primary answered where it was expected, unless it was found elsewhere
// while the login was under way.
func (n *node) confirm(address string) (uint64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := &n.primary
	if !slices.Contains(p.addresses, address) || p.last != "" && p.last != address {
		return 0, fmt.Errorf("%s: %w", address, errMoved)
	}
	p.last = address
	if len(p.addresses) == 1 {
		p.known = address
	}
	return p.generation, nil
}

func (n *node) place() primary {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.primary
}

// forget notes that the primary did not answer at its address.
func (n *node) forget(address string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.primary.brokenAt = n.pool.now()
	if n.primary.known == address {
		n.primary.known = ""
	}
}

// dialPrimary logs in to the node's primary, wherever it is. While a failover or a start is under
// way it tries again for a bounded time.
func (p *Pool) dialPrimary(ctx context.Context, k *keyPool, creds Credentials) (*pgwire.Backend, uint64, error) {
	n := k.node
	until := time.Now().Add(p.cfg.PrimaryTimeout)
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		b, generation, err := p.tryPrimary(ctx, k, creds)
		if err == nil {
			return b, generation, nil
		}
		if ctx.Err() != nil {
			return nil, 0, context.Cause(ctx)
		}
		if !passes(err, len(n.place().addresses)) || time.Now().Add(pause).After(until) {
			return nil, 0, nodeFailure(n.name, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, 0, context.Cause(ctx)
		}
	}
}

func (p *Pool) tryPrimary(ctx context.Context, k *keyPool, creds Credentials) (*pgwire.Backend, uint64, error) {
	n := k.node
	place := n.place()
	if len(place.addresses) == 0 {
		return nil, 0, errors.New("it has no address")
	}
	address := place.known
	if address == "" && len(place.addresses) == 1 {
		address = place.addresses[0]
	}
	if address == "" {
		return p.findPrimary(ctx, k, creds)
	}
	b, generation, err := p.dialExpected(ctx, address, k, creds)
	if err == nil {
		return b, generation, nil
	}
	if !passes(err, 2) {
		return nil, 0, err
	}
	n.forget(address)
	if len(place.addresses) == 1 {
		return nil, 0, err
	}
	return p.findPrimary(ctx, k, creds)
}

// inHotStandby is the parameter with which every server says whether it is a replica.
const inHotStandby = "in_hot_standby"

// dialAt logs in at one address and refuses a replica, which says so without being asked.
func (p *Pool) dialAt(ctx context.Context, address string, key Key, creds Credentials) (*pgwire.Backend, error) {
	b, err := p.dial(ctx, address, key, creds)
	if err != nil {
		return nil, err
	}
	if b.Params[inHotStandby] == "on" {
		_ = b.Stream.Conn.Close()
		return nil, fmt.Errorf("%s: %w", address, errReplica)
	}
	return b, nil
}

// dialExpected logs in where the primary was last.
func (p *Pool) dialExpected(ctx context.Context, address string, k *keyPool, creds Credentials) (*pgwire.Backend, uint64, error) {
	b, err := p.dialAt(ctx, address, k.key, creds)
	if err != nil {
		return nil, 0, err
	}
	generation, err := k.node.confirm(address)
	if err != nil {
		_ = b.Stream.Conn.Close()
		return nil, 0, err
	}
	return b, generation, nil
}

// candidate is what was found at one address.
type candidate struct {
	address  string
	backend  *pgwire.Backend
	timeline uint32
	err      error
}

// findPrimary asks all addresses at once. One session at a time does it for a node; the others
// use what it found.
func (p *Pool) findPrimary(ctx context.Context, k *keyPool, creds Credentials) (*pgwire.Backend, uint64, error) {
	n := k.node
	select {
	case n.finding <- struct{}{}:
		defer func() { <-n.finding }()
	case <-ctx.Done():
		return nil, 0, context.Cause(ctx)
	}
	place := n.place()
	if place.known != "" {
		if b, generation, err := p.dialExpected(ctx, place.known, k, creds); err == nil {
			return b, generation, nil
		}
	}
	best, err := p.askAll(ctx, place, k.key, creds)
	if best.backend == nil {
		return nil, 0, err
	}
	if best.timeline != 0 && best.timeline < place.timeline {
		best.discard()
		return nil, 0, fmt.Errorf("%s is a primary of the past: its timeline is %d, but %d was seen: %w", best.address, best.timeline, place.timeline, errReplica)
	}
	generation, err := n.remember(best)
	if err != nil {
		best.discard()
		return nil, 0, err
	}
	return best.backend, generation, nil
}

// grace is how long a primary that was found waits for another, newer one to answer; firstGrace is the
// same as long as no timeline is known that it could be measured by.
const (
	grace      = 250 * time.Millisecond
	firstGrace = 2 * time.Second
)

func (p *Pool) askAll(ctx context.Context, place primary, key Key, creds Credentials) (best candidate, err error) {
	ctx, cancel := context.WithCancel(ctx)
	results := make(chan candidate, len(place.addresses))
	for _, address := range place.addresses {
		go func() { results <- p.ask(ctx, address, key, creds) }()
	}
	wait := grace
	if place.timeline == 0 {
		wait = firstGrace
	}
	var enough <-chan time.Time
	var errs []error
	pending := len(place.addresses)
	for ; pending > 0; pending-- {
		select {
		case c := <-results:
			if c.err != nil {
				errs = append(errs, c.err)
				continue
			}
			if best.backend == nil || c.timeline > best.timeline {
				best, c = c, best
			}
			c.discard()
			if enough == nil {
				enough = time.After(wait)
			}
			continue
		case <-enough:
		}
		break
	}
	// Those that did not answer in time are called off and waited for: nothing is left behind.
	cancel()
	for ; pending > 0; pending-- {
		c := <-results
		c.discard()
	}
	return best, worst(errs)
}

func (p *Pool) ask(ctx context.Context, address string, key Key, creds Credentials) candidate {
	b, err := p.dialAt(ctx, address, key, creds)
	if err != nil {
		return candidate{address: address, err: err}
	}
	found := candidate{address: address, backend: b}
	conn := &Conn{Backend: b, Key: key, TxStatus: 'I'}
	rows, err := conn.Query(ctx, "SELECT pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn())")
	switch {
	case conn.Broken || ctx.Err() != nil:
		found.discard()
		return candidate{address: address, err: cmp.Or(err, ctx.Err())}
	case err == nil && len(rows) == 1 && len(rows[0]) == 1 && len(rows[0][0]) >= 8:
		// A WAL file's name begins with the timeline. A role that may not ask leaves it at 0.
		if n, err := strconv.ParseUint(string(rows[0][0][:8]), 16, 32); err == nil {
			found.timeline = uint32(n)
		}
	}
	return found
}

func (c *candidate) discard() {
	if c.backend != nil {
		_ = c.backend.Stream.Conn.Close()
	}
}

// worst picks what to report: what a server said about the login itself, if any did.
func worst(errs []error) error {
	for _, err := range errs {
		if !passes(err, 2) {
			return err
		}
	}
	return errors.Join(errs...)
}

// passes reports whether an error may pass by itself or at another address, given how many the
// node has.
func passes(err error, addresses int) bool {
	if e := pgError(err); e != nil {
		switch e.Code {
		case "57P01", "57P02", "57P03": // shutting down, crashed, starting up
			return true
		case codeConnectionFailed:
			return addresses > 1
		}
		return false
	}
	if errors.Is(err, errReplica) || errors.Is(err, errMoved) {
		return true
	}
	var netErr *net.OpError
	return addresses > 1 && (errors.As(err, &netErr) || errors.Is(err, io.EOF) ||
		errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded))
}

func pgError(err error) *pgwire.Error {
	e, _ := errors.AsType[*pgwire.Error](err)
	return e
}

// failure gives clients a PostgreSQL error and programs the cause.
type failure struct {
	shown *pgwire.Error
	cause error
}

func (f *failure) Error() string   { return f.shown.Error() }
func (f *failure) Unwrap() []error { return []error{f.shown, f.cause} }

// nodeFailure leaves alone what a server said.
func nodeFailure(node string, err error) error {
	if e := pgError(err); e != nil {
		return e
	}
	if errors.Is(err, errReplica) || errors.Is(err, errMoved) {
		return &failure{pgwire.Errorf("57P03", "node %q has no primary: %v", node, err), err}
	}
	return &failure{pgwire.Errorf(codeCannotConnect, "could not connect to node %q: %v", node, err), err}
}
