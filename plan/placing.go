package plan

import (
	"strconv"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
)

// placingFunctions are the functions that routers answer themselves.
var placingFunctions = map[string]bool{
	"create_distributed_table": true, "create_reference_table": true, "undistribute_table": true,
	"citus_add_local_table_to_metadata": true, "create_distributed_function": true,
}

// shoalFunction recognises SELECT create_distributed_table(...) and its relatives.
func (p *planner) shoalFunction(n *pg.Node) bool {
	found := false
	for _, c := range analyze.Calls(n) {
		if _, name := analyze.Name(c.Funcname); placingFunctions[name] && len(p.functions(c)) == 0 {
			found = true
		}
	}
	if !found {
		return false
	}
	s := n.GetSelectStmt()
	if s == nil || len(s.FromClause) > 0 || s.WhereClause != nil || len(s.TargetList) != 1 {
		p.fail(refuse("Write SELECT create_distributed_table('table', 'column').",
			"functions that place tables must stand alone in a SELECT"))
		return true
	}
	target := s.TargetList[0].GetResTarget()
	c := target.GetVal().GetFuncCall()
	if c == nil {
		p.fail(refuse("Write SELECT create_distributed_table('table', 'column').",
			"functions that place tables must stand alone in a SELECT"))
		return true
	}
	_, name := analyze.Name(c.Funcname)
	if name == "create_distributed_function" {
		p.fail(refuse("Run the statements of its body directly.", "create_distributed_function is not supported yet"))
		return true
	}
	pl := &Placing{Function: name}
	for _, a := range c.Args {
		arg, ok := placingArg(a)
		if !ok {
			p.fail(refuse("Give constants or parameters.", "an argument of %s is an expression", name))
			return true
		}
		pl.Args = append(pl.Args, arg)
	}
	p.plan.Kind, p.plan.Placing, p.plan.Writes, p.fixed = Distribute, pl, true, true
	return true
}

func placingArg(n *pg.Node) (PlacingArg, bool) {
	switch e := n.GetNode().(type) {
	case *pg.Node_NamedArgExpr:
		a, ok := placingArg(e.NamedArgExpr.Arg)
		a.Name = e.NamedArgExpr.Name
		return a, ok
	case *pg.Node_TypeCast:
		return placingArg(e.TypeCast.Arg)
	case *pg.Node_ParamRef:
		return PlacingArg{Param: int(e.ParamRef.Number)}, true
	case *pg.Node_AConst:
		c := e.AConst
		switch {
		case c.Isnull:
			return PlacingArg{Null: true}, true
		case c.GetSval() != nil:
			return PlacingArg{Value: c.GetSval().Sval}, true
		case c.GetIval() != nil:
			return PlacingArg{Value: strconv.Itoa(int(c.GetIval().Ival))}, true
		case c.GetFval() != nil:
			return PlacingArg{Value: c.GetFval().Fval}, true
		default:
			return PlacingArg{Value: strconv.FormatBool(c.GetBoolval().GetBoolval())}, true
		}
	}
	return PlacingArg{}, false
}
