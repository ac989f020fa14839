// Package localcluster runs a whole cluster (PostgreSQL servers, topology store, controller and
// router) on one Linux machine under one directory, so that trying pgshoal takes one command and
// tests run on what production runs.
//
// The supervisor is the process of `pgshoal up`. It decides little: how to start the parts in
// order, when to start a part again, and how to stop everything. Each part is a process of its own
// that survives the death of all others.
package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"golang.org/x/sync/errgroup"
)

// Unset marks a number that was not given: the remembered value counts, or the default.
const Unset = -1

// What a new cluster gets when nothing is said.
const (
	DefaultNodes = 3
	DefaultPort  = 6432
	DefaultHTTP  = "127.0.0.1:8432"
)

// Options are what a person can choose about a local cluster.
type Options struct {
	Dir        string
	Nodes      int    // Unset, or how many nodes a new cluster gets
	Replicas   int    // Unset, or how many replicas each node of a new cluster gets
	Port       int    // Unset, 0 for any free port, or the router's port
	HTTP       string // empty, or the address for health, metrics and the admin API
	BinDir     string // empty, or where PostgreSQL's programs are
	UnsafeFast bool   // new clusters only: trade durability for speed
	Executable string // the pgshoal program itself
	Say        func(line string)
	Ready      func(Summary)
	Log        *slog.Logger

	// hasDir is called once the log directory exists.
	hasDir func(Layout)
	// only leaves pgshoal processes out, for tests of the rest; nil runs them all.
	only []string
}

func (o *Options) validate() error {
	if o.Nodes != Unset && (o.Nodes < 1 || o.Nodes > 64) {
		return &Problem{Sentence: fmt.Sprintf("--nodes %d is not between 1 and 64", o.Nodes)}
	}
	if o.Replicas != Unset && (o.Replicas < 0 || o.Replicas > 8) {
		return &Problem{Sentence: fmt.Sprintf("--replicas %d is not between 0 and 8", o.Replicas)}
	}
	if o.Port != Unset && (o.Port < 0 || o.Port > 65535) {
		return &Problem{Sentence: fmt.Sprintf("--port %d is not a TCP port", o.Port), Way: "0 picks a free one"}
	}
	if o.HTTP != "" {
		if _, _, err := splitHTTP(o.HTTP); err != nil {
			return err
		}
	}
	return nil
}

// Summary is what to tell people about a cluster that is ready.
type Summary struct {
	Dir        string
	DSN        string
	HTTP       string
	TokenFile  string
	Nodes      int
	Replicas   int
	PostgreSQL string
	Created    bool
	UnsafeFast bool
}

// cluster is one run of `up`.
type cluster struct {
	opts     Options
	layout   Layout
	state    *State
	fresh    bool     // the first start
	made     []string // directories that did not exist before, the innermost first
	programs programs
	account  account
	grants   *grants
	log      *slog.Logger

	superPassword   string
	servicePassword string
}

// Up starts the cluster in a directory, creating it if need be, and keeps it running until ctx ends;
// then it stops everything. Whatever fails before the cluster is ready leaves nothing running, and
// nothing behind of a cluster that was to be created.
func Up(ctx context.Context, opts Options) error {
	if err := opts.validate(); err != nil {
		return err
	}
	layout, err := NewLayout(opts.Dir)
	if err != nil {
		return err
	}
	c := &cluster{opts: opts, layout: layout, log: opts.Log, grants: new(grants)}
	kind, state, err := inspect(layout)
	if err != nil {
		return err
	}
	if err := c.find(ctx, kind, state); err != nil {
		return err
	}
	lock, err := c.claim()
	if err != nil {
		return err
	}
	defer lock.release()
	super := new(supervisor)
	err = c.start(ctx, super)
	if err == nil {
		err = c.serve(ctx)
	} else if ctx.Err() != nil {
		err = &Problem{Sentence: "interrupted before the cluster was ready; nothing stays running", Cause: err}
	}
	_ = os.Remove(layout.readyFile())
	stopErr := stopGuests(layout)
	super.stop()
	stopErr = errors.Join(stopErr, stopRemains(layout, c.state))
	if err != nil && c.fresh {
		quoteLog(err)
		c.abandon()
	}
	return errors.Join(err, stopErr)
}

// find looks for what must exist before anything is created.
func (c *cluster) find(ctx context.Context, kind directoryKind, state *State) error {
	major := 0
	if kind == directoryCluster {
		major = state.PostgreSQL
		if err := c.checkShape(state); err != nil {
			return err
		}
	}
	var err error
	if c.programs, err = findPrograms(ctx, c.opts.BinDir, major); err != nil {
		return err
	}
	if kind == directoryCluster {
		c.account, err = accountOf(c.layout, state)
	} else {
		c.account, err = chooseAccount()
	}
	return err
}

// checkShape refuses options that contradict the cluster that is there.
func (c *cluster) checkShape(s *State) error {
	if c.opts.Nodes != Unset && c.opts.Nodes != len(s.Nodes) {
		return &Problem{
			Sentence: fmt.Sprintf("the cluster in %s was created with %d nodes, not %d", c.layout.Dir, len(s.Nodes), c.opts.Nodes),
			Way:      "leave out --nodes and add nodes with pgshoal node add, or choose another directory with --dir",
		}
	}
	if c.opts.Replicas != Unset && c.opts.Replicas != s.replicas() {
		return &Problem{
			Sentence: fmt.Sprintf("the nodes in %s were created with %d replicas each, not %d", c.layout.Dir, s.replicas(), c.opts.Replicas),
			Way:      "leave out --replicas, or choose another directory with --dir",
		}
	}
	if c.opts.UnsafeFast && !s.UnsafeFast {
		return &Problem{
			Sentence: fmt.Sprintf("the cluster in %s was created to be safe against power failures", c.layout.Dir),
			Way:      "leave out --unsafe-fast, or choose another directory with --dir",
		}
	}
	return nil
}

// claim makes the directory and takes its lock; from here on no other `up` works on it.
func (c *cluster) claim() (*dirLock, error) {
	mode := fs.FileMode(0o700)
	if c.account.drop {
		mode = 0o711 // PostgreSQL's user passes through; what is secret below has its own mode
	}
	c.made = missing(c.layout.Dir)
	if err := os.MkdirAll(c.layout.runDir(), 0o755); err != nil {
		return nil, &Problem{
			Sentence: fmt.Sprintf("%s cannot be created: %v", c.layout.runDir(), errors.Unwrap(err)),
			Way:      "choose another directory with --dir",
			Cause:    err,
		}
	}
	lock, err := lockDir(c.layout)
	if err != nil {
		return nil, err
	}
	_ = os.Remove(c.layout.readyFile()) // left by a supervisor that was killed
	if err := os.Chmod(c.layout.Dir, mode); err != nil {
		lock.release()
		return nil, err
	}
	// What was seen before the lock may have changed.
	kind, state, err := inspect(c.layout)
	c.state = state
	if err == nil && kind != directoryCluster {
		c.fresh = true
		if kind == directoryIncomplete {
			c.log.Info("starting over after a first start that was cut off")
			err = errors.Join(stopRemains(c.layout, c.state), c.removeParts())
		}
	}
	if err != nil {
		lock.release()
		return nil, err
	}
	return lock, nil
}

// missing lists the directories that must be made for dir to exist, dir first.
func missing(dir string) []string {
	var list []string
	for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		list = append(list, dir)
	}
	return list
}

// serve tells that everything is ready and waits for the end.
func (c *cluster) serve(ctx context.Context) error {
	c.state.Complete = true
	if err := c.state.save(c.layout); err != nil {
		return err
	}
	if err := os.WriteFile(c.layout.readyFile(), nil, 0o644); err != nil {
		return err
	}
	created := c.fresh
	c.fresh = false // from here on the data is worth keeping
	c.opts.Ready(c.summary(created))
	<-ctx.Done()
	c.opts.Say("stopping the cluster")
	return nil
}

func (c *cluster) summary(created bool) Summary {
	return Summary{
		Dir: c.layout.Dir, DSN: routerDSN(c.state.RouterPort, c.superPassword), HTTP: c.state.HTTP,
		TokenFile: c.layout.TokenFile(), Nodes: len(c.state.Nodes), Replicas: c.state.replicas(),
		PostgreSQL: c.programs.version, Created: created, UnsafeFast: c.state.UnsafeFast,
	}
}

func routerDSN(port int, password string) string {
	return serverDSN(Server{Port: port}, password)
}

func serverDSN(server Server, password string) string {
	u := url.URL{
		Scheme: "postgres", User: url.UserPassword(superuser, password),
		Host: fmt.Sprintf("127.0.0.1:%d", server.Port), Path: "/" + adminDatabase,
	}
	return u.String()
}

// abandon removes what a failed first start created, and nothing else.
func (c *cluster) abandon() {
	err := errors.Join(
		c.removeParts(), os.Remove(c.layout.pidFile(titleUp)), os.Remove(c.layout.lockFile()),
		os.Remove(c.layout.runDir()), c.grants.revoke())
	for _, dir := range c.made {
		err = errors.Join(err, os.Remove(dir))
	}
	if err != nil {
		c.log.Warn("could not clean up", "dir", c.layout.Dir, "error", err)
	}
}

// removeParts empties the directory but for the lock, which is held, and the name of its holder.
func (c *cluster) removeParts() error {
	var errs []error
	for _, path := range c.layout.entries() {
		if path != c.layout.runDir() {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	entries, err := os.ReadDir(c.layout.runDir())
	errs = append(errs, err)
	for _, e := range entries {
		if path := filepath.Join(c.layout.runDir(), e.Name()); path != c.layout.lockFile() && path != c.layout.pidFile(titleUp) {
			errs = append(errs, os.RemoveAll(path))
		}
	}
	if c.state != nil {
		errs = append(errs, removeSocketDir(c.layout, c.state))
	}
	return errors.Join(errs...)
}

// Patience with parts that start. Recovery after a crash can take its time.
const (
	serverPatience = 5 * time.Minute
	childPatience  = time.Minute
)

// start brings up the parts in their order: what others need first.
func (c *cluster) start(ctx context.Context, super *supervisor) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := super.start(ctx, childPatience, c.etcdUnit()); err != nil {
		return err
	}
	if err := c.startServers(ctx, super); err != nil {
		return err
	}
	store, err := openStore(c.state)
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	if c.fresh {
		err = c.found(ctx, store)
	} else {
		err = c.reconcile(ctx, store)
	}
	if err != nil {
		return err
	}
	for _, u := range []*child{c.controllerUnit(), c.routerUnit()} {
		if !c.runs(u.title) {
			continue
		}
		if err := super.start(ctx, childPatience, u); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) startServers(ctx context.Context, super *supervisor) error {
	var primaries, replicas []unit
	for _, n := range c.state.Nodes {
		for i, s := range n.Servers {
			u := &server{
				spec: s, node: n, layout: c.layout, account: c.account,
				postgres: c.programs.path("postgres"), log: c.log,
			}
			if i == 0 {
				primaries = append(primaries, u)
			} else {
				replicas = append(replicas, u)
			}
		}
	}
	if !c.fresh {
		return super.start(ctx, serverPatience, append(primaries, replicas...)...)
	}
	if err := super.start(ctx, serverPatience, primaries...); err != nil {
		return err
	}
	if err := c.cloneReplicas(ctx); err != nil {
		return err
	}
	return super.start(ctx, serverPatience, replicas...)
}

func (c *cluster) cloneReplicas(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, n := range c.state.Nodes {
		for _, r := range n.Servers[1:] {
			g.Go(func() error { return c.cloneReplica(ctx, n, r) })
		}
	}
	return g.Wait()
}
