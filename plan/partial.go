package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// partial lets each node aggregate its own rows and combines what they answer. It applies when the block's core
// distributes and every aggregate is one whose result over all rows follows exactly from its results over parts.
func (x *exchanger) partial(b *block) bool {
	s := b.stmt
	if len(b.arms) > 0 || len(s.LockingClause) > 0 || distinctOn(s) || hasWindow(s) || !grouped(s) && !x.p.hasAggregate(s) {
		return false
	}
	at := x.core(b, nil)
	targets, ok := explicitTargets(b)
	if at.at != spread || !ok {
		return false
	}
	c := &combiner{x: x, b: b, at: at, fragment: plainSelect()}
	final := plainSelect()
	final.LimitCount, final.LimitOffset, final.LimitOption, final.DistinctClause = s.LimitCount, s.LimitOffset, s.LimitOption, s.DistinctClause
	if !c.groups(targets) {
		return false
	}
	for i := range c.keys {
		final.GroupClause = append(final.GroupClause, columnNode(fragmentColumn(i)))
	}
	for i, t := range targets {
		final.TargetList = append(final.TargetList, resTarget(b.outputName(i), c.combined(t.GetResTarget().Val)))
	}
	if s.HavingClause != nil {
		final.HavingClause = c.combined(s.HavingClause)
	}
	for _, n := range s.SortClause {
		by := cloneNode(n)
		if position, found := sortedOutput(b, by.GetSortBy().Node); found {
			by.GetSortBy().Node = pg.MakeAConstIntNode(int64(position+1), -1)
		} else {
			by.GetSortBy().Node = c.combined(by.GetSortBy().Node)
		}
		final.SortClause = append(final.SortClause, by)
	}
	if c.failed {
		return false
	}
	x.out.Combine = c.combines(targets)
	f := c.fragment
	if len(f.TargetList) == 0 { // HAVING alone: still one row from each node
		c.add(pg.MakeFuncCallNode([]*pg.Node{pg.MakeStrNode("pg_catalog"), pg.MakeStrNode("count")}, []*pg.Node{pg.MakeAConstIntNode(1, -1)}, -1))
	}
	f.WithClause, f.FromClause, f.WhereClause = s.WithClause, s.FromClause, s.WhereClause
	bases := x.bases(s)
	name := x.newFragment(proto.Clone(f).(*pg.SelectStmt), at, bases)
	final.FromClause = []*pg.Node{relationNode(name)}
	proto.Reset(s)
	proto.Merge(s, final)
	return true
}

// combiner turns expressions over a block's rows into expressions over the rows of its fragment.
type combiner struct {
	x        *exchanger
	b        *block
	at       side
	fragment *pg.SelectStmt
	keys     []*pg.Node // what is grouped by; the fragment's first columns
	failed   bool
}

func (c *combiner) fail() *pg.Node {
	c.failed = true
	return pg.MakeAConstIntNode(0, -1)
}

// groups makes the expressions of GROUP BY the first columns of the fragment.
func (c *combiner) groups(targets []*pg.Node) bool {
	for _, g := range c.b.stmt.GroupClause {
		if g.GetGroupingSet() != nil {
			return false
		}
		if i := int(g.GetAConst().GetIval().GetIval()); g.GetAConst() != nil {
			if i < 1 || i > len(targets) {
				return false
			}
			g = targets[i-1].GetResTarget().Val
		} else if cr := g.GetColumnRef(); cr != nil && c.b.resolve(cr) == nil {
			at := slices.IndexFunc(c.b.outputs, func(o output) bool {
				return len(cr.Fields) == 1 && o.name == cr.Fields[0].GetString_().GetSval()
			})
			if at < 0 {
				return false
			}
			g = targets[at].GetResTarget().Val
		}
		if hasSublink(g) {
			return false
		}
		c.keys = append(c.keys, g)
		c.add(cloneNode(g))
		c.fragment.GroupClause = append(c.fragment.GroupClause, cloneNode(g))
	}
	return true
}

// add makes an expression a column of the fragment and returns the column.
func (c *combiner) add(n *pg.Node) *pg.Node {
	name := fragmentColumn(len(c.fragment.TargetList))
	c.fragment.TargetList = append(c.fragment.TargetList, resTarget(name, n))
	return columnNode(name)
}

// combined is the expression over the fragment's rows that has the value of n.
func (c *combiner) combined(n *pg.Node) *pg.Node {
	if c.failed || n == nil {
		return n
	}
	for i, k := range c.keys {
		if c.sameExpression(k, n) {
			return columnNode(fragmentColumn(i))
		}
	}
	switch e := n.GetNode().(type) {
	case *pg.Node_FuncCall:
		if c.isAggregate(e.FuncCall) {
			return c.aggregate(e.FuncCall)
		}
	case *pg.Node_ColumnRef, *pg.Node_SubLink:
		return c.fail()
	}
	out := cloneNode(n)
	eachExpression(out.ProtoReflect(), func(below *pg.Node) bool {
		below.Node = c.combined(below).Node
		return false
	})
	return out
}

func (c *combiner) sameExpression(a, b *pg.Node) bool {
	if ca, cb := c.x.p.columnOf(c.b, a), c.x.p.columnOf(c.b, b); ca != nil && cb != nil {
		return *ca == *cb
	}
	ta, err := deparseExpression(a)
	if err != nil || a.GetAConst() != nil {
		return false
	}
	tb, err := deparseExpression(b)
	return err == nil && ta == tb
}

func (c *combiner) isAggregate(f *pg.FuncCall) bool {
	if f.AggStar || f.AggDistinct || f.AggWithinGroup || f.AggFilter != nil || len(f.AggOrder) > 0 {
		return true
	}
	return slices.ContainsFunc(c.x.p.functions(f), func(g *catalog.Function) bool {
		return g.Kind == 'a' || g.Builtin && aggregateNames[g.Name]
	})
}

// sameAgain are aggregates of which the result over all rows is the same aggregate over the results of parts.
var sameAgain = map[string]bool{
	"min": true, "max": true, "bool_and": true, "bool_or": true, "every": true, "bit_and": true, "bit_or": true, "bit_xor": true,
}

func (c *combiner) aggregate(f *pg.FuncCall) *pg.Node {
	_, name := analyze.Name(f.Funcname)
	builtin := !slices.ContainsFunc(c.x.p.functions(f), func(g *catalog.Function) bool { return !g.Builtin })
	if !builtin || f.AggWithinGroup || f.FuncVariadic || f.Over != nil || hasSublink(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: f}}) {
		return c.fail()
	}
	part := proto.Clone(f).(*pg.FuncCall)
	part.AggOrder = nil
	node := &pg.Node{Node: &pg.Node_FuncCall{FuncCall: part}}
	switch {
	case sameAgain[name]:
		part.AggDistinct = false
		return callNode(name, c.add(node))
	case f.AggDistinct && !c.overKey(f):
		return c.fail()
	case name == "count":
		sum := castNode(callNode("sum", c.add(node)), "pg_catalog", "int8")
		return &pg.Node{Node: &pg.Node_CoalesceExpr{CoalesceExpr: &pg.CoalesceExpr{
			Args: []*pg.Node{sum, castNode(pg.MakeAConstIntNode(0, -1), "pg_catalog", "int8")},
		}}}
	case name == "sum" && len(f.Args) == 1:
		at := len(c.fragment.TargetList)
		return castNode(callNode("sum", c.add(node)), typePlaceholder(len(c.x.out.Fragments), at))
	case name == "avg" && len(f.Args) == 1 && c.x.isExact(c.b, f.Args[0]):
		count := proto.Clone(part).(*pg.FuncCall)
		part.Funcname = []*pg.Node{pg.MakeStrNode("pg_catalog"), pg.MakeStrNode("sum")}
		count.Funcname = []*pg.Node{pg.MakeStrNode("pg_catalog"), pg.MakeStrNode("count")}
		total := callNode("sum", c.add(node))
		number := callNode("sum", c.add(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: count}}))
		nullif := pg.MakeAExprNode(pg.A_Expr_Kind_AEXPR_NULLIF, []*pg.Node{pg.MakeStrNode("=")}, number, pg.MakeAConstIntNode(0, -1), -1)
		return operatorNode("/", total, nullif)
	case variances[name] > 0 && len(f.Args) == 1 && c.x.isExact(c.b, f.Args[0]):
		return c.variance(part, variances[name] == sampleVariance)
	}
	return c.fail()
}

const (
	populationVariance = iota + 1
	sampleVariance
)

var variances = map[string]int{"var_pop": populationVariance, "var_samp": sampleVariance, "variance": sampleVariance}

// variance combines N, sum(X) and sum(X*X) of parts, which are exact for integers and numerics, as PostgreSQL does in the end:
// (N*sum(X*X) - sum(X)*sum(X)) / (N*N or N*(N-1)), a plain 0 where the first is not above 0. Deviations are square roots of it with other
// digits than sqrt gives, so they are not combined.
func (c *combiner) variance(f *pg.FuncCall, sample bool) *pg.Node {
	one := func(name string, arg *pg.Node) *pg.Node {
		call := proto.Clone(f).(*pg.FuncCall)
		call.Funcname = []*pg.Node{pg.MakeStrNode("pg_catalog"), pg.MakeStrNode(name)}
		call.Args = []*pg.Node{arg}
		return callNode("sum", c.add(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: call}}))
	}
	x := func() *pg.Node { return castNode(cloneNode(f.Args[0]), "pg_catalog", "numeric") }
	n, sum, squares := one("count", x()), one("sum", x()), one("sum", operatorNode("*", x(), x()))
	over := operatorNode("-", operatorNode("*", n, squares), operatorNode("*", sum, sum))
	least, other := 0, n
	if sample {
		least, other = 1, operatorNode("-", n, pg.MakeAConstIntNode(1, -1))
	}
	zero := castNode(pg.MakeAConstIntNode(0, -1), "pg_catalog", "numeric")
	value := caseNode(operatorNode(">", over, pg.MakeAConstIntNode(0, -1)), operatorNode("/", over, operatorNode("*", n, other)), zero)
	return cloneNode(caseNode(operatorNode(">", n, pg.MakeAConstIntNode(int64(least), -1)), value, nil))
}

// overKey reports an aggregate over the whole key: nodes have no key in common, so DISTINCT is theirs.
func (c *combiner) overKey(f *pg.FuncCall) bool {
	if len(f.Args) != 1 {
		return false
	}
	col := c.x.p.columnOf(c.b, f.Args[0])
	return col != nil && slices.ContainsFunc(c.at.keys, func(k []column) bool { return len(k) == 1 && k[0] == *col })
}

// isExact reports expressions of integers and numerics, whose sums do not depend on the order.
func (x *exchanger) isExact(b *block, n *pg.Node) bool {
	switch e := n.GetNode().(type) {
	case *pg.Node_ColumnRef:
		c := b.resolve(e.ColumnRef)
		if c == nil {
			return false
		}
		oid, _ := x.p.columnType(*c)
		t, ok := keyspace.TypeByOID(x.p.catalog.BaseType(oid))
		return ok && (t.Canonical() == keyspace.Int8 || t == keyspace.Numeric)
	case *pg.Node_AConst:
		return e.AConst.GetIval() != nil || e.AConst.GetFval() != nil
	case *pg.Node_AExpr:
		if e.AExpr.Kind != pg.A_Expr_Kind_AEXPR_OP || len(e.AExpr.Name) != 1 || e.AExpr.Lexpr == nil {
			return false
		}
		op := e.AExpr.Name[0].GetString_().GetSval()
		return (op == "+" || op == "-" || op == "*") && x.isExact(b, e.AExpr.Lexpr) && x.isExact(b, e.AExpr.Rexpr)
	}
	return false
}

func hasSublink(n *pg.Node) bool {
	found := false
	analyze.Walk(n, func(m proto.Message) bool {
		if _, ok := m.(*pg.SubLink); ok {
			found = true
		}
		return !found
	})
	return found
}
