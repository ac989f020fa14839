package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
)

// joinTree is the shape of a FROM clause: leaves are refs.
type joinTree struct {
	kind        pg.JoinType
	left, right *joinTree
	cond        *pg.Node
	using       []equality
	leaf        *ref
	refs        map[*ref]bool // all refs below
}

func leafTree(r *ref) *joinTree {
	return &joinTree{leaf: r, refs: map[*ref]bool{r: true}}
}

// from builds the refs and the join tree of a FROM list; items of the list are joined inner.
func (p *planner) from(b *block, items []*pg.Node) *joinTree {
	var tree *joinTree
	for _, item := range items {
		t := p.fromItem(b, item)
		if t == nil {
			continue
		}
		tree = innerJoin(tree, t)
	}
	return tree
}

func innerJoin(l, r *joinTree) *joinTree {
	switch {
	case l == nil:
		return r
	case r == nil:
		return l
	}
	return &joinTree{kind: pg.JoinType_JOIN_INNER, left: l, right: r, refs: union(l.refs, r.refs)}
}

func union(a, b map[*ref]bool) map[*ref]bool {
	u := make(map[*ref]bool, len(a)+len(b))
	for r := range a {
		u[r] = true
	}
	for r := range b {
		u[r] = true
	}
	return u
}

func (p *planner) fromItem(b *block, n *pg.Node) *joinTree {
	switch e := n.GetNode().(type) {
	case *pg.Node_RangeVar:
		return leafTree(p.relation(b, e.RangeVar))
	case *pg.Node_RangeSubselect:
		r := newRef(e.RangeSubselect.Alias, "")
		// Only LATERAL subqueries see their neighbours; to resolve against them in the others too
		// could only add knowledge that PostgreSQL would reject as an error.
		r.body = p.query(e.RangeSubselect.Subquery, b)
		p.bodies = append(p.bodies, r)
		b.refs = append(b.refs, r)
		return leafTree(r)
	case *pg.Node_JoinExpr:
		return p.joinItem(b, e.JoinExpr)
	case *pg.Node_RangeTableSample:
		p.expressions(b, e.RangeTableSample.Args...)
		return p.fromItem(b, e.RangeTableSample.Relation)
	}
	r := newRef(nil, "")
	r.unknown = true
	if f := n.GetRangeFunction(); f != nil {
		r = newRef(f.Alias, "")
		r.unknown = true
		if f.Alias == nil && len(f.Functions) == 1 {
			if items := f.Functions[0].GetList().GetItems(); len(items) > 0 {
				if call := items[0].GetFuncCall(); call != nil && len(call.Funcname) > 0 {
					r.alias = call.Funcname[len(call.Funcname)-1].GetString_().GetSval()
				}
			}
		}
	}
	p.expressions(b, n)
	b.refs = append(b.refs, r)
	return leafTree(r)
}

func newRef(alias *pg.Alias, name string) *ref {
	r := &ref{alias: name}
	if alias != nil {
		r.alias = alias.Aliasname
		for _, c := range alias.Colnames {
			r.aliases = append(r.aliases, c.GetString_().GetSval())
		}
	}
	return r
}

func (p *planner) joinItem(b *block, j *pg.JoinExpr) *joinTree {
	l := p.fromItem(b, j.Larg)
	r := p.fromItem(b, j.Rarg)
	t := &joinTree{kind: j.Jointype, left: l, right: r, cond: j.Quals, refs: union(l.refs, r.refs)}
	names := make([]string, 0, len(j.UsingClause))
	for _, u := range j.UsingClause {
		names = append(names, u.GetString_().GetSval())
	}
	if j.IsNatural {
		names = commonNames(b, l, r)
	}
	for _, name := range names {
		p.mergeColumn(b, t, name)
	}
	if j.Alias != nil {
		// The alias hides the names below; nothing is resolved through it.
		hidden := &ref{alias: j.Alias.Aliasname, unknown: true}
		b.refs = append(b.refs, hidden)
	}
	if j.Quals != nil {
		p.expressions(b, j.Quals)
	}
	return t
}

func findIn(b *block, t *joinTree, name string) *column {
	if c, ok := b.merged[name]; ok && c != nil && t.refs[c.ref] {
		return c
	}
	var hit *column
	for _, r := range b.refs {
		if !t.refs[r] {
			continue
		}
		if i := r.find(name); i >= 0 {
			if hit != nil {
				return nil
			}
			hit = &column{r, i}
		}
	}
	return hit
}

func commonNames(b *block, l, r *joinTree) []string {
	var names []string
	for _, lr := range b.refs {
		if !l.refs[lr] {
			continue
		}
		for i := range lr.width() {
			if name := lr.columnName(i); findIn(b, r, name) != nil {
				names = append(names, name)
			}
		}
	}
	return names
}

// mergeColumn handles one column of USING: an equality, and a name for both sides.
func (p *planner) mergeColumn(b *block, t *joinTree, name string) {
	l, r := findIn(b, t.left, name), findIn(b, t.right, name)
	if b.merged == nil {
		b.merged = map[string]*column{}
	}
	if l == nil || r == nil {
		b.merged[name] = nil
		return
	}
	if p.equalsIsBuiltin && comparable(*l, *r, p) {
		t.using = append(t.using, equality{left: *l, right: r})
	}
	switch t.kind {
	case pg.JoinType_JOIN_RIGHT:
		b.merged[name] = r
	case pg.JoinType_JOIN_FULL:
		b.merged[name] = nil
	default:
		b.merged[name] = l
	}
}

// joinEdges adds what the joins say to the graph. rejected are refs whose all-NULL rows cannot
// pass what stands above, which makes outer joins over them inner ones.
func (p *planner) joinEdges(b *block, t *joinTree, rejected map[*ref]bool) {
	if t == nil || t.leaf != nil {
		return
	}
	eqs := append(p.equalities(b, t.cond), t.using...)
	kind := reduced(t, rejected)
	below := map[*ref]bool{}
	for _, e := range eqs {
		below[e.left.ref] = true
		if e.right != nil {
			below[e.right.ref] = true
		}
	}
	switch kind {
	case pg.JoinType_JOIN_INNER:
		p.addEqualities(t.refs, eqs)
		both := union(rejected, below)
		p.joinEdges(b, t.left, both)
		p.joinEdges(b, t.right, both)
	case pg.JoinType_JOIN_LEFT:
		p.outerEdges(b, t.left, t.right, eqs, rejected, below)
	case pg.JoinType_JOIN_RIGHT:
		p.outerEdges(b, t.right, t.left, eqs, rejected, below)
	default:
		markNullable(b, t.left)
		markNullable(b, t.right)
		p.joinEdges(b, t.left, nil)
		p.joinEdges(b, t.right, nil)
	}
}

// outerEdges handles preserved LEFT JOIN nullable: the condition restricts the nullable side only.
func (p *planner) outerEdges(b *block, preserved, nullable *joinTree, eqs []equality, rejected, below map[*ref]bool) {
	markNullable(b, nullable)
	for _, e := range eqs {
		switch {
		case e.right == nil:
			if nullable.refs[e.left.ref] {
				p.graph.constant(e.left, e.ops)
			}
		case nullable.refs[e.left.ref] && nullable.refs[e.right.ref]:
			p.graph.equal(e.left, *e.right)
		case nullable.refs[e.right.ref]:
			p.graph.directed(e.left, *e.right)
		case nullable.refs[e.left.ref]:
			p.graph.directed(*e.right, e.left)
		}
	}
	p.joinEdges(b, preserved, rejected)
	p.joinEdges(b, nullable, union(rejected, below))
}

func markNullable(b *block, t *joinTree) {
	if b.nullable == nil {
		b.nullable = map[*ref]bool{}
	}
	for r := range t.refs {
		b.nullable[r] = true
	}
}

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

// addEqualities records facts that hold for all rows that matter. Columns of outer scopes (not
// in local) can restrict local ones, never the other way round.
func (p *planner) addEqualities(local map[*ref]bool, eqs []equality) {
	for _, e := range eqs {
		switch {
		case e.right == nil:
			if local[e.left.ref] {
				p.graph.constant(e.left, e.ops)
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
