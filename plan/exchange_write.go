package plan

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// InsertRows is an INSERT whose rows go to different nodes: each node gets Before, its rows of VALUES, and After.
type InsertRows struct {
	Before string
	Rows   []string
	After  string
	Pin    Pin // row i has the i-th operand of each key column
	// Returns is set when the statement has RETURNING.
	Returns bool
}

// write plans a statement that changes rows: on the home node over gathered rows when the table is local, else on
// each node for its own rows.
func (x *exchanger) write(top *block) {
	p := x.p
	r := p.targets[len(p.targets)-1]
	if len(p.targets) > 1 || x.root.GetSelectStmt() != nil { // some of them stand in WITH
		if !x.onlyDistributed() || !x.writesSpread(top) || !x.each(top, r) {
			x.steps(top)
		}
		return
	}
	switch {
	case r.table == nil && r.body == nil || r.table != nil && p.placed(r.table).placement == catalog.Local:
		x.writeAtHome(top)
	case r.table != nil && p.placed(r.table).placement == catalog.Reference:
		if !x.feed(top, r) {
			p.fail(refuse("Write constants, or compute the values first.",
				"this form of a write to reference table %q is not supported yet", r.table.Name))
		}
	case x.each(top, r) || x.insertRows(r) || x.feed(top, r):
	default:
		p.fail(refuse("Join on the key, or read the rows first and write them one key at a time.",
			"this write to a distributed table needs rows of other nodes, which is not supported yet"))
	}
}

// onlyDistributed reports that all tables that are written are distributed, and that no row gets another key.
func (x *exchanger) onlyDistributed() bool {
	return len(x.p.rekeys) == 0 && !slices.ContainsFunc(x.p.targets, func(r *ref) bool {
		return r.table == nil || x.p.placed(r.table).placement != catalog.Distributed || x.p.rekeyed[r]
	})
}

// writesSpread reports that each node can do the writes in WITH for its own rows, whether somebody reads what they return or not.
func (x *exchanger) writesSpread(top *block) bool {
	for _, c := range top.ctes {
		if c.writes && x.block(c.body, nil).at != spread {
			return false
		}
	}
	return true
}

// writeAtHome gathers what the statement reads; its table is on the home node.
func (x *exchanger) writeAtHome(top *block) {
	if s := x.root.GetInsertStmt(); s != nil {
		for _, w := range s.GetWithClause().GetCtes() {
			if c := top.ctes[w.GetCommonTableExpr().Ctename]; c != nil {
				x.rewrite(c.body)
			}
		}
		if sel := s.SelectStmt.GetSelectStmt(); sel != nil {
			x.rewrite(x.p.blocks[sel])
		}
		x.expressionBlocks(&pg.Node{Node: &pg.Node_List{List: &pg.List{Items: s.ReturningList}}})
		return
	}
	if x.root.GetMergeStmt() != nil {
		x.gatherTree(top, top.tree, nil)
	} else {
		x.descend(top)
	}
}

// each sends the statement to every node when all that a row's change depends on is on the row's own node.
func (x *exchanger) each(top *block, r *ref) bool {
	var at side
	switch {
	case x.root.GetInsertStmt() != nil:
		at = x.insertSide(top, r)
	case x.root.GetMergeStmt() != nil:
		at = x.mergeSide(top, r)
	case x.root.GetSelectStmt() != nil: // the write stands in WITH
		if at = x.block(top, nil).side; len(x.root.GetSelectStmt().SortClause) > 0 || x.p.rekeyed[r] || len(x.p.rekeys) > 0 {
			return false
		}
	default:
		at = x.core(top, nil)
		if x.p.rekeyed[r] || len(x.p.rekeys) > 0 {
			return false
		}
	}
	if at.at != spread {
		return false
	}
	text, err := analyze.Deparse(x.root)
	if err != nil {
		x.p.fail(refuse("", "the statement cannot be written again: %v", err))
		return true
	}
	f := Fragment{Text: text, Distribution: at.distribution, Writes: true, Params: paramsOf(x.root)}
	bases := x.bases(x.root)
	for _, t := range x.p.targets {
		bases = append(bases, x.targetBases(t)...)
	}
	x.pinTo(&f, bases)
	x.out.Fragments = append(x.out.Fragments, f)
	return true
}

// targetBases is the table that is written, behind a view too.
func (x *exchanger) targetBases(r *ref) []*ref {
	if r.view != nil {
		return x.bases(x.p.viewTree(r.view))
	}
	return []*ref{r}
}

// insertSide: INSERT ... SELECT stays on each node when the selected rows have the key of the rows they come from.
func (x *exchanger) insertSide(top *block, r *ref) side {
	s := x.root.GetInsertStmt()
	body := x.p.blocks[s.SelectStmt.GetSelectStmt()]
	if x.p.rekeyed[r] || len(x.p.rekeys) > 0 {
		return side{}
	}
	if body == nil || len(body.stmt.ValuesLists) > 0 || r.table == nil || len(x.p.newRows) != 1 {
		return side{}
	}
	place := x.p.placed(r.table)
	names := insertNames(r.table, s.Cols)
	positions := make([]int, len(place.keys))
	for i, k := range place.keys {
		positions[i] = slices.Index(names, r.table.Columns[k].Name)
	}
	at := x.block(body, nil)
	if at.at != spread || at.distribution != place.distribution || !x.p.keysFit(x.p.newRows[0], place) ||
		!slices.ContainsFunc(at.outputs, func(o []int) bool { return slices.Equal(o, positions) }) {
		return side{}
	}
	for _, n := range slices.Concat(s.ReturningList, s.GetOnConflictClause().GetTargetList(), []*pg.Node{s.GetOnConflictClause().GetWhereClause()}) {
		if n != nil && !x.conditionFits(top, n, nil, side{}) {
			return side{}
		}
	}
	return at.side
}

// mergeSide: MERGE stays on each node when source and target are joined by their keys.
func (x *exchanger) mergeSide(top *block, r *ref) side {
	s := x.root.GetMergeStmt()
	if top.tree == nil || r.table == nil || len(x.p.rekeys) > 0 || x.p.rekeyed[r] {
		return side{}
	}
	conds := x.p.conditions(top, s.JoinCondition)
	source, target := x.within(top.tree.left, nil, nil), x.leaf(r, nil)
	inserts := false
	var exprs []*pg.Node
	for _, n := range s.MergeWhenClauses {
		w := n.GetMergeWhenClause()
		inserts = inserts || w.MatchKind != pg.MergeMatchKind_MERGE_WHEN_MATCHED
		exprs = slices.Concat(exprs, []*pg.Node{w.Condition}, w.TargetList, w.Values)
	}
	switch {
	case source.at == copies && !inserts:
	case source.at == spread && equalKeys(source, target, conds) && x.keepsKey(source):
	default:
		return side{}
	}
	for _, n := range append(exprs, s.JoinCondition) {
		if n != nil && !x.conditionFits(top, n, nil, target) {
			return side{}
		}
	}
	return target
}

// keepsKey reports that new rows have the key of the row of the source that they come from.
func (x *exchanger) keepsKey(source side) bool {
	for _, n := range x.p.newRows {
		place := x.p.placed(n.table)
		key := make([]column, len(n.sources))
		for i, s := range n.sources {
			if s.column == nil {
				return false
			}
			key[i] = *s.column
		}
		if !x.p.keysFit(n, place) || !slices.ContainsFunc(source.keys, func(k []column) bool { return slices.Equal(k, key) }) {
			return false
		}
	}
	return true
}

// insertRows sends each row of VALUES to its node.
func (x *exchanger) insertRows(r *ref) bool {
	s := x.root.GetInsertStmt()
	values := s.GetSelectStmt().GetSelectStmt().GetValuesLists()
	if len(values) == 0 || len(x.p.newKeys) != 1 || x.p.rekeyed[r] || s.WithClause != nil || hasSublink(x.root) {
		return false
	}
	for _, n := range s.ReturningList {
		if !x.conditionFits(&block{refs: []*ref{r}}, n, nil, side{}) {
			return false
		}
	}
	out := &InsertRows{Pin: x.p.newKeys[0], Returns: len(s.ReturningList) > 0}
	for _, l := range values {
		items := l.GetList().GetItems()
		texts := make([]string, len(items))
		for i, item := range items {
			text, err := deparseExpression(item)
			if err != nil {
				return false
			}
			texts[i] = text
		}
		out.Rows = append(out.Rows, "("+strings.Join(texts, ", ")+")")
	}
	sel := s.SelectStmt
	s.SelectStmt = nil
	text, err := analyze.Deparse(x.root)
	s.SelectStmt = sel
	const marker = " DEFAULT VALUES"
	if err != nil || strings.Count(text, marker) != 1 {
		return false
	}
	before, after, _ := strings.Cut(text, marker)
	out.Before, out.After = before+" VALUES ", after
	x.out.Insert = out
	return true
}
