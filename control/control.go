// Package control is the controller: the one elected process that starts a cluster, lets nodes join
// and leave, settles what crashes left behind, watches the nodes' health and serves the admin API.
// Routers go on without it.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/twopc"
)

const election = "controller"

// Settler settles transactions that crashed between prepare and commit.
type Settler interface {
	// Settle looks at all nodes of the map once and settles what it can.
	Settle(ctx context.Context, m *keyspace.Map) (twopc.Report, error)
	// List returns what is prepared, and the nodes that could not be asked.
	List(ctx context.Context, m *keyspace.Map) ([]twopc.Prepared, map[string]error)
	// Resolve settles one transaction now; want is an outcome or "".
	Resolve(ctx context.Context, m *keyspace.Map, gid, want string) (twopc.Transaction, error)
}

// Config is what a controller needs to know that is not in the map. Zero durations mean defaults.
type Config struct {
	Name string // unique among the controllers of the cluster
	HTTP string // where other controllers reach this one's admin API
	// Access is how the controller logs in to nodes: as a superuser that all of them have.
	Access NodeAccess
	// ServiceUser and ServicePassword are the routers' own role, which the controller creates.
	ServiceUser, ServicePassword string
	// Bootstrap are the nodes of a cluster whose store is still empty; the first is the home node.
	Bootstrap []JoinRequest
	// Token guards changes through the admin API; empty means that there are none.
	Token string
	// Settler may be nil: nothing is settled then.
	Settler Settler

	MemberTTL   time.Duration // how long after its death a process counts as alive
	SettleEvery time.Duration
	EnsureEvery time.Duration // pg_shoal in every database
	DropEvery   time.Duration // distributions that no table uses
	FencesEvery time.Duration
	HealthEvery time.Duration
}

func (c *Config) validate() error {
	if c.Name == "" {
		return errors.New("control: a controller needs a name")
	}
	if c.ServiceUser == "" || c.ServicePassword == "" {
		return errors.New("control: the routers' own role needs a name and a password")
	}
	for _, d := range []struct {
		field    *time.Duration
		standard time.Duration
	}{
		{&c.MemberTTL, 5 * time.Second},
		{&c.SettleEvery, time.Second},
		{&c.EnsureEvery, time.Minute},
		{&c.DropEvery, 10 * time.Second},
		{&c.FencesEvery, 2 * time.Second},
		{&c.HealthEvery, 2 * time.Second},
	} {
		if *d.field < 0 {
			return errors.New("control: a negative duration")
		}
		if *d.field == 0 {
			*d.field = d.standard
		}
	}
	return nil
}

// Controller is one controller process, leader or standby.
type Controller struct {
	cfg   Config
	store topo.Store
	log   *slog.Logger

	mu       sync.Mutex
	term     *term  // nil while this controller does not lead
	starting error  // why a leader has no map yet
	counters counts // since the process started
}

type counts struct {
	settled, fencesRemoved, terms uint64
	settleError                   string
	inDoubt                       int // transactions that could not be settled when it was tried last
	oldestInDoubt                 time.Duration
	lostParts                     uint64 // of committed transactions, by failovers
}

// term is one time of leadership.
type term struct {
	ctx      context.Context // ends with the leadership
	follower *topo.Follower
	health   *healthWatch
	ensured  *problems
}

// New prepares a controller; Run starts it.
func New(cfg Config, store topo.Store, log *slog.Logger) (*Controller, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Controller{cfg: cfg, store: store, log: log}, nil
}

var errLeadershipLost = errors.New("this controller no longer leads")

// Run registers the controller and works until the context ends: as a standby until it is elected,
// then as the leader.
func (c *Controller) Run(ctx context.Context) error {
	reg, err := topo.Register(ctx, c.store, topo.Member{
		Name: c.cfg.Name, Role: topo.RoleController, PID: os.Getpid(),
		HTTP: c.cfg.HTTP, Address: c.cfg.HTTP, Started: time.Now(),
	}, c.cfg.MemberTTL, c.log)
	if err != nil {
		return fmt.Errorf("control: %w", err)
	}
	defer reg.Close()
	for {
		leadership, err := topo.Campaign(ctx, c.store, election, c.cfg.Name, c.cfg.MemberTTL)
		if ctx.Err() != nil {
			if leadership != nil {
				leadership.Resign(ctx)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("control: %w", err)
		}
		if err := c.lead(ctx, leadership); ctx.Err() == nil {
			c.log.Warn("leadership is over, standing by", "reason", err)
		}
	}
}

// lead works as the leader until the leadership or the context ends.
func (c *Controller) lead(parent context.Context, leadership *topo.Leadership) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	defer leadership.Resign(parent)
	lost := make(chan struct{})
	go func() {
		defer close(lost)
		select {
		case <-leadership.Done():
			cancel(errLeadershipLost)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-lost }()

	c.log.Info("leading", "controller", c.cfg.Name)
	if err := c.awaitMap(ctx); err != nil {
		return err
	}
	if err := c.dropJoining(ctx); err != nil {
		return err
	}
	follower, err := topo.NewFollower(ctx, c.store, c.log, nil)
	if err != nil {
		return err
	}
	defer follower.Close()
	t := &term{ctx: ctx, follower: follower, health: newHealthWatch(c.cfg.Access), ensured: newProblems()}
	c.setTerm(t)
	defer c.setTerm(nil)
	return c.runLoops(ctx, t)
}

func (c *Controller) runLoops(ctx context.Context, t *term) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return every(ctx, c.cfg.SettleEvery, func() { c.settle(ctx, t) }) })
	group.Go(func() error { return every(ctx, c.cfg.EnsureEvery, func() { c.ensure(ctx, t) }) })
	group.Go(func() error { return c.ensureNew(ctx, t) })
	group.Go(func() error {
		gone := absences{}
		return every(ctx, c.cfg.FencesEvery, func() { c.removeFences(ctx, t, gone) })
	})
	group.Go(func() error {
		unused := map[uint32]bool{}
		return every(ctx, c.cfg.DropEvery, func() { c.dropUnused(ctx, t, unused) })
	})
	group.Go(func() error {
		defer t.health.close(ctx)
		return every(ctx, c.cfg.HealthEvery, func() { t.health.look(ctx, t.follower.Map()) })
	})
	return group.Wait()
}

// every runs work now and then at each interval until the context ends.
func every(ctx context.Context, interval time.Duration, work func()) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		work()
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Controller) setTerm(t *term) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.term = t
	if t != nil {
		c.counters.terms++
	}
}

// leading returns the current term, or nil on a standby.
func (c *Controller) leading() *term {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.term
}

func (c *Controller) settle(ctx context.Context, t *term) {
	if c.cfg.Settler == nil {
		return
	}
	report, err := c.cfg.Settler.Settle(ctx, t.follower.Map())
	n := report.Settled()
	if ctx.Err() != nil {
		return
	}
	text := ""
	if err != nil {
		text = err.Error()
	}
	c.mu.Lock()
	c.counters.settled += uint64(n)
	c.counters.inDoubt, c.counters.oldestInDoubt = report.Left()
	c.counters.lostParts += uint64(len(report.Lost))
	news := c.counters.settleError != text
	c.counters.settleError = text
	c.mu.Unlock()
	for _, p := range report.Lost {
		c.log.Error("a failover has lost a node's part of a committed transaction", "node", p.Node, "gid", p.GID, "database", p.Database, "committed_on", p.Found)
	}
	if n > 0 {
		c.log.Info("settled in-doubt transactions", "count", n)
	}
	if news && err != nil {
		c.log.Warn("cannot settle in-doubt transactions", "error", err)
	}
}

// Ready says whether the controller can do its part: a leader has a map, a standby reaches the store.
func (c *Controller) Ready(ctx context.Context) error {
	c.mu.Lock()
	leading, starting := c.term != nil, c.starting
	c.mu.Unlock()
	if leading {
		return nil
	}
	if starting != nil {
		return starting
	}
	return c.store.Healthy(ctx)
}
