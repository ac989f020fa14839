// Package shardtest gives tests the real parts pgshoal runs on, because PostgreSQL is never mocked.
package shardtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	superuser    = "postgres"
	startTimeout = 60 * time.Second
	stopTimeout  = 30 * time.Second
	readyLine    = "database system is ready to accept" // connections, or read-only connections of a standby
)

// Postgres is one PostgreSQL server that lives as long as the test. Everybody may log in without a
// password, from 127.0.0.1 and from the Unix socket; the superuser is "postgres".
type Postgres struct {
	DataDir   string
	SocketDir string
	Port      int
	// Version is the major version, e.g. 15.
	Version int

	tb       testing.TB
	bin      string
	root     string
	settings []string
	run      *serverRun // nil while the server is down
}

// serverRun is one life of the server process.
type serverRun struct {
	process *os.Process
	log     *serverLog
	exited  chan struct{}
}

// StartPostgres initialises and starts a server and stops it when the test ends. Settings have the
// form "name=value". The server does not fsync: its data survives Kill, not a power failure.
func StartPostgres(tb testing.TB, settings ...string) *Postgres {
	tb.Helper()
	bin, version, err := findPostgres()
	if err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
	// Not tb.TempDir: a socket's path must be short, and the server's user must reach it.
	root, err := os.MkdirTemp("", "pgshoal-")
	if err != nil {
		tb.Fatalf("start PostgreSQL: %v", err)
	}
	p := &Postgres{
		DataDir: filepath.Join(root, "data"), SocketDir: root, Version: version,
		tb: tb, bin: bin, root: root, settings: settings,
	}
	p.startNew("initdb", "--pgdata="+p.DataDir, "--username="+superuser,
		"--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions")
	return p
}

// startNew makes the data directory with a program of PostgreSQL and starts the server on a free port.
func (p *Postgres) startNew(program string, args ...string) {
	p.tb.Helper()
	p.tb.Cleanup(p.cleanUp)
	if err := p.ownRoot(); err != nil {
		p.tb.Fatalf("start PostgreSQL: %v", err)
	}
	if err := p.tool(program, args...); err != nil {
		p.tb.Fatalf("start PostgreSQL: %v", err)
	}
	if err := p.startOnFreePort(); err != nil {
		p.tb.Fatalf("start PostgreSQL: %v", err)
	}
}

// DSN returns a connection string over TCP; empty arguments mean the superuser and its database.
func (p *Postgres) DSN(role, database string) string {
	if role == "" {
		role = superuser
	}
	if database == "" {
		database = superuser
	}
	u := url.URL{
		Scheme: "postgres", User: url.User(role), Host: p.Address(), Path: "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Address returns host:port.
func (p *Postgres) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Port)) }

// Start starts the server again on its port, after Stop or Kill.
func (p *Postgres) Start() {
	p.tb.Helper()
	if p.run != nil {
		return
	}
	if err := p.start(); err != nil {
		p.tb.Fatalf("start PostgreSQL again: %v", err)
	}
}

// Stop shuts the server down, ending its connections; it does nothing when the server is down.
func (p *Postgres) Stop() { p.tb.Helper(); p.shutDown(syscall.SIGINT) }

// StopImmediately is pg_ctl stop -m immediate: no checkpoint, and recovery at the next start.
func (p *Postgres) StopImmediately() { p.tb.Helper(); p.shutDown(syscall.SIGQUIT) }

func (p *Postgres) shutDown(how syscall.Signal) {
	p.tb.Helper()
	if p.run == nil {
		return
	}
	run := p.run
	if err := run.process.Signal(how); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("stop PostgreSQL: %v", err)
	}
	select {
	case <-run.exited:
		p.run = nil
	case <-time.After(stopTimeout):
		p.tb.Errorf("PostgreSQL did not stop within %v, killing it; its log ends with\n%s", stopTimeout, run.log.tail())
		p.Kill()
	}
}

// Kill ends all processes of the server at once, without a word to the clients, as a crash does.
func (p *Postgres) Kill() {
	p.tb.Helper()
	if p.run == nil {
		return
	}
	pid := p.run.process.Pid
	segment := sharedMemorySegment(p.DataDir)
	// A stopped postmaster starts no further children and reaps none, so no pid is reused meanwhile.
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for _, child := range childrenOf(pid) {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	<-p.run.exited
	p.run = nil
	if segment >= 0 {
		// The kernel keeps the segment until nobody is attached; nobody else would remove it.
		const removeSegment = 0 // IPC_RMID
		_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, uintptr(segment), removeSegment, 0)
	}
}

// Log returns the last lines the server wrote.
func (p *Postgres) Log() string {
	if p.run == nil {
		return ""
	}
	return p.run.log.tail()
}

func (p *Postgres) cleanUp() {
	if p.tb.Failed() && p.run != nil {
		p.tb.Logf("PostgreSQL at %s wrote last:\n%s", p.Address(), p.run.log.tail())
	}
	p.Stop()
	if err := os.RemoveAll(p.root); err != nil {
		p.tb.Errorf("remove PostgreSQL's directory: %v", err)
	}
}

// ownRoot gives the directory to the server's user.
func (p *Postgres) ownRoot() error {
	attr, err := p.processAttributes()
	if err != nil || attr.Credential == nil {
		return err
	}
	return os.Chown(p.root, int(attr.Credential.Uid), int(attr.Credential.Gid))
}

// tool runs a program of PostgreSQL as the server's user, to its end.
func (p *Postgres) tool(name string, args ...string) error {
	attr, err := p.processAttributes()
	if err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir, cmd.SysProcAttr = p.root, attr
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// startOnFreePort tries again when somebody took the port between the search and the start.
func (p *Postgres) startOnFreePort() error {
	var err error
	for range 5 {
		if p.Port, err = freePort(); err != nil {
			return err
		}
		if err = p.start(); err == nil || !strings.Contains(err.Error(), "could not bind") {
			return err
		}
	}
	return err
}

func (p *Postgres) start() error {
	attr, err := p.processAttributes()
	if err != nil {
		return err
	}
	settings := append([]string{
		"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(p.Port), "unix_socket_directories=" + p.SocketDir,
		"fsync=off", "full_page_writes=off", "lc_messages=C", "max_prepared_transactions=64",
		"shared_buffers=32MB", "dynamic_shared_memory_type=mmap", // nothing is left in /dev/shm by Kill
	}, p.settings...)
	args := []string{"-D", p.DataDir}
	for _, s := range settings {
		args = append(args, "-c", s)
	}
	cmd := exec.Command(filepath.Join(p.bin, "postgres"), args...)
	cmd.Dir, cmd.SysProcAttr = p.root, attr
	log := &serverLog{ready: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.WaitDelay = 5 * time.Second // a child that outlives the server must not hold Wait back
	run, err := runServer(cmd, log)
	if err != nil {
		return err
	}
	select {
	case <-log.ready:
		p.run = run
		return nil
	case <-run.exited:
		return fmt.Errorf("the server ended while starting:\n%s", log.tail())
	case <-time.After(startTimeout):
		_ = run.process.Kill()
		<-run.exited
		return fmt.Errorf("the server was not ready within %v:\n%s", startTimeout, log.tail())
	}
}

// runServer starts and waits on one locked thread: PostgreSQL is told to end when the thread that
// started it ends, so that a test binary that dies leaves no server behind.
func runServer(cmd *exec.Cmd, log *serverLog) (*serverRun, error) {
	started := make(chan error)
	run := &serverRun{log: log, exited: make(chan struct{})}
	go func() {
		runtime.LockOSThread()
		err := cmd.Start()
		run.process = cmd.Process
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended is in its log
			close(run.exited)
		}
		runtime.UnlockOSThread()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return run, nil
}

// processAttributes picks the user: PostgreSQL refuses to run as root.
func (p *Postgres) processAttributes() (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGQUIT}
	if os.Geteuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("PostgreSQL does not run as root, and there is no other user: %w", err)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, nil
}

// findPostgres returns the directory of the server's programs, PATH first, then Debian's newest.
func findPostgres() (bin string, version int, err error) {
	var candidates []string
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real // the other programs are beside it, not beside a link to it
		}
		candidates = append(candidates, filepath.Dir(path))
	}
	debian, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil {
		return "", 0, err
	}
	slices.SortFunc(debian, func(a, b string) int { return debianVersion(b) - debianVersion(a) })
	for _, dir := range append(candidates, debian...) {
		out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
		if err != nil {
			continue
		}
		fields := strings.Fields(string(out)) // postgres (PostgreSQL) 15.14 (Debian ...)
		if len(fields) < 3 {
			continue
		}
		digits := fields[2][:len(fields[2])-len(strings.TrimLeft(fields[2], "0123456789"))]
		if version, err = strconv.Atoi(digits); err == nil {
			return dir, version, nil
		}
	}
	return "", 0, errors.New("no PostgreSQL server found in PATH or /usr/lib/postgresql; install postgresql (15 or newer)")
}

func debianVersion(dir string) int {
	n, err := strconv.Atoi(filepath.Base(filepath.Dir(dir)))
	if err != nil {
		return 0
	}
	return n
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func childrenOf(pid int) []int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		return nil
	}
	var pids []int
	for f := range strings.FieldsSeq(string(text)) {
		if n, err := strconv.Atoi(f); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// sharedMemorySegment reads the id of the server's System V segment from postmaster.pid, -1 if none.
func sharedMemorySegment(dataDir string) int {
	text, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	if err != nil {
		return -1
	}
	lines := strings.Split(string(text), "\n")
	if len(lines) < 7 {
		return -1
	}
	fields := strings.Fields(lines[6]) // key and id
	if len(fields) != 2 {
		return -1
	}
	id, err := strconv.Atoi(fields[1])
	if err != nil {
		return -1
	}
	return id
}

// serverLog keeps the end of the server's log and notices when the server is ready.
type serverLog struct {
	ready chan struct{}

	mu      sync.Mutex
	text    []byte
	scanned int // how much of text was searched for readyLine
	isReady bool
}

var _ io.Writer = (*serverLog)(nil)

func (l *serverLog) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	if !l.isReady {
		if bytes.Contains(l.text[l.scanned:], []byte(readyLine)) {
			l.isReady = true
			close(l.ready)
		}
		l.scanned = max(0, len(l.text)-len(readyLine))
	}
	const keep = 64 << 10
	if len(l.text) > 2*keep {
		l.text = append(l.text[:0], l.text[len(l.text)-keep:]...)
		l.scanned = 0
	}
	return len(b), nil
}

func (l *serverLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := bytes.Split(bytes.TrimSpace(l.text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-30):], []byte("\n")))
}
