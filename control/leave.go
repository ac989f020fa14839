package control

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

const (
	// ackTimeout bounds how long a change waits for routers to take a new map.
	ackTimeout = 30 * time.Second
	// lockTimeout bounds how long a change waits for a running schema change.
	lockTimeout = 30 * time.Second
)

// withSchemaLock runs work while nobody else changes the schema of the cluster; its context ends
// when the lock is lost.
func (c *Controller) withSchemaLock(ctx context.Context, work func(context.Context) error) error {
	wait, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock, err := topo.Lock(wait, c.store, topo.LockSchema, c.cfg.MemberTTL)
	if err != nil {
		if wait.Err() != nil && ctx.Err() == nil {
			return conflict("Wait until it has finished, then try again.",
				"a schema change is running and did not finish within %v", lockTimeout)
		}
		return err
	}
	defer lock.Unlock(ctx)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		select {
		case <-lock.Done():
			stop(fmt.Errorf("the lock on the schema was lost: %w", topo.ErrLeaseLost))
		case <-ctx.Done():
		}
	}()
	defer func() { stop(nil); <-lost }()
	return work(ctx)
}

// waitAcked waits until all routers work with an epoch.
func (c *Controller) waitAcked(ctx context.Context, epoch uint64) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	return topo.WaitAcked(ctx, c.store, epoch, "")
}

// waitQuiet waits until all routers work with an epoch and nothing is in flight behind its fences.
func (c *Controller) waitQuiet(ctx context.Context, epoch uint64, fences ...string) error {
	ctx, cancel := context.WithTimeout(ctx, ackTimeout)
	defer cancel()
	return topo.WaitQuiet(ctx, c.store, epoch, fences...)
}

// RemoveNode takes a node that holds nothing out of the map. The server itself is left as it is.
func (c *Controller) RemoveNode(ctx context.Context, name string) (*keyspace.Map, error) {
	if err := c.checkLeaving(ctx, name); err != nil {
		return nil, err
	}
	var next *keyspace.Map
	err := c.withSchemaLock(ctx, func(ctx context.Context) error {
		m, err := topo.LoadMap(ctx, c.store)
		if err == nil {
			err = c.settleNode(ctx, m, name)
		}
		if err != nil {
			return err
		}
		next, err = topo.UpdateMap(ctx, c.store, func(m *keyspace.Map) (*keyspace.Map, error) { return withoutNode(m, name) })
		return err
	})
	if err != nil {
		return nil, err
	}
	c.log.Info("node removed", "node", name, "epoch", next.Epoch)
	if err := c.waitAcked(ctx, next.Epoch); err != nil {
		c.log.Warn("not all routers know yet that a node left", "node", name, "error", err)
	}
	return next, nil
}

// checkLeaving refuses before the lock is waited for.
func (c *Controller) checkLeaving(ctx context.Context, name string) error {
	m, err := topo.LoadMap(ctx, c.store)
	if err != nil {
		return err
	}
	_, err = withoutNode(m, name)
	return err
}

// withoutNode is the map without a node that may leave.
func withoutNode(m *keyspace.Map, name string) (*keyspace.Map, error) {
	if _, err := m.Node(name); err != nil {
		return nil, notFound("See pgshoal node list.", "there is no node %q", name)
	}
	if name == m.Home {
		return nil, conflict("", "node %q is the home node: the local tables are there", name)
	}
	if n := m.ShardsOf(name); n > 0 {
		return nil, conflict("Move its shards to other nodes first; see pgshoal shard list.", "node %q still holds %d shards", name, n)
	}
	return dropNode(m, name), nil
}

// dropNode takes a node without shards out. Its id is not given again.
func dropNode(m *keyspace.Map, name string) *keyspace.Map {
	next := *m
	next.Epoch++
	next.Nodes = slices.DeleteFunc(slices.Clone(m.Nodes), func(n keyspace.Node) bool { return n.Name == name })
	return &next
}

// dropJoining takes out nodes whose joining died with an earlier leader; only leaders let nodes join.
func (c *Controller) dropJoining(ctx context.Context) error {
	var dropped []string
	_, err := topo.UpdateMap(ctx, c.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		dropped = dropped[:0]
		next := m
		for _, n := range m.Nodes {
			if n.State == keyspace.NodeJoining {
				next = dropNode(next, n.Name)
				dropped = append(dropped, n.Name)
			}
		}
		return next, nil
	})
	if err == nil && len(dropped) > 0 {
		c.log.Warn("took nodes out of the map that an earlier controller did not finish to add", "nodes", dropped)
	}
	return err
}
