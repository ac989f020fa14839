package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
)

// placingFunctions are the functions that routers answer themselves.
var placingFunctions = map[string]bool{
	"create_distributed_table": true, "create_reference_table": true, "undistribute_table": true,
	"citus_add_local_table_to_metadata": true, "create_distributed_function": true, "undistribute_function": true,
	"create_distributed_schema": true, "undistribute_schema": true, "citus_schema_distribute": true, "citus_schema_undistribute": true,
	"directory_get": true, "directory_set": true, "directory_list": true, "directory_import": true,
}

// Placing is a call of create_distributed_table and its relatives.
type Placing struct {
	Function string // its name, which is also the result column's
	Args     []PlacingArg
	// Explain is the format of an EXPLAIN of the call, "text" or "json": nothing is changed then.
	Explain string
}

// PlacingArg is an argument of such a call: a constant, a parameter, or an expression that the home node
// computes when the call is executed.
type PlacingArg struct {
	Name  string // "" for a positional one
	Value string
	Null  bool
	Param int
	// SQL is the expression; its $1, $2, ... are the statement's parameters Params[0], Params[1], ...
	SQL    string
	Params []int
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
	const hint = "Write SELECT create_distributed_table('table', 'column')."
	s := n.GetSelectStmt()
	if s == nil || len(s.FromClause) > 0 || s.WhereClause != nil || len(s.TargetList) != 1 {
		p.fail(refuse(hint, "functions that place tables or functions must stand alone in a SELECT"))
		return true
	}
	c := s.TargetList[0].GetResTarget().GetVal().GetFuncCall()
	if c == nil {
		p.fail(refuse(hint, "functions that place tables or functions must stand alone in a SELECT"))
		return true
	}
	_, name := analyze.Name(c.Funcname)
	pl := &Placing{Function: name}
	for _, a := range c.Args {
		arg, ok := p.placingArg(a)
		if !ok {
			p.fail(refuse("Give constants, parameters, or expressions over built-in functions that are not volatile.",
				"an argument of %s cannot be computed beforehand", name))
			return true
		}
		pl.Args = append(pl.Args, arg)
	}
	p.plan.Kind, p.plan.Placing, p.plan.Writes, p.fixed = Distribute, pl, true, true
	return true
}

// explainPlacing recognises EXPLAIN of such a call, which says what it would do.
func (p *planner) explainPlacing(e *pg.ExplainStmt) bool {
	if !p.shoalFunction(e.Query) {
		return false
	}
	if p.err != nil {
		return true
	}
	pl := p.plan.Placing
	pl.Explain, p.plan.Writes = "text", false
	for _, o := range e.Options {
		name, value := strings.ToLower(o.GetDefElem().GetDefname()), strings.ToLower(optionValue(o.GetDefElem().GetArg()))
		switch {
		case name == "format" && (value == "text" || value == "json"):
			pl.Explain = value
		default:
			p.fail(refuse("The only option is FORMAT, with text or json.", "EXPLAIN (%s) of %s is not supported", strings.ToUpper(name), pl.Function))
			return true
		}
	}
	if pl.Function != "create_distributed_table" {
		p.fail(refuse("Run it in a transaction and roll back.", "EXPLAIN of %s is not supported", pl.Function))
	}
	return true
}

func (p *planner) placingArg(n *pg.Node) (PlacingArg, bool) {
	if named := n.GetNamedArgExpr(); named != nil {
		a, ok := p.placingArg(named.Arg)
		a.Name = named.Name
		return a, ok
	}
	if a, ok := simplePlacingArg(n); ok {
		return a, true
	}
	return p.computedPlacingArg(n)
}

// simplePlacingArg reads a constant or a parameter. A cast says nothing that the function does not know.
func simplePlacingArg(n *pg.Node) (PlacingArg, bool) {
	switch e := n.GetNode().(type) {
	case *pg.Node_TypeCast:
		return simplePlacingArg(e.TypeCast.Arg)
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

// computedPlacingArg takes an expression that has one value, whoever computes it: no rows, no effects.
func (p *planner) computedPlacingArg(n *pg.Node) (PlacingArg, bool) {
	if hasColumnOrSubquery(n) {
		return PlacingArg{}, false
	}
	for _, c := range analyze.Calls(n) {
		_, name := analyze.Name(c.Funcname)
		for _, f := range p.functions(c) {
			if !f.Builtin || f.Volatility == 'v' || runsSQL(name) {
				return PlacingArg{}, false
			}
		}
	}
	n = proto.CloneOf(n)
	var a PlacingArg
	analyze.Walk(n, func(m proto.Message) bool {
		if r, ok := m.(*pg.ParamRef); ok {
			i := slices.Index(a.Params, int(r.Number))
			if i < 0 {
				i, a.Params = len(a.Params), append(a.Params, int(r.Number))
			}
			r.Number = int32(i + 1)
		}
		return true
	})
	text, err := deparseExpression(n)
	a.SQL = text
	return a, err == nil
}

func (p *Placing) arguments() string {
	parts := make([]string, len(p.Args))
	for i, a := range p.Args {
		switch {
		case a.SQL != "":
			parts[i] = a.SQL
			if len(a.Params) > 0 {
				parts[i] += fmt.Sprintf(" with parameters %v", a.Params)
			}
		case a.Null:
			parts[i] = "NULL"
		case a.Param > 0:
			parts[i] = fmt.Sprintf("$%d", a.Param)
		default:
			parts[i] = QuoteLiteral(a.Value)
		}
		if a.Name != "" {
			parts[i] = a.Name + " => " + parts[i]
		}
	}
	return strings.Join(parts, ", ")
}
