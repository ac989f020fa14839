package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// absences remembers since when the owners of fences are not among the members.
type absences map[string]time.Time

// update returns the owners that have been away for longer than patience. An owner that came back
// starts anew.
func (a absences) update(owners []string, alive func(string) bool, now time.Time, patience time.Duration) []string {
	for owner := range a {
		if !slices.Contains(owners, owner) || alive(owner) {
			delete(a, owner)
		}
	}
	var gone []string
	for _, owner := range owners {
		if alive(owner) {
			continue
		}
		since, known := a[owner]
		if !known {
			a[owner] = now
			continue
		}
		if now.Sub(since) > patience && !slices.Contains(gone, owner) {
			gone = append(gone, owner)
		}
	}
	return gone
}

// removeFences takes the fences of processes away that are gone, so that statements do not wait
// forever. It is patient: a process that only lost its lease registers again within one TTL.
func (c *Controller) removeFences(ctx context.Context, t *term, gone absences) {
	m := t.follower.Map()
	if !t.follower.Connected() {
		clear(gone) // nothing is known about who lives
		return
	}
	var owners []string
	for _, f := range m.Fences {
		owners = append(owners, f.Router)
	}
	if len(owners) == 0 {
		clear(gone)
		return
	}
	members, err := topo.Members(ctx, c.store, "")
	if err != nil {
		clear(gone)
		return
	}
	alive := func(name string) bool {
		return slices.ContainsFunc(members, func(m topo.Member) bool { return m.Name == name })
	}
	for _, owner := range gone.update(owners, alive, time.Now(), 2*c.cfg.MemberTTL) {
		if err := c.removeFencesOf(ctx, owner); err != nil && ctx.Err() == nil {
			c.log.Warn("cannot remove the fences of a process that is gone", "process", owner, "error", err)
		}
	}
}

var errBack = errors.New("the process is back")

func (c *Controller) removeFencesOf(ctx context.Context, owner string) error {
	removed := 0
	_, err := topo.UpdateMap(ctx, c.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		members, err := topo.Members(ctx, c.store, "")
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(members, func(m topo.Member) bool { return m.Name == owner }) {
			return nil, errBack
		}
		next := m
		removed = 0
		for _, f := range m.Fences {
			if f.Router != owner {
				continue
			}
			if next, err = next.RemoveFence(f.ID); err != nil {
				return nil, err
			}
			// It may have died between its commit and telling the others of the new schema.
			if next, err = next.BumpSchema(f.Database); err != nil {
				return nil, err
			}
			removed++
		}
		return next, nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.counters.fencesRemoved += uint64(removed)
	c.mu.Unlock()
	c.log.Info("removed the fences of a process that is gone", "process", owner, "fences", removed)
	return nil
}
