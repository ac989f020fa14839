package localcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/pgshoal/pgshoal/topo/etcdtopo"
)

// ServeEtcd runs the topology store of the cluster in a directory until ctx ends.
func ServeEtcd(ctx context.Context, dir string, log *slog.Logger, listening func(endpoint string)) error {
	layout, err := NewLayout(dir)
	if err != nil {
		return err
	}
	state, err := LoadState(layout)
	if err != nil {
		return err
	}
	server, err := etcdtopo.StartServer(ctx, etcdtopo.ServerConfig{
		Dir: layout.EtcdDir(), ClientListen: fmt.Sprintf("127.0.0.1:%d", state.EtcdPort), Log: log,
	})
	if err != nil {
		return err
	}
	listening(server.Endpoint())
	select {
	case err = <-server.Failed():
		if err == nil {
			err = errors.New("the topology store ended")
		}
	case <-ctx.Done():
	}
	server.Close()
	return err
}
