package topo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const prefixLock = "locks/"

// LockSchema is the lock of whoever changes which nodes there are: one at a time. Changes of the
// schema through routers do not take it; while a node is joining they are held back, see FenceJoining.
const LockSchema = "schema"

// FenceJoining names, among the quiet fences of routers, the one that is up while the map has a
// joining node: it holds back changes of the schema in all databases.
const FenceJoining = "joining"

// HeldLock is a lock of the whole cluster, held until it is unlocked or its lease is lost.
type HeldLock struct {
	lease Lease
}

// Lock takes the named lock, waiting while someone else holds it. A store that is away is an error
// at once: nobody can know then whether the lock is free. ttl is how long after the death of a
// holder another one can take it; what a holder does must therefore be safe against learning late
// that the lock is lost, as edits of the map are, which compare before they write.
func Lock(ctx context.Context, s Store, name string, ttl time.Duration) (*HeldLock, error) {
	key := prefixLock + name
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	vacant := false
	for e := range s.Watch(watch, key) {
		if e.Err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, e.Err)
		}
		if vacant = isVacant(e, key, vacant); !vacant {
			continue
		}
		lead, err := stand(ctx, s, key, name, ttl)
		if err == nil {
			return &HeldLock{lease: lead.lease}, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
	}
	return nil, fmt.Errorf("lock %s: %w", name, ended(ctx))
}

// Done is closed when the lock is no longer held.
func (l *HeldLock) Done() <-chan struct{} { return l.lease.Done() }

// Unlock lets others take the lock, also when ctx is over; without the store that happens when the
// ttl is over.
func (l *HeldLock) Unlock(ctx context.Context) {
	(&Leadership{lease: l.lease}).Resign(ctx)
}
