// Package topo keeps what the processes of a cluster must agree on (the map, who is alive, who
// leads) in a small transactional store, so that no process has to trust its own memory of it.
//
// The Store is deliberately little more than etcd's core: everything typed (the map's records,
// members, elections) is written once here on top of it and works the same on every
// implementation. Package topotest holds the suite that each implementation must pass.
package topo

import (
	"context"
	"errors"
	"time"
)

var (
	// ErrNotFound says that there is no such key, or no map yet.
	ErrNotFound = errors.New("not found")
	// ErrConflict says that a condition of a transaction did not hold; nothing was changed.
	ErrConflict = errors.New("changed by someone else in the meantime")
	// ErrExists says that what was to be created is there already.
	ErrExists = errors.New("exists already")
	// ErrUnavailable says that the store could not be asked. A transaction that failed with it
	// may or may not have happened.
	ErrUnavailable = errors.New("topology store is not reachable")
	// ErrUncertain says that the store went away during a change of the map and did not come
	// back in time to say whether the change was made.
	ErrUncertain = errors.New("it is not known whether the change was made")
	// ErrLeaseLost says that the lease given with a write is no longer alive; nothing was changed.
	ErrLeaseLost = errors.New("lease expired")
	// ErrTooLarge says that a transaction is beyond the limits of the store; nothing was changed.
	ErrTooLarge = errors.New("change is too large for one transaction")
	// ErrClosed says that the store was closed by its owner.
	ErrClosed = errors.New("topology store is closed")
)

// Limits of one transaction. They are etcd's defaults, and every Store enforces them, so that
// what works on one works on all.
const (
	MaxTxnOps   = 128
	MaxTxnBytes = 1536 * 1024
)

// Store is a transactional key-value store with watches and leases. Reads are linearizable.
// Every method honours its context, and none waits longer than a few seconds for a store that
// does not answer: it fails with ErrUnavailable then.
type Store interface {
	// Get returns one entry, or ErrNotFound.
	Get(ctx context.Context, key string) (Entry, error)
	// List returns everything under a prefix as of one revision, sorted by key.
	List(ctx context.Context, prefix string) (Snapshot, error)
	// Txn applies all ops if all conditions hold, else fails with ErrConflict. A key may occur
	// in one op only. It returns the revision that the ops got.
	Txn(ctx context.Context, conds []Cond, ops []Op) (int64, error)
	// Watch tells what is under a prefix and then each change of it, until ctx ends or the
	// store is closed, which closes the channel. See Event for what happens in between.
	Watch(ctx context.Context, prefix string) <-chan Event
	// Lease makes a lease and keeps it alive until it is revoked or the store is closed. When
	// the store cannot be reached for about ttl, the lease and all keys under it are gone.
	Lease(ctx context.Context, ttl time.Duration) (Lease, error)
	// Healthy returns nil when the store answers reads and can take writes.
	Healthy(ctx context.Context) error
	// Close ends all watches and stops keeping leases alive, and waits for both.
	Close() error
}

// Entry is a key with its value. Revision is that of the last change of this key.
type Entry struct {
	Key      string
	Value    []byte
	Revision int64
}

// Snapshot is what the store held at one revision.
type Snapshot struct {
	Revision int64
	Entries  []Entry
}

// Cond holds when the key was last changed at Revision; 0 when the key does not exist.
type Cond struct {
	Key      string
	Revision int64
}

// Op puts or deletes one key.
type Op struct {
	Key    string
	Value  []byte
	Delete bool
	Lease  Lease // nil for keys that stay
}

// Event is one message of a Watch. The first event, and the first one after each event with an
// Err, is Full: everything under the prefix, which replaces all that was told before. A Full event
// can also come without an Err before it, when the history in between is gone (compaction). An
// event never shows a part of a transaction; one that spans several has the last state of each key.
type Event struct {
	Revision int64
	Full     bool
	Puts     []Entry
	Deletes  []string
	// Err says that the store is away, so what was told last may be out of date. The watch goes
	// on trying by itself.
	Err error
}

// Lease holds keys alive. It is kept alive by the store that made it.
type Lease interface {
	// ID identifies the lease within its store.
	ID() int64
	// Done is closed when the lease was lost or revoked.
	Done() <-chan struct{}
	// Confirmed is when the store last said that the lease lives.
	Confirmed() time.Time
	// Revoke ends the lease and deletes its keys. Without an answer from the store they go
	// when the ttl is over.
	Revoke(ctx context.Context) error
}

// Absent is the condition that a key does not exist.
func Absent(key string) Cond { return Cond{Key: key} }

// Put writes a key.
func Put(key string, value []byte) Op { return Op{Key: key, Value: value} }

// PutLeased writes a key that goes with the lease.
func PutLeased(key string, value []byte, lease Lease) Op {
	return Op{Key: key, Value: value, Lease: lease}
}

// Delete removes a key; a key that does not exist is fine.
func Delete(key string) Op { return Op{Key: key, Delete: true} }
