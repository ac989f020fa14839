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
}

func newCluster(t *testing.T) *cluster {
	server := shardtest.StartPostgres(t)
	var schema strings.Builder
	for _, s := range []string{"whole", "n1", "n2", "n3"} {
		schema.WriteString("CREATE SCHEMA " + s + "; SET search_path = " + s + ";" + differentialSchema)
	}
	db := newDatabase(t, server, "differential", schema.String()+`
		SELECT pg_shoal.set_table('whole.a', 'distributed', 1, '{k}'), pg_shoal.set_table('whole.b', 'distributed', 1, '{k}'),
			pg_shoal.set_table('whole.c', 'distributed', 1, '{k}'), pg_shoal.set_table('whole.r', 'reference', NULL, NULL)`)
	return &cluster{db, db.load(t), testMap(t)}
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
		for _, s := range append(nodes, "whole") {
			fmt.Fprintf(&sql, "INSERT INTO %s.%s VALUES (%s);", s, table, row)
		}
	}
	for _, s := range []string{"whole", "n1", "n2", "n3"} {
		fmt.Fprintf(&sql, "DELETE FROM %[1]s.a; DELETE FROM %[1]s.b; DELETE FROM %[1]s.c; DELETE FROM %[1]s.r;", s)
	}
	for _, table := range []string{"a", "b", "c"} {
		for range 3 + r.IntN(7) {
			k := r.IntN(8)
			row := fmt.Sprintf("%d, %s, %s", k, value(7), value(3))
			if table == "c" {
				row = fmt.Sprintf("%s, %d, %s", value(7), k, value(7))
			}
			add(table, row, c.nodeOf(fmt.Sprint(k)))
		}
	}
	for range 1 + r.IntN(4) {
		add("r", value(7)+", "+value(7), "n1", "n2", "n3")
	}
	if _, err := c.db.Query(context.Background(), sql.String()); err != nil {
		t.Fatalf("%v", err)
	}
}

func (c *cluster) nodeOf(key string) string {
	hash, err := keyspace.HashText(keyspace.Int8, keyspace.Int8, []byte(key))
	if err != nil {
		return ""
	}
	return c.m.Distribution(1).FindHash(keyspace.Point(hash)).Node
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
	c := newCluster(t)
	routed, tried := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		// rapid prefers small numbers and edges, which makes statements of one kind.
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		c.fill(t, r)
		for range 100 {
			g := &generator{rand: r}
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
	if tried > 100 && routed*50 < tried {
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

// compareTables checks that the rows of all nodes together are those of the whole, and where they are.
func (c *cluster) compareTables(t *rapid.T, p *plan.Plan, sql, node string, got, want []string) {
	for _, row := range got {
		if key := strings.Split(row, ",")[1]; c.nodeOf(key) != node {
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
