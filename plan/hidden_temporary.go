package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// TemporaryDDL is a statement that made something temporary, and the search path that it was made under.
type TemporaryDDL struct {
	Name string // of the relation that it is about
	Text string
	Path []string
}

// HidesIn is the relation with whose use code may run after this DDL; "" when there is none.
func HidesIn(n *pg.Node) string {
	switch e := n.GetNode().(type) {
	case *pg.Node_ViewStmt:
		return e.ViewStmt.View.Relname
	case *pg.Node_CreateTrigStmt:
		return e.CreateTrigStmt.Relation.Relname
	case *pg.Node_RuleStmt:
		return e.RuleStmt.Relation.Relname
	case *pg.Node_CreatePolicyStmt:
		return e.CreatePolicyStmt.Table.Relname
	case *pg.Node_AlterPolicyStmt:
		return e.AlterPolicyStmt.Table.Relname
	case *pg.Node_CreateStmt:
		if len(analyze.Relations(n)) > 1 || len(analyze.Calls(n)) > 0 {
			return e.CreateStmt.Relation.Relname
		}
	case *pg.Node_AlterTableStmt:
		if len(analyze.Calls(n)) > 0 {
			return e.AlterTableStmt.Relation.Relname
		}
	case *pg.Node_IndexStmt:
		if len(analyze.Calls(n)) > 0 {
			return e.IndexStmt.Relation.Relname
		}
	}
	return ""
}

// temporaryCode checks, for a statement that uses something temporary, the code that may run with it. It was checked when it was made;
// tables may have been distributed since.
func (p *planner) temporaryCode() {
	code := p.tempCode
	p.tempCode = nil
	if !p.spread() {
		return
	}
	path := p.path
	defer func() { p.path = path }()
	for _, ddl := range code {
		stmts, err := analyze.Parse(ddl.Text)
		if err != nil {
			p.fail(refuse("Drop the temporary objects.", "the code of a temporary object cannot be read"))
			return
		}
		p.path = ddl.Path
		for _, s := range stmts {
			tables, _ := p.named(s.Tree)
			if HidesIn(s.Tree) != "" && (p.temporaryOver(s.Tree, tables) || p.temporaryHides(s.Tree, tables)) {
				return
			}
		}
	}
}

// temporaryHides refuses code that runs with a temporary table or view and sees the home node's rows only. The catalog does not know
// temporary objects, so their DDL is looked at.
func (p *planner) temporaryHides(n *pg.Node, tables []*catalog.Table) bool {
	for _, c := range analyze.Calls(n) {
		p.call(c)
	}
	if tr := n.GetCreateTrigStmt(); tr != nil {
		schema, name := analyze.Name(tr.Funcname)
		p.routines = append(p.routines, p.catalog.Functions(p.path, schema, name)...)
	}
	p.checkRoutines(false)
	switch n.GetNode().(type) {
	case *pg.Node_RuleStmt, *pg.Node_CreatePolicyStmt, *pg.Node_AlterPolicyStmt:
		if p.spread() {
			p.checkBody("a rule or policy of a temporary table", body{tables: tables}, false)
		}
	case *pg.Node_ViewStmt:
		for _, t := range tables {
			p.hiddenRead(t)
		}
	case *pg.Node_CreateStmt: // LIKE and INHERITS take defaults and constraints along
		for _, t := range tables {
			p.hiddenWrites(t)
			if p.spread() {
				p.hiddenDefaults(t)
			}
		}
	}
	return p.err != nil
}
