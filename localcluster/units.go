package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	titleUp         = "up"
	titleEtcd       = "etcd"
	titleController = "controller"
	titleRouter     = "router"

	// drainPatience is how long a router may finish its transactions; its own deadline is shorter.
	drainPatience = 40 * time.Second
	childFarewell = 15 * time.Second
)

func (c *cluster) runs(title string) bool {
	return c.opts.only == nil || slices.Contains(c.opts.only, title)
}

func (c *cluster) newChild(title string, patience time.Duration, probe func(context.Context) error, args ...string) *child {
	return &child{
		title: title, executable: c.opts.Executable, args: append([]string{title, "--dir", c.layout.Dir}, args...),
		layout: c.layout, log: c.log, probe: probe, patience: patience,
	}
}

func (c *cluster) etcdUnit() *child {
	url := etcdEndpoint(c.state) + "/health"
	return c.newChild(titleEtcd, childFarewell, func(ctx context.Context) error { return probeHTTP(ctx, url) })
}

func (c *cluster) controllerUnit() *child {
	url := "http://" + c.state.HTTP + "/readyz"
	u := c.newChild(titleController, childFarewell,
		func(ctx context.Context) error { return probeHTTP(ctx, url) }, "--http", c.state.HTTP)
	u.member = localController
	return u
}

func (c *cluster) routerUnit() *child {
	dsn := routerDSN(c.state.RouterPort, c.superPassword)
	u := c.newChild(titleRouter, drainPatience,
		func(ctx context.Context) error { return probeRouter(ctx, dsn) }, "--port", fmt.Sprint(c.state.RouterPort))
	u.member = localRouter
	return u
}

// The names of the cluster's own router and controller; people can add others beside them.
const (
	localRouter     = "router1"
	localController = "controller1"
)

func etcdEndpoint(s *State) string { return fmt.Sprintf("http://127.0.0.1:%d", s.EtcdPort) }

const probeTimeout = 5 * time.Second

func probeHTTP(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, response.Status)
	}
	return nil
}

// probeRouter runs a statement through the router. A router that refuses the password serves too:
// somebody has changed the superuser's.
func probeRouter(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if refused := (*pgconn.PgError)(nil); errors.As(err, &refused) && refused.Code == "28P01" {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "SELECT 1")
	return errors.Join(err, conn.Close(ctx))
}
