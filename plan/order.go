package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/keyspace"
)

var orderOperators = map[string]Op{"<": Less, "<=": LessEqual, ">": Greater, ">=": GreaterEqual}

// rowCondition is a comparison like (a, b) > (1, 2).
type rowCondition struct {
	columns  []column
	op       Op
	operands []Operand
}

func bounded(c column, bounds ...Bound) condition {
	return condition{left: c, fact: &restriction{union: Union{bounds}}}
}

func (p *planner) inequality(b *block, op Op, l, r *pg.Node) []condition {
	if lr, rr := l.GetRowExpr(), r.GetRowExpr(); lr != nil && rr != nil {
		return p.rowInequality(b, op, lr.Args, rr.Args)
	}
	if c, bound, ok := p.bound(b, op, l, r); ok {
		return []condition{bounded(c, bound)}
	}
	return nil
}

// bound reads a comparison of a column with a constant, on either side, that PostgreSQL decides in
// the order that the map has.
func (p *planner) bound(b *block, op Op, l, r *pg.Node) (column, Bound, bool) {
	lx, leftC, ok := p.byteCollation(l)
	rx, rightC, also := p.byteCollation(r)
	if !ok || !also {
		return column{}, Bound{}, false
	}
	lc, rc := p.columnOf(b, lx), p.columnOf(b, rx)
	switch {
	case lc != nil && rc == nil:
		bound, ok := p.boundOf(*lc, op, rx, leftC || rightC)
		return *lc, bound, ok
	case rc != nil && lc == nil:
		bound, ok := p.boundOf(*rc, op.commuted(), lx, leftC || rightC)
		return *rc, bound, ok
	}
	return column{}, Bound{}, false
}

func (p *planner) boundOf(c column, op Op, n *pg.Node, byBytes bool) (Bound, bool) {
	t, ok := p.keyType(c)
	if !ok || isText(t) && !byBytes && !p.byteOrder(c) || p.ownOperator(c, op.String()) || p.ownOperator(c, op.commuted().String()) {
		return Bound{}, false
	}
	operand, ok := p.keyOperand(n, t)
	if !ok || p.domainParam(operand) {
		return Bound{}, false
	}
	return Bound{op, operand}, true
}

// domainParam reports a parameter of a domain, which may bring a collation along.
func (p *planner) domainParam(o Operand) bool {
	if o.Param == 0 || o.Param > len(p.params) {
		return false
	}
	oid := p.params[o.Param-1]
	return p.catalog.BaseType(oid) != oid
}

func isText(t keyspace.Type) bool {
	return t.Canonical() == keyspace.Text || t.Canonical() == keyspace.Bpchar
}

// byteCollation takes COLLATE "C" off an expression; any other collation is not ok.
func (p *planner) byteCollation(n *pg.Node) (_ *pg.Node, explicit, ok bool) {
	c := n.GetCollateClause()
	if c == nil {
		return n, false, true
	}
	schema, name := analyze.Name(c.Collname)
	known := schema == "pg_catalog" || schema == "" && slices.Index(p.path, "pg_catalog") <= 0
	return c.Arg, true, known && (name == "C" || name == "POSIX")
}

// byteOrder reports a column whose text is ordered by its bytes.
func (p *planner) byteOrder(c column) bool {
	for c.ref.table == nil {
		body := c.ref.body
		if body == nil || c.ref.unknown || c.index >= len(body.outputs) {
			return false
		}
		if len(body.arms) == 2 {
			return p.byteOrder(column{&ref{body: body.arms[0]}, c.index}) && p.byteOrder(column{&ref{body: body.arms[1]}, c.index})
		}
		source := body.outputs[c.index].source
		if source == nil {
			return false
		}
		c = *source
	}
	return c.ref.table.Columns[c.index].ByteOrder
}

// between reads BETWEEN as the comparisons it stands for.
func (p *planner) between(b *block, e *pg.A_Expr) []condition {
	limits := e.Rexpr.GetList().GetItems()
	if len(limits) != 2 || p.columnOf(b, stripCollation(e.Lexpr)) == nil {
		return nil
	}
	if e.Kind == pg.A_Expr_Kind_AEXPR_BETWEEN {
		return append(p.inequality(b, GreaterEqual, e.Lexpr, limits[0]), p.inequality(b, LessEqual, e.Lexpr, limits[1])...)
	}
	var union Union
	for i := range limits {
		c, low, ok := p.bound(b, GreaterEqual, e.Lexpr, limits[i])
		_, high, also := p.bound(b, LessEqual, e.Lexpr, limits[1-i])
		if !ok || !also {
			return nil
		}
		if union = append(union, []Bound{low, high}); len(union) == 2 {
			return []condition{{left: c, fact: &restriction{union: union}}}
		}
	}
	return nil
}

func stripCollation(n *pg.Node) *pg.Node {
	if c := n.GetCollateClause(); c != nil {
		return c.Arg
	}
	return n
}

// rowInequality reads (a, b, ...) op (x, y, ...). As far as its columns are compared with constants
// it restricts them together; where that ends, the rest may be equal.
func (p *planner) rowInequality(b *block, op Op, l, r []*pg.Node) []condition {
	if len(l) != len(r) {
		return nil
	}
	row := &rowCondition{op: op}
	for i := range l {
		c, bound, ok := p.bound(b, op, l[i], r[i])
		if !ok || i > 0 && (bound.Op != row.op || p.ownOperator(c, "=")) {
			break
		}
		row.op = bound.Op
		row.columns, row.operands = append(row.columns, c), append(row.operands, bound.Operand)
	}
	if len(row.columns) == 0 {
		return nil
	}
	if len(row.columns) < len(l) {
		row.op = orEqual(row.op)
	}
	first := row.op
	if len(l) > 1 {
		first = orEqual(first)
	}
	all := []condition{bounded(row.columns[0], Bound{first, row.operands[0]})}
	if len(row.columns) > 1 {
		all = append(all, condition{left: row.columns[0], row: row})
	}
	return all
}

func orEqual(op Op) Op {
	switch op {
	case Less:
		return LessEqual
	case Greater:
		return GreaterEqual
	}
	return op
}

// pattern reads LIKE and ^@. Both compare bytes from the beginning of the value, whatever the
// collation's order, as long as it finds only equal bytes equal. char(n) is left out for its blanks.
func (p *planner) pattern(b *block, op Op, name string, l, r *pg.Node) []condition {
	lx, _, ok := p.byteCollation(l)
	rx, _, also := p.byteCollation(r)
	c := p.columnOf(b, lx)
	if !ok || !also || c == nil {
		return nil
	}
	t, ok := p.keyType(*c)
	if !ok || t.Canonical() != keyspace.Text || p.ownOperator(*c, name) {
		return nil
	}
	operand, ok := p.keyOperand(rx, keyspace.Text)
	if !ok || p.domainParam(operand) {
		return nil
	}
	return []condition{bounded(*c, Bound{op, operand})}
}

// startsWith reads starts_with(column, 'prefix').
func (p *planner) startsWith(b *block, f *pg.FuncCall) []condition {
	schema, name := analyze.Name(f.Funcname)
	if name != "starts_with" || schema != "" && schema != "pg_catalog" || len(f.Args) != 2 || f.Over != nil || f.AggFilter != nil {
		return nil
	}
	meant := p.functions(f)
	if len(meant) == 0 {
		return nil
	}
	for _, m := range meant {
		if !m.Builtin {
			return nil
		}
	}
	return p.pattern(b, Prefix, "^@", f.Args[0], f.Args[1])
}
