package localcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/config"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/etcdtopo"
)

// clusterName is the local cluster's name in its topology store, which it shares with nobody.
const clusterName = "local"

// found turns the servers of a first start into nodes and writes the first map.
func (c *cluster) found(ctx context.Context, store topo.Store) error {
	verifier, err := newVerifier(c.servicePassword)
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	for _, n := range c.state.Nodes {
		g.Go(func() error { return c.bootstrap(gctx, n, verifier) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	m := keyspace.NewMap(c.state.Cluster)
	for _, n := range c.state.Nodes {
		m, err = m.AddNode(keyspace.Node{
			Name: n.Name, ID: n.ID, Addresses: addresses(c.state, n), Weight: 1, State: keyspace.NodeActive,
		})
		if err != nil {
			return fmt.Errorf("make the first map: %w", err)
		}
	}
	if err := topo.CreateMap(ctx, store, m); err != nil {
		return fmt.Errorf("write the first map: %w", err)
	}
	return nil
}

func (c *cluster) bootstrap(ctx context.Context, n Node, verifier string) error {
	admin, err := adminConfig(n.Servers[0], c.superPassword)
	if err != nil {
		return err
	}
	warnings, err := catalog.BootstrapNode(ctx, admin,
		catalog.Identity{Cluster: c.state.Cluster, Name: n.Name, ID: n.ID, Home: n.ID == 0},
		catalog.RouterRole{Name: serviceUser, Verifier: verifier}, nil)
	if err != nil {
		return fmt.Errorf("make %s a node: %w", n.Name, err)
	}
	for _, w := range warnings {
		c.log.Warn(w, "node", n.Name)
	}
	return nil
}

func addresses(s *State, n Node) []string {
	list := make([]string, len(n.Servers))
	for i, server := range n.Servers {
		list[i] = s.Address(server)
	}
	return list
}

// reconcile checks that the topology store belongs to this cluster, and tells the map where the
// servers are when a port had to change.
func (c *cluster) reconcile(ctx context.Context, store topo.Store) error {
	m, err := topo.LoadMap(ctx, store)
	if errors.Is(err, topo.ErrNotFound) {
		return &Problem{
			Sentence: fmt.Sprintf("the topology store in %s is empty, although the cluster was created before", c.layout.EtcdDir()),
			Way:      "restore that directory from a backup",
			Cause:    err,
		}
	}
	if err != nil {
		return err
	}
	if m.Cluster != c.state.Cluster {
		return &Problem{
			Sentence: fmt.Sprintf("the topology store in %s belongs to another cluster (%s, not %s)", c.layout.EtcdDir(), m.Cluster, c.state.Cluster),
			Way:      "put back the directory that belongs here, or choose another with --dir",
		}
	}
	if err := c.upgrade(ctx); err != nil {
		return err
	}
	if !c.moved(m) {
		return nil
	}
	_, err = topo.UpdateMap(ctx, store, func(m *keyspace.Map) (*keyspace.Map, error) {
		for _, n := range c.state.Nodes {
			if _, err := m.Node(n.Name); err != nil {
				continue // somebody removed it
			}
			next, err := m.SetNodeAddresses(n.Name, addresses(c.state, n))
			if err != nil {
				return nil, err
			}
			m = next
		}
		return m, nil
	})
	return err
}

// upgrade brings pg_shoal of a cluster that an older pgshoal made to this one's version, before anybody
// works with it.
func (c *cluster) upgrade(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, n := range c.state.Nodes {
		g.Go(func() error {
			if replacedBy(c.layout, n, n.Servers[0]) != "" {
				return nil // a server that was promoted in its place is the primary; the controller finds it
			}
			standby, err := c.isStandby(ctx, n.Servers[0])
			if err != nil || standby {
				return err // after a failover another server is the primary; the controller finds it
			}
			err = c.bootstrap(ctx, n, "")
			if errors.Is(err, catalog.ErrOtherBuild) {
				return &Problem{
					Sentence: fmt.Sprintf("the cluster in %s was made by a development build of pgshoal that this one cannot follow", c.layout.Dir),
					Way:      "use the build that made it: dump the data there with pg_dump, and restore it into a new cluster",
					Cause:    err,
				}
			}
			return err
		})
	}
	return g.Wait()
}

func (c *cluster) isStandby(ctx context.Context, server Server) (standby bool, err error) {
	admin, err := adminConfig(server, c.superPassword)
	if err != nil {
		return false, err
	}
	conn, err := pgx.ConnectConfig(ctx, admin)
	if err != nil {
		return false, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby)
	return standby, err
}

func (c *cluster) moved(m *keyspace.Map) bool {
	return slices.ContainsFunc(m.Nodes, func(known keyspace.Node) bool {
		n, ok := c.node(known.Name)
		return ok && !slices.Equal(known.Addresses, addresses(c.state, n))
	})
}

func (c *cluster) node(name string) (Node, bool) {
	i := slices.IndexFunc(c.state.Nodes, func(n Node) bool { return n.Name == name })
	if i < 0 {
		return Node{}, false
	}
	return c.state.Nodes[i], true
}

// writeConfig writes the file that the cluster's routers and controllers read. Its router addresses
// are for further ones that people start; the cluster's own gets its port as an argument.
func (c *cluster) writeConfig() error {
	conf := config.Default()
	conf.Cluster.Name = clusterName
	conf.Etcd.Endpoints = []string{etcdEndpoint(c.state)}
	conf.Nodes.ServiceUser = serviceUser
	conf.Nodes.ServicePasswordFile = c.layout.serviceFile()
	conf.Nodes.AdminUser = superuser
	conf.Nodes.AdminPasswordFile = c.layout.superuserFile()
	conf.Nodes.AdminDatabase = adminDatabase
	conf.Nodes.SSLMode = "disable" // the nodes listen on loopback only
	conf.Router.Listen = "127.0.0.1:0"
	conf.Router.HTTP = "127.0.0.1:0"
	conf.Router.DrainTimeout = drainPatience - 10*time.Second
	// Two routers and the controllers together stay below the servers' max_connections.
	conf.Router.Pool.MaxPerNode = 120
	conf.Controller.HTTP = c.state.HTTP // commands find the admin API here; further controllers step aside
	conf.Controller.TokenFile = c.layout.TokenFile()
	conf.Controller.Federate = true
	if err := config.Save(c.layout.ConfigFile(), conf); err != nil {
		return fmt.Errorf("write the cluster's configuration: %w", err)
	}
	return nil
}

func openStore(s *State) (topo.Store, error) {
	store, err := etcdtopo.Open(etcdtopo.Config{Endpoints: []string{etcdEndpoint(s)}, Cluster: clusterName})
	if err != nil {
		return nil, fmt.Errorf("open the topology store: %w", err)
	}
	return store, nil
}
