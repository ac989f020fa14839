package etcdtopo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pgshoal/pgshoal/topo"
)

// healthKey never exists; asking for it makes etcd prove that it has a leader.
const healthKey = "health"

// health is what the heartbeat found last. The client hides outages from watches, which just
// stay silent, so somebody has to ask.
type health struct {
	mu     sync.Mutex
	err    error
	flip   chan struct{} // closed and replaced when etcd goes away or comes back
	newest position
}

func newHealth() *health { return &health{flip: make(chan struct{})} }

// state returns why etcd is away, or nil, and the channel closed when that changes.
func (h *health) state() (flip <-chan struct{}, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.flip, h.err
}

func (h *health) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if (err == nil) == (h.err == nil) {
		h.err = err
		return
	}
	h.err = err
	close(h.flip)
	h.flip = make(chan struct{})
}

var errReplaced = errors.New("etcd was replaced by an older state of itself or by another cluster")

// position is how far an etcd cluster has come.
type position struct {
	cluster  uint64
	revision int64
}

// saw remembers the newest position that an answer has shown.
func (h *health) saw(header *etcdserverpb.ResponseHeader) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.newest.cluster == 0 || header.ClusterId == h.newest.cluster && header.Revision > h.newest.revision {
		h.newest = position{header.ClusterId, header.Revision}
	}
}

// replaced says whether an answer to a request made after before was seen cannot be from the same
// etcd, since reads there never go back; if so, what it shows is taken as the new truth.
func (h *health) replaced(before position, header *etcdserverpb.ResponseHeader) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before.cluster == 0 || header.ClusterId == before.cluster && header.Revision >= before.revision {
		return false
	}
	h.newest = position{header.ClusterId, header.Revision}
	return true
}

func (h *health) position() position {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.newest
}

// heartbeat asks etcd for its health until the store is closed.
func (s *Store) heartbeat() {
	ticker := time.NewTicker(s.config.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
			s.health.set(s.beat())
		}
	}
}

func (s *Store) beat() error {
	before := s.health.position()
	ctx, cancel := context.WithTimeout(s.ctx, 2*s.config.Heartbeat)
	defer cancel()
	r, err := s.client.Get(ctx, s.prefix+healthKey, clientv3.WithCountOnly())
	if err != nil {
		return s.failed("read", healthKey, err)
	}
	if s.health.replaced(before, r.Header) {
		// A watch that waits for a revision of the old etcd would wait for long: taking this
		// for an outage makes all watches begin anew.
		return fmt.Errorf("%w: %w", topo.ErrUnavailable, errReplaced)
	}
	s.health.saw(r.Header)
	return nil
}
