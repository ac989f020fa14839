// Package cluster gives tests a whole cluster: real PostgreSQL servers, a topology store and routers
// in the test's own process, so that what clients see can be checked on the nodes behind the
// routers' back. It is apart from shardtest because packages below the router test with that one.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/topo"
)

const (
	// Superuser is the role and database that every cluster has.
	Superuser = "postgres"
	// Password is the superuser's.
	Password = "shoal of herring"
	// TestName is the application_name of connections that go to a server directly.
	TestName = "test"

	servicePassword = "service of the routers"
	setupTimeout    = 60 * time.Second
)

// hostRules makes passwords count over TCP: routers must log in with what clients proved to them.
const hostRules = `local all all trust
local replication all trust
host all all 127.0.0.1/32 scram-sha-256
`

// Options says what the cluster consists of; zero values mean the defaults in the comments.
type Options struct {
	Nodes   int // 3: node1 (home), node2, node3
	Routers int // 1
	// Replicas is how many streaming replicas each node has.
	Replicas int
	// Etcd keeps the map in an embedded etcd server, which StopEtcd and StartEtcd control; without
	// it the map is in memory.
	Etcd bool
	// Regions of the nodes in their order; nodes beyond have none.
	Regions []string
	// Settings of the PostgreSQL servers, as "name=value".
	Settings []string
	// Configure, if set, changes the configuration of the router with this index.
	Configure func(index int, cfg *router.Config)
}

// Cluster is a running cluster; it ends with the test.
type Cluster struct {
	tb    testing.TB
	opts  Options
	log   *logTail
	nodes []*shardtest.Postgres
	// replicas are those of each node, in the order of nodes.
	replicas [][]*shardtest.Postgres
	stores   stores
	store    topo.Store // the tests' own connection
	routers  []*routerRun
}

// Start starts a cluster and stops it when the test ends.
func Start(tb testing.TB, opts Options) *Cluster {
	tb.Helper()
	if opts.Nodes == 0 {
		opts.Nodes = 3
	}
	if opts.Routers == 0 {
		opts.Routers = 1
	}
	c := &Cluster{tb: tb, opts: opts, log: &logTail{}}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	c.startNodes()
	if err := c.setUp(ctx); err != nil {
		tb.Fatalf("start a cluster: %v\n%s", err, c.log)
	}
	for i := range opts.Routers {
		c.routers = append(c.routers, &routerRun{name: fmt.Sprintf("router-%d", i+1), address: "127.0.0.1:0"})
		c.StartRouter(i)
	}
	return c
}

// startNodes starts the servers side by side: initdb takes a second each.
func (c *Cluster) startNodes() {
	c.tb.Helper()
	c.nodes = make([]*shardtest.Postgres, c.opts.Nodes)
	c.replicas = make([][]*shardtest.Postgres, c.opts.Nodes)
	var all sync.WaitGroup
	for i := range c.nodes {
		all.Go(func() {
			c.nodes[i] = shardtest.StartPostgres(c.tb, c.opts.Settings...)
			for range c.opts.Replicas {
				c.replicas[i] = append(c.replicas[i], c.nodes[i].StartReplica())
			}
		})
	}
	all.Wait()
	if c.tb.Failed() {
		c.tb.FailNow() // Fatalf ended only the goroutine it was called in
	}
}

func (c *Cluster) setUp(ctx context.Context) error {
	m := keyspace.NewMap("testcluster")
	var err error
	for i := range c.nodes {
		n := keyspace.Node{Name: nodeName(i), ID: i, Weight: 1, State: keyspace.NodeActive}
		for _, server := range c.servers(i) {
			n.Addresses = append(n.Addresses, server.Address())
		}
		if i < len(c.opts.Regions) {
			n.Region = c.opts.Regions[i]
		}
		m, err = m.AddNode(n)
		if err != nil {
			return err
		}
	}
	super, err := pgwire.BuildVerifier(Password)
	if err != nil {
		return err
	}
	service, err := pgwire.BuildVerifier(servicePassword)
	if err != nil {
		return err
	}
	errs := make([]error, len(c.nodes))
	var all sync.WaitGroup
	for i := range c.nodes {
		all.Go(func() { errs[i] = c.bootstrap(ctx, m, i, super, service) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.stores, err = openStores(ctx, c.tb, c.opts.Etcd, c.logger()); err != nil {
		return err
	}
	if c.store, err = c.stores.connect(); err != nil {
		return err
	}
	c.tb.Cleanup(func() { _ = c.store.Close() })
	return topo.CreateMap(ctx, c.store, m)
}

func (c *Cluster) bootstrap(ctx context.Context, m *keyspace.Map, i int, super, service string) error {
	admin, err := pgx.ParseConfig(c.nodes[i].DSN("", ""))
	if err != nil {
		return err
	}
	n, err := m.Node(nodeName(i))
	if err != nil {
		return err
	}
	id := catalog.Identity{Cluster: m.Cluster, Name: n.Name, ID: n.ID, Home: n.Name == m.Home}
	if _, err := catalog.BootstrapNode(ctx, admin, id, catalog.RouterRole{Verifier: service}, nil); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, admin)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "ALTER ROLE "+Superuser+" PASSWORD '"+super+"'"); err != nil {
		return err
	}
	for _, server := range c.servers(i) {
		if err := restrict(ctx, server); err != nil {
			return err
		}
	}
	return nil
}

// restrict puts hostRules into force on a server.
func restrict(ctx context.Context, server *shardtest.Postgres) error {
	conn, err := pgx.Connect(ctx, server.DSN("", ""))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if err := os.WriteFile(filepath.Join(server.DataDir, "pg_hba.conf"), []byte(hostRules), 0o600); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT pg_reload_conf()")
	return err
}

// servers are the primary and the replicas that a node began with.
func (c *Cluster) servers(i int) []*shardtest.Postgres {
	return append([]*shardtest.Postgres{c.nodes[i]}, c.replicas[i]...)
}

func nodeName(index int) string { return fmt.Sprintf("node%d", index+1) }

func (c *Cluster) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(c.log, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// DSN leads to a router as the superuser; options are as in a URL: "pool_max_conns=4".
func (c *Cluster) DSN(index int, options ...string) string {
	return c.RoleDSN(index, Superuser, Password, Superuser, options...)
}

// RoleDSN leads to a router as any role.
func (c *Cluster) RoleDSN(index int, role, password, database string, options ...string) string {
	return dsn(c.routers[index].address, role, password, database, options)
}

// NodeDSN leads to a node directly, as the superuser, behind the routers' back.
func (c *Cluster) NodeDSN(name string) string { c.tb.Helper(); return ServerDSN(c.Node(name)) }

// ServerDSN leads to any server of a cluster as the superuser.
func ServerDSN(server *shardtest.Postgres) string {
	return dsn(server.Address(), Superuser, Password, Superuser, []string{"application_name=" + TestName})
}

func dsn(address, role, password, database string, options []string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(role, password), Host: address, Path: "/" + database,
		RawQuery: strings.Join(append([]string{"sslmode=disable"}, options...), "&"),
	}
	return u.String()
}

// Node returns the server of a node: the one that began as its primary.
func (c *Cluster) Node(name string) *shardtest.Postgres {
	c.tb.Helper()
	return c.nodes[c.index(name)]
}

// Replicas returns the servers that began as a node's replicas.
func (c *Cluster) Replicas(name string) []*shardtest.Postgres {
	c.tb.Helper()
	return c.replicas[c.index(name)]
}

func (c *Cluster) index(name string) int {
	c.tb.Helper()
	i := slices.Index(c.NodeNames(), name)
	if i < 0 {
		c.tb.Fatalf("the cluster has no node %q", name)
	}
	return i
}

// NodeNames lists the nodes; the first one is home.
func (c *Cluster) NodeNames() []string {
	names := make([]string, len(c.nodes))
	for i := range names {
		names[i] = nodeName(i)
	}
	return names
}

// StopNode shuts a node down, StartNode starts it again on the same port, KillNode crashes it.
func (c *Cluster) StopNode(name string) { c.tb.Helper(); c.Node(name).Stop() }

// StartNode starts a node again after StopNode or KillNode.
func (c *Cluster) StartNode(name string) { c.tb.Helper(); c.Node(name).Start() }

// KillNode ends a node as a crash does.
func (c *Cluster) KillNode(name string) { c.tb.Helper(); c.Node(name).Kill() }

// Store is a connection to the topology store.
func (c *Cluster) Store() topo.Store { return c.store }

// Map reads the map as it is stored now.
func (c *Cluster) Map() *keyspace.Map {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	m, err := topo.LoadMap(ctx, c.store)
	if err != nil {
		c.tb.Fatalf("read the map: %v", err)
	}
	return m
}

// Address is the host and port of a router.
func (c *Cluster) Address(index int) (host, port string) {
	c.tb.Helper()
	host, port, err := net.SplitHostPort(c.routers[index].address)
	if err != nil {
		c.tb.Fatal(err)
	}
	return host, port
}
