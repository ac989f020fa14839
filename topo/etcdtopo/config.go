// Package etcdtopo is the topology store over etcd, so that a cluster's shared facts live in a
// consensus store that operators already know, be it their own cluster or the server embedded
// here for one machine: the code that uses it is the same.
package etcdtopo

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Config says where etcd is and which part of it is this cluster's.
type Config struct {
	// Endpoints are host:port pairs or URLs (http, https, unix).
	Endpoints []string
	// Cluster names the keys of this cluster: all are under "/pgshoal/<Cluster>/".
	Cluster string
	// TLS, if set, is used for all endpoints.
	TLS            *tls.Config
	User, Password string
	// RequestTimeout bounds each request, besides the caller's own deadline. Default 5 s.
	RequestTimeout time.Duration
	// Heartbeat is how often a store asks etcd whether it is there. Default 1 s; an outage is
	// noticed after at most three of them.
	Heartbeat time.Duration
}

func (c *Config) validate() error {
	if len(c.Endpoints) == 0 {
		return errors.New("etcd: no endpoints given")
	}
	for _, e := range c.Endpoints {
		if e == "" {
			return errors.New("etcd: an endpoint is empty")
		}
		if strings.HasPrefix(e, "http://") && c.TLS != nil {
			return fmt.Errorf("etcd: endpoint %s is without TLS, but TLS is configured: use https", e)
		}
	}
	if c.Cluster == "" || strings.Contains(c.Cluster, "/") {
		return fmt.Errorf("etcd: cluster name %q is empty or has a slash", c.Cluster)
	}
	if (c.User == "") != (c.Password == "") {
		return errors.New("etcd: user and password must be given together")
	}
	if c.User != "" && c.TLS == nil {
		for _, e := range c.Endpoints {
			if !local(e) {
				return fmt.Errorf("etcd: the password would go to %s in clear text: configure TLS", e)
			}
		}
	}
	if c.RequestTimeout < 0 || c.Heartbeat < 0 {
		return errors.New("etcd: request timeout and heartbeat must not be negative")
	}
	return nil
}

// local says whether an endpoint is on this machine.
func local(endpoint string) bool {
	if strings.HasPrefix(endpoint, "unix:") {
		return true
	}
	_, host, found := strings.Cut(endpoint, "://")
	if !found {
		host = endpoint
	}
	address, err := netip.ParseAddrPort(host)
	return err == nil && address.Addr().IsLoopback() || strings.HasPrefix(host, "localhost:")
}

func (c *Config) withDefaults() Config {
	d := *c
	if d.RequestTimeout == 0 {
		d.RequestTimeout = 5 * time.Second
	}
	if d.Heartbeat == 0 {
		d.Heartbeat = time.Second
	}
	return d
}
