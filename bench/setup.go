package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// setup is the running system: a cluster of one node, its router, and two pgbouncers in front of
// the same node, because Debian's has no prepared statements in transaction pooling.
type setup struct {
	dir     string
	pgshoal string
	node    target
	address string // how the router reaches the node; pgbouncer goes the same way
	router  target
	metrics string // the address of the router's metrics
	bouncer target // transaction pooling
	session target // session pooling
	running []*exec.Cmd
}

// target is something pgbench can connect to; pid is 0 for the server itself.
type target struct {
	dsn string
	pid int
	// servers are those whose CPU time counts too, with that of their backends.
	servers []int
}

func start(ctx context.Context, o options) (_ *setup, err error) {
	for _, tool := range []string{"pgbench", "pgbouncer"} {
		if _, err := lookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is missing: install Debian's package %s", tool, map[string]string{
				"pgbench": "postgresql-contrib", "pgbouncer": "pgbouncer",
			}[tool])
		}
	}
	dir, err := os.MkdirTemp("", "pgshoal-bench")
	if err != nil {
		return nil, err
	}
	s := &setup{dir: dir, pgshoal: o.pgshoal}
	defer func() {
		if err != nil {
			s.stop()
		}
	}()
	if err := os.Chmod(dir, 0o755); err != nil {
		return nil, err
	}
	if err := s.startCluster(ctx); err != nil {
		return nil, err
	}
	if err := s.startRouter(ctx); err != nil {
		return nil, err
	}
	if s.bouncer, err = s.startBouncer(ctx, "transaction"); err != nil {
		return nil, err
	}
	if s.session, err = s.startBouncer(ctx, "session"); err != nil {
		return nil, err
	}
	return s, s.load(ctx, o.rows)
}

func (s *setup) cluster() string { return filepath.Join(s.dir, "cluster") }

func (s *setup) startCluster(ctx context.Context) error {
	up := exec.CommandContext(ctx, s.pgshoal, "up", "--dir", s.cluster(), "--nodes", "1", "--port", "0", "--http", "127.0.0.1:0", "--detach")
	if out, err := up.CombinedOutput(); err != nil {
		return fmt.Errorf("starting the cluster: %w: %s", err, out)
	}
	out, err := exec.CommandContext(ctx, s.pgshoal, "status", "--dir", s.cluster(), "--json").Output()
	if err != nil {
		return fmt.Errorf("reading the cluster's status: %w", err)
	}
	var status struct{ Nodes []struct{ DSN string } }
	if err := json.Unmarshal(out, &status); err != nil {
		return err
	}
	s.node = target{dsn: status.Nodes[0].DSN}
	s.address, err = s.nodeAddress(ctx)
	return err
}

// startRouter runs a router apart from the cluster's own: Linux shares the cores out by session first,
// so every proxy has a session of its own, none together with the server or with pgbench.
func (s *setup) startRouter(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	httpPort, err := freePort()
	if err != nil {
		return err
	}
	s.metrics = net.JoinHostPort("127.0.0.1", strconv.Itoa(httpPort))
	cmd := exec.Command(s.pgshoal, "router", "--dir", s.cluster(), "--port", strconv.Itoa(port), "--http", s.metrics, "--name", "bench")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	s.router, err = s.startProxy(ctx, cmd, port)
	return err
}

// startProxy starts a proxy and waits until it answers.
func (s *setup) startProxy(ctx context.Context, cmd *exec.Cmd, port int) (target, error) {
	via, err := url.Parse(s.node.dsn)
	if err != nil {
		return target{}, err
	}
	via.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return target{}, fmt.Errorf("starting %s: %w", cmd.Path, err)
	}
	s.running = append(s.running, cmd)
	t := target{dsn: via.String(), pid: cmd.Process.Pid}
	if err := await(ctx, t.dsn); err != nil {
		return target{}, fmt.Errorf("%s does not answer: %w: %s", cmd.Path, err, stderr.String())
	}
	return t, nil
}

// nodeAddress is the node's address in the map: a directory of Unix sockets or a host, and a port.
func (s *setup) nodeAddress(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, s.pgshoal, "node", "list", "--dir", s.cluster(), "--json").Output()
	if err != nil {
		return "", fmt.Errorf("listing the nodes: %w", err)
	}
	var nodes []struct {
		Servers []struct{ Address string }
	}
	if err := json.Unmarshal(out, &nodes); err != nil {
		return "", err
	}
	if len(nodes) != 1 || len(nodes[0].Servers) != 1 {
		return "", fmt.Errorf("the cluster has not one server: %s", out)
	}
	return nodes[0].Servers[0].Address, nil
}

// startBouncer runs pgbouncer with its defaults but for what it must be told. It reaches the server
// as the router does: a Unix socket costs a quarter less than TCP.
func (s *setup) startBouncer(ctx context.Context, mode string) (target, error) {
	node, err := url.Parse(s.node.dsn)
	if err != nil {
		return target{}, err
	}
	password, _ := node.User.Password()
	colon := strings.LastIndexByte(s.address, ':')
	port, err := freePort()
	if err != nil {
		return target{}, err
	}
	dir := filepath.Join(s.dir, "pgbouncer-"+mode)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return target{}, err
	}
	users := fmt.Sprintf("%q %q\n", node.User.Username(), password)
	config := fmt.Sprintf(`[databases]
postgres = host=%s port=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = scram-sha-256
auth_file = %s
pool_mode = %s
default_pool_size = 50
max_client_conn = 1000
logfile = %s
`, s.address[:colon], s.address[colon+1:], port, filepath.Join(dir, "users.txt"), mode, filepath.Join(dir, "log"))
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "users.txt"), []byte(users), 0o644),
		os.WriteFile(filepath.Join(dir, "pgbouncer.ini"), []byte(config), 0o644),
	); err != nil {
		return target{}, err
	}
	path, err := lookPath("pgbouncer")
	if err != nil {
		return target{}, err
	}
	cmd := exec.Command(path, "-q", filepath.Join(dir, "pgbouncer.ini"))
	if err := unprivileged(cmd, dir); err != nil {
		return target{}, err
	}
	return s.startProxy(ctx, cmd, port)
}

// unprivileged makes a command run as another user when this one is root, which pgbouncer refuses.
func unprivileged(cmd *exec.Cmd, dir string) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return os.Chown(dir, uid, gid)
}

func await(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, dsn)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// load makes the table through the router, distributed by its key, and warms it.
func (s *setup) load(ctx context.Context, rows int) error {
	conn, err := pgx.Connect(ctx, s.router.dsn)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for _, sql := range []string{
		"CREATE TABLE item (id bigint PRIMARY KEY, balance bigint NOT NULL, filler text)",
		"INSERT INTO item SELECT g, 0, repeat('x', 80) FROM generate_series(1, " + strconv.Itoa(rows) + ") g",
		"SELECT create_distributed_table('item', 'id')",
		"VACUUM ANALYZE item",
	} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

func (s *setup) stop() {
	for _, cmd := range s.running {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}
	_ = exec.Command(s.pgshoal, "down", "--dir", s.cluster()).Run()
	_ = os.RemoveAll(s.dir)
}

func lookPath(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	matches, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	matches = append(matches, "/usr/sbin/"+name)
	for i := len(matches) - 1; i >= 0; i-- {
		if _, err := os.Stat(matches[i]); err == nil {
			return matches[i], nil
		}
	}
	return "", fmt.Errorf("%s not found", strings.TrimSpace(name))
}
