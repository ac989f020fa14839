package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// condition is one thing that holds wherever an expression is true: two columns are equal, a column
// is restricted, or several columns are compared at once.
type condition struct {
	left  column
	right *column
	fact  *restriction
	row   *rowCondition
}

// conditions lists what must hold wherever the expression is true. Every condition is strict: it is
// never true where its columns (of a row: the first) are NULL.
func (p *planner) conditions(b *block, cond *pg.Node) []condition {
	switch e := cond.GetNode().(type) {
	case *pg.Node_BoolExpr:
		switch e.BoolExpr.Boolop {
		case pg.BoolExprType_AND_EXPR:
			var all []condition
			for _, a := range e.BoolExpr.Args {
				all = append(all, p.conditions(b, a)...)
			}
			return all
		case pg.BoolExprType_OR_EXPR:
			return p.disjunction(b, e.BoolExpr.Args)
		}
	case *pg.Node_AExpr:
		return p.comparison(b, e.AExpr)
	case *pg.Node_FuncCall:
		return p.startsWith(b, e.FuncCall)
	case *pg.Node_SubLink:
		return p.member(b, e.SubLink)
	}
	return nil
}

func (p *planner) comparison(b *block, e *pg.A_Expr) []condition {
	name := operatorName(e.Name)
	switch e.Kind {
	case pg.A_Expr_Kind_AEXPR_OP:
		switch op, ordered := orderOperators[name]; {
		case name == "=":
			return p.equals(b, e.Lexpr, e.Rexpr)
		case ordered:
			return p.inequality(b, op, e.Lexpr, e.Rexpr)
		case name == "~~":
			return p.pattern(b, Like, name, e.Lexpr, e.Rexpr)
		case name == "^@":
			return p.pattern(b, Prefix, name, e.Lexpr, e.Rexpr)
		}
	case pg.A_Expr_Kind_AEXPR_LIKE:
		if name == "~~" {
			return p.pattern(b, Like, name, e.Lexpr, e.Rexpr)
		}
	case pg.A_Expr_Kind_AEXPR_BETWEEN, pg.A_Expr_Kind_AEXPR_BETWEEN_SYM:
		return p.between(b, e)
	case pg.A_Expr_Kind_AEXPR_IN:
		if name != "=" {
			return nil
		}
		if row := e.Lexpr.GetRowExpr(); row != nil {
			return p.rowIn(b, row, e.Rexpr.GetList())
		}
		return p.oneOf(b, e.Lexpr, e.Rexpr)
	case pg.A_Expr_Kind_AEXPR_OP_ANY:
		if name == "=" {
			return p.oneOf(b, e.Lexpr, e.Rexpr)
		}
	}
	return nil
}

// operatorName is the name of an operator that is not written as one of a schema of users:
// < and OPERATOR(pg_catalog.<) alike.
func operatorName(name []*pg.Node) string {
	switch len(name) {
	case 1:
		return name[0].GetString_().GetSval()
	case 2:
		if name[0].GetString_().GetSval() == "pg_catalog" {
			return name[1].GetString_().GetSval()
		}
	}
	return ""
}

func (p *planner) equals(b *block, l, r *pg.Node) []condition {
	if lr, rr := l.GetRowExpr(), r.GetRowExpr(); lr != nil && rr != nil {
		if len(lr.Args) != len(rr.Args) {
			return nil
		}
		var all []condition
		for i := range lr.Args {
			all = append(all, p.equals(b, lr.Args[i], rr.Args[i])...)
		}
		return all
	}
	lc, rc := p.columnOf(b, l), p.columnOf(b, r)
	switch {
	case lc != nil && rc != nil:
		if !p.comparable(*lc, *rc) {
			return nil
		}
		return []condition{{left: *lc, right: rc}}
	case lc != nil:
		return p.equalsConstant(*lc, r)
	case rc != nil:
		return p.equalsConstant(*rc, l)
	}
	return nil
}

func (p *planner) equalsConstant(c column, n *pg.Node) []condition {
	t, ok := p.keyType(c)
	if !ok || p.ownOperator(c, "=") {
		return nil
	}
	op, ok := p.keyOperand(n, t)
	if !ok {
		return nil
	}
	return []condition{{left: c, fact: &restriction{ops: []Operand{op}}}}
}

func (p *planner) oneOf(b *block, l, r *pg.Node) []condition {
	c := p.columnOf(b, l)
	if c == nil {
		return nil
	}
	t, ok := p.keyType(*c)
	if !ok || p.ownOperator(*c, "=") {
		return nil
	}
	ops, ok := p.operandsOf(r, t)
	if !ok || slices.ContainsFunc(ops, func(op Operand) bool { return !accepts(t, op) }) {
		return nil
	}
	return []condition{{left: *c, fact: &restriction{ops: ops}}}
}

// rowIn reads (a, b) IN ((1, 2), (3, 4)) as a IN (1, 3) AND b IN (2, 4), which follows from it.
func (p *planner) rowIn(b *block, row *pg.RowExpr, list *pg.List) []condition {
	if list == nil {
		return nil
	}
	var all []condition
	for i, item := range row.Args {
		c := p.columnOf(b, item)
		if c == nil {
			continue
		}
		t, ok := p.keyType(*c)
		if !ok || p.ownOperator(*c, "=") {
			continue
		}
		ops := make([]Operand, 0, len(list.Items))
		for _, tuple := range list.Items {
			r := tuple.GetRowExpr()
			if r == nil || len(r.Args) != len(row.Args) {
				return nil
			}
			op, ok := p.keyOperand(r.Args[i], t)
			if !ok {
				ops = nil
				break
			}
			ops = append(ops, op)
		}
		if ops != nil {
			all = append(all, condition{left: *c, fact: &restriction{ops: ops}})
		}
	}
	return all
}

// columnOf resolves a plain column. Casts are not looked through: they may change the value.
func (p *planner) columnOf(b *block, n *pg.Node) *column {
	if cr := n.GetColumnRef(); cr != nil {
		return b.resolve(cr)
	}
	return nil
}

// columnType is the type of a column as far as it is a table's column, under a collation that
// finds only equal bytes equal. The arms of a set operation must agree.
func (p *planner) columnType(c column) (oid uint32, ok bool) {
	for c.ref.table == nil {
		body := c.ref.body
		if body == nil || c.ref.unknown || c.index >= len(body.outputs) {
			return 0, false
		}
		if len(body.arms) == 2 {
			l, ok := p.columnType(column{&ref{body: body.arms[0]}, c.index})
			r, also := p.columnType(column{&ref{body: body.arms[1]}, c.index})
			return p.commonType(l, r, ok && also)
		}
		o := &body.outputs[c.index]
		if len(o.constants) > 0 {
			return o.typ.OID(), true
		}
		if o.source == nil {
			return 0, false
		}
		c = *o.source
	}
	col := &c.ref.table.Columns[c.index]
	return col.TypeOID, col.Deterministic
}

// commonType is the type of a set operation over two types that hash alike.
func (p *planner) commonType(l, r uint32, known bool) (oid uint32, ok bool) {
	lt, isKey := keyspace.TypeByOID(p.catalog.BaseType(l))
	rt, also := keyspace.TypeByOID(p.catalog.BaseType(r))
	if !known || l != r && (!isKey || !also || lt.Canonical() != rt.Canonical()) {
		return 0, false
	}
	if l != r {
		return lt.Canonical().OID(), true
	}
	return l, true
}

// keyType is the type of a column when that type can be a key.
func (p *planner) keyType(c column) (keyspace.Type, bool) {
	oid, ok := p.columnType(c)
	if !ok {
		return 0, false
	}
	return keyspace.TypeByOID(p.catalog.BaseType(oid))
}

// comparable reports columns whose equality means the same key: equal values have equal hashes.
func (p *planner) comparable(a, b column) bool {
	ta, ok := p.keyType(a)
	if !ok {
		return false
	}
	tb, ok := p.keyType(b)
	return ok && ta.Canonical() == tb.Canonical() && !p.ownOperator(a, "=") && !p.ownOperator(b, "=")
}

// ownOperator reports columns for which an operator may mean one that users made. PostgreSQL prefers
// the operator of exactly these types, and types that have none of their own (varchar, domains)
// take any that fits.
func (p *planner) ownOperator(c column, name string) bool {
	operators := p.catalog.Operators(name)
	if len(operators) == 0 {
		return false
	}
	oid, _ := p.columnType(c)
	base := p.catalog.BaseType(oid)
	plain := oid == base && base != keyspace.Varchar.OID()
	return slices.ContainsFunc(operators, func(o catalog.Operator) bool {
		if p.pseudoType(o.Left) || p.pseudoType(o.Right) {
			return true
		}
		if plain {
			return p.isKeyType(o.Left) && p.isKeyType(o.Right)
		}
		return o.Left == oid || o.Left == base || o.Right == oid || o.Right == base
	})
}

func (p *planner) pseudoType(oid uint32) bool {
	t, ok := p.catalog.Type(oid)
	return !ok || t.Kind == 'p'
}

func (p *planner) isKeyType(oid uint32) bool {
	_, ok := keyspace.TypeByOID(p.catalog.BaseType(oid))
	return ok
}
