package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// feedInsert computes the rows of an INSERT first, on the home node: also what only one node should compute, such as missing keys.
// All nodes get the same rows of a reference table.
func (x *exchanger) feedInsert(top *block, s *pg.InsertStmt, r *ref) bool {
	body := x.p.blocks[s.SelectStmt.GetSelectStmt()]
	names := insertNames(r.table, s.Cols)
	store := proto.Clone(s).(*pg.InsertStmt)
	if s.SelectStmt == nil {
		body, names = &block{}, nil // one row of defaults
	}
	if x.p.rekeyed[r] || len(x.p.rekeys) > 0 { // by ON CONFLICT: the row would have to move
		return false
	}
	if body == nil || !x.conflictFits(s, r) || !x.withDefaults(store, r, names) {
		return false
	}
	width := len(body.outputs)
	if body.holes { // a star of a function: PostgreSQL wants as many columns as the statement names
		if width = len(names); len(s.Cols) == 0 {
			return false
		}
	}
	if values := store.SelectStmt.GetSelectStmt().GetValuesLists(); len(values) > 0 { // keys may have been added
		width = len(values[0].GetList().GetItems())
	}
	if width > len(names) {
		return false
	}
	names = names[:width]
	f := &feeder{x: x, table: r.table, query: plainSelect(), apart: true}
	f.query.WithClause = s.WithClause
	alias := &pg.Alias{Aliasname: "q"}
	rows := plainSelect()
	rows.FromClause = []*pg.Node{relationNode(rowsName)}
	store.Cols = nil
	for i := range width {
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(fragmentColumn(i)))
		at := r.table.Column(names[i])
		if at < 0 {
			return false
		}
		f.stored(store, rows, at, columnNode("q", fragmentColumn(i)))
	}
	if s.SelectStmt != nil {
		f.query.FromClause = []*pg.Node{{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{Subquery: store.SelectStmt, Alias: alias}}}}
	}
	feed := &Feed{Tag: "INSERT 0", Whole: s.GetOnConflictClause().GetAction() == pg.OnConflictAction_ONCONFLICT_UPDATE}
	if feed.Whole && x.p.isReference(r) {
		feed.Lock = lockCopies(r.table)
	}
	if !f.missing(feed, store, rows, r, names) || len(store.Cols) == 0 {
		return false
	}
	var ok bool
	if store.ReturningList, ok = f.returning(top, s.ReturningList, r); !ok {
		return false
	}
	store.WithClause, store.SelectStmt = nil, &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: rows}}
	return f.finish(feed, &pg.Node{Node: &pg.Node_InsertStmt{InsertStmt: store}})
}

// stored makes an expression the value of a column of the new rows.
func (f *feeder) stored(store *pg.InsertStmt, rows *pg.SelectStmt, column int, value *pg.Node) int {
	at := f.add(value, column)
	store.Cols = append(store.Cols, pg.MakeResTargetNodeWithName(f.table.Columns[column].Name, -1))
	rows.TargetList = append(rows.TargetList, resTarget("", columnNode(fragmentColumn(at))))
	return at
}

// missing adds what the home node gives each row when the statement does not: its key, as it does for rows of VALUES, and
// defaults that the copies of a reference table would not have alike.
func (f *feeder) missing(feed *Feed, store *pg.InsertStmt, rows *pg.SelectStmt, r *ref, names []string) bool {
	give := func(column int) (int, bool) {
		c := &r.table.Columns[column]
		value := defaultNode(r.table, column)
		if value == nil {
			return 0, false
		}
		if c.Identity != 0 {
			store.Override = pg.OverridingKind_OVERRIDING_SYSTEM_VALUE
		}
		return f.stored(store, rows, column, value), true
	}
	if f.x.p.isReference(r) {
		for i := range r.table.Columns {
			if c := &r.table.Columns[i]; !slices.Contains(names, c.Name) && f.x.p.defaultDiffers(c) {
				if _, ok := give(i); !ok {
					return false
				}
			}
		}
		return true
	}
	for _, k := range f.x.p.placed(r.table).keys {
		at := slices.Index(names, r.table.Columns[k].Name)
		if at < 0 {
			var ok bool
			if at, ok = give(k); !ok {
				return false
			}
		}
		feed.Key = append(feed.Key, at)
	}
	return true
}

// conflictFits reports ON CONFLICT that every node answers for its rows alone, and all of them alike for a reference table.
func (x *exchanger) conflictFits(s *pg.InsertStmt, r *ref) bool {
	c := s.OnConflictClause
	if c == nil {
		return true
	}
	for _, n := range append([]*pg.Node{c.WhereClause}, c.TargetList...) {
		if n == nil {
			continue
		}
		if hasSublink(n) || x.p.isReference(r) && !x.sameEverywhere(n) {
			return false
		}
		if t := n.GetResTarget(); t.GetVal().GetSetToDefault() != nil && x.p.isReference(r) {
			if at := r.table.Column(t.Name); at < 0 || x.p.defaultDiffers(&r.table.Columns[at]) {
				return false
			}
		}
	}
	return true
}

// withDefaults writes the defaults in place of DEFAULT in VALUES.
func (x *exchanger) withDefaults(s *pg.InsertStmt, r *ref, names []string) bool {
	given := map[int]bool{}
	var identity []int
	for _, l := range s.SelectStmt.GetSelectStmt().GetValuesLists() {
		for i, item := range l.GetList().GetItems() {
			if item.GetSetToDefault() == nil {
				given[i] = true
				continue
			}
			at := -1
			if i < len(names) {
				at = r.table.Column(names[i])
			}
			if at < 0 || r.table.Columns[at].Generated != 0 {
				return false
			}
			if r.table.Columns[at].Identity != 0 {
				identity = append(identity, i)
			}
			value := defaultNode(r.table, at)
			if value == nil {
				value = nullNode()
			}
			t, _ := x.p.catalog.Type(r.table.Columns[at].TypeOID)
			l.GetList().Items[i] = castNode(value, t.Schema, t.Name)
		}
	}
	for _, i := range identity {
		if given[i] && s.Override != pg.OverridingKind_OVERRIDING_SYSTEM_VALUE {
			return false
		}
		s.Override = pg.OverridingKind_OVERRIDING_SYSTEM_VALUE
	}
	return true
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
