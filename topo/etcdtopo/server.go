package etcdtopo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// ServerConfig describes the embedded server: one etcd for one machine.
type ServerConfig struct {
	// Dir holds the data; it is made if it does not exist.
	Dir string
	// ClientListen is the host:port for clients; port 0 takes a free one.
	ClientListen string
	// PeerListen is the host:port for other etcd servers; empty for none, since there are none.
	PeerListen string
	Log        *slog.Logger
}

func (c *ServerConfig) validate() error {
	if c.Dir == "" {
		return errors.New("etcd server: no directory given")
	}
	if _, _, err := net.SplitHostPort(c.ClientListen); err != nil {
		return fmt.Errorf("etcd server: client address %q is not host:port", c.ClientListen)
	}
	if c.PeerListen != "" {
		if _, _, err := net.SplitHostPort(c.PeerListen); err != nil {
			return fmt.Errorf("etcd server: peer address %q is not host:port", c.PeerListen)
		}
	}
	if c.Log == nil {
		return errors.New("etcd server: no logger given")
	}
	return nil
}

// Server is a running embedded etcd.
type Server struct {
	etcd     *embed.Etcd
	endpoint string
	closing  *atomic.Bool
}

// portAttempts is how often a free port is looked for when someone else takes it in between.
const portAttempts = 5

// StartServer starts an etcd server and returns when it answers. Data that is already in the
// directory is served again.
func StartServer(ctx context.Context, c ServerConfig) (*Server, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("etcd server: %w", err)
	}
	if err := checkDir(c.Dir); err != nil {
		return nil, err
	}
	for attempt := 1; ; attempt++ {
		s, err := c.start(ctx)
		if errors.Is(err, syscall.EADDRINUSE) && c.picksPort() && attempt < portAttempts {
			continue
		}
		return s, err
	}
}

// Endpoint returns the host:port for clients.
func (s *Server) Endpoint() string { return s.endpoint }

// Failed tells an error that ended the server by itself. It is closed by Close.
func (s *Server) Failed() <-chan error { return s.etcd.Err() }

// Close stops the server and waits for it.
func (s *Server) Close() {
	s.closing.Store(true)
	s.etcd.Close()
	<-s.etcd.Server.StopNotify()
}

func (c *ServerConfig) picksPort() bool {
	_, client, _ := net.SplitHostPort(c.ClientListen)
	_, peer, _ := net.SplitHostPort(c.PeerListen)
	return client == "0" || peer == "0"
}

func (c *ServerConfig) start(ctx context.Context) (_ *Server, err error) {
	client, err := freePort(c.ClientListen)
	if err != nil {
		return nil, err
	}
	closing := new(atomic.Bool)
	cfg, err := c.embed(client, quiet(c.Log, closing))
	if err != nil {
		return nil, err
	}
	// etcd panics about a directory that it cannot use; see also checkDir.
	defer func() {
		if p := recover(); p != nil {
			err = damaged(c.Dir, fmt.Errorf("%v", p))
		}
	}()
	etcd, err := embed.StartEtcd(cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("etcd server: a port is taken, stop what uses it or choose another: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("etcd server in %s: %w", c.Dir, err)
	}
	s := &Server{etcd: etcd, endpoint: client, closing: closing}
	select {
	case <-etcd.Server.ReadyNotify():
		return s, nil
	case err := <-etcd.Err():
		s.Close()
		return nil, fmt.Errorf("etcd server in %s: %w", c.Dir, err)
	case <-ctx.Done():
		s.Close()
		return nil, fmt.Errorf("etcd server in %s is not ready: %w", c.Dir, context.Cause(ctx))
	}
}

// embed returns etcd's own configuration: its defaults, but fast for a server without peers and
// small on disk.
func (c *ServerConfig) embed(client string, log *zap.Logger) (*embed.Config, error) {
	cfg := embed.NewConfig()
	cfg.Name = "pgshoal"
	cfg.Dir = c.Dir
	clientURL := url.URL{Scheme: "http", Host: client}
	cfg.ListenClientUrls = []url.URL{clientURL}
	cfg.AdvertiseClientUrls = []url.URL{clientURL}
	// The peer address is part of the server's identity even when it does not listen there.
	peerURL := url.URL{Scheme: "http", Host: "127.0.0.1:2380"}
	cfg.ListenPeerUrls = nil
	if c.PeerListen != "" {
		peer, err := freePort(c.PeerListen)
		if err != nil {
			return nil, err
		}
		peerURL.Host = peer
		cfg.ListenPeerUrls = []url.URL{peerURL}
	}
	cfg.AdvertisePeerUrls = []url.URL{peerURL}
	// With its own token a server that starts from nothing is not taken for its predecessor.
	cfg.InitialClusterToken = rand.Text()
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	// A single server elects itself as soon as the election timeout is over.
	cfg.TickMs, cfg.ElectionMs = 10, 100
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, "1000"
	cfg.MaxWalFiles, cfg.MaxSnapFiles = 2, 2
	cfg.EnableGRPCGateway = false
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(log)
	return cfg, nil
}

// freePort replaces port 0 by a free port.
func freePort(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	if port != "0" {
		return address, nil
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", fmt.Errorf("etcd server: no free port: %w", err)
	}
	defer l.Close()
	_, port, err = net.SplitHostPort(l.Addr().String())
	return net.JoinHostPort(host, port), err
}

// quiet returns a logger for etcd that passes on what an operator has to know. What would end the
// process becomes a panic, which the server's start turns into an error.
func quiet(log *slog.Logger, muted *atomic.Bool) *zap.Logger {
	return zap.New(&slogCore{log: log.With("part", "etcd"), muted: muted}, zap.WithFatalHook(zapcore.WriteThenPanic))
}

// checkDir finds damage before etcd does: etcd panics about it, in part in goroutines of its own,
// where nobody can catch it.
func checkDir(dir string) error {
	db, wals := filepath.Join(dir, "member", "snap", "db"), filepath.Join(dir, "member", "wal")
	logs, err := filepath.Glob(filepath.Join(wals, "*.wal"))
	if err != nil {
		return fmt.Errorf("etcd server: %w", err)
	}
	if _, err := os.Stat(db); errors.Is(err, os.ErrNotExist) {
		if len(logs) > 0 {
			return damaged(dir, fmt.Errorf("%s is missing", db))
		}
		return nil
	}
	used, err := checkDatabase(dir, db, time.Second)
	switch {
	case err != nil:
		return err
	case len(logs) > 0:
		return checkLog(dir, wals)
	case used:
		return damaged(dir, errors.New("the log in member/wal is missing"))
	}
	return nil
}

func damaged(dir string, err error) error {
	return fmt.Errorf("etcd server: the data in %s is damaged, restore it from a backup or start with an empty directory: %w", dir, err)
}
