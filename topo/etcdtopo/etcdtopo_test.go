package etcdtopo_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/etcdtopo"
	"github.com/pgshoal/pgshoal/topo/topotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func testLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), nil))
}

func startServer(t *testing.T, dir, listen string) *etcdtopo.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	srv, err := etcdtopo.StartServer(ctx, etcdtopo.ServerConfig{Dir: dir, ClientListen: listen, Log: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	return srv
}

func open(t *testing.T, cluster string, endpoints ...string) *etcdtopo.Store {
	t.Helper()
	s, err := etcdtopo.Open(etcdtopo.Config{Endpoints: endpoints, Cluster: cluster, Heartbeat: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func client(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// service is a part of a server, reached through links that can be cut.
type service struct {
	endpoint, cluster string
}

func (s service) Connect(t *testing.T) (topo.Store, topotest.Link) {
	link := newLink(t, s.endpoint)
	return open(t, s.cluster, link.address()), link
}

func (s service) Compact(t *testing.T) {
	c := client(t, s.endpoint)
	r, err := c.Get(t.Context(), "any")
	if err == nil {
		_, err = c.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestConformance(t *testing.T) {
	srv := startServer(t, t.TempDir(), "127.0.0.1:0")
	t.Cleanup(srv.Close)
	var clusters atomic.Int32
	start := func(*testing.T) topotest.Service {
		return service{srv.Endpoint(), fmt.Sprintf("c%d", clusters.Add(1))}
	}
	topotest.Run(t, start, func(t *testing.T, f func(*testing.T)) {
		t.Parallel()
		f(t)
	})
}
