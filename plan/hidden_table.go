package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// hiddenBody is what code that runs with something else may do.
func (p *planner) hiddenBody(h *catalog.Hidden) body {
	b := body{dynamic: h.RunsSQL}
	for _, oid := range h.Tables {
		if t := p.catalog.Table(oid); t != nil {
			b.tables = append(b.tables, t)
		}
	}
	for _, oid := range h.Functions {
		if f := p.catalog.Function(oid); f != nil {
			called := p.bodyOf(f)
			b.add(&called)
		}
	}
	return b
}

// hiddenRead checks what reading a table sets off: its policies. Whoever they do not concern is not told apart.
func (p *planner) hiddenRead(t *catalog.Table) {
	if !t.RowSecurity || !p.spread() && !p.alone || !p.first(hiddenUse{t.OID, 'r'}) {
		return
	}
	for i := range t.Hidden {
		if h := &t.Hidden[i]; h.Policy {
			p.hidden(h.What, p.hiddenBody(h), t)
		}
	}
}

// policyReaches reports a table with a policy that has to be looked at closely.
func (p *planner) policyReaches(t *catalog.Table) bool {
	return t.RowSecurity && slices.ContainsFunc(t.Hidden, func(h catalog.Hidden) bool { return h.Policy })
}

// hiddenWrites checks what a write to a table sets off there, in its partitions, in the tables behind a view, and in those that
// foreign keys change along with it.
func (p *planner) hiddenWrites(t *catalog.Table) {
	if t == nil || !p.spread() && !p.alone {
		return
	}
	for _, w := range p.writtenWith(t) {
		p.hiddenWrite(w)
	}
}

// hiddenUse is a way to use a table: reading 'r', writing 'w', making rows 'd'.
type hiddenUse struct {
	oid uint32
	way byte
}

// first reports a use that has not been looked at: code may set off other code in circles.
func (p *planner) first(use hiddenUse) bool {
	if p.looked[use] {
		return false
	}
	if p.looked == nil {
		p.looked = map[hiddenUse]bool{}
	}
	p.looked[use] = true
	return true
}

// hiddenUses checks what the tables that hidden code names set off in turn.
func (p *planner) hiddenUses(b *body) {
	for _, t := range b.tables {
		p.hiddenRead(t)
		if b.writes {
			p.hiddenWrites(t)
			p.hiddenDefaults(t)
		}
	}
}

// hiddenDefaults checks the defaults of a table that code which is not seen here may use.
func (p *planner) hiddenDefaults(t *catalog.Table) {
	if !p.first(hiddenUse{t.OID, 'd'}) {
		return
	}
	for _, f := range p.defaultsOf(t) {
		p.hidden("a default of table "+quoted(t), p.bodyOf(f), t)
	}
}

func (p *planner) hiddenWrite(t *catalog.Table) {
	if !p.first(hiddenUse{t.OID, 'w'}) {
		return
	}
	if t.HasRules && !p.alone && p.placed(t).placement == catalog.Local {
		p.fail(refuse("Drop the rule.", "table %q has rules, which may use tables that are not on one node", t.Name))
		return
	}
	for _, tr := range t.Triggers {
		if f := p.catalog.Function(tr.Function); f != nil && tr.Enabled != 'D' {
			p.hidden("trigger "+`"`+tr.Name+`"`, p.bodyOf(f), t)
			if p.placed(t).placement == catalog.Reference && slices.ContainsFunc(p.nameIndex().readSource(&body{}, f.Source), isVolatile) {
				p.fail(refuse("Drop the trigger.", "trigger %q of reference table %q calls volatile functions, which answer differently on each node", tr.Name, t.Name))
			}
		}
	}
	for i := range t.Hidden {
		if h := &t.Hidden[i]; !h.Policy || t.RowSecurity {
			p.hidden(h.What, p.hiddenBody(h), t)
		}
	}
}

func isVolatile(f *catalog.Function) bool { return f.Volatility == 'v' && f.Kind != 'a' }

// hiddenTruncate checks what TRUNCATE sets off; with CASCADE it reaches all tables that refer to this one.
func (p *planner) hiddenTruncate(t *catalog.Table, cascade bool) {
	list := []*catalog.Table{t}
	for i := 0; cascade && i < len(list); i++ {
		for _, fk := range list[i].ReferencedBy {
			if from := p.catalog.Table(fk.Table); from != nil && !slices.Contains(list, from) {
				list = append(list, from)
			}
		}
	}
	for _, t := range list {
		p.hiddenWrites(t)
	}
}

// hidden checks code that runs where the rows of a table are.
func (p *planner) hidden(what string, b body, t *catalog.Table) {
	p.checkAlone(what, b)
	if !p.alone {
		p.checkBody(what, b, p.placed(t).placement != catalog.Local)
	}
	p.touchTables(b.tables)
}

// writtenWith lists the tables whose rows may change when those of t do.
func (p *planner) writtenWith(t *catalog.Table) []*catalog.Table {
	list := []*catalog.Table{t}
	add := func(oid uint32) {
		if t := p.catalog.Table(oid); t != nil && !slices.Contains(list, t) {
			list = append(list, t)
		}
	}
	for i := 0; i < len(list); i++ {
		w := list[i]
		for _, child := range w.Children {
			add(child)
		}
		for _, fk := range w.ReferencedBy {
			if acts(fk.OnDelete) || acts(fk.OnUpdate) {
				add(fk.Table)
			}
			if t := p.catalog.Table(fk.Table); t != nil && (fk.OnDelete == 'd' || fk.OnUpdate == 'd') {
				p.hiddenDefaults(t)
			}
		}
		if w.Kind == catalog.KindView {
			for _, rv := range analyze.Relations(p.viewTree(w)) {
				if below := p.catalog.Lookup(nil, rv.Schemaname, rv.Relname); below != nil {
					add(below.OID)
				}
			}
		}
	}
	return list
}

// acts reports an action of a foreign key that changes rows: CASCADE, SET NULL, SET DEFAULT.
func acts(action byte) bool { return action == 'c' || action == 'n' || action == 'd' }

// columnCall notes a function that is written like a column: t.f or (row).f.
func (p *planner) columnCall(name string) {
	for _, f := range p.catalog.Functions(p.path, "", name) {
		if !f.Builtin && len(f.Args) > 0 && len(f.Args)-f.Defaults <= 1 {
			p.routines = append(p.routines, f)
			p.plan.MayWrite = p.plan.MayWrite || f.Volatility == 'v'
		}
	}
}

// qualifiedColumn looks at a name with a dot that is no column known here.
func (p *planner) qualifiedColumn(b *block, c *pg.ColumnRef) {
	if len(c.Fields) < 2 || isStar(c) || b.resolve(c) != nil {
		return
	}
	p.columnCall(c.Fields[len(c.Fields)-1].GetString_().GetSval())
}

// computesRows checks the functions of DDL that computes something for each row of a table.
func (p *planner) computesRows(n *pg.Node, tables []*catalog.Table) {
	if n.GetAlterTableStmt() == nil && n.GetIndexStmt() == nil {
		return
	}
	for _, c := range analyze.Calls(n) {
		p.call(c)
	}
	p.checkRoutines(slices.ContainsFunc(tables, func(t *catalog.Table) bool { return p.placed(t).placement != catalog.Local }))
}

// hasDefault reports DEFAULT in the place of a value.
func hasDefault(m proto.Message) bool {
	found := false
	analyze.Walk(m, func(m proto.Message) bool {
		_, is := m.(*pg.SetToDefault)
		found = found || is
		return !found
	})
	return found
}

// CheckHidden refuses a schema in which code that reads tables can run with any statement: in casts, operators, types and event
// triggers. Nobody could tell from a statement that it does.
func CheckHidden(c *catalog.Catalog) error {
	if !c.Spread() {
		return nil
	}
	p := &planner{catalog: c}
	for i := range c.Hidden() {
		h := &c.Hidden()[i]
		p.checkBody(h.What, p.hiddenBody(h), true)
	}
	return p.err
}
