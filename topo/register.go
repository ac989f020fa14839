package topo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"
)

const (
	// retryDelay is how long a registration or a candidate waits after a failure.
	retryDelay = 250 * time.Millisecond
	// farewell bounds what a process that stops spends on telling the store.
	farewell = 2 * time.Second
)

// Registration keeps a member listed for as long as its process lives.
type Registration struct {
	store  Store
	ttl    time.Duration
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}
	kick   chan struct{}

	lease Lease // of the keep goroutine

	mu      sync.Mutex
	member  Member
	wanted  int // version of member
	stored  int // version of member in the store
	written chan struct{}
	problem error
	listed  Lease // under which the store lists the member; nil when it may not
}

// Register lists a member under a lease and keeps it listed: when the lease was lost because the
// store was away, it registers again by itself. A router gets a number, its old one if it still
// can. A name that a living member of the same role has is waited for, since a killed process
// stays listed until its lease is over; when ctx ends first, the error is ErrExists.
func Register(ctx context.Context, s Store, m Member, ttl time.Duration, log *slog.Logger) (*Registration, error) {
	if err := m.validate(); err != nil {
		return nil, fmt.Errorf("register: %w", err)
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &Registration{
		store: s, ttl: ttl, log: log, cancel: cancel,
		done: make(chan struct{}), kick: make(chan struct{}, 1),
		member: m, wanted: 1, written: make(chan struct{}),
	}
	go r.keep(run)
	if err := r.wait(ctx, 1); err != nil {
		r.Close()
		return nil, fmt.Errorf("register %s %s: %w", m.Role, m.Name, err)
	}
	return r, nil
}

// Member returns the member as it is to be listed.
func (r *Registration) Member() Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.member
}

// Listed reports that others still count this process as alive: the store has confirmed its lease so
// recently that the lease cannot be over yet. It says no in good time before others do.
func (r *Registration) Listed() bool {
	r.mu.Lock()
	lease := r.listed
	r.mu.Unlock()
	return lease != nil && time.Since(lease.Confirmed()) < r.ttl*2/3
}

// Update changes what is listed and waits until the store has it. When ctx ends first the change
// is not lost: it is stored as soon as the store can be reached. Name, role and number stay.
func (r *Registration) Update(ctx context.Context, change func(*Member)) error {
	r.mu.Lock()
	before := r.member
	change(&r.member)
	r.member.Name, r.member.Role, r.member.Number = before.Name, before.Role, before.Number
	r.wanted++
	version := r.wanted
	r.mu.Unlock()
	select {
	case r.kick <- struct{}{}:
	default:
	}
	if err := r.wait(ctx, version); err != nil {
		return fmt.Errorf("update %s %s: %w", before.Role, before.Name, err)
	}
	return nil
}

// Close takes the member off the list. Without the store that happens when the lease is over.
func (r *Registration) Close() {
	r.cancel()
	<-r.done
}

func (r *Registration) wait(ctx context.Context, version int) error {
	for {
		r.mu.Lock()
		stored, written, problem := r.stored, r.written, r.problem
		r.mu.Unlock()
		if stored >= version {
			return nil
		}
		select {
		case <-written:
		case <-r.done:
			return ErrClosed
		case <-ctx.Done():
			if problem == nil {
				problem = ErrUnavailable // nothing failed yet, but no answer came either
			}
			return fmt.Errorf("%w: %w", context.Cause(ctx), problem)
		}
	}
}

// keep is the only writer of the member's keys.
func (r *Registration) keep(ctx context.Context) {
	defer close(r.done)
	defer r.drop(ctx)
	for {
		err := r.sync(ctx)
		if ctx.Err() != nil {
			return
		}
		r.report(err)
		var retry <-chan time.Time
		var lost <-chan struct{}
		if err != nil {
			retry = time.After(retryDelay)
		}
		if r.lease != nil {
			lost = r.lease.Done()
		}
		select {
		case <-ctx.Done():
			return
		case <-r.kick:
		case <-retry:
		case <-lost:
			r.log.Warn("the lease of this process expired, registering again", "member", r.Member().Name)
			r.unlist()
		}
	}
}

func (r *Registration) unlist() {
	r.lease = nil
	r.mu.Lock()
	r.listed = nil
	r.mu.Unlock()
}

// sync brings the store to what is wanted, with a lease if there is none.
func (r *Registration) sync(ctx context.Context) error {
	r.mu.Lock()
	m, version, stored := r.member, r.wanted, r.stored
	r.mu.Unlock()
	if r.lease != nil && stored == version {
		return nil
	}
	var err error
	if r.lease == nil {
		m.Number, err = r.enter(ctx, m)
	} else {
		err = r.write(ctx, m)
	}
	if errors.Is(err, ErrLeaseLost) {
		r.drop(ctx)
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	old := r.member.Number
	r.stored, r.member.Number, r.listed = version, m.Number, r.lease
	r.mu.Unlock()
	if old != 0 && old != m.Number {
		r.log.Warn("another router took the number of this one", "member", m.Name, "old", old, "new", m.Number)
	}
	return nil
}

// enter takes a lease and claims the name and, for a router, a number under it.
func (r *Registration) enter(ctx context.Context, m Member) (int, error) {
	if err := r.awaitName(ctx, &m); err != nil {
		return 0, err
	}
	lease, err := r.store.Lease(ctx, r.ttl)
	if err != nil {
		return 0, err
	}
	r.lease = lease
	if err := r.claim(ctx, &m); err != nil {
		// Whatever an unanswered transaction may have claimed goes with the lease.
		r.drop(ctx)
		return 0, err
	}
	return m.Number, nil
}

// awaitName waits while another living member has the name.
func (r *Registration) awaitName(ctx context.Context, m *Member) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for e := range r.store.Watch(ctx, m.key()) {
		if e.Err != nil {
			return e.Err
		}
		// The prefix also fits longer names.
		held := slices.IndexFunc(e.Puts, func(p Entry) bool { return p.Key == m.key() })
		if held < 0 && (e.Full || slices.Contains(e.Deletes, m.key())) {
			return nil
		}
		if held >= 0 {
			if other, err := decodeMember(e.Puts[held]); err == nil {
				r.report(fmt.Errorf("%w: a %s of this name is alive, process %d at %s",
					ErrExists, m.Role, other.PID, other.Address))
			}
		}
	}
	return ctx.Err()
}

func (r *Registration) claim(ctx context.Context, m *Member) error {
	for {
		conds := []Cond{Absent(m.key())}
		var ops []Op
		if m.Role == RoleRouter {
			n, err := r.freeNumber(ctx, m.Number)
			if err != nil {
				return err
			}
			m.Number = n
			conds = append(conds, Absent(numberKey(n)))
			ops = append(ops, PutLeased(numberKey(n), []byte(m.Name), r.lease))
		}
		value, err := json.Marshal(m)
		if err != nil {
			return err
		}
		_, err = r.store.Txn(ctx, conds, append(ops, PutLeased(m.key(), value, r.lease)))
		if !errors.Is(err, ErrConflict) {
			return err
		}
		// Either the number or the name was taken just now; only the number has alternatives.
		if _, err := r.store.Get(ctx, m.key()); !errors.Is(err, ErrNotFound) {
			return fmt.Errorf("%w: a %s of this name has just registered", ErrExists, m.Role)
		}
	}
}

// freeNumber returns the wanted number if no living router has it, else the lowest free one.
func (r *Registration) freeNumber(ctx context.Context, wanted int) (int, error) {
	snap, err := r.store.List(ctx, prefixNumber)
	if err != nil {
		return 0, err
	}
	taken := map[string]bool{}
	for _, e := range snap.Entries {
		taken[e.Key] = true
	}
	if wanted > 0 && !taken[numberKey(wanted)] {
		return wanted, nil
	}
	for n := 1; n <= maxNumber; n++ {
		if !taken[numberKey(n)] {
			return n, nil
		}
	}
	return 0, errors.New("all " + strconv.Itoa(maxNumber) + " router numbers are taken")
}

func (r *Registration) write(ctx context.Context, m Member) error {
	value, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = r.store.Txn(ctx, nil, []Op{PutLeased(m.key(), value, r.lease)})
	return err
}

// drop gives the lease back, and with it the keys, also when ctx is over.
func (r *Registration) drop(ctx context.Context) {
	if r.lease == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	if err := r.lease.Revoke(ctx); err != nil && !errors.Is(err, ErrLeaseLost) {
		r.log.Info("could not sign off, the lease will expire by itself", "member", r.Member().Name, "error", err)
	}
	r.unlist()
}

// report wakes those who wait for a version, and tells them what is in the way.
func (r *Registration) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = err
	close(r.written)
	r.written = make(chan struct{})
}
