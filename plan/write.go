package plan

import (
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// target makes the ref of the table that a statement writes.
func (p *planner) target(b *block, rv *pg.RangeVar) *ref {
	r := newRef(rv.Alias, rv.Relname)
	p.bindTable(r, rv)
	p.writes = true
	p.targets = append(p.targets, r)
	b.refs = append(b.refs, r)
	return r
}

func (p *planner) update(s *pg.UpdateStmt, parent *block) *block {
	b := &block{parent: parent}
	p.with(b, s.WithClause)
	r := p.target(b, s.Relation)
	tree := innerJoin(leafTree(r), p.from(b, s.FromClause))
	p.expressions(b, s.TargetList...)
	p.expressions(b, s.WhereClause)
	p.expressions(b, s.ReturningList...)
	p.where(b, tree, s.WhereClause)
	for _, n := range s.TargetList {
		p.assign(b, r, n.GetResTarget())
	}
	p.returning(b, s.ReturningList)
	return b
}

// assign checks SET key = value: a new key must lead to the node the row is on, which the pin
// ensures, or be the old one.
func (p *planner) assign(b *block, r *ref, t *pg.ResTarget) {
	key := p.keyColumn(r)
	if key == nil || key.ref.columnName(key.index) != t.Name {
		return
	}
	if c := p.columnOf(b, t.Val); c != nil && (*c == *key || c.ref == p.excluded) {
		return
	}
	kt, ok := p.keyType(*key)
	if op, isOp := p.operandOf(t.Val, kt); ok && isOp && !op.Array {
		table, _ := key.base()
		place := p.placed(table)
		p.newKeys = append(p.newKeys, newKeyPin(place.distribution, kt, table, place.key, []Operand{op}))
		return
	}
	p.fail(refuse("Delete the row and insert it again with the new key.",
		"an UPDATE of the key column %q of a distributed table to a computed value is not supported", t.Name))
}

func (p *planner) delete(s *pg.DeleteStmt, parent *block) *block {
	b := &block{parent: parent}
	p.with(b, s.WithClause)
	r := p.target(b, s.Relation)
	tree := innerJoin(leafTree(r), p.from(b, s.UsingClause))
	p.expressions(b, s.WhereClause)
	p.expressions(b, s.ReturningList...)
	p.where(b, tree, s.WhereClause)
	p.returning(b, s.ReturningList)
	return b
}

func (p *planner) merge(s *pg.MergeStmt, parent *block) *block {
	b := &block{parent: parent}
	p.with(b, s.WithClause)
	r := p.target(b, s.Relation)
	source := p.fromItem(b, s.SourceRelation)
	// Rows of the source are preserved: those without a match may be inserted.
	tree := &joinTree{
		kind: pg.JoinType_JOIN_LEFT, left: source, right: leafTree(r), cond: s.JoinCondition,
		refs: union(source.refs, map[*ref]bool{r: true}),
	}
	p.expressions(b, s.JoinCondition)
	p.joinEdges(b, tree, nil)
	for _, n := range s.MergeWhenClauses {
		w := n.GetMergeWhenClause()
		p.expressions(b, w.Condition)
		p.expressions(b, w.TargetList...)
		p.expressions(b, w.Values...)
		p.mergeAction(b, r, w)
	}
	return b
}

func (p *planner) mergeAction(b *block, r *ref, w *pg.MergeWhenClause) {
	key := p.keyColumn(r)
	if key == nil {
		return
	}
	switch w.CommandType {
	case pg.CmdType_CMD_UPDATE:
		for _, n := range w.TargetList {
			p.assign(b, r, n.GetResTarget())
		}
	case pg.CmdType_CMD_INSERT:
		table, _ := key.base()
		names := insertNames(table, w.TargetList)
		for i, name := range names {
			if name == table.Columns[key.index].Name && i < len(w.Values) {
				if c := p.columnOf(b, w.Values[i]); c != nil {
					p.graph.directed(*c, *key)
					return
				}
			}
		}
		p.fail(refuse("Insert the key from a column of the source that is equal to it.",
			"MERGE inserts rows into distributed table %q whose key is not a plain column of its source", table.Name))
	}
}

func (p *planner) insert(s *pg.InsertStmt, parent *block) *block {
	b := &block{parent: parent}
	p.with(b, s.WithClause)
	r := p.target(b, s.Relation)
	source := s.SelectStmt.GetSelectStmt()
	var body *block
	if source != nil {
		body = p.selectBlock(source, b)
	}
	p.conflict(b, r, s.OnConflictClause)
	p.returning(b, s.ReturningList)
	p.expressions(b, s.ReturningList...)
	if r.body != nil {
		p.fail(refuse("Insert into the table behind the view.",
			"INSERT through view %q of a distributed or reference table is not supported", s.Relation.Relname))
		return b
	}
	key := p.keyColumn(r)
	if key == nil {
		return b
	}
	p.insertKey(s, r, *key, source, body)
	return b
}

// insertKey finds where the key of the new rows comes from.
func (p *planner) insertKey(s *pg.InsertStmt, r *ref, key column, source *pg.SelectStmt, body *block) {
	names := insertNames(r.table, s.Cols)
	at := -1
	for i, name := range names {
		if name == r.table.Columns[key.index].Name {
			at = i
		}
	}
	switch {
	case source == nil || len(source.ValuesLists) > 0:
		p.insertValues(s, r.table, key, source, at)
	case at >= 0 && at < len(body.outputs):
		o := body.outputs[at]
		if o.source != nil {
			p.graph.directed(*o.source, key)
			return
		}
		kt, ok := p.keyType(key)
		if op, isOp := p.operandOf(o.expr, kt); ok && isOp && !op.Array {
			p.pinInsert(r.table, key, []Operand{op})
			return
		}
		fallthrough
	default:
		p.fail(refuse("Select the key as a plain column that is equal to a constant.",
			"INSERT ... SELECT into distributed table %q: the key of the new rows is not known before it runs", r.table.Name))
	}
}

// insertNames is the column list of an INSERT, by name.
func insertNames(t *catalog.Table, cols []*pg.Node) []string {
	var names []string
	for _, c := range cols {
		names = append(names, c.GetResTarget().GetName())
	}
	if len(cols) == 0 {
		for i := range t.Columns {
			names = append(names, t.Columns[i].Name)
		}
	}
	return names
}

func (p *planner) pinInsert(t *catalog.Table, key column, ops []Operand) {
	kt, _ := p.keyType(key)
	p.newKeys = append(p.newKeys, newKeyPin(p.placed(t).distribution, kt, t, key.index, ops))
	p.settled[key.ref] = true
}

// insertValues pins the rows of VALUES. Keys that must be computed, defaults among them, are
// evaluated once and sent as parameters.
func (p *planner) insertValues(s *pg.InsertStmt, t *catalog.Table, key column, source *pg.SelectStmt, at int) {
	kt, ok := p.keyType(key)
	if !ok {
		p.fail(refuse("", "the key of distributed table %q has a type that cannot be read", t.Name))
		return
	}
	rows := 1
	if source != nil {
		rows = len(source.ValuesLists)
	}
	ops := make([]Operand, 0, rows)
	for i := range rows {
		var expr *pg.Node
		if source != nil && at >= 0 {
			items := source.ValuesLists[i].GetList().GetItems()
			if at < len(items) {
				expr = items[at]
			}
		}
		if expr != nil && expr.GetSetToDefault() == nil {
			if op, isOp := p.operandOf(expr, kt); isOp && !op.Array {
				ops = append(ops, op)
				continue
			}
		}
		op, ok := p.evaluateKey(s, t, key, source, i, at, expr)
		if !ok {
			return
		}
		ops = append(ops, op)
	}
	p.pinInsert(t, key, ops)
}

func (p *planner) conflict(b *block, r *ref, c *pg.OnConflictClause) {
	if c == nil {
		return
	}
	// EXCLUDED is the row that was to be inserted: of the same key when it met a conflict, since
	// every unique constraint of a distributed table contains the key.
	excluded := &ref{alias: "excluded", table: r.table, body: r.body, unknown: r.unknown}
	inner := &block{parent: b.parent, ctes: b.ctes, refs: []*ref{r, excluded}}
	p.expressions(inner, c.WhereClause)
	p.expressions(inner, c.TargetList...)
	p.excluded = excluded
	for _, n := range c.TargetList {
		p.assign(inner, r, n.GetResTarget())
	}
	p.excluded = nil
}

func (p *planner) returning(b *block, list []*pg.Node) {
	for _, n := range list {
		t := n.GetResTarget()
		if cr := t.GetVal().GetColumnRef(); cr != nil && isStar(cr) {
			p.star(b, cr, func(column) bool { return false })
			continue
		}
		o := output{name: outputName(t), expr: t.Val}
		if c := p.columnOf(b, t.Val); c != nil {
			o.source = c
		}
		b.outputs = append(b.outputs, o)
	}
}

// newKeyPin is the pin of keys that are about to be stored.
func newKeyPin(distribution uint32, kt keyspace.Type, t *catalog.Table, index int, ops []Operand) Pin {
	c := &t.Columns[index]
	pin := Pin{Distribution: distribution, Type: kt, Column: t.Name + "." + c.Name, Operands: ops, Insert: true}
	name, modifier, has := strings.Cut(c.TypeName, "(")
	if !has {
		return pin
	}
	pin.Cast = c.TypeName
	if name == "character varying" || name == "character" {
		pin.Length, _ = strconv.Atoi(strings.TrimSuffix(modifier, ")"))
	}
	return pin
}
