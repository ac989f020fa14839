package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// local is a cluster of servers and topology store in a directory that is closed to others, as
// mktemp -d makes it.
type local struct {
	t       *testing.T
	dir     string
	layout  Layout
	said    []string
	summary Summary
}

func newLocal(t *testing.T) *local {
	t.Helper()
	if testing.Short() {
		t.Skip("starts PostgreSQL servers")
	}
	parent, err := os.MkdirTemp("", "pgshoal-test-")
	if err != nil {
		t.Fatal(err)
	}
	l := &local{t: t, dir: filepath.Join(parent, "in", "c")}
	if l.layout, err = NewLayout(l.dir); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			l.printLogs()
		}
		if err := Down(context.Background(), l.dir); err != nil && !errors.Is(err, ErrNotRunning) && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("down: %v", err)
		}
		l.nothingRuns()
		if err := os.RemoveAll(parent); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *local) printLogs() {
	logs, _ := filepath.Glob(l.layout.LogFile("*"))
	for _, path := range logs {
		l.t.Logf("%s:\n%s", path, logTail(path))
	}
}

// up starts a detached supervisor.
func (l *local) up(flags ...string) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	opts := Options{
		Dir: l.dir, Executable: executable,
		Say:   func(line string) { l.said = append(l.said, line) },
		Ready: func(s Summary) { l.summary = s },
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	return Detach(ctx, opts, append([]string{"up", "--dir", l.dir}, flags...))
}

func (l *local) mustUp(flags ...string) {
	l.t.Helper()
	if err := l.up(flags...); err != nil {
		l.t.Fatalf("up: %v", err)
	}
}

// create starts a new cluster on free ports.
func (l *local) create(flags ...string) {
	l.t.Helper()
	l.mustUp(append([]string{"--nodes", "2", "--port", "0", "--http", "127.0.0.1:0", "--unsafe-fast", "true"}, flags...)...)
}

func (l *local) status() *Status {
	l.t.Helper()
	s, err := ReadStatus(context.Background(), l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

// eventually waits for a status.
func (l *local) eventually(what string, holds func(*Status) bool) *Status {
	l.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		s := l.status()
		if holds(s) {
			return s
		}
		if time.Now().After(deadline) {
			l.t.Fatalf("not so in time: %s\n%+v", what, s)
		}
		<-tick.C
	}
}

func (l *local) exec(server int, sql string) {
	l.t.Helper()
	conn := l.connect(l.status().Nodes[server].DSN)
	if _, err := conn.Exec(context.Background(), sql); err != nil {
		l.t.Fatalf("%s: %v", sql, err)
	}
}

func (l *local) connect(dsn string) *pgx.Conn {
	l.t.Helper()
	conn, err := pgx.Connect(context.Background(), dsn)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (l *local) kill(pid int, sig syscall.Signal) {
	l.t.Helper()
	p, ok := findProcess(pid)
	if !ok {
		l.t.Fatalf("process %d does not run", pid)
	}
	if err := p.signal(sig); err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := p.gone(ctx); err != nil {
		l.t.Fatalf("process %d does not end: %v", pid, err)
	}
}

// nothingRuns looks for the directory in every process of the machine.
func (l *local) nothingRuns() {
	l.t.Helper()
	entries, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		l.t.Fatal(err)
	}
	for _, e := range entries {
		cmdline, _ := os.ReadFile(e + "/cmdline")
		cwd, _ := os.Readlink(e + "/cwd")
		if strings.Contains(string(cmdline), l.dir) || strings.HasPrefix(cwd, l.dir) {
			l.t.Errorf("still running: %s %q", e, cmdline)
		}
	}
}

func TestSecondUpFindsItsData(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create()
	if !l.summary.Created || l.summary.Nodes != 2 {
		t.Errorf("summary of a new cluster: %+v", l.summary)
	}
	if os.Geteuid() == 0 && len(l.said) == 0 {
		t.Error("nothing was said about the permission that PostgreSQL's user got")
	}
	l.exec(0, "CREATE TABLE kept AS SELECT 1 AS n")
	before := l.status()
	if err := Down(context.Background(), l.dir); err != nil {
		t.Fatalf("down: %v", err)
	}
	l.nothingRuns()
	if err := Down(context.Background(), l.dir); !errors.Is(err, ErrNotRunning) {
		t.Errorf("second down: %v", err)
	}
	if s := l.status(); s.Health != Stopped || s.Nodes[0].State != stateStopped {
		t.Errorf("status of a stopped cluster: %+v", s)
	}

	l.mustUp()
	after := l.status()
	if l.summary.Created || before.Epoch != after.Epoch || before.HTTP != after.HTTP || before.Nodes[0].DSN != after.Nodes[0].DSN {
		t.Errorf("before %+v\nafter %+v", before, after)
	}
	l.exec(0, "SELECT n FROM kept")

	var running *RunningError
	if err := l.up(); !errors.As(err, &running) {
		t.Errorf("up on a running cluster: %v", err)
	}
	s, err := AwaitReady(context.Background(), l.dir)
	if err != nil || s.DSN != l.summary.DSN {
		t.Errorf("AwaitReady: %+v, %v", s, err)
	}
}

func TestSecretsAreClosed(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create("--nodes", "1")
	for _, path := range []string{l.layout.TokenFile(), l.layout.superuserFile(), l.layout.serviceFile(), l.layout.StateFile()} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
	}
	for _, s := range l.status().Nodes {
		config, err := pgx.ParseConfig(s.DSN)
		if err != nil {
			t.Fatal(err)
		}
		config.Password = "wrong"
		if _, err := pgx.ConnectConfig(context.Background(), config); err == nil {
			t.Errorf("%s lets everybody in", s.Name)
		}
	}
}

func TestVerifiersAgreeOnAllNodes(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create()
	seen := map[string][]string{}
	for _, n := range l.status().Nodes {
		rows, err := l.connect(n.DSN).Query(context.Background(), "SELECT rolname, rolpassword FROM pg_authid WHERE rolcanlogin")
		if err != nil {
			t.Fatal(err)
		}
		var role, verifier string
		if _, err := pgx.ForEachRow(rows, []any{&role, &verifier}, func() error {
			seen[role] = append(seen[role], verifier)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, role := range []string{superuser, serviceUser} {
		if v := seen[role]; len(v) != 2 || v[0] != v[1] || !strings.HasPrefix(v[0], "SCRAM-SHA-256$") {
			t.Errorf("verifiers of %s: %q", role, v)
		}
	}
}

func TestKilledPartsComeBack(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create()
	l.exec(1, "CREATE TABLE kept AS SELECT 1 AS n")
	before := l.status()

	l.kill(before.Etcd.PID, syscall.SIGKILL)
	l.eventually("etcd is back", func(s *Status) bool {
		return s.Etcd.State == stateRunning && s.Etcd.PID != before.Etcd.PID && s.Epoch == before.Epoch
	})
	l.kill(before.Nodes[1].PID, syscall.SIGKILL)
	after := l.eventually("node2 is back", func(s *Status) bool {
		return s.Nodes[1].State == "active" && s.Nodes[1].PID != before.Nodes[1].PID
	})
	if after.Nodes[1].DSN != before.Nodes[1].DSN {
		t.Errorf("node2 moved from %s to %s", before.Nodes[1].DSN, after.Nodes[1].DSN)
	}
	l.exec(1, "SELECT n FROM kept")
}

func TestShutDownServerStaysDownUntilStarted(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create()
	before := l.status()
	l.kill(before.Nodes[1].PID, syscall.SIGINT)
	l.eventually("node2 is stopped", func(s *Status) bool { return s.Nodes[1].State == stateStopped })
	l.eventually("the supervisor has decided", func(*Status) bool {
		return strings.Contains(string(logTail(l.layout.LogFile(titleUp))), `"PostgreSQL stays down" server=node2`)
	})
	if s := l.status(); s.Nodes[1].State != stateStopped || s.Health != Degraded {
		t.Fatalf("a server that was shut down: %+v", s.Nodes[1])
	}
	l.pgCtl("start", l.layout.dataDir(l.state().Nodes[1].Servers[0]))
	started := l.eventually("node2 runs", func(s *Status) bool { return s.Nodes[1].State == "active" })
	// The supervisor has taken over the server it did not start.
	l.kill(started.Nodes[1].PID, syscall.SIGKILL)
	l.eventually("node2 is back", func(s *Status) bool {
		return s.Nodes[1].State == "active" && s.Nodes[1].PID != started.Nodes[1].PID
	})
}

func (l *local) state() *State {
	l.t.Helper()
	s, err := LoadState(l.layout)
	if err != nil {
		l.t.Fatal(err)
	}
	return s
}

func (l *local) pgCtl(command, dataDir string) {
	l.t.Helper()
	ctx := context.Background()
	p, err := findPrograms(ctx, "", 0)
	if err != nil {
		l.t.Fatal(err)
	}
	a, err := chooseAccount()
	if err != nil {
		l.t.Fatal(err)
	}
	c := &cluster{programs: p, account: a}
	if err := c.runProgram(ctx, "pg_ctl", nil, command, "-w", "-D", dataDir, "-l", filepath.Join(dataDir, "pg_ctl.log")); err != nil {
		l.t.Fatal(err)
	}
}

func TestUpTakesOverAfterKilledSupervisor(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create()
	before := l.status()
	l.kill(before.Supervisor, syscall.SIGKILL)
	orphaned := l.status()
	if orphaned.Health != Degraded || orphaned.Nodes[0].PID != before.Nodes[0].PID || orphaned.Nodes[0].State != "active" || orphaned.Etcd.PID != before.Etcd.PID {
		t.Fatalf("without a supervisor: %+v", orphaned)
	}
	l.mustUp()
	after := l.status()
	if after.Supervisor == before.Supervisor || after.Nodes[0].PID != before.Nodes[0].PID || after.Etcd.PID != before.Etcd.PID {
		t.Errorf("taken over: before %+v\nafter %+v", before, after)
	}
	l.kill(after.Etcd.PID, syscall.SIGKILL)
	l.eventually("etcd is back", func(s *Status) bool { return s.Etcd.State == stateRunning })
}

func TestDownWithoutThePidFile(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create("--nodes", "1")
	if err := os.Remove(l.layout.pidFile(titleUp)); err != nil {
		t.Fatal(err)
	}
	if err := Down(context.Background(), l.dir); err != nil {
		t.Fatal(err)
	}
	l.nothingRuns()
}

func TestDownStopsOrphans(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create("--nodes", "1")
	l.kill(l.status().Supervisor, syscall.SIGKILL)
	if err := Down(context.Background(), l.dir); err != nil {
		t.Fatal(err)
	}
	l.nothingRuns()
}

func TestReplicaStreamsAndPromotionWins(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create("--nodes", "1", "--replicas", "1")
	s := l.eventually("the replica streams", func(s *Status) bool { return s.Nodes[0].Replicas[0].State == "streaming" })
	old := s.Nodes[0]
	l.exec(0, "CREATE TABLE kept AS SELECT 1 AS n")
	l.eventually("the replica has it all", func(s *Status) bool {
		lag := s.Nodes[0].Replicas[0].LagBytes
		return lag != nil && *lag == 0
	})
	// The primary still runs: whoever promotes means it, so the old primary must go.
	conn := l.connect(old.Replicas[0].DSN)
	if _, err := conn.Exec(context.Background(), "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	l.eventually("the old primary is stopped", func(s *Status) bool {
		n := s.Nodes[0]
		return n.DSN == old.Replicas[0].DSN && n.State == "active" && n.Replicas[0].State == stateReplaced && n.Replicas[0].PID == 0
	})
	if err := Down(context.Background(), l.dir); err != nil {
		t.Fatal(err)
	}
	l.mustUp()
	after := l.status().Nodes[0]
	if after.DSN != old.Replicas[0].DSN || after.State != "active" || after.Replicas[0].PID != 0 {
		t.Errorf("after a restart: %+v", after)
	}
	l.exec(0, "INSERT INTO kept VALUES (2)")
}

func TestFailedFirstStartLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	taken, err := newPorts().free()
	if err != nil {
		t.Fatal(err)
	}
	listener := listen(t, taken)
	defer func() { _ = listener.Close() }()
	err = l.up("--nodes", "1", "--port", fmt.Sprint(taken), "--http", "127.0.0.1:0")
	var problem *Problem
	if !errors.As(err, &problem) || !strings.Contains(problem.Sentence, fmt.Sprint(taken)) || !strings.Contains(problem.Way, "--port") {
		t.Errorf("port taken: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(l.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory stays: %v", err)
	}
	l.nothingRuns()
}

func TestInterruptedFirstStartLeavesNothing(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = Detach(ctx, Options{
		Dir: l.dir, Executable: executable, Ready: func(Summary) { t.Error("ready") },
		Say: func(line string) {
			if strings.HasPrefix(line, "creating") {
				cancel()
			}
		},
	}, []string{"up", "--dir", l.dir, "--nodes", "2", "--port", "0", "--http", "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := os.Stat(filepath.Dir(l.dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory stays: %v", err)
	}
}

func TestKilledFirstStartIsDoneAgain(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	err = Detach(context.Background(), Options{
		Dir: l.dir, Executable: executable, Ready: func(Summary) { t.Error("ready") },
		Say: func(line string) {
			if p, ok := readPID(l.layout.pidFile(titleUp)); ok && strings.HasPrefix(line, "creating") {
				l.kill(p.PID, syscall.SIGKILL)
			}
		},
	}, []string{"up", "--dir", l.dir, "--nodes", "1", "--port", "0", "--http", "127.0.0.1:0"})
	if err == nil {
		t.Fatal("a killed supervisor was ready")
	}
	l.create("--nodes", "1")
}

func (l *local) currentMap() *keyspace.Map {
	l.t.Helper()
	store, err := openStore(l.state())
	if err != nil {
		l.t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	m, err := topo.LoadMap(context.Background(), store)
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

// checkMap compares the map with what each node says of itself at the map's own address.
func (l *local) checkMap() {
	l.t.Helper()
	m := l.currentMap()
	if len(m.Nodes) != len(l.state().Nodes) || m.Home != "node1" {
		l.t.Errorf("the map: %+v", m)
	}
	for _, n := range m.Nodes {
		i := strings.LastIndex(n.Addresses[0], ":")
		config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%s user=postgres password=%s", n.Addresses[0][:i], n.Addresses[0][i+1:], l.password()))
		if err != nil {
			l.t.Fatal(err)
		}
		conn, err := pgx.ConnectConfig(context.Background(), config)
		if err != nil {
			l.t.Fatal(err)
		}
		var cluster, name string
		var id int
		var home bool
		err = conn.QueryRow(context.Background(), "SELECT cluster, name, id, home FROM pg_shoal.node").Scan(&cluster, &name, &id, &home)
		if err != nil || cluster != m.Cluster || name != n.Name || id != n.ID || home != (n.Name == m.Home) {
			l.t.Errorf("the map says %+v, the node %s %s %d %v, %v", n, cluster, name, id, home, err)
		}
		if err := conn.Close(context.Background()); err != nil {
			l.t.Error(err)
		}
	}
}

func (l *local) password() string {
	l.t.Helper()
	password, err := readSecret(l.layout.superuserFile())
	if err != nil {
		l.t.Fatal(err)
	}
	return password
}

func TestMapFollowsAServerThatLostItsPort(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create()
	l.checkMap()
	before := l.state()
	if err := Down(context.Background(), l.dir); err != nil {
		t.Fatal(err)
	}
	thief := listen(t, before.Nodes[1].Servers[0].Port)
	defer func() { _ = thief.Close() }()
	l.mustUp()
	if after := l.state(); after.Nodes[1].Servers[0].Port == before.Nodes[1].Servers[0].Port || after.Nodes[0].Servers[0].Port != before.Nodes[0].Servers[0].Port {
		t.Errorf("ports before %+v, after %+v", before.Nodes, after.Nodes)
	}
	l.checkMap()
}

func TestTopologyStoreOfAnotherClusterIsRefused(t *testing.T) {
	t.Parallel()
	l := newLocal(t)
	l.create("--nodes", "1")
	if err := Down(context.Background(), l.dir); err != nil {
		t.Fatal(err)
	}
	s := l.state()
	original := s.Cluster
	s.Cluster = "another"
	if err := s.save(l.layout); err != nil {
		t.Fatal(err)
	}
	var problem *Problem
	if err := l.up(); !errors.As(err, &problem) || !strings.Contains(problem.Sentence, "belongs to another cluster") {
		t.Errorf("another cluster's store: %v", err)
	}
	l.nothingRuns()
	s.Cluster = original
	if err := s.save(l.layout); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(l.layout.EtcdDir()); err != nil {
		t.Fatal(err)
	}
	if err := l.up(); !errors.As(err, &problem) || !strings.Contains(problem.Sentence, "is empty") {
		t.Errorf("no store: %v", err)
	}
	l.nothingRuns()
}
