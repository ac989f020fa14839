// Package config reads the one YAML file that describes how a process of a cluster runs: where the
// topology store and the nodes are, and how the router and the controller behave.
package config

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// Config is the Go form of the file. A key tagged reload:"live" can change in a running process
// (SIGHUP); every other key needs a restart.
type Config struct {
	Cluster    Cluster    `yaml:"cluster"`
	Etcd       Etcd       `yaml:"etcd"`
	Nodes      Nodes      `yaml:"nodes"`
	Router     Router     `yaml:"router"`
	Controller Controller `yaml:"controller"`
	Telemetry  Telemetry  `yaml:"telemetry"`

	file  string
	lines map[string]int // key -> line in the file, for messages
}

// Cluster names the cluster; several clusters can share one etcd.
type Cluster struct {
	Name string `yaml:"name"`
}

// Etcd says how to reach the topology store.
type Etcd struct {
	Endpoints    []string `yaml:"endpoints"`
	TLS          EtcdTLS  `yaml:"tls,omitempty"`
	User         string   `yaml:"user,omitempty"`
	Password     string   `yaml:"password,omitempty"`
	PasswordFile string   `yaml:"password_file,omitempty"`
}

// EtcdTLS holds PEM files for https endpoints.
type EtcdTLS struct {
	CA   string `yaml:"ca,omitempty"`
	Cert string `yaml:"cert,omitempty"`
	Key  string `yaml:"key,omitempty"`
}

// Nodes says as whom routers and the controller log in to the nodes. The nodes themselves are in
// the map; Bootstrap is used once, when the topology store is empty.
type Nodes struct {
	ServiceUser         string `yaml:"service_user"`
	ServicePassword     string `yaml:"service_password,omitempty"`
	ServicePasswordFile string `yaml:"service_password_file,omitempty"`
	AdminUser           string `yaml:"admin_user"`
	AdminPassword       string `yaml:"admin_password,omitempty"`
	AdminPasswordFile   string `yaml:"admin_password_file,omitempty"`
	// AdminDatabase is where the controller connects first.
	AdminDatabase string `yaml:"admin_database"`
	// SSLMode has libpq's meaning. Empty becomes verify-full with a CA, else require, so a
	// cluster whose nodes have no TLS says "disable" (or "prefer").
	SSLMode   string          `yaml:"sslmode,omitempty"`
	CA        string          `yaml:"ca,omitempty"`
	Bootstrap []BootstrapNode `yaml:"bootstrap,omitempty"`
}

// BootstrapNode is a node of a cluster that is started for the first time; the first is the home node.
type BootstrapNode struct {
	Name   string  `yaml:"name"`
	DSN    string  `yaml:"dsn"`
	Region string  `yaml:"region,omitempty"`
	Weight float64 `yaml:"weight,omitempty"`
}

// Router is how a router serves clients.
type Router struct {
	Name                 string        `yaml:"name,omitempty"`
	Listen               string        `yaml:"listen"`
	Advertise            string        `yaml:"advertise,omitempty"`
	TLS                  RouterTLS     `yaml:"tls,omitempty"`
	Auth                 []AuthRule    `yaml:"auth,omitempty" reload:"live"`
	MaxClientConnections int           `yaml:"max_client_connections" reload:"live"`
	StartupTimeout       time.Duration `yaml:"startup_timeout" reload:"live"`
	DrainTimeout         time.Duration `yaml:"drain_timeout"`
	SlowStatement        time.Duration `yaml:"slow_statement" reload:"live"`
	HTTP                 string        `yaml:"http"`
	Pool                 Pool          `yaml:"pool"`
}

// RouterTLS is the router's side of TLS with clients. Mode is require, allow or off; empty is
// decided by the listen address: off on loopback without a certificate, else require.
type RouterTLS struct {
	Mode     string `yaml:"mode,omitempty" reload:"live"`
	Cert     string `yaml:"cert,omitempty" reload:"live"`
	Key      string `yaml:"key,omitempty" reload:"live"`
	ClientCA string `yaml:"client_ca,omitempty" reload:"live"`
}

// AuthRule chooses how clients from some addresses prove who they are; the first match counts,
// and without a match it is scram-sha-256.
type AuthRule struct {
	Addresses []string `yaml:"addresses,omitempty"`
	Method    string   `yaml:"method"`
}

// Pool limits the connections of a router to the nodes.
type Pool struct {
	MaxPerPool     int           `yaml:"max_per_pool"`
	MaxPerNode     int           `yaml:"max_per_node"`
	QueueTimeout   time.Duration `yaml:"queue_timeout"`
	ConnectTimeout time.Duration `yaml:"connect_timeout"`
	IdleTimeout    time.Duration `yaml:"idle_timeout"`
	Lifetime       time.Duration `yaml:"lifetime"`
}

// Controller is how a controller serves the admin API.
type Controller struct {
	Name      string `yaml:"name,omitempty"`
	HTTP      string `yaml:"http"`
	TokenFile string `yaml:"token_file,omitempty"`
	// Federate adds the metrics of all routers to the controller's own, so that one address
	// shows the whole cluster.
	Federate bool `yaml:"federate,omitempty"`
}

// Telemetry is about logs and traces; metrics are always served at /metrics.
type Telemetry struct {
	LogLevel  string `yaml:"log_level" reload:"live"`
	LogFormat string `yaml:"log_format"`
	// OTLPEndpoint is the URL of an OpenTelemetry collector that speaks gRPC; empty is off.
	OTLPEndpoint string `yaml:"otlp_endpoint,omitempty"`
	// TraceSample is the share of statements that routers trace, from 0 to 1. A statement with a
	// traceparent in its comment follows that instead.
	TraceSample float64 `yaml:"trace_sample" reload:"live"`
}

// Default returns the configuration that an empty file means.
func Default() *Config {
	return &Config{
		Cluster: Cluster{Name: "main"},
		Nodes:   Nodes{ServiceUser: "pgshoal", AdminUser: "postgres", AdminDatabase: "postgres"},
		Router: Router{
			Listen:               "127.0.0.1:6432",
			MaxClientConnections: 5000,
			StartupTimeout:       30 * time.Second,
			DrainTimeout:         30 * time.Second,
			HTTP:                 "127.0.0.1:8433",
			Pool: Pool{
				MaxPerPool:     50,
				MaxPerNode:     80,
				QueueTimeout:   30 * time.Second,
				ConnectTimeout: 5 * time.Second,
				IdleTimeout:    10 * time.Minute,
				Lifetime:       time.Hour,
			},
		},
		Controller: Controller{HTTP: "127.0.0.1:8432"},
		Telemetry:  Telemetry{LogLevel: "info", LogFormat: "text", TraceSample: 0.01},
	}
}

// File is the path the configuration was loaded from, empty when it was not.
func (c *Config) File() string { return c.file }

// ReadPassword returns etcd's password from whichever key gives it.
func (e *Etcd) ReadPassword() (string, error) { return secret(e.Password, e.PasswordFile) }

// ReadServicePassword returns the password of the routers' own role.
func (n *Nodes) ReadServicePassword() (string, error) {
	return secret(n.ServicePassword, n.ServicePasswordFile)
}

// ReadAdminPassword returns the password of the controller's superuser.
func (n *Nodes) ReadAdminPassword() (string, error) {
	return secret(n.AdminPassword, n.AdminPasswordFile)
}

// ReadToken returns the admin API's token, empty when none is configured.
func (c *Controller) ReadToken() (string, error) { return secret("", c.TokenFile) }

func secret(value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("config: %w", err)
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return "", fmt.Errorf("config: %s is empty", file)
	}
	return text, nil
}
