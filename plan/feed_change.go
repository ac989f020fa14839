package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// changed begins the query of an UPDATE or DELETE: the rows to change with what finds them again. Those of a distributed table
// are locked where they are, and found by their places; the copies of a reference table are locked as a whole, and
// their rows are found by a unique key, because each node has them in other places.
func (x *exchanger) changed(tag string, rv *pg.RangeVar, r *ref, with *pg.WithClause, from []*pg.Node, where *pg.Node) (*feeder, *Feed, bool) {
	f := &feeder{x: x, table: r.table, query: plainSelect()}
	f.query.WithClause, f.query.WhereClause = with, where
	f.query.FromClause = append([]*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: proto.Clone(rv).(*pg.RangeVar)}}}, from...)
	feed := &Feed{Tag: tag}
	return f, feed, f.identify(feed, r)
}

// identify adds what finds a row of the table again to the columns of the rows.
func (f *feeder) identify(feed *Feed, r *ref) bool {
	keys := f.x.p.placed(r.table).keys
	if r.table.RowSecurity && (f.x.p.isReference(r) || feed.Tag != "UPDATE") {
		// The rows are read first, under the policies for that; others may apply to the write.
		f.x.p.fail(refuse("Fix the key, or join on it.",
			"%s of table %q with row security, whose rows are found with those of other nodes, is not supported", feed.Tag, r.table.Name))
		return false
	}
	if f.x.p.isReference(r) {
		if keys = uniqueKey(r.table); keys == nil {
			f.x.p.fail(refuse("Give the table a primary key.",
				"this write to reference table %q is not supported: it has no primary key by which its rows are known on all nodes", r.table.Name))
			return false
		}
		feed.Lock, feed.Whole = lockCopies(r.table), true
	} else {
		f.query.LockingClause = []*pg.Node{{Node: &pg.Node_LockingClause{LockingClause: &pg.LockingClause{
			LockedRels: []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: &pg.RangeVar{Relname: r.alias, Inh: true, Relpersistence: "p"}}}},
			Strength:   pg.LockClauseStrength_LCS_FORUPDATE, WaitPolicy: pg.LockWaitPolicy_LockWaitBlock,
		}}}}
	}
	for _, k := range keys {
		feed.Key = append(feed.Key, f.add(columnNode(r.alias, r.table.Columns[k].Name), k))
	}
	place := f.addTyped(columnNode(r.alias, ctidName), "pg_catalog", "tid")
	if f.x.p.isReference(r) {
		feed.Changed = feed.Key
		return true
	}
	feed.Changed = []int{place}
	if len(r.table.Children) > 0 { // places are those of one partition
		feed.Changed = append(feed.Changed, f.addTyped(columnNode(r.alias, tableoidName), "pg_catalog", "oid"))
	}
	return true
}

// lockCopies keeps other writers away from a reference table.
func lockCopies(t *catalog.Table) string {
	return "LOCK TABLE " + QuoteIdent(t.Schema) + "." + QuoteIdent(t.Name) + " IN SHARE ROW EXCLUSIVE MODE"
}

// uniqueKey are columns that no two rows have alike, and that are never NULL; nil when there are none.
func uniqueKey(t *catalog.Table) []int {
	var best []int
	for _, u := range t.Uniques {
		if u.Exclusion || u.Expressions || u.Partial || best != nil && !u.Primary {
			continue
		}
		var columns []int
		for _, name := range u.Columns {
			if at := t.Column(name); at >= 0 && t.Columns[at].NotNull {
				columns = append(columns, at)
			}
		}
		if len(columns) == len(u.Columns) && len(columns) > 0 {
			best = columns
		}
	}
	return best
}

// here is the condition that finds a fed row on its node.
func (x *exchanger) here(r *ref, feed *Feed) *pg.Node {
	names := []string{"ctid", "tableoid"}[:min(2, len(feed.Changed))]
	if x.p.isReference(r) {
		names = nil
		for _, k := range uniqueKey(r.table) {
			names = append(names, r.table.Columns[k].Name)
		}
	}
	var all []*pg.Node
	for i, name := range names {
		all = append(all, operatorNode("=", columnNode(r.alias, name), columnNode(rowsAlias, fragmentColumn(feed.Changed[i]))))
	}
	if len(all) == 1 {
		return all[0]
	}
	return &pg.Node{Node: &pg.Node_BoolExpr{BoolExpr: &pg.BoolExpr{Boolop: pg.BoolExprType_AND_EXPR, Args: all}}}
}

func rowsItem() *pg.Node {
	n := relationNode(rowsName)
	n.GetRangeVar().Alias = &pg.Alias{Aliasname: rowsAlias}
	return n
}

func (x *exchanger) feedDelete(top *block, s *pg.DeleteStmt, r *ref) bool {
	remove := proto.Clone(s).(*pg.DeleteStmt)
	f, feed, ok := x.changed("DELETE", s.Relation, r, s.WithClause, s.UsingClause, s.WhereClause)
	if !ok {
		return true
	}
	if remove.ReturningList, ok = f.returning(top, s.ReturningList, r); !ok {
		return false
	}
	remove.WithClause, remove.UsingClause, remove.WhereClause = nil, []*pg.Node{rowsItem()}, x.here(r, feed)
	return f.finish(feed, &pg.Node{Node: &pg.Node_DeleteStmt{DeleteStmt: remove}})
}

func (x *exchanger) feedUpdate(top *block, s *pg.UpdateStmt, r *ref) bool {
	update := proto.Clone(s).(*pg.UpdateStmt)
	f, feed, ok := x.changed("UPDATE", s.Relation, r, s.WithClause, s.FromClause, s.WhereClause)
	if !ok {
		return true
	}
	values, ok := f.assignments(s.TargetList, update.TargetList, r, nil)
	if !ok {
		return false
	}
	if update.ReturningList, ok = f.returning(top, s.ReturningList, r); !ok {
		return false
	}
	statements := []*pg.Node{{Node: &pg.Node_UpdateStmt{UpdateStmt: update}}}
	if x.p.rekeyed[r] {
		move, ok := x.move(f, feed, s, r, values, update.ReturningList)
		if !ok {
			return true
		}
		statements = append(statements, move...)
	}
	update.WithClause, update.FromClause, update.WhereClause = nil, []*pg.Node{rowsItem()}, x.here(r, feed)
	return f.finish(feed, statements...)
}

// assignments makes the values of a SET list columns of the rows and writes those in their place. It returns which column of the table
// has which of the rows'. guard, if any, puts a condition around each value.
func (f *feeder) assignments(list, out []*pg.Node, r *ref, guard func(*pg.Node) *pg.Node) (map[int]int, bool) {
	values := map[int]int{} // column of the table -> column of the rows
	sets := 0
	for i, n := range list {
		t := n.GetResTarget()
		column := r.table.Column(t.Name)
		if len(t.Indirection) > 0 || column < 0 {
			return nil, false
		}
		value := t.Val
		if value.GetSetToDefault() != nil {
			c := &r.table.Columns[column]
			if !f.x.p.rekeyed[r] && !(f.x.p.isReference(r) && f.x.p.defaultDiffers(c)) {
				continue
			}
			if c.Identity == 'a' {
				return nil, false
			}
			if value = defaultNode(r.table, column); value == nil {
				value = nullNode()
			}
		}
		if m := value.GetMultiAssignRef(); m != nil {
			if m.Colno == 1 {
				sets++
			}
			var ok bool
			if value, ok = f.ofSet(m, sets); !ok || guard != nil {
				return nil, false
			}
		}
		if guard != nil {
			value = guard(value)
		}
		values[column] = f.add(value, column)
		out[i].GetResTarget().Val = columnNode(rowsAlias, fragmentColumn(values[column]))
	}
	return values, true
}

// ofSet is one value of SET (a, b) = (...). A subquery stands in FROM once for all its columns. It must not have more than one
// row: then counting up to their number is a subquery with too many rows itself.
func (f *feeder) ofSet(m *pg.MultiAssignRef, number int) (*pg.Node, bool) {
	if row := m.Source.GetRowExpr(); row != nil {
		at := int(m.Colno) - 1
		return row.Args[at], at < len(row.Args) && row.Args[at].GetSetToDefault() == nil
	}
	sub := m.Source.GetSubLink()
	if sub == nil || sub.SubLinkType != pg.SubLinkType_EXPR_SUBLINK && sub.SubLinkType != pg.SubLinkType_ROWCOMPARE_SUBLINK && sub.SubLinkType != pg.SubLinkType_MULTIEXPR_SUBLINK {
		return nil, false
	}
	name := "shoal set " + fragmentColumn(number-1)
	if m.Colno == 1 {
		f.query.FromClause = append(f.query.FromClause, setItem(name, sub.Subselect, int(m.Ncolumns)))
	}
	upTo := plainSelect()
	upTo.TargetList = []*pg.Node{resTarget("", pg.MakeAConstIntNode(1, -1))}
	upTo.FromClause = []*pg.Node{{Node: &pg.Node_RangeFunction{RangeFunction: &pg.RangeFunction{
		Functions: []*pg.Node{pg.MakeListNode([]*pg.Node{callNode("generate_series", pg.MakeAConstIntNode(1, -1), columnNode(name, "n")), {}})},
	}}}}
	one := &pg.Node{Node: &pg.Node_SubLink{SubLink: &pg.SubLink{
		SubLinkType: pg.SubLinkType_EXPR_SUBLINK, Subselect: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: upTo}},
	}}}
	return caseNode(operatorNode("=", one, pg.MakeAConstIntNode(1, -1)), columnNode(name, fragmentColumn(int(m.Colno)-1)), nil), true
}

// setItem is a subquery of SET as an item of FROM: its row, or one of NULLs, with the number of rows.
func setItem(name string, subselect *pg.Node, columns int) *pg.Node {
	alias := &pg.Alias{Aliasname: "m"}
	s := plainSelect()
	for i := range columns {
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(fragmentColumn(i)))
		s.TargetList = append(s.TargetList, resTarget(fragmentColumn(i), columnNode("m", fragmentColumn(i))))
	}
	count := pg.MakeFuncCallNode([]*pg.Node{pg.MakeStrNode("pg_catalog"), pg.MakeStrNode("count")}, nil, -1)
	count.GetFuncCall().AggStar = true
	const plainFrame = 1058 // FRAMEOPTION_DEFAULTS
	count.GetFuncCall().Over = &pg.WindowDef{FrameOptions: plainFrame}
	s.TargetList = append(s.TargetList, resTarget("n", count))
	one := plainSelect()
	one.TargetList = []*pg.Node{resTarget("", pg.MakeAConstIntNode(1, -1))}
	s.FromClause = []*pg.Node{{Node: &pg.Node_JoinExpr{JoinExpr: &pg.JoinExpr{
		Jointype: pg.JoinType_JOIN_LEFT,
		Larg: &pg.Node{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{
			Subquery: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: one}}, Alias: &pg.Alias{Aliasname: "one"},
		}}},
		Rarg:  &pg.Node{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{Subquery: subselect, Alias: alias}}},
		Quals: trueNode(),
	}}}}
	return &pg.Node{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{
		Lateral: true, Subquery: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: s}}, Alias: &pg.Alias{Aliasname: name},
	}}}
}

// returning is a RETURNING list over the table that is written and the fed rows: what it has of other tables comes with the rows.
func (f *feeder) returning(top *block, list []*pg.Node, r *ref) ([]*pg.Node, bool) {
	var out []*pg.Node
	for _, n := range list {
		t := n.GetResTarget()
		cr := t.GetVal().GetColumnRef()
		if cr == nil || !isStar(cr) {
			moved, ok := f.returned(top, t.Val, r)
			if !ok {
				return nil, false
			}
			out = append(out, resTarget(t.Name, moved))
			continue
		}
		columns, known := top.starColumns(cr)
		if !known {
			return nil, false
		}
		for _, c := range columns {
			if c.column == nil {
				return nil, false
			}
			out = append(out, resTarget(c.name, f.column(*c.column, r)))
		}
	}
	return out, true
}

// column is a column of the table, or of the rows for one of another table.
func (f *feeder) column(c column, r *ref) *pg.Node {
	if c.ref == r {
		return columnNode(r.alias, r.columnName(c.index))
	}
	return columnNode(rowsAlias, fragmentColumn(f.addOwn(columnNode(c.ref.alias, c.ref.columnName(c.index)))))
}

// returned moves one expression of RETURNING. Subqueries that do not read the written row are computed with the rows: like them they
// see the tables as they were before.
func (f *feeder) returned(top *block, n *pg.Node, r *ref) (*pg.Node, bool) {
	if sl := n.GetSubLink(); sl != nil {
		if readsRow(n, r) {
			return nil, false
		}
		at := fragmentColumn(f.addOwn(cloneNode(n)))
		if !f.apart {
			return columnNode(rowsAlias, at), true
		}
		first := plainSelect() // all rows have the same value
		first.TargetList, first.FromClause, first.LimitCount = []*pg.Node{resTarget("", columnNode(at))}, []*pg.Node{relationNode(rowsName)}, pg.MakeAConstIntNode(1, -1)
		first.LimitOption = pg.LimitOption_LIMIT_OPTION_COUNT
		return &pg.Node{Node: &pg.Node_SubLink{SubLink: &pg.SubLink{
			SubLinkType: pg.SubLinkType_EXPR_SUBLINK, Subselect: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: first}},
		}}}, true
	}
	out := cloneNode(n)
	ok := true
	visit := func(n *pg.Node) bool {
		switch {
		case !ok:
		case n.GetSubLink() != nil:
			var moved *pg.Node
			if moved, ok = f.returned(top, n, r); ok {
				n.Node = moved.Node
			}
			return false
		case n.GetColumnRef() != nil:
			c := top.resolve(n.GetColumnRef())
			if ok = c != nil && !isStar(n.GetColumnRef()) && c.ref.alias != ""; ok {
				n.Node = f.column(*c, r).Node
			}
			return false
		}
		return ok
	}
	if visit(out) {
		eachExpression(out.ProtoReflect(), visit)
	}
	return out, ok
}

// readsRow reports an expression that may name a column of the table that is written.
func readsRow(n *pg.Node, r *ref) bool {
	found := false
	analyze.Walk(n, func(m proto.Message) bool {
		if cr, ok := m.(*pg.ColumnRef); ok {
			first := cr.Fields[0].GetString_().GetSval()
			found = found || first == r.alias || first == r.schema && first != "" || first == "excluded" ||
				len(cr.Fields) == 1 && (r.table.Column(first) >= 0 || slices.Contains(systemColumns, first))
		}
		return !found
	})
	return found
}

// move arranges for rows whose new key is on another node: they are removed here and stored there, as PostgreSQL does
// it when a row goes from one partition to another.
func (x *exchanger) move(f *feeder, feed *Feed, s *pg.UpdateStmt, r *ref, values map[int]int, returning []*pg.Node) ([]*pg.Node, bool) {
	for _, fk := range r.table.ReferencedBy {
		if fk.OnDelete == 'c' || fk.OnDelete == 'n' || fk.OnDelete == 'd' || fk.OnUpdate == 'c' || fk.OnUpdate == 'n' || fk.OnUpdate == 'd' {
			x.p.fail(refuse("Write the referencing rows first.",
				"an UPDATE of the key of table %q to another node is not supported while foreign key %q acts on changes", r.table.Name, fk.Name))
			return nil, false
		}
	}
	if slices.ContainsFunc(returning, readsRows) { // the stored row's RETURNING has no other rows beside it
		x.p.fail(refuse("Return the table's own columns.",
			"RETURNING of other tables' columns in an UPDATE of the key of distributed table %q is not supported", r.table.Name))
		return nil, false
	}
	remove := &pg.DeleteStmt{Relation: s.Relation, UsingClause: []*pg.Node{rowsItem()}, WhereClause: x.here(r, feed)}
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
		rows.TargetList = append(rows.TargetList, resTarget("", columnNode(rowsAlias, fragmentColumn(at))))
	}
	feed.Move = &Move{}
	for _, k := range x.p.placed(r.table).keys {
		feed.Move.NewKey = append(feed.Move.NewKey, values[k])
	}
	store.SelectStmt = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: rows}}
	store.ReturningList = cloneAll(returning)
	return []*pg.Node{{Node: &pg.Node_DeleteStmt{DeleteStmt: remove}}, {Node: &pg.Node_InsertStmt{InsertStmt: store}}}, true
}

// readsRows reports an expression that reads the fed rows.
func readsRows(n *pg.Node) bool {
	found := false
	analyze.Walk(n, func(m proto.Message) bool {
		if cr, ok := m.(*pg.ColumnRef); ok {
			found = found || cr.Fields[0].GetString_().GetSval() == rowsAlias
		}
		return !found
	})
	return found
}
