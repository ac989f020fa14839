package etcdtopo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pgshoal/pgshoal/topo"
)

// lease has a lessor of its own: one that etcd once refused does not recover, and must not take
// the leases of others, or the next one of its owner, with it.
type lease struct {
	store  *Store
	lessor clientv3.Lease
	id     clientv3.LeaseID
	stop   context.CancelFunc
	done   chan struct{}

	confirmed atomic.Int64 // in nanoseconds of Unix time
}

// Lease implements topo.Store. etcd counts in seconds, so ttl is rounded up to them.
func (s *Store) Lease(ctx context.Context, ttl time.Duration) (topo.Lease, error) {
	asked, cancel := s.request(ctx)
	defer cancel()
	before := time.Now()
	granted, err := s.client.Grant(asked, int64((ttl+time.Second-1)/time.Second))
	if err != nil {
		return nil, s.failed("make", "lease", err)
	}
	run, stop := context.WithCancel(s.ctx)
	l := &lease{store: s, lessor: clientv3.NewLease(s.client), id: granted.ID, stop: stop, done: make(chan struct{})}
	l.confirmed.Store(before.UnixNano())
	alive, err := l.lessor.KeepAlive(run, l.id)
	if err == nil && s.start(func() { l.keep(alive) }) {
		return l, nil
	}
	l.end()
	if err == nil {
		err = topo.ErrClosed
	}
	return nil, s.failed("keep", "lease", err)
}

func (l *lease) end() {
	l.stop()
	_ = l.lessor.Close() // it only tells that its context was cancelled
}

// keep takes the answers of the keep-alive in; the client ends them when the lease is gone, or
// when etcd was silent for the lease's ttl.
func (l *lease) keep(alive <-chan *clientv3.LeaseKeepAliveResponse) {
	defer close(l.done)
	defer l.end()
	for range alive {
		l.confirmed.Store(time.Now().UnixNano())
	}
}

// ID implements topo.Lease.
func (l *lease) ID() int64 { return int64(l.id) }

// Done implements topo.Lease.
func (l *lease) Done() <-chan struct{} { return l.done }

// Confirmed implements topo.Lease.
func (l *lease) Confirmed() time.Time { return time.Unix(0, l.confirmed.Load()) }

// Revoke implements topo.Lease.
func (l *lease) Revoke(ctx context.Context) error {
	l.stop()
	<-l.done
	ctx, cancel := l.store.request(ctx)
	defer cancel()
	if _, err := l.store.client.Revoke(ctx, l.id); err != nil {
		err = l.store.failed("revoke", "lease", err)
		if errors.Is(err, topo.ErrLeaseLost) {
			return nil
		}
		return fmt.Errorf("lease %x: %w", l.id, err)
	}
	return nil
}
