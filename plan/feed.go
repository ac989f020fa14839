package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// Feed is a write whose rows are computed over several nodes first and then given to the nodes that store
// them, some at a time.
type Feed struct {
	// Query gives the rows: the key of the row to change or to store, and what Text needs.
	Query *Exchange
	// QueryText is the query itself, for people.
	QueryText string
	// Pin has the types of the key columns; Key are their places in the rows.
	Pin Pin
	Key []int
	// Text runs on the row's node. The rows are its last parameters, one array for each column.
	Text string
	// Tag is the command tag without the number of rows.
	Tag string
	// Everywhere is set when all nodes get all rows.
	Everywhere bool
	// Move is set when rows may get another key: NewKey are the places of its columns. A row that leaves its node
	// is removed by Remove and stored by Store instead of Text.
	Move *Move
}

// Move is what happens to rows that an UPDATE gives a key of another node.
type Move struct {
	NewKey        []int
	Remove, Store string
}

// rowsName stands for the fed rows in Feed.Text.
const rowsName = "shoal rows"

// ctidName is how the query of a feed asks for the place of a row of the table that is written.
const ctidName = "shoal ctid"

// feed plans a write to a distributed table that needs rows of other nodes.
func (x *exchanger) feed(top *block, r *ref) bool {
	if r.table == nil || len(r.aliases) > 0 {
		return false
	}
	switch e := x.root.GetNode().(type) {
	case *pg.Node_InsertStmt:
		return x.feedInsert(e.InsertStmt, r)
	case *pg.Node_UpdateStmt:
		return x.feedUpdate(top, e.UpdateStmt, r)
	case *pg.Node_DeleteStmt:
		return x.feedDelete(top, e.DeleteStmt, r)
	case *pg.Node_MergeStmt:
		return x.feedMerge(top, e.MergeStmt, r)
	}
	return false
}

// feedMerge gives each node the rows of the source that have its keys. The condition must demand that the key of the target is equal to
// columns of the source: then no other node has a row that could match, and new rows belong where their source row went.
func (x *exchanger) feedMerge(top *block, s *pg.MergeStmt, r *ref) bool {
	if top.tree == nil || top.tree.left.leaf == nil || top.tree.kind != pg.JoinType_JOIN_LEFT || x.p.rekeyed[r] || len(x.p.rekeys) > 0 {
		return false
	}
	source := top.tree.left.leaf
	columns, ok := sourceColumns(source)
	keys, equal := x.sourceKey(top, s, r, source)
	if !ok || !equal || source.alias == "" || mergeSublinks(s) {
		return false
	}
	for _, n := range x.p.newRows {
		if len(n.sources) != len(keys) || !x.p.keysFit(n, x.p.placed(n.table)) {
			return false
		}
		for i, from := range n.sources {
			if from.column == nil || *from.column != (column{source, keys[i]}) {
				return false
			}
		}
	}
	f := &feeder{x: x, table: r.table, query: plainSelect()}
	f.query.WithClause = s.WithClause
	f.query.FromClause = []*pg.Node{s.SourceRelation}
	alias := &pg.Alias{Aliasname: source.alias}
	for i, name := range columns {
		t, known := x.sourceType(source, i)
		if !known {
			return false
		}
		f.addTyped(columnNode(source.alias, name), t[0], t[1])
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(name))
	}
	feed := &Feed{Tag: "MERGE", Key: keys}
	merge := proto.Clone(s).(*pg.MergeStmt)
	merge.WithClause = nil
	merge.SourceRelation = relationNode(rowsName)
	merge.SourceRelation.GetRangeVar().Alias = alias
	return f.finish(feed, &pg.Node{Node: &pg.Node_MergeStmt{MergeStmt: merge}})
}

// mergeSublinks reports subqueries in the condition and the actions, which a node could not answer alone.
func mergeSublinks(s *pg.MergeStmt) bool {
	return hasSublink(s.JoinCondition) || slices.ContainsFunc(s.MergeWhenClauses, hasSublink)
}

// sourceColumns are the names of all columns of a source.
func sourceColumns(r *ref) ([]string, bool) {
	if r.unknown || r.width() == 0 {
		return nil, false
	}
	names := make([]string, r.width())
	for i := range names {
		if names[i] = r.columnName(i); names[i] == "" || slices.Contains(names[:i], names[i]) {
			return nil, false
		}
	}
	return names, true
}

// sourceKey finds for each key column of the target the column of the source that it must be equal to.
func (x *exchanger) sourceKey(top *block, s *pg.MergeStmt, r, source *ref) ([]int, bool) {
	classes := equalColumns(x.p.conditions(top, s.JoinCondition))
	var keys []int
	for _, k := range x.p.placed(r.table).keys {
		at := -1
		for i := range source.width() {
			if classes.find(column{source, i}) == classes.find(column{r, k}) {
				at = i
			}
		}
		if at < 0 {
			return nil, false
		}
		keys = append(keys, at)
	}
	return keys, len(keys) > 0
}

// sourceType is the type of a column of a source, as far as it is a column of a table or a constant.
func (x *exchanger) sourceType(source *ref, index int) ([2]string, bool) {
	oid, ok := x.outputType(column{source, index})
	if !ok {
		return [2]string{}, false
	}
	t, ok := x.p.catalog.Type(oid)
	return [2]string{t.Schema, t.Name}, ok
}

// outputType follows a column down to a table; where it is computed nothing is known.
func (x *exchanger) outputType(c column) (uint32, bool) {
	if t, at := c.base(); t != nil {
		return t.Columns[at].TypeOID, true
	}
	return x.p.columnType(c)
}

// feeder collects the columns of a feed's rows.
type feeder struct {
	x     *exchanger
	table *catalog.Table
	query *pg.SelectStmt
	types [][2]string // schema and name of each column's type
}

// add makes an expression a column of the rows, of the type of a table's column without its modifiers: those
// are applied, and may refuse the value, when it is stored.
func (f *feeder) add(n *pg.Node, column int) int {
	t, _ := f.x.p.catalog.Type(f.table.Columns[column].TypeOID)
	return f.addTyped(n, t.Schema, t.Name)
}

func (f *feeder) addTyped(n *pg.Node, schema, name string) int {
	at := len(f.types)
	f.query.TargetList = append(f.query.TargetList, resTarget(fragmentColumn(at), castNode(n, schema, name)))
	f.types = append(f.types, [2]string{schema, name})
	return at
}

// with puts the rows in front of a statement as a WITH item.
func (f *feeder) with(s *pg.Node) (string, error) {
	first := f.x.p.maxParam + len(f.x.p.eval)
	body := plainSelect()
	item := &pg.CommonTableExpr{Ctename: rowsName, Ctematerialized: pg.CTEMaterialize_CTEMaterializeAlways}
	alias := &pg.Alias{Aliasname: "u"}
	var args []*pg.Node
	for i, t := range f.types {
		array := castNode(paramNode(first+i+1), "pg_catalog", "text")
		array.GetTypeCast().TypeName.ArrayBounds = []*pg.Node{pg.MakeIntNode(-1)}
		args = append(args, pg.MakeListNode([]*pg.Node{callNode("unnest", array), {}}))
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(fragmentColumn(i)))
		item.Aliascolnames = append(item.Aliascolnames, pg.MakeStrNode(fragmentColumn(i)))
		body.TargetList = append(body.TargetList, resTarget("", castNode(columnNode("u", fragmentColumn(i)), t[0], t[1])))
	}
	body.FromClause = []*pg.Node{{Node: &pg.Node_RangeFunction{RangeFunction: &pg.RangeFunction{IsRowsfrom: true, Functions: args, Alias: alias}}}}
	item.Ctequery = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: body}}
	withClause(s).Ctes = []*pg.Node{{Node: &pg.Node_CommonTableExpr{CommonTableExpr: item}}}
	return analyze.Deparse(s)
}

// finish plans the query and puts the feed together.
func (f *feeder) finish(feed *Feed, statements ...*pg.Node) bool {
	text, err := analyze.Deparse(&pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: f.query}})
	if err != nil {
		f.x.p.fail(refuse("", "the statement cannot be written again: %v", err))
		return true
	}
	in := f.x.in
	in.Statement = &analyze.Statement{Class: analyze.Declare, Text: text}
	feed.QueryText = text
	if feed.Query, err = makeExchange(in, text, true); err != nil {
		f.x.p.fail(err)
		return true
	}
	texts := []*string{&feed.Text}
	if feed.Move != nil {
		texts = append(texts, &feed.Move.Remove, &feed.Move.Store)
	}
	for i, s := range statements {
		if *texts[i], err = f.with(s); err != nil {
			f.x.p.fail(refuse("", "the statement cannot be written again: %v", err))
			return true
		}
	}
	place := f.x.p.placed(f.table)
	feed.Pin = Pin{Distribution: place.distribution, Table: f.table.Name, Insert: true, Stored: true, Entry: place.entry}
	for _, at := range place.keys {
		feed.Pin.Keys = append(feed.Pin.Keys, f.x.p.assignedColumn(f.table, at, nil))
	}
	f.x.out.Feed = feed
	return true
}

// feedCopies plans INSERT ... SELECT into a reference table: all nodes get the same rows.
func (x *exchanger) feedCopies(r *ref) bool {
	s := x.root.GetInsertStmt()
	if s == nil || s.OnConflictClause != nil || len(s.SelectStmt.GetSelectStmt().GetValuesLists()) > 0 {
		return false
	}
	names := insertNames(r.table, s.Cols)
	if body := x.p.blocks[s.SelectStmt.GetSelectStmt()]; body != nil && len(body.outputs) < len(names) {
		names = names[:len(body.outputs)]
	}
	for i := range r.table.Columns {
		if c := &r.table.Columns[i]; !slices.Contains(names, c.Name) && x.p.defaultDiffers(c) {
			return false
		}
	}
	return x.feedInsert(s, r)
}

func (x *exchanger) feedInsert(s *pg.InsertStmt, r *ref) bool {
	sel := s.SelectStmt.GetSelectStmt()
	body := x.p.blocks[sel]
	names := insertNames(r.table, s.Cols)
	for _, l := range sel.GetValuesLists() {
		if slices.ContainsFunc(l.GetList().GetItems(), func(n *pg.Node) bool { return n.GetSetToDefault() != nil }) {
			return false
		}
	}
	if body == nil || body.holes || len(body.outputs) > len(names) || hasSublinkIn(s.ReturningList) ||
		s.OnConflictClause != nil && hasSublink(&pg.Node{Node: &pg.Node_OnConflictClause{OnConflictClause: s.OnConflictClause}}) {
		return false
	}
	f := &feeder{x: x, table: r.table, query: plainSelect()}
	f.query.WithClause = s.WithClause
	alias := &pg.Alias{Aliasname: "q"}
	store := proto.Clone(s).(*pg.InsertStmt)
	rows := plainSelect()
	for i := range body.outputs {
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(fragmentColumn(i)))
		at := r.table.Column(names[i])
		if at < 0 {
			return false
		}
		f.add(columnNode("q", fragmentColumn(i)), at)
		rows.TargetList = append(rows.TargetList, resTarget("", columnNode(fragmentColumn(i))))
	}
	f.query.FromClause = []*pg.Node{{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{Subquery: s.SelectStmt, Alias: alias}}}}
	rows.FromClause = []*pg.Node{relationNode(rowsName)}
	feed := &Feed{Tag: "INSERT 0", Everywhere: x.p.placed(r.table).placement == catalog.Reference}
	for _, k := range x.p.placed(r.table).keys {
		at := slices.Index(names[:len(body.outputs)], r.table.Columns[k].Name)
		if at < 0 {
			// The home node gives each row its key, as it does for rows of VALUES.
			value := defaultNode(r.table, k)
			if value == nil {
				return false
			}
			if len(store.Cols) == 0 {
				for _, name := range names[:len(body.outputs)] {
					store.Cols = append(store.Cols, pg.MakeResTargetNodeWithName(name, -1))
				}
			}
			at = f.add(value, k)
			store.Cols = append(store.Cols, pg.MakeResTargetNodeWithName(r.table.Columns[k].Name, -1))
			rows.TargetList = append(rows.TargetList, resTarget("", columnNode(fragmentColumn(at))))
			if r.table.Columns[k].Identity != 0 {
				store.Override = pg.OverridingKind_OVERRIDING_SYSTEM_VALUE
			}
		}
		feed.Key = append(feed.Key, at)
	}
	store.WithClause, store.SelectStmt = nil, &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: rows}}
	return f.finish(feed, &pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: store}})
}

// defaultNode is the expression that gives a column its value when a row has none; nil for NULL.
func defaultNode(t *catalog.Table, column int) *pg.Node {
	c := &t.Columns[column]
	text := c.Default
	if c.Identity != 0 {
		text = identityDefault(t, c)
	}
	if text == "" {
		return nil
	}
	stmts, err := analyze.Parse("SELECT " + text)
	if err != nil || len(stmts) != 1 {
		return nil
	}
	return stmts[0].Tree.GetSelectStmt().TargetList[0].GetResTarget().Val
}

func hasSublinkIn(list []*pg.Node) bool { return slices.ContainsFunc(list, hasSublink) }

// changed begins the query of an UPDATE or DELETE: the rows to change, locked, with their keys and places.
func (x *exchanger) changed(tag string, rv *pg.RangeVar, r *ref, with *pg.WithClause, from []*pg.Node, where *pg.Node, strength pg.LockClauseStrength) (*feeder, *Feed) {
	f := &feeder{x: x, table: r.table, query: plainSelect()}
	f.query.WithClause, f.query.WhereClause = with, where
	target := proto.Clone(rv).(*pg.RangeVar)
	f.query.FromClause = append([]*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: target}}}, from...)
	f.query.LockingClause = []*pg.Node{{Node: &pg.Node_LockingClause{LockingClause: &pg.LockingClause{
		LockedRels: []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: &pg.RangeVar{Relname: r.alias, Inh: true, Relpersistence: "p"}}}},
		Strength:   strength, WaitPolicy: pg.LockWaitPolicy_LockWaitBlock,
	}}}}
	feed := &Feed{Tag: tag}
	for _, k := range x.p.placed(r.table).keys {
		feed.Key = append(feed.Key, f.add(columnNode(r.alias, r.table.Columns[k].Name), k))
	}
	f.addTyped(columnNode(r.alias, ctidName), "pg_catalog", "tid")
	return f, feed
}

// here is the condition that finds a fed row on its node.
func here(r *ref, feed *Feed) *pg.Node {
	return operatorNode("=", columnNode(r.alias, "ctid"), columnNode("r", fragmentColumn(len(feed.Key))))
}

func rowsItem() *pg.Node {
	n := relationNode(rowsName)
	n.GetRangeVar().Alias = &pg.Alias{Aliasname: "r"}
	return n
}

// returnsOwn reports a RETURNING list that only reads the row that is written.
func (x *exchanger) returnsOwn(top *block, list, from []*pg.Node, r *ref) bool {
	own := true
	for _, n := range list {
		analyze.Walk(n, func(m proto.Message) bool {
			switch e := m.(type) {
			case *pg.SubLink:
				own = false
			case *pg.ColumnRef:
				if isStar(e) {
					own = own && (len(from) == 0 || len(e.Fields) == 2 && e.Fields[0].GetString_().GetSval() == r.alias)
				} else {
					c := top.resolve(e)
					own = own && c != nil && c.ref == r
				}
			}
			return own
		})
	}
	return own
}

func (x *exchanger) feedDelete(top *block, s *pg.DeleteStmt, r *ref) bool {
	if !x.returnsOwn(top, s.ReturningList, s.UsingClause, r) {
		return false
	}
	remove := proto.Clone(s).(*pg.DeleteStmt)
	f, feed := x.changed("DELETE", s.Relation, r, s.WithClause, s.UsingClause, s.WhereClause, pg.LockClauseStrength_LCS_FORUPDATE)
	remove.WithClause, remove.UsingClause, remove.WhereClause = nil, []*pg.Node{rowsItem()}, here(r, feed)
	if len(s.UsingClause) == 0 {
		remove.ReturningList = ofTarget(remove.ReturningList, r)
	}
	return f.finish(feed, &pg.Node{Node: &pg.Node_DeleteStmt{DeleteStmt: remove}})
}

// ofTarget writes * as the columns of the table, because the fed rows stand beside it now.
func ofTarget(list []*pg.Node, r *ref) []*pg.Node {
	out := cloneAll(list)
	for _, n := range out {
		if cr := n.GetResTarget().GetVal().GetColumnRef(); cr != nil && isStar(cr) && len(cr.Fields) == 1 {
			cr.Fields = []*pg.Node{pg.MakeStrNode(r.alias), pg.MakeAStarNode()}
		}
	}
	return out
}

func (x *exchanger) feedUpdate(top *block, s *pg.UpdateStmt, r *ref) bool {
	if !x.returnsOwn(top, s.ReturningList, s.FromClause, r) {
		return false
	}
	for _, n := range s.TargetList {
		t := n.GetResTarget()
		if len(t.Indirection) > 0 || t.Val.GetMultiAssignRef() != nil || r.table.Column(t.Name) < 0 {
			return false
		}
	}
	update := proto.Clone(s).(*pg.UpdateStmt)
	f, feed := x.changed("UPDATE", s.Relation, r, s.WithClause, s.FromClause, s.WhereClause, pg.LockClauseStrength_LCS_FORUPDATE)
	values := map[int]int{} // column of the table -> column of the rows
	for i, n := range s.TargetList {
		t := n.GetResTarget()
		if t.Val.GetSetToDefault() != nil {
			if x.p.rekeyed[r] {
				return false
			}
			continue
		}
		column := r.table.Column(t.Name)
		values[column] = f.add(t.Val, column)
		update.TargetList[i].GetResTarget().Val = columnNode("r", fragmentColumn(values[column]))
	}
	statements := []*pg.Node{{Node: &pg.Node_UpdateStmt{UpdateStmt: update}}}
	if x.p.rekeyed[r] {
		move, ok := x.move(f, feed, s, r, values)
		if !ok {
			return true
		}
		statements = append(statements, move...)
	}
	update.WithClause, update.FromClause, update.WhereClause = nil, []*pg.Node{rowsItem()}, here(r, feed)
	if len(s.FromClause) == 0 {
		update.ReturningList = ofTarget(update.ReturningList, r)
	}
	return f.finish(feed, statements...)
}

// move arranges for rows whose new key is on another node: they are removed here and stored there, as PostgreSQL does
// it when a row goes from one partition to another.
func (x *exchanger) move(f *feeder, feed *Feed, s *pg.UpdateStmt, r *ref, values map[int]int) ([]*pg.Node, bool) {
	for _, fk := range r.table.ReferencedBy {
		if fk.OnDelete == 'c' || fk.OnDelete == 'n' || fk.OnDelete == 'd' || fk.OnUpdate == 'c' || fk.OnUpdate == 'n' || fk.OnUpdate == 'd' {
			x.p.fail(refuse("Write the referencing rows first.",
				"an UPDATE of the key of table %q to another node is not supported while foreign key %q acts on changes", r.table.Name, fk.Name))
			return nil, false
		}
	}
	remove := &pg.DeleteStmt{Relation: s.Relation, UsingClause: []*pg.Node{rowsItem()}, WhereClause: here(r, feed)}
	rows := plainSelect()
	rows.FromClause = []*pg.Node{rowsItem()}
	store := &pg.InsertStmt{Relation: proto.Clone(s.Relation).(*pg.RangeVar), Override: pg.OverridingKind_OVERRIDING_SYSTEM_VALUE}
	for i := range r.table.Columns {
		c := &r.table.Columns[i]
		if c.Generated != 0 {
			continue
		}
		at, known := values[i]
		if !known {
			at = f.add(columnNode(r.alias, c.Name), i)
			values[i] = at
		}
		store.Cols = append(store.Cols, pg.MakeResTargetNodeWithName(c.Name, -1))
		rows.TargetList = append(rows.TargetList, resTarget("", columnNode("r", fragmentColumn(at))))
	}
	feed.Move = &Move{}
	for _, k := range x.p.placed(r.table).keys {
		feed.Move.NewKey = append(feed.Move.NewKey, values[k])
	}
	store.SelectStmt = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: rows}}
	store.ReturningList = cloneAll(s.ReturningList)
	return []*pg.Node{{Node: &pg.Node_DeleteStmt{DeleteStmt: remove}}, {Node: &pg.Node_InsertStmt{InsertStmt: store}}}, true
}
