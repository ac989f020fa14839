package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// steady reports a statement that PostgreSQL may plan once for all values of its parameters and loses nothing: it inserts
// rows that it names, or it finds at most one row of one table by a unique key. Its parameters stand where nothing can be
// computed from them before a row is there, so that errors do not come sooner or later either.
func (p *planner) steady(n *pg.Node) bool {
	if p.err != nil || p.plan.Kind != Route || p.plan.Rewrite != nil || p.temporary || p.unknownTable ||
		len(p.refs) != 1 || len(p.bodies) > 0 || len(p.sublinks) > 0 {
		return false
	}
	t := p.refs[0].table
	if t == nil || t.Kind != 'r' || len(t.Children) > 0 || t.RowSecurity || t.HasRules {
		return false
	}
	if !plainParams(n) {
		return false
	}
	switch e := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		return e.InsertStmt.WithClause == nil && len(e.InsertStmt.SelectStmt.GetSelectStmt().GetValuesLists()) > 0
	case *pg.Node_UpdateStmt:
		return e.UpdateStmt.WithClause == nil && len(e.UpdateStmt.FromClause) == 0 && findsOne(t, e.UpdateStmt.WhereClause)
	case *pg.Node_DeleteStmt:
		return e.DeleteStmt.WithClause == nil && len(e.DeleteStmt.UsingClause) == 0 && findsOne(t, e.DeleteStmt.WhereClause)
	case *pg.Node_SelectStmt:
		s := e.SelectStmt
		return s.WithClause == nil && len(s.FromClause) == 1 && s.FromClause[0].GetRangeVar() != nil && findsOne(t, s.WhereClause)
	}
	return false
}

// findsOne reports a condition that fixes all columns of a unique key.
func findsOne(t *catalog.Table, where *pg.Node) bool {
	fixed := map[string]bool{}
	fixedColumns(where, fixed)
	return slices.ContainsFunc(t.Uniques, func(u catalog.Unique) bool {
		return !u.Partial && !u.Expressions && !u.Exclusion && len(u.Columns) > 0 &&
			!slices.ContainsFunc(u.Columns, func(name string) bool { return !fixed[name] })
	})
}

// fixedColumns are those that a condition compares with a parameter or a constant. There is one table, so that the last
// part of a name says which column it is.
func fixedColumns(n *pg.Node, fixed map[string]bool) {
	if b := n.GetBoolExpr(); b != nil && b.Boolop == pg.BoolExprType_AND_EXPR {
		for _, arg := range b.Args {
			fixedColumns(arg, fixed)
		}
	}
	e := n.GetAExpr()
	if e == nil || e.Kind != pg.A_Expr_Kind_AEXPR_OP || len(e.Name) != 1 || e.Name[0].GetString_().GetSval() != "=" {
		return
	}
	for _, side := range [][2]*pg.Node{{e.Lexpr, e.Rexpr}, {e.Rexpr, e.Lexpr}} {
		c := side[0].GetColumnRef()
		if c != nil && (side[1].GetParamRef() != nil || side[1].GetAConst() != nil) {
			fixed[c.Fields[len(c.Fields)-1].GetString_().GetSval()] = true
		}
	}
}

// plainParams reports that each parameter is a value of a row, a limit, or one side of an operator whose other side is a
// column.
func plainParams(n *pg.Node) bool {
	all, plain := 0, 0
	count := func(nodes ...*pg.Node) {
		for _, n := range nodes {
			if n.GetParamRef() != nil {
				plain++
			}
		}
	}
	analyze.Walk(n, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pg.ParamRef:
			all++
		case *pg.ResTarget:
			count(e.Val)
		case *pg.SelectStmt:
			count(e.LimitCount)
			for _, row := range e.ValuesLists {
				count(row.GetList().GetItems()...)
			}
		case *pg.A_Expr:
			if e.Kind == pg.A_Expr_Kind_AEXPR_OP && (e.Lexpr.GetColumnRef() != nil || e.Rexpr.GetColumnRef() != nil) {
				count(e.Lexpr, e.Rexpr)
			}
		}
		return true
	})
	return all == plain
}
