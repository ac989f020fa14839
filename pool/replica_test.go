package pool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/shardtest"
)

// limit is the staleness of these tests: checks come every second, so one misses it soon.
const limit = 500 * time.Millisecond

// family is a primary with two streaming replicas.
type family struct {
	*Pool
	primary *shardtest.Postgres
	dirs    []string
	address []string // of the replicas
}

func startFamily(t *testing.T, cfg Config) *family {
	t.Helper()
	f := &family{primary: shardtest.StartPostgres(t)}
	for range 2 {
		dir, address := startReplica(t, f.primary)
		f.dirs, f.address = append(f.dirs, dir), append(f.address, address)
	}
	cfg.MaxStaleness = limit
	f.Pool = newPool(t, cfg, f.address[0], f.primary.Address(), f.address[1])
	return f
}

// control runs pg_ctl on a replica.
func (f *family) control(t *testing.T, i int, args ...string) {
	t.Helper()
	postgresTool(t, f.dirs[i], "pg_ctl", append([]string{"-D", filepath.Join(f.dirs[i], "data"), "-w"}, args...)...)
}

func (f *family) restart(t *testing.T, i int) {
	t.Helper()
	port := strings.TrimPrefix(f.address[i], "127.0.0.1:")
	f.control(t, i, "-l", filepath.Join(f.dirs[i], "log"), "-o",
		"-p "+port+" -c listen_addresses=127.0.0.1 -c unix_socket_directories="+f.dirs[i]+" -c fsync=off -c max_prepared_transactions=64", "start")
}

// at runs SQL on one server, past the pool.
func at(t *testing.T, address, sql string) string {
	t.Helper()
	b, err := pgwire.Dial(t.Context(), pgwire.DialConfig{Address: address, User: "postgres", Database: "postgres"})
	if err != nil {
		t.Fatal(err)
	}
	c := &Conn{Backend: b, Key: super, TxStatus: 'I'}
	defer c.close()
	rows, err := c.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	if len(rows) == 0 {
		return ""
	}
	return string(rows[0][0])
}

// reach acquires n connections at once, releases them, and returns the addresses they led to.
func (f *family) reach(t *testing.T, n int, staleness time.Duration) ([]string, error) {
	t.Helper()
	var addresses []string
	var conns []*Conn
	defer func() {
		for _, c := range conns {
			f.Release(c)
		}
	}()
	for range n {
		c, err := f.AcquireReplica(t.Context(), super, Credentials{}, staleness)
		if err != nil {
			return nil, err
		}
		conns = append(conns, c)
		if !slices.Contains(addresses, c.Address) {
			addresses = append(addresses, c.Address)
		}
		rows, err := c.Query(t.Context(), "SELECT pg_is_in_recovery()")
		if err != nil {
			t.Logf("%s was handed out: %v", c.Address, err)
		}
		if err == nil && string(rows[0][0]) != "t" && !c.promoted() {
			t.Errorf("%s is a primary and does not say so", c.Address)
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}

func (f *family) acquireReplica(t *testing.T) *Conn {
	t.Helper()
	c, err := f.AcquireReplica(t.Context(), super, Credentials{}, time.Minute)
	if err != nil {
		t.Fatalf("AcquireReplica: %v", err)
	}
	releaseAfterFailure(t, f.Pool, c)
	return c
}

// eventually waits until exactly these replicas are used, and says how long it took.
func (f *family) eventually(t *testing.T, want ...string) time.Duration {
	t.Helper()
	want = slices.Sorted(slices.Values(want)) // a copy: it may be f.address
	start := time.Now()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		got, err := f.reach(t, 4, 0)
		if err != nil && !errors.Is(err, ErrNoReplica) {
			t.Fatal(err)
		}
		if slices.Equal(got, want) && (len(want) > 0 || errors.Is(err, ErrNoReplica)) {
			return time.Since(start)
		}
		if time.Since(start) > 20*time.Second {
			t.Fatalf("replicas used are %v (%v), want %v", got, err, want)
		}
		<-ticker.C
	}
}

func TestReplicas(t *testing.T) {
	f := startFamily(t, Config{CheckAfter: -1})
	for _, tc := range []struct {
		name string
		test func(*testing.T, *family)
	}{
		{"reads go to replicas", testReadsGoToReplicas},
		{"paused replay", testPausedReplay},
		{"a replica that is cut off", testCutOff},
		{"a role that sees little", testPlainRole},
		{"dirty is reset", testDirtyReplica},
		{"a replica dies", testReplicaDies},
		{"a replica is promoted", testReplicaIsPromoted},
	} {
		if !t.Run(tc.name, func(t *testing.T) { tc.test(t, f) }) {
			return // the next one could not tell anything
		}
	}
}

func testReadsGoToReplicas(t *testing.T, f *family) {
	start := time.Now()
	if _, err := f.reach(t, 1, 0); err != nil {
		t.Fatal(err)
	}
	t.Logf("the first one took %v", time.Since(start))
	f.eventually(t, f.address...)
	// The primary goes on as ever.
	c := acquire(t, f.Pool)
	if c.Address != f.primary.Address() {
		t.Errorf("connected to %s instead of the primary", c.Address)
	}
	if err := c.Exec(t.Context(), "CREATE TABLE t (i int); INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	f.Release(c)
	// The key alone is enough.
	key := super
	key.Replica = true
	c, err := f.Acquire(t.Context(), key, Credentials{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(f.address, c.Address) || c.Key != key {
		t.Errorf("connected to %s with %v", c.Address, c.Key)
	}
	if err := c.Exec(t.Context(), "CREATE TABLE u (i int)"); !hasCode(err, "25006") {
		t.Errorf("writing on a replica: %v", err)
	}
	f.Release(c)
	stats := f.Stats()
	if len(stats) != 2 || stats[0].Key != super || stats[0].Opened != 1 || stats[1].Key != key || stats[1].Opened < 2 || stats[1].Active != 0 {
		t.Errorf("stats %+v", stats)
	}
}

func testPausedReplay(t *testing.T, f *family) {
	at(t, f.address[0], "SELECT pg_wal_replay_pause()::text")
	at(t, f.primary.Address(), "INSERT INTO t SELECT generate_series(1, 1000)")
	took := f.eventually(t, f.address[1])
	t.Logf("too stale after %v", took)
	if took > 6*time.Second { // 2 s on a quiet machine
		t.Errorf("a paused replica was used for %v", took)
	}
	// It still serves those who ask for less.
	if got, err := f.reach(t, 4, time.Hour); err != nil || len(got) != 2 {
		t.Errorf("within an hour: %v, %v", got, err)
	}
	at(t, f.address[0], "SELECT pg_wal_replay_resume()::text")
	t.Logf("back after %v", f.eventually(t, f.address...))
}

// testCutOff stops the receiver of a replica, which then believes to have everything there is.
func testCutOff(t *testing.T, f *family) {
	pid, err := strconv.Atoi(at(t, f.address[1], "SELECT pid FROM pg_stat_wal_receiver"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resumed := false
	defer func() {
		if !resumed {
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}()
	at(t, f.primary.Address(), "INSERT INTO t VALUES (1)")
	said := at(t, f.address[1], "SELECT status || (pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn()) FROM pg_stat_wal_receiver")
	if said != "streamingtrue" {
		t.Fatalf("the replica knows: %s", said)
	}
	t.Logf("noticed after %v", f.eventually(t, f.address[0]))
	resumed = true
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.eventually(t, f.address...)
}

func testPlainRole(t *testing.T, f *family) {
	at(t, f.primary.Address(), "CREATE ROLE plain LOGIN")
	plain := Key{Node: "n1", Role: "plain", Database: "postgres"}
	for name, monitor := range map[string]Monitor{
		"as client": {}, "as monitor": {Role: "plain"}, "no such monitor": {Role: "nobody"},
	} {
		p := newPool(t, Config{Monitor: monitor}, f.primary.Address(), f.address[0], f.address[1])
		c, err := p.AcquireReplica(t.Context(), plain, Credentials{}, time.Minute)
		if want := monitor.Role == "nobody"; want != errors.Is(err, ErrNoReplica) {
			t.Errorf("%s: %v", name, err)
		}
		if c != nil {
			p.Release(c)
		}
	}
}

func testDirtyReplica(t *testing.T, f *family) {
	c := f.acquireReplica(t)
	if err := c.Exec(t.Context(), "SET work_mem = '77MB'"); err != nil {
		t.Fatal(err)
	}
	c.Dirty = true
	f.reset(c)
	if c.Broken || c.Dirty {
		t.Errorf("broken %v, dirty %v", c.Broken, c.Dirty)
	}
}

func testReplicaDies(t *testing.T, f *family) {
	f.eventually(t, f.address...)
	held := f.acquireReplica(t)
	dead := slices.Index(f.address, held.Address)
	f.control(t, dead, "-m", "immediate", "stop")
	for i := range 20 { // those who come now do not notice
		if got, err := f.reach(t, 1, time.Hour); err != nil || !slices.Equal(got, []string{f.address[1-dead]}) {
			t.Fatalf("session %d connected to %v, %v", i, got, err)
		}
	}
	if err := held.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("the server is dead, but a statement ran")
	}
	f.Release(held)
	r := f.nodes["n1"].replicas.members[2*dead]
	for start := time.Now(); r.server.inUse(); {
		if time.Since(start) > 20*time.Second {
			t.Fatal("connections to a dead replica are kept")
		}
		at(t, f.primary.Address(), "SELECT 1")
	}
	f.restart(t, dead)
	t.Logf("back after %v", f.eventually(t, f.address...))
}

// testReplicaIsPromoted ends with two primaries, and a replica of the older one.
func testReplicaIsPromoted(t *testing.T, f *family) {
	f.eventually(t, f.address...)
	held := []*Conn{f.acquireReplica(t), f.acquireReplica(t)}
	if held[0].Address == held[1].Address {
		t.Fatal("both lead to the same replica")
	}
	i := slices.IndexFunc(held, func(c *Conn) bool { return c.Address == f.address[1] })
	f.control(t, 1, "promote")
	// Its connection says so with the next statement, and that ends them all.
	if got := one(t, held[i], "SELECT pg_is_in_recovery()"); got != "f" || !held[i].promoted() {
		t.Errorf("in recovery: %s, promoted: %v", got, held[i].promoted())
	}
	f.Release(held[i])
	r := f.nodes["n1"].replicas.members[2]
	if r.server.inUse() {
		t.Error("connections to a promoted replica are kept")
	}
	// The other one follows a primary that was left behind now.
	t.Logf("none left after %v", f.eventually(t))
	if _, err := f.reach(t, 1, time.Hour); !errors.Is(err, ErrNoReplica) {
		t.Errorf("error %v", err)
	}
	f.Release(held[1-i])
}

func TestReplicasAfterFailover(t *testing.T) {
	f := startFamily(t, Config{})
	f.eventually(t, f.address...)
	c := acquire(t, f.Pool)
	if err := c.Exec(t.Context(), "CREATE TABLE t (i int)"); err != nil {
		t.Fatal(err)
	}
	f.eventually(t, f.address...)
	// Nobody knows how old they are without a primary.
	f.primary.Kill()
	t.Logf("too stale after %v", f.eventually(t))
	f.control(t, 1, "promote")
	at(t, f.address[0], "ALTER SYSTEM SET primary_conninfo = 'host=127.0.0.1 user=postgres port="+strings.TrimPrefix(f.address[1], "127.0.0.1:")+"'")
	at(t, f.address[0], "SELECT pg_reload_conf()")
	t.Logf("used again after %v", f.eventually(t, f.address[0]))
	if err := c.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Error("the server is dead, but a statement ran")
	}
	f.Release(c)
	c = acquire(t, f.Pool)
	if c.Address != f.address[1] {
		t.Errorf("the primary is said to be %s", c.Address)
	}
	f.Release(c)
}

func TestNoReplicas(t *testing.T) {
	pg := shardtest.StartPostgres(t)
	dead := "127.0.0.1:" + freePort(t)
	for name, addresses := range map[string][]string{
		"one address": {pg.Address()}, "a dead one": {pg.Address(), dead}, "two primaries": {pg.Address(), fmt.Sprint("localhost:", pg.Port)},
	} {
		p := newPool(t, Config{}, addresses...)
		if c, err := p.AcquireReplica(t.Context(), super, Credentials{}, 0); !errors.Is(err, ErrNoReplica) {
			t.Errorf("%s: %v, %v", name, c, err)
		}
	}
	p := newPool(t, Config{}, pg.Address(), dead)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.AcquireReplica(ctx, super, Credentials{}, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := p.AcquireReplica(t.Context(), Key{Node: "n2"}, Credentials{}, 0); !hasCode(err, "08001") {
		t.Errorf("unknown node: %v", err)
	}
}
