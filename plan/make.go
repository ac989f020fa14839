package plan

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// Input is everything a plan depends on.
type Input struct {
	Statement *analyze.Statement
	Catalog   *catalog.Catalog
	Map       *keyspace.Map
	// Path is the session's search path, resolved ("$user" replaced, missing schemas kept).
	Path []string
	// Params are the OIDs of the statement's parameters, 0 where nobody knows.
	Params []uint32
	// Literal tells which literal of the normalised text stands at a byte of the statement's
	// original text, and whether a minus sign belongs to it. Nil: the plan is for this text only.
	Literal func(location int) (index int, negate, ok bool)
	// Temporary reports the names of the session's temporary tables.
	Temporary func(name string) bool
}

// Result is a plan, and whether it is only good for the very text it was made from.
type Result struct {
	Plan  *Plan
	Fixed bool
}

// firstUserOID is where the OIDs of objects made after initdb begin.
const firstUserOID = 16384

// planner holds the state of making one plan.
type planner struct {
	catalog  *catalog.Catalog
	m        *keyspace.Map
	path     []string
	params   []uint32
	literal  func(int) (int, bool, bool)
	isTemp   func(string) bool
	maxParam int

	graph    *graph
	refs     []*ref // base tables
	bodies   []*ref // subqueries, views, CTEs
	targets  []*ref
	sublinks map[*pg.SubLink]*ref
	newKeys  []Pin
	settled  map[*ref]bool // targets whose new rows are pinned by newKeys
	excluded *ref
	eval     []string
	matters  map[uint32]bool
	depth    int

	equalsIsBuiltin bool
	writes          bool
	temporary       bool
	unknownTable    bool
	fixed           bool
	routines        []*catalog.Function
	plan            *Plan
	err             error
}

// Make plans one statement. The statement's tree may be changed: it must not be used again.
func Make(in Input) (Result, error) {
	p := &planner{
		catalog: in.Catalog, m: in.Map, path: in.Path, params: in.Params,
		literal: in.Literal, isTemp: in.Temporary,
		graph: newGraph(), sublinks: map[*pg.SubLink]*ref{}, settled: map[*ref]bool{}, matters: map[uint32]bool{},
		plan:            &Plan{Epoch: in.Map.Epoch},
		equalsIsBuiltin: len(in.Catalog.EqualOperators()) == 0,
	}
	p.maxParam = maxParam(in.Statement.Tree)
	p.statement(in.Statement)
	if p.err != nil {
		return Result{}, p.err
	}
	return Result{Plan: p.plan, Fixed: p.fixed || p.plan.Rewrite != nil || in.Literal == nil}, nil
}

func maxParam(n *pg.Node) int {
	most := 0
	analyze.Walk(n, func(m proto.Message) bool {
		if r, ok := m.(*pg.ParamRef); ok {
			most = max(most, int(r.Number))
		}
		return true
	})
	return most
}

func (p *planner) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

func (p *planner) statement(s *analyze.Statement) {
	switch s.Class {
	case analyze.Query:
		if p.shoalFunction(s.Tree) {
			return
		}
		p.dml(s.Tree)
	case analyze.Explain:
		p.explain(s.Tree.GetExplainStmt())
	case analyze.Declare:
		d := s.Tree.GetDeclareCursorStmt()
		p.dml(d.Query)
		const cursorHold = 0x0020 // CURSOR_OPT_HOLD
		if d.Options&cursorHold != 0 {
			p.plan.Hold = "cursor with hold"
		}
	default:
		p.utility(s)
	}
}

func (p *planner) explain(e *pg.ExplainStmt) {
	switch q := e.Query.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
		p.dml(e.Query)
		if p.plan.Kind != Route || p.plan.Rewrite != nil {
			p.fail(refuse("Give the key as a value.", "EXPLAIN of a statement whose values are computed beforehand is not supported"))
		}
	case *pg.Node_CreateTableAsStmt:
		p.dml(q.CreateTableAsStmt.Query)
	default:
		p.plan.Kind = Route
	}
}

// dml plans a query or a write.
func (p *planner) dml(n *pg.Node) {
	p.query(n, nil)
	if p.err != nil {
		return
	}
	p.linkBodies()
	p.graph.spread()
	p.decide(n)
}

// decide chooses the plan from the tables that were found.
func (p *planner) decide(n *pg.Node) {
	var distributed, reference, local []*ref
	for _, r := range p.refs {
		switch p.placed(r.table).placement {
		case catalog.Distributed:
			distributed = append(distributed, r)
		case catalog.Reference:
			reference = append(reference, r)
		default:
			local = append(local, r)
		}
	}
	p.plan.Kind, p.plan.Writes = Route, p.writes
	p.touch(distributed, reference, local)
	if p.writesReference() {
		p.everyNode(n, distributed, local)
		return
	}
	p.checkRoutines(len(distributed) > 0)
	if len(distributed) == 0 {
		p.plan.AnyNode = len(reference) > 0 && len(local) == 0 && !p.temporary && !p.unknownTable && !p.writes && len(p.routines) == 0
		return
	}
	if len(local) > 0 || p.temporary || p.unknownTable {
		p.fail(p.mixed(distributed, local))
		return
	}
	p.pin(distributed)
	p.finishRewrite(n)
}

func (p *planner) mixed(distributed, local []*ref) error {
	other := "a temporary or unknown table"
	if len(local) > 0 {
		other = "local table " + quoted(local[0].table)
	}
	return refuse("Make the local table a reference table with create_reference_table(), or distribute it by the same key.",
		"a statement over distributed table %s and %s is not supported yet", quoted(distributed[0].table), other)
}

func quoted(t *catalog.Table) string { return `"` + t.Name + `"` }

// pin demands a key for every distributed table.
func (p *planner) pin(distributed []*ref) {
	for _, r := range distributed {
		if p.settled[r] {
			continue
		}
		key := p.keyColumn(r)
		ops, ok := p.graph.consts[*key]
		if !ok {
			p.fail(p.unpinned(r))
			return
		}
		kt, _ := p.keyType(*key)
		place := p.placed(r.table)
		p.addPin(Pin{
			Distribution: place.distribution, Type: kt, Operands: ops,
			Column: r.table.Name + "." + r.table.Columns[place.key].Name,
		})
	}
	for _, pin := range p.newKeys {
		p.addPin(pin)
	}
}

// addPin leaves out a pin that says the same as another.
func (p *planner) addPin(pin Pin) {
	same := func(q Pin) bool {
		return q.Distribution == pin.Distribution && slices.Equal(q.Operands, pin.Operands) && q.Insert == pin.Insert
	}
	if !slices.ContainsFunc(p.plan.Pins, same) {
		p.plan.Pins = append(p.plan.Pins, pin)
	}
}

func (p *planner) unpinned(r *ref) error {
	place := p.placed(r.table)
	col := r.table.Columns[place.key].Name
	return refuse("Add a condition "+QuoteIdent(col)+" = value (or IN, or = ANY) for every distributed table, or join on the key.",
		"this statement needs rows of distributed table %q from several nodes, which is not supported yet", r.table.Name)
}

// touch lists the tables whose fences concern the statement. Local tables count too, because they
// can become distributed; those of the system cannot.
func (p *planner) touch(lists ...[]*ref) {
	for _, l := range lists {
		for _, r := range l {
			oid := p.root(r.table).OID
			if oid >= firstUserOID && !slices.Contains(p.plan.Tables, oid) {
				p.plan.Tables = append(p.plan.Tables, oid)
			}
		}
	}
}

func (p *planner) writesReference() bool {
	return slices.ContainsFunc(p.targets, func(r *ref) bool {
		return r.table != nil && p.placed(r.table).placement == catalog.Reference
	})
}

// everyNode plans a write to a reference table: the same statement on all nodes must have the
// same effect on all of them.
func (p *planner) everyNode(n *pg.Node, distributed, local []*ref) {
	name := p.targets[0].table.Name
	if len(distributed)+len(local) > 0 || p.temporary || len(p.targets) > 1 {
		p.fail(refuse("Write constants, or read from reference tables only.",
			"a write to reference table %q that reads other tables is not supported yet", name))
		return
	}
	p.checkRoutines(true)
	p.addDefaults(n, p.targets[0].table)
	p.hoist(n, name)
	if sel := n.GetInsertStmt().GetSelectStmt().GetSelectStmt(); sel != nil && sel.LimitCount != nil ||
		n.GetMergeStmt() != nil {
		p.fail(refuse("", "this write to reference table %q could differ between nodes", name))
	}
	p.plan.Kind = Every
	p.finishRewrite(n)
}

// addDefaults makes defaults that differ per node visible in the statement, where hoist finds them.
func (p *planner) addDefaults(n *pg.Node, t *catalog.Table) {
	s := n.GetInsertStmt()
	if s == nil {
		return
	}
	names := insertNames(t, s.Cols)
	sel := s.SelectStmt.GetSelectStmt()
	for i := range t.Columns {
		c := &t.Columns[i]
		if c.Generated != 0 || c.Default == "" && c.Identity == 0 || !c.DefaultVolatile && c.Identity == 0 && !p.unstableDefault(c) {
			continue
		}
		at := slices.Index(names, c.Name)
		if sel == nil || len(sel.ValuesLists) == 0 {
			if at < 0 || sel == nil {
				p.fail(refuse("Give all columns of the row.", "the default of column %q of reference table %q is computed per node", c.Name, t.Name))
			}
			continue
		}
		p.fillDefault(s, sel, t, c, at, names)
	}
}

func (p *planner) fillDefault(s *pg.InsertStmt, sel *pg.SelectStmt, t *catalog.Table, c *catalog.Column, at int, names []string) {
	first := sel.ValuesLists[0].GetList().GetItems()
	for row, l := range sel.ValuesLists {
		items := l.GetList()
		if at >= 0 && at < len(first) && items.Items[at].GetSetToDefault() == nil {
			continue
		}
		text := "(" + c.Default + ")::" + c.TypeName
		if c.Identity != 0 {
			text = identityDefault(t, c)
			s.Override = pg.OverridingKind_OVERRIDING_SYSTEM_VALUE
		}
		p.eval = append(p.eval, text)
		param := paramNode(p.maxParam + len(p.eval))
		if at >= 0 && at < len(first) {
			items.Items[at] = param
			continue
		}
		if row == 0 {
			if len(s.Cols) == 0 {
				for _, name := range names[:len(first)] {
					s.Cols = append(s.Cols, pg.MakeResTargetNodeWithName(name, -1))
				}
			}
			s.Cols = append(s.Cols, pg.MakeResTargetNodeWithName(c.Name, -1))
		}
		items.Items = append(items.Items, param)
	}
}

// unstableDefault reports a default like now(), which each node would answer in its own way.
func (p *planner) unstableDefault(c *catalog.Column) bool {
	stmts, err := analyze.Parse("SELECT " + c.Default)
	if err != nil || len(stmts) != 1 {
		return true
	}
	unstable := false
	analyze.Walk(stmts[0].Tree, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pg.FuncCall:
			unstable = unstable || p.differsPerNode(&pg.Node{Node: &pg.Node_FuncCall{FuncCall: e}})
		case *pg.SQLValueFunction:
			unstable = true
		}
		return true
	})
	return unstable
}

func (p *planner) finishRewrite(n *pg.Node) {
	if len(p.eval) == 0 || p.err != nil {
		return
	}
	text, err := analyze.Deparse(n)
	if err != nil {
		p.fail(refuse("", "the statement cannot be written again: %v", err))
		return
	}
	p.plan.Rewrite = &Rewrite{Text: text, Params: p.maxParam, Eval: p.eval}
}

// placed is where a table's rows are; partitions are placed like the table they belong to.
type placed struct {
	placement    catalog.Placement
	distribution uint32
	key          int
}

func (p *planner) root(t *catalog.Table) *catalog.Table {
	for t.IsPartition {
		parent := p.catalog.Table(t.Parent)
		if parent == nil {
			break
		}
		t = parent
	}
	return t
}

func (p *planner) placed(t *catalog.Table) placed {
	root := p.root(t)
	pl := placed{placement: root.Placement, distribution: root.Distribution, key: -1}
	if root.Placement == catalog.Distributed {
		pl.key = t.Column(root.Columns[root.Key[0]].Name)
	}
	return pl
}

// keyColumn is the key of a ref over a distributed table, nil for others. For views it is the
// output that is the key.
func (p *planner) keyColumn(r *ref) *column {
	if r.table != nil {
		if pl := p.placed(r.table); pl.placement == catalog.Distributed {
			return &column{r, pl.key}
		}
		return nil
	}
	if r.body == nil {
		return nil
	}
	for i := range r.body.outputs {
		c := column{r, i}
		if t, at := c.base(); t != nil {
			if pl := p.placed(t); pl.placement == catalog.Distributed && pl.key == at {
				return &c
			}
		}
	}
	return nil
}

func (p *planner) isTemporary(rv *pg.RangeVar) bool {
	if rv.Relpersistence == "t" || strings.HasPrefix(rv.Schemaname, "pg_temp") {
		return true
	}
	return rv.Schemaname == "" && p.isTemp != nil && p.isTemp(rv.Relname)
}

// viewMatters reports views whose body reaches tables that are not local.
func (p *planner) viewMatters(t *catalog.Table) bool {
	if known, ok := p.matters[t.OID]; ok {
		return known
	}
	p.matters[t.OID] = false
	if t.ViewSQL == "" { // a view of the system
		return false
	}
	stmts, err := analyze.Parse(t.ViewSQL)
	if err != nil || len(stmts) != 1 {
		p.matters[t.OID] = true
		return true
	}
	found := false
	for _, rv := range analyze.Relations(stmts[0].Tree) {
		// A CTE's name may hide a table; to look too closely is only slower.
		r := p.catalog.Lookup(p.path, rv.Schemaname, rv.Relname)
		if r == nil {
			continue
		}
		if r.Kind == catalog.KindView && r.OID != t.OID {
			found = found || p.viewMatters(r)
		} else {
			found = found || p.placed(r).placement != catalog.Local
		}
	}
	p.matters[t.OID] = found
	return found
}
