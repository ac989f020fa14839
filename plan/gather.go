package plan

import (
	"fmt"
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// newFragment adds a fragment and returns the FROM item that stands for its rows.
func (x *exchanger) newFragment(s *pg.SelectStmt, at side, bases []*ref) (name string) {
	name = fmt.Sprintf("shoal %d", len(x.out.Fragments)+1)
	x.addFragment(name, s, at, bases)
	return name
}

func (x *exchanger) addFragment(name string, s *pg.SelectStmt, at side, bases []*ref) {
	text, err := analyze.Deparse(&pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: s}})
	if err != nil {
		x.p.fail(refuse("", "a part of the statement cannot be written again: %v", err))
		return
	}
	f := Fragment{Name: name, Text: text, Distribution: at.distribution, Locks: len(s.LockingClause) > 0, Params: paramsOf(s)}
	for _, n := range s.TargetList {
		t := n.GetResTarget()
		name := t.Name
		if name == "" {
			name = figureName(t.Val)
		}
		f.Columns = append(f.Columns, name)
	}
	if cr := s.TargetList; name != "" && len(cr) == 1 && f.Columns[0] == "" { // the columns of a set operation
		f.Columns = f.Columns[:0]
		for _, c := range s.FromClause[0].GetRangeSubselect().Alias.Colnames {
			f.Columns = append(f.Columns, c.GetString_().Sval)
		}
	}
	x.pinTo(&f, bases)
	x.use(&f, s)
	f.Opaque = x.opaque(s, bases)
	x.out.Fragments = append(x.out.Fragments, f)
}

// opaque reports a piece of the statement that runs code of users.
func (x *exchanger) opaque(s *pg.SelectStmt, bases []*ref) bool {
	found := slices.ContainsFunc(bases, func(r *ref) bool { return r.table != nil && r.table.RowSecurity })
	analyze.Walk(s, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pg.FuncCall:
			found = found || slices.ContainsFunc(x.p.functions(e), func(f *catalog.Function) bool { return !f.Builtin })
		case *pg.A_Expr:
			found = found || len(e.Name) > 0 && len(x.p.catalog.Operators(e.Name[len(e.Name)-1].GetString_().GetSval())) > 0
		}
		return !found
	})
	return found
}

// pinTo says where a fragment over these tables runs.
func (x *exchanger) pinTo(f *Fragment, bases []*ref) {
	for _, r := range bases {
		if r.table == nil || x.p.placed(r.table).placement != catalog.Distributed {
			continue
		}
		if pin := x.p.pinOf(r); !slices.ContainsFunc(f.Pins, func(q Pin) bool { return q.same(&pin) }) {
			f.Pins = append(f.Pins, pin)
		}
	}
}

// paramsOf are the parameters below a message.
func paramsOf(m proto.Message) map[int]bool {
	params := map[int]bool{}
	analyze.Walk(m, func(m proto.Message) bool {
		if r, ok := m.(*pg.ParamRef); ok {
			params[int(r.Number)] = true
		}
		return true
	})
	return params
}

// bases are the tables that a piece of the statement reads, behind views too.
func (x *exchanger) bases(n proto.Message) []*ref {
	var found []*ref
	seen := map[*ref]bool{}
	var visit func(proto.Message)
	visit = func(n proto.Message) {
		for _, rv := range analyze.Relations(n) {
			for _, r := range x.byVar[rv] {
				if seen[r] {
					continue
				}
				seen[r] = true
				if r.table != nil {
					found = append(found, r)
				} else if r.view != nil {
					visit(x.p.viewTree(r.view))
				}
			}
		}
	}
	visit(n)
	return found
}

// top plans the whole query: as one fragment whose rows are merged, or as a rewritten statement.
func (x *exchanger) top(b *block) {
	if x.scatter(b) {
		return
	}
	x.rewrite(b)
}

// rewrite puts fragments in the place of what they answer, as large ones as can be proven.
func (x *exchanger) rewrite(b *block) {
	if b == nil || b.stmt == nil || x.p.err != nil || x.again || x.done[b] {
		return
	}
	x.done[b] = true
	x.completeGroups(b)
	if !x.usesOutside(b) {
		moves := x.choose(b)
		if x.whole(b) || x.partial(b) || x.distinct(b) || moves && x.cut(b) || x.rows(b) {
			x.moves = nil
			return
		}
		if moves { // rows on their way to nodes where nothing waits for them
			x.p.fail(refuse("", "moved rows are not used"))
			return
		}
	}
	x.descend(b)
}

// whole makes a block that distributes a fragment.
func (x *exchanger) whole(b *block) bool {
	at := x.block(b, nil)
	targets, ok := explicitTargets(b)
	if at.at != spread || !ok || len(b.stmt.LockingClause) > 0 {
		return false
	}
	s := proto.Clone(b.stmt).(*pg.SelectStmt)
	if !distinctOn(b.stmt) { // which rows it keeps depends on their order
		s.SortClause = nil
	}
	final := plainSelect()
	if len(b.arms) == 0 {
		s.TargetList = cloneAll(targets)
		nameTargets(s.TargetList)
	} else {
		s = wrapped(s, len(b.outputs))
	}
	for i := range b.outputs {
		final.TargetList = append(final.TargetList, resTarget(b.outputName(i), columnNode(fragmentColumn(i))))
	}
	sort, ok := x.outputOrder(b)
	if !ok {
		return false
	}
	name := x.newFragment(s, at.side, x.bases(b.stmt))
	final.FromClause = []*pg.Node{relationNode(name)}
	final.SortClause = sort
	proto.Reset(b.stmt)
	proto.Merge(b.stmt, final)
	return true
}

// wrapped selects the columns of a set operation under names of our own.
func wrapped(s *pg.SelectStmt, columns int) *pg.SelectStmt {
	alias := &pg.Alias{Aliasname: "u"}
	for i := range columns {
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(fragmentColumn(i)))
	}
	out := plainSelect()
	out.TargetList = []*pg.Node{resTarget("", starNode())}
	out.FromClause = []*pg.Node{{Node: &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{
		Subquery: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: s}}, Alias: alias,
	}}}}
	return out
}

// outputOrder is the ORDER BY of a block over the columns c1, c2, ... that stand for its outputs.
func (x *exchanger) outputOrder(b *block) ([]*pg.Node, bool) {
	var list []*pg.Node
	for _, n := range b.stmt.SortClause {
		at, ok := sortedOutput(b, n.GetSortBy().Node)
		if !ok {
			return nil, false
		}
		c := proto.Clone(n).(*pg.Node)
		c.GetSortBy().Node = columnNode(fragmentColumn(at))
		list = append(list, c)
	}
	return list, true
}

// sortedOutput finds the output that an expression of ORDER BY means: its position, its name, or the same column.
func sortedOutput(b *block, n *pg.Node) (int, bool) {
	if c := n.GetAConst(); c != nil {
		i := int(c.GetIval().GetIval())
		return i - 1, c.GetIval() != nil && i >= 1 && i <= len(b.outputs)
	}
	if cr := n.GetColumnRef(); cr != nil {
		if len(cr.Fields) == 1 {
			name := cr.Fields[0].GetString_().GetSval()
			for i, o := range b.outputs {
				if o.name == name && name != "" {
					return i, true
				}
			}
		}
		if c := b.resolve(cr); c != nil && len(b.arms) == 0 {
			for i, o := range b.outputs {
				if o.source != nil && *o.source == *c {
					return i, true
				}
			}
		}
	}
	return 0, false
}

// descend gathers the tables that a block names, and looks for larger pieces inside it.
func (x *exchanger) descend(b *block) {
	for _, arm := range b.arms {
		x.rewrite(arm)
	}
	for _, w := range b.stmt.GetWithClause().GetCtes() {
		if c := b.ctes[w.GetCommonTableExpr().Ctename]; c != nil && c.body != nil {
			x.rewrite(c.body)
		}
	}
	if b.tree != nil {
		x.gatherTree(b, b.tree, conjuncts(b.stmt.WhereClause))
	}
	s := b.stmt
	for _, n := range slices.Concat([]*pg.Node{s.WhereClause, s.HavingClause, s.LimitCount, s.LimitOffset}, s.TargetList, s.GroupClause,
		s.SortClause, s.DistinctClause, s.WindowClause, s.ValuesLists) {
		x.expressionBlocks(n)
	}
	x.unlock(b)
}

// expressionBlocks rewrites the subqueries of an expression.
func (x *exchanger) expressionBlocks(n *pg.Node) {
	if n == nil {
		return
	}
	analyze.Walk(n, func(m proto.Message) bool {
		if sl, ok := m.(*pg.SubLink); ok {
			x.expressionBlocks(sl.Testexpr)
			if r := x.p.sublinks[sl]; r != nil {
				x.rewrite(r.body)
			}
			return false
		}
		return true
	})
}

// gatherTree gathers the leaves of a FROM clause. Conditions that only one leaf has to do with go along
// with it, where rows that fail them cannot matter.
func (x *exchanger) gatherTree(b *block, t *joinTree, conds []scoped) {
	if t.leaf != nil {
		x.gatherLeaf(b, t.leaf, conds)
		return
	}
	x.expressionBlocks(t.cond)
	left, right := t.passed(conds)
	x.gatherTree(b, t.left, left)
	x.gatherTree(b, t.right, right)
}

// passed are the conditions that rows of each side of a join must meet to matter, of those that its own rows must meet.
func (t *joinTree) passed(conds []scoped) (left, right []scoped) {
	var own []scoped
	for _, c := range conjuncts(t.cond) {
		own = append(own, scoped{c.cond, t.scope})
	}
	switch t.kind {
	case pg.JoinType_JOIN_INNER:
		all := slices.Concat(own, conds)
		return all, all
	case pg.JoinType_JOIN_LEFT:
		return conds, own
	case pg.JoinType_JOIN_RIGHT:
		return own, conds
	}
	return nil, nil
}

// scoped is a condition with the block in which its names are looked up; nil: the block it is asked for.
type scoped struct {
	cond  *pg.Node
	scope *block
}

// conjuncts are the parts of a condition that all must hold.
func conjuncts(n *pg.Node) []scoped {
	if n == nil {
		return nil
	}
	if e := n.GetBoolExpr(); e != nil && e.Boolop == pg.BoolExprType_AND_EXPR {
		var all []scoped
		for _, a := range e.Args {
			all = append(all, conjuncts(a)...)
		}
		return all
	}
	return []scoped{{cond: n}}
}

func (x *exchanger) gatherLeaf(b *block, r *ref, conds []scoped) {
	switch {
	case r.table != nil:
		if x.p.placed(r.table).placement == catalog.Distributed {
			x.gatherTable(b, r, conds, side{at: spread, distribution: x.p.placed(r.table).distribution}, []*ref{r}, tableNames(r.table))
		}
	case r.view != nil:
		l := x.block(r.body, nil)
		if l.at == spread {
			x.gatherTable(b, r, conds, l.side, x.bases(x.p.viewTree(r.view)), tableNames(r.view))
			return
		}
		x.writeInPlace(r.view)
	case r.body != nil && r.node.GetRangeSubselect() != nil:
		x.rewrite(r.body)
	case r.body == nil && r.node.GetRangeFunction() != nil:
		x.expressionBlocks(r.node)
	}
}

// writeInPlace asks for another turn in which the view's body stands in its place.
func (x *exchanger) writeInPlace(view *catalog.Table) {
	for _, r := range x.p.refs {
		if r.table.RowSecurity {
			x.p.fail(refuse("Write the view's query in place of it.",
				"view %q over several nodes, with row security on table %q below it, is not supported", view.Name, r.table.Name))
			return
		}
	}
	x.inline[view.OID], x.again = true, true
}

func tableNames(t *catalog.Table) []string {
	names := make([]string, len(t.Columns))
	for i := range t.Columns {
		names[i] = t.Columns[i].Name
	}
	return names
}

// gatherTable moves the rows of one table or view: the columns that the statement names, under the
// conditions that are about nothing else.
func (x *exchanger) gatherTable(b *block, r *ref, conds []scoped, at side, bases []*ref, names []string) {
	rv := r.node.GetRangeVar()
	if x.noSystemColumns(); x.p.err != nil {
		return
	}
	s := plainSelect()
	for i, name := range names {
		if x.needs(r, i) {
			s.TargetList = append(s.TargetList, resTarget("", columnNode(name)))
		}
	}
	if x.names[ctidName] && len(lockOf(b, r)) > 0 {
		s.TargetList = append(s.TargetList, resTarget(ctidName, columnNode("ctid")))
		if x.names[tableoidName] {
			s.TargetList = append(s.TargetList, resTarget(tableoidName, columnNode("tableoid")))
		}
	}
	if len(s.TargetList) == 0 {
		s.TargetList = append(s.TargetList, resTarget("c1", &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Isnull: true}}}))
	}
	own := proto.Clone(rv).(*pg.RangeVar)
	if own.Alias != nil && len(own.Alias.Colnames) > 0 {
		own.Alias = nil
		conds = nil // they use the other names
	}
	s.FromClause = []*pg.Node{x.sampled(r, own)}
	s.WhereClause = x.ownConditions(b, r, conds)
	s.LockingClause = lockOf(b, r)
	name := x.newFragment(s, at, bases)
	alias := &pg.Alias{Aliasname: r.alias}
	if rv.Alias != nil {
		alias = rv.Alias
	}
	place := r.node
	if r.sample != nil {
		place = r.sample
	}
	place.Node = &pg.Node_RangeVar{RangeVar: &pg.RangeVar{Relname: name, Inh: true, Relpersistence: "p", Alias: alias}}
}

// ownConditions joins the conditions that read nothing but r and that every node answers alike.
func (x *exchanger) ownConditions(b *block, r *ref, conds []scoped) *pg.Node {
	var own []*pg.Node
	for _, c := range conds {
		scope := c.scope
		if scope == nil {
			scope = b
		}
		if x.readsOnly(scope, r, c.cond) {
			own = append(own, byOwnNames(scope, c.cond))
		}
	}
	switch len(own) {
	case 0:
		return nil
	case 1:
		return own[0]
	}
	return &pg.Node{Node: &pg.Node_BoolExpr{BoolExpr: &pg.BoolExpr{Boolop: pg.BoolExprType_AND_EXPR, Args: own}}}
}

// byOwnNames is a condition on one relation with that relation's own names: those of the statement may be of the alias of a join.
func byOwnNames(scope *block, cond *pg.Node) *pg.Node {
	cond = proto.Clone(cond).(*pg.Node)
	analyze.Walk(cond, func(m proto.Message) bool {
		if cr, ok := m.(*pg.ColumnRef); ok {
			c := scope.resolve(cr)
			own := []*pg.Node{pg.MakeStrNode(c.ref.columnName(c.index))}
			if len(cr.Fields) > 1 {
				own = append([]*pg.Node{pg.MakeStrNode(c.ref.alias)}, own...)
			}
			cr.Fields = own
		}
		return true
	})
	return cond
}

func (x *exchanger) readsOnly(scope *block, r *ref, cond *pg.Node) bool {
	columns := 0
	only := x.sameEverywhere(cond)
	analyze.Walk(cond, func(m proto.Message) bool {
		if cr, ok := m.(*pg.ColumnRef); ok {
			c := scope.resolve(cr)
			only = only && c != nil && c.ref == r && len(cr.Fields) <= 2
			columns++
		}
		return only
	})
	return only && columns > 0
}

// lockOf is the locking clause of a block as far as it concerns r.
func lockOf(b *block, r *ref) []*pg.Node {
	var out []*pg.Node
	for _, n := range b.stmt.GetLockingClause() {
		c := n.GetLockingClause()
		if len(c.LockedRels) == 0 || slices.ContainsFunc(c.LockedRels, func(n *pg.Node) bool { return n.GetRangeVar().GetRelname() == r.alias }) {
			out = append(out, &pg.Node{Node: &pg.Node_LockingClause{LockingClause: &pg.LockingClause{Strength: c.Strength, WaitPolicy: c.WaitPolicy}}})
		}
	}
	return out
}

// unlock leaves only tables of the home node in a locking clause: the others' rows were locked when they were gathered.
func (x *exchanger) unlock(b *block) {
	if len(b.stmt.LockingClause) == 0 || b.tree == nil {
		return
	}
	var names []*pg.Node
	for r := range b.tree.refs {
		if len(lockOf(b, r)) == 0 {
			continue
		}
		if r.table != nil && x.p.placed(r.table).placement == catalog.Local {
			names = append(names, &pg.Node{Node: &pg.Node_RangeVar{RangeVar: &pg.RangeVar{Relname: r.alias, Inh: true, Relpersistence: "p"}}})
		} else if r.table == nil || x.p.placed(r.table).placement == catalog.Reference {
			x.p.fail(refuse("Name the tables: FOR UPDATE OF table.", "locking rows of subqueries, views or reference tables over several nodes is not supported"))
			return
		}
	}
	kept := b.stmt.LockingClause[:0]
	for _, n := range b.stmt.LockingClause {
		c := n.GetLockingClause()
		var rels []*pg.Node
		for _, name := range names {
			if len(c.LockedRels) == 0 || slices.ContainsFunc(c.LockedRels, func(n *pg.Node) bool {
				return n.GetRangeVar().GetRelname() == name.GetRangeVar().Relname
			}) {
				rels = append(rels, name)
			}
		}
		if c.LockedRels = rels; len(rels) > 0 {
			kept = append(kept, n)
		}
	}
	b.stmt.LockingClause = kept
}
