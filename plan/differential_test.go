package plan_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/sqltext"
)

// differentialSchema is made once with all rows (schema whole) and once per node. Table c has its
// key in the middle and is of another integer type.
const differentialSchema = `
CREATE TABLE a (k bigint NOT NULL, v bigint, w bigint);
CREATE TABLE b (k bigint NOT NULL, v bigint, w bigint);
CREATE TABLE c (w bigint, k int NOT NULL, id bigint);
CREATE TABLE r (k bigint, v bigint);
CREATE VIEW va AS SELECT k, count(*) AS n FROM a GROUP BY k;
CREATE VIEW vb AS SELECT b.k, c.id AS v FROM b LEFT JOIN c ON c.k = b.k;
CREATE VIEW vu AS SELECT k, v FROM a UNION ALL SELECT k, id FROM c;
CREATE VIEW vl AS SELECT r.v AS k, a.k AS v FROM r LEFT JOIN a ON a.v = r.k;
`

// cluster is one database that plays both the whole and the nodes, each in its schema.
type cluster struct {
	db      *database
	catalog *catalog.Catalog
	m       *keyspace.Map
	d       *keyspace.Distribution
}

// newCluster spreads the tables by a key of k, or of k and w.
func newCluster(t *testing.T, server *shardtest.Postgres, name string, s strategy) *cluster {
	var schema strings.Builder
	for _, s := range []string{"whole", "n1", "n2", "n3"} {
		schema.WriteString("CREATE SCHEMA " + s + "; SET search_path = " + s + ";" + differentialSchema)
	}
	columns := "{k}"
	if len(s.key.Types) > 1 {
		columns = "{k,w}"
	}
	db := newDatabase(t, server, "differential_"+name, schema.String()+strings.ReplaceAll(`
		SELECT pg_shoal.set_table('whole.a', 'distributed', 1, KEY), pg_shoal.set_table('whole.b', 'distributed', 1, KEY),
			pg_shoal.set_table('whole.c', 'distributed', 1, KEY), pg_shoal.set_table('whole.r', 'reference', NULL, NULL)`,
		"KEY", plan.QuoteLiteral(columns)))
	m := addStrategies(t, threeNodes(t), s)
	return &cluster{db, db.load(t), m, m.Distribution(1)}
}

// fill puts random rows into the whole and onto the nodes.
func (c *cluster) fill(t *rapid.T, r *rand.Rand) {
	var sql strings.Builder
	value := func(most int) string {
		if n := r.IntN(most + 2); n <= most {
			return fmt.Sprint(n)
		}
		return "NULL"
	}
	add := func(table, row string, nodes ...string) {
		if nodes[0] == "" {
			return // a row that belongs nowhere
		}
		for _, s := range append(nodes, "whole") {
			fmt.Fprintf(&sql, "INSERT INTO %s.%s VALUES (%s);", s, table, row)
		}
	}
	for _, s := range []string{"whole", "n1", "n2", "n3"} {
		fmt.Fprintf(&sql, "DELETE FROM %[1]s.a; DELETE FROM %[1]s.b; DELETE FROM %[1]s.c; DELETE FROM %[1]s.r;", s)
	}
	for _, table := range []string{"a", "b", "c"} {
		for range 3 + r.IntN(7) {
			k, w := fmt.Sprint(r.IntN(8)), value(7)
			if len(c.d.Key.Types) > 1 {
				w = fmt.Sprint(r.IntN(8))
			}
			row := k + ", " + value(7) + ", " + w
			if table == "c" {
				row = w + ", " + k + ", " + value(7)
			}
			add(table, row, c.nodeOf(k, w))
		}
	}
	for range 1 + r.IntN(4) {
		add("r", value(7)+", "+value(7), "n1", "n2", "n3")
	}
	if _, err := c.db.Query(context.Background(), sql.String()); err != nil {
		t.Fatalf("%v", err)
	}
}

// nodeOf is the node of a row with these values of k and w.
func (c *cluster) nodeOf(key ...string) string {
	var point []byte
	for _, component := range c.d.Key.Components() {
		var types []keyspace.Type
		var values []keyspace.Value
		for _, i := range component.Columns {
			types = append(types, keyspace.Int8)
			values = append(values, keyspace.Value{Data: []byte(key[i]), From: keyspace.Int8})
		}
		var err error
		if point, err = c.d.Key.AppendComponent(point, &component, types, values); err != nil {
			return ""
		}
	}
	return c.d.Shards[c.d.Find(point)].Node
}

// literalValues gives operands the literals of one text, as a router does.
type literalValues struct {
	norm *sqltext.Normalized
	sql  string
}

func (v literalValues) Value(o *plan.Operand) (exec.Value, error) {
	switch {
	case o.Null:
		return exec.Value{Null: true}, nil
	case o.Literal < 0:
		return exec.Value{Data: []byte(o.Text)}, nil
	}
	data, ok := v.norm.Literals[o.Literal].Value([]byte(v.sql), nil)
	if !ok {
		return exec.Value{}, errors.New("a literal that is not decoded")
	}
	if o.Negate {
		data = append([]byte{'-'}, data...)
	}
	return exec.Value{Data: data}, nil
}

type noAsker struct{}

func (noAsker) Canonical(keyspace.Type, string, []byte) ([]byte, error) {
	return nil, errors.New("nobody to ask")
}

func (noAsker) Entry(*keyspace.Distribution, []byte, bool) (uint64, bool, error) {
	return 0, false, errors.New("nobody to ask")
}

// TestRoutedAnswers runs random statements: one that is routed to a node must answer there, with
// that node's rows only, what PostgreSQL answers over all rows. A plan serves every text that
// differs in literals only, so it is also used for a second set of them.
func TestRoutedAnswers(t *testing.T) {
	const hash, ordered = keyspace.Hash, keyspace.Range
	one, two := []keyspace.Type{keyspace.Int8}, []keyspace.Type{keyspace.Int8, keyspace.Int8}
	list := keyspace.Dimension{Method: keyspace.List, Columns: []int{0}, Default: "us", Regions: []keyspace.Region{
		{Name: "eu", ID: 1, Values: []string{"0", "1", "2"}}, {Name: "us", ID: 2, Values: []string{"3", "4"}},
	}}
	server, strict := shardtest.StartPostgres(t), list
	strict.Default = ""
	for name, s := range map[string]strategy{
		"hash":      {key: keyspace.HashKey(keyspace.Int8), shards: 12},
		"range":     {key: keyspace.Key{Types: one, Dimensions: []keyspace.Dimension{dimension(ordered, 0)}}, split: [][]string{{"2"}, {"3"}, {"6"}}},
		"list":      {key: keyspace.Key{Types: one, Dimensions: []keyspace.Dimension{list, dimension(hash, 0)}}, shards: 3},
		"strict":    {key: keyspace.Key{Types: two, Dimensions: []keyspace.Dimension{strict, dimension(hash, 1)}}, shards: 2},
		"hashes":    {key: keyspace.HashKey(two...), shards: 12},
		"ranges":    {key: keyspace.Key{Types: two, Dimensions: []keyspace.Dimension{dimension(ordered, 0, 1)}}, split: [][]string{{"2", "4"}, {"3"}, {"5", "2"}}},
		"composite": {key: keyspace.Key{Types: two, Dimensions: []keyspace.Dimension{dimension(hash, 0), dimension(ordered, 1)}}, shards: 5},
	} {
		t.Run(name, func(t *testing.T) {
			share := 10 // of all rounds, or the suite takes too long
			if name == "hash" {
				share = 2
			}
			testRoutedAnswers(t, newCluster(t, server, name, s), share*raceShare)
		})
	}
}

func testRoutedAnswers(t *testing.T, c *cluster, share int) {
	routed, tried := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		// rapid prefers small numbers and edges, which makes statements of one kind.
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		if r.IntN(share) > 0 {
			return
		}
		c.fill(t, r)
		for range max(100/share, 10) {
			g := &generator{rand: r, ordered: !c.d.Key.SingleHash(), two: len(c.d.Key.Types) > 1}
			if g.chance(20) {
				c.compareScan(t, g)
				continue
			}
			template, writes, depth := "", g.chance(25), r.IntN(4)
			switch focus := g.chance(30); {
			case writes && focus:
				template = g.focusedWrite()
			case writes:
				template = g.write(min(depth, 2))
			case focus:
				template = g.focused()
			default:
				template, _ = g.query(nil, depth, 2)
			}
			first, second := fillLiterals(r, template, g.literals), fillLiterals(r, template, g.literals)
			tried++
			res, err := makePlan(c.catalog, c.m, first, request{path: []string{"whole"}})
			if err != nil || res.Plan.Kind != plan.Route {
				continue
			}
			if c.compare(t, res.Plan, first, first, writes) {
				routed++
			}
			if !res.Fixed && sameText(first, second) {
				c.compare(t, res.Plan, second, first, writes)
			}
		}
	})
	t.Logf("%d statements, %d of them routed and compared", tried, routed)
	if tried > 100 && routed*200 < tried {
		t.Errorf("only %d of %d statements were compared: the test has no teeth", routed, tried)
	}
}

// sameText reports texts that share a plan.
func sameText(a, b string) bool {
	var x, y sqltext.Normalized
	return sqltext.Normalize(&x, a, true) && sqltext.Normalize(&y, b, true) && string(x.Text) == string(y.Text)
}

func fillLiterals(r *rand.Rand, template string, n int) string {
	pairs := make([]string, 0, 2*n)
	for i := range n {
		pairs = append(pairs, fmt.Sprintf("{%d}", i), fmt.Sprint(r.IntN(8)))
	}
	return strings.NewReplacer(pairs...).Replace(template)
}

// compare runs sql over all rows and on the node of the plan, which was made for the text from.
func (c *cluster) compare(t *rapid.T, p *plan.Plan, sql, from string, writes bool) bool {
	var norm sqltext.Normalized
	if !sqltext.Normalize(&norm, sql, true) {
		return false
	}
	node, err := exec.Target(c.m, p, literalValues{&norm, sql}, noAsker{})
	if err != nil {
		return false
	}
	want, wantTables, err := c.run("whole", sql, writes)
	if err != nil {
		return false
	}
	got, gotTables, err := c.run(node, sql, writes)
	if err != nil {
		t.Fatalf("%v\non %s: %s\nplanned as: %s\n%s", err, node, sql, from, p)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("%s\nplanned as: %s\n%s\non %s: %v\nover all rows: %v", sql, from, p, node, got, want)
	}
	if writes {
		c.compareTables(t, p, sql, node, gotTables, wantTables)
	}
	return true
}

// compareScan runs a condition on one table over all rows and on the nodes that its pin leads to, which
// may be several: together they must have the rows.
func (c *cluster) compareScan(t *rapid.T, g *generator) {
	item := source{name: g.pick("a", "b")}
	terms := []string{g.bound(item)}
	for g.chance(40) {
		terms = append(terms, g.bound(item))
	}
	sql := fillLiterals(g.rand, "SELECT * FROM "+item.name+" WHERE "+strings.Join(terms, " AND "), g.literals)
	res, err := makePlan(c.catalog, c.m, sql, request{path: []string{"whole"}})
	if err != nil || res.Plan.Kind != plan.Route {
		return
	}
	var norm sqltext.Normalized
	sqltext.Normalize(&norm, sql, true)
	nodes, err := exec.Nodes(c.m, &res.Plan.Pins[0], literalValues{&norm, sql}, noAsker{})
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	want, _, err := c.run("whole", sql, false)
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	var got []string
	for _, n := range nodes {
		rows, _, err := c.run(n, sql, false)
		if err != nil {
			t.Fatalf("%v\n%s", err, sql)
		}
		got = append(got, rows...)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%s\n%s\non %v: %v\nover all rows: %v", sql, res.Plan, nodes, got, want)
	}
}

// compareTables checks that the rows of all nodes together are those of the whole, and where they are.
func (c *cluster) compareTables(t *rapid.T, p *plan.Plan, sql, node string, got, want []string) {
	for _, row := range got {
		if fields := strings.Split(row, ","); c.nodeOf(fields[1], fields[3]) != node {
			t.Fatalf("%s\n%s\nrow %s is on %s", sql, p, row, node)
		}
	}
	for _, other := range []string{"n1", "n2", "n3"} {
		if other != node {
			_, rows, err := c.run(other, "SELECT 1", true)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, rows...)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("%s\n%s\nthe nodes have: %v\nexpected: %v", sql, p, got, want)
	}
}

// run executes a statement in a schema and undoes it; tables are the rows of a and b after it.
func (c *cluster) run(schema, sql string, writes bool) (rows, tables []string, err error) {
	ctx := context.Background()
	defer func() { _, _ = c.db.Query(ctx, "ROLLBACK") }()
	if _, err = c.db.Query(ctx, "BEGIN; SET LOCAL search_path = "+schema+"; SET LOCAL statement_timeout = '5s'"); err != nil {
		return nil, nil, err
	}
	if rows, err = c.rows(ctx, sql); err != nil || !writes {
		return rows, nil, err
	}
	tables, err = c.rows(ctx, "SELECT 'a', k, v, w FROM "+schema+".a UNION ALL SELECT 'b', k, v, w FROM "+schema+".b")
	return rows, tables, err
}

func (c *cluster) rows(ctx context.Context, sql string) ([]string, error) {
	rows, err := c.db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range rows {
		var fields []string
		for _, f := range r {
			if f == nil {
				f = []byte("NULL")
			}
			fields = append(fields, string(f))
		}
		out = append(out, strings.Join(fields, ","))
	}
	slices.Sort(out)
	return out, nil
}
