package plan

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// utility plans everything that is not a query.
func (p *planner) utility(s *analyze.Statement) {
	p.fixed = true
	switch s.Class {
	case analyze.Copy:
		p.copy(s.Tree.GetCopyStmt())
	case analyze.Do:
		p.doBlock(s.Tree.GetDoStmt())
	case analyze.Call:
		p.call(s.Tree.GetCallStmt().Funccall)
		p.plan.Writes = true
		p.checkRoutines(false)
	case analyze.Lock:
		p.everyIfSpread(s.Tree)
	case analyze.Truncate:
		p.everyIfSpread(s.Tree)
		if s.Tree.GetTruncateStmt().Behavior == pg.DropBehavior_DROP_CASCADE && p.anySpread() {
			p.plan.Kind = Every
		}
	case analyze.CreateAs:
		p.createAs(s.Tree)
	case analyze.Refresh:
		p.refresh(s.Tree.GetRefreshMatViewStmt())
	case analyze.Listen:
		p.plan.Hold = "LISTEN"
	case analyze.DDL:
		p.ddl(s.Tree)
	case analyze.NodeWise:
		p.nodeWise(s.Tree)
	case analyze.Load:
		p.fail(refuse("Set shared_preload_libraries or session_preload_libraries on the nodes.",
			"LOAD is not supported"))
	default: // SHOW, NOTIFY and what the router answers itself
		p.plan.Kind = Route
		p.plan.Writes = s.Class == analyze.Notify
	}
}

// named collects the tables of the catalog that a tree names.
func (p *planner) named(n proto.Message) (tables []*catalog.Table, temporary bool) {
	for _, rv := range analyze.Relations(n) {
		if p.isTemporary(rv) {
			temporary = true
			continue
		}
		if t := p.catalog.Lookup(p.path, rv.Schemaname, rv.Relname); t != nil {
			tables = append(tables, t)
		}
	}
	return tables, temporary
}

func (p *planner) everyIfSpread(n *pg.Node) {
	tables, temporary := p.named(n)
	p.plan.Writes = true
	for _, t := range tables {
		p.plan.Tables = append(p.plan.Tables, p.root(t).OID)
		if p.placed(t).placement != catalog.Local || t.Kind == catalog.KindView && p.viewMatters(t) {
			p.plan.Kind = Every
		}
	}
	if temporary && p.plan.Kind == Every {
		p.fail(refuse("Use two statements.", "a statement over temporary and distributed or reference tables is not supported"))
	}
}

// createAs plans CREATE TABLE AS: rows go to the home node, the empty table to all the others.
func (p *planner) createAs(n *pg.Node) {
	s := n.GetCreateTableAsStmt()
	if s == nil { // SELECT ... INTO
		sel := n.GetSelectStmt()
		into := sel.IntoClause
		sel.IntoClause = nil
		s = &pg.CreateTableAsStmt{Query: n, Into: into, Objtype: pg.ObjectType_OBJECT_TABLE, IsSelectInto: true}
		n = &pg.Node{Node: &pg.Node_CreateTableAsStmt{CreateTableAsStmt: s}}
	}
	if ex := s.Query.GetExecuteStmt(); ex != nil {
		p.fail(refuse("Write the query itself.", "CREATE TABLE AS EXECUTE is not supported"))
		return
	}
	p.query(s.Query, nil)
	for _, r := range p.refs {
		if p.placed(r.table).placement == catalog.Distributed {
			p.fail(refuse("Create the table first and fill it key by key.",
				"CREATE TABLE AS over distributed table %q is not supported yet", r.table.Name))
			return
		}
	}
	p.checkRoutines(false)
	p.plan.Writes = true
	if p.isTemporary(s.Into.Rel) {
		p.plan.Kind, p.plan.Hold = Route, "temporary table"
		return
	}
	if p.temporary {
		p.fail(refuse("Create the table first, then INSERT ... SELECT.",
			"CREATE TABLE AS from a temporary table is not supported"))
		return
	}
	s.Into.SkipData = true
	text, err := analyze.Deparse(n)
	if err != nil {
		p.fail(refuse("", "the statement cannot be written again: %v", err))
		return
	}
	p.plan.Kind, p.plan.Schema, p.plan.OtherText = Every, true, text
}

func (p *planner) refresh(s *pg.RefreshMatViewStmt) {
	p.plan.Writes = true
	if t := p.catalog.Lookup(p.path, s.Relation.Schemaname, s.Relation.Relname); t != nil && p.viewMatters(t) {
		p.fail(refuse("Fill a table instead.",
			"materialized view %q over distributed or reference tables is not supported yet", t.Name))
	}
}

func (p *planner) nodeWise(n *pg.Node) {
	if v := n.GetVacuumStmt(); v != nil {
		p.plan.Kind, p.plan.Writes = NodeByNode, true
		if !v.IsVacuumcmd { // ANALYZE may stand in a transaction
			p.plan.Kind = Every
		}
		if _, temporary := p.named(n); temporary {
			p.plan.Kind = Route
		}
		return
	}
	_, temporary := p.named(n)
	if temporary {
		p.plan.Kind, p.plan.Writes = Route, true
		return
	}
	p.plan.Kind, p.plan.Writes, p.plan.Schema = NodeByNode, true, true
}

// ddl plans a change of the schema: the same on every node.
func (p *planner) ddl(n *pg.Node) {
	tables, temporary := p.named(n)
	tables = append(tables, p.dropped(n, &temporary)...)
	p.plan.Writes = true
	if temporary {
		if len(tables) > 0 && n.GetDropStmt() != nil {
			p.fail(refuse("Use two statements.", "DROP of temporary and other objects in one statement is not supported"))
			return
		}
		p.plan.Kind, p.plan.Hold = Route, "temporary table"
		return
	}
	p.plan.Kind, p.plan.Schema = Every, true
	for _, t := range tables {
		oid := p.root(t).OID
		if !slices.Contains(p.plan.Tables, oid) {
			p.plan.Tables = append(p.plan.Tables, oid)
		}
		if p.placed(t).placement != catalog.Local && routingChanges(n) && !slices.Contains(p.plan.Fenced, oid) {
			p.plan.Fenced = append(p.plan.Fenced, oid)
		}
	}
	p.viewsOfDDL(n)
	p.otherText(n)
}

// dropped resolves the names of DROP and COMMENT, which are lists and not RangeVars.
func (p *planner) dropped(n *pg.Node, temporary *bool) []*catalog.Table {
	d := n.GetDropStmt()
	if d == nil {
		return nil
	}
	switch d.RemoveType {
	case pg.ObjectType_OBJECT_TABLE, pg.ObjectType_OBJECT_VIEW, pg.ObjectType_OBJECT_MATVIEW,
		pg.ObjectType_OBJECT_SEQUENCE, pg.ObjectType_OBJECT_FOREIGN_TABLE, pg.ObjectType_OBJECT_INDEX:
	default:
		return nil
	}
	var tables []*catalog.Table
	for _, o := range d.Objects {
		schema, name := analyze.Name(o.GetList().GetItems())
		if p.isTemporary(&pg.RangeVar{Schemaname: schema, Relname: name}) {
			*temporary = true
			continue
		}
		if t := p.catalog.Lookup(p.path, schema, name); t != nil {
			tables = append(tables, t)
		}
	}
	return tables
}

// routingChanges reports DDL after which a statement planned before it could go astray.
func routingChanges(n *pg.Node) bool {
	switch n.Node.(type) {
	case *pg.Node_AlterTableStmt, *pg.Node_RenameStmt, *pg.Node_AlterObjectSchemaStmt, *pg.Node_DropStmt, *pg.Node_RuleStmt:
		return true
	}
	return false
}

// viewsOfDDL refuses materialised views and rules over tables that are not local.
func (p *planner) viewsOfDDL(n *pg.Node) {
	if r := n.GetRuleStmt(); r != nil {
		tables, _ := p.named(n)
		for _, t := range tables {
			if p.placed(t).placement != catalog.Local {
				p.fail(refuse("", "rules on or over distributed and reference tables are not supported"))
			}
		}
	}
}

// otherText leaves bounds and positions of sequences to each node: they have blocks of their own.
func (p *planner) otherText(n *pg.Node) {
	s := n.GetAlterSeqStmt()
	if s == nil {
		return
	}
	var kept []*pg.Node
	for _, o := range s.Options {
		switch o.GetDefElem().GetDefname() {
		case "restart", "start", "minvalue", "maxvalue":
		default:
			kept = append(kept, o)
		}
	}
	if len(kept) == len(s.Options) {
		return
	}
	if len(kept) == 0 {
		p.plan.OtherText = "SELECT 1"
		return
	}
	s.Options = kept
	text, err := analyze.Deparse(n)
	if err != nil {
		p.fail(refuse("", "the statement cannot be written again: %v", err))
		return
	}
	p.plan.OtherText = text
}

// copy plans COPY.
func (p *planner) copy(s *pg.CopyStmt) {
	if s.Query != nil {
		p.dml(s.Query)
		if p.plan.Kind != Route || p.plan.Rewrite != nil {
			p.fail(refuse("", "COPY of a statement that writes on several nodes is not supported"))
		}
		return
	}
	p.plan.Kind, p.plan.Writes = Route, s.IsFrom
	if p.isTemporary(s.Relation) {
		return
	}
	t := p.catalog.Lookup(p.path, s.Relation.Schemaname, s.Relation.Relname)
	if t == nil {
		return
	}
	place := p.placed(t)
	p.plan.Tables = []uint32{p.root(t).OID}
	if t.Kind == catalog.KindView && p.viewMatters(t) {
		p.fail(refuse("Use COPY (SELECT ...).", "COPY of view %q over distributed tables is not supported", t.Name))
		return
	}
	if place.placement == catalog.Local {
		return
	}
	if !s.IsFrom {
		if place.placement == catalog.Reference {
			p.plan.AnyNode = true
			return
		}
		p.fail(refuse("Use COPY (SELECT ... WHERE key = value) TO.",
			"COPY of distributed table %q needs rows from several nodes, which is not supported yet", t.Name))
		return
	}
	if s.Filename != "" || s.IsProgram {
		p.fail(refuse("Use COPY FROM STDIN, or \\copy in psql.", "COPY FROM a file or program on a node is not supported for distributed and reference tables"))
		return
	}
	p.copyIn(s, t, place)
}

func (p *planner) copyIn(s *pg.CopyStmt, t *catalog.Table, place placed) {
	names := make([]string, 0, len(t.Columns))
	for _, c := range s.Attlist {
		names = append(names, c.GetString_().GetSval())
	}
	if len(s.Attlist) == 0 {
		for i := range t.Columns {
			if t.Columns[i].Generated == 0 {
				names = append(names, t.Columns[i].Name)
			}
		}
	}
	c := &Copy{Table: t.Name, Columns: names, Key: -1}
	if place.placement == catalog.Distributed {
		key := t.Columns[place.key]
		c.Key = slices.Index(names, key.Name)
		if c.Key < 0 {
			p.fail(refuse("Add the key column to the data and to the column list.",
				"COPY into distributed table %q without its key column %q is not supported", t.Name, key.Name))
			return
		}
		kt, _ := p.keyType(column{&ref{table: t}, place.key})
		c.Pin = newKeyPin(place.distribution, kt, t, place.key, nil)
	} else if p.missingDefault(t, names) {
		return
	}
	kept := s.Options[:0:0]
	for _, o := range s.Options {
		opt := copyOption(o.GetDefElem(), names)
		c.Options = append(c.Options, opt)
		if opt.Name != "header" {
			kept = append(kept, o)
		}
	}
	s.Options = kept
	text, err := analyze.Deparse(&pg.Node{Node: &pg.Node_CopyStmt{CopyStmt: s}})
	if err != nil {
		p.fail(refuse("", "the statement cannot be written again: %v", err))
		return
	}
	c.Text = text
	p.plan.Kind, p.plan.Copy = CopyIn, c
}

// missingDefault refuses rows of a reference table whose columns each node would fill differently.
func (p *planner) missingDefault(t *catalog.Table, names []string) bool {
	for i := range t.Columns {
		c := &t.Columns[i]
		if slices.Contains(names, c.Name) || c.Generated != 0 || c.Default == "" && c.Identity == 0 {
			continue
		}
		if c.Identity != 0 || c.DefaultVolatile || p.unstableDefault(c) {
			p.fail(refuse("Add the column to the data and to the column list.",
				"COPY into reference table %q without column %q, whose default each node would compute for itself", t.Name, c.Name))
			return true
		}
	}
	return false
}

func copyOption(d *pg.DefElem, names []string) CopyOption {
	o := CopyOption{Name: strings.ToLower(d.Defname), Value: optionValue(d.Arg)}
	if d.Arg.GetAStar() != nil {
		o.Value = "*"
	}
	for _, n := range d.Arg.GetList().GetItems() {
		o.Columns = append(o.Columns, slices.Index(names, n.GetString_().GetSval()))
	}
	return o
}

func optionValue(n *pg.Node) string {
	switch v := n.GetNode().(type) {
	case *pg.Node_String_:
		return v.String_.Sval
	case *pg.Node_Boolean:
		if v.Boolean.Boolval {
			return "true"
		}
		return "false"
	case *pg.Node_Integer:
		if v.Integer.Ival != 0 {
			return "true"
		}
		return "false"
	}
	if n == nil {
		return "true" // an option without a value is on
	}
	return ""
}
