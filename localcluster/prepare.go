package localcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sync/errgroup"
)

const (
	// spacePerServer is what a fresh data directory and its first WAL take, with some air.
	spacePerServer = 100 << 20
	// spaceForEtcd covers the two log files of 64 MB that etcd reserves.
	spaceForEtcd = 150 << 20
	// maxSocketPath is the room a Unix socket's address has, minus PostgreSQL's file name.
	maxSocketPath = 100 - len("/.s.PGSQL.65535.lock")
)

// prepare makes everything on disk that the parts need to start.
func (c *cluster) prepare(ctx context.Context) error {
	if c.fresh {
		c.state = newState(orDefault(c.opts.Nodes, DefaultNodes), orDefault(c.opts.Replicas, 0))
		c.state.PostgreSQL = c.programs.major
		c.state.Account = c.account.name
		c.state.UnsafeFast = c.opts.UnsafeFast
		need := int64(c.state.serverCount())*spacePerServer + spaceForEtcd
		if err := checkSpace(c.layout.Dir, need); err != nil {
			return err
		}
	}
	for _, dir := range []string{c.layout.logDir(), c.layout.nodesDir()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if c.opts.hasDir != nil {
		c.opts.hasDir(c.layout)
	}
	if err := os.MkdirAll(c.layout.secretsDir(), 0o700); err != nil {
		return err
	}
	var err error
	if c.grants, err = openPath(c.layout.nodesDir(), c.account); err != nil {
		return err
	}
	for _, line := range c.grants.Said {
		c.opts.Say(line)
	}
	if err := c.placeSockets(); err != nil {
		return err
	}
	if err := c.choosePorts(); err != nil {
		return err
	}
	if err := c.state.save(c.layout); err != nil {
		return err
	}
	if err := c.secrets(); err != nil {
		return err
	}
	if c.fresh {
		if err := c.initialiseAll(ctx); err != nil {
			return err
		}
	}
	if err := c.writeAllSettings(); err != nil {
		return err
	}
	return c.writeConfig()
}

func orDefault(value, otherwise int) int {
	if value == Unset {
		return otherwise
	}
	return value
}

func checkSpace(dir string, need int64) error {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("look at the free space of %s: %w", dir, err)
	}
	free := int64(fs.Bavail) * fs.Bsize
	if free >= need {
		return nil
	}
	return &Problem{
		Sentence: fmt.Sprintf("the disk of %s is full: %d MB are free, and the cluster needs %d MB to start", dir, free>>20, need>>20),
		Way:      "free some space, choose another directory with --dir, or fewer nodes with --nodes",
	}
}

// placeSockets puts the Unix sockets below the cluster's directory, or where its path is too long,
// into a directory of their own.
func (c *cluster) placeSockets() error {
	dir := filepath.Join(c.layout.runDir(), "postgres")
	if len(dir) <= maxSocketPath {
		c.state.SocketDir = dir
		return c.account.makeDir(dir, 0o755)
	}
	// What has the old name now may be somebody else's: the temporary directory is open to all.
	if info, err := os.Lstat(c.state.SocketDir); err == nil && info.IsDir() {
		if owner, err := ownerOf(c.state.SocketDir); err == nil && owner == int(c.account.uid) {
			return nil
		}
	}
	dir, err := os.MkdirTemp("", "pgshoal-")
	if err != nil {
		return err
	}
	c.state.SocketDir = dir
	return c.account.makeDir(dir, 0o755)
}

// removeSocketDir removes the directory that placeSockets made outside the cluster's own.
func removeSocketDir(l Layout, s *State) error {
	if s.SocketDir == "" || strings.HasPrefix(s.SocketDir, l.Dir+"/") {
		return nil
	}
	return os.RemoveAll(s.SocketDir)
}

// choosePorts settles all ports. Parts that still run after the death of a supervisor keep theirs.
func (c *cluster) choosePorts() error {
	p := newPorts()
	if err := c.choosePublicPorts(p); err != nil {
		return err
	}
	var err error
	if _, runs := readPID(c.layout.pidFile(titleEtcd)); runs {
		p.taken[c.state.EtcdPort] = true
	} else if c.state.EtcdPort, err = p.keep(c.state.EtcdPort); err != nil {
		return err
	}
	for n := range c.state.Nodes {
		for s := range c.state.Nodes[n].Servers {
			server := &c.state.Nodes[n].Servers[s]
			if _, ok := findPostmaster(c.layout.dataDir(*server)); ok {
				p.taken[server.Port] = true
			} else if server.Port, err = p.keep(server.Port); err != nil {
				return err
			}
		}
	}
	return nil
}

// choosePublicPorts settles the two that people know: the router's and the admin API's.
func (c *cluster) choosePublicPorts(p *ports) error {
	port := c.opts.Port
	if port == Unset {
		if port = c.state.RouterPort; port == 0 {
			port = DefaultPort
		}
	}
	chosen, err := c.publicPort(p, titleRouter, "127.0.0.1", port, c.state.RouterPort, "--port")
	if err != nil {
		return err
	}
	c.state.RouterPort = chosen

	address := c.opts.HTTP
	if address == "" {
		if address = c.state.HTTP; address == "" {
			address = DefaultHTTP
		}
	}
	host, port, err := splitHTTP(address)
	if err != nil {
		return err
	}
	before := 0
	if c.state.HTTP != "" {
		if _, before, err = splitHTTP(c.state.HTTP); err != nil {
			return err
		}
	}
	if chosen, err = c.publicPort(p, titleController, host, port, before, "--http"); err != nil {
		return err
	}
	c.state.HTTP = net.JoinHostPort(host, strconv.Itoa(chosen))
	return nil
}

func (c *cluster) publicPort(p *ports, title, host string, port, before int, flag string) (int, error) {
	_, runs := readPID(c.layout.pidFile(title))
	switch {
	case port == 0:
		return p.free()
	case runs && port == before:
		p.taken[port] = true
		return port, nil
	default:
		return port, p.demand(host, port, flag)
	}
}

func (c *cluster) secrets() error {
	if c.fresh {
		for _, path := range []string{c.layout.superuserFile(), c.layout.serviceFile(), c.layout.TokenFile()} {
			if _, err := newSecret(path); err != nil {
				return err
			}
		}
	}
	var err, err2 error
	c.superPassword, err = readSecret(c.layout.superuserFile())
	c.servicePassword, err2 = readSecret(c.layout.serviceFile())
	return errors.Join(err, err2)
}

func (c *cluster) initialiseAll(ctx context.Context) error {
	nodes := "1 node"
	if n := len(c.state.Nodes); n > 1 {
		nodes = fmt.Sprintf("%d nodes", n)
	}
	c.opts.Say(fmt.Sprintf("creating %s with PostgreSQL %s", nodes, c.programs.version))
	verifier, err := newVerifier(c.superPassword)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, n := range c.state.Nodes {
		g.Go(func() error { return c.initialise(ctx, n.Servers[0], verifier) })
	}
	return g.Wait()
}

// writeAllSettings writes the settings of every server that has a data directory.
func (c *cluster) writeAllSettings() error {
	for _, n := range c.state.Nodes {
		for _, s := range n.Servers {
			if _, err := os.Stat(filepath.Join(c.layout.dataDir(s), "PG_VERSION")); err != nil {
				if c.fresh {
					continue // replicas come later
				}
				return &Problem{
					Sentence: fmt.Sprintf("the data directory of %s is missing or damaged: %s", s.Name, c.layout.dataDir(s)),
					Way:      "restore it from a backup, or choose another directory with --dir",
					Cause:    err,
				}
			}
			if err := c.writeSettings(n, s); err != nil {
				return err
			}
		}
	}
	return nil
}
