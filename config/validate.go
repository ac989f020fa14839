package config

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// settle fills in what follows from other keys.
func (c *Config) settle() {
	if c.Nodes.SSLMode == "" {
		c.Nodes.SSLMode = "require"
		if c.Nodes.CA != "" {
			c.Nodes.SSLMode = "verify-full"
		}
	}
	t := &c.Router.TLS
	if t.Mode == "" {
		switch {
		case !Loopback(c.Router.Listen):
			t.Mode = "require"
		case t.Cert != "":
			t.Mode = "allow"
		default:
			t.Mode = "off"
		}
	}
	for i := range c.Nodes.Bootstrap {
		if c.Nodes.Bootstrap[i].Weight == 0 {
			c.Nodes.Bootstrap[i].Weight = 1
		}
	}
}

// Loopback says whether only this machine can reach a listen address. Nobody can reach what is no
// address at all; that is its own problem.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

var (
	namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	sslModes    = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}
	tlsModes    = []string{"require", "allow", "off"}
	authMethods = []string{"scram-sha-256", "trust", "cert"}
	logLevels   = []string{"debug", "info", "warn", "error"}
	logFormats  = []string{"text", "json"}
)

// ValidName says whether a cluster, node, router or controller may have this name.
func ValidName(name string) bool { return namePattern.MatchString(name) }

// Validate returns everything wrong with the values.
func (c *Config) Validate() Problems {
	v := &validator{c: c}
	v.name("cluster.name", c.Cluster.Name, true)
	v.etcd()
	v.nodes()
	v.router()
	v.pool()
	v.controller()
	v.telemetry()
	return v.problems
}

type validator struct {
	c        *Config
	problems Problems
}

func (v *validator) fail(key, format string, args ...any) {
	v.problems = append(v.problems, Problem{
		File: v.c.file, Line: v.c.line(key), Key: key, Message: fmt.Sprintf(format, args...),
	})
}

// line finds where a key is, or else the section it should be in.
func (c *Config) line(key string) int {
	for key != "" {
		if line, ok := c.lines[key]; ok {
			return line
		}
		key = key[:max(strings.LastIndexAny(key, ".["), 0)]
	}
	if len(c.lines) == 0 && c.file == "" {
		return 0
	}
	return 1
}

func (v *validator) etcd() {
	e := &v.c.Etcd
	if len(e.Endpoints) == 0 {
		v.fail("etcd.endpoints", "at least one endpoint is needed, for example http://127.0.0.1:2379")
	}
	for i, endpoint := range e.Endpoints {
		key := fmt.Sprintf("etcd.endpoints[%d]", i)
		scheme, rest, ok := strings.Cut(endpoint, "://")
		if !ok {
			scheme, rest = "", endpoint
		}
		if ok && scheme != "http" && scheme != "https" {
			v.fail(key, "%q is not a URL of etcd; write http://host:port or https://host:port", endpoint)
			continue
		}
		v.hostPort(key, rest, false)
		v.etcdSecrecy(key, scheme, rest)
	}
	v.pair("etcd.tls.cert", e.TLS.Cert, "etcd.tls.key", e.TLS.Key)
	v.file("etcd.tls.ca", e.TLS.CA)
	v.file("etcd.tls.cert", e.TLS.Cert)
	v.file("etcd.tls.key", e.TLS.Key)
	v.secret("etcd.password", e.Password, e.PasswordFile)
	password := e.Password != "" || e.PasswordFile != ""
	if e.User == "" && password {
		v.fail("etcd.user", "a password is given but no user")
	}
	if e.User != "" && !password {
		v.fail("etcd.password", "a user is given but no password")
	}
}

// etcdSecrecy refuses an endpoint to which a password or the TLS settings would go unprotected.
func (v *validator) etcdSecrecy(key, scheme, address string) {
	e := &v.c.Etcd
	secure := e.TLS != EtcdTLS{} || slices.ContainsFunc(e.Endpoints, func(s string) bool { return strings.HasPrefix(s, "https://") })
	switch {
	case scheme == "http" && secure:
		v.fail(key, "is without TLS, but TLS is configured: write https://%s", address)
	case e.User != "" && !secure && !Loopback(address):
		v.fail(key, "etcd's password would go to %s in clear text: write https://%s", address, address)
	}
}

func (v *validator) nodes() {
	n := &v.c.Nodes
	if n.ServiceUser == "" {
		v.fail("nodes.service_user", "must not be empty")
	}
	if n.AdminUser == "" {
		v.fail("nodes.admin_user", "must not be empty")
	}
	if n.AdminDatabase == "" {
		v.fail("nodes.admin_database", "must not be empty")
	}
	if n.ServiceUser != "" && n.ServiceUser == n.AdminUser {
		v.fail("nodes.service_user", "must differ from nodes.admin_user: routers never log in as a superuser")
	}
	if n.ServicePassword == "" && n.ServicePasswordFile == "" {
		v.fail("nodes.service_password", "the routers' own role needs a password; give it here or in nodes.service_password_file")
	}
	v.secret("nodes.service_password", n.ServicePassword, n.ServicePasswordFile)
	v.secret("nodes.admin_password", n.AdminPassword, n.AdminPasswordFile)
	v.oneOf("nodes.sslmode", n.SSLMode, sslModes)
	v.file("nodes.ca", n.CA)
	if strings.HasPrefix(n.SSLMode, "verify-") && n.CA == "" {
		v.fail("nodes.sslmode", "%s needs nodes.ca, the certificate authority of the nodes", n.SSLMode)
	}
	v.bootstrap(n.Bootstrap)
}

func (v *validator) bootstrap(nodes []BootstrapNode) {
	seen := map[string]bool{}
	for i, b := range nodes {
		key := fmt.Sprintf("nodes.bootstrap[%d]", i)
		v.name(key+".name", b.Name, true)
		if seen[b.Name] {
			v.fail(key+".name", "node %q is listed twice", b.Name)
		}
		seen[b.Name] = true
		if b.DSN == "" {
			v.fail(key+".dsn", "a connection string is needed, for example postgres://host:5432/postgres")
		}
		if b.Weight < 0 {
			v.fail(key+".weight", "must be positive")
		}
	}
}

func (v *validator) router() {
	r := &v.c.Router
	v.name("router.name", r.Name, false)
	v.hostPort("router.listen", r.Listen, true)
	if r.Advertise != "" {
		v.hostPort("router.advertise", r.Advertise, false)
	}
	if r.HTTP != "" {
		v.hostPort("router.http", r.HTTP, true)
	}
	v.routerTLS()
	for i, rule := range r.Auth {
		key := fmt.Sprintf("router.auth[%d]", i)
		v.oneOf(key+".method", rule.Method, authMethods)
		for j, address := range rule.Addresses {
			if _, err := ParsePrefix(address); err != nil {
				v.fail(fmt.Sprintf("%s.addresses[%d]", key, j), "%q is neither an address nor a network such as 10.0.0.0/8", address)
			}
		}
		if rule.Method == "cert" && r.TLS.ClientCA == "" {
			v.fail(key+".method", "cert needs router.tls.client_ca, the authority that signs client certificates")
		}
	}
	if r.MaxClientConnections < 1 {
		v.fail("router.max_client_connections", "must be at least 1")
	}
	v.positive("router.startup_timeout", r.StartupTimeout)
	v.notNegative("router.drain_timeout", r.DrainTimeout)
	v.notNegative("router.slow_statement", r.SlowStatement)
}

func (v *validator) routerTLS() {
	t := &v.c.Router.TLS
	v.oneOf("router.tls.mode", t.Mode, tlsModes)
	v.pair("router.tls.cert", t.Cert, "router.tls.key", t.Key)
	v.file("router.tls.cert", t.Cert)
	v.file("router.tls.key", t.Key)
	v.file("router.tls.client_ca", t.ClientCA)
	switch {
	case t.Mode == "off" && t.Cert != "":
		v.fail("router.tls.mode", "off, but a certificate is given; remove one of the two")
	case (t.Mode == "require" || t.Mode == "allow") && t.Cert == "":
		if _, explicit := v.c.lines["router.tls.mode"]; explicit {
			v.fail("router.tls.cert", "tls mode %s needs cert and key", t.Mode)
			return
		}
		v.fail("router.tls.cert", "router.listen %s can be reached from other machines, so TLS is required: give cert and key, "+
			"or accept plaintext passwords and data with mode: off", v.c.Router.Listen)
	case t.ClientCA != "" && t.Cert == "":
		v.fail("router.tls.client_ca", "client certificates need TLS: give cert and key")
	}
}

func (v *validator) pool() {
	p := &v.c.Router.Pool
	if p.MaxPerPool < 1 {
		v.fail("router.pool.max_per_pool", "must be at least 1")
	}
	if p.MaxPerNode < p.MaxPerPool {
		v.fail("router.pool.max_per_node", "%d is less than max_per_pool (%d)", p.MaxPerNode, p.MaxPerPool)
	}
	v.positive("router.pool.queue_timeout", p.QueueTimeout)
	v.positive("router.pool.connect_timeout", p.ConnectTimeout)
	v.positive("router.pool.idle_timeout", p.IdleTimeout)
	v.positive("router.pool.lifetime", p.Lifetime)
}

func (v *validator) controller() {
	c := &v.c.Controller
	v.name("controller.name", c.Name, false)
	v.hostPort("controller.http", c.HTTP, true)
	v.file("controller.token_file", c.TokenFile)
	if c.TokenFile == "" && !Loopback(c.HTTP) {
		v.fail("controller.token_file", "controller.http %s can be reached from other machines, so a token is needed", c.HTTP)
	}
}

func (v *validator) telemetry() {
	t := &v.c.Telemetry
	v.oneOf("telemetry.log_level", t.LogLevel, logLevels)
	v.oneOf("telemetry.log_format", t.LogFormat, logFormats)
	if t.OTLPEndpoint != "" {
		scheme, address, _ := strings.Cut(t.OTLPEndpoint, "://")
		if scheme != "http" && scheme != "https" {
			v.fail("telemetry.otlp_endpoint", "%q is not a URL of a collector; write http://host:port or https://host:port", t.OTLPEndpoint)
		} else {
			v.hostPort("telemetry.otlp_endpoint", address, false)
		}
	}
	if !(t.TraceSample >= 0 && t.TraceSample <= 1) { // not a number is no share either
		v.fail("telemetry.trace_sample", "%v is no share of statements: it must be from 0 to 1", t.TraceSample)
	}
}

func (v *validator) name(key, name string, required bool) {
	switch {
	case name == "" && required:
		v.fail(key, "a name is needed")
	case name != "" && !ValidName(name):
		v.fail(key, "%q is not a name: use letters, digits, '-', '_' and '.', at most 63, starting with a letter or digit", name)
	}
}

// hostPort checks an address; a listener may use port 0 (any free one) and an empty host (all).
func (v *validator) hostPort(key, address string, listen bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		v.fail(key, "%q is not host:port", address)
		return
	}
	n, err := strconv.Atoi(port)
	if err != nil || n < 0 || n > 65535 || n == 0 && !listen {
		v.fail(key, "%q is not a port", port)
	}
	if host == "" && !listen {
		v.fail(key, "%q has no host", address)
	}
}

func (v *validator) oneOf(key, value string, allowed []string) {
	if !slices.Contains(allowed, value) {
		v.fail(key, "%q is not one of %s", value, strings.Join(allowed, ", "))
	}
}

func (v *validator) pair(certKey, cert, keyKey, key string) {
	if cert != "" && key == "" {
		v.fail(keyKey, "missing: %s is given", certKey)
	}
	if key != "" && cert == "" {
		v.fail(certKey, "missing: %s is given", keyKey)
	}
}

func (v *validator) file(key, path string) {
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	switch {
	case err != nil:
		v.fail(key, "%v", err)
	case info.IsDir():
		v.fail(key, "%s is a directory", path)
	}
}

func (v *validator) secret(key, value, path string) {
	if value != "" && path != "" {
		v.fail(key, "given both here and in %s_file; keep one", key)
	}
	v.file(key+"_file", path)
}

func (v *validator) positive(key string, d time.Duration) {
	if d <= 0 {
		v.fail(key, "must be more than 0")
	}
}

func (v *validator) notNegative(key string, d time.Duration) {
	if d < 0 {
		v.fail(key, "must not be negative")
	}
}

// ParsePrefix reads a network, or one address as a network of itself.
func ParsePrefix(s string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(s); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(s)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("config: %w", err)
	}
	return prefix.Masked(), nil
}
