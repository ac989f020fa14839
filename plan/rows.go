package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
)

// rows lets the nodes join and filter, and PostgreSQL do the rest over the joined rows: grouping that
// cannot be combined, windows, DISTINCT, order. It applies when the block's core distributes.
func (x *exchanger) rows(b *block) bool {
	s := b.stmt
	if len(b.arms) > 0 || len(s.LockingClause) > 0 || len(s.FromClause) == 0 {
		return false
	}
	at := x.core(b, nil)
	targets, ok := explicitTargets(b)
	if at.at != spread || !ok {
		return false
	}
	c := &columnMover{b: b, positions: map[column]int{}}
	final := plainSelect()
	for i, t := range targets {
		final.TargetList = append(final.TargetList, resTarget(b.outputName(i), c.moved(t.GetResTarget().Val)))
	}
	final.DistinctClause = c.movedList(s.DistinctClause, true)
	final.GroupClause = c.movedList(s.GroupClause, false)
	final.HavingClause = c.moved(s.HavingClause)
	final.WindowClause = c.movedList(s.WindowClause, false)
	final.SortClause = c.movedList(s.SortClause, true)
	final.LimitCount, final.LimitOffset, final.LimitOption = s.LimitCount, s.LimitOffset, s.LimitOption
	final.GroupDistinct = s.GroupDistinct
	if c.failed {
		return false
	}
	f := plainSelect()
	f.WithClause, f.FromClause, f.WhereClause = s.WithClause, s.FromClause, s.WhereClause
	for i, col := range c.columns {
		f.TargetList = append(f.TargetList, resTarget(fragmentColumn(i), columnNode(col.ref.alias, col.ref.columnName(col.index))))
	}
	if len(f.TargetList) == 0 {
		f.TargetList = []*pg.Node{resTarget("c1", pg.MakeAConstIntNode(1, -1))}
	}
	name := x.newFragment(proto.Clone(f).(*pg.SelectStmt), at, x.bases(s))
	final.FromClause = []*pg.Node{relationNode(name)}
	proto.Reset(s)
	proto.Merge(s, final)
	return true
}

// distinct lets the nodes leave out their own duplicates first.
func (x *exchanger) distinct(b *block) bool {
	s := b.stmt
	if len(b.arms) > 0 || len(s.DistinctClause) == 0 || distinctOn(s) || grouped(s) || x.p.hasAggregate(s) || hasWindow(s) || len(s.LockingClause) > 0 {
		return false
	}
	at := x.core(b, nil)
	if at.at != spread {
		return false
	}
	order, ok := x.outputOrder(b)
	targets, also := explicitTargets(b)
	if !ok || !also {
		return false
	}
	f := proto.Clone(s).(*pg.SelectStmt)
	f.LimitCount, f.LimitOffset, f.SortClause, f.LimitOption = nil, nil, nil, pg.LimitOption_LIMIT_OPTION_DEFAULT
	f.TargetList = cloneAll(targets)
	nameTargets(f.TargetList)
	final := plainSelect()
	final.DistinctClause, final.SortClause = s.DistinctClause, order
	final.LimitCount, final.LimitOffset, final.LimitOption = s.LimitCount, s.LimitOffset, s.LimitOption
	for i := range targets {
		final.TargetList = append(final.TargetList, resTarget(b.outputName(i), columnNode(fragmentColumn(i))))
	}
	final.FromClause = []*pg.Node{relationNode(x.newFragment(f, at, x.bases(s)))}
	proto.Reset(s)
	proto.Merge(s, final)
	return true
}

// columnMover turns columns of a block's tables into columns of its fragment.
type columnMover struct {
	b         *block
	columns   []column
	positions map[column]int
	failed    bool
}

func (c *columnMover) movedList(list []*pg.Node, outputsFirst bool) []*pg.Node {
	var out []*pg.Node
	for _, n := range list {
		if n.GetNode() == nil { // plain DISTINCT
			out = append(out, cloneNode(n))
			continue
		}
		bare := n
		if by := n.GetSortBy(); by != nil {
			bare = by.Node
		}
		if c.isOutput(bare, outputsFirst) || bare.GetAConst() != nil {
			out = append(out, cloneNode(n))
			continue
		}
		out = append(out, c.moved(n))
	}
	return out
}

// isOutput reports a bare name that means an output: ORDER BY looks there first, GROUP BY last.
func (c *columnMover) isOutput(n *pg.Node, first bool) bool {
	if outputNamed(c.b, n) == nil && !c.namedOutput(n) {
		return false
	}
	return first || c.b.resolve(n.GetColumnRef()) == nil
}

func (c *columnMover) namedOutput(n *pg.Node) bool {
	cr := n.GetColumnRef()
	if cr == nil || len(cr.Fields) != 1 {
		return false
	}
	return slices.ContainsFunc(c.b.outputs, func(o output) bool {
		return o.name == "" && o.expr != nil && figureName(o.expr) == cr.Fields[0].GetString_().GetSval()
	})
}

func (c *columnMover) moved(n *pg.Node) *pg.Node {
	if n == nil || c.failed {
		return nil
	}
	if hasSublink(n) {
		c.failed = true
		return nil
	}
	out := cloneNode(n)
	analyze.Walk(out, func(m proto.Message) bool {
		cr, ok := m.(*pg.ColumnRef)
		if !ok {
			return !c.failed
		}
		col := c.b.resolve(cr)
		if col == nil || !c.b.tree.refs[col.ref] || col.ref.alias == "" {
			c.failed = true
			return false
		}
		at, known := c.positions[*col]
		if !known {
			at = len(c.columns)
			c.columns, c.positions[*col] = append(c.columns, *col), at
		}
		cr.Fields = []*pg.Node{pg.MakeStrNode(fragmentColumn(at))}
		return false
	})
	return out
}
