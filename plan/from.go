package plan

import (
	"maps"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// joinTree is the shape of a FROM clause: leaves are refs.
type joinTree struct {
	kind        pg.JoinType
	left, right *joinTree
	cond        *pg.Node
	scope       *block // what names in cond mean
	using       []condition
	leaf        *ref
	refs        map[*ref]bool // all leaves below
	// visible are the refs that names above can mean; columns is what * stands for, in order.
	visible []*ref
	columns []joinColumn
	merged  map[string]*column
	// open is set when columns is not the whole list.
	open bool
}

// joinColumn is a column of a FROM item; column is nil when it is not plainly one column below.
type joinColumn struct {
	name   string
	column *column
}

func leafTree(r *ref) *joinTree {
	t := &joinTree{leaf: r, refs: map[*ref]bool{r: true}, visible: []*ref{r}, open: r.unknown}
	for i := range r.width() {
		t.columns = append(t.columns, joinColumn{r.columnName(i), r.at(i)})
	}
	return t
}

// from builds the refs and the join tree of a FROM list; items of the list are joined inner.
func (p *planner) from(b *block, items []*pg.Node) *joinTree {
	var tree *joinTree
	for _, item := range items {
		t := p.fromItem(b, item)
		b.items = append(b.items, t)
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
	maps.Copy(u, a)
	maps.Copy(u, b)
	return u
}

func (p *planner) fromItem(b *block, n *pg.Node) *joinTree {
	switch e := n.GetNode().(type) {
	case *pg.Node_RangeVar:
		r := p.relation(b, e.RangeVar)
		r.node = n
		p.items = append(p.items, r)
		return leafTree(r)
	case *pg.Node_RangeSubselect:
		r := p.subselect(b, e.RangeSubselect)
		r.node, r.lateral = n, e.RangeSubselect.Lateral
		p.items = append(p.items, r)
		return leafTree(r)
	case *pg.Node_JoinExpr:
		return p.joinItem(b, e.JoinExpr)
	case *pg.Node_RangeTableSample:
		p.expressions(b, e.RangeTableSample.Args...)
		p.expressions(b, e.RangeTableSample.Repeatable)
		t := p.fromItem(b, e.RangeTableSample.Relation)
		t.leaf.sample = n
		return t
	}
	r := &ref{unknown: true, owner: b, node: n}
	if f := n.GetRangeFunction(); f != nil {
		r.alias = functionAlias(f)
	} else if f := n.GetRangeTableFunc(); f != nil {
		r.alias = f.Alias.GetAliasname()
	} else if f := n.GetJsonTable(); f != nil {
		r.alias = f.Alias.GetAliasname()
	}
	p.expressions(b, n)
	p.items = append(p.items, r)
	b.refs = append(b.refs, r)
	return leafTree(r)
}

// functionAlias is the name of a function in FROM: its alias, or its own name.
func functionAlias(f *pg.RangeFunction) string {
	if f.Alias != nil || len(f.Functions) != 1 {
		return f.Alias.GetAliasname()
	}
	items := f.Functions[0].GetList().GetItems()
	if len(items) == 0 {
		return ""
	}
	name := items[0].GetFuncCall().GetFuncname()
	if len(name) == 0 {
		return ""
	}
	return name[len(name)-1].GetString_().GetSval()
}

// subselect plans a subquery in FROM; only LATERAL ones see what stands to their left.
func (p *planner) subselect(b *block, s *pg.RangeSubselect) *ref {
	r := newRef(b, s.Alias, "")
	scope := b
	if !s.Lateral {
		scope = b.outside()
	}
	r.body = p.query(s.Subquery, scope)
	r.unknown = r.body.holes
	p.bodies = append(p.bodies, r)
	b.refs = append(b.refs, r)
	return r
}

func newRef(owner *block, alias *pg.Alias, name string) *ref {
	r := &ref{alias: name, owner: owner}
	if alias != nil {
		r.alias = alias.Aliasname
		for _, c := range alias.Colnames {
			r.aliases = append(r.aliases, c.GetString_().GetSval())
		}
	}
	return r
}

func (p *planner) joinItem(b *block, j *pg.JoinExpr) *joinTree {
	start, before := len(b.refs), maps.Clone(b.merged)
	l := p.fromItem(b, j.Larg)
	r := p.fromItem(b, j.Rarg)
	t := &joinTree{kind: j.Jointype, left: l, right: r, cond: j.Quals, refs: union(l.refs, r.refs), open: l.open || r.open}
	t.visible = append(append(t.visible, l.visible...), r.visible...)
	t.merged = map[string]*column{}
	maps.Copy(t.merged, l.merged)
	maps.Copy(t.merged, r.merged)
	names := make([]string, 0, len(j.UsingClause))
	for _, u := range j.UsingClause {
		names = append(names, u.GetString_().GetSval())
	}
	if j.IsNatural {
		names = naturalNames(l, r)
	}
	for _, name := range names {
		p.mergeColumn(t, name)
	}
	t.addRest(names)
	if len(t.merged) > 0 {
		if b.merged == nil {
			b.merged = map[string]*column{}
		}
		maps.Copy(b.merged, t.merged)
	}
	t.scope = &block{parent: b.parent, ctes: b.ctes, refs: t.visible, merged: t.merged}
	p.expressions(t.scope, j.Quals)
	if j.JoinUsingAlias != nil {
		u := &ref{alias: j.JoinUsingAlias.Aliasname, unknown: true, onlyQualified: true, owner: b}
		b.refs = append(b.refs, u)
		t.visible = append(t.visible, u)
	}
	if j.Alias != nil {
		b.refs, b.merged = b.refs[:start], before
		t.rename(newRef(b, j.Alias, ""))
		b.refs = append(b.refs, t.visible...)
	}
	return t
}

// rename puts one ref in the place of all that were visible: an alias hides what it stands for.
func (t *joinTree) rename(r *ref) {
	r.join, r.unknown = t.columns, t.open
	if r.join == nil {
		r.join = []joinColumn{}
	}
	t.visible, t.merged = []*ref{r}, nil
	columns := make([]joinColumn, 0, r.width())
	for i := range r.width() {
		columns = append(columns, joinColumn{r.columnName(i), r.at(i)})
	}
	t.columns = columns
}

// addRest completes the columns of a join: after the merged ones the left ones, then the right ones.
func (t *joinTree) addRest(merged []string) {
	gone := map[string]bool{}
	for _, name := range merged {
		gone[name] = true
		t.columns = append(t.columns, joinColumn{name, t.merged[name]})
	}
	for _, side := range []*joinTree{t.left, t.right} {
		for _, c := range side.columns {
			if !gone[c.name] {
				t.columns = append(t.columns, c)
			}
		}
	}
}

// find returns the column of a name; nil when there is none or several.
func (t *joinTree) find(name string) (c *column, found bool) {
	hits := 0
	for _, jc := range t.columns {
		if jc.name == name {
			c = jc.column
			hits++
		}
	}
	if hits != 1 {
		return nil, hits > 0
	}
	return c, true
}

// naturalNames lists the names that both sides have. Where a side is not known, every name of the
// other may be merged.
func naturalNames(l, r *joinTree) []string {
	var names []string
	seen := map[string]bool{}
	add := func(columns []joinColumn, other *joinTree) {
		for _, c := range columns {
			if _, common := other.find(c.name); (common || other.open) && !seen[c.name] {
				seen[c.name] = true
				names = append(names, c.name)
			}
		}
	}
	add(l.columns, r)
	if l.open {
		add(r.columns, l)
	}
	return names
}

// mergeColumn handles one column of USING: an equality, and a name for both sides.
func (p *planner) mergeColumn(t *joinTree, name string) {
	l, _ := t.left.find(name)
	r, _ := t.right.find(name)
	if l != nil && r != nil && p.comparable(*l, *r) {
		t.using = append(t.using, condition{left: *l, right: r})
	}
	switch t.kind {
	case pg.JoinType_JOIN_INNER, pg.JoinType_JOIN_LEFT:
		t.merged[name] = l
	case pg.JoinType_JOIN_RIGHT:
		t.merged[name] = r
	default:
		t.merged[name] = nil // a full join's is computed from both
	}
	if t.left.open || t.right.open {
		t.merged[name] = nil
	}
}
