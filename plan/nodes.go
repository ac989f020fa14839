package plan

import (
	"fmt"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
)

func resTarget(name string, val *pg.Node) *pg.Node {
	return &pg.Node{Node: &pg.Node_ResTarget{ResTarget: &pg.ResTarget{Name: name, Val: val}}}
}

func columnNode(names ...string) *pg.Node {
	fields := make([]*pg.Node, len(names))
	for i, n := range names {
		fields[i] = pg.MakeStrNode(n)
	}
	return pg.MakeColumnRefNode(fields, -1)
}

func starNode() *pg.Node { return pg.MakeColumnRefNode([]*pg.Node{pg.MakeAStarNode()}, -1) }

func relationNode(name string) *pg.Node {
	return &pg.Node{Node: &pg.Node_RangeVar{RangeVar: &pg.RangeVar{Relname: name, Inh: true, Relpersistence: "p"}}}
}

func callNode(name string, args ...*pg.Node) *pg.Node {
	return pg.MakeFuncCallNode([]*pg.Node{pg.MakeStrNode("pg_catalog"), pg.MakeStrNode(name)}, args, -1)
}

func castNode(arg *pg.Node, typeNames ...string) *pg.Node {
	t := &pg.TypeName{Typemod: -1}
	for _, n := range typeNames {
		t.Names = append(t.Names, pg.MakeStrNode(n))
	}
	return &pg.Node{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: arg, TypeName: t}}}
}

func operatorNode(name string, l, r *pg.Node) *pg.Node {
	return pg.MakeAExprNode(pg.A_Expr_Kind_AEXPR_OP, []*pg.Node{pg.MakeStrNode(name)}, l, r, -1)
}

// caseNode is CASE WHEN cond THEN then ELSE otherwise END.
func caseNode(cond, then, otherwise *pg.Node) *pg.Node {
	return &pg.Node{Node: &pg.Node_CaseExpr{CaseExpr: &pg.CaseExpr{
		Args:      []*pg.Node{{Node: &pg.Node_CaseWhen{CaseWhen: &pg.CaseWhen{Expr: cond, Result: then}}}},
		Defresult: otherwise,
	}}}
}

func nullNode() *pg.Node { return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Isnull: true}}} }

func trueNode() *pg.Node {
	return &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Val: &pg.A_Const_Boolval{Boolval: &pg.Boolean{Boolval: true}}}}}
}

func plainSelect() *pg.SelectStmt {
	return &pg.SelectStmt{LimitOption: pg.LimitOption_LIMIT_OPTION_DEFAULT, Op: pg.SetOperation_SETOP_NONE}
}

func cloneNode(n *pg.Node) *pg.Node { return proto.Clone(n).(*pg.Node) }

func cloneAll(list []*pg.Node) []*pg.Node {
	out := make([]*pg.Node, len(list))
	for i, n := range list {
		out[i] = cloneNode(n)
	}
	return out
}

// column name of the n-th column of a fragment, counted from 0.
func fragmentColumn(n int) string { return fmt.Sprintf("c%d", n+1) }

// nameTargets gives targets the names of a fragment's columns.
func nameTargets(list []*pg.Node) {
	for i, n := range list {
		n.GetResTarget().Name = fragmentColumn(i)
	}
}

// explicitTargets is the target list of a block with stars written out; it fails where they cannot be.
func explicitTargets(b *block) ([]*pg.Node, bool) {
	if len(b.arms) > 0 {
		return nil, !b.holes
	}
	if b.holes || len(b.stmt.ValuesLists) > 0 {
		return nil, false
	}
	var out []*pg.Node
	for _, n := range b.stmt.TargetList {
		if in := n.GetResTarget().GetVal().GetAIndirection().GetIndirection(); len(in) > 0 && in[len(in)-1].GetAStar() != nil {
			return nil, false // (expression).*: the columns of a type
		}
		cr := n.GetResTarget().GetVal().GetColumnRef()
		if cr == nil || !isStar(cr) {
			out = append(out, n)
			continue
		}
		columns, known := b.starColumns(cr)
		if !known {
			return nil, false
		}
		for _, jc := range columns {
			if jc.column == nil || jc.column.ref.alias == "" {
				return nil, false
			}
			r := jc.column.ref
			out = append(out, resTarget(jc.name, columnNode(r.alias, r.columnName(jc.column.index))))
		}
	}
	return out, len(out) > 0
}

// figureName is the name that PostgreSQL gives to a column without an alias.
func figureName(n *pg.Node) string {
	switch e := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		return e.ColumnRef.Fields[len(e.ColumnRef.Fields)-1].GetString_().GetSval()
	case *pg.Node_FuncCall:
		_, name := analyze.Name(e.FuncCall.Funcname)
		return name
	case *pg.Node_TypeCast:
		if name := figureName(e.TypeCast.Arg); name != "" && name != "?column?" {
			return name
		}
		_, name := analyze.Name(e.TypeCast.TypeName.GetNames())
		return name
	case *pg.Node_CollateClause:
		return figureName(e.CollateClause.Arg)
	case *pg.Node_CaseExpr:
		if name := figureName(e.CaseExpr.Defresult); name != "" && name != "?column?" {
			return name
		}
		return "case"
	case *pg.Node_CoalesceExpr:
		return "coalesce"
	case *pg.Node_MinMaxExpr:
		if e.MinMaxExpr.Op == pg.MinMaxOp_IS_LEAST {
			return "least"
		}
		return "greatest"
	case *pg.Node_AArrayExpr:
		return "array"
	case *pg.Node_RowExpr:
		return "row"
	case *pg.Node_AExpr:
		if e.AExpr.Kind == pg.A_Expr_Kind_AEXPR_NULLIF {
			return "nullif"
		}
	case *pg.Node_SubLink:
		return figureSublink(e.SubLink)
	}
	return "?column?"
}

func figureSublink(sl *pg.SubLink) string {
	switch sl.SubLinkType {
	case pg.SubLinkType_EXISTS_SUBLINK:
		return "exists"
	case pg.SubLinkType_ARRAY_SUBLINK:
		return "array"
	case pg.SubLinkType_EXPR_SUBLINK:
		if t := sl.Subselect.GetSelectStmt().GetTargetList(); len(t) > 0 {
			if name := t[0].GetResTarget().GetName(); name != "" {
				return name
			}
			return figureName(t[0].GetResTarget().GetVal())
		}
	}
	return "?column?"
}
