package integration

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// withReplicas is a cluster of two nodes with a streaming replica each, and a table with rows on both.
type withReplicas struct {
	*cluster.Cluster
	a, b int // keys on node1 and node2
}

func startWithReplicas(t *testing.T) withReplicas {
	t.Helper()
	c := cluster.Start(t, cluster.Options{Nodes: 2, Routers: 2, Replicas: 1, Configure: func(_ int, cfg *router.Config) {
		cfg.Pool.PrimaryTimeout = 2 * time.Second
	}})
	conn := connect(t, c.DSN(0))
	run(t, conn, "CREATE TABLE rep_t (id bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('rep_t', 'id')",
		"CREATE TABLE rep_local (v text)", "INSERT INTO rep_local VALUES ('home')",
		"CREATE SEQUENCE rep_s", "CREATE TABLE rep_log (v text)",
		"CREATE FUNCTION rep_write(text) RETURNS void LANGUAGE sql AS 'INSERT INTO rep_log VALUES ($1)'")
	for id := range 50 {
		if _, err := conn.Exec(t.Context(), "INSERT INTO rep_t VALUES ($1, 'first')", id); err != nil {
			t.Fatal(describe(err))
		}
	}
	a, b := apart(t, c, "rep_t")
	return withReplicas{c, a, b}
}

// reader is a session that reads from replicas, with each statement in one message of the given kind.
func (c withReplicas) reader(t *testing.T, mode, preference string, more ...string) *pgx.Conn {
	t.Helper()
	conn := connect(t, c.DSN(0, "default_query_exec_mode="+mode))
	run(t, conn, "SET shoal.read_preference = '"+preference+"'", "SET shoal.max_staleness = '1500ms'")
	run(t, conn, more...)
	return conn
}

// standby asks which kind of server answers for a key.
func standby(t testing.TB, q querier, key int) string {
	t.Helper()
	return ask(t, q, fmt.Sprintf("SELECT pg_is_in_recovery() FROM rep_t WHERE id = %d", key))
}

// settle waits until replicas are used: routers leave them alone for a while after a change of the map.
func (c withReplicas) settle(t *testing.T) {
	t.Helper()
	conn := c.reader(t, "simple_protocol", "prefer_replica")
	waitFor(t, "the replicas to be used", func() bool { return standby(t, conn, c.a)+standby(t, conn, c.b) == "truetrue" })
}

func TestReplicas(t *testing.T) {
	c := startWithReplicas(t)
	c.settle(t)
	for _, tc := range []struct {
		name string
		test func(*testing.T, withReplicas)
	}{
		{"who reads from them", testWhoReadsReplicas},
		{"writes never go there", testWritesPastReplicas},
		{"after a change of the schema", testReplicasAfterDDL},
		{"staleness", testStaleReplica},
		{"a replica dies", testReplicaDies},
		{"failover", testFailover},
		{"two primaries", testTwoPrimaries},
	} {
		if !t.Run(tc.name, func(t *testing.T) { tc.test(t, c) }) {
			return // the next one could not tell anything
		}
	}
}

func testWhoReadsReplicas(t *testing.T, c withReplicas) {
	for _, mode := range []string{"simple_protocol", "exec", "cache_statement"} {
		simple := mode == "simple_protocol"
		t.Run(mode, func(t *testing.T) {
			for _, s := range []struct {
				preference string
				settings   []string
				begin      string
				want       bool
			}{
				{"primary", nil, "", false},
				{"primary", []string{"SET default_transaction_read_only = on"}, "", false},
				{"primary", nil, "BEGIN READ ONLY", false},
				{"prefer_replica", nil, "", simple}, // a batch of the extended protocol may write later
				{"prefer_replica", nil, "BEGIN", false},
				{"prefer_replica", nil, "BEGIN READ ONLY", true},
				{"prefer_replica", nil, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY", true},
				{"prefer_replica", []string{"SET default_transaction_read_only = on"}, "", true},
				{"prefer_replica", []string{"SET default_transaction_read_only = on"}, "BEGIN", true},
				{"prefer_replica", []string{"SET default_transaction_read_only = on"}, "BEGIN READ WRITE", false},
				{"replica", nil, "BEGIN READ ONLY", true},
				{"replica", []string{"SET default_transaction_read_only = on"}, "", true},
			} {
				conn := c.reader(t, mode, s.preference, s.settings...)
				if s.begin != "" {
					run(t, conn, s.begin)
				}
				want := fmt.Sprint(s.want, s.want)
				if got := standby(t, conn, c.a) + " " + standby(t, conn, c.b); got != want {
					t.Errorf("%s, %q, %q: in recovery %s, not %s", s.preference, s.settings, s.begin, got, want)
				}
				if s.begin != "" {
					run(t, conn, "COMMIT")
				}
				hangUp(conn)
			}
		})
	}
	conn := connect(t, c.DSN(0, "default_query_exec_mode=simple_protocol", "options=-c%20shoal.read_preference%3Dreplica%20-c%20shoal.max_staleness%3D1500ms"))
	if got := standby(t, conn, c.b); got != "true" {
		t.Errorf("with settings of the startup packet: in recovery %s", got)
	}
	fails(t, conn, "22023", "SET shoal.read_preference = 'nearest'", "prefer_replica")
	fails(t, conn, "22023", "SET shoal.max_staleness = 'soon'", "500ms")
}

func testWritesPastReplicas(t *testing.T, c withReplicas) {
	for _, mode := range []string{"simple_protocol", "exec"} {
		conn := c.reader(t, mode, "replica")
		for _, sql := range []string{
			"UPDATE rep_t SET v = 'second' WHERE id = %d", "INSERT INTO rep_t VALUES (%d, 'x') ON CONFLICT (id) DO UPDATE SET v = 'third'",
			"WITH u AS (UPDATE rep_t SET v = v || '!' WHERE id = %d RETURNING id) SELECT id FROM u",
			"SELECT v FROM rep_t WHERE id = %d FOR UPDATE", "SELECT nextval('rep_s') FROM rep_local WHERE %d > 0",
			"SELECT rep_write('%d')", "SELECT pg_notify('rep', '%d')",
		} {
			for _, key := range []int{c.a, c.b} {
				run(t, conn, fmt.Sprintf(sql, key))
			}
		}
		run(t, conn, "INSERT INTO rep_local VALUES ('written')", "DELETE FROM rep_local WHERE v = 'written'", "BEGIN",
			fmt.Sprintf("UPDATE rep_t SET v = 'fourth' WHERE id = %d", c.a), fmt.Sprintf("UPDATE rep_t SET v = 'fourth' WHERE id = %d", c.b), "COMMIT")
		// What is declared read-only cannot write, in PostgreSQL's own words.
		plain := connect(t, c.NodeDSN("node1"))
		for _, begin := range []string{"BEGIN READ ONLY", "BEGIN ISOLATION LEVEL SERIALIZABLE, READ ONLY"} {
			for _, q := range []*pgx.Conn{plain, conn} {
				run(t, q, begin)
				fails(t, q, "25006", fmt.Sprintf("UPDATE rep_t SET v = 'never' WHERE id = %d", c.a), "cannot execute UPDATE in a read-only transaction")
				fails(t, q, "25P02", "SELECT 1")
				run(t, q, "ROLLBACK")
			}
		}
		hangUp(conn)
	}
	primary := connect(t, c.DSN(1))
	for _, key := range []int{c.a, c.b} {
		expect(t, primary, "fourth", "SELECT v FROM rep_t WHERE id = $1", key)
	}
}

// testStaleReplica pauses the replay on one replica while its primary goes on.
// testReplicasAfterDDL puts up with a lot, and changes the schema: replicas have the change soon, however old they may be.
func testReplicasAfterDDL(t *testing.T, c withReplicas) {
	patient := c.reader(t, "simple_protocol", "prefer_replica", "SET shoal.max_staleness = '1h'")
	run(t, patient, "ALTER TABLE rep_t ADD COLUMN later text DEFAULT 'here'")
	waitFor(t, "the replicas to be used again", func() bool {
		return ask(t, patient, fmt.Sprintf("SELECT pg_is_in_recovery(), later FROM rep_t WHERE id = %d", c.b)) == "true|here"
	})
}

func testStaleReplica(t *testing.T, c withReplicas) {
	replica := connect(t, cluster.ServerDSN(c.Replicas("node2")[0]))
	run(t, replica, "SELECT pg_wal_replay_pause()")
	writer := connect(t, c.DSN(1))
	prefers, requires := c.reader(t, "simple_protocol", "prefer_replica"), c.reader(t, "simple_protocol", "replica")
	run(t, writer, fmt.Sprintf("UPDATE rep_t SET v = 'newest' WHERE id = %d", c.b))
	paused := time.Now()
	waitFor(t, "the replica to be too old", func() bool { return standby(t, prefers, c.b) == "false" })
	t.Logf("left alone %v after the write that it lacks, with a limit of 1.5 s", time.Since(paused).Round(10*time.Millisecond))
	expect(t, prefers, "newest", fmt.Sprintf("SELECT v FROM rep_t WHERE id = %d", c.b))
	waitFor(t, "the change of the schema to be long ago", func() bool {
		_, err := requires.Exec(t.Context(), fmt.Sprintf("SELECT v FROM rep_t WHERE id = %d", c.b))
		return err != nil
	})
	fails(t, requires, "57P03", fmt.Sprintf("SELECT v FROM rep_t WHERE id = %d", c.b), "node2", "fresh enough", "HINT: ")
	if got := standby(t, prefers, c.a); got != "true" {
		t.Error("the other node's replica is not used any more")
	}
	run(t, replica, "SELECT pg_wal_replay_resume()")
	waitFor(t, "the replica to be used again", func() bool { return standby(t, prefers, c.b) == "true" })
	expect(t, requires, "newest", fmt.Sprintf("SELECT v FROM rep_t WHERE id = %d", c.b))
}

func testReplicaDies(t *testing.T, c withReplicas) {
	prefers, requires := c.reader(t, "simple_protocol", "prefer_replica"), c.reader(t, "simple_protocol", "replica")
	inside := c.reader(t, "exec", "prefer_replica", "BEGIN READ ONLY")
	if standby(t, inside, c.b) != "true" || standby(t, prefers, c.b) != "true" {
		t.Fatal("the replica is not used")
	}
	c.Replicas("node2")[0].Kill()
	// A transaction dies with its server, whichever it is; single statements of a session that prefers
	// replicas do not notice more than once.
	_, err := inside.Exec(t.Context(), fmt.Sprintf("SELECT v FROM rep_t WHERE id = %d", c.b))
	lostConnection(t, err)
	run(t, inside, "ROLLBACK")
	failed := 0
	waitFor(t, "the primary to answer", func() bool {
		rows, err := prefers.Query(t.Context(), fmt.Sprintf("SELECT pg_is_in_recovery()::text FROM rep_t WHERE id = %d", c.b))
		var got string
		if err == nil {
			got, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[string])
		}
		if err != nil {
			lostConnection(t, err)
			failed++
		}
		return got == "false"
	})
	if failed > 1 {
		t.Errorf("%d statements failed", failed)
	}
	fails(t, requires, "57P03", fmt.Sprintf("SELECT v FROM rep_t WHERE id = %d", c.b), "node2")
	run(t, prefers, fmt.Sprintf("UPDATE rep_t SET v = 'alone' WHERE id = %d", c.b))
	c.Replicas("node2")[0].Start()
	waitFor(t, "the replica to be used again", func() bool { return standby(t, prefers, c.b) == "true" })
}

// lostConnection checks that a statement failed as PostgreSQL's own clients see a server go.
func lostConnection(t testing.TB, err error) {
	t.Helper()
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		t.Errorf("the error is %v, not one of the server", err)
		return
	}
	switch e.Code {
	case "57P01", "57P02", "57P03", "08006", "08001":
	default:
		t.Errorf("the error is %s", describe(err))
	}
}
