// Package router serves PostgreSQL clients: one session each, from startup to the last byte.
package router

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgshoal/pgshoal/ioloop"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/topo"
)

// AuthRule chooses how clients from some addresses prove who they are; the first match counts.
type AuthRule struct {
	Addresses []netip.Prefix // empty: all
	Method    string         // scram-sha-256, trust, cert
}

// Config is what a router needs to know that is not in the map.
type Config struct {
	Name            string // unique among the routers of the cluster
	Listen          string // host:port; port 0 picks a free one
	AdvertiseDSN    string // what status shows; derived from the listener when empty
	TLS             *tls.Config
	RequireTLS      bool
	Auth            []AuthRule
	ServiceUser     string // the router's own role on the nodes
	ServicePassword string
	MaxClients      int
	StartupTimeout  time.Duration
	DrainTimeout    time.Duration
	SlowStatement   time.Duration // 0: off
	Pool            pool.Config
	HTTP            string // address of health and metrics, for status only
	MemberTTL       time.Duration
	Tracer          Tracer // nil: off
	// CommitHook is called at the points of a two-phase commit, see twopc.Driver; for tests, usually nil.
	CommitHook func(point string)
}

func (c *Config) validate() error {
	switch {
	case c.Name == "":
		return errors.New("router: the name is missing")
	case c.Listen == "":
		return errors.New("router: the address to listen on is missing")
	case c.ServiceUser == "":
		return errors.New("router: the service role is missing")
	}
	if c.MaxClients == 0 {
		c.MaxClients = 10000
	}
	if c.Tracer == nil {
		c.Tracer = noTracer{}
	}
	if c.MemberTTL == 0 {
		c.MemberTTL = 5 * time.Second
	}
	if c.DrainTimeout == 0 {
		c.DrainTimeout = 30 * time.Second
	}
	for _, r := range c.Auth {
		switch r.Method {
		case "scram-sha-256", "trust", "cert":
		default:
			return fmt.Errorf("router: unknown authentication method %q", r.Method)
		}
	}
	return nil
}

// live is the part of the configuration that Reload can change.
type live struct {
	auth          []AuthRule
	accept        *pgwire.ServerConfig
	slowStatement time.Duration
	maxClients    int
}

// Router is one router process.
type Router struct {
	cfg   Config
	store topo.Store
	log   *slog.Logger
	born  time.Time

	live          atomic.Pointer[live]
	pool          *pool.Pool
	follower      *topo.Follower
	member        atomic.Pointer[topo.Registration]
	view          atomic.Pointer[view]
	acks          chan struct{}
	left          chan struct{} // a session ended something while a fence was up
	catalogs      catalogs
	oids          oidMaps
	timelines     timelines
	sizes         sizes
	motions       chan struct{} // the places of statements that move rows between nodes
	plans         planSpaces
	kept          sync.Map // text to id of statements that connections keep prepared for two-phase commit
	settings      settingSets
	recoded       recodings
	counters      counters
	measures      measures
	sequenceUsers sequenceUsers
	clients       clients
	directory     directory
	load          load

	listener  net.Listener
	ready     chan struct{}
	stop      context.CancelFunc
	ending    <-chan struct{} // closed when Serve ends
	draining  atomic.Bool
	connected atomic.Int64 // clients, those that are not authenticated yet included
	sockets   atomic.Int64 // the same and those whose startup packet has not come yet
	work      sync.WaitGroup
}

// New prepares a router; Serve starts it.
func New(cfg Config, store topo.Store, log *slog.Logger) (*Router, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	r := &Router{
		cfg: cfg, store: store, log: log, born: time.Now(),
		acks: make(chan struct{}, 1), left: make(chan struct{}, 1), ready: make(chan struct{}),
	}
	r.catalogs.init(r)
	r.oids.init(r)
	r.timelines.init(r)
	r.sizes.init(r)
	r.motions = make(chan struct{}, maxMotions)
	r.plans.init()
	r.settings.init()
	r.clients.init()
	r.directory.cache.init(cachedEntries)
	poolCfg := cfg.Pool
	poolCfg.Admit, poolCfg.Seen = r.admit, r.timelines.note
	poolCfg.Monitor = pool.Monitor{
		Role: cfg.ServiceUser, Database: serviceDatabase, Credentials: pool.Credentials{Password: cfg.ServicePassword},
	}
	p, err := pool.New(poolCfg, log)
	if err != nil {
		return nil, err
	}
	r.pool = p
	r.setLive(cfg)
	return r, nil
}

func (r *Router) setLive(cfg Config) {
	r.live.Store(&live{
		auth: cfg.Auth,
		accept: &pgwire.ServerConfig{
			TLS: cfg.TLS, RequireTLS: cfg.RequireTLS, StartupTimeout: cfg.StartupTimeout,
			MockSecret: []byte("pgshoal " + cfg.ServicePassword),
		},
		slowStatement: cfg.SlowStatement,
		maxClients:    cfg.MaxClients,
	})
}

// Reload applies what can change while clients are connected: authentication, TLS, the limit of
// clients and the logging of slow statements. Other changes need a restart.
func (r *Router) Reload(cfg Config) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	r.setLive(cfg)
	return nil
}

// Serve accepts clients until the context ends or Shutdown is called.
func (r *Router) Serve(ctx context.Context) error {
	ctx, r.stop = context.WithCancel(ctx)
	r.ending = ctx.Done()
	defer r.stop()
	defer r.pool.Close()
	listener, err := net.Listen("tcp", r.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", r.cfg.Listen, err)
	}
	r.listener = listener
	r.follower, err = topo.NewFollower(ctx, r.store, r.log, r.onMap)
	if err != nil {
		_ = listener.Close()
		return fmt.Errorf("reading the map: %w", err)
	}
	defer r.follower.Close()
	if err := r.timelines.follow(ctx); err != nil {
		_ = listener.Close()
		return err
	}
	if err := r.register(ctx); err != nil {
		_ = listener.Close()
		return err
	}
	defer r.member.Load().Close()
	r.work.Go(func() { r.acknowledge(ctx) })
	r.work.Go(func() { r.watchDeadlocks(ctx) })
	r.work.Go(func() { r.watchSizes(ctx) })
	stopListening := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stopListening()
	close(r.ready)
	r.log.Info("router serves", "address", listener.Addr(), "epoch", r.view.Load().m.Epoch)
	err = r.accept(ctx)
	r.clients.closeAll()
	r.work.Wait()
	return err
}

func (r *Router) register(ctx context.Context) error {
	dsn := r.cfg.AdvertiseDSN
	if dsn == "" {
		dsn = "postgres://" + r.listener.Addr().String() + "/"
	}
	reg, err := topo.Register(ctx, r.store, topo.Member{
		Name: r.cfg.Name, Role: topo.RoleRouter, PID: os.Getpid(), Address: r.listener.Addr().String(),
		DSN: dsn, HTTP: r.cfg.HTTP, AckedEpoch: r.view.Load().m.Epoch, Started: time.Now(),
	}, r.cfg.MemberTTL, r.log)
	if err != nil {
		return fmt.Errorf("registering the router: %w", err)
	}
	r.member.Store(reg)
	return nil
}

func (r *Router) accept(ctx context.Context) error {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			if ctx.Err() != nil || r.draining.Load() {
				return nil
			}
			var temporary net.Error
			if errors.As(err, &temporary) && temporary.Timeout() {
				continue
			}
			return fmt.Errorf("accepting clients: %w", err)
		}
		conn = ioloop.Take(conn)
		r.work.Add(1)
		ioloop.Go(func(t *ioloop.Task) {
			defer r.work.Done()
			r.serveClient(ctx, conn, t)
		})
	}
}

// Ready is closed once the router listens and has a map; Addr is valid then.
func (r *Router) Ready() <-chan struct{} { return r.ready }

// Addr is the address the router listens on.
func (r *Router) Addr() net.Addr { return r.listener.Addr() }

// Shutdown drains: no new clients or transactions, running ones finish until ctx ends or the
// drain timeout is over.
func (r *Router) Shutdown(ctx context.Context) error {
	r.draining.Store(true)
	ctx, cancel := context.WithTimeout(ctx, r.cfg.DrainTimeout)
	defer cancel()
	if r.listener != nil {
		_ = r.listener.Close()
	}
	err := r.clients.drain(ctx)
	if r.stop != nil {
		r.stop()
	}
	return err
}

// serviceDatabase is where the router does what belongs to no client's database.
const serviceDatabase = "postgres"

// service gets a connection of the router's own role.
func (r *Router) service(ctx context.Context, node, database string) (*pool.Conn, error) {
	key := pool.Key{Node: node, Role: r.cfg.ServiceUser, Database: database}
	conn, err := r.pool.AcquireAlive(ctx, key, pool.Credentials{Password: r.cfg.ServicePassword})
	if err != nil || conn.Params["client_encoding"] == utf8Encoding {
		return conn, err
	}
	if err := conn.Exec(ctx, "SET client_encoding = 'UTF8'"); err != nil {
		r.pool.Release(conn)
		return nil, err
	}
	return conn, nil
}

// Stats is what telemetry shows.
type Stats struct {
	Clients, MaxClients int
	Accepted            uint64            // clients that got in, all told
	Refused             map[string]uint64 // clients that did not, by why
	Draining            bool
	Pinned              int            // sessions that keep server connections
	PinnedBy            map[string]int // the same by what they keep them for
	Epoch               uint64
	TopologyConnected   bool
	Statements          map[string]uint64    // by plan kind
	Durations           map[string]Histogram // of statements, by plan kind
	Errors              uint64
	ErrorClasses        map[string]uint64 // by the first two characters of the SQLSTATE
	TwoPhase            TwoPhase
	PlanHits, PlanMiss  uint64
	PlanEntries         int
	Pools               []pool.Stats
}

// Stats returns a snapshot.
func (r *Router) Stats() Stats {
	s := Stats{Statements: r.counters.statements(), Errors: r.counters.errors.Load(), Pools: r.pool.Stats()}
	s.Clients, s.Pinned, s.PinnedBy = r.clients.count()
	s.MaxClients, s.Draining = r.live.Load().maxClients, r.draining.Load()
	s.PlanHits, s.PlanMiss, s.PlanEntries = r.plans.hits.Load(), r.plans.misses.Load(), r.plans.size()
	r.measures.fill(&s)
	if v := r.view.Load(); v != nil {
		s.Epoch = v.m.Epoch
	}
	if r.follower != nil {
		s.TopologyConnected = r.follower.Connected()
	}
	return s
}

// Draining reports that the router takes no new work.
func (r *Router) Draining() bool { return r.draining.Load() }

// CheckHome reports whether the home node answers.
func (r *Router) CheckHome(ctx context.Context) error {
	v := r.view.Load()
	if v == nil {
		return errors.New("no map yet")
	}
	conn, err := r.service(ctx, v.m.Home, serviceDatabase)
	if err != nil {
		return err
	}
	defer r.pool.Release(conn)
	return conn.Exec(ctx, "")
}

// Map is the map the router works with.
func (r *Router) Map() *keyspace.Map { return r.view.Load().m }
