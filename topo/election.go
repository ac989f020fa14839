package topo

import (
	"context"
	"errors"
	"fmt"
	"time"
)

const prefixElection = "election/"

// Leadership is held from a won election until it is lost or given up.
type Leadership struct {
	lease Lease
}

// Campaign waits until who leads the named election, or until ctx ends. While the store is away
// it goes on waiting. ttl is how long after the death of a leader another one can be elected.
//
// A leader that is cut off learns of its loss at about the time at which the store lets another
// one in, not surely before: what a leader does must be safe against that, as edits of the map
// are, which compare before they write.
func Campaign(ctx context.Context, s Store, election, who string, ttl time.Duration) (*Leadership, error) {
	key := prefixElection + election
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	var retry <-chan time.Time
	vacant := false
	events := s.Watch(watch, key)
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return nil, fmt.Errorf("campaign in election %s: %w", election, ended(ctx))
			}
			vacant = isVacant(e, key, vacant)
		case <-retry:
		}
		retry = nil
		if !vacant {
			continue
		}
		lead, err := stand(ctx, s, key, who, ttl)
		if err == nil {
			return lead, nil
		}
		if ctx.Err() == nil && !errors.Is(err, ErrConflict) {
			retry = time.After(retryDelay)
		}
	}
}

func ended(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return ErrClosed
}

// isVacant says whether nobody leads after an event, given whether it was so before.
func isVacant(e Event, key string, before bool) bool {
	if e.Err != nil {
		return false
	}
	if e.Full {
		before = true
	}
	for _, k := range e.Deletes {
		before = before || k == key
	}
	for _, p := range e.Puts {
		before = before && p.Key != key
	}
	return before
}

// stand tries once to become the leader of a vacant election.
func stand(ctx context.Context, s Store, key, who string, ttl time.Duration) (*Leadership, error) {
	lease, err := s.Lease(ctx, ttl)
	if err != nil {
		return nil, err
	}
	lead := &Leadership{lease: lease}
	if _, err := s.Txn(ctx, []Cond{Absent(key)}, []Op{PutLeased(key, []byte(who), lease)}); err != nil {
		// The revocation also undoes a transaction that happened but got no answer.
		lead.Resign(ctx)
		return nil, err
	}
	return lead, nil
}

// Leader returns who leads the named election, or ErrNotFound.
func Leader(ctx context.Context, s Store, election string) (string, error) {
	e, err := s.Get(ctx, prefixElection+election)
	if err != nil {
		return "", fmt.Errorf("leader of election %s: %w", election, err)
	}
	return string(e.Value), nil
}

// Done is closed when the leadership is over.
func (l *Leadership) Done() <-chan struct{} { return l.lease.Done() }

// Resign ends the leadership; others can be elected at once, or when the ttl is over if the store
// is away.
func (l *Leadership) Resign(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	// Nothing better can be done about a failure than what happens by itself: the lease expires.
	_ = l.lease.Revoke(ctx)
}
