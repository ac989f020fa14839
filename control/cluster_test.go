package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
)

// startServers starts n PostgreSQL servers at the same time.
func startServers(t *testing.T, n int, settings ...string) []*shardtest.Postgres {
	t.Helper()
	servers := make([]*shardtest.Postgres, n)
	for i := range servers {
		servers[i] = shardtest.StartPostgres(t, settings...)
	}
	return servers
}

// TestCluster is the life of a cluster: its first start on servers of which one holds tables, a node
// that joins, everything that is refused, a node that leaves, a server that dies.
func TestCluster(t *testing.T) {
	servers := startServers(t, 4)
	home, second, third, used := servers[0], servers[1], servers[2], servers[3]
	query(t, home, "", `CREATE ROLE app LOGIN PASSWORD 'x'; CREATE TABLE old (id bigserial PRIMARY KEY, t text); INSERT INTO old (t) VALUES ('kept');
		CREATE TABLE colour (name text PRIMARY KEY); ALTER ROLE postgres PASSWORD 'the cluster''s'`)
	query(t, used, "", "CREATE TABLE something (id int); CREATE SCHEMA s; CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'")

	topology := memtopo.NewServer()
	c := startController(t, topology, "c1", func(cfg *Config) {
		cfg.Bootstrap = []JoinRequest{
			{Name: "n1", DSN: home.DSN("", ""), Region: "eu"},
			{Name: "n2", DSN: second.DSN("", ""), Weight: 2},
		}
		cfg.Access.Password = "the cluster's"
	})
	c.awaitLeading()
	t.Run("bootstrap", func(t *testing.T) { checkBootstrap(t, c, home, second) })

	// A reference table, as a router would make it.
	for _, p := range []*shardtest.Postgres{home, second} {
		query(t, p, "", "SELECT pg_shoal.set_table('colour', 'reference', NULL, '{}'); INSERT INTO colour VALUES ('red'), ('blue')")
	}
	t.Run("refusals", func(t *testing.T) { checkRefusals(t, c, home, used) })
	t.Run("join", func(t *testing.T) { checkJoin(t, c, third) })
	t.Run("views", func(t *testing.T) { checkViews(t, c) })
	t.Run("drift", func(t *testing.T) { checkDrift(t, c, third) })
	t.Run("leave", func(t *testing.T) { checkLeave(t, c) })
	t.Run("death", func(t *testing.T) {
		second.Kill()
		var s Status
		eventually(t, "status says that a server is down", func() bool {
			c.get("/api/v1/status").decode(t, &s)
			return s.Health == "degraded" && slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, "node n2: "+second.Address()) })
		})
		second.Start()
		eventually(t, "status says that it is back", func() bool {
			c.get("/api/v1/status").decode(t, &s)
			return !slices.ContainsFunc(s.Problems, func(p string) bool { return strings.Contains(p, "does not answer") })
		})
	})
}

func checkBootstrap(t *testing.T, c *testController, home, second *shardtest.Postgres) {
	m := c.loadMap()
	if m.Home != "n1" || m.Epoch != 1 || len(m.Nodes) != 2 || m.Nodes[0].ID != 0 || m.Nodes[1].ID != 1 || m.Nodes[1].Weight != 2 {
		t.Errorf("map: %+v", m)
	}
	for i, p := range []*shardtest.Postgres{home, second} {
		for _, database := range []string{"postgres", "template1"} {
			got := query(t, p, database, "SELECT name || ' ' || id || ' ' || home FROM pg_shoal.node")
			if want := fmt.Sprintf("n%d %d %t", i+1, i, i == 0); len(got) != 1 || got[0] != want {
				t.Errorf("%s of %s: %v, want %s", database, p.Address(), got, want)
			}
		}
	}
	if got := query(t, second, "", "SELECT count(*) FROM old"); got[0] != "0" {
		t.Errorf("the second node has %s rows of a local table", got[0])
	}
	verifiers := func(p *shardtest.Postgres) []string {
		return query(t, p, "", "SELECT rolname || rolpassword FROM pg_authid WHERE rolname IN ('app', 'pgshoal', 'postgres') ORDER BY 1")
	}
	if a, b := verifiers(home), verifiers(second); len(a) != 3 || !slices.Equal(a, b) {
		t.Errorf("verifiers differ: %v and %v", a, b)
	}
	var s Status
	eventually(t, "all servers were looked at", func() bool {
		c.get("/api/v1/status").decode(t, &s)
		return len(s.Nodes) == 2 && s.Nodes[1].Servers[0].Role == RolePrimary
	})
	if want := []string{"no router is alive"}; !slices.Equal(s.Problems, want) || s.Cluster != m.Cluster {
		t.Errorf("status: %+v", s)
	}
}

func checkRefusals(t *testing.T, c *testController, home, used *shardtest.Postgres) {
	before := c.loadMap()
	other := shardtest.StartPostgres(t)
	bootstrapElsewhere(t, other)
	unprepared := shardtest.StartPostgres(t, "max_prepared_transactions=0")
	tests := []struct {
		name          string
		req           JoinRequest
		status        int
		message, hint string
	}{
		{"no name", JoinRequest{DSN: used.DSN("", "")}, 400, "needs a name", ""},
		{"no dsn", JoinRequest{Name: "n3"}, 400, "needs a connection string", "postgres://"},
		{"bad name", JoinRequest{Name: "n 3/", DSN: used.DSN("", "")}, 400, "n 3/", ""},
		{"bad dsn", JoinRequest{Name: "n3", DSN: "postgres://x:y@[/"}, 400, "is wrong", "postgres://"},
		{"weight", JoinRequest{Name: "n3", DSN: used.DSN("", ""), Weight: -1}, 400, "negative", ""},
		{"name taken", JoinRequest{Name: "n2", DSN: used.DSN("", "")}, 409, `already a node "n2"`, "another name"},
		{"address taken", JoinRequest{Name: "n3", DSN: home.DSN("", "")}, 409, `is already node "n1"`, ""},
		{"node by another address", JoinRequest{Name: "n3", DSN: strings.Replace(home.DSN("", ""), "127.0.0.1", "localhost", 1)}, 409, "is or was node", ""},
		{"other superuser", JoinRequest{Name: "n3", DSN: used.DSN("root", "")}, 400, `role "root"`, "initdb --username=postgres"},
		{"unreachable", JoinRequest{Name: "n3", DSN: "postgres://postgres@127.0.0.1:1/postgres"}, 400, "cannot be reached", "pg_hba.conf"},
		{"not empty", JoinRequest{Name: "n3", DSN: used.DSN("", "")}, 409, "not empty, it holds 1 functions in database postgres, 1 schemas in database postgres, 1 tables in database postgres", "initdb"},
		{"other cluster", JoinRequest{Name: "n3", DSN: other.DSN("", "")}, 409, `belongs to another cluster (as node "x")`, "DROP SCHEMA pg_shoal"},
		{"no two-phase commit", JoinRequest{Name: "n3", DSN: unprepared.DSN("", "")}, 409, "max_prepared_transactions is 0", "Nothing of it remains on the server"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { c.add(tt.req).refused(t, tt.status, tt.message, tt.hint) })
	}
	c.request(http.MethodPost, "/api/v1/nodes", "", tests[0].req).refused(t, 401, "needs the admin token", "Bearer")
	c.request(http.MethodPost, "/api/v1/nodes", testToken, map[string]string{"nmae": "x"}).refused(t, 400, "nmae", "")

	t.Run("late failure", func(t *testing.T) { checkJoinFailsLate(t, c) })
	after := c.loadMap()
	if len(after.Nodes) != len(before.Nodes) || len(after.Fences) > 0 {
		t.Errorf("refusals changed the map: %+v", after)
	}
}

// checkJoinFailsLate lets a join fail after the schema was copied: the routers' role is kept out.
func checkJoinFailsLate(t *testing.T, c *testController) {
	p := shardtest.StartPostgres(t)
	hba := filepath.Join(p.DataDir, "pg_hba.conf")
	text, err := os.ReadFile(hba)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hba, append([]byte("host all pgshoal 127.0.0.1/32 reject\n"), text...), 0o600); err != nil {
		t.Fatal(err)
	}
	query(t, p, "", "SELECT pg_reload_conf()")
	eventually(t, "the server has reloaded", func() bool {
		conn, err := pgx.Connect(context.Background(), p.DSN("pgshoal", ""))
		if err == nil {
			conn.Close(context.Background())
		}
		var refused *pgconn.PgError
		return errors.As(err, &refused) && refused.Code == "28000" && strings.Contains(refused.Message, "pg_hba.conf")
	})
	a := c.add(JoinRequest{Name: "n3", DSN: p.DSN("", "")})
	a.refused(t, 409, "role pgshoal cannot log in", "pg_hba.conf")
	a.refused(t, 409, `step "log in as routers do"`, "On the server remain: 1 other relations in database postgres, schema pg_shoal in database postgres, 2 tables in database postgres")
	a.refused(t, 409, "", "The cluster is unchanged")
}

func bootstrapElsewhere(t *testing.T, p *shardtest.Postgres) {
	t.Helper()
	cfg, err := pgx.ParseConfig(p.DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	id := catalog.Identity{Cluster: "elsewhere", Name: "x", ID: 4}
	if _, err := catalog.BootstrapNode(context.Background(), cfg, id, catalog.RouterRole{}, nil); err != nil {
		t.Fatal(err)
	}
}

func checkJoin(t *testing.T, c *testController, third *shardtest.Postgres) {
	// A router that acknowledges late holds the join back, but does not break it.
	store := c.store
	reg, err := topo.Register(context.Background(), store, topo.Member{Name: "r1", Role: topo.RoleRouter}, time.Second, discard())
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	var fenced []keyspace.Fence
	follower, err := topo.NewFollower(context.Background(), store, discard(), func(m *keyspace.Map) {
		fenced = append(fenced, m.Fences...)
		quiet := []string{topo.FenceJoining}
		for _, f := range m.Fences {
			quiet = append(quiet, f.ID)
		}
		if err := reg.Update(context.Background(), func(me *topo.Member) { me.AckedEpoch, me.Quiet = m.Epoch, quiet }); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var joined Joined
	c.add(JoinRequest{Name: "n3", DSN: third.DSN("", ""), Region: "us", Weight: 3}).decode(t, &joined)
	follower.Close()
	n := joined.Node
	if n.State != keyspace.NodeActive || n.Region != "us" || n.Weight != 3 || n.Addresses[0] != third.Address() || n.ID < 2 {
		t.Errorf("joined: %+v", joined)
	}
	if len(fenced) != 1 || fenced[0].Router != "c1" || len(fenced[0].Tables) != 1 {
		t.Errorf("reference tables were fenced like this: %+v", fenced)
	}
	if m := c.loadMap(); len(m.Fences) != 0 || len(m.Nodes) != 3 {
		t.Errorf("map: %+v", m)
	}
	if got := query(t, third, "", "SELECT name FROM colour ORDER BY 1"); !slices.Equal(got, []string{"blue", "red"}) {
		t.Errorf("reference rows: %v", got)
	}
	want := fmt.Sprint(int64(n.ID)<<48 + 1)
	if got := query(t, third, "", "SELECT nextval('old_id_seq')"); got[0] != want {
		t.Errorf("first value of a sequence on the new node: %s, want %s", got[0], want)
	}
}

func checkViews(t *testing.T, c *testController) {
	_, err := topo.UpdateMap(context.Background(), c.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		next, _, err := m.CreateDistribution("postgres", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: 6})
		return next, err
	})
	if err != nil {
		t.Fatal(err)
	}
	d := c.loadMap().Distributions[0]
	conn, err := c.connectHome(context.Background(), c.loadMap(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(context.Background(), fmt.Sprintf("SELECT pg_shoal.set_table('old', 'distributed', %d, '{id}')", d.ID)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leader has the new map", func() bool { return len(c.leading().follower.Map().Distributions) == 1 })
	var tables []TableInfo
	c.get("/api/v1/tables").decode(t, &tables)
	if len(tables) != 2 || tables[0].Name != "colour" || tables[0].Kind != "reference" || tables[1].Kind != "distributed" ||
		tables[1].Shards != 6 || !slices.Equal(tables[1].Key, []string{"id"}) {
		t.Errorf("tables: %+v", tables)
	}
	var shards []ShardInfo
	c.get("/api/v1/shards?table=public.old").decode(t, &shards)
	if len(shards) != 6 || shards[0].Low != "" || shards[0].High != shards[1].Low || shards[5].High != "" || shards[0].Types[0] != "bigint" {
		t.Errorf("shards: %+v", shards)
	}
	c.get("/api/v1/shards?table=colour").refused(t, 409, "is a reference table", "create_distributed_table")
	c.get("/api/v1/shards?table=none").refused(t, 404, `"none" does not exist`, "table list")
	c.get("/api/v1/tables?database=none").refused(t, 404, `database "none"`, "")
	// The other nodes follow, or the schema would differ from now on.
	if _, err := conn.Exec(context.Background(), "SELECT pg_shoal.unset_table('old')"); err != nil {
		t.Fatal(err)
	}
}

func checkDrift(t *testing.T, c *testController, third *shardtest.Postgres) {
	var d Drift
	c.get("/api/v1/schema/diff").decode(t, &d)
	if d.Home != "n1" || len(d.Differences) != 0 {
		t.Errorf("drift of equal nodes: %+v", d)
	}
	query(t, third, "", "CREATE INDEX planted ON old (t)")
	c.get("/api/v1/schema/diff?database=postgres").decode(t, &d)
	if len(d.Differences) != 1 || d.Differences[0].Node != "n3" || d.Differences[0].Change != catalog.Extra || !strings.Contains(d.Differences[0].Name, "planted") {
		t.Errorf("drift: %+v", d)
	}
	c.get("/api/v1/schema/diff?database=template1").decode(t, &d)
	if len(d.Differences) != 0 {
		t.Errorf("drift of another database: %+v", d)
	}
	query(t, third, "", "DROP INDEX planted")
}

func checkLeave(t *testing.T, c *testController) {
	remove := func(name string) answer {
		return c.request(http.MethodDelete, "/api/v1/nodes/"+name, testToken, nil)
	}
	remove("n1").refused(t, 409, "is the home node", "")
	remove("none").refused(t, 404, `no node "none"`, "node list")
	remove("n3").refused(t, 409, "still holds", "Move its shards")
	_, err := topo.UpdateMap(context.Background(), c.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		return m.DropDistribution(m.Distributions[0].ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	before := c.loadMap()
	if a := remove("n3"); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if m := c.loadMap(); len(m.Nodes) != 2 || m.LastNode != before.LastNode || m.Epoch != before.Epoch+1 {
		t.Errorf("map: %+v", m)
	}
}

// TestEnsuresPgShoal makes a database without pg_shoal and expects the controller to install it.
func TestEnsuresPgShoal(t *testing.T) {
	p := shardtest.StartPostgres(t)
	c := startController(t, memtopo.NewServer(), "c1", func(cfg *Config) {
		cfg.Bootstrap = []JoinRequest{{Name: "n1", DSN: p.DSN("", "")}}
		cfg.EnsureEvery = 50 * time.Millisecond
	})
	c.awaitLeading()
	query(t, p, "", "CREATE DATABASE bare TEMPLATE template0")
	eventually(t, "pg_shoal is in the new database", func() bool {
		return query(t, p, "bare", "SELECT to_regclass('pg_shoal.node') IS NOT NULL")[0] == "t"
	})
}

// TestEnsuresNewDatabasesAtOnce expects it as soon as a router has told of a new database.
func TestEnsuresNewDatabasesAtOnce(t *testing.T) {
	p := shardtest.StartPostgres(t)
	c := startController(t, memtopo.NewServer(), "c1", func(cfg *Config) {
		cfg.Bootstrap = []JoinRequest{{Name: "n1", DSN: p.DSN("", "")}}
		cfg.EnsureEvery = time.Hour
	})
	c.awaitLeading()
	query(t, p, "", "CREATE DATABASE bare TEMPLATE template0")
	if _, err := topo.UpdateMap(t.Context(), c.store, func(m *keyspace.Map) (*keyspace.Map, error) { return m.BumpSchema("bare") }); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pg_shoal is in the new database", func() bool {
		return query(t, p, "bare", "SELECT to_regclass('pg_shoal.node') IS NOT NULL")[0] == "t"
	})
}

// TestBootstrapTriesAgain starts a cluster whose second server comes late.
func TestBootstrapTriesAgain(t *testing.T) {
	servers := startServers(t, 2)
	servers[1].Stop()
	c := startController(t, memtopo.NewServer(), "c1", func(cfg *Config) {
		cfg.Bootstrap = []JoinRequest{{Name: "n1", DSN: servers[0].DSN("", "")}, {Name: "n2", DSN: servers[1].DSN("", "")}}
	})
	eventually(t, "the controller says what is wrong", func() bool {
		a := c.get("/readyz")
		return a.status == http.StatusServiceUnavailable && strings.Contains(string(a.body), "n2")
	})
	servers[1].Start()
	c.awaitLeading()
	if m := c.loadMap(); len(m.Nodes) != 2 {
		t.Errorf("map: %+v", m)
	}
}
