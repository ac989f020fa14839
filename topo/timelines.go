package topo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/keyspace"
)

const prefixTimeline = "timelines/"

// Timelines remembers the highest timeline on which a primary of each node was seen. A server on a lower one was left
// behind by a failover, even when it takes itself for a primary and is the only one that answers.
type Timelines struct{ Store Store }

// seenTimeline counts for a node as long as it has one of the servers that it had then.
type seenTimeline struct {
	Timeline  uint32   `json:"timeline"`
	Addresses []string `json:"addresses"`
}

func timelineKey(n keyspace.Node) string { return prefixTimeline + strconv.Itoa(n.ID) }

func (s seenTimeline) of(n keyspace.Node) uint32 {
	if slices.ContainsFunc(n.Addresses, func(a string) bool { return slices.Contains(s.Addresses, a) }) {
		return s.Timeline
	}
	return 0
}

// Highest is the highest timeline that was seen of a node, 0 when none was.
func (t Timelines) Highest(ctx context.Context, n keyspace.Node) (uint32, error) {
	seen, _, err := t.get(ctx, n)
	return seen.of(n), err
}

// Raise notes the timeline of a primary. It never goes down.
func (t Timelines) Raise(ctx context.Context, n keyspace.Node, timeline uint32) error {
	for {
		seen, revision, err := t.get(ctx, n)
		if err != nil {
			return err
		}
		if seen.of(n) >= timeline {
			return nil
		}
		value, err := json.Marshal(seenTimeline{timeline, n.Addresses})
		if err != nil {
			return err
		}
		_, err = t.Store.Txn(ctx, []Cond{{timelineKey(n), revision}}, []Op{Put(timelineKey(n), value)})
		if !errors.Is(err, ErrConflict) {
			return err
		}
	}
}

func (t Timelines) get(ctx context.Context, n keyspace.Node) (seen seenTimeline, revision int64, err error) {
	e, err := t.Store.Get(ctx, timelineKey(n))
	if errors.Is(err, ErrNotFound) {
		return seen, 0, nil
	}
	if err == nil {
		err = json.Unmarshal(e.Value, &seen)
	}
	if err != nil {
		err = fmt.Errorf("timeline of node %q: %w", n.Name, err)
	}
	return seen, e.Revision, err
}

// SeenTimelines are the timelines of all nodes at one moment.
type SeenTimelines map[int]seenTimeline

// Of is the highest timeline that was seen of a node, 0 when none was.
func (s SeenTimelines) Of(n keyspace.Node) uint32 { return s[n.ID].of(n) }

// Follow tells of all timelines now, and again after each change, until ctx ends or the store is closed. It returns
// after the first time; done is closed when nothing more will come.
func (t Timelines) Follow(ctx context.Context, on func(SeenTimelines)) (done <-chan struct{}, err error) {
	events := t.Store.Watch(ctx, prefixTimeline)
	all := SeenTimelines{}
	for e := range events {
		if e.Err != nil {
			continue
		}
		all = all.after(e)
		on(all)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for e := range events {
				if e.Err == nil {
					all = all.after(e)
					on(all)
				}
			}
		}()
		return ended, nil
	}
	return nil, fmt.Errorf("follow timelines: %w", ended(ctx))
}

func (s SeenTimelines) after(e Event) SeenTimelines {
	next := SeenTimelines{}
	if !e.Full {
		maps.Copy(next, s)
	}
	for _, p := range e.Puts {
		var seen seenTimeline
		id, err := strconv.Atoi(strings.TrimPrefix(p.Key, prefixTimeline))
		if err == nil && json.Unmarshal(p.Value, &seen) == nil {
			next[id] = seen
		}
	}
	for _, key := range e.Deletes {
		if id, err := strconv.Atoi(strings.TrimPrefix(key, prefixTimeline)); err == nil {
			delete(next, id)
		}
	}
	return next
}
