package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/config"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

const undoTimeout = 20 * time.Second

// JoinRequest is a server that is to become a node.
type JoinRequest struct {
	Name   string  `json:"name"`
	DSN    string  `json:"dsn"` // of a superuser; several hosts are a primary and its replicas
	Region string  `json:"region,omitempty"`
	Weight float64 `json:"weight,omitempty"` // 0 means 1
}

// Joined is a node that has become active.
type Joined struct {
	Node     keyspace.Node `json:"node"`
	Epoch    uint64        `json:"epoch"`
	Warnings []string      `json:"warnings"`
}

// join is one node's way into the cluster.
type join struct {
	c   *Controller
	req JoinRequest

	server  *candidate
	home    *candidate
	m       *keyspace.Map // with the node in it
	node    keyspace.Node
	role    catalog.RouterRole
	like    *catalog.Locale
	refs    []referenceTables
	release []func() // ends what holds writers of reference tables back

	warnings []string
}

// AddNode lets a server join: it checks the server, gives it the schema and the rows of reference
// tables, and makes it active. When anything fails, the map is without the node, and the error says
// what remains on the server.
func (c *Controller) AddNode(ctx context.Context, req JoinRequest) (*Joined, error) {
	j := &join{c: c, req: req, warnings: []string{}}
	if err := j.validate(ctx); err != nil {
		return nil, err
	}
	var m *keyspace.Map
	err := c.withSchemaLock(ctx, func(ctx context.Context) error {
		var err error
		m, err = j.run(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.log.Info("node added", "node", req.Name, "epoch", m.Epoch)
	if err := c.waitAcked(ctx, m.Epoch); err != nil {
		j.warnings = append(j.warnings, "not all routers know the node yet: "+err.Error())
	}
	n, err := m.Node(req.Name)
	if err != nil {
		return nil, err
	}
	return &Joined{Node: n, Epoch: m.Epoch, Warnings: j.warnings}, nil
}

// validate refuses what needs no look at the server.
func (j *join) validate(ctx context.Context) error {
	switch {
	case j.req.Name == "":
		return badRequest("", "a node needs a name")
	case !config.ValidName(j.req.Name):
		return badRequest("Use letters, digits, '-', '_' and '.', at most 63, starting with a letter or digit.", "%q is not a name for a node", j.req.Name)
	case j.req.DSN == "":
		return badRequest("Write postgres://role:password@host:port/database.", "a node needs a connection string")
	case j.req.Weight < 0:
		return badRequest("", "weight %v is negative", j.req.Weight)
	}
	admin := j.c.cfg.Access.User
	server, addresses, err := j.c.cfg.Access.parseDSN(j.req.DSN)
	if err != nil {
		return badRequest("Write postgres://role:password@host:port/database.", "the connection string of node %q is wrong: %v", j.req.Name, err)
	}
	if server.User != admin {
		return badRequest(fmt.Sprintf("Give the server a superuser %q (initdb --username=%s) and use it in the connection string.", admin, admin),
			"the connection string of node %q has role %q, but the cluster's superuser is %q on every node", j.req.Name, server.User, admin)
	}
	j.server = &candidate{config: server, addresses: addresses}
	m, err := topo.LoadMap(ctx, j.c.store)
	if err != nil {
		return err
	}
	_, err = j.reserved(m)
	return err
}

// reserved is the map with the new node in it.
func (j *join) reserved(m *keyspace.Map) (*keyspace.Map, error) {
	for _, n := range m.Nodes {
		if n.Name == j.req.Name {
			return nil, conflict("Choose another name; see pgshoal node list.", "there is already a node %q", n.Name)
		}
		for _, a := range j.server.addresses {
			if slices.Contains(n.Addresses, a) {
				return nil, conflict("", "%s is already node %q", a, n.Name)
			}
		}
	}
	next, err := m.AddNode(keyspace.Node{
		Name: j.req.Name, Addresses: j.server.addresses, Region: j.req.Region, Weight: j.req.Weight, State: keyspace.NodeJoining,
	})
	if err != nil {
		return nil, badRequest("", "%v", err)
	}
	return next, nil
}

// run goes through the steps under the schema lock and undoes what the map knows if one fails.
func (j *join) run(ctx context.Context) (*keyspace.Map, error) {
	defer j.letGo()
	if err := j.check(ctx); err != nil {
		return nil, err
	}
	if err := j.reserve(ctx); err != nil {
		return nil, err
	}
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"hold back changes of the schema", j.holdSchema},
		{"set up pg_shoal", j.install},
		{"copy the schema", j.copySchema},
		{"log in as routers do", j.checkLogin},
		{"hold back writers of reference tables", j.holdReferences},
		{"copy reference tables", j.copyReferences},
		{"compare the schema with the home node's", j.compare},
	}
	for _, step := range steps {
		j.c.log.Info("node joins", "node", j.req.Name, "step", step.name)
		if err := step.do(ctx); err != nil {
			return nil, j.failed(ctx, step.name, err)
		}
	}
	m, err := topo.UpdateMap(ctx, j.c.store, j.activated)
	if err != nil {
		return nil, j.failed(ctx, "activate", err)
	}
	return m, nil
}

// holdSchema waits until no router has a change of the schema under way: while a node is joining,
// routers begin none, and acknowledge that epoch when the last one has ended.
func (j *join) holdSchema(ctx context.Context) error {
	m, err := topo.LoadMap(ctx, j.c.store)
	if err != nil {
		return err
	}
	return j.c.waitQuiet(ctx, m.Epoch, topo.FenceJoining)
}

// check looks at the server before anything is changed.
func (j *join) check(ctx context.Context) error {
	m, err := topo.LoadMap(ctx, j.c.store)
	if err != nil {
		return err
	}
	home, err := m.Node(m.Home)
	if err != nil {
		return err
	}
	if j.home, err = j.c.member(ctx, home); err != nil {
		return fmt.Errorf("a node joins only while the home node answers: %w", err)
	}
	if j.role, j.like, err = j.c.likeHome(ctx, home); err != nil {
		return err
	}
	j.server, err = j.c.candidate(ctx, j.req.DSN)
	var conn *pgx.Conn
	if err == nil {
		conn, err = pgx.ConnectConfig(ctx, j.server.config)
	}
	if err != nil {
		return badRequest("Check the connection string, pg_hba.conf and whether the server runs.", "node %q cannot be reached: %v", j.req.Name, err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	id, known, err := catalog.ReadIdentity(ctx, conn)
	switch {
	case err != nil:
		return err
	case known && id.Cluster == m.Cluster:
		return conflict("Initialise a fresh server for it.", "the server is or was node %q of this cluster", id.Name)
	case known:
		return conflict("Use another server, or run DROP SCHEMA pg_shoal CASCADE in all its databases if that cluster is gone.",
			"the server belongs to another cluster (as node %q)", id.Name)
	}
	found, err := contents(ctx, j.server.config)
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return conflict("Give an empty server, freshly made with initdb.",
			"node %q cannot join: the server is not empty, it holds %s", j.req.Name, strings.Join(found, ", "))
	}
	return nil
}

// member is a node that is reached as the cluster reaches its nodes.
func (c *Controller) member(ctx context.Context, n keyspace.Node) (*candidate, error) {
	dsn, err := c.cfg.Access.primary(ctx, n)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	return &candidate{dsn: dsn, config: config, addresses: n.Addresses}, nil
}

func (j *join) reserve(ctx context.Context) error {
	m, err := topo.UpdateMap(ctx, j.c.store, j.reserved)
	if err != nil {
		return err
	}
	j.m = m
	j.node, err = m.Node(j.req.Name)
	return err
}

func (j *join) install(ctx context.Context) error {
	warnings, err := catalog.BootstrapNode(ctx, j.server.config, identity(j.m, j.node), j.role, j.like)
	j.warnings = append(j.warnings, warnings...)
	return err
}

func (j *join) copySchema(ctx context.Context) error {
	warnings, err := j.c.copySchema(ctx, j.home, j.server)
	j.warnings = append(j.warnings, warnings...)
	return err
}

// checkLogin makes sure that the routers' role gets in: it came with the schema, but pg_hba.conf is
// the server's own.
func (j *join) checkLogin(ctx context.Context) error {
	router := j.c.cfg.Access
	router.User, router.Password = j.c.cfg.ServiceUser, j.c.cfg.ServicePassword
	if _, err := router.primary(ctx, keyspace.Node{Addresses: j.server.addresses}); err != nil {
		return noLogin(router.User, j.server.addresses, err)
	}
	return nil
}

func (j *join) copyReferences(ctx context.Context) error {
	return catalog.CopyReferenceTables(ctx, j.home.dsn, j.server.dsn)
}

func (j *join) compare(ctx context.Context) error {
	drift, err := catalog.Diff(ctx, catalog.Source{Node: j.m.Home, Config: j.home.config}, catalog.Source{Node: j.node.Name, Config: j.server.config})
	if err != nil {
		return err
	}
	if len(drift) > 0 {
		return conflict("The server must be able to hold the home node's schema exactly: compare versions, extensions and settings.",
			"its schema differs from the home node's in %d objects, first: %s", len(drift), drift[0])
	}
	return nil
}

// activated is the map in which the node serves and reference tables are open again.
func (j *join) activated(m *keyspace.Map) (*keyspace.Map, error) {
	n, err := m.Node(j.node.Name)
	if err != nil || n.ID != j.node.ID || n.State != keyspace.NodeJoining {
		return nil, errors.New("another controller has taken the node out of the map")
	}
	next, err := m.SetNodeState(n.Name, keyspace.NodeActive)
	if err != nil {
		return nil, err
	}
	return j.unfenced(next)
}

// failed takes the node out of the map again and words the error.
func (j *join) failed(ctx context.Context, step string, cause error) error {
	if why := context.Cause(ctx); why != nil && ctx.Err() != nil {
		cause = why
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
	defer cancel()
	_, err := topo.UpdateMap(ctx, j.c.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		next, err := j.unfenced(m)
		if err != nil {
			return nil, err
		}
		if n, err := m.Node(j.node.Name); err == nil && n.ID == j.node.ID && n.State == keyspace.NodeJoining {
			next = dropNode(next, n.Name)
		}
		return next, nil
	})
	left := "The cluster is unchanged."
	if err != nil {
		left = fmt.Sprintf("The node is still joining in the map (%v); the next leader takes it out.", err)
	}
	left += j.remains(ctx)
	var refusal *Refusal
	if errors.As(cause, &refusal) && refusal.Way != "" {
		left = refusal.Way + " " + left
	}
	return &Refusal{
		Status: 409, Err: cause, Way: left,
		Message: fmt.Sprintf("node %q could not join, step %q: %v", j.req.Name, step, cause),
	}
}
