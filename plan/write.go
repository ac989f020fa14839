package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/catalog"
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
	b.tree = tree
	b.stmt = &pg.SelectStmt{
		WithClause: s.WithClause, FromClause: s.FromClause, WhereClause: s.WhereClause,
		TargetList: slices.Concat(s.TargetList, s.ReturningList),
	}
	p.expressions(b, s.TargetList...)
	p.expressions(b, s.WhereClause)
	p.expressions(b, s.ReturningList...)
	p.where(b, tree, s.WhereClause)
	p.assign(b, r, nil, s.TargetList)
	p.returning(b, s.ReturningList, r)
	return b
}

// keyColumns are the columns of a target that belong to its key; through a view one may be there twice.
func (p *planner) keyColumns(r *ref) []column {
	if r.unknown {
		return nil
	}
	var keys []column
	for i := range r.width() {
		c := column{r, i}
		if t, at := c.base(); t != nil {
			if pl := p.placed(t); pl.placement == catalog.Distributed && slices.Contains(pl.keys, at) {
				keys = append(keys, c)
			}
		}
	}
	return keys
}

// assign checks SET key = value: a new key must lead to the node the row is on, which a pin
// ensures, or be the old one. excluded is the row of ON CONFLICT that was to be inserted.
func (p *planner) assign(b *block, r, excluded *ref, targets []*pg.Node) {
	change := rekey{values: map[int]Operand{}}
	for _, n := range targets {
		t := n.GetResTarget()
		if r.table != nil && hasDefault(t) {
			p.defaultRoutines(r.table)
		}
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
				base, _ := key.baseColumn()
				change.ref, change.values[base.index] = base.ref, op
				p.rekeyed[r] = true
				continue
			}
			if t, _ := key.base(); t != nil {
				p.stored = append(p.stored, t)
			}
			p.rekeyed[r] = true
			p.fail(refuseSeveral("Delete the row and insert it again with the new key.",
				"an UPDATE of the key column %q of a distributed table to a computed value is not supported", t.Name))
		}
	}
	if change.ref != nil {
		p.rekeys = append(p.rekeys, change)
	}
}

func (p *planner) delete(s *pg.DeleteStmt, parent *block) *block {
	b := &block{parent: parent}
	p.with(b, s.WithClause)
	r := p.target(b, s.Relation)
	tree := innerJoin(leafTree(r), p.from(b, s.UsingClause))
	b.tree = tree
	b.stmt = &pg.SelectStmt{WithClause: s.WithClause, FromClause: s.UsingClause, WhereClause: s.WhereClause, TargetList: s.ReturningList}
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
	b.tree = tree
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
		p.assign(b, r, nil, w.TargetList)
	case pg.CmdType_CMD_INSERT:
		p.mergeInsert(b, r, w)
	}
}

func (p *planner) mergeInsert(b *block, r *ref, w *pg.MergeWhenClause) {
	p.stored = append(p.stored, lockedTables([]*ref{r})...)
	if r.table != nil {
		p.defaultRoutines(r.table)
	}
	if r.body != nil {
		p.fail(refuse("Write to the table behind the view.", "MERGE that inserts through a view of a distributed table is not supported"))
		return
	}
	if r.table == nil || p.placed(r.table).placement != catalog.Distributed {
		return
	}
	row := newRow{table: r.table}
	names := insertNames(r.table, w.TargetList)
	for _, at := range p.placed(r.table).keys {
		var value *pg.Node
		if i := slices.Index(names, r.table.Columns[at].Name); i >= 0 && i < len(w.Values) {
			value = w.Values[i]
		}
		source, ok := p.keySource(b, r, at, value)
		if !ok {
			p.fail(refuseSeveral("Insert the key from a column of the source that is equal to it.",
				"MERGE inserts rows into distributed table %q whose key is not a plain column of its source", r.table.Name))
		}
		row.sources = append(row.sources, source)
	}
	p.newRows = append(p.newRows, row)
}

// keySource reads the value of one key column of a row that MERGE makes.
func (p *planner) keySource(b *block, r *ref, at int, value *pg.Node) (keySource, bool) {
	if value == nil {
		return keySource{}, false
	}
	if c := p.columnOf(b, value); c != nil && c.ref != r {
		return keySource{column: c}, true
	}
	kt, ok := p.keyType(column{r, at})
	op, isOp := p.keyOperand(value, kt)
	return keySource{op: op}, ok && isOp
}

func (p *planner) insert(s *pg.InsertStmt, parent *block) *block {
	b := &block{parent: parent}
	p.with(b, s.WithClause)
	refs, bodies := len(p.refs), len(p.bodies)
	r := p.target(b, s.Relation)
	if r.body != nil {
		p.insertedView(r, refs, bodies)
	}
	source := s.SelectStmt.GetSelectStmt()
	var body *block
	if source != nil {
		body = p.selectBlock(source, b.outside())
	}
	p.conflict(b, r, s.OnConflictClause)
	p.returning(b, s.ReturningList, r)
	p.expressions(b, s.ReturningList...)
	p.stored = append(p.stored, lockedTables([]*ref{r})...)
	if r.body != nil {
		p.fail(refuse("Insert into the table behind the view.",
			"INSERT through view %q of a distributed or reference table is not supported", s.Relation.Relname))
		return b
	}
	if r.table != nil && !r.unknown {
		p.defaultRoutines(r.table)
	}
	if r.table == nil || p.placed(r.table).placement != catalog.Distributed {
		return b
	}
	p.insertKey(s, r, source, body)
	return b
}

// insertKey finds where the keys of the new rows come from.
func (p *planner) insertKey(s *pg.InsertStmt, r *ref, source *pg.SelectStmt, body *block) {
	place := p.placed(r.table)
	if place.entry != nil {
		return // all rows of the table are where its schema is
	}
	if source == nil || len(source.ValuesLists) > 0 {
		p.insertValues(s, r)
		return
	}
	row := newRow{table: r.table}
	names := insertNames(r.table, s.Cols)
	for _, key := range place.keys {
		at := slices.Index(names, r.table.Columns[key].Name)
		from, ok := keySource{}, false
		if at >= 0 && at < len(body.outputs) && !body.holes {
			from, ok = p.selectedKey(column{r, key}, &body.outputs[at])
		}
		if !ok {
			p.fail(refuseSeveral("Select the key as a plain column that is equal to a constant.",
				"INSERT ... SELECT into distributed table %q: the key of the new rows is not known before it runs", r.table.Name))
			return
		}
		row.sources = append(row.sources, from)
	}
	p.newRows = append(p.newRows, row)
	p.settled[r] = true
}

// selectedKey reads one key column of INSERT ... SELECT. What is known of it is known in RETURNING too.
func (p *planner) selectedKey(key column, o *output) (keySource, bool) {
	if o.source != nil {
		p.graph.directed(*o.source, key)
		return keySource{column: o.source}, true
	}
	kt, ok := p.keyType(key)
	op, isOp := p.keyOperand(o.expr, kt)
	if ok = ok && isOp; ok {
		p.knowStored(key, []Operand{op})
	}
	return keySource{op: op}, ok
}

// knowStored records the values of a key column of new rows, unless storing may change them.
func (p *planner) knowStored(key column, ops []Operand) {
	if p.assignedColumn(key.ref.table, key.index, nil).Cast == "" {
		p.graph.constant(key, ops)
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

// insertValues pins the rows of VALUES. Keys that must be computed, defaults among them, are
// evaluated once and sent as parameters.
func (p *planner) insertValues(s *pg.InsertStmt, r *ref) {
	place := p.placed(r.table)
	pin := Pin{Distribution: place.distribution, Table: r.table.Name, Insert: true, Stored: true}
	for _, at := range place.keys {
		ops, ok := p.insertedKey(s, column{r, at})
		if !ok {
			return
		}
		pin.Keys = append(pin.Keys, p.assignedColumn(r.table, at, ops))
		p.knowStored(column{r, at}, ops)
	}
	p.newKeys = append(p.newKeys, pin)
	p.settled[r] = true
}

// insertedKey reads one key column of all rows of VALUES.
func (p *planner) insertedKey(s *pg.InsertStmt, key column) ([]Operand, bool) {
	t := key.ref.table
	kt, ok := p.keyType(key)
	if !ok {
		p.fail(refuse("", "the key of distributed table %q has a type that cannot be read", t.Name))
		return nil, false
	}
	// An evaluated key before this one may have changed the statement.
	source := s.SelectStmt.GetSelectStmt()
	at := slices.Index(insertNames(t, s.Cols), t.Columns[key.index].Name)
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
			return nil, false
		}
		ops = append(ops, op)
	}
	return ops, true
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
	p.assign(inner, r, excluded, c.TargetList)
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
