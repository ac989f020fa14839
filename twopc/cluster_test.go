package twopc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/goleak"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testCluster = "test-cluster"

// testNodes are real PostgreSQL servers n1, n2, ... with pg_shoal in the databases postgres and app.
type testNodes struct {
	tb      testing.TB
	names   []string
	servers map[string]*shardtest.Postgres
	m       *keyspace.Map
	*connections
	labels atomic.Int64
}

const ledger = `
CREATE TABLE ledger (label text PRIMARY KEY);
CREATE TABLE line (label text REFERENCES ledger DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	PERFORM pg_advisory_lock(42); PERFORM pg_advisory_unlock(42); RETURN NULL; END$$;
CREATE TABLE slow (label text);
CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON slow DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait();
CREATE TABLE at_end (setting text);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
	UPDATE at_end SET setting = current_setting('synchronous_commit') WHERE setting IS NULL; RETURN NULL; END$$;
CREATE CONSTRAINT TRIGGER note AFTER INSERT ON at_end DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note();
CREATE ROLE alice LOGIN; CREATE ROLE bob; GRANT bob TO alice;
GRANT ALL ON ledger TO alice, bob;`

func startNodes(tb testing.TB, n int, settings ...string) *testNodes {
	tb.Helper()
	ctx := tb.Context()
	c := &testNodes{tb: tb, servers: make(map[string]*shardtest.Postgres), m: keyspace.NewMap(testCluster)}
	c.connections = &connections{connect: c.open, timeout: 20 * time.Second, lanes: make(map[lane]*connection)}
	for i := range n {
		name := fmt.Sprintf("n%d", i+1)
		server := shardtest.StartPostgres(tb, settings...)
		c.names, c.servers[name] = append(c.names, name), server
		c.must(pgxExec(ctx, server.DSN("", ""), "CREATE DATABASE app"))
		config, err := pgx.ParseConfig(server.DSN("", ""))
		c.must(err)
		_, err = catalog.BootstrapNode(ctx, config, catalog.Identity{Cluster: testCluster, Name: name, ID: i, Home: i == 0}, catalog.RouterRole{}, nil)
		c.must(err)
		c.must(pgxExec(ctx, server.DSN("", "app"), ledger))
		c.must(pgxExec(ctx, server.DSN("", ""), "CREATE TABLE ledger (label text PRIMARY KEY)"))
		c.m, err = c.m.AddNode(keyspace.Node{Name: name, Addresses: []string{server.Address()}, Weight: 1, State: keyspace.NodeActive})
		c.must(err)
	}
	c.use(ctx, c.m)
	tb.Cleanup(func() { c.drop(context.Background(), func(lane) bool { return true }) })
	return c
}

func pgxExec(ctx context.Context, dsn, sql string) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}

func (c *testNodes) open(ctx context.Context, node keyspace.Node, database string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, c.servers[node.Name].DSN("", database))
}

func (c *testNodes) must(err error) {
	c.tb.Helper()
	if err != nil {
		c.tb.Fatal(err)
	}
}

// ask runs a statement as the superuser and returns its rows, each as one word.
func (c *testNodes) ask(node, database, sql string) []string {
	c.tb.Helper()
	rows, err := c.Query(c.tb.Context(), node, database, sql)
	c.must(err)
	var words []string
	for _, row := range rows {
		words = append(words, strings.Join(row, " "))
	}
	return words
}

// testPart is a participant over a connection of its own.
type testPart struct {
	name string
	conn *pgconn.PgConn
	kept map[string]string // names of prepared statements, by text
	none bool              // the session must not keep any
	runs *pgconn.MultiResultReader
	// gone makes the participant of a coordinator that has crashed: nothing is sent any more.
	gone *atomic.Bool
	// loseAnswer ends the connection when the next statement has been run, before it is heard of.
	loseAnswer atomic.Bool
}

// nodeError is what a node answered.
type nodeError struct{ *pgconn.PgError }

func (e nodeError) Relation() (schema, table string) { return e.SchemaName, e.TableName }

func fromNode(err error) error {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return nodeError{e}
	}
	return err
}

func (p *testPart) Node() string { return p.name }

func (p *testPart) Keep(ctx context.Context, sql string) (string, error) {
	if p.gone.Load() {
		return "", errCrashed
	}
	name, known := p.kept[sql]
	if known || p.none {
		return name, nil
	}
	name = fmt.Sprintf("kept_%d", len(p.kept))
	_, err := p.conn.Prepare(ctx, name, sql, nil)
	if p.kept == nil {
		p.kept = make(map[string]string)
	}
	p.kept[sql] = name
	return name, fromNode(err)
}

var errCrashed = errors.New("the coordinator has crashed")

func (p *testPart) Send(ctx context.Context, sql string) error {
	if p.gone.Load() {
		return errCrashed
	}
	p.runs = p.conn.Exec(ctx, sql)
	return nil
}

func (p *testPart) Receive(context.Context) error {
	_, err := p.runs.ReadAll()
	if p.loseAnswer.Load() {
		_ = p.conn.Conn().Close()
		return io.ErrUnexpectedEOF
	}
	return fromNode(err)
}

// Exec is both.
func (p *testPart) Exec(ctx context.Context, sql string) error { return exec(ctx, p, sql) }

// transaction is one open transaction on several nodes, which writes the same label on each.
type transaction struct {
	c               *testNodes
	label, database string
	id              ID
	gid             string
	parts           map[string]*testPart
	list            []Participant
	crashed         atomic.Bool
}

func (c *testNodes) begin(tb testing.TB, database, role string, names ...string) *transaction {
	tb.Helper()
	x := &transaction{c: c, database: database, id: NewID(testCluster, names[0]), parts: make(map[string]*testPart)}
	x.gid = x.id.GID
	x.label = fmt.Sprintf("t%d", c.labels.Add(1))
	for _, name := range names {
		conn, err := pgconn.Connect(tb.Context(), c.servers[name].DSN(role, database))
		c.must(err)
		tb.Cleanup(func() { _ = conn.Close(context.Background()) })
		p := &testPart{name: name, conn: conn, gone: &x.crashed}
		c.must(p.Exec(tb.Context(), "BEGIN; INSERT INTO ledger VALUES ("+quote(x.label)+")"))
		x.parts[name] = p
		x.list = append(x.list, p)
	}
	return x
}

// exec runs a statement in the transaction's part on a node.
func (x *transaction) exec(node, sql string) {
	x.c.tb.Helper()
	x.c.must(x.parts[node].Exec(x.c.tb.Context(), sql))
}

// kill ends the backend of a participant and waits until it is gone.
func (x *transaction) kill(node string) {
	x.c.tb.Helper()
	x.c.ask(node, "", fmt.Sprintf("SELECT pg_terminate_backend(%d, 10000)", x.parts[node].conn.PID()))
}

// crash is kill -9 of the coordinator: its connections end, and it does nothing any more.
func (x *transaction) crash() {
	x.crashed.Store(true)
	for _, p := range x.parts {
		_ = p.conn.Conn().Close()
	}
}

// state says on which nodes the transaction has an effect, and where it is prepared.
func (x *transaction) state() string {
	x.c.tb.Helper()
	var text strings.Builder
	for _, name := range x.c.names {
		if x.parts[name] == nil {
			continue
		}
		switch {
		case len(x.c.ask(name, "", "SELECT 1 FROM pg_prepared_xacts WHERE gid = "+quote(x.gid))) > 0:
			text.WriteString("p")
		case len(x.c.ask(name, x.database, "SELECT 1 FROM ledger WHERE label = "+quote(x.label))) > 0:
			text.WriteString("c")
		default:
			text.WriteString("-")
		}
	}
	return text.String()
}

func (x *transaction) wantState(want string) {
	x.c.tb.Helper()
	if got := x.state(); got != want {
		x.c.tb.Errorf("transaction is %q, want %q (c committed, p prepared, - nothing, by node)", got, want)
	}
}

// recoverAll runs recovery without grace.
func (c *testNodes) recoverAll() Report {
	c.tb.Helper()
	report, err := Recover(c.tb.Context(), c, testCluster, c.names, 0)
	c.must(err)
	return report
}

// on runs f once, at the named point.
func on(point string, f func()) func(string) {
	var done atomic.Bool
	return func(p string) {
		if p == point && done.CompareAndSwap(false, true) {
			f()
		}
	}
}

// eventually waits for something that another process does.
func (c *testNodes) eventually(what string, ok func() bool) {
	c.tb.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			c.tb.Fatalf("not within 20 seconds: %s", what)
		}
	}
}

func TestGID(t *testing.T) {
	for _, decider := range []string{"n1", "a:b", "it's", `back\slash`, "ünï"} {
		gid := NewID(testCluster, decider).GID
		if strings.ContainsAny(gid, `'\`) {
			t.Errorf("%s needs quoting", gid)
		}
		if got, ok := ParseGID(gid, testCluster); !ok || got != decider {
			t.Errorf("ParseGID(%s) = %q, %v", gid, got, ok)
		}
		for _, other := range []string{"", "test", testCluster + ":" + decider, "other"} {
			if _, ok := ParseGID(gid, other); ok {
				t.Errorf("%s is taken for one of cluster %q", gid, other)
			}
		}
	}
	random := strings.Repeat("0", 32)
	for _, gid := range []string{
		"", "x", "pgshoal:c:n1", "pgshoal:c:n1:", "pgshoal:c:n1:12", "pgshoal:c::" + random, "pgshoal:c:n1:" + random + ":x",
		"pgshoal:c:n1:" + strings.Repeat("Z", 32), "pgshoal:c:n1:" + strings.Repeat("A", 32), "PGSHOAL:c:n1:" + random,
		"pgshoal:c:n%31:" + random, "pgshoal:c:%:" + random,
	} {
		if decider, ok := ParseGID(gid, "c"); ok {
			t.Errorf("%q is taken for ours, with decider %q", gid, decider)
		}
	}
	if slices.Contains([]string{NewID("c", "n").GID}, NewID("c", "n").GID) {
		t.Error("two gids are equal")
	}
}

func FuzzParseGID(f *testing.F) {
	f.Add(NewID("c", "n1").GID, "c")
	f.Add("pgshoal:c:n1:", "c")
	f.Fuzz(func(t *testing.T, gid, cluster string) {
		decider, ok := ParseGID(gid, cluster)
		if ok && !strings.HasPrefix(NewID(cluster, decider).GID, gid[:len(gid)-2*randomLength]) {
			t.Errorf("%q has decider %q, for which NewGID would write something else", gid, decider)
		}
	})
}
