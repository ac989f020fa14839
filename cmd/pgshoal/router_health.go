package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/control"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/telemetry"
	"github.com/pgshoal/pgshoal/topo"
)

// routerHealth answers for a router over HTTP. It is ready when it serves, is not draining, and its
// own role reaches the home node.
type routerHealth struct {
	router   *router.Router
	store    topo.Store
	log      *slog.Logger
	access   control.NodeAccess
	draining atomic.Bool
	follower atomic.Pointer[topo.Follower]
}

func (p *routerProcess) newHealth() (*routerHealth, error) {
	password, err := p.cfg.Nodes.ReadServicePassword()
	if err != nil {
		return nil, err
	}
	return &routerHealth{
		router: p.router, store: p.store, log: p.log,
		access: nodeAccess(&p.cfg.Nodes, p.cfg.Nodes.ServiceUser, password),
	}, nil
}

// serve starts the HTTP server; the returned function stops it.
func (h *routerHealth) serve(l net.Listener) func() {
	metrics := telemetry.NewRegistry("router", version())
	metrics.MustRegister(telemetry.NewRouterCollector(h.router.Stats))
	server := telemetry.Serve(l, telemetry.Handler(metrics, h.ready), h.log)
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := server.Close(ctx); err != nil {
			h.log.Debug("HTTP server closed with requests open", "error", err)
		}
	}
}

// follow keeps the map at hand, so that readiness can be told while the topology store is away.
func (h *routerHealth) follow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	f, err := topo.NewFollower(ctx, h.store, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		h.log.Warn("the router will not be shown as ready", "error", err)
		return
	}
	h.follower.Store(f)
}

func (h *routerHealth) close() {
	if f := h.follower.Load(); f != nil {
		f.Close()
	}
}

func (h *routerHealth) ready(ctx context.Context) error {
	f := h.follower.Load()
	switch {
	case h.draining.Load():
		return errors.New("the router is draining")
	case f == nil:
		return errors.New("the router has no map yet")
	}
	m := f.Map()
	home, err := m.Node(m.Home)
	if err != nil {
		return err
	}
	cfg, err := h.access.Config(home, "")
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("home node %s: %w", home.Name, err)
	}
	return conn.Close(ctx)
}
