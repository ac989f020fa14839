package pool

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/shardtest"
)

func freePort(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return port
}

func TestFailover(t *testing.T) {
	pg := shardtest.StartPostgres(t)
	dir, replica := startReplica(t, pg)
	p := newPool(t, Config{PrimaryTimeout: 30 * time.Second, CheckAfter: -1}, replica, pg.Address())

	// The primary is found though the replica is named first.
	idle, held := acquire(t, p), acquire(t, p)
	if idle.Address != pg.Address() || one(t, idle, "SELECT pg_is_in_recovery()") != "f" {
		t.Fatalf("connected to %s", idle.Address)
	}
	p.Release(idle)

	// The primary dies. Sessions that ask now wait for the promotion.
	pg.Kill()
	if err := held.Exec(t.Context(), "SELECT 1"); err == nil {
		t.Fatal("the server is dead, but a statement ran")
	}
	p.Release(held)
	got := make(chan *Conn, 1)
	go func() {
		c, err := p.Acquire(t.Context(), super, Credentials{})
		if err != nil {
			t.Errorf("Acquire during the failover: %v", err)
		}
		got <- c
	}()
	promoted := time.Now()
	postgresTool(t, dir, "pg_ctl", "-D", filepath.Join(dir, "data"), "-w", "promote")
	c := <-got
	if c == nil {
		return
	}
	t.Logf("found %v after the promotion began", time.Since(promoted))
	if c.Address != replica || one(t, c, "SELECT pg_is_in_recovery()") != "f" {
		t.Errorf("connected to %s", c.Address)
	}
	p.Release(c)

	// The old primary comes back and takes itself for one: it is on an older timeline.
	pg.Start()
	fresh := newPool(t, Config{}, pg.Address(), replica)
	c = acquire(t, fresh)
	if c.Address != replica {
		t.Errorf("connected to %s, a primary of the past", c.Address)
	}
	fresh.Release(c)

	// And it is not used even when it is the only one left.
	short, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	postgresTool(t, dir, "pg_ctl", "-D", filepath.Join(dir, "data"), "-w", "-m", "fast", "stop")
	if c, err := p.Acquire(short, super, Credentials{}); err == nil {
		t.Errorf("connected to %s", c.Address)
		p.Release(c)
	}
	// Neither by a pool that has not seen the other one itself, but was told.
	told := newPool(t, Config{PrimaryTimeout: 100 * time.Millisecond}, pg.Address(), replica)
	told.RaiseTimeline("n1", 2)
	if c, err := told.Acquire(t.Context(), super, Credentials{}); !hasCode(err, "57P03") {
		t.Errorf("told of a higher timeline: got %v, %v; want 57P03", c, err)
	}
	postgresTool(t, dir, "pg_ctl", "-D", filepath.Join(dir, "data"), "-w", "-l", filepath.Join(dir, "log"), "start",
		"-o", "-p "+strings.TrimPrefix(replica, "127.0.0.1:")+" -c listen_addresses=127.0.0.1 -c unix_socket_directories="+dir)
	c = acquire(t, p)
	if c.Address != replica {
		t.Errorf("connected to %s after the restart", c.Address)
	}
	p.Release(c)
}

func TestNodeWithoutPrimary(t *testing.T) {
	pg := shardtest.StartPostgres(t)
	_, replica := startReplica(t, pg)
	p := newPool(t, Config{PrimaryTimeout: 100 * time.Millisecond}, replica)
	if c, err := p.Acquire(t.Context(), super, Credentials{}); !hasCode(err, "57P03") {
		t.Errorf("got %v, %v; want 57P03", c, err)
	}
	if address, ok := p.Primary("n1"); ok {
		t.Errorf("the primary is said to be at %s", address)
	}
}
