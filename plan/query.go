package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// query builds the block of any statement that can stand in a query: SELECT, VALUES, set
// operations, and data-modifying statements in WITH.
func (p *planner) query(n *pg.Node, parent *block) *block {
	switch e := n.GetNode().(type) {
	case *pg.Node_SelectStmt:
		return p.selectBlock(e.SelectStmt, parent)
	case *pg.Node_InsertStmt:
		return p.insert(e.InsertStmt, parent)
	case *pg.Node_UpdateStmt:
		return p.update(e.UpdateStmt, parent)
	case *pg.Node_DeleteStmt:
		return p.delete(e.DeleteStmt, parent)
	case *pg.Node_MergeStmt:
		return p.merge(e.MergeStmt, parent)
	}
	p.fail(refuse("", "this kind of statement cannot be planned inside a query"))
	return &block{parent: parent}
}

func (p *planner) selectBlock(s *pg.SelectStmt, parent *block) *block {
	b := &block{parent: parent, stmt: s}
	p.blocks[s] = b
	p.with(b, s.WithClause)
	if s.Op != pg.SetOperation_SETOP_NONE && s.Op != pg.SetOperation_SET_OPERATION_UNDEFINED {
		p.setOperation(b, s)
		return b
	}
	tree := p.from(b, s.FromClause)
	b.tree = tree
	p.expressions(b, s.TargetList...)
	p.expressions(b, s.WhereClause, s.HavingClause, s.LimitCount, s.LimitOffset)
	p.expressions(b, s.GroupClause...)
	p.expressions(b, s.WindowClause...)
	p.expressions(b, s.SortClause...)
	p.expressions(b, s.DistinctClause...)
	p.values(b, s.ValuesLists)
	p.where(b, tree, s.WhereClause)
	p.outputs(b, s)
	p.locking(b, s.LockingClause)
	return b
}

// locking notes which refs FOR UPDATE and FOR NO KEY UPDATE lock against each other.
func (p *planner) locking(b *block, clauses []*pg.Node) {
	for _, n := range clauses {
		p.writes = true
		c := n.GetLockingClause()
		if c.Strength < pg.LockClauseStrength_LCS_FORNOKEYUPDATE {
			continue // a writer changes all copies, so it meets these on any node
		}
		for _, r := range b.refs {
			if len(c.LockedRels) == 0 || slices.ContainsFunc(c.LockedRels, func(n *pg.Node) bool {
				return n.GetRangeVar().GetRelname() == r.alias
			}) {
				p.locked = append(p.locked, r)
			}
		}
	}
}

// lockedTables are the tables below the locked refs.
func lockedTables(refs []*ref) []*catalog.Table {
	var tables []*catalog.Table
	for _, r := range refs {
		switch {
		case r.table != nil:
			tables = append(tables, r.table)
		case r.body != nil:
			tables = append(tables, lockedTables(r.body.refs)...)
		}
		for _, c := range r.join {
			if c.column != nil {
				tables = append(tables, lockedTables([]*ref{c.column.ref})...)
			}
		}
	}
	return tables
}

func (p *planner) with(b *block, w *pg.WithClause) {
	if w == nil {
		return
	}
	b.ctes = map[string]*cte{}
	items := make([]*cte, len(w.Ctes))
	for i, n := range w.Ctes {
		e := n.GetCommonTableExpr()
		c := &cte{
			expr: e, name: e.Ctename, recursive: w.Recursive, writes: e.Ctequery.GetSelectStmt() == nil,
			extended: e.SearchClause != nil || e.CycleClause != nil,
		}
		for _, a := range e.Aliascolnames {
			c.aliases = append(c.aliases, a.GetString_().GetSval())
		}
		items[i] = c
		if w.Recursive {
			b.ctes[c.name] = c // visible in its own body, and in those before it
		}
	}
	for i, c := range items {
		c.body = p.query(w.Ctes[i].GetCommonTableExpr().Ctequery, b)
		b.ctes[c.name] = c
	}
}

func (p *planner) setOperation(b *block, s *pg.SelectStmt) {
	l, r := p.selectBlock(s.Larg, b), p.selectBlock(s.Rarg, b)
	b.arms = []*block{l, r}
	p.expressions(b, s.LimitCount, s.LimitOffset)
	p.expressions(b, s.SortClause...)
	b.holes = l.holes || r.holes || len(l.outputs) != len(r.outputs)
	open := s.LimitCount == nil && s.LimitOffset == nil
	p.locking(b, s.LockingClause)
	for _, o := range l.outputs {
		b.outputs = append(b.outputs, output{name: o.name, open: open})
	}
}

// outputs lists the columns of a SELECT and says below which of them a restriction may move.
func (p *planner) outputs(b *block, s *pg.SelectStmt) {
	if len(s.ValuesLists) > 0 {
		p.valuesOutputs(b, s.ValuesLists)
		return
	}
	movable := p.movable(b, s)
	for _, n := range s.TargetList {
		t := n.GetResTarget()
		if cr := t.GetVal().GetColumnRef(); cr != nil && isStar(cr) {
			p.star(b, cr, movable)
			continue
		}
		o := output{name: outputName(t), expr: t.Val}
		if c := p.columnOf(b, t.Val); c != nil && c.ref.owner == b {
			o.source = c
			o.open = movable(*c)
		} else {
			o.constants, o.typ = p.constants([]*pg.Node{t.Val})
		}
		b.outputs = append(b.outputs, o)
	}
}

// movable tells for which columns "filter the output" equals "filter the input".
func (p *planner) movable(b *block, s *pg.SelectStmt) func(column) bool {
	never := func(column) bool { return false }
	if s.LimitCount != nil || s.LimitOffset != nil || distinctOn(s) || hasWindow(s) || p.volatileTargets(s) {
		return never
	}
	if !grouped(s) && !p.hasAggregate(s) {
		return func(column) bool { return true }
	}
	keys := map[column]bool{}
	for _, g := range s.GroupClause {
		if c := p.columnOf(b, g); c != nil {
			keys[*c] = true
		} else if i := g.GetAConst().GetIval().GetIval(); i > 0 && int(i) <= len(s.TargetList) {
			if c := p.columnOf(b, s.TargetList[i-1].GetResTarget().GetVal()); c != nil {
				keys[*c] = true
				p.fixed = true // the literal decides the plan
			}
		} else if g.GetGroupingSet() != nil {
			return never
		}
	}
	return func(c column) bool { return keys[c] }
}

func grouped(s *pg.SelectStmt) bool { return len(s.GroupClause) > 0 || s.HavingClause != nil }

func distinctOn(s *pg.SelectStmt) bool {
	return len(s.DistinctClause) > 0 && s.DistinctClause[0].GetNode() != nil
}

func hasWindow(s *pg.SelectStmt) bool {
	if len(s.WindowClause) > 0 {
		return true
	}
	for _, c := range callsOfBlock(s) {
		if c.Over != nil {
			return true
		}
	}
	return false
}

// callsOfBlock lists the function calls in the target list and the sort clause, not those of
// subqueries.
func callsOfBlock(s *pg.SelectStmt) []*pg.FuncCall {
	var out []*pg.FuncCall
	for _, list := range [][]*pg.Node{s.TargetList, s.SortClause, {s.HavingClause}} {
		for _, n := range list {
			if n == nil {
				continue
			}
			analyze.Walk(n, func(m proto.Message) bool {
				if _, sub := m.(*pg.SubLink); sub {
					return false
				}
				if f, ok := m.(*pg.FuncCall); ok {
					out = append(out, f)
				}
				return true
			})
		}
	}
	return out
}

func (p *planner) hasAggregate(s *pg.SelectStmt) bool {
	for _, c := range callsOfBlock(s) {
		if c.AggStar || c.AggDistinct || c.AggWithinGroup || c.AggFilter != nil || len(c.AggOrder) > 0 {
			return true
		}
		for _, f := range p.functions(c) {
			// Built-in names stand for all their overloads, so the kind of some of them counts.
			if f.Kind == 'a' || f.Builtin && aggregateNames[f.Name] {
				return true
			}
		}
	}
	return false
}

func (p *planner) volatileTargets(s *pg.SelectStmt) bool {
	for _, c := range callsOfBlock(s) {
		for _, f := range p.functions(c) {
			if f.Volatility == 'v' {
				return true
			}
		}
	}
	return false
}

func isStar(c *pg.ColumnRef) bool {
	return len(c.Fields) > 0 && c.Fields[len(c.Fields)-1].GetAStar() != nil
}

// star expands * and t.*; merged columns come first and once, as in PostgreSQL.
func (p *planner) star(b *block, c *pg.ColumnRef, movable func(column) bool) {
	columns, known := b.starColumns(c)
	if !known {
		b.holes = true
		b.outputs = append(b.outputs, output{})
		return
	}
	for _, jc := range columns {
		o := output{name: jc.name}
		if jc.column != nil && jc.column.ref.owner == b {
			o.source, o.open = jc.column, movable(*jc.column)
		}
		b.outputs = append(b.outputs, o)
	}
}

// starColumns lists what a star stands for.
func (b *block) starColumns(c *pg.ColumnRef) (columns []joinColumn, known bool) {
	if len(c.Fields) == 1 {
		for _, item := range b.items {
			if item.open {
				return nil, false
			}
			columns = append(columns, item.columns...)
		}
		return columns, true
	}
	var qualifier []string
	for _, f := range c.Fields[:len(c.Fields)-1] {
		qualifier = append(qualifier, f.GetString_().GetSval())
	}
	r := b.qualified(qualifier)
	if r == nil || r.unknown || len(qualifier) > 2 {
		return nil, false
	}
	for i := range r.width() {
		columns = append(columns, joinColumn{r.columnName(i), r.at(i)})
	}
	return columns, true
}

func outputName(t *pg.ResTarget) string {
	if t.Name != "" {
		return t.Name
	}
	if cr := t.Val.GetColumnRef(); cr != nil {
		return cr.Fields[len(cr.Fields)-1].GetString_().GetSval()
	}
	return ""
}

// relation makes the ref of a table, view or CTE reference.
func (p *planner) relation(b *block, rv *pg.RangeVar) *ref {
	r := newRef(b, rv.Alias, rv.Relname)
	b.refs = append(b.refs, r)
	if rv.Schemaname == "" {
		if c := b.lookupCTE(rv.Relname); c != nil {
			p.referCTE(r, c)
			return r
		}
	}
	p.bindTable(r, rv)
	return r
}

func (p *planner) referCTE(r *ref, c *cte) {
	c.refs, r.cte = append(c.refs, r), c
	if len(r.aliases) < len(c.aliases) {
		r.aliases = append(r.aliases, c.aliases[len(r.aliases):]...)
	}
	if c.body == nil || c.extended || c.body.holes { // nil: inside a recursive body
		r.unknown = true
		return
	}
	r.body = c.body
	r.shared = c.recursive || c.writes
	p.bodies = append(p.bodies, r)
	if len(c.refs) > 1 {
		for _, other := range c.refs {
			other.shared = true
		}
	}
}

// maxRefs bounds how far views that use views are planned through.
const maxRefs = 4000

// bindTable resolves a relation name; views become blocks.
func (p *planner) bindTable(r *ref, rv *pg.RangeVar) {
	if p.isTemporary(rv) {
		p.temporary = true
		r.unknown = true
		p.temporaryCode()
		return
	}
	t := p.catalog.Lookup(p.path, rv.Schemaname, rv.Relname)
	if t == nil {
		p.temporaryCode() // it may have been renamed
		p.unknownRelation(rv)
		p.mustExist(rv)
		r.unknown = true
		p.unknownTable = true
		return
	}
	if rv.Alias == nil {
		r.schema = t.Schema
	}
	if t.Kind == catalog.KindView && p.viewMatters(t) {
		p.touchTables([]*catalog.Table{t}) // it may be replaced
		r.body, r.view = p.view(t), t
		r.unknown = r.body.holes
		r.aliases = append(r.aliases, viewNames(t, len(r.aliases))...)
		p.bodies = append(p.bodies, r)
		return
	}
	r.table = t
	p.hiddenRead(t)
	if p.refs = append(p.refs, r); len(p.refs) > maxRefs {
		p.fail(refuse("", "the statement uses too many tables"))
	}
}

func viewNames(t *catalog.Table, from int) []string {
	var names []string
	for i := from; i < len(t.Columns); i++ {
		names = append(names, t.Columns[i].Name)
	}
	return names
}

// view plans through a view's body. Its names are qualified, so no search path applies.
func (p *planner) view(t *catalog.Table) *block {
	tree := p.viewTree(t)
	if p.depth++; tree == nil || p.depth > 64 || len(p.refs) > maxRefs {
		p.fail(refuse("Write its query in place of it.", "view %q has a body that cannot be planned", t.Name))
		return &block{}
	}
	literal := p.literal
	p.literal = nil // literals of the body are not those of the statement
	defer func() { p.literal = literal; p.depth-- }()
	return p.query(tree, nil)
}

// expressions visits expressions for what they hide: subqueries and function calls.
func (p *planner) expressions(b *block, nodes ...*pg.Node) {
	for _, n := range nodes {
		if n == nil {
			continue
		}
		analyze.Walk(n, func(m proto.Message) bool {
			switch e := m.(type) {
			case *pg.SubLink:
				p.sublink(b, e)
				return false
			case *pg.FuncCall:
				p.call(e)
			case *pg.ColumnRef:
				p.qualifiedColumn(b, e)
			case *pg.A_Indirection:
				for _, n := range e.Indirection {
					if s := n.GetString_(); s != nil {
						p.columnCall(s.Sval)
					}
				}
			case *pg.SelectStmt:
				p.selectBlock(e, b)
				return false
			}
			return true
		})
	}
}

func (p *planner) sublink(b *block, s *pg.SubLink) {
	p.expressions(b, s.Testexpr)
	r := &ref{body: p.query(s.Subselect, b)}
	r.unknown = r.body.holes
	p.sublinks[s] = r
	p.bodies = append(p.bodies, r)
	if c := p.columnOf(b, s.Testexpr); c != nil && isIn(s, r) {
		p.memberships = append(p.memberships, membership{*c, r})
	}
}

// membership is x IN (SELECT y ...) anywhere, even under NOT.
type membership struct {
	x column
	y *ref
}

// isIn reports x IN (SELECT y), and = ANY (SELECT y), with one column.
func isIn(s *pg.SubLink, r *ref) bool {
	return s.SubLinkType == pg.SubLinkType_ANY_SUBLINK && (s.OperName == nil || operatorName(s.OperName) == "=") &&
		r != nil && !r.unknown && len(r.body.outputs) == 1
}

// linkMemberships: for x IN (SELECT y ...) only rows with y = x matter. Since the answer minds
// NULLs (and NULL IN of nothing is false), neither side may become NULL in an outer join.
func (p *planner) linkMemberships() {
	for _, m := range p.memberships {
		y := column{m.y, 0}
		if p.neverExtended(m.x) && p.neverExtended(y) && p.comparable(m.x, y) {
			p.graph.directed(m.x, y)
		}
	}
}

// member reads x IN (SELECT y ...) where it must be true: x is one of the y.
func (p *planner) member(b *block, s *pg.SubLink) []condition {
	r := p.sublinks[s]
	if !isIn(s, r) {
		return nil
	}
	c := p.columnOf(b, s.Testexpr)
	if c == nil || !p.comparable(*c, column{r, 0}) {
		return nil
	}
	return []condition{{left: *c, right: &column{r, 0}}}
}

// linkBodies connects the outputs of subqueries with the columns they come from.
func (p *planner) linkBodies() {
	for _, r := range p.bodies {
		p.linkBody(r, r.body, r.shared)
	}
}

func (p *planner) linkBody(r *ref, body *block, shared bool) {
	if body.holes {
		return
	}
	if len(body.arms) == 2 {
		for _, arm := range body.arms {
			armRef := &ref{body: arm, unknown: arm.holes}
			for i, o := range body.outputs {
				if o.open && !shared {
					p.graph.directed(column{r, i}, column{armRef, i})
				}
			}
			p.linkBody(armRef, arm, shared)
		}
		return
	}
	for i, o := range body.outputs {
		if len(o.constants) > 0 {
			p.graph.constant(column{r, i}, o.constants)
		}
		if o.source == nil {
			continue
		}
		p.graph.directed(*o.source, column{r, i})
		if o.open && !shared {
			p.graph.directed(column{r, i}, *o.source)
		}
	}
}

func (p *planner) values(b *block, lists []*pg.Node) {
	for _, l := range lists {
		p.expressions(b, l.GetList().GetItems()...)
	}
}
