package control

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
)

// ensure brings pg_shoal to every database of every node: a database made from template0, or a
// newer pgshoal, leaves some without it.
func (c *Controller) ensure(ctx context.Context, t *term) {
	m := t.follower.Map()
	home, err := m.Node(m.Home)
	if err != nil {
		return // Validate holds for every stored map
	}
	role, like, err := c.likeHome(ctx, home)
	if err != nil {
		c.noteEnsured(ctx, t, home.Name, err)
		return
	}
	var group errgroup.Group
	for _, n := range m.Nodes {
		if n.State == keyspace.NodeJoining {
			continue
		}
		group.Go(func() error {
			cfg, err := c.cfg.Access.Config(n, "")
			if err == nil {
				_, err = catalog.BootstrapNode(ctx, cfg, identity(m, n), role, like)
			}
			c.noteEnsured(ctx, t, n.Name, err)
			return nil
		})
	}
	_ = group.Wait() // each node's problem is noted on its own
}

// ensureNew does it at once for a database that a router has just made: routers tell by the version of
// its schema, and wait.
func (c *Controller) ensureNew(ctx context.Context, t *term) error {
	m := t.follower.Map()
	for {
		next, err := t.follower.Wait(ctx, m.Epoch+1)
		if err != nil {
			return err
		}
		for database, version := range next.Schemas {
			if m.Schemas[database] != version && c.lacksShoal(ctx, next, database) {
				c.ensure(ctx, t)
				break
			}
		}
		m = next
	}
}

// lacksShoal reports a database without pg_shoal.
func (c *Controller) lacksShoal(ctx context.Context, m *keyspace.Map, database string) bool {
	home, err := m.Node(m.Home)
	if err != nil {
		return false
	}
	cfg, err := c.cfg.Access.Config(home, database)
	if err != nil {
		return false
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return false // dropped meanwhile, or the home node is away
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, is, err := catalog.ReadIdentity(ctx, conn)
	return err == nil && !is
}

func (c *Controller) noteEnsured(ctx context.Context, t *term, node string, err error) {
	if ctx.Err() != nil {
		return
	}
	if t.ensured.set(node, err) && err != nil {
		c.log.Warn("cannot check pg_shoal on a node", "node", node, "error", err)
	}
}

func identity(m *keyspace.Map, n keyspace.Node) catalog.Identity {
	return catalog.Identity{Cluster: m.Cluster, Name: n.Name, ID: n.ID, Home: n.Name == m.Home}
}

// likeHome reads from the home node what all others must have the same.
func (c *Controller) likeHome(ctx context.Context, home keyspace.Node) (catalog.RouterRole, *catalog.Locale, error) {
	cfg, err := c.cfg.Access.Config(home, "")
	if err != nil {
		return catalog.RouterRole{}, nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return catalog.RouterRole{}, nil, fmt.Errorf("home node %s: %w", home.Name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return c.readLikeHome(ctx, conn)
}

func (c *Controller) readLikeHome(ctx context.Context, conn *pgx.Conn) (catalog.RouterRole, *catalog.Locale, error) {
	locale, err := catalog.ReadLocale(ctx, conn)
	if err != nil {
		return catalog.RouterRole{}, nil, err
	}
	verifier, err := c.serviceVerifier(ctx, conn)
	if err != nil {
		return catalog.RouterRole{}, nil, err
	}
	return catalog.RouterRole{Name: c.cfg.ServiceUser, Verifier: verifier}, &locale, nil
}

// serviceVerifier keeps the stored verifier while it fits the configured password: a fresh one has
// another salt, and roles must be the same on all nodes.
func (c *Controller) serviceVerifier(ctx context.Context, conn *pgx.Conn) (string, error) {
	var stored *string
	err := conn.QueryRow(ctx, `SELECT rolpassword FROM pg_authid WHERE rolname = $1`, c.cfg.ServiceUser).Scan(&stored)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return "", fmt.Errorf("read the verifier of role %s: %w", c.cfg.ServiceUser, err)
	}
	if stored != nil {
		if v, err := pgwire.ParseVerifier(*stored); err == nil {
			keys, err := pgwire.DeriveKeys(c.cfg.ServicePassword, v.Salt, v.Iterations)
			if err == nil && keys.StoredKey == v.StoredKey {
				return *stored, nil
			}
		}
	}
	return pgwire.BuildVerifier(c.cfg.ServicePassword)
}
