package control

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

const (
	// keyIdentity keeps the identity of a cluster whose first start is under way, so that a second
	// try recognises the nodes that the first one has marked.
	keyIdentity = "control/identity"
	// bootstrapRetry is the pause after a first start that failed.
	bootstrapRetry = 2 * time.Second
)

var errNoMap = errors.New("the topology store has no map yet and the configuration has no nodes.bootstrap")

// awaitMap returns when the cluster has a map; it makes the first one if it is told the nodes.
func (c *Controller) awaitMap(ctx context.Context) error {
	defer c.setStarting(nil)
	for {
		_, err := topo.LoadMap(ctx, c.store)
		if errors.Is(err, topo.ErrNotFound) {
			err = errNoMap
			if len(c.cfg.Bootstrap) > 0 {
				err = c.bootstrap(ctx)
			}
		}
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if c.setStarting(err) {
			c.log.Error("the cluster cannot start yet, trying again", "error", err)
		}
		select {
		case <-time.After(bootstrapRetry):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// setStarting records why there is no map yet and says whether that is news.
func (c *Controller) setStarting(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := (err == nil) != (c.starting == nil) || err != nil && err.Error() != c.starting.Error()
	c.starting = err
	return news
}

// bootstrap turns the configured servers into nodes and creates the map. The first server may
// already hold tables, which become local tables; the others must be empty.
func (c *Controller) bootstrap(ctx context.Context) error {
	cluster, err := c.clusterIdentity(ctx)
	if err != nil {
		return err
	}
	m := keyspace.NewMap(cluster)
	servers := make([]*candidate, len(c.cfg.Bootstrap))
	for i, b := range c.cfg.Bootstrap {
		if servers[i], err = c.candidate(ctx, b.DSN); err != nil {
			return fmt.Errorf("node %s: %w", b.Name, err)
		}
		if m, err = m.AddNode(keyspace.Node{
			Name: b.Name, Addresses: servers[i].addresses, Region: b.Region, Weight: b.Weight, State: keyspace.NodeActive,
		}); err != nil {
			return err
		}
	}
	m.Epoch = 1
	warnings, err := c.bootstrapNodes(ctx, m, servers)
	if err != nil {
		return err
	}
	if err := topo.CreateMap(ctx, c.store, m); err != nil {
		return err
	}
	for _, w := range warnings {
		c.log.Warn("a node could be better", "warning", w)
	}
	c.log.Info("cluster created", "cluster", cluster, "nodes", len(m.Nodes), "home", m.Home)
	return nil
}

func (c *Controller) clusterIdentity(ctx context.Context) (string, error) {
	fresh := strings.ToLower(rand.Text()[:16])
	_, err := c.store.Txn(ctx, []topo.Cond{topo.Absent(keyIdentity)}, []topo.Op{topo.Put(keyIdentity, []byte(fresh))})
	if err == nil {
		return fresh, nil
	}
	if !errors.Is(err, topo.ErrConflict) {
		return "", err
	}
	e, err := c.store.Get(ctx, keyIdentity)
	return string(e.Value), err
}

func (c *Controller) bootstrapNodes(ctx context.Context, m *keyspace.Map, servers []*candidate) (all []string, err error) {
	role, like, err := c.readServer(ctx, servers[0].config)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", m.Home, err)
	}
	for i, b := range c.cfg.Bootstrap {
		n, err := m.Node(b.Name)
		if err != nil {
			return nil, err
		}
		warnings, err := catalog.BootstrapNode(ctx, servers[i].config, identity(m, n), role, like)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			copied, err := c.copySchema(ctx, servers[0], servers[i])
			if err != nil {
				return nil, fmt.Errorf("node %s: %w", b.Name, err)
			}
			warnings = append(warnings, copied...)
		}
		for _, w := range warnings {
			all = append(all, "node "+b.Name+": "+w)
		}
	}
	return all, nil
}

func (c *Controller) readServer(ctx context.Context, cfg *pgx.ConnConfig) (catalog.RouterRole, *catalog.Locale, error) {
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return catalog.RouterRole{}, nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return c.readLikeHome(ctx, conn)
}
