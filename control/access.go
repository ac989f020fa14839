package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

const applicationName = "pgshoal controller"

// NodeAccess is how the controller logs in to every node: as the same superuser.
type NodeAccess struct {
	User, Password, Database string
	SSLMode                  string
	CA                       string // PEM file, for sslmode verify-*
	// Timelines, if set, knows on which timeline each node's primary was last seen.
	Timelines Timelines
}

// Config leads to a database on the primary of a node; an empty database is the access's own. A primary that a failover
// has left behind is refused, whether or not the new one answers.
func (a NodeAccess) Config(n keyspace.Node, database string) (*pgx.ConnConfig, error) {
	cfg, err := a.config(n.Addresses, database, "primary")
	if err == nil && len(n.Addresses) > 1 {
		cfg.ValidateConnect = a.newest(n, cfg.ValidateConnect)
	}
	return cfg, err
}

// Connect opens a connection as Config describes it.
func (a NodeAccess) Connect(ctx context.Context, n keyspace.Node, database string) (*pgx.Conn, error) {
	cfg, err := a.Config(n, database)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// config leads to one of the addresses; session is libpq's target_session_attrs.
func (a NodeAccess) config(addresses []string, database, session string) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(a.dsn(addresses, database, session))
	if err != nil {
		return nil, fmt.Errorf("control: address of a node: %w", err)
	}
	return cfg, nil
}

// primary finds the address of a node whose server is the primary now, and returns a connection
// string that leads there only: programs such as pg_dump are given one server. A node that is not in the map yet has no name.
func (a NodeAccess) primary(ctx context.Context, n keyspace.Node) (string, error) {
	var failed error
	for _, address := range n.Addresses {
		cfg, err := a.config([]string{address}, "", "primary")
		if err != nil {
			return "", err
		}
		if len(n.Addresses) > 1 {
			cfg.ValidateConnect = a.newest(n, cfg.ValidateConnect)
		}
		conn, err := pgx.ConnectConfig(ctx, cfg)
		if err == nil {
			return a.dsn([]string{address}, "", "primary"), conn.Close(ctx)
		}
		failed = errors.Join(failed, err)
	}
	return "", failed
}

func (a NodeAccess) dsn(addresses []string, database, session string) string {
	if database == "" {
		database = a.Database
	}
	var hosts, ports []string
	for _, address := range addresses {
		host, port := splitAddress(address)
		hosts, ports = append(hosts, host), append(ports, port)
	}
	pairs := []struct{ key, value string }{
		{"host", strings.Join(hosts, ",")},
		{"port", strings.Join(ports, ",")},
		{"user", a.User},
		{"password", a.Password},
		{"dbname", database},
		{"sslmode", a.SSLMode},
		{"sslrootcert", a.CA},
		{"target_session_attrs", session},
		{"connect_timeout", "5"},
		{"application_name", applicationName},
	}
	var b strings.Builder
	for _, p := range pairs {
		if p.value != "" {
			fmt.Fprintf(&b, "%s=%s ", p.key, quoteValue(p.value))
		}
	}
	return b.String()
}

func quoteValue(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

// splitAddress takes "host:port", "[::1]:port" or "/dir:port" apart.
func splitAddress(address string) (host, port string) {
	if i := strings.LastIndexByte(address, ':'); strings.HasPrefix(address, "/") && i >= 0 {
		return address[:i], address[i+1:]
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address, "5432"
	}
	return host, port
}

func joinAddress(host string, port uint16) string {
	if strings.HasPrefix(host, "/") {
		return host + ":" + strconv.Itoa(int(port))
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

// parseDSN reads the connection string of a server that is to become a node. What it leaves out
// (role, password, sslmode) is as for all nodes.
func (a NodeAccess) parseDSN(dsn string) (*pgx.ConnConfig, []string, error) {
	full, err := a.completeDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg, err := pgx.ParseConfig(full)
	if err != nil {
		return nil, nil, err
	}
	cfg.RuntimeParams["application_name"] = applicationName
	addresses := []string{joinAddress(cfg.Host, cfg.Port)}
	for _, f := range cfg.Fallbacks {
		if address := joinAddress(f.Host, f.Port); !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	return cfg, addresses, nil
}

func (a NodeAccess) completeDSN(dsn string) (string, error) {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		return a.completeURL(dsn)
	}
	given := func(key string) bool {
		return slices.ContainsFunc(strings.Fields(dsn), func(f string) bool { return strings.HasPrefix(f, key+"=") })
	}
	add := func(key, value string) {
		if value != "" && !given(key) {
			dsn += " " + key + "=" + quoteValue(value)
		}
	}
	if !given("user") {
		add("user", a.User)
		add("password", a.Password)
	}
	add("dbname", a.Database)
	add("sslmode", a.SSLMode)
	add("sslrootcert", a.CA)
	add("connect_timeout", "5")
	return dsn, nil
}

func (a NodeAccess) completeURL(dsn string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		// The library's message repeats the URL, and with it the password.
		return "", fmt.Errorf("not a connection string; write postgres://role:password@host:port/database")
	}
	query := u.Query()
	if u.User == nil && !query.Has("user") {
		u.User = url.User(a.User)
		if a.Password != "" {
			u.User = url.UserPassword(a.User, a.Password)
		}
	}
	if strings.Trim(u.Path, "/") == "" && !query.Has("dbname") {
		u.Path = "/" + a.Database
	}
	for key, value := range map[string]string{"sslmode": a.SSLMode, "sslrootcert": a.CA, "connect_timeout": "5"} {
		if value != "" && !query.Has(key) {
			query.Set(key, value)
		}
	}
	u.RawQuery = query.Encode()
	return u.String(), nil
}
