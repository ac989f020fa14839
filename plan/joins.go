package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
)

// where adds the facts of WHERE and of the joins below it.
func (p *planner) where(b *block, tree *joinTree, cond *pg.Node) {
	if tree == nil {
		return
	}
	conds := p.conditions(b, cond)
	p.addConditions(tree.refs, conds)
	p.joinEdges(tree, mentioned(conds))
}

// mentioned are the refs that strict conditions name: a row of them that is all NULL fails.
func mentioned(conds []condition) map[*ref]bool {
	refs := map[*ref]bool{}
	for _, e := range conds {
		refs[e.left.ref] = true
		if e.right != nil {
			refs[e.right.ref] = true
		}
	}
	return refs
}

// joinEdges adds what the joins say to the graph. rejected are refs whose all-NULL rows cannot
// pass what stands above, which makes outer joins over them inner ones.
func (p *planner) joinEdges(t *joinTree, rejected map[*ref]bool) {
	if t == nil || t.leaf != nil {
		return
	}
	var conds []condition
	if t.cond != nil {
		conds = p.conditions(t.scope, t.cond)
	}
	conds = append(conds, t.using...)
	below := mentioned(conds)
	switch reduced(t, rejected) {
	case pg.JoinType_JOIN_INNER:
		p.addConditions(t.refs, conds)
		both := union(rejected, below)
		p.joinEdges(t.left, both)
		p.joinEdges(t.right, both)
	case pg.JoinType_JOIN_LEFT:
		p.outerEdges(t.left, t.right, conds, rejected, below)
	case pg.JoinType_JOIN_RIGHT:
		p.outerEdges(t.right, t.left, conds, rejected, below)
	default:
		p.markNullable(t.left)
		p.markNullable(t.right)
		p.joinEdges(t.left, nil)
		p.joinEdges(t.right, nil)
	}
}

// outerEdges handles preserved LEFT JOIN nullable: the condition restricts the nullable side only.
func (p *planner) outerEdges(preserved, nullable *joinTree, conds []condition, rejected, below map[*ref]bool) {
	p.markNullable(nullable)
	p.addConditions(nullable.refs, conds)
	p.joinEdges(preserved, rejected)
	p.joinEdges(nullable, union(rejected, below))
}

func (p *planner) markNullable(t *joinTree) {
	for r := range t.refs {
		p.nullable[r] = true
	}
}

// reduced is the kind of a join once rows that fail above are left out.
func reduced(t *joinTree, rejected map[*ref]bool) pg.JoinType {
	l, r := overlaps(t.left.refs, rejected), overlaps(t.right.refs, rejected)
	switch t.kind {
	case pg.JoinType_JOIN_LEFT:
		if r {
			return pg.JoinType_JOIN_INNER
		}
	case pg.JoinType_JOIN_RIGHT:
		if l {
			return pg.JoinType_JOIN_INNER
		}
	case pg.JoinType_JOIN_FULL:
		switch {
		case l && r:
			return pg.JoinType_JOIN_INNER
		case l:
			return pg.JoinType_JOIN_LEFT
		case r:
			return pg.JoinType_JOIN_RIGHT
		}
	}
	return t.kind
}

func overlaps(a, b map[*ref]bool) bool {
	for r := range a {
		if b[r] {
			return true
		}
	}
	return false
}

// addConditions records facts that hold for all rows of local that matter. Columns of other refs
// (of outer scopes, or of the preserved side of an outer join) can restrict local ones, never the
// other way round.
func (p *planner) addConditions(local map[*ref]bool, conds []condition) {
	for _, e := range conds {
		switch {
		case e.row != nil:
			p.addRow(local, e.row)
		case e.right == nil:
			if local[e.left.ref] {
				p.graph.restrict(e.left, e.fact)
			}
		case local[e.left.ref] && local[e.right.ref]:
			p.graph.equal(e.left, *e.right)
		case local[e.left.ref]:
			p.graph.directed(*e.right, e.left)
		case local[e.right.ref]:
			p.graph.directed(e.left, *e.right)
		}
	}
}

// addRow keeps a comparison of several columns of one table; it does not spread.
func (p *planner) addRow(local map[*ref]bool, row *rowCondition) {
	r := row.columns[0].ref
	if !local[r] || r.table == nil {
		return
	}
	for _, c := range row.columns {
		if c.ref != r {
			return
		}
	}
	p.rows[r] = append(p.rows[r], row)
}

// neverExtended reports a column that no outer join on its way turns into NULL: then a column that
// is restricted to some values is never NULL in the rows that matter.
func (p *planner) neverExtended(c column) bool {
	for {
		if p.nullable[c.ref] {
			return false
		}
		if c.ref.table != nil {
			return true
		}
		if c.ref.body == nil || c.ref.unknown || c.index >= len(c.ref.body.outputs) {
			return false
		}
		source := c.ref.body.outputs[c.index].source
		if source == nil {
			return false
		}
		c = *source
	}
}
