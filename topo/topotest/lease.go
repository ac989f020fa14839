package topotest

import (
	"errors"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

func testLeaseRevoked(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	lease, err := s.Lease(ctx, 10*time.Second)
	check(t, err)
	_, err = s.Txn(ctx, nil, []topo.Op{
		topo.PutLeased("l/a", nil, lease), topo.PutLeased("l/b", nil, lease), topo.Put("l/stays", nil),
	})
	check(t, err)
	put(t, s, "l/b", "no longer under the lease")
	check(t, lease.Revoke(ctx))
	closed(t, "revoked lease", lease.Done())
	snap, err := s.List(ctx, "l/")
	check(t, err)
	wantKeys(t, snap.Entries, "l/b", "l/stays")

	_, err = s.Txn(ctx, nil, []topo.Op{topo.Put("l/c", nil), topo.PutLeased("l/d", nil, lease)})
	if !errors.Is(err, topo.ErrLeaseLost) {
		t.Fatalf("write under a lease that is gone: %v", err)
	}
	if _, err := s.Get(ctx, "l/c"); !errors.Is(err, topo.ErrNotFound) {
		t.Fatalf("the write was made in part: %v", err)
	}
	check(t, lease.Revoke(ctx)) // again is fine
}

// testLeaseExpires cuts off the owner of a lease: both sides must learn that it is over, and not
// while it was kept alive.
func testLeaseExpires(t *testing.T, svc Service) {
	ctx := testContext(t)
	owner, link := svc.Connect(t)
	lease, err := owner.Lease(ctx, ttl)
	check(t, err)
	_, err = owner.Txn(ctx, nil, []topo.Op{topo.PutLeased("l/a", nil, lease)})
	check(t, err)
	events := connect(t, svc).Watch(ctx, "l/")
	wantKeys(t, next(t, events).Puts, "l/a")
	select {
	case <-lease.Done():
		t.Fatal("the lease was not kept alive")
	case e := <-events:
		t.Fatalf("the key of a living lease changed: %+v", e)
	case <-time.After(ttl * 3 / 2):
	}
	link.Cut()
	if e := next(t, events); len(e.Deletes) != 1 {
		t.Fatalf("event %+v", e)
	}
	closed(t, "lease of an owner that is cut off", lease.Done())
}
