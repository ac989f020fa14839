package plan

import (
	"slices"
	"strconv"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// target makes the ref of the table that a statement writes.
func (p *planner) target(b *block, rv *pg.RangeVar) *ref {
	r := newRef(b, rv.Alias, rv.Relname)
	p.bindTable(r, rv)
	p.writes = true
	b.refs = append(b.refs, r)
	b.items = append(b.items, leafTree(r))
	p.targets = append(p.targets, r)
	p.checkTarget(r, rv)
	return r
}

// checkTarget follows a view to the table that is written through it, and refuses tables whose
// triggers or rules may do what is not seen here.
func (p *planner) checkTarget(r *ref, rv *pg.RangeVar) {
	if p.isTemporary(rv) {
		return
	}
	t := p.catalog.Lookup(p.path, rv.Schemaname, rv.Relname)
	p.hiddenWrites(t)
	if r.body == nil {
		return
	}
	if len(t.Triggers) > 0 || t.HasRules {
		p.fail(refuse("Write to the tables behind the view.", "view %q has triggers or rules, and not all of its tables are local", t.Name))
		return
	}
	below := r.body.refs
	for len(below) == 1 && below[0].body != nil {
		below = below[0].body.refs
	}
	if len(below) != 1 || below[0].table == nil || p.placed(below[0].table).placement != catalog.Distributed {
		p.fail(refuse("Write to the table behind the view.",
			"a write through view %q of reference tables or of several tables is not supported", rv.Relname))
	}
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
		p.assign(b, r, nil, n.GetResTarget())
	}
	p.returning(b, s.ReturningList, r)
	return b
}

// keyColumns are the columns of a target that are its key: one, or several outputs of a view.
func (p *planner) keyColumns(r *ref) []column {
	if r.unknown {
		return nil
	}
	var keys []column
	for i := range r.width() {
		c := column{r, i}
		if t, at := c.base(); t != nil {
			if pl := p.placed(t); pl.placement == catalog.Distributed && pl.key == at {
				keys = append(keys, c)
			}
		}
	}
	return keys
}

// assign checks SET key = value: a new key must lead to the node the row is on, which the pin
// ensures, or be the old one. excluded is the row of ON CONFLICT that was to be inserted.
func (p *planner) assign(b *block, r, excluded *ref, t *pg.ResTarget) {
	for _, key := range p.keyColumns(r) {
		if r.columnName(key.index) != t.Name {
			continue
		}
		c := p.columnOf(b, t.Val)
		if c != nil && (*c == key || excluded != nil && *c == column{excluded, key.index}) {
			continue
		}
		kt, ok := p.keyType(key)
		if op, isOp := p.keyOperand(t.Val, kt); ok && isOp {
			table, at := key.base()
			p.newKeys = append(p.newKeys, p.newKeyPin(table, at, kt, []Operand{op}))
			p.rekeyed[r] = true
			continue
		}
		p.fail(refuse("Delete the row and insert it again with the new key.",
			"an UPDATE of the key column %q of a distributed table to a computed value is not supported", t.Name))
	}
}

func (p *planner) delete(s *pg.DeleteStmt, parent *block) *block {
	b := &block{parent: parent}
	p.with(b, s.WithClause)
	r := p.target(b, s.Relation)
	tree := innerJoin(leafTree(r), p.from(b, s.UsingClause))
	p.expressions(b, s.WhereClause)
	p.expressions(b, s.ReturningList...)
	p.where(b, tree, s.WhereClause)
	p.returning(b, s.ReturningList, nil)
	return b
}

func (p *planner) merge(s *pg.MergeStmt, parent *block) *block {
	b := &block{parent: parent, holes: true}
	p.with(b, s.WithClause)
	r := p.target(b, s.Relation)
	source := p.fromItem(b, s.SourceRelation)
	// Rows of the source are preserved: those without a match may be inserted. So are those of the
	// target when there is something to do with them.
	tree := &joinTree{
		kind: pg.JoinType_JOIN_LEFT, left: source, right: leafTree(r), cond: s.JoinCondition, scope: b,
		refs: union(source.refs, map[*ref]bool{r: true}),
	}
	for _, n := range s.MergeWhenClauses {
		if n.GetMergeWhenClause().MatchKind == pg.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_SOURCE {
			tree.kind = pg.JoinType_JOIN_FULL
		}
	}
	p.expressions(b, s.JoinCondition)
	p.expressions(b, s.ReturningList...)
	p.joinEdges(tree, nil)
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
	switch w.CommandType {
	case pg.CmdType_CMD_UPDATE:
		for _, n := range w.TargetList {
			p.assign(b, r, nil, n.GetResTarget())
		}
	case pg.CmdType_CMD_INSERT:
		p.mergeInsert(b, r, w)
	}
}

func (p *planner) mergeInsert(b *block, r *ref, w *pg.MergeWhenClause) {
	if r.body != nil {
		p.fail(refuse("Write to the table behind the view.", "MERGE that inserts through a view of a distributed table is not supported"))
		return
	}
	key := p.keyColumn(r)
	if key == nil {
		return
	}
	at := slices.Index(insertNames(r.table, w.TargetList), r.table.Columns[key.index].Name)
	if at >= 0 && at < len(w.Values) {
		if c := p.columnOf(b, w.Values[at]); c != nil && c.ref != r {
			p.newRows = append(p.newRows, newRow{*c, *key})
			return
		}
		kt, ok := p.keyType(*key)
		if op, isOp := p.keyOperand(w.Values[at], kt); ok && isOp {
			p.newKeys = append(p.newKeys, p.newKeyPin(r.table, key.index, kt, []Operand{op}))
			return
		}
	}
	p.fail(refuse("Insert the key from a column of the source that is equal to it.",
		"MERGE inserts rows into distributed table %q whose key is not a plain column of its source", r.table.Name))
}

func (p *planner) insert(s *pg.InsertStmt, parent *block) *block {
	b := &block{parent: parent}
	p.with(b, s.WithClause)
	r := p.target(b, s.Relation)
	source := s.SelectStmt.GetSelectStmt()
	var body *block
	if source != nil {
		body = p.selectBlock(source, b.outside())
	}
	p.conflict(b, r, s.OnConflictClause)
	p.returning(b, s.ReturningList, r)
	p.expressions(b, s.ReturningList...)
	if r.body != nil {
		p.fail(refuse("Insert into the table behind the view.",
			"INSERT through view %q of a distributed or reference table is not supported", s.Relation.Relname))
		return b
	}
	if r.table != nil && !r.unknown {
		p.defaultRoutines(r.table)
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
	at := slices.Index(insertNames(r.table, s.Cols), r.table.Columns[key.index].Name)
	switch {
	case source == nil || len(source.ValuesLists) > 0:
		p.insertValues(s, r.table, key, source, at)
	case at >= 0 && at < len(body.outputs) && !body.holes:
		o := body.outputs[at]
		if o.source != nil {
			p.newRows = append(p.newRows, newRow{*o.source, key})
			p.graph.directed(*o.source, key) // for RETURNING
			p.settled[r] = true
			return
		}
		kt, ok := p.keyType(key)
		if op, isOp := p.keyOperand(o.expr, kt); ok && isOp {
			p.pinInsert(r.table, key, []Operand{op})
			return
		}
		fallthrough
	default:
		p.fail(refuse("Select the key as a plain column that is equal to a constant.",
			"INSERT ... SELECT into distributed table %q: the key of the new rows is not known before it runs", r.table.Name))
	}
}

// newRow is a row to come whose key is a column of what it is made from.
type newRow struct{ source, key column }

// pinNewRows demands that the keys of rows to come are known.
func (p *planner) pinNewRows() {
	for _, n := range p.newRows {
		t := n.key.ref.table
		key := &t.Columns[n.key.index]
		kt, ok := p.keyType(n.key)
		ops, known := p.graph.consts[n.source]
		from, _ := n.source.base()
		pin := p.newKeyPin(t, n.key.index, kt, ops)
		// A modifier of the key's type could change the value on its way.
		same := pin.Cast == "" || from != nil && p.sameDeclaredType(n)
		if !ok || !known || !same || !p.comparable(n.source, n.key) || !key.NotNull && !p.neverExtended(n.source) {
			p.fail(refuse("Take the key from a plain column of the same type that is equal to a constant.",
				"the keys of new rows for distributed table %q are not known before the statement runs", t.Name))
			return
		}
		pin.Insert, pin.Cast, pin.Length = false, "", 0 // NULL is equal to nothing, so it makes no row
		p.addPin(pin)
	}
}

func (p *planner) sameDeclaredType(n newRow) bool {
	from, at := n.source.base()
	return from.Columns[at].TypeName == n.key.ref.table.Columns[n.key.index].TypeName
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
	pin := p.newKeyPin(t, key.index, kt, ops)
	p.newKeys = append(p.newKeys, pin)
	p.settled[key.ref] = true
	if pin.Cast == "" {
		p.graph.constant(key, ops) // for RETURNING
	}
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
			if op, isOp := p.keyOperand(expr, kt); isOp {
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
	if c.Infer != nil {
		p.expressions(inner, c.Infer.IndexElems...)
		p.expressions(inner, c.Infer.WhereClause)
	}
	p.expressions(inner, c.WhereClause)
	p.expressions(inner, c.TargetList...)
	for _, n := range c.TargetList {
		p.assign(inner, r, excluded, n.GetResTarget())
	}
}

// returning lists the outputs of a write. What is known of the columns of changed is known of
// the rows before the change; only a key that is not assigned stays what it was.
func (p *planner) returning(b *block, list []*pg.Node, changed *ref) {
	for _, n := range list {
		t := n.GetResTarget()
		if cr := t.GetVal().GetColumnRef(); cr != nil && isStar(cr) {
			p.star(b, cr, func(column) bool { return false })
			continue
		}
		b.outputs = append(b.outputs, output{name: outputName(t), expr: t.Val, source: p.columnOf(b, t.Val)})
	}
	for i := range b.outputs {
		o := &b.outputs[i]
		if c := o.source; c != nil && (c.ref.owner != b || c.ref == changed && (p.rekeyed[changed] || !slices.Contains(p.keyColumns(changed), *c))) {
			o.source = nil
		}
	}
}

// newKeyPin is the pin of keys that are about to be stored.
func (p *planner) newKeyPin(t *catalog.Table, index int, kt keyspace.Type, ops []Operand) Pin {
	c := &t.Columns[index]
	pin := Pin{
		Distribution: p.placed(t).distribution, Type: kt, Column: t.Name + "." + c.Name, Operands: ops, Insert: true,
	}
	name, modifier, has := strings.Cut(c.TypeName, "(")
	if domain := p.catalog.BaseType(c.TypeOID) != c.TypeOID; domain && kt.Canonical() != keyspace.Int8 {
		pin.Cast = c.TypeName // it may have a modifier
		return pin
	}
	if !has {
		return pin
	}
	pin.Cast = c.TypeName
	if name == "character varying" || name == "character" {
		pin.Length, _ = strconv.Atoi(strings.TrimSuffix(modifier, ")"))
	}
	return pin
}
