package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
)

// joinMerge joins source and target first, on the home node, decides there what is to be done with each row, and has the nodes do it.
func (x *exchanger) joinMerge(top *block, s *pg.MergeStmt, r *ref) bool {
	if top.tree == nil || top.tree.kind != pg.JoinType_JOIN_LEFT || x.p.rekeyed[r] || len(x.p.rekeys) > 0 || len(s.ReturningList) > 0 {
		return false
	}
	f := &feeder{x: x, table: r.table, query: plainSelect()}
	f.query.WithClause = s.WithClause
	f.query.FromClause = []*pg.Node{{Node: &pg.Node_JoinExpr{JoinExpr: &pg.JoinExpr{
		Jointype: pg.JoinType_JOIN_LEFT, Larg: s.SourceRelation, Quals: s.JoinCondition,
		Rarg: &pg.Node{Node: &pg.Node_RangeVar{RangeVar: proto.Clone(s.Relation).(*pg.RangeVar)}},
	}}}}
	action, ok := x.actionOf(s, r)
	if !ok {
		return false
	}
	feed := &Feed{Tag: "MERGE"}
	f.addTyped(action, "pg_catalog", "int4")
	if !f.identify(feed, r) {
		return true
	}
	var statements []*pg.Node
	for i, n := range s.MergeWhenClauses {
		w := n.GetMergeWhenClause()
		if w.CommandType == pg.CmdType_CMD_NOTHING {
			continue
		}
		a := Action{Number: i + 1, Key: feed.Key, Changes: w.CommandType != pg.CmdType_CMD_INSERT}
		guard := func(value *pg.Node) *pg.Node {
			return caseNode(operatorNode("=", cloneNode(action), pg.MakeAConstIntNode(int64(a.Number), -1)), value, nil)
		}
		statement, ok := f.mergeAction(feed, &a, w, s, r, guard)
		if !ok {
			return false
		}
		feed.Actions, statements = append(feed.Actions, a), append(statements, statement)
	}
	return len(statements) > 0 && f.finish(feed, statements...)
}

// actionOf is the number of the first clause that applies to a row of the join, as MERGE chooses it; 0 when nothing is to be done.
func (x *exchanger) actionOf(s *pg.MergeStmt, r *ref) (*pg.Node, bool) {
	matched := &pg.CaseExpr{Defresult: pg.MakeAConstIntNode(0, -1)}
	others := &pg.CaseExpr{Defresult: pg.MakeAConstIntNode(0, -1)}
	for i, n := range s.MergeWhenClauses {
		w := n.GetMergeWhenClause()
		list := matched
		switch w.MatchKind {
		case pg.MergeMatchKind_MERGE_WHEN_NOT_MATCHED_BY_TARGET:
			list = others
		case pg.MergeMatchKind_MERGE_WHEN_MATCHED:
		default:
			return nil, false
		}
		cond := w.Condition
		if cond == nil {
			cond = trueNode()
		}
		if x.volatile(cond) { // it is written more than once
			return nil, false
		}
		number := i + 1
		if w.CommandType == pg.CmdType_CMD_NOTHING {
			number = 0
		}
		list.Args = append(list.Args, &pg.Node{Node: &pg.Node_CaseWhen{CaseWhen: &pg.CaseWhen{Expr: cond, Result: pg.MakeAConstIntNode(int64(number), -1)}}})
	}
	side := func(c *pg.CaseExpr) *pg.Node {
		if len(c.Args) == 0 {
			return c.Defresult
		}
		return &pg.Node{Node: &pg.Node_CaseExpr{CaseExpr: c}}
	}
	found := &pg.Node{Node: &pg.Node_NullTest{NullTest: &pg.NullTest{Arg: columnNode(r.alias, ctidName), Nulltesttype: pg.NullTestType_IS_NOT_NULL}}}
	return caseNode(found, side(matched), side(others)), true
}

// volatile reports an expression whose value may differ each time it is evaluated.
func (x *exchanger) volatile(n *pg.Node) bool {
	found := x.p.volatility(n) == 'v'
	eachExpression(n.ProtoReflect(), func(n *pg.Node) bool {
		found = found || x.p.volatility(n) == 'v'
		return !found
	})
	return found
}

// mergeAction is the statement that does what one clause says to the rows that it applies to.
func (f *feeder) mergeAction(feed *Feed, a *Action, w *pg.MergeWhenClause, s *pg.MergeStmt, r *ref, guard func(*pg.Node) *pg.Node) (*pg.Node, bool) {
	relation := proto.Clone(s.Relation).(*pg.RangeVar)
	switch w.CommandType {
	case pg.CmdType_CMD_DELETE:
		return &pg.Node{Node: &pg.Node_DeleteStmt{DeleteStmt: &pg.DeleteStmt{
			Relation: relation, UsingClause: []*pg.Node{rowsItem()}, WhereClause: f.x.here(r, feed),
		}}}, true
	case pg.CmdType_CMD_UPDATE:
		update := &pg.UpdateStmt{Relation: relation, TargetList: cloneAll(w.TargetList), FromClause: []*pg.Node{rowsItem()}, WhereClause: f.x.here(r, feed)}
		values, ok := f.assignments(w.TargetList, update.TargetList, r, guard)
		for _, k := range uniqueKey(r.table) {
			if _, assigned := values[k]; assigned && f.x.p.isReference(r) {
				return nil, false // an action after this one would not find the row
			}
		}
		return &pg.Node{Node: &pg.Node_UpdateStmt{UpdateStmt: update}}, ok
	case pg.CmdType_CMD_INSERT:
		return f.mergeInsert(a, w, relation, r, guard)
	}
	return nil, false
}

func (f *feeder) mergeInsert(a *Action, w *pg.MergeWhenClause, relation *pg.RangeVar, r *ref, guard func(*pg.Node) *pg.Node) (*pg.Node, bool) {
	names := insertNames(r.table, w.TargetList)
	if len(w.Values) > len(names) || slices.ContainsFunc(w.TargetList, func(n *pg.Node) bool { return len(n.GetResTarget().Indirection) > 0 }) {
		return nil, false
	}
	store := &pg.InsertStmt{Relation: relation, Override: w.Override}
	rows := plainSelect()
	rows.FromClause = []*pg.Node{relationNode(rowsName)}
	places := map[int]int{}
	for i, value := range w.Values {
		at := r.table.Column(names[i])
		if at < 0 {
			return nil, false
		}
		if value.GetSetToDefault() == nil {
			places[at] = f.stored(store, rows, at, guard(value))
		}
	}
	reference := f.x.p.isReference(r)
	keys := f.x.p.placed(r.table).keys
	for i := range r.table.Columns {
		c := &r.table.Columns[i]
		if _, given := places[i]; given || !slices.Contains(keys, i) && !(reference && f.x.p.defaultDiffers(c)) {
			continue
		}
		value := defaultNode(r.table, i)
		if value == nil {
			return nil, false
		}
		if c.Identity != 0 {
			store.Override = pg.OverridingKind_OVERRIDING_SYSTEM_VALUE
		}
		places[i] = f.stored(store, rows, i, guard(value))
	}
	if a.Key = nil; len(store.Cols) == 0 {
		return nil, false
	}
	for _, k := range keys {
		a.Key = append(a.Key, places[k])
	}
	store.SelectStmt = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: rows}}
	return &pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: store}}, true
}

// feedMerge gives each node the rows of the source that have its keys. The condition must demand that the key of the target is equal to
// columns of the source: then no other node has a row that could match, and new rows belong where their source row went.
func (x *exchanger) feedMerge(top *block, s *pg.MergeStmt, r *ref) bool {
	if x.p.isReference(r) || top.tree == nil || top.tree.left.leaf == nil || top.tree.kind != pg.JoinType_JOIN_LEFT || x.p.rekeyed[r] || len(x.p.rekeys) > 0 {
		return false
	}
	// A row of the source with a key that no row can have matches nothing: it can be decided anywhere if it cannot be stored either.
	for _, k := range x.p.placed(r.table).keys {
		if !r.table.Columns[k].NotNull || x.p.declares(x.p.placed(r.table).distribution) {
			return false
		}
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
		if t, known := x.sourceType(source, i); known {
			f.addTyped(columnNode(source.alias, name), t[0], t[1])
		} else {
			f.addOwn(columnNode(source.alias, name))
		}
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(name))
	}
	feed := &Feed{Tag: "MERGE", Key: keys, Whole: true, NullAtHome: true}
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
