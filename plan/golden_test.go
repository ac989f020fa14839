package plan_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/sqltext"
)

// TestGolden holds the plan of every statement in testdata/plans. The commands are
//
//	schema: SQL on top of testdata/schema.sql
//	plan [params=(oid, ...)] [path=(schema, ...)] [temp=(name, ...)] [alone]: the plan of one statement;
//	    alone is a cluster of one node
//	exchange [sizes=(table:rows, ...)]: the plan of a query over several nodes, with rows that move when sizes are known
//	steady: for each line, whether PostgreSQL can keep one plan of the statement for all values
//	lift: the text with parameters in place of literals, and which literals they are
//	nodes: the plan of a statement without parameters, and the shards that each of its pins leads to
func TestGolden(t *testing.T) {
	t.Parallel()
	server := shardtest.StartPostgres(t)
	schema, err := os.ReadFile(filepath.Join("testdata", "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	common := newDatabase(t, server, "common", string(schema)).load(t)
	m := testMap(t)
	datadriven.Walk(t, filepath.Join("testdata", "plans"), func(t *testing.T, path string) {
		cat := common
		var own *database // files that change the schema have their own
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "schema" {
				if own == nil {
					own = newDatabase(t, server, strings.TrimSuffix(filepath.Base(path), ".txt"), string(schema))
				}
				own.exec(t, d.Input)
				cat = own.load(t)
				return "ok\n"
			}
			if d.Cmd == "steady" {
				return steadyText(cat, m, d.Input)
			}
			return planText(t, cat, m, d)
		})
	})
}

func planText(t *testing.T, cat *catalog.Catalog, m *keyspace.Map, d *datadriven.TestData) string {
	in := request{path: []string{"public"}}
	for _, arg := range d.CmdArgs {
		switch arg.Key {
		case "params":
			for i := range arg.Vals {
				var oid uint32
				arg.Scan(t, i, &oid)
				in.params = append(in.params, oid)
			}
		case "path":
			in.path = arg.Vals
		case "temp":
			in.temp = arg.Vals
		case "sizes":
			in.sizes = map[string]int64{}
			for _, v := range arg.Vals {
				name, rows, _ := strings.Cut(v, ":")
				n, err := strconv.ParseInt(rows, 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				in.sizes[name] = n
			}
		case "alone":
			m = onOneNode(m)
		}
	}
	if d.Cmd == "lift" {
		return liftedText(d.Input)
	}
	if d.Cmd == "exchange" {
		return exchangeText(cat, m, d.Input, in)
	}
	res, err := makePlan(cat, m, d.Input, in)
	var refusal *plan.Refusal
	if errors.As(err, &refusal) {
		text := refusal.SQLState() + ": " + refusal.Message + "\n"
		if refusal.Hint != "" {
			text += "HINT: " + refusal.Hint + "\n"
		}
		return text
	}
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	text := res.Plan.String()
	if res.Fixed {
		text += "  for this text only\n"
	}
	if res.Plan.Kind == plan.Spread && len(res.Plan.Tables) == 0 {
		text += "  touches no table: no fence would hold it back\n"
	}
	if d.Cmd == "nodes" {
		text += whereTo(m, res.Plan, d.Input)
	}
	return text
}

func steadyText(cat *catalog.Catalog, m *keyspace.Map, lines string) string {
	var b strings.Builder
	for sql := range strings.Lines(lines) {
		res, err := makePlan(cat, m, sql, request{path: []string{"public"}, temp: []string{"temporary"}})
		if err != nil {
			fmt.Fprintf(&b, "error: %v\n", err)
			continue
		}
		fmt.Fprintln(&b, res.Plan.Steady)
	}
	return b.String()
}

// whereTo says what each pin of a plan comes to with the literals of a text.
func whereTo(m *keyspace.Map, p *plan.Plan, sql string) string {
	var norm sqltext.Normalized
	sqltext.Normalize(&norm, sql, true)
	values := literalValues{&norm, sql}
	var b strings.Builder
	for i := range p.Pins {
		pin := &p.Pins[i]
		d := m.Distribution(pin.Distribution)
		shards, err := exec.Shards(d, pin, values, noAsker{})
		if err != nil {
			fmt.Fprintf(&b, "  error: %v\n", err)
			continue
		}
		nodes, _ := exec.Nodes(m, pin, values, noAsker{})
		fmt.Fprintf(&b, "  %d of %d shards, on: %s\n", len(shards), len(d.Shards), strings.Join(nodes, ", "))
	}
	return b.String()
}

func liftedText(sql string) string {
	stmts, err := analyze.Parse(sql)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	var norm sqltext.Normalized
	sqltext.Normalize(&norm, sql, true)
	text, literals, err := plan.Lift(stmts[0], func(at int) (int, bool, bool) { return literalAt(&norm, sql, at) })
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	if len(literals) == 0 {
		return "as it is\n"
	}
	for i, l := range literals {
		sign := ""
		if l.Negate {
			sign = "-"
		}
		literal := norm.Literals[l.Literal]
		text += fmt.Sprintf("\n  $%d = %s%s, type %d", i+1, sign, sql[literal.Start:literal.End], l.Type)
	}
	return text + "\n"
}

func exchangeText(cat *catalog.Catalog, m *keyspace.Map, sql string, in request) string {
	stmts, err := analyze.Parse(sql)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	input := plan.Input{Statement: stmts[0], Catalog: cat, Map: m, Path: in.path, Params: in.params}
	if in.sizes != nil {
		input.Sizes = func(t *catalog.Table) (plan.Size, bool) {
			rows, known := in.sizes[t.Name]
			return plan.Size{Rows: rows, Bytes: rows * 100}, known
		}
	}
	e, err := plan.MakeExchange(input, sql)
	if err != nil {
		return "error: " + err.Error() + "\n"
	}
	return e.String()
}

// request is what a session adds to a statement.
type request struct {
	params []uint32
	path   []string
	temp   []string
	sizes  map[string]int64 // rows by table
}

func makePlan(cat *catalog.Catalog, m *keyspace.Map, sql string, in request) (plan.Result, error) {
	stmts, err := analyze.Parse(sql)
	if err != nil {
		return plan.Result{}, err
	}
	if len(stmts) != 1 {
		return plan.Result{}, fmt.Errorf("%d statements", len(stmts))
	}
	var norm sqltext.Normalized
	input := plan.Input{
		Statement: stmts[0], Catalog: cat, Map: m, Path: in.path, Params: in.params,
		Temporary: func(name string) bool { return slices.Contains(in.temp, name) },
	}
	if sqltext.Normalize(&norm, sql, true) {
		input.Literal = func(at int) (int, bool, bool) { return literalAt(&norm, sql, at) }
	}
	return plan.Make(input)
}

// literalAt finds the literal that begins at a byte, or follows a minus there.
func literalAt(norm *sqltext.Normalized, sql string, at int) (index int, negate, ok bool) {
	for i, l := range norm.Literals {
		switch {
		case l.Start == at:
			return i, false, true
		case l.Start > at && sql[at] == '-' && strings.TrimSpace(sql[at+1:l.Start]) == "":
			return i, true, true
		}
	}
	return 0, false, false
}

// threeNodes is a map without distributions: one node is in a region of its own.
func threeNodes(tb testing.TB) *keyspace.Map {
	tb.Helper()
	m := keyspace.NewMap("test")
	var err error
	for i, name := range []string{"n1", "n2", "n3"} {
		node := keyspace.Node{Name: name, Addresses: []string{fmt.Sprintf("127.0.0.1:%d", 5000+i)}, Weight: 1, State: keyspace.NodeActive}
		if node.Region = "us"; i == 0 {
			node.Region = "eu"
		}
		if m, err = m.AddNode(node); err != nil {
			tb.Fatal(err)
		}
	}
	return m
}

// testMap has the distributions of testdata/schema.sql.
func testMap(tb testing.TB) *keyspace.Map {
	tb.Helper()
	m := threeNodes(tb)
	var err error
	for _, kt := range []keyspace.Type{
		keyspace.Int8, keyspace.Text, keyspace.UUID, keyspace.Numeric, keyspace.Date, keyspace.Timestamptz, keyspace.Bpchar,
	} {
		if m, _, err = m.CreateDistribution("db", keyspace.HashKey(kt), keyspace.Layout{Shards: 12}); err != nil {
			tb.Fatal(err)
		}
	}
	return addStrategies(tb, m, strategies()...)
}

// database is a database with the pg_shoal schema.
type database struct{ conn *pgx.Conn }

func newDatabase(tb testing.TB, server *shardtest.Postgres, name, schema string) *database {
	tb.Helper()
	connect := func(database string) *pgx.Conn {
		conn, err := pgx.Connect(tb.Context(), server.DSN("", database))
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = conn.Close(ctx)
		})
		return conn
	}
	admin := &database{connect("")}
	admin.exec(tb, "CREATE DATABASE "+plan.QuoteIdent(name))
	db := &database{connect(name)}
	err := catalog.Bootstrap(tb.Context(), db.conn, catalog.Identity{Cluster: "test", Name: "n1", ID: 0, Home: true}, catalog.RouterRole{})
	if err != nil {
		tb.Fatal(err)
	}
	db.exec(tb, schema)
	return db
}

func (d *database) exec(tb testing.TB, sql string) {
	tb.Helper()
	if _, err := d.conn.PgConn().Exec(tb.Context(), sql).ReadAll(); err != nil {
		tb.Fatalf("%v\n%s", err, sql)
	}
}

// Query implements catalog.Querier.
func (d *database) Query(ctx context.Context, sql string) ([][][]byte, error) {
	results, err := d.conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][][]byte
	for _, r := range results {
		rows = append(rows, r.Rows...)
	}
	return rows, nil
}

func (d *database) load(tb testing.TB) *catalog.Catalog {
	tb.Helper()
	c, err := catalog.Load(tb.Context(), d, "db", 1)
	if err != nil {
		tb.Fatal(err)
	}
	return placeSchemas(c)
}
