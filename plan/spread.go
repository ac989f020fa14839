package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// location says how the rows of a part of a query lie on the nodes.
type location uint8

const (
	// nowhere: they are on the home node only, or it is not known.
	nowhere location = iota
	// copies: every node has all of them.
	copies
	// spread: each is on one node, and the nodes together have all of them: the part distributes.
	spread
)

// side is the location of a part of a FROM clause.
type side struct {
	at           location
	distribution uint32
	// keys are lists of columns, each a whole key: rows with equal keys are on one node.
	keys [][]column
	// aligned is set for a part that is evaluated for each row of another one: all its rows that matter
	// are on the node of that row. It is the other one's place in the list of those around it, counted from 1.
	aligned int
}

// located is the location of a query block, with its keys as positions of its outputs.
type located struct {
	side
	outputs [][]int
}

// within is the location of a join tree. eqs hold for all rows that matter; outer are the parts for
// whose rows the tree is evaluated (LATERAL, subqueries in expressions).
func (x *exchanger) within(t *joinTree, eqs []condition, outer []side) side {
	if t == nil {
		return side{at: copies}
	}
	if t.leaf != nil {
		return x.leaf(t.leaf, outer)
	}
	var own []condition
	if t.cond != nil {
		own = x.p.conditions(t.scope, t.cond)
		if !x.conditionFits(t.scope, t.cond, nil, side{}) {
			return side{}
		}
	}
	own = append(own, t.using...)
	switch t.kind {
	case pg.JoinType_JOIN_INNER:
		all := slices.Concat(own, eqs)
		l := x.within(t.left, all, outer)
		r := x.within(t.right, all, with(outer, l))
		return innerSide(l, r, all, len(outer)+1)
	case pg.JoinType_JOIN_LEFT:
		l := x.within(t.left, eqs, outer)
		return outerSide(l, x.within(t.right, own, with(outer, l)), own, len(outer)+1)
	case pg.JoinType_JOIN_RIGHT:
		return outerSide(x.within(t.right, eqs, outer), x.within(t.left, own, outer), own, len(outer)+1)
	case pg.JoinType_JOIN_FULL:
		l, r := x.within(t.left, nil, outer), x.within(t.right, nil, outer)
		if l.at == spread && r.at == spread && meets(l, r, own, len(outer)+1) {
			return side{at: spread, distribution: l.distribution}
		}
		if l.at == copies && r.at == copies {
			return side{at: copies}
		}
	}
	return side{}
}

func with(outer []side, s side) []side { return append(slices.Clone(outer), s) }

// innerSide joins two parts; left is the place of the left one among those around the right one.
func innerSide(l, r side, eqs []condition, left int) side {
	switch {
	case l.at == nowhere || r.at == nowhere:
		return side{}
	case l.at == copies && r.aligned == left:
		return side{}
	case l.at == copies:
		return r
	case r.at == copies:
		return l
	case meets(l, r, eqs, left):
		out := side{at: spread, distribution: l.distribution, keys: l.keys, aligned: l.aligned}
		if r.distribution == l.distribution {
			out.keys = slices.Concat(l.keys, r.keys)
		}
		return out
	}
	return side{}
}

// outerSide: all rows of kept appear, so they must not be on several nodes unless the other side is too.
func outerSide(kept, other side, eqs []condition, left int) side {
	switch {
	case kept.at == nowhere || other.at == nowhere:
		return side{}
	case other.at == copies:
		return kept
	case kept.at == copies:
		return side{}
	case meets(kept, other, eqs, left):
		return kept
	}
	return side{}
}

// meets reports that rows which are joined are on one node: the right part is evaluated for rows of the left one, or both for rows
// of the same other part, or a whole key of one side equals one of the other.
func meets(l, r side, eqs []condition, left int) bool {
	if r.aligned == left || l.aligned > 0 && l.aligned == r.aligned {
		return true
	}
	return equalKeys(l, r, eqs)
}

// equalKeys reports parts of one distribution, a whole key of which is equal.
func equalKeys(l, r side, eqs []condition) bool {
	if l.distribution != r.distribution {
		return false
	}
	classes := equalColumns(eqs)
	return slices.ContainsFunc(l.keys, func(a []column) bool {
		return slices.ContainsFunc(r.keys, func(b []column) bool { return classes.same(a, b) })
	})
}

// classes are sets of columns that are equal in all rows that matter.
type classes map[column]column

func equalColumns(eqs []condition) classes {
	c := classes{}
	for _, e := range eqs {
		if e.right != nil {
			if a, b := c.find(e.left), c.find(*e.right); a != b {
				c[a] = b
			}
		}
	}
	return c
}

func (c classes) find(a column) column {
	for {
		b, ok := c[a]
		if !ok {
			return a
		}
		a = b
	}
}

func (c classes) same(a, b []column) bool {
	if len(a) != len(b) || len(a) == 0 {
		return false
	}
	for i := range a {
		if c.find(a[i]) != c.find(b[i]) {
			return false
		}
	}
	return true
}

// leaf is the location of one item of a FROM clause.
func (x *exchanger) leaf(r *ref, outer []side) side {
	if m := x.moves[r]; m != nil {
		return m.side()
	}
	switch {
	case r.table != nil:
		return x.tableSide(r)
	case r.unknown && r.body == nil:
		if r.node.GetRangeFunction() != nil && x.sameEverywhere(r.node) {
			return side{at: copies}
		}
		return side{}
	case r.body == nil || r.unknown:
		return side{}
	}
	if !r.lateral {
		outer = nil
	}
	b := x.block(r.body, outer)
	s := b.side
	s.keys = nil
	for _, positions := range b.outputs {
		key := make([]column, len(positions))
		for i, at := range positions {
			key[i] = column{r, at}
		}
		s.keys = append(s.keys, key)
	}
	return s
}

func (x *exchanger) tableSide(r *ref) side {
	if r.sample != nil {
		return side{}
	}
	pl := x.p.placed(r.table)
	switch {
	case pl.placement == catalog.Reference:
		return side{at: copies}
	case pl.placement == catalog.Distributed:
		return side{at: spread, distribution: pl.distribution, keys: x.p.wholeKey(r)}
	}
	return side{}
}

// wholeKey is the key of a ref over a distributed table.
func (p *planner) wholeKey(r *ref) [][]column {
	keys := p.placed(r.table).keys
	if len(keys) == 0 {
		return nil
	}
	whole := make([]column, len(keys))
	for i, at := range keys {
		whole[i] = column{r, at}
	}
	return [][]column{whole}
}

// sameEverywhere reports an expression that every node answers alike, and that reads no tables.
func (x *exchanger) sameEverywhere(n *pg.Node) bool {
	same := true
	check := func(n *pg.Node) bool {
		same = same && x.p.volatility(n) == 'i' && n.GetSubLink() == nil && n.GetSelectStmt() == nil
		return same
	}
	if check(n) {
		eachExpression(n.ProtoReflect(), check)
	}
	return same
}

// core is the location of what a block groups, sorts and cuts: its FROM clause under WHERE, with
// all subqueries in its expressions.
func (x *exchanger) core(b *block, outer []side) side {
	s := b.stmt
	if s == nil || len(b.arms) > 0 {
		return side{}
	}
	if len(s.ValuesLists) > 0 {
		for _, l := range s.ValuesLists {
			if !x.sameEverywhere(l) {
				return side{}
			}
		}
		return side{at: copies}
	}
	eqs := x.p.conditions(b, s.WhereClause)
	at := x.within(b.tree, eqs, outer)
	if at.at == nowhere {
		return at
	}
	if at.at == spread && at.aligned == 0 {
		for i := len(outer); i > 0 && at.aligned == 0; i-- {
			if outer[i-1].at == spread && equalKeys(at, outer[i-1], eqs) {
				at.aligned = i
			}
		}
	}
	for _, n := range slices.Concat([]*pg.Node{s.WhereClause, s.HavingClause}, s.TargetList, s.GroupClause, s.SortClause,
		s.DistinctClause, s.WindowClause, []*pg.Node{s.LimitCount, s.LimitOffset}) {
		if n != nil && !x.conditionFits(b, n, outer, at) {
			return side{}
		}
	}
	return at
}

// conditionFits reports an expression that a node can evaluate for its own rows as PostgreSQL would for
// all rows: its subqueries read what is on every node, or on the node of the row.
func (x *exchanger) conditionFits(b *block, n *pg.Node, outer []side, own side) bool {
	fits := true
	analyze.Walk(n, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pg.SubLink:
			fits = fits && x.sublinkFits(b, e, outer, own)
			if e.Testexpr != nil {
				fits = fits && x.conditionFits(b, e.Testexpr, outer, own)
			}
			return false
		case *pg.FuncCall:
			fits = fits && x.callFits(e)
		case *pg.SelectStmt:
			fits = false
		case *pg.ColumnRef:
			fits = fits && !systemColumn(e)
		}
		return fits
	})
	return fits
}

func systemColumn(c *pg.ColumnRef) bool {
	last := c.Fields[len(c.Fields)-1].GetString_().GetSval()
	return slices.Contains(systemColumns, last) || last == ctidName || last == tableoidName
}

func (x *exchanger) sublinkFits(b *block, sl *pg.SubLink, outer []side, own side) bool {
	r := x.p.sublinks[sl]
	if r == nil || r.body == nil {
		return false
	}
	l := x.block(r.body, with(outer, own))
	switch {
	case l.at == copies:
		return true
	case l.at == spread && l.aligned > 0:
		// Its rows are on the node of the row it is evaluated for, or of one around that, which then must be the same node.
		return l.aligned == len(outer)+1 || own.at == copies && l.aligned == len(outer) || own.at == spread && own.aligned == l.aligned
	case l.at != spread || !isIn(sl, r):
		return false
	}
	// key IN (SELECT key ...): only rows with the same key decide, and keys are never NULL.
	c := x.p.columnOf(b, sl.Testexpr)
	if c == nil || !x.p.neverExtended(*c) || !x.p.comparable(*c, column{r, 0}) || !x.p.neverExtended(column{r, 0}) {
		return false
	}
	return own.at == spread && own.distribution == l.distribution &&
		slices.ContainsFunc(own.keys, func(k []column) bool { return len(k) == 1 && k[0] == *c }) &&
		slices.ContainsFunc(l.outputs, func(o []int) bool { return len(o) == 1 && o[0] == 0 })
}

// perRow are volatile functions that mean the same on any node.
var perRow = map[string]bool{
	"random": true, "gen_random_uuid": true, "clock_timestamp": true, "uuid_generate_v4": true, "uuid_generate_v1": true,
}

func (x *exchanger) callFits(c *pg.FuncCall) bool {
	_, name := analyze.Name(c.Funcname)
	for _, f := range x.p.functions(c) {
		if !f.Builtin && f.Kind != 'a' && f.Volatility != 'i' || f.Builtin && f.Volatility == 'v' && !perRow[name] {
			return false
		}
	}
	return len(x.p.functions(c)) > 0 && (x.p.volatility(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: c}}) != 's' || aggregateNames[name])
}

// block is the location of a query block: what its own work (grouping, DISTINCT, windows, LIMIT) leaves of its core's.
func (x *exchanger) block(b *block, outer []side) located {
	if len(b.arms) == 2 {
		return x.setOperation(b)
	}
	at := x.core(b, outer)
	out := located{side: at}
	if at.at == nowhere || b.holes {
		return located{}
	}
	if at.at == copies {
		if b.stmt.LimitCount != nil || b.stmt.LimitOffset != nil || distinctOn(b.stmt) || !x.sameEverywhereBlock(b) {
			return located{} // which rows it finds may differ between nodes
		}
		return out
	}
	if at.aligned == 0 && (b.stmt.LimitCount != nil || b.stmt.LimitOffset != nil || !x.perKey(b, at)) {
		return located{}
	}
	out.outputs = keyOutputs(b, at.keys)
	return out
}

// sameEverywhereBlock reports a block over copies that all nodes answer alike.
func (x *exchanger) sameEverywhereBlock(b *block) bool {
	same := true
	analyze.Walk(b.stmt, func(m proto.Message) bool {
		if c, ok := m.(*pg.FuncCall); ok {
			_, name := analyze.Name(c.Funcname)
			same = same && !perRow[name] && c.Over == nil && (!orderedAggregates[name] || len(c.AggOrder) > 0)
		}
		return same
	})
	return same
}

// keyOutputs finds whole keys among the outputs.
func keyOutputs(b *block, keys [][]column) [][]int {
	var found [][]int
	for _, key := range keys {
		positions := make([]int, 0, len(key))
		for _, c := range key {
			at := slices.IndexFunc(b.outputs, func(o output) bool { return o.source != nil && *o.source == c })
			if at < 0 {
				break
			}
			positions = append(positions, at)
		}
		if len(positions) == len(key) {
			found = append(found, positions)
		}
	}
	return found
}

// perKey reports a block whose groups, distinct rows and windows never have rows of two keys.
func (x *exchanger) perKey(b *block, at side) bool {
	s := b.stmt
	if grouped(s) || x.p.hasAggregate(s) {
		if !x.coversKey(b, s.GroupClause, at.keys) {
			return false
		}
	}
	if len(s.DistinctClause) > 0 {
		if distinctOn(s) {
			if !x.coversKey(b, s.DistinctClause, at.keys) {
				return false
			}
		} else if len(keyOutputs(b, at.keys)) == 0 {
			return false
		}
	}
	for _, c := range callsOfBlock(s) {
		if c.Over != nil && !x.coversKey(b, partitionOf(s, c.Over), at.keys) {
			return false
		}
	}
	return true
}

// partitionOf is the PARTITION BY list of a window, also of a named one.
func partitionOf(s *pg.SelectStmt, w *pg.WindowDef) []*pg.Node {
	name := w.Name
	if name == "" {
		name = w.Refname
	}
	if len(w.PartitionClause) > 0 || name == "" {
		return w.PartitionClause
	}
	for _, n := range s.WindowClause {
		if d := n.GetWindowDef(); d.GetName() == name {
			return partitionOf(s, &pg.WindowDef{PartitionClause: d.PartitionClause, Refname: d.Refname})
		}
	}
	return nil
}

// coversKey reports a list of expressions that has all columns of a key.
func (x *exchanger) coversKey(b *block, list []*pg.Node, keys [][]column) bool {
	has := map[column]bool{}
	for _, n := range list {
		if n.GetGroupingSet() != nil {
			return false
		}
		if c := x.p.columnOf(b, n); c != nil {
			has[*c] = true
		} else if i := int(n.GetAConst().GetIval().GetIval()); i > 0 && i <= len(b.outputs) && b.outputs[i-1].source != nil {
			has[*b.outputs[i-1].source] = true
		} else if o := outputNamed(b, n); o != nil && o.source != nil {
			has[*o.source] = true
		}
	}
	return slices.ContainsFunc(keys, func(key []column) bool {
		return len(key) > 0 && !slices.ContainsFunc(key, func(c column) bool { return !has[c] })
	})
}

// outputNamed is the output that a bare name in GROUP BY or ORDER BY means when it is no column.
func outputNamed(b *block, n *pg.Node) *output {
	cr := n.GetColumnRef()
	if cr == nil || len(cr.Fields) != 1 {
		return nil
	}
	name := cr.Fields[0].GetString_().GetSval()
	for i := range b.outputs {
		if b.outputs[i].name == name && name != "" {
			return &b.outputs[i]
		}
	}
	return nil
}

// setOperation: the arms of a UNION ALL distribute on their own; others compare rows, which must then carry their key.
func (x *exchanger) setOperation(b *block) located {
	s := b.stmt
	if s == nil || s.LimitCount != nil || s.LimitOffset != nil || len(s.LockingClause) > 0 || b.holes {
		return located{}
	}
	l, r := x.block(b.arms[0], nil), x.block(b.arms[1], nil)
	switch {
	case l.at == copies && r.at == copies:
		return located{side: side{at: copies}}
	case l.at != spread || r.at != spread || l.distribution != r.distribution:
		return located{}
	}
	var common [][]int
	for _, key := range l.outputs {
		if slices.ContainsFunc(r.outputs, func(o []int) bool { return slices.Equal(o, key) }) {
			common = append(common, key)
		}
	}
	if !(s.Op == pg.SetOperation_SETOP_UNION && s.All) && len(common) == 0 {
		return located{}
	}
	return located{side: side{at: spread, distribution: l.distribution}, outputs: common}
}
