package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pgshoal/pgshoal/analyze"
)

// Lifted is a literal of a text that is a parameter of the text made from it.
type Lifted struct {
	Literal int  // its number in the normalised text
	Negate  bool // a minus before it belongs to it
	Type    uint32
}

// Lift makes parameters of the literals of a query that only rows are compared with, so that one plan over several nodes serves
// all texts that differ in them. It applies to integers, which are parameters of type integer, and to strings, whose type PostgreSQL
// finds out for a parameter as it does for a literal, where they stand in conditions of WHERE and ON as operands of comparisons and
// of sums in them. A literal anywhere else can decide more than a value (a column's name and type, an order, which expressions of GROUP BY are
// the same), stays, and belongs to the plan. The statement's tree must not be used again.
func Lift(st *analyze.Statement, literal func(location int) (index int, negate, ok bool)) (string, []Lifted, error) {
	if st.Class != analyze.Query || st.Tree.GetSelectStmt() == nil || maxParam(st.Tree) > 0 {
		return "", nil, nil
	}
	l := &lifter{literal: literal}
	l.below(st.Tree.ProtoReflect())
	if len(l.lifted) == 0 {
		return "", nil, nil
	}
	text, err := analyze.Deparse(st.Tree)
	return text, l.lifted, err
}

type lifter struct {
	literal func(int) (int, bool, bool)
	lifted  []Lifted
}

// below looks for conditions.
func (l *lifter) below(m protoreflect.Message) {
	switch e := m.Interface().(type) {
	case *pg.SelectStmt:
		l.condition(e.WhereClause)
	case *pg.JoinExpr:
		l.condition(e.Quals)
	}
	analyze.EachField(m, l.below)
}

// condition lifts the operands of comparisons that a condition is made of. What else is in it is looked at by below.
func (l *lifter) condition(n *pg.Node) {
	switch e := n.GetNode().(type) {
	case *pg.Node_BoolExpr:
		for _, a := range e.BoolExpr.Args {
			l.condition(a)
		}
	case *pg.Node_AExpr:
		x := e.AExpr
		switch x.Kind {
		case pg.A_Expr_Kind_AEXPR_OP:
			if comparison(x) {
				l.operand(x.Lexpr)
				l.operand(x.Rexpr)
			}
		case pg.A_Expr_Kind_AEXPR_BETWEEN, pg.A_Expr_Kind_AEXPR_NOT_BETWEEN, pg.A_Expr_Kind_AEXPR_IN:
			l.operand(x.Lexpr)
			for _, item := range x.Rexpr.GetList().GetItems() {
				l.operand(item)
			}
		}
	}
}

func comparison(x *pg.A_Expr) bool {
	if len(x.Name) != 1 || x.Lexpr == nil {
		return false
	}
	switch x.Name[0].GetString_().GetSval() {
	case "=", "<>", "!=", "<", "<=", ">", ">=":
		return true
	}
	return false
}

// operand lifts a literal, or the integers of a sum.
func (l *lifter) operand(n *pg.Node) {
	switch e := n.GetNode().(type) {
	case *pg.Node_AConst:
		l.lift(n, e.AConst)
	case *pg.Node_AExpr:
		x := e.AExpr
		if x.Kind != pg.A_Expr_Kind_AEXPR_OP || len(x.Name) != 1 || x.Lexpr == nil {
			return
		}
		if op := x.Name[0].GetString_().GetSval(); op != "+" && op != "-" {
			return
		}
		for _, side := range []*pg.Node{x.Lexpr, x.Rexpr} {
			if c := side.GetAConst(); c == nil || c.GetIval() != nil {
				l.operand(side)
			}
		}
	}
}

func (l *lifter) lift(n *pg.Node, c *pg.A_Const) {
	var typ uint32
	switch {
	case c.GetIval() != nil:
		typ = 23 // integer
	case c.GetSval() == nil:
		return
	}
	index, negate, ok := l.literal(int(c.Location))
	if !ok {
		return
	}
	l.lifted = append(l.lifted, Lifted{Literal: index, Negate: negate, Type: typ})
	n.Node = paramNode(len(l.lifted)).Node
}
