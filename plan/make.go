package plan

import (
	"errors"
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
	// Sizes tells how large a table is; nil: nobody knows, and rows are only gathered.
	Sizes func(*catalog.Table) (Size, bool)
	// Temporary reports the names of the session's temporary tables.
	Temporary func(name string) bool
	// TemporaryCode is the DDL of temporary objects that may run code with a use of them.
	TemporaryCode []TemporaryDDL
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
	tempCode []TemporaryDDL
	maxParam int

	graph    *graph
	refs     []*ref // base tables
	bodies   []*ref // subqueries, views, CTEs
	items    []*ref // all items of FROM clauses
	blocks   map[*pg.SelectStmt]*block
	targets  []*ref
	sublinks map[*pg.SubLink]*ref
	rows     map[*ref][]*rowCondition
	newKeys  []Pin
	newRows  []newRow
	rekeys   []rekey
	settled  map[*ref]bool // targets whose new rows are pinned by newKeys or newRows
	rekeyed  map[*ref]bool // targets whose key is assigned
	nullable map[*ref]bool // refs that an outer join may turn into NULL
	locked   []*ref
	eval     []string
	depth    int

	memberships []membership
	// stored are distributed tables that get keys which are not known before the statement runs.
	stored []*catalog.Table
	// alone: all tables are planned as local ones, because there is one node.
	alone bool

	writes       bool
	temporary    bool
	unknownTable bool
	unknown      Names
	fixed        bool
	homeOnly     string // a function whose effect is on the home node only
	routines     []*catalog.Function
	looked       map[hiddenUse]bool
	keyed        []Pin // calls of functions that run where their key is
	routed       bool  // they decide where the statement runs
	exchanging   bool  // several nodes are no reason to refuse
	plan         *Plan
	err          error
}

// Make plans one statement. The statement's tree may be changed: it must not be used again.
func Make(in Input) (Result, error) {
	var spare *pg.Node
	if oneNode(in.Map) {
		spare = proto.Clone(in.Statement.Tree).(*pg.Node)
	}
	text := in.Statement.Text
	p := newPlanner(&in)
	p.statement(in.Statement)
	p.plan.Unknown = p.unknown.ifAny(spare != nil || in.Statement.Class == analyze.DDL || in.Statement.Class == analyze.NodeWise)
	if p.err != nil && spare != nil && p.standsAlone(in.Statement.Class) {
		again := *in.Statement
		again.Tree = spare
		in.Statement = &again
		if q := newPlanner(&in); q.asLocal(&again) {
			q.touch(p.refs) // views are not planned through again
			p = q
		}
	}
	if r := (*Refusal)(nil); errors.As(p.err, &r) && r.several {
		return p.overNodes(in, text)
	}
	if p.err != nil {
		return Result{}, p.err
	}
	return Result{Plan: p.plan, Fixed: p.fixed || p.plan.Rewrite != nil || in.Literal == nil}, nil
}

// overNodes plans a statement that no single node can run.
func (p *planner) overNodes(in Input, text string) (Result, error) {
	e, err := MakeExchange(in, text)
	if err != nil {
		return Result{}, err
	}
	p.plan = SpreadOf(p.plan, e, p.plan.Epoch)
	p.plan.Writes = p.writes || slices.ContainsFunc(e.Fragments, func(f Fragment) bool { return f.Locks })
	if in.Statement.Class == analyze.CreateAs {
		err = p.createFrom(text)
	}
	return Result{Plan: p.plan, Fixed: true}, err
}

// SpreadOf is a plan with an exchange in the place of its route.
func SpreadOf(p *Plan, e *Exchange, epoch uint64) *Plan {
	out := *p
	out.Kind, out.Exchange, out.Pins, out.Rewrite, out.Epoch = Spread, e, nil, nil, epoch
	// The plan for one node may have been given up before all tables were seen.
	out.Tables = slices.Clone(p.Tables)
	for _, oid := range e.tables {
		if !slices.Contains(out.Tables, oid) {
			out.Tables = append(out.Tables, oid)
		}
	}
	return &out
}

func newPlanner(in *Input) *planner {
	return &planner{
		catalog: in.Catalog, m: in.Map, path: in.Path, params: in.Params,
		literal: in.Literal, isTemp: in.Temporary, tempCode: in.TemporaryCode, maxParam: maxParam(in.Statement.Tree),
		graph: newGraph(), sublinks: map[*pg.SubLink]*ref{}, settled: map[*ref]bool{}, rekeyed: map[*ref]bool{},
		nullable: map[*ref]bool{}, rows: map[*ref][]*rowCondition{}, blocks: map[*pg.SelectStmt]*block{},
		plan: &Plan{Epoch: in.Map.Epoch},
	}
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
	if r := (*Refusal)(nil); p.exchanging && errors.As(err, &r) && r.several {
		return // that is what an exchange is for
	}
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
		p.plan.Steady = p.steady(s.Tree)
	case analyze.Explain:
		p.explain(s.Tree.GetExplainStmt())
	case analyze.Declare:
		d := s.Tree.GetDeclareCursorStmt()
		p.dml(d.Query)
		if p.plan.Kind != Route {
			p.fail(refuse("", "a cursor over a function that changes the schema is not supported"))
		}
		const cursorHold = 0x0020 // CURSOR_OPT_HOLD
		if d.Options&cursorHold != 0 {
			p.plan.Hold = "cursor with hold"
		}
	default:
		p.utility(s)
	}
}

// explain plans what is explained. With ANALYZE it runs, so it must not be more than a query.
func (p *planner) explain(e *pg.ExplainStmt) {
	if p.explainPlacing(e) {
		return
	}
	inner := e.Query
	switch q := e.Query.GetNode().(type) {
	case *pg.Node_SelectStmt, *pg.Node_InsertStmt, *pg.Node_UpdateStmt, *pg.Node_DeleteStmt, *pg.Node_MergeStmt:
	case *pg.Node_DeclareCursorStmt:
		inner = q.DeclareCursorStmt.Query
	case *pg.Node_CreateTableAsStmt:
		inner = q.CreateTableAsStmt.Query
	case *pg.Node_RefreshMatViewStmt:
		p.refresh(q.RefreshMatViewStmt)
		p.plan.Kind, p.plan.Lent, p.plan.OtherText = Route, nil, "" // it has no plan to show, and does not run
		return
	default:
		p.plan.Kind = Route
		return
	}
	creates := e.Query.GetCreateTableAsStmt() != nil || inner.GetSelectStmt().GetIntoClause() != nil
	if creates && analyzes(e) {
		p.fail(refuse("Leave ANALYZE out.", "EXPLAIN ANALYZE of a statement that creates a table is not supported"))
		return
	}
	if inner.GetExecuteStmt() != nil {
		p.plan.Kind = Route
		return
	}
	p.dml(inner)
	if p.err != nil || p.plan.Kind == Route && p.plan.Rewrite == nil {
		return
	}
	if text, err := analyze.Deparse(inner); err == nil && p.plan.Kind == Every && !p.plan.Schema && !analyzes(e) {
		p.plan.Kind, p.plan.Exchange, p.plan.Rewrite = Spread, &Exchange{Same: text}, nil
		return
	}
	p.fail(refuseSeveral("Give the key as a value.", "EXPLAIN of a statement whose values are computed beforehand is not supported"))
}

// analyzes reports EXPLAIN ANALYZE.
func analyzes(e *pg.ExplainStmt) bool {
	return slices.ContainsFunc(e.Options, func(o *pg.Node) bool { return o.GetDefElem().GetDefname() == "analyze" })
}

// dml plans a query or a write.
func (p *planner) dml(n *pg.Node) {
	p.query(n, nil)
	if p.err != nil {
		return
	}
	p.linkBodies()
	p.linkMemberships()
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
	if len(p.keyed) > 0 {
		p.routeKeyed(distributed, local)
		return
	}
	if p.writesReference() {
		p.everyNode(n, distributed, local)
		return
	}
	p.checkRoutines(len(distributed) > 0)
	if len(distributed) == 0 {
		p.plan.AnyNode = len(reference) > 0 && len(local) == 0 && !p.temporary && !p.unknownTable && !p.writes &&
			len(p.routines) == 0 && p.homeOnly == ""
		return
	}
	if len(local) > 0 || p.temporary || p.unknownTable {
		p.fail(p.mixed(distributed, local))
		return
	}
	if p.locksCopies() || p.atCursor(n, distributed) {
		return
	}
	p.pin(distributed)
	p.finishRewrite(n)
}

// locksCopies refuses to lock one node's copy of a reference table's rows: two sessions could lock
// the copies of two nodes.
func (p *planner) locksCopies() bool {
	for _, t := range lockedTables(p.locked) {
		if p.placed(t).placement == catalog.Reference {
			p.fail(refuse("Name the distributed tables: FOR UPDATE OF table.",
				"locking rows of reference table %q together with distributed tables is not supported", t.Name))
			return true
		}
	}
	return false
}

func (p *planner) mixed(distributed, local []*ref) error {
	other := "a temporary or unknown table"
	if len(local) > 0 {
		other = "local table " + quoted(local[0].table)
	}
	r := refuse("Make the local table a reference table with create_reference_table(), or distribute it by the same key.",
		"a statement over distributed table %s and %s is not supported yet", quoted(distributed[0].table), other)
	r.several = true
	return r
}

func quoted(t *catalog.Table) string { return `"` + t.Name + `"` }

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
	return slices.ContainsFunc(p.targets, p.isReference)
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
	keys         []int
	// entry is the key of a table whose schema is its key.
	entry *uint64
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
	if p.alone {
		return placed{}
	}
	pl := placed{placement: root.Placement, distribution: root.Distribution}
	if root.Placement != catalog.Distributed {
		return pl
	}
	if len(root.Key) == 0 {
		pl.entry = &root.Entry
		return pl
	}
	if root == t {
		pl.keys = root.Key
		return pl
	}
	for _, k := range root.Key {
		pl.keys = append(pl.keys, t.Column(root.Columns[k].Name))
	}
	return pl
}

func (p *planner) isTemporary(rv *pg.RangeVar) bool {
	if rv.Relpersistence == "t" || strings.HasPrefix(rv.Schemaname, "pg_temp") {
		return true
	}
	return rv.Schemaname == "" && p.isTemp != nil && p.isTemp(rv.Relname) && !p.beforeTemporary(rv.Relname)
}

// beforeTemporary reports a relation that hides a temporary one of its name: these come first, unless the search path gives
// them another place.
func (p *planner) beforeTemporary(name string) bool {
	at := slices.Index(p.path, "pg_temp")
	return at >= 0 && p.catalog.Lookup(p.path[:at], "", name) != nil
}
