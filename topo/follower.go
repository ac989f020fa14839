package topo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
)

// Follower keeps the newest map at hand. When the store is away it keeps the last one, says so,
// and catches up by itself; the map it gives only ever gets newer.
type Follower struct {
	log    *slog.Logger
	onMap  func(*keyspace.Map)
	cancel context.CancelFunc
	done   chan struct{}

	picture *picture // of the follow goroutine

	mu        sync.Mutex
	current   *keyspace.Map
	newer     chan struct{} // closed and replaced with each new map or error
	connected bool
	since     time.Time
	problem   error
}

// NewFollower starts to follow the map and waits until it has one, or until ctx ends; a store
// that has no map yet is waited for as well. onMap, if not nil, is called for every new map, one
// call at a time and the first before NewFollower returns; a slow onMap delays the next map.
// ctx is for the waiting only: the follower lives until Close.
func NewFollower(ctx context.Context, s Store, log *slog.Logger, onMap func(*keyspace.Map)) (*Follower, error) {
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Follower{
		log: log, onMap: onMap, cancel: cancel, done: make(chan struct{}),
		picture: newPicture(), newer: make(chan struct{}), since: time.Now(),
		problem: fmt.Errorf("follow map: %w", ErrUnavailable),
	}
	events := s.Watch(run, prefixMap)
	go f.follow(events)
	if _, err := f.Wait(ctx, 0); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// Map returns the newest map that this follower knows.
func (f *Follower) Map() *keyspace.Map {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.current
}

// Connected says whether the map is known to be up to date.
func (f *Follower) Connected() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.connected
}

// Since returns when Connected last changed.
func (f *Follower) Since() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.since
}

// Wait returns the map once it has at least this epoch and onMap has seen it.
func (f *Follower) Wait(ctx context.Context, epoch uint64) (*keyspace.Map, error) {
	for {
		f.mu.Lock()
		m, newer, problem := f.current, f.newer, f.problem
		f.mu.Unlock()
		if m != nil && m.Epoch >= epoch {
			return m, nil
		}
		select {
		case <-newer:
		case <-f.done:
			return nil, fmt.Errorf("wait for epoch %d of the map: %w", epoch, ErrClosed)
		case <-ctx.Done():
			err := context.Cause(ctx)
			if problem != nil {
				err = fmt.Errorf("%w: %w", err, problem)
			}
			return nil, fmt.Errorf("wait for epoch %d of the map: %w", epoch, err)
		}
	}
}

// Close stops following; Map still returns the last map.
func (f *Follower) Close() {
	f.cancel()
	<-f.done
}

func (f *Follower) follow(events <-chan Event) {
	defer close(f.done)
	for e := range events {
		if e.Err != nil {
			f.set(nil, e.Err)
			continue
		}
		m, err := f.apply(e)
		if err != nil && !errors.Is(err, ErrNotFound) {
			f.log.Error("the map in the topology store cannot be used, keeping the last one", "error", err)
		}
		if m != nil && f.onMap != nil {
			f.onMap(m)
		}
		f.set(m, err)
	}
}

// apply takes an event in and returns the map if it is a newer one.
func (f *Follower) apply(e Event) (*keyspace.Map, error) {
	if e.Full {
		f.picture = newPicture()
	}
	for _, key := range e.Deletes {
		f.picture.remove(key)
	}
	var problem error
	for _, p := range e.Puts {
		// All records are taken in, so that a later event can mend a broken one.
		if err := f.picture.put(p.Key, p.Value); err != nil {
			f.picture.remove(p.Key)
			problem = errors.Join(problem, err)
		}
	}
	if problem != nil {
		return nil, problem
	}
	m, err := f.picture.assemble()
	if err != nil {
		return nil, err
	}
	last := f.Map()
	switch {
	case last == nil:
		return m, nil
	case m.Cluster != last.Cluster:
		return nil, fmt.Errorf("it is the map of cluster %q, this is %q", m.Cluster, last.Cluster)
	case m.Epoch < last.Epoch:
		return nil, fmt.Errorf("it has epoch %d, older than %d: was the store restored from a backup?", m.Epoch, last.Epoch)
	case m.Epoch == last.Epoch:
		return nil, nil
	}
	return m, nil
}

// set records what an event brought: a newer map, nothing new, or a problem.
func (f *Follower) set(m *keyspace.Map, problem error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m != nil {
		f.current = m
	}
	f.problem = problem
	if ok := problem == nil; ok != f.connected {
		if f.current != nil {
			f.logConnection(ok, problem)
		}
		f.connected, f.since = ok, time.Now()
	}
	close(f.newer)
	f.newer = make(chan struct{})
}

func (f *Follower) logConnection(ok bool, problem error) {
	if ok {
		f.log.Info("the map is up to date", "epoch", f.current.Epoch)
		return
	}
	f.log.Warn("the map may be out of date, going on with the last one", "epoch", f.current.Epoch, "error", problem)
}
