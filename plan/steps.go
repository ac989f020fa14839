package plan

import (
	"fmt"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
)

// Step is one part of a statement whose WITH clause writes: a WITH item, or the statement itself at the end. The parts run one after
// the other. What one returns is read by later ones as parameters: one array for each column.
type Step struct {
	Name     string
	Text     string
	Exchange *Exchange
	// Columns are those that later parts read, as parameters First, First+1 and so on.
	Columns []string
	First   int
	// Shape is a query without effects whose columns have the types of the step's.
	Shape string
}

// String prints the step for EXPLAIN and golden files.
func (s *Step) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "  step %q", s.Name)
	for i, name := range s.Columns {
		fmt.Fprintf(&b, "%s $%d = %s", map[bool]string{true: " gives", false: ","}[i == 0], s.First+i, name)
	}
	b.WriteString("\n")
	for line := range strings.Lines(s.Exchange.String()) {
		b.WriteString("    " + line)
	}
	return b.String()
}

// Readable is a text for people: rows that come as arrays are only named by their parameters.
func Readable(text string) string {
	const begin, end = " AS MATERIALIZED (SELECT u.c1::", ") u(c1"
	var b strings.Builder
	for {
		before, after, found := strings.Cut(text, begin)
		body, rest, closed := strings.Cut(after, end)
		_, rest, ended := strings.Cut(rest, "))")
		if !found || !closed || !ended {
			return b.String() + text
		}
		b.WriteString(before + " AS (")
		for i, p := range strings.Split(body, "unnest($")[1:] {
			number, _, _ := strings.Cut(p, "::")
			b.WriteString(map[bool]string{true: "$", false: ", $"}[i == 0] + number)
		}
		b.WriteString(")")
		text = rest
	}
}

const (
	givenType      = "shoal given type %d"
	givenCollation = "shoal given collation %d"
)

// Given is the step's exchange with the types of what it reads of the steps before it: types are those of parameter first and the
// ones behind it.
func (s *Step) Given(first int, types []ColumnType) *Exchange {
	var pairs []string
	for i, t := range types {
		collate := ""
		if t.Collation != "" {
			collate = " COLLATE " + t.Collation
		}
		n := first + i
		pairs = append(pairs, ` COLLATE "`+fmt.Sprintf(givenCollation, n)+`"`, collate, `"`+fmt.Sprintf(givenType, n)+`"`, t.Name)
	}
	return s.Exchange.replaced(strings.NewReplacer(pairs...).Replace)
}

// replaced is a copy with other texts.
func (e *Exchange) replaced(text func(string) string) *Exchange {
	if e == nil {
		return nil
	}
	out := *e
	out.Final, out.FinalArrays, out.Stored = text(e.Final), text(e.FinalArrays), e.Stored.replaced(text)
	out.Fragments = slices.Clone(e.Fragments)
	for i := range out.Fragments {
		out.Fragments[i].Text = text(out.Fragments[i].Text)
	}
	if e.Insert != nil {
		in := *e.Insert
		in.Before, in.After, in.Rows = text(in.Before), text(in.After), slices.Clone(in.Rows)
		for i := range in.Rows {
			in.Rows[i] = text(in.Rows[i])
		}
		out.Insert = &in
	}
	if e.Feed != nil {
		f := *e.Feed
		f.Query, f.Text, f.Actions = f.Query.replaced(text), text(f.Text), slices.Clone(f.Actions)
		for i := range f.Actions {
			f.Actions[i].Text = text(f.Actions[i].Text)
		}
		if f.Move != nil {
			m := *f.Move
			m.Remove, m.Store = text(m.Remove), text(m.Store)
			f.Move = &m
		}
		out.Feed = &f
	}
	return &out
}

// part is a piece of a statement that becomes a step.
type part struct {
	node   *pg.Node // the statement
	cte    *cte     // its WITH item; nil for the statement itself
	target *ref     // the table that it writes
	uses   []int    // the parts and items that it names
	inside bool     // it only reads, for one part alone, and stays in the WITH clause of that one
	read   bool     // a later part reads what it returns
	first  int      // the parameter of its first column
	names  []string // its columns
	shape  string   // a query whose columns have their types
}

// stepper cuts a statement into steps.
type stepper struct {
	x     *exchanger
	with  *pg.WithClause
	parts []*part // WITH items in their order, then the statement itself
	extra []*part // rows that are taken before all others
	param int     // the last parameter that is taken
}

// steps plans a statement whose WITH clause writes as parts that run one after the other. In PostgreSQL all parts see the tables as they were
// before; so a part that reads what an earlier one changes reads rows that were taken before any of them.
func (x *exchanger) steps(top *block) {
	if x.tree != x.root || x.stored {
		x.p.fail(refuse("Run it as a statement of its own.", "writes in WITH over several nodes, inside another statement, are not supported"))
		return
	}
	s := &stepper{x: x, with: withClause(x.root), param: x.p.maxParam + len(x.p.eval)}
	if !s.cut(top) || !s.independent() {
		if x.p.err == nil {
			x.p.fail(refuse("Run its parts one by one.", "writes in WITH, over several nodes, that depend on each other in this way are not supported"))
		}
		return
	}
	for _, q := range s.parts {
		if q.read && !q.inside && !s.describe(q) {
			x.p.fail(refuse("Name the columns.", "writes in WITH, over several nodes, that return columns which are not known are not supported"))
			return
		}
	}
	before := s.takeBefore()
	for _, b := range before {
		b.shape, _ = analyze.Deparse(b.node)
	}
	var out []Step
	for _, b := range before {
		out = s.step(out, b)
	}
	for _, q := range s.parts {
		if !q.inside {
			out = s.step(out, q)
		}
	}
	x.out.Steps = out
}

// cut finds the parts and what they name of each other.
func (s *stepper) cut(top *block) bool {
	targets := s.x.p.targets
	for _, n := range s.with.Ctes {
		c := top.ctes[n.GetCommonTableExpr().Ctename]
		if c == nil || c.extended {
			return false
		}
		q := &part{node: n.GetCommonTableExpr().Ctequery, cte: c}
		if c.writes {
			q.target, targets = targets[0], targets[1:]
		}
		s.parts = append(s.parts, q)
	}
	main := &part{node: s.x.root}
	if s.x.root.GetSelectStmt() == nil {
		main.target, targets = targets[0], targets[1:]
	}
	s.parts = append(s.parts, main)
	if len(targets) > 0 {
		return false
	}
	for i, q := range s.parts {
		if !s.usesOf(q, i) {
			return false
		}
	}
	s.place()
	return true
}

// usesOf finds which items a part names; only those before it, and itself when it is recursive, can be run in turn.
func (s *stepper) usesOf(q *part, at int) bool {
	root := q.node
	if q.cte == nil { // what it names itself, not what its WITH items name
		root = withoutItems(q.node)
	}
	for _, rv := range analyze.Relations(root) {
		for _, r := range s.x.byVar[rv] {
			if r.cte == nil {
				continue
			}
			i := slices.IndexFunc(s.parts, func(o *part) bool { return o.cte == r.cte })
			switch {
			case i == at && q.target == nil:
			case i >= at:
				return false
			case i >= 0 && !slices.Contains(q.uses, i):
				q.uses = append(q.uses, i)
			}
		}
	}
	return true
}

// withoutItems is the statement with the same parts but for its WITH clause.
func withoutItems(n *pg.Node) *pg.Node {
	out := &pg.Node{}
	switch e := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		c := &pg.InsertStmt{
			Relation: e.InsertStmt.Relation, Cols: e.InsertStmt.Cols, SelectStmt: e.InsertStmt.SelectStmt, Override: e.InsertStmt.Override,
			OnConflictClause: e.InsertStmt.OnConflictClause, ReturningList: e.InsertStmt.ReturningList,
		}
		out.Node = &pg.Node_InsertStmt{InsertStmt: c}
	case *pg.Node_UpdateStmt:
		u := e.UpdateStmt
		out.Node = &pg.Node_UpdateStmt{UpdateStmt: &pg.UpdateStmt{
			Relation: u.Relation, TargetList: u.TargetList, WhereClause: u.WhereClause, FromClause: u.FromClause, ReturningList: u.ReturningList,
		}}
	case *pg.Node_DeleteStmt:
		d := e.DeleteStmt
		out.Node = &pg.Node_DeleteStmt{DeleteStmt: &pg.DeleteStmt{
			Relation: d.Relation, UsingClause: d.UsingClause, WhereClause: d.WhereClause, ReturningList: d.ReturningList,
		}}
	case *pg.Node_MergeStmt:
		m := e.MergeStmt
		out.Node = &pg.Node_MergeStmt{MergeStmt: &pg.MergeStmt{
			Relation: m.Relation, SourceRelation: m.SourceRelation, JoinCondition: m.JoinCondition, MergeWhenClauses: m.MergeWhenClauses,
			ReturningList: m.ReturningList,
		}}
	default:
		s := n.GetSelectStmt()
		out.Node = &pg.Node_SelectStmt{SelectStmt: &pg.SelectStmt{
			DistinctClause: s.DistinctClause, IntoClause: s.IntoClause, TargetList: s.TargetList, FromClause: s.FromClause,
			WhereClause: s.WhereClause, GroupClause: s.GroupClause, GroupDistinct: s.GroupDistinct, HavingClause: s.HavingClause,
			WindowClause: s.WindowClause, ValuesLists: s.ValuesLists, SortClause: s.SortClause, LimitOffset: s.LimitOffset,
			LimitCount: s.LimitCount, LimitOption: s.LimitOption, LockingClause: s.LockingClause, Op: s.Op, All: s.All, Larg: s.Larg, Rarg: s.Rarg,
		}}
	}
	return out
}

// place decides which items stay inside the one part that names them, and which nobody needs. One that several parts name is evaluated once.
func (s *stepper) place() {
	for i := len(s.parts) - 2; i >= 0; i-- {
		q := s.parts[i]
		users := 0
		for _, o := range s.parts[i+1:] {
			if slices.Contains(o.uses, i) && !(o.inside && s.unused(o)) {
				users++
			}
		}
		q.inside = q.target == nil && users <= 1
		q.read = users > 0
	}
}

// unused reports an item that nobody names: PostgreSQL does not evaluate it.
func (s *stepper) unused(q *part) bool { return q.cte != nil && q.target == nil && !q.read }

// step makes a part a step behind those before it.
func (s *stepper) step(out []Step, q *part) []Step {
	x := s.x
	if x.p.err != nil {
		return out
	}
	step := Step{Name: "statement"}
	if q.cte != nil {
		step.Name = q.cte.name
	}
	node, ok := s.statement(q)
	if !ok {
		x.p.fail(refuse("Give WITH items different names.", "a WITH item that hides another one, beside writes in WITH over several nodes, is not supported"))
		return out
	}
	text, err := analyze.Deparse(node)
	if err != nil {
		x.p.fail(refuse("", "a part of the statement cannot be written again: %v", err))
		return out
	}
	in := x.in
	in.Statement = &analyze.Statement{Class: analyze.Query, Text: text}
	in.Params = append(slices.Clone(in.Params), make([]uint32, max(0, s.param-len(in.Params)))...)
	const textArray = 1009
	for i := x.p.maxParam + len(x.p.eval); i < s.param; i++ {
		in.Params[i] = textArray
	}
	step.Text = text
	if step.Exchange, err = makeExchange(in, text, false); err != nil {
		x.p.fail(err)
		return out
	}
	if q.read {
		q.first = s.param + 1
		step.First, step.Columns, step.Shape = q.first, q.names, q.shape
		s.param += len(q.names)
	}
	return append(out, step)
}

// statement is a part on its own, with the WITH items that it names.
func (s *stepper) statement(q *part) (*pg.Node, bool) {
	items, ok := s.items(q.uses)
	var node *pg.Node
	switch at := slices.Index(s.parts, q); {
	case q.cte == nil:
		node = withoutItems(q.node)
	case at >= 0 && q.target == nil && s.with.Recursive: // it may name itself
		all := plainSelect()
		all.TargetList, all.FromClause = []*pg.Node{resTarget("", starNode())}, []*pg.Node{relationNode(q.cte.name)}
		node = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: all}}
		items = append(items, cloneNode(s.with.Ctes[at]))
	default:
		node = cloneNode(q.node)
	}
	items = slices.Concat(s.taken(node, items), items)
	with := withClause(node)
	for _, own := range with.Ctes {
		ok = ok && !slices.ContainsFunc(items, func(n *pg.Node) bool { return n.GetCommonTableExpr().Ctename == own.GetCommonTableExpr().Ctename })
	}
	with.Ctes = append(items, with.Ctes...)
	with.Recursive = with.Recursive || s.with.Recursive
	if len(with.Ctes) == 0 {
		clearWith(node)
	}
	return node, ok
}

func clearWith(n *pg.Node) {
	switch e := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		e.InsertStmt.WithClause = nil
	case *pg.Node_UpdateStmt:
		e.UpdateStmt.WithClause = nil
	case *pg.Node_DeleteStmt:
		e.DeleteStmt.WithClause = nil
	case *pg.Node_MergeStmt:
		e.MergeStmt.WithClause = nil
	case *pg.Node_SelectStmt:
		e.SelectStmt.WithClause = nil
	}
}

// items is the WITH clause of a part: what earlier steps gave, and the items that only read.
func (s *stepper) items(uses []int) ([]*pg.Node, bool) {
	needed := map[int]bool{}
	var need func(int)
	need = func(i int) {
		if needed[i] {
			return
		}
		needed[i] = true
		if s.parts[i].inside {
			for _, j := range s.parts[i].uses {
				need(j)
			}
		}
	}
	for _, i := range uses {
		need(i)
	}
	var items []*pg.Node
	for i, q := range s.parts {
		switch {
		case !needed[i]:
		case q.inside:
			items = append(items, cloneNode(s.with.Ctes[i]))
		case q.first == 0:
			return nil, false
		default:
			items = append(items, q.given())
		}
	}
	return items, true
}

// taken are WITH items over the rows that were taken before and that a part reads.
func (s *stepper) taken(node *pg.Node, items []*pg.Node) []*pg.Node {
	var out []*pg.Node
	for _, q := range s.extra {
		names := analyze.Relations(&pg.Node{Node: &pg.Node_List{List: &pg.List{Items: append([]*pg.Node{node}, items...)}}})
		if q.first > 0 && slices.ContainsFunc(names, func(rv *pg.RangeVar) bool { return rv.Relname == q.cte.name }) {
			out = append(out, q.given())
		}
	}
	return out
}

// given is a WITH item over what a step has returned.
func (q *part) given() *pg.Node {
	body := plainSelect()
	alias := &pg.Alias{Aliasname: "u"}
	item := &pg.CommonTableExpr{Ctename: q.cte.name, Ctematerialized: pg.CTEMaterialize_CTEMaterializeAlways}
	var args []*pg.Node
	for i, name := range q.names {
		array := castNode(paramNode(q.first+i), "pg_catalog", "text")
		array.GetTypeCast().TypeName.ArrayBounds = []*pg.Node{pg.MakeIntNode(-1)}
		args = append(args, pg.MakeListNode([]*pg.Node{callNode("unnest", array), {}}))
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(fragmentColumn(i)))
		item.Aliascolnames = append(item.Aliascolnames, pg.MakeStrNode(name))
		body.TargetList = append(body.TargetList, resTarget("", &pg.Node{Node: &pg.Node_CollateClause{CollateClause: &pg.CollateClause{
			Arg:      castNode(columnNode("u", fragmentColumn(i)), fmt.Sprintf(givenType, q.first+i)),
			Collname: []*pg.Node{pg.MakeStrNode(fmt.Sprintf(givenCollation, q.first+i))},
		}}}))
	}
	body.FromClause = []*pg.Node{{Node: &pg.Node_RangeFunction{RangeFunction: &pg.RangeFunction{IsRowsfrom: true, Functions: args, Alias: alias}}}}
	item.Ctequery = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: body}}
	return &pg.Node{Node: &pg.Node_CommonTableExpr{CommonTableExpr: item}}
}

// describe names the columns of a part and writes the query that has their types.
func (s *stepper) describe(q *part) bool {
	if q.cte.body == nil || q.cte.body.holes || len(q.cte.body.outputs) == 0 {
		return false
	}
	for i := range q.cte.body.outputs {
		name := q.cte.body.outputName(i)
		if i < len(q.cte.aliases) {
			name = q.cte.aliases[i]
		}
		q.names = append(q.names, name)
	}
	shape := plainSelect()
	shape.WithClause = &pg.WithClause{Recursive: s.with.Recursive}
	for i, n := range s.with.Ctes[:slices.Index(s.parts, q)+1] {
		item := cloneNode(n)
		if s.parts[i].target != nil {
			item.GetCommonTableExpr().Ctequery = readOnly(item.GetCommonTableExpr().Ctequery)
		}
		if item.GetCommonTableExpr().Ctequery != nil {
			shape.WithClause.Ctes = append(shape.WithClause.Ctes, item)
		}
	}
	shape.TargetList = []*pg.Node{resTarget("", starNode())}
	from := relationNode(q.cte.name)
	from.GetRangeVar().Alias = &pg.Alias{Aliasname: "f"}
	for i := range q.names {
		from.GetRangeVar().Alias.Colnames = append(from.GetRangeVar().Alias.Colnames, pg.MakeStrNode(fragmentColumn(i)))
	}
	shape.FromClause = []*pg.Node{from}
	var err error
	q.shape, err = analyze.Deparse(&pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: shape}})
	return err == nil
}

// readOnly is a query with the columns that a write returns; nil when it returns none.
func readOnly(n *pg.Node) *pg.Node {
	s := plainSelect()
	var relation *pg.RangeVar
	switch e := n.GetNode().(type) {
	case *pg.Node_InsertStmt:
		s.WithClause, s.TargetList, relation = e.InsertStmt.WithClause, e.InsertStmt.ReturningList, e.InsertStmt.Relation
	case *pg.Node_UpdateStmt:
		s.WithClause, s.TargetList, relation, s.FromClause = e.UpdateStmt.WithClause, e.UpdateStmt.ReturningList, e.UpdateStmt.Relation, e.UpdateStmt.FromClause
	case *pg.Node_DeleteStmt:
		s.WithClause, s.TargetList, relation, s.FromClause = e.DeleteStmt.WithClause, e.DeleteStmt.ReturningList, e.DeleteStmt.Relation, e.DeleteStmt.UsingClause
	}
	if len(s.TargetList) == 0 {
		return nil
	}
	s.FromClause = append([]*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: relation}}}, s.FromClause...)
	return &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: s}}
}
