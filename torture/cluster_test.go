package torture

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/topo/etcdtopo"
)

const (
	nodeCount       = 3
	routerCount     = 2
	controllerCount = 2
	startTimeout    = 60 * time.Second
)

// node is a server and the proxy that its address in the map leads to.
type node struct {
	name   string
	server *shardtest.Postgres
	proxy  *proxy
}

// cluster is what production runs: routers and controllers as processes, with a network between them and everything else.
type cluster struct {
	t                    *testing.T
	dir                  string
	owners               *owners
	events               chan event
	nodes                []*node
	store                *proxy // before etcd
	routers, controllers []*process
	dsns                 []string // of the routers
	schedule             *schedule
}

func startCluster(t *testing.T, seed uint64) *cluster {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgshoal-torture")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cluster{
		t: t, dir: dir, owners: &owners{pids: map[int]string{}}, events: make(chan event, 1000),
		schedule: &schedule{rand.New(rand.NewPCG(seed, 1)), map[string]int{}},
	}
	binary := filepath.Join(dir, "pgshoal")
	built := make(chan error, 1)
	go func() {
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "../cmd/pgshoal").CombinedOutput()
		if err != nil {
			err = fmt.Errorf("build: %w\n%s", err, out)
		}
		built <- err
	}()
	c.startNodes()
	c.startStore()
	if err := <-built; err != nil {
		t.Fatal(err)
	}
	config := c.writeConfig()
	for i := range controllerCount {
		c.controllers = append(c.controllers, c.process(binary, "controller", i, "--config", config, "--http", freeAddress(t)))
		c.controllers[i].start(t, c.schedule.rules("controller"))
	}
	var ready []string
	for i := range routerCount {
		address, web := freeAddress(t), freeAddress(t)
		_, port, _ := net.SplitHostPort(address)
		ready = append(ready, "http://"+web+"/readyz")
		c.routers = append(c.routers, c.process(binary, "router", i, "--config", config, "--port", port, "--http", web))
		c.dsns = append(c.dsns, "postgres://postgres@"+address+"/postgres?sslmode=disable&default_query_exec_mode=exec")
		c.routers[i].start(t, "")
	}
	for i, url := range ready {
		c.await(c.routers[i].name, func() bool { return answers(url) })
	}
	return c
}

func (c *cluster) startNodes() {
	c.t.Helper()
	c.nodes = make([]*node, nodeCount)
	var group sync.WaitGroup
	for i := range c.nodes {
		group.Go(func() {
			server := shardtest.StartPostgres(c.t, "track_commit_timestamp=on", "max_connections=200")
			c.nodes[i] = &node{name: fmt.Sprintf("node%d", i+1), server: server, proxy: startProxy(c.t, server.Address(), c.owners)}
		})
	}
	group.Wait()
	if c.t.Failed() {
		c.t.FailNow()
	}
}

func (c *cluster) startStore() {
	c.t.Helper()
	etcd, err := etcdtopo.StartServer(c.t.Context(), etcdtopo.ServerConfig{
		Dir: filepath.Join(c.dir, "etcd"), ClientListen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(etcd.Close)
	c.store = startProxy(c.t, strings.TrimPrefix(etcd.Endpoint(), "http://"), c.owners)
}

func (c *cluster) writeConfig() string {
	c.t.Helper()
	var bootstrap strings.Builder
	for _, n := range c.nodes {
		fmt.Fprintf(&bootstrap, "    - {name: %s, dsn: \"postgres://postgres@%s/postgres?sslmode=disable\"}\n", n.name, n.proxy.address())
	}
	text := fmt.Sprintf(`cluster: {name: torture}
etcd: {endpoints: ["http://%s"]}
nodes:
  service_password: s3cret
  sslmode: disable
  bootstrap:
%srouter: {listen: "127.0.0.1:6432", auth: [{method: trust}]}
telemetry: {log_level: info}
`, c.store.address(), bootstrap.String())
	file := filepath.Join(c.dir, "pgshoal.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return file
}

func (c *cluster) process(binary, kind string, i int, args ...string) *process {
	name := fmt.Sprintf("%s%d", kind, i+1)
	p := &process{
		name: name, kind: kind, binary: binary, args: append([]string{kind, "--name", name}, args...),
		log: filepath.Join(c.dir, name+".log"), owners: c.owners, events: c.events,
	}
	c.t.Cleanup(func() {
		p.kill()
		if c.t.Failed() {
			c.t.Log(p.tail())
		}
	})
	return p
}

// await waits for something that the cluster reaches by itself.
func (c *cluster) await(what string, done func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(startTimeout)
	for !done() {
		if time.Now().After(deadline) {
			c.t.Fatalf("%s is not ready after %v", what, startTimeout)
		}
		pause(c.t.Context(), 20*time.Millisecond)
	}
}

func answers(url string) bool {
	resp, err := http.Get(url)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// execute runs statements through a router.
func (c *cluster) execute(statements ...string) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.dsns[0])
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close(context.Background())
	for _, sql := range statements {
		if _, err := conn.Exec(c.t.Context(), sql); err != nil {
			c.t.Fatalf("%s: %v", sql, err)
		}
	}
}

// onNodes asks the nodes behind the routers' back.
func (c *cluster) onNodes(f func(*pgx.Conn)) {
	c.t.Helper()
	for _, n := range c.nodes {
		conn, err := pgx.Connect(c.t.Context(), n.server.DSN("", ""))
		if err != nil {
			c.t.Fatal(err)
		}
		f(conn)
		_ = conn.Close(context.Background())
	}
}

// pause waits and reports whether there is time left.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
