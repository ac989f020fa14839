package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/config"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/telemetry"
	"github.com/pgshoal/pgshoal/topo"
)

type routerOptions struct {
	source configSource
	port   int
	http   string
	name   string
}

func newRouterCommand(env *environment) *cobra.Command {
	opts := routerOptions{port: -1}
	cmd := &cobra.Command{
		Use:   "router (--config FILE | --dir DIR)",
		Short: "Run a router: the process that applications connect to",
		Long: "Runs a router until SIGTERM or SIGINT, which let open transactions finish first.\n" +
			"SIGHUP reads the configuration again and says what needs a restart.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runRouter(cmd.Context(), env, &opts) },
	}
	opts.source.addFlags(cmd)
	cmd.Flags().IntVar(&opts.port, "port", -1, "`port` for clients, 0 for any free one, instead of the one in the configuration")
	cmd.Flags().StringVar(&opts.http, "http", "", "`address` of health and metrics, instead of the one in the configuration")
	cmd.Flags().StringVar(&opts.name, "name", "", "`name` of this router (default router-HOST-PORT)")
	return cmd
}

// load reads the configuration with what the command line says put over it.
func (o *routerOptions) load() (*config.Config, error) {
	cfg, err := o.source.load()
	if err != nil {
		return nil, err
	}
	r := &cfg.Router
	host, port, err := net.SplitHostPort(r.Listen)
	if err != nil {
		return nil, err
	}
	if o.port >= 0 {
		port = strconv.Itoa(o.port)
		r.Listen = net.JoinHostPort(host, port)
		r.Name = ""
		if r.HTTP != "" {
			r.HTTP = "127.0.0.1:0" // the configured one is the first router's
		}
	}
	if o.http != "" {
		r.HTTP = o.http
	}
	if o.name != "" {
		r.Name = o.name
	}
	if r.Name == "" {
		if port == "0" {
			port = fmt.Sprintf("pid%d", os.Getpid())
		}
		r.Name = "router-" + hostname() + "-" + port
	}
	if problems := cfg.Validate(); len(problems) > 0 {
		return nil, problems
	}
	return cfg, nil
}

// routerProcess is a running router with what belongs to it.
type routerProcess struct {
	env   *environment
	opts  *routerOptions
	cfg   *config.Config
	log   *slog.Logger
	level *slog.LevelVar
	cert  certificate

	store  topo.Store
	router *router.Router
	http   net.Listener // nil when off
	health *routerHealth
	tracer *telemetry.Tracer // nil when off
}

func runRouter(ctx context.Context, env *environment, opts *routerOptions) error {
	cfg, err := opts.load()
	if err != nil {
		return err
	}
	p := &routerProcess{env: env, opts: opts, cfg: cfg}
	if p.log, p.level, err = telemetry.NewLogger(env.stderr, cfg.Telemetry.LogFormat, cfg.Telemetry.LogLevel); err != nil {
		return err
	}
	if p.store, err = openStore(cfg); err != nil {
		return err
	}
	defer p.store.Close()
	if cfg.Router.HTTP != "" {
		if p.http, err = telemetry.Listen(ctx, cfg.Router.HTTP); err != nil {
			return withHints(err, "Choose another address with --http or router.http.")
		}
		defer p.http.Close()
	}
	if err := p.startTracing(ctx); err != nil {
		return err
	}
	defer p.stopTracing()
	rc, err := p.routerConfig(cfg)
	if err != nil {
		return err
	}
	if rc.CommitHook, err = faultPoints(p.env, p.log); err != nil {
		return err
	}
	if p.router, err = router.New(rc, p.store, p.log); err != nil {
		return err
	}
	return p.serve(ctx)
}

// routerConfig translates the file into what package router wants.
func (p *routerProcess) routerConfig(cfg *config.Config) (router.Config, error) {
	r := &cfg.Router
	password, err := cfg.Nodes.ReadServicePassword()
	if err != nil {
		return router.Config{}, err
	}
	clientTLS, err := routerTLS(&r.TLS, &p.cert)
	if err != nil {
		return router.Config{}, err
	}
	serverTLS, err := nodeTLS(&cfg.Nodes)
	if err != nil {
		return router.Config{}, err
	}
	rules, err := authRules(r.Auth)
	if err != nil {
		return router.Config{}, err
	}
	rc := router.Config{
		Name: r.Name, Listen: r.Listen,
		TLS: clientTLS, RequireTLS: r.TLS.Mode == "require", Auth: rules,
		ServiceUser: cfg.Nodes.ServiceUser, ServicePassword: password,
		MaxClients: r.MaxClientConnections, StartupTimeout: r.StartupTimeout, DrainTimeout: r.DrainTimeout,
		SlowStatement: r.SlowStatement, MemberTTL: memberTTL,
		Pool: pool.Config{
			MaxPerPool: r.Pool.MaxPerPool, MaxPerNode: r.Pool.MaxPerNode,
			QueueTimeout: r.Pool.QueueTimeout, ConnectTimeout: r.Pool.ConnectTimeout,
			IdleTimeout: r.Pool.IdleTimeout, Lifetime: r.Pool.Lifetime,
			SSLMode: cfg.Nodes.SSLMode, TLS: serverTLS,
		},
	}
	if r.Advertise != "" {
		rc.AdvertiseDSN = "postgres://" + r.Advertise + "/postgres"
	}
	if p.http != nil {
		rc.HTTP = telemetry.ReachableAddress(p.http)
	}
	if p.tracer != nil {
		rc.Tracer = p.tracer
	}
	return rc, nil
}

func authRules(rules []config.AuthRule) ([]router.AuthRule, error) {
	var list []router.AuthRule
	for _, rule := range rules {
		r := router.AuthRule{Method: rule.Method}
		for _, address := range rule.Addresses {
			prefix, err := config.ParsePrefix(address)
			if err != nil {
				return nil, err
			}
			r.Addresses = append(r.Addresses, prefix)
		}
		list = append(list, r)
	}
	return list, nil
}

// serve runs the router until it ends by itself or by a signal.
func (p *routerProcess) serve(parent context.Context) (err error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	if p.health, err = p.newHealth(); err != nil {
		return err
	}
	defer p.health.close()
	if p.http != nil {
		defer p.health.serve(p.http)()
	}
	ended := make(chan error, 1)
	go func() { ended <- p.router.Serve(ctx) }()
	ready := p.router.Ready()
	for {
		select {
		case <-ready:
			ready = nil
			p.health.follow(ctx)
			fmt.Fprintf(p.env.stdout, "listening on %s\n", p.router.Addr())
		case s := <-signals:
			if s == syscall.SIGHUP {
				p.reload()
				continue
			}
			return p.shutdown(ctx, cancel, signals, ended)
		case err := <-ended:
			return err
		}
	}
}

// shutdown drains; a second signal or the deadline cuts it short.
func (p *routerProcess) shutdown(ctx context.Context, cancel context.CancelFunc, signals <-chan os.Signal, ended <-chan error) error {
	p.health.draining.Store(true)
	p.log.Info("draining", "timeout", p.cfg.Router.DrainTimeout)
	drain, stop := context.WithTimeout(ctx, p.cfg.Router.DrainTimeout)
	defer stop()
	drained := make(chan error, 1)
	go func() { drained <- p.router.Shutdown(drain) }()
	var err error
	for waiting := true; waiting; {
		select {
		case err = <-drained:
			waiting = false
		case s := <-signals:
			if s != syscall.SIGHUP {
				stop() // twice means now
			}
		}
	}
	cancel()
	serveErr := <-ended
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		p.log.Warn("transactions were cut off", "error", err)
		err = nil
	}
	if errors.Is(serveErr, context.Canceled) {
		serveErr = nil
	}
	return errors.Join(err, serveErr)
}

// reload applies what can change in a running router and says what cannot.
func (p *routerProcess) reload() {
	next, err := p.opts.load()
	if err != nil {
		p.log.Error("configuration not reloaded, going on with the last one", "error", err)
		return
	}
	live, restart := config.Changes(p.cfg, next)
	merged := p.cfg.WithLive(next)
	rc, err := p.routerConfig(merged)
	if err == nil {
		err = p.router.Reload(rc)
	}
	if err == nil {
		err = telemetry.SetLevel(p.level, merged.Telemetry.LogLevel)
	}
	if err == nil && p.tracer != nil {
		err = p.tracer.SetSample(merged.Telemetry.TraceSample)
	}
	if err != nil {
		p.log.Error("configuration not reloaded, going on with the last one", "error", err)
		return
	}
	p.cfg = merged
	p.log.Info("configuration reloaded", "changed", strings.Join(live, ", "), "needs_restart", strings.Join(restart, ", "))
}
