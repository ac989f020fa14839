package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/config"
	"github.com/pgshoal/pgshoal/control"
	"github.com/pgshoal/pgshoal/telemetry"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/twopc"
)

type controllerOptions struct {
	source configSource
	http   string
	name   string
}

func newControllerCommand(env *environment) *cobra.Command {
	var opts controllerOptions
	cmd := &cobra.Command{
		Use:   "controller (--config FILE | --dir DIR)",
		Short: "Run a controller: the leader, or a standby that takes over",
		Long: "Runs a controller until SIGTERM or SIGINT. One controller of a cluster leads; the others stand by.\n" +
			"SIGHUP reads the configuration again and says what needs a restart.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runController(cmd.Context(), env, &opts) },
	}
	opts.source.addFlags(cmd)
	cmd.Flags().StringVar(&opts.http, "http", "", "`address` of the admin API, instead of the one in the configuration")
	cmd.Flags().StringVar(&opts.name, "name", "", "`name` of this controller (default controller-HOST-PORT)")
	return cmd
}

func (o *controllerOptions) load() (*config.Config, error) {
	cfg, err := o.source.load()
	if err != nil {
		return nil, err
	}
	if o.http != "" {
		cfg.Controller.HTTP = o.http
	}
	if o.name != "" {
		cfg.Controller.Name = o.name
	}
	if problems := cfg.Validate(); len(problems) > 0 {
		return nil, problems
	}
	return cfg, nil
}

func runController(parent context.Context, env *environment, opts *controllerOptions) error {
	cfg, err := opts.load()
	if err != nil {
		return err
	}
	log, level, err := telemetry.NewLogger(env.stderr, cfg.Telemetry.LogFormat, cfg.Telemetry.LogLevel)
	if err != nil {
		return err
	}
	store, err := openStore(cfg)
	if err != nil {
		return err
	}
	defer store.Close()
	listener, err := listenController(parent, opts, cfg)
	if err != nil {
		return err
	}
	defer listener.Close()
	hook, err := faultPoints(env, log)
	if err != nil {
		return err
	}
	ctrl, err := newController(cfg, listener, store, log, hook)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer signal.Stop(signals)
	server := telemetry.Serve(listener, ctrl.Handler(telemetry.MetricsHandler(controllerMetrics(cfg, ctrl, store))), log)
	log.Info("admin API is up", "address", listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- ctrl.Run(ctx) }()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGHUP {
				reloadController(opts, &cfg, level, log)
				continue
			}
			cancel() // running changes of the admin API end with the leadership
			return errors.Join(<-ended, closeServer(server))
		case err := <-ended:
			return errors.Join(err, closeServer(server))
		}
	}
}

func closeServer(server *telemetry.Server) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := server.Close(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// listenController takes the configured address. A further controller of a local cluster reads the
// same configuration as the first one, so it falls back to a free port unless told otherwise.
func listenController(ctx context.Context, opts *controllerOptions, cfg *config.Config) (net.Listener, error) {
	l, err := telemetry.Listen(ctx, cfg.Controller.HTTP)
	if err != nil && errors.Is(err, syscall.EADDRINUSE) && opts.source.dir != "" && opts.http == "" {
		host, _, splitErr := net.SplitHostPort(cfg.Controller.HTTP)
		if splitErr != nil {
			return nil, splitErr
		}
		return telemetry.Listen(ctx, net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return nil, withHints(err, "Choose another address with --http or controller.http.")
	}
	return l, nil
}

func newController(cfg *config.Config, l net.Listener, store topo.Store, log *slog.Logger, hook func(point string)) (*control.Controller, error) {
	service, err := cfg.Nodes.ReadServicePassword()
	if err != nil {
		return nil, err
	}
	admin, err := cfg.Nodes.ReadAdminPassword()
	if err != nil {
		return nil, err
	}
	token, err := cfg.Controller.ReadToken()
	if err != nil {
		return nil, err
	}
	name := cfg.Controller.Name
	address := telemetry.ReachableAddress(l)
	if name == "" {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		name = "controller-" + hostname() + "-" + port
	}
	var bootstrap []control.JoinRequest
	for _, b := range cfg.Nodes.Bootstrap {
		bootstrap = append(bootstrap, control.JoinRequest{Name: b.Name, DSN: b.DSN, Region: b.Region, Weight: b.Weight})
	}
	access := nodeAccess(&cfg.Nodes, cfg.Nodes.AdminUser, admin)
	access.Timelines = topo.Timelines{Store: store}
	settler, err := twopc.NewSettler(twopc.SettlerConfig{Hook: hook}, access.Connect)
	if err != nil {
		return nil, err
	}
	return control.New(control.Config{
		Name: name, HTTP: address, Access: access, Settler: settler,
		ServiceUser: cfg.Nodes.ServiceUser, ServicePassword: service,
		Bootstrap: bootstrap, Token: token, MemberTTL: memberTTL,
	}, store, log)
}

// controllerMetrics are the controller's own, and the routers' if the configuration says so.
func controllerMetrics(cfg *config.Config, ctrl *control.Controller, store topo.Store) prometheus.Gatherer {
	registry := telemetry.NewRegistry("controller", version())
	registry.MustRegister(telemetry.NewControllerCollector(ctrl.Stats))
	if !cfg.Controller.Federate {
		return registry
	}
	return prometheus.Gatherers{registry, &telemetry.Federation{
		Routers: func(ctx context.Context) ([]topo.Member, error) { return topo.Members(ctx, store, topo.RoleRouter) },
		Client:  &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute}},
	}}
}

func reloadController(opts *controllerOptions, cfg **config.Config, level *slog.LevelVar, log *slog.Logger) {
	next, err := opts.load()
	if err == nil {
		err = telemetry.SetLevel(level, next.Telemetry.LogLevel)
	}
	if err != nil {
		log.Error("configuration not reloaded, going on with the last one", "error", err)
		return
	}
	live, restart := config.Changes(*cfg, next)
	*cfg = (*cfg).WithLive(next)
	log.Info("configuration reloaded", "changed", strings.Join(live, ", "), "needs_restart", strings.Join(restart, ", "))
}
