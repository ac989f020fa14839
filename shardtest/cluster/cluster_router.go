package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/topo"
)

// routerRun is a router and, while it is up, its life.
type routerRun struct {
	name, address string
	router        *router.Router
	store         topo.Store
	stop          context.CancelFunc // nil while the router is down
	ended         chan error
}

// StartRouter starts a router, or starts it again on its port.
func (c *Cluster) StartRouter(index int) {
	c.tb.Helper()
	r := c.routers[index]
	if r.stop != nil {
		return
	}
	cfg := router.Config{
		Name: r.name, Listen: r.address,
		ServiceUser: catalog.DefaultRouterRole, ServicePassword: servicePassword,
		DrainTimeout: 10 * time.Second, MemberTTL: 3 * time.Second,
		Pool: pool.Config{MaxPerPool: 20, MaxPerNode: 60},
	}
	if c.opts.Configure != nil {
		c.opts.Configure(index, &cfg)
	}
	store, err := c.stores.connect()
	if err != nil {
		c.tb.Fatalf("start router %s: %v", r.name, err)
	}
	next, err := router.New(cfg, store, c.logger().With("router", r.name))
	if err != nil {
		_ = store.Close()
		c.tb.Fatalf("start router %s: %v", r.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.router, r.store, r.stop, r.ended = next, store, cancel, make(chan error, 1)
	go func() { r.ended <- next.Serve(ctx) }()
	// Once per life; a router that was stopped by the test is passed over.
	c.tb.Cleanup(func() { c.StopRouter(index) })
	select {
	case <-next.Ready():
		r.address = next.Addr().String()
	case err := <-r.ended:
		r.ended <- err
		c.tb.Fatalf("start router %s: %v\n%s", r.name, err, c.log)
	case <-time.After(setupTimeout):
		c.tb.Fatalf("router %s was not ready within %v\n%s", r.name, setupTimeout, c.log)
	}
}

// StopRouter ends a router at once, cutting its clients off; StartRouter starts it again.
func (c *Cluster) StopRouter(index int) {
	c.tb.Helper()
	r := c.routers[index]
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	select {
	case err := <-r.ended:
		if err != nil {
			c.tb.Errorf("router %s ended with: %v", r.name, err)
		}
	case <-time.After(setupTimeout):
		c.tb.Errorf("router %s did not stop within %v\n%s", r.name, setupTimeout, c.log)
	}
	_ = r.store.Close()
}

// Router returns a running router, for its statistics and its map.
func (c *Cluster) Router(index int) *router.Router { return c.routers[index].router }

// logTail keeps the end of what was logged, for tests that fail.
type logTail struct {
	mu   sync.Mutex
	text []byte
}

func (l *logTail) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	const keep = 32 << 10
	if len(l.text) > 2*keep {
		l.text = append(l.text[:0], l.text[len(l.text)-keep:]...)
	}
	return len(b), nil
}

func (l *logTail) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(l.text)
}
