package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// Lent is a distributed table whose rows on other nodes the home node borrows while it runs a statement: they stand in a temporary
// table that inherits from it. So PostgreSQL itself can fill a materialized view from its own definition.
type Lent struct {
	Table   string   // qualified and quoted
	Columns []string // that have values of their own
	// Binary is set when values mean the same on all nodes in the binary format: no type of a user's is among them.
	Binary bool
}

// lendTo lists the tables that the home node must borrow to run the query of a materialized view, which has been planned through.
func (p *planner) lendTo(query *pg.Node) {
	const hint = "Fill a table instead: CREATE TABLE ... AS, later TRUNCATE and INSERT ... SELECT."
	if oneNode(p.m) || p.alone {
		return // it has all rows
	}
	trees := []proto.Message{query}
	for _, r := range p.bodies {
		if r.view != nil {
			trees = append(trees, p.viewTree(r.view))
		}
	}
	if slices.ContainsFunc(trees, mentionsSystemColumn) {
		p.fail(refuse(hint, "a materialized view over distributed tables that uses system columns is not supported"))
		return
	}
	var tables []*catalog.Table
	for _, r := range p.refs {
		t := r.table
		if p.placed(t).placement != catalog.Distributed {
			continue
		}
		switch rv := r.node.GetRangeVar(); {
		case t.Kind != catalog.KindTable || t.IsPartition:
			p.fail(refuse(hint, "a materialized view over partitioned distributed table %q is not supported", t.Name))
		case t.RowSecurity:
			p.fail(refuse(hint, "a materialized view over distributed table %q with row security is not supported", t.Name))
		case rv == nil || !rv.Inh:
			p.fail(refuse(hint, "a materialized view over ONLY distributed table %q is not supported", t.Name))
		}
		if !slices.Contains(tables, t) {
			tables = append(tables, t)
		}
	}
	for _, t := range tables {
		l := Lent{Table: QuoteIdent(t.Schema) + "." + QuoteIdent(t.Name), Binary: true}
		for i := range t.Columns {
			if c := &t.Columns[i]; c.Generated == 0 {
				l.Columns = append(l.Columns, c.Name)
				l.Binary = l.Binary && c.TypeOID < firstUserOID
			}
		}
		p.plan.Lent = append(p.plan.Lent, l)
	}
}

func mentionsSystemColumn(m proto.Message) bool {
	found := false
	analyze.Walk(m, func(m proto.Message) bool {
		if c, ok := m.(*pg.ColumnRef); ok {
			found = found || systemColumn(c)
		}
		return !found
	})
	return found
}

// refresh runs where the rows of a materialized view are: on the home node, which borrows what it has not.
func (p *planner) refresh(s *pg.RefreshMatViewStmt) {
	p.plan.Writes = true
	t := p.catalog.Lookup(p.path, s.Relation.Schemaname, s.Relation.Relname)
	if t == nil { // one that is made later may be over distributed tables
		p.fail(&Refusal{Code: "42P01", Message: "relation \"" + s.Relation.Relname + "\" does not exist"})
		return
	}
	p.touchTables([]*catalog.Table{t})
	tree := p.viewTree(t)
	if tree == nil || s.SkipData || t.Kind != catalog.KindMatView {
		return
	}
	p.query(tree, nil)
	p.touch(p.refs)
	p.checkRoutines(false)
	if p.lendTo(tree); len(p.plan.Lent) > 0 {
		p.plan.Kind, p.plan.OtherText = Every, "SELECT 1"
	}
}
