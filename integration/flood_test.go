package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

const (
	idleClients, activeClients = 2000, 200
	floodPassword              = "many"
	startupLimit               = 3 * time.Second
)

// TestFlood has one router and one node: more clients than it lets in, and some that only pretend.
func TestFlood(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 1, Routers: 2, Configure: func(i int, cfg *router.Config) {
		cfg.MaxClients, cfg.StartupTimeout = []int{idleClients + activeClients + 2, 5}[i], startupLimit
	}})
	keys, err := pgwire.DeriveKeys(floodPassword, []byte("salt of the sea."), 1) // thousands of logins: one round each
	if err != nil {
		t.Fatal(err)
	}
	conn := connect(t, c.DSN(0))
	run(t, conn, "CREATE ROLE flood LOGIN PASSWORD '"+keys.Verifier().String()+"'", "CREATE TABLE flood_t (id bigint PRIMARY KEY, n int)",
		"INSERT INTO flood_t SELECT g, 0 FROM generate_series(1, 200) g", "SELECT create_distributed_table('flood_t', 'id')", "GRANT ALL ON flood_t TO flood")
	t.Run("clients that only pretend", func(t *testing.T) { testPretenders(t, c) })
	t.Run("sockets without end", func(t *testing.T) { testHalfOpen(t, c) })
	t.Run("many clients", func(t *testing.T) { testManyClients(t, c) })
	atRest(t, c, 2, 1<<20)
}

// dialRouter opens a bare connection.
func dialRouter(t testing.TB, c *cluster.Cluster, index int) net.Conn {
	t.Helper()
	host, port := c.Address(index)
	link, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	return link
}

// untilClosed reads until the router hangs up, and returns what it said.
func untilClosed(t testing.TB, link net.Conn) string {
	t.Helper()
	_ = link.SetReadDeadline(time.Now().Add(20 * time.Second))
	said, err := io.ReadAll(link)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		t.Error("the router keeps the connection")
	}
	return string(said)
}

func startupMessage(t testing.TB, user string) []byte {
	t.Helper()
	packet, err := (&pgproto3.StartupMessage{
		ProtocolVersion: pgproto3.ProtocolVersionNumber, Parameters: map[string]string{"user": user, "database": "postgres"},
	}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	return packet
}

func testPretenders(t *testing.T, c *cluster.Cluster) {
	whole := startupMessage(t, "flood")
	sslRequest := []byte{0, 0, 0, 8, 4, 210, 22, 47}
	var slow []net.Conn
	for _, sent := range [][]byte{{}, whole[:1], whole[:4], whole[:len(whole)-1], sslRequest, sslRequest[:7], whole} {
		for range 10 {
			link := dialRouter(t, c, 0)
			if _, err := link.Write(sent); err != nil {
				t.Fatal(err)
			}
			slow = append(slow, link)
		}
	}
	began := time.Now()
	oversized := binary.BigEndian.AppendUint32(nil, 10005)
	for what, sent := range map[string][]byte{
		"a packet that is too long": oversized, "one of 2 GB": {0x7f, 0xff, 0xff, 0xff}, "one that is too short": {0, 0, 0, 7}, "HTTP": []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		link := dialRouter(t, c, 0)
		if _, err := link.Write(sent); err != nil {
			t.Fatal(err)
		}
		if said := untilClosed(t, link); !strings.Contains(said, "08P01") {
			t.Errorf("%s is answered with %q", what, said)
		}
	}
	if took := time.Since(began); took > startupLimit {
		t.Errorf("malformed packets were refused after %v", took)
	}
	// Meanwhile others are served, and the node does not know of those who have proved nothing.
	expect(t, connect(t, c.DSN(0)), "1", "SELECT 1")
	wrong, err := pgx.Connect(t.Context(), c.RoleDSN(0, "flood", "wrong", "postgres"))
	if err == nil {
		hangUp(wrong)
	}
	refused(t, err, "28P01", `password authentication failed for user "flood"`)
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		if n := ask(t, conn, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'flood'"); n != "0" {
			t.Errorf("%s has %s connections for clients that did not prove who they are", node, n)
		}
	})
	for _, link := range slow {
		untilClosed(t, link)
	}
	if took := time.Since(began); took > 3*startupLimit {
		t.Errorf("slow clients were cut off after %v", took)
	}
	waitFor(t, "them to be forgotten", func() bool { return c.Router(0).Stats().Clients <= 2 })
}

// testHalfOpen opens sockets and says nothing, at a router that lets five clients in: beyond twice that
// each is told at once.
func testHalfOpen(t *testing.T, c *cluster.Cluster) {
	var links []net.Conn
	for range 15 {
		links = append(links, dialRouter(t, c, 1))
	}
	told := 0
	for _, link := range links {
		if strings.Contains(untilClosed(t, link), "53300") {
			told++
		}
	}
	if told != 5 {
		t.Errorf("%d of 15 were told that there are too many", told)
	}
	expect(t, connect(t, c.DSN(1)), "1", "SELECT 1")
}

// testManyClients holds idle clients and works with active ones, then asks for one more than allowed.
func testManyClients(t *testing.T, c *cluster.Cluster) {
	dsn := c.RoleDSN(0, "flood", floodPassword, "postgres")
	clients := make([]*pgx.Conn, idleClients+activeClients)
	began := time.Now()
	if err := inParallel(16, len(clients), func(i int) (err error) {
		clients[i], err = pgx.Connect(t.Context(), dsn)
		return err
	}); err != nil {
		t.Fatal(describe(err))
	}
	defer func() {
		_ = inParallel(16, len(clients), func(i int) error { hangUp(clients[i]); return nil })
	}()
	t.Logf("%d clients logged in within %v", len(clients), time.Since(began).Round(time.Millisecond))
	began = time.Now()
	const rounds = 10
	active := clients[idleClients:]
	if err := inParallel(len(active), len(active), func(i int) error {
		for r := range rounds {
			if _, err := active[i].Exec(t.Context(), "UPDATE flood_t SET n = n + 1 WHERE id = $1", (i+r)%200+1); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Error(describe(err))
	}
	t.Logf("%d active clients ran %d statements within %v", len(active), len(active)*rounds, time.Since(began).Round(time.Millisecond))
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		expect(t, conn, fmt.Sprint(len(active)*rounds), "SELECT sum(n) FROM flood_t")
		expect(t, conn, "true", "SELECT count(*) BETWEEN 1 AND 20 FROM pg_stat_activity WHERE usename = 'flood'") // the pool's limit
	})
	// Up to the limit, and not beyond.
	var more []*pgx.Conn
	var err error
	for err == nil && len(more) < 10 {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(t.Context(), dsn); err == nil {
			more = append(more, conn)
		}
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Severity != "FATAL" {
		t.Errorf("after %d more clients: %v", len(more), err)
	}
	refused(t, err, "53300", "sorry, too many clients already")
	for _, conn := range more {
		hangUp(conn)
	}
	waitFor(t, "a place to be free", func() bool {
		conn, err := pgx.Connect(context.Background(), dsn)
		if err == nil {
			hangUp(conn)
		}
		return err == nil
	})
	for _, i := range []int{0, idleClients / 2, idleClients - 1} {
		expect(t, clients[i], "still here", "SELECT 'still here'")
	}
}

// inParallel calls do with 0 ... n-1 from several goroutines and returns the first error.
func inParallel(workers, n int, do func(i int) error) error {
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	errs := make(chan error, workers)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range next {
				if err := do(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	all.Wait()
	close(errs)
	return <-errs
}
