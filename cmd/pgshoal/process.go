package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgshoal/pgshoal/config"
	"github.com/pgshoal/pgshoal/control"
	"github.com/pgshoal/pgshoal/fault"
	"github.com/pgshoal/pgshoal/localcluster"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/etcdtopo"
)

// memberTTL is how long after its death a router or controller counts as alive.
const memberTTL = 5 * time.Second

// configSource is where a router or controller finds its configuration.
type configSource struct {
	file, dir string
}

func (s *configSource) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.file, "config", "", "configuration `file`")
	cmd.Flags().StringVar(&s.dir, "dir", "", "`directory` of a local cluster, instead of --config")
}

func (s *configSource) load() (*config.Config, error) {
	if (s.file == "") == (s.dir == "") {
		return nil, newUsageError("give either --config FILE or --dir DIR")
	}
	if s.dir != "" {
		return loadLocal(s.dir)
	}
	return config.Load(s.file)
}

// loadLocal reads the configuration of the local cluster in a directory.
func loadLocal(dir string) (*config.Config, error) {
	layout, err := localcluster.NewLayout(dir)
	if err != nil {
		return nil, err
	}
	cfg, err := config.Load(layout.ConfigFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withHints(fmt.Errorf("there is no cluster in %s", layout.Dir),
			"Start one with: pgshoal up --dir "+layout.Dir)
	}
	return cfg, err
}

// faultPoints are where tests want this process to end or stop; nil, as always elsewhere, is nowhere.
func faultPoints(env *environment, log *slog.Logger) (func(point string), error) {
	text := os.Getenv(fault.Variable)
	points, err := fault.Parse(text, env.stderr)
	if points == nil || err != nil {
		return nil, err
	}
	log.Warn("this process will kill or stop itself: "+fault.Variable+" is set, which is for tests only", "rules", text)
	return points.Reached, nil
}

func openStore(cfg *config.Config) (topo.Store, error) {
	password, err := cfg.Etcd.ReadPassword()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := etcdTLS(&cfg.Etcd)
	if err != nil {
		return nil, err
	}
	store, err := etcdtopo.Open(etcdtopo.Config{
		Endpoints: cfg.Etcd.Endpoints, Cluster: cfg.Cluster.Name, TLS: tlsConfig, User: cfg.Etcd.User, Password: password,
	})
	if err != nil {
		return nil, err
	}
	return store, nil
}

func etcdTLS(e *config.Etcd) (*tls.Config, error) {
	secure := e.TLS != config.EtcdTLS{}
	for _, endpoint := range e.Endpoints {
		secure = secure || strings.HasPrefix(endpoint, "https://")
	}
	if !secure {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if e.TLS.CA != "" {
		if t.RootCAs, err = readCertificates(e.TLS.CA); err != nil {
			return nil, err
		}
	}
	if e.TLS.Cert != "" {
		pair, err := tls.LoadX509KeyPair(e.TLS.Cert, e.TLS.Key)
		if err != nil {
			return nil, fmt.Errorf("etcd.tls: %w", err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

func readCertificates(path string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate in PEM form", path)
	}
	return pool, nil
}

// nodeTLS is what nodes are checked against; nil leaves it to the system's authorities.
func nodeTLS(n *config.Nodes) (*tls.Config, error) {
	if n.CA == "" {
		return nil, nil
	}
	pool, err := readCertificates(n.CA)
	if err != nil {
		return nil, fmt.Errorf("nodes.ca: %w", err)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

// certificate is the router's own; it can be renewed while the router runs.
type certificate struct {
	current atomic.Pointer[tls.Certificate]
}

func (c *certificate) read(t *config.RouterTLS) error {
	pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	if err != nil {
		return fmt.Errorf("router.tls: %w", err)
	}
	c.current.Store(&pair)
	return nil
}

// routerTLS returns nil when clients speak plaintext.
func routerTLS(t *config.RouterTLS, cert *certificate) (*tls.Config, error) {
	if t.Mode == "off" {
		return nil, nil
	}
	if err := cert.read(t); err != nil {
		return nil, err
	}
	c := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.current.Load(), nil },
	}
	if t.ClientCA != "" {
		pool, err := readCertificates(t.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("router.tls.client_ca: %w", err)
		}
		c.ClientCAs, c.ClientAuth = pool, tls.VerifyClientCertIfGiven
	}
	return c, nil
}

// nodeAccess is how a process logs in to nodes with pgx: as the superuser or as the service role.
func nodeAccess(n *config.Nodes, user, password string) control.NodeAccess {
	return control.NodeAccess{User: user, Password: password, Database: n.AdminDatabase, SSLMode: n.SSLMode, CA: n.CA}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil || !config.ValidName(name) {
		return "localhost"
	}
	return name
}
