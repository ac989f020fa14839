package plan

import (
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/keyspace"
)

// operandOf reads an expression that has the same value for the whole statement without being
// computed: a literal, a parameter, a cast of one of them. keyType is what a literal of unknown
// type becomes when it is compared with the key.
func (p *planner) operandOf(n *pg.Node, keyType keyspace.Type) (Operand, bool) {
	switch e := n.GetNode().(type) {
	case *pg.Node_AConst:
		return p.constant(e.AConst, keyType)
	case *pg.Node_ParamRef:
		return p.parameter(int(e.ParamRef.Number), keyType)
	case *pg.Node_TypeCast:
		return p.cast(e.TypeCast)
	}
	return Operand{}, false
}

// keyOperand reads an operand that is compared with a key of this type, or becomes one.
func (p *planner) keyOperand(n *pg.Node, t keyspace.Type) (Operand, bool) {
	op, ok := p.operandOf(n, t)
	return op, ok && !op.Array && accepts(t, op)
}

// accepts reports operands that are equal to a key only when they have its hash.
func accepts(t keyspace.Type, op Operand) bool { return op.Null || t.Accepts(op.From) }

func (p *planner) constant(c *pg.A_Const, keyType keyspace.Type) (Operand, bool) {
	op := Operand{Literal: -1, From: keyType}
	if c.Isnull {
		op.Null = true
		return op, true
	}
	switch v := c.Val.(type) {
	case *pg.A_Const_Ival:
		op.Text = strconv.FormatInt(int64(v.Ival.Ival), 10)
		// One plan serves all literals in this place, so the widest integer type stands for all.
		op.From = keyspace.Int8
	case *pg.A_Const_Fval:
		op.Text = v.Fval.Fval
		op.From = keyspace.Numeric
		// An integer too long for int4 is an int8 when it fits, as in PostgreSQL's make_const.
		if v, err := strconv.ParseInt(op.Text, 10, 64); err == nil {
			op.From = keyspace.Int8
			p.fixed = p.fixed || v == math.MinInt64 // whose digits alone are a numeric
		}
	case *pg.A_Const_Sval:
		op.Text = v.Sval.Sval
	case *pg.A_Const_Boolval:
		op.Text = "f"
		if v.Boolval.Boolval {
			op.Text = "t"
		}
		op.From = keyspace.Bool
		return op, true // TRUE and FALSE are keywords, not literals of the normalised text
	default:
		return Operand{}, false
	}
	if p.literal != nil {
		if i, negate, ok := p.literal(int(c.Location)); ok {
			op.Literal, op.Negate = i, negate
		} else {
			p.fixed = true
		}
	}
	return op, true
}

func (p *planner) parameter(n int, keyType keyspace.Type) (Operand, bool) {
	op := Operand{Literal: -1, Param: n, From: keyType}
	if n <= len(p.params) && p.params[n-1] != 0 {
		oid := p.catalog.BaseType(p.params[n-1])
		if t, ok := keyspace.TypeByOID(oid); ok {
			op.From = t
			return op, true
		}
		if elem, ok := p.arrayElement(oid); ok {
			op.From, op.Array = elem, true
			return op, true
		}
		return Operand{}, false
	}
	return op, true
}

func (p *planner) arrayElement(oid uint32) (keyspace.Type, bool) {
	t, ok := p.catalog.Type(oid)
	if !ok || t.Elem == 0 {
		return 0, false
	}
	return keyspace.TypeByOID(p.catalog.BaseType(t.Elem))
}

// cast reads 'x'::type and $1::type for types without modifiers; a modifier could change the value.
func (p *planner) cast(c *pg.TypeCast) (Operand, bool) {
	if op, ok := p.boundedCast(c); ok {
		return op, true
	}
	t, array, ok := p.castType(c.TypeName)
	if !ok {
		return Operand{}, false
	}
	inner, ok := p.operandOf(c.Arg, t)
	if !ok || inner.Array && !array {
		return Operand{}, false
	}
	if inner.Null {
		return inner, true
	}
	if inner.From != t && !sameFamily(inner.From, t) {
		return Operand{}, false
	}
	if !inner.Array && array && inner.Param == 0 && c.Arg.GetAConst().GetSval() == nil {
		return Operand{}, false
	}
	inner.Array = array
	if inner.Param > 0 && inner.From != t {
		// The value comes in the form of the parameter's own type.
		return inner, inner.From.Canonical() == t.Canonical()
	}
	inner.From = t
	return inner, true
}

// boundedCast reads 'x'::varchar(n) and 'x'::char(n) of a string that is no longer than n, which the
// cast leaves as it is.
func (p *planner) boundedCast(c *pg.TypeCast) (Operand, bool) {
	t := c.TypeName
	text := c.Arg.GetAConst().GetSval()
	if text == nil || len(t.GetTypmods()) != 1 || len(t.ArrayBounds) > 0 || t.Setof || t.PctType {
		return Operand{}, false
	}
	op := Operand{Literal: -1, Text: text.Sval}
	switch schema, name := analyze.Name(t.Names); {
	case schema != "" && schema != "pg_catalog":
		return Operand{}, false
	case name == "varchar":
		op.From = keyspace.Varchar
	case name == "bpchar":
		op.From = keyspace.Bpchar
	default:
		return Operand{}, false
	}
	limit := t.Typmods[0].GetAConst().GetIval()
	if limit == nil || utf8.RuneCountInString(text.Sval) > int(limit.Ival) {
		return Operand{}, false
	}
	p.fixed = true // another literal may be longer
	return op, true
}

// sameFamily reports types between which a cast keeps the value or fails.
func sameFamily(a, b keyspace.Type) bool {
	if a.Canonical() == b.Canonical() {
		return true
	}
	return a.Canonical() == keyspace.Int8 && b == keyspace.Numeric
}

func (p *planner) castType(t *pg.TypeName) (_ keyspace.Type, array, ok bool) {
	if t == nil || len(t.Typmods) > 0 || t.Setof || t.PctType || len(t.ArrayBounds) > 1 {
		return 0, false, false
	}
	schema, name := analyze.Name(t.Names)
	if schema != "" && schema != "pg_catalog" || schema == "" && slices.Index(p.path, "pg_catalog") > 0 {
		return 0, false, false // a type that only has the name
	}
	kt, ok := typeNames[name]
	return kt, len(t.ArrayBounds) == 1, ok
}

// typeNames are the names the grammar gives to the key types.
var typeNames = map[string]keyspace.Type{
	"int2": keyspace.Int2, "smallint": keyspace.Int2,
	"int4": keyspace.Int4, "int": keyspace.Int4, "integer": keyspace.Int4,
	"int8": keyspace.Int8, "bigint": keyspace.Int8,
	"text": keyspace.Text, "varchar": keyspace.Varchar,
	"uuid": keyspace.UUID, "bytea": keyspace.Bytea, "numeric": keyspace.Numeric,
	"date": keyspace.Date, "timestamp": keyspace.Timestamp, "timestamptz": keyspace.Timestamptz,
	"bool": keyspace.Bool,
}

// operandsOf reads the right side of IN and = ANY.
func (p *planner) operandsOf(n *pg.Node, keyType keyspace.Type) ([]Operand, bool) {
	var items []*pg.Node
	switch e := n.GetNode().(type) {
	case *pg.Node_List:
		items = e.List.Items
	case *pg.Node_AArrayExpr:
		items = e.AArrayExpr.Elements
	case *pg.Node_TypeCast:
		if arr := e.TypeCast.Arg.GetAArrayExpr(); arr != nil {
			return p.castElements(e.TypeCast, arr)
		}
		return p.arrayOperand(n, keyType)
	default:
		return p.arrayOperand(n, keyType)
	}
	if len(items) == 0 {
		return nil, false
	}
	ops := make([]Operand, 0, len(items))
	for _, item := range items {
		op, ok := p.operandOf(item, keyType)
		if !ok || op.Array {
			return nil, false
		}
		ops = append(ops, op)
	}
	return ops, true
}

func (p *planner) castElements(c *pg.TypeCast, arr *pg.A_ArrayExpr) ([]Operand, bool) {
	t, array, ok := p.castType(c.TypeName)
	if !ok || !array {
		return nil, false
	}
	ops := make([]Operand, 0, len(arr.Elements))
	for _, item := range arr.Elements {
		op, ok := p.operandOf(item, t)
		if !ok || op.Array || !sameFamily(op.From, t) {
			return nil, false
		}
		ops = append(ops, op)
	}
	return ops, len(ops) > 0
}

func (p *planner) arrayOperand(n *pg.Node, keyType keyspace.Type) ([]Operand, bool) {
	op, ok := p.operandOf(n, keyType)
	if !ok {
		return nil, false
	}
	if !op.Array {
		// '{1,2}' of unknown type, or a parameter whose type nobody gave: an array of the key's type.
		if c := n.GetAConst(); c == nil || c.GetSval() == nil {
			if op.Param == 0 || op.Param <= len(p.params) && p.params[op.Param-1] != 0 {
				return nil, false
			}
		}
		op.Array = true
	}
	return []Operand{op}, true
}

// valuesOutputs lists the columns of VALUES, which have names of their own.
func (p *planner) valuesOutputs(b *block, lists []*pg.Node) {
	for i := range lists[0].GetList().GetItems() {
		var items []*pg.Node
		for _, l := range lists {
			if row := l.GetList().GetItems(); i < len(row) {
				items = append(items, row[i])
			}
		}
		o := output{name: "column" + strconv.Itoa(i+1)}
		o.constants, o.typ = p.constants(items)
		b.outputs = append(b.outputs, o)
	}
}

// constants reads an output that is known before the statement runs, with the type that PostgreSQL
// gives it where nothing else does. It knows nothing unless all values are of types that hash alike.
func (p *planner) constants(items []*pg.Node) (ops []Operand, typ keyspace.Type) {
	for _, n := range items {
		t, ok := p.ownType(n)
		if n.GetAConst().GetIsnull() {
			ops = append(ops, Operand{Literal: -1, Null: true})
			continue
		}
		op, isOp := p.keyOperand(n, t)
		if !ok || !isOp || typ.Valid() && typ.Canonical() != t.Canonical() {
			return nil, 0
		}
		if typ.Valid() && typ != t {
			t = t.Canonical()
		}
		ops, typ = append(ops, op), t
	}
	if !typ.Valid() {
		return nil, 0
	}
	return ops, typ
}

// ownType is the type of a literal, parameter or cast by itself.
func (p *planner) ownType(n *pg.Node) (keyspace.Type, bool) {
	switch e := n.GetNode().(type) {
	case *pg.Node_AConst:
		if e.AConst.GetSval() != nil {
			return keyspace.Text, true
		}
		op, ok := p.constant(e.AConst, keyspace.Text)
		return op.From, ok
	case *pg.Node_ParamRef:
		if i := int(e.ParamRef.Number) - 1; i < len(p.params) && p.params[i] != 0 {
			return keyspace.TypeByOID(p.catalog.BaseType(p.params[i]))
		}
	case *pg.Node_TypeCast:
		t, array, ok := p.castType(e.TypeCast.TypeName)
		return t, ok && !array
	}
	return 0, false
}
