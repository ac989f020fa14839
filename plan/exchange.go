package plan

import (
	"fmt"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// Exchange is the plan of a query whose rows are on several nodes: fragments run where rows are, and the rest
// runs over what they answer. What runs over them is either a merge of the one fragment's rows, or a statement that
// PostgreSQL runs on the home node.
type Exchange struct {
	Fragments []Fragment
	// Final is the statement over the fragments' rows; they are relations with the fragments' names. It is
	// empty when the rows of the one fragment are the answer.
	Final string
	// FinalArrays is Final for few rows: the fragments' columns are array parameters behind those of Eval.
	FinalArrays string
	// FinalReads is set when Final reads more than the fragments' rows: tables of the home node, or code that may read some.
	FinalReads bool
	Merge      Merge
	// Combine is set when each column of the answer comes from the same column of the one fragment, of which every node has one row.
	Combine []Combine
	// Insert is set for an INSERT of rows that go to different nodes; there are no fragments then.
	Insert *InsertRows
	// Feed is set for a write whose rows are computed first; there are no fragments of its own then.
	Feed *Feed
	// Same is set for EXPLAIN of a statement that all nodes run alike.
	Same string
	// Steps are set for a statement whose WITH clause writes: its parts in their order; there is nothing else then.
	Steps []Step
	// CopyEach is set when the fragment is a COPY TO STDOUT of its own: the nodes' data together are the answer.
	CopyEach bool
	// CopyHeader is set when each node's data begin with a header line.
	CopyHeader bool
	// Stored is the same query with its answer stored on one node, for portals that are read piece by piece.
	Stored *Exchange
	// Eval are expressions that are evaluated once, before anything else, so that all nodes use the same value. They
	// are parameters Params+1, Params+2 and so on.
	Eval   []string
	Params int
	// Gathered is the same query without rows that move between nodes, for when they cannot.
	Gathered *Exchange
	// tables are the OIDs of all tables that it touches.
	tables []uint32
}

// Fragment is a piece of a query that runs on each node that has rows for it.
type Fragment struct {
	Name         string
	Text         string
	Distribution uint32
	// Pins say where it runs: on the nodes that one of them leads to.
	Pins []Pin
	// Locks is set when it locks rows, Writes when it changes them.
	Locks, Writes bool
	// Opaque is set when it runs code of users, which may do more than read: aggregates, operators, policies.
	Opaque bool
	// Columns are the names of its columns, known when it has a Name.
	Columns []string
	// Params are the parameters it uses.
	Params map[int]bool
	// Motion is set when its rows are for other fragments; they go to nodes, not into the last step.
	Motion *Motion
	// Uses are the fragments whose moved rows it reads: relations with their names. TextArrays is Text for few
	// rows, with their columns as array parameters behind those of Eval.
	Uses       []int
	TextArrays string
	tree       *pg.SelectStmt
}

// Merge says how the rows of one fragment become the answer.
type Merge struct {
	// Order is how each node sorts its rows; none: rows come in any order.
	Order []SortKey
	// Hidden columns at the end of each row are only there for the order.
	Hidden int
	// Limit and Offset cut the merged rows; the fragments have no more than both together.
	Limit, Offset *Count
}

// SortKey is one column of an order that can be compared here exactly as PostgreSQL does.
type SortKey struct {
	Column     int
	Type       uint32 // OID
	Desc       bool
	NullsFirst bool
}

// Count is a number of rows: a constant or a parameter.
type Count struct {
	Value int64
	Param int
}

// typePlaceholder stands in Final for the type of a fragment's column, which is known when the fragment has been described.
func typePlaceholder(fragment, column int) string {
	return fmt.Sprintf("shoal type %d.%d", fragment+1, column+1)
}

func collationPlaceholder(fragment, column int) string {
	return fmt.Sprintf("shoal collation %d.%d", fragment+1, column+1)
}

// ColumnType is a type in SQL, and the collation when it is not the type's own.
type ColumnType struct{ Name, Collation string }

// WithTypes writes the types of the fragments' columns into one of the final statements.
func (e *Exchange) WithTypes(final string, types [][]ColumnType) string {
	var pairs []string
	for i := range types {
		for j, t := range types[i] {
			collate := ""
			if t.Collation != "" {
				collate = " COLLATE " + t.Collation
			}
			pairs = append(pairs, ` COLLATE "`+collationPlaceholder(i, j)+`"`, collate, `"`+typePlaceholder(i, j)+`"`, t.Name)
		}
	}
	return strings.NewReplacer(pairs...).Replace(final)
}

// MakeExchange plans a query over several nodes, or refuses it. The statement is a query or one that runs a query and
// does something with its rows.
func MakeExchange(in Input, text string) (*Exchange, error) {
	switch in.Statement.Class {
	case analyze.Query, analyze.Explain:
		e, err := makeExchange(in, text, false)
		if err == nil && in.Sizes != nil && (len(e.Fragments) > 1 || e.FinalReads) && e.Feed == nil && e.Insert == nil && !e.writes() {
			if moving := makeMoving(in, text); moving != nil {
				moving.Gathered = e
				return moving, nil
			}
		}
		if err == nil && e.Final == "" && len(e.Fragments) > 0 && !e.Fragments[0].Writes {
			if e.Stored, err = makeExchange(in, text, true); err != nil {
				e.Stored, err = nil, nil
			}
		}
		return e, err
	case analyze.Copy:
		e, err := makeExchange(in, text, false)
		if err != nil || e.Final != "" || e.CopyEach {
			return e, err
		}
	}
	return makeExchange(in, text, true)
}

// OneRead reports a query that asks each node once, and has nothing else to do before.
func (e *Exchange) OneRead() bool {
	return len(e.Fragments) == 1 && len(e.Steps) == 0 && len(e.Eval) == 0 && e.Feed == nil && e.Insert == nil && e.Gathered == nil &&
		e.Same == "" && !e.CopyEach && !e.FinalReads && !e.Fragments[0].Writes
}

// writes reports a fragment that changes or locks rows.
func (e *Exchange) writes() bool {
	return slices.ContainsFunc(e.Fragments, func(f Fragment) bool { return f.Writes || f.Locks })
}

// makeMoving plans a query with rows that move between nodes; nil when none should, or the rest of it does not follow.
func makeMoving(in Input, text string) *Exchange {
	e, err := makeExchanges(in, text, func(x *exchanger) { x.moving = true })
	if err != nil || !slices.ContainsFunc(e.Fragments, func(f Fragment) bool { return f.Motion != nil }) {
		return nil
	}
	return e
}

func makeExchange(in Input, text string, stored bool) (*Exchange, error) {
	return makeExchanges(in, text, func(x *exchanger) { x.stored = stored })
}

func makeExchanges(in Input, text string, how func(*exchanger)) (*Exchange, error) {
	inline := map[uint32]bool{}
	for range 16 { // each turn writes one more level of views in place
		stmts, err := analyze.Parse(text)
		if err != nil || len(stmts) != 1 {
			return nil, refuse("", "the statement cannot be read again: %v", err)
		}
		in.Statement = stmts[0]
		x := newExchanger(in, inline)
		how(x)
		e, err := x.plan()
		if !x.again {
			return e, err
		}
	}
	return nil, refuse("", "the views of this statement are nested too deeply")
}

// exchanger holds the state of making one Exchange.
type exchanger struct {
	in     Input
	p      *planner
	root   *pg.Node
	out    *Exchange
	inline map[uint32]bool // views whose bodies are written in place of them
	again  bool            // a view was added to inline
	usedColumns
	byVar  map[*pg.RangeVar][]*ref
	done   map[*block]bool
	tree   *pg.Node // the statement around root
	stored bool     // all rows are to be on one node in the end
	moving bool     // rows may move between nodes
	moves  map[*ref]*moved
}

func newExchanger(in Input, inline map[uint32]bool) *exchanger {
	in.Literal = nil
	tree := withQuery(in.Statement)
	return &exchanger{
		in: in, p: newPlanner(&in), tree: tree, root: queryOf(tree), out: &Exchange{}, inline: inline,
		byVar: map[*pg.RangeVar][]*ref{}, done: map[*block]bool{},
	}
}

// withQuery gives a statement a query where it has another form for it.
func withQuery(st *analyze.Statement) *pg.Node {
	n := st.Tree
	switch e := n.GetNode().(type) {
	case *pg.Node_SelectStmt:
		if into := e.SelectStmt.IntoClause; into != nil {
			e.SelectStmt.IntoClause = nil
			return &pg.Node{Node: &pg.Node_CreateTableAsStmt{CreateTableAsStmt: &pg.CreateTableAsStmt{
				Query: n, Into: into, Objtype: pg.ObjectType_OBJECT_TABLE,
			}}}
		}
	case *pg.Node_ExplainStmt:
		return queryOf(e.ExplainStmt.Query)
	case *pg.Node_CopyStmt:
		if c := e.CopyStmt; c.Relation != nil {
			s := plainSelect()
			for _, a := range c.Attlist {
				s.TargetList = append(s.TargetList, resTarget("", columnNode(a.GetString_().Sval)))
			}
			if len(s.TargetList) == 0 {
				s.TargetList = []*pg.Node{resTarget("", starNode())}
			}
			c.Relation.Inh = false // as COPY does it
			s.FromClause = []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: c.Relation}}}
			c.Relation, c.Attlist, c.Query = nil, nil, &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: s}}
		}
	}
	return n
}

// queryOf is the query behind the statements that run one.
func queryOf(n *pg.Node) *pg.Node {
	switch e := n.GetNode().(type) {
	case *pg.Node_DeclareCursorStmt:
		return e.DeclareCursorStmt.Query
	case *pg.Node_CopyStmt:
		return e.CopyStmt.Query
	case *pg.Node_CreateTableAsStmt:
		return e.CreateTableAsStmt.Query
	}
	return n
}

func (x *exchanger) plan() (*Exchange, error) {
	p := x.p
	p.exchanging = true
	if currentOf(x.root) != "" {
		return nil, refuse("Find the row by its key.", "WHERE CURRENT OF together with rows of other nodes is not supported")
	}
	x.inlineViews()
	if p.callsKeyed(x.root) {
		return nil, refuse("Call it in a statement of its own.", "a function with a key in a statement over several nodes is not supported")
	}
	x.hoist()
	top := p.query(x.root, nil)
	p.checkRoutines(true)
	if p.err != nil {
		return nil, p.err
	}
	if p.plan.Schema {
		return nil, refuse("Call it in a statement of its own.", "a function that changes the schema, in a query over several nodes, is not supported")
	}
	p.linkBodies()
	p.linkMemberships()
	p.graph.spread()
	x.noteColumns()
	for _, r := range p.items {
		if rv := r.node.GetRangeVar(); rv != nil {
			x.byVar[rv] = append(x.byVar[rv], r)
		}
	}
	if len(p.targets) > 0 {
		x.noSystemColumns()
		x.write(top)
	} else {
		x.top(top)
	}
	if p.err != nil {
		return nil, p.err
	}
	if x.again {
		return nil, nil
	}
	x.out.Eval, x.out.Params = p.eval, p.maxParam
	p.touch(p.refs)
	x.out.tables = p.plan.Tables
	if x.out.Insert != nil || x.out.Feed != nil || x.out.Steps != nil {
		if x.tree != x.root {
			return nil, refuse("Run it as a statement of its own.", "a write that gives rows to several nodes, inside another statement, is not supported")
		}
		return x.out, nil
	}
	if len(x.out.Fragments) == 1 && x.out.Fragments[0].Name == "" {
		return x.out, x.copyEach()
	}
	if err := x.useArrays(); err != nil {
		return nil, err
	}
	if r := x.leftOver(); r != nil {
		return nil, refuse("Run its parts one by one.", "this way of using distributed table %q over several nodes is not supported yet", r.alias)
	}
	final, err := analyze.Deparse(x.tree)
	if err != nil {
		return nil, refuse("", "the statement cannot be written again: %v", err)
	}
	x.out.Final, x.out.FinalReads = final, x.finalReads()
	x.out.FinalArrays, err = x.withArrays()
	if err != nil {
		return nil, refuse("", "the statement cannot be written again: %v", err)
	}
	return x.out, nil
}

// leftOver finds a distributed table that no fragment stands for. The last step would see one node's rows of it: whatever the
// rules above have missed is refused here.
func (x *exchanger) leftOver() *ref {
	for _, rv := range analyze.Relations(x.tree) {
		for _, r := range x.byVar[rv] {
			for _, base := range x.bases(rv) {
				if x.p.placed(base.table).placement == catalog.Distributed {
					return r
				}
			}
		}
	}
	for _, r := range x.p.targets {
		for _, base := range x.targetBases(r) {
			if base.table != nil && x.p.placed(base.table).placement == catalog.Distributed {
				return r
			}
		}
	}
	return nil
}

// finalReads reports a last step whose answer depends on more than its arguments and the fragments' rows.
func (x *exchanger) finalReads() bool {
	for _, rv := range analyze.Relations(x.tree) {
		if !slices.ContainsFunc(x.out.Fragments, func(f Fragment) bool { return f.Name == rv.Relname && rv.Schemaname == "" }) {
			return true
		}
	}
	return slices.ContainsFunc(analyze.Calls(x.tree), func(c *pg.FuncCall) bool {
		return slices.ContainsFunc(x.p.functions(c), func(f *catalog.Function) bool { return !f.Builtin || f.Volatility == 'v' })
	})
}

// withArrays writes the final statement with the fragments as WITH items over array parameters.
func (x *exchanger) withArrays() (string, error) {
	if len(x.out.Fragments) == 0 {
		return x.out.Final, nil
	}
	with := withClause(x.root)
	param := x.out.Params + len(x.out.Eval)
	var items []*pg.Node
	for i, f := range x.out.Fragments {
		if f.Motion == nil {
			items = append(items, x.arrayItem(i, &param))
		}
	}
	with.Ctes = append(items, with.Ctes...)
	return analyze.Deparse(x.tree)
}

// arrayItem is the WITH item that makes rows of a fragment out of array parameters, one for each column; param is the last number
// that is taken.
func (x *exchanger) arrayItem(i int, param *int) *pg.Node {
	f := &x.out.Fragments[i]
	var args, names []*pg.Node
	body := plainSelect()
	alias := &pg.Alias{Aliasname: "u"}
	for j, name := range f.Columns {
		*param++
		array := castNode(paramNode(*param), "pg_catalog", "text")
		array.GetTypeCast().TypeName.ArrayBounds = []*pg.Node{pg.MakeIntNode(-1)}
		args = append(args, pg.MakeListNode([]*pg.Node{callNode("unnest", array), {}}))
		names = append(names, pg.MakeStrNode(name))
		value := castNode(columnNode("u", fragmentColumn(j)), typePlaceholder(i, j))
		body.TargetList = append(body.TargetList, resTarget("", &pg.Node{Node: &pg.Node_CollateClause{CollateClause: &pg.CollateClause{
			Arg: value, Collname: []*pg.Node{pg.MakeStrNode(collationPlaceholder(i, j))},
		}}}))
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(fragmentColumn(j)))
	}
	body.FromClause = []*pg.Node{{Node: &pg.Node_RangeFunction{RangeFunction: &pg.RangeFunction{IsRowsfrom: true, Functions: args, Alias: alias}}}}
	return &pg.Node{Node: &pg.Node_CommonTableExpr{CommonTableExpr: &pg.CommonTableExpr{
		Ctename: f.Name, Aliascolnames: names, Ctematerialized: pg.CTEMaterialize_CTEMaterializeAlways,
		Ctequery: &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: body}},
	}}}
}

// withClause is the WITH clause of a query or a write, made if it has none.
func withClause(n *pg.Node) *pg.WithClause {
	var at **pg.WithClause
	switch e := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		at = &e.InsertStmt.WithClause
	case *pg.Node_UpdateStmt:
		at = &e.UpdateStmt.WithClause
	case *pg.Node_DeleteStmt:
		at = &e.DeleteStmt.WithClause
	case *pg.Node_MergeStmt:
		at = &e.MergeStmt.WithClause
	default:
		at = &n.GetSelectStmt().WithClause
	}
	if *at == nil {
		*at = &pg.WithClause{}
	}
	return *at
}

// copyEach makes the fragment a COPY when the statement is one and rows may come in any order.
func (x *exchanger) copyEach() error {
	c := x.tree.GetCopyStmt()
	if m := &x.out.Merge; c == nil || len(m.Order) > 0 || m.Limit != nil || m.Offset != nil {
		return nil
	}
	text, err := analyze.Deparse(x.tree)
	if err != nil {
		return refuse("", "the statement cannot be written again: %v", err)
	}
	x.out.CopyEach, x.out.Fragments[0].Text = true, text
	for _, o := range c.Options {
		if opt := copyOption(o.GetDefElem(), nil); opt.Name == "header" {
			x.out.CopyHeader = opt.Value != "false" && opt.Value != "off" && opt.Value != "0"
		}
	}
	return nil
}

// hoist evaluates what would be different on each node once beforehand: now() and the like.
func (x *exchanger) hoist() {
	eachExpression(x.root.ProtoReflect(), func(n *pg.Node) bool {
		if n.GetRangeFunction() != nil {
			return false // its rows are not one value
		}
		if x.p.volatility(n) != 's' || hasColumnOrSubquery(n) || hasParam(n) || !x.oneValue(n.GetFuncCall()) {
			return true
		}
		text, err := deparseExpression(n)
		if err != nil {
			return true
		}
		x.p.eval = append(x.p.eval, text)
		n.Node = paramNode(x.p.maxParam + len(x.p.eval)).Node
		return false
	})
}

// oncePerStatement are built-in functions whose answer depends on the transaction or the session, not only on its settings.
var oncePerStatement = map[string]bool{
	"now": true, "transaction_timestamp": true, "statement_timestamp": true, "age": true, "current_setting": true, "current_database": true,
	"current_schema": true, "current_schemas": true, "current_query": true, "pg_backend_pid": true, "inet_client_addr": true,
	"inet_client_port": true, "inet_server_addr": true, "inet_server_port": true, "version": true, "pg_postmaster_start_time": true,
	"pg_conf_load_time": true, "pg_is_in_recovery": true, "txid_current_if_assigned": true, "pg_current_xact_id_if_assigned": true,
}

// oneValue reports a call that has one value for the whole statement.
func (x *exchanger) oneValue(c *pg.FuncCall) bool {
	if c == nil {
		return true // CURRENT_TIMESTAMP and its like
	}
	_, name := analyze.Name(c.Funcname)
	for _, f := range x.p.functions(c) {
		if f.Builtin && !oncePerStatement[name] || f.ReturnsSet || f.Kind != 'f' && !f.Builtin {
			return false
		}
	}
	return c.Over == nil && len(c.AggOrder) == 0
}

// inlineViews puts the bodies of chosen views in their place.
func (x *exchanger) inlineViews() {
	eachExpression(x.root.ProtoReflect(), func(n *pg.Node) bool {
		rv := n.GetRangeVar()
		if rv == nil || x.p.isTemporary(rv) {
			return true
		}
		t := x.p.catalog.Lookup(x.p.path, rv.Schemaname, rv.Relname)
		if t == nil || !x.inline[t.OID] {
			return true
		}
		alias := &pg.Alias{Aliasname: rv.Relname}
		if rv.Alias != nil {
			alias = proto.Clone(rv.Alias).(*pg.Alias)
		}
		for _, name := range viewNames(t, len(alias.Colnames)) {
			alias.Colnames = append(alias.Colnames, pg.MakeStrNode(name))
		}
		body := proto.Clone(x.p.viewTree(t)).(*pg.Node)
		n.Node = &pg.Node_RangeSubselect{RangeSubselect: &pg.RangeSubselect{Subquery: body, Alias: alias}}
		return true
	})
}

// String prints the plan for EXPLAIN and golden files.
func (e *Exchange) String() string {
	var b strings.Builder
	b.WriteString("Exchange\n")
	for i, ev := range e.Eval {
		fmt.Fprintf(&b, "  evaluate $%d = %s\n", e.Params+i+1, ev)
	}
	if e.Insert != nil {
		fmt.Fprintf(&b, "  %s, %d rows by %s %s\n", e.Insert.Before, len(e.Insert.Rows), e.Insert.Pin.Columns(), e.Insert.After)
	}
	if e.Same != "" {
		fmt.Fprintf(&b, "  every node: %s\n", e.Same)
	}
	for i := range e.Steps {
		b.WriteString(e.Steps[i].String())
	}
	if f := e.Feed; f != nil {
		fmt.Fprintf(&b, "  rows of %s\n", Readable(f.QueryText))
		for line := range strings.Lines(f.Query.String()) {
			b.WriteString("    " + line)
		}
		b.WriteString(f.writes())
	}
	for _, f := range e.Fragments {
		name := f.Name
		if name == "" {
			name = "answer"
		}
		where := ""
		if f.Motion != nil {
			where = " " + f.Motion.String()
		}
		fmt.Fprintf(&b, "  fragment %q%s: %s\n", name, where, Readable(f.Text))
		for i := range f.Pins {
			fmt.Fprintf(&b, "    where %s\n", f.Pins[i].String())
		}
	}
	if how := e.Merge.String(); how != "" {
		fmt.Fprintf(&b, "  %s\n", how)
	}
	if e.Combine != nil {
		fmt.Fprintf(&b, "  combine %s\n", e.HowCombined())
	}
	if e.Final != "" {
		fmt.Fprintf(&b, "  final %s\n", Readable(e.Final))
	}
	return b.String()
}

// String says how rows of nodes are put together, for people.
func (m *Merge) String() string {
	var parts []string
	for i, k := range m.Order {
		part := fmt.Sprintf("hidden column %d", i+1)
		if k.Desc {
			part += " DESC"
		}
		if k.NullsFirst != k.Desc {
			part += map[bool]string{true: " NULLS FIRST", false: " NULLS LAST"}[k.NullsFirst]
		}
		parts = append(parts, part)
	}
	var out []string
	if len(parts) > 0 {
		out = append(out, "in order of "+strings.Join(parts, ", "))
	}
	if m.Limit != nil {
		out = append(out, "limit "+m.Limit.String())
	}
	if m.Offset != nil {
		out = append(out, "offset "+m.Offset.String())
	}
	return strings.Join(out, ", ")
}

func (c *Count) String() string {
	if c.Param > 0 {
		return fmt.Sprintf("$%d", c.Param)
	}
	return fmt.Sprint(c.Value)
}
