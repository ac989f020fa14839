package cluster

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/etcdtopo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
)

// stores is where the map is kept: one of two servers that routers connect to.
type stores struct {
	memory *memtopo.Server
	etcd   *etcdServer
}

type etcdServer struct {
	config etcdtopo.ServerConfig
	server *etcdtopo.Server // nil while it is down
}

func openStores(ctx context.Context, tb testing.TB, etcd bool, log *slog.Logger) (stores, error) {
	if !etcd {
		return stores{memory: memtopo.NewServer()}, nil
	}
	s := stores{etcd: &etcdServer{config: etcdtopo.ServerConfig{
		Dir: filepath.Join(tb.TempDir(), "etcd"), ClientListen: "127.0.0.1:0", Log: log,
	}}}
	if err := s.etcd.start(ctx); err != nil {
		return stores{}, err
	}
	tb.Cleanup(s.etcd.stop)
	return s, nil
}

func (s stores) connect() (topo.Store, error) {
	if s.etcd == nil {
		return s.memory.Connect(), nil
	}
	return etcdtopo.Open(etcdtopo.Config{Endpoints: []string{s.etcd.config.ClientListen}, Cluster: "testcluster"})
}

func (e *etcdServer) start(ctx context.Context) error {
	server, err := etcdtopo.StartServer(ctx, e.config)
	if err != nil {
		return err
	}
	e.server, e.config.ClientListen = server, server.Endpoint()
	return nil
}

func (e *etcdServer) stop() {
	if e.server != nil {
		e.server.Close()
		e.server = nil
	}
}

// StopEtcd stops the topology store of a cluster with Options.Etcd.
func (c *Cluster) StopEtcd() {
	c.tb.Helper()
	if c.stores.etcd == nil {
		c.tb.Fatal("the cluster has no etcd")
	}
	c.stores.etcd.stop()
}

// StartEtcd starts etcd again on its port, with its data.
func (c *Cluster) StartEtcd() {
	c.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := c.stores.etcd.start(ctx); err != nil {
		c.tb.Fatalf("start etcd again: %v", err)
	}
}

// CutRouter takes the topology store away from one router: it goes on with the map it has. Only with the store in memory.
func (c *Cluster) CutRouter(index int) { c.routers[index].store.(*memtopo.Store).Cut() }
