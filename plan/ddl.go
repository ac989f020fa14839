package plan

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// ddl plans a change of the schema: the same on every node.
func (p *planner) ddl(n *pg.Node) {
	defer p.permanent(created(n))()
	tables, temporary := p.named(n)
	tables = append(tables, p.listed(n, &temporary)...)
	tables = append(tables, p.inSchemas(n)...)
	p.plan.Writes = true
	if largeObject(n) {
		p.plan.Kind = Route
		return
	}
	if p.partitionedAtOnce(n, tables) {
		p.plan.Kind, p.plan.Schema = NodeByNode, true
		return
	}
	if temporary {
		if p.temporaryOver(n, tables) || p.temporaryHides(n, tables) {
			return
		}
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
		routes := p.placed(t).placement != catalog.Local || t.Kind == catalog.KindView && p.viewMatters(t)
		if routes && routingChanges(n) && !slices.Contains(p.plan.Fenced, oid) {
			p.plan.Fenced = append(p.plan.Fenced, oid)
		}
	}
	p.fenceCode(n, tables)
	p.viewsOfDDL(n)
	p.alterSpread(n, tables)
	p.computesRows(n, tables)
	p.moveToSchema(n, tables)
	p.otherText(n)
}

// largeObject reports statements about large objects. These are data, not schema, and live on the home
// node alone.
func largeObject(n *pg.Node) bool {
	kind := pg.ObjectType_OBJECT_TYPE_UNDEFINED
	switch s := n.Node.(type) {
	case *pg.Node_CommentStmt:
		kind = s.CommentStmt.Objtype
	case *pg.Node_AlterOwnerStmt:
		kind = s.AlterOwnerStmt.ObjectType
	case *pg.Node_GrantStmt:
		kind = s.GrantStmt.Objtype
	case *pg.Node_SecLabelStmt:
		kind = s.SecLabelStmt.Objtype
	}
	return kind == pg.ObjectType_OBJECT_LARGEOBJECT
}

// created is the relation that a statement makes, nil for other statements.
func created(n *pg.Node) *pg.RangeVar {
	switch s := n.Node.(type) {
	case *pg.Node_CreateStmt:
		return s.CreateStmt.Relation
	case *pg.Node_ViewStmt:
		return s.ViewStmt.View
	case *pg.Node_CreateSeqStmt:
		return s.CreateSeqStmt.Sequence
	case *pg.Node_CreateForeignTableStmt:
		return s.CreateForeignTableStmt.BaseStmt.GetRelation()
	}
	return nil
}

// permanent keeps the name of a new relation from being taken for the temporary one that it stands
// behind; the returned function ends that.
func (p *planner) permanent(rv *pg.RangeVar) (end func()) {
	known := p.isTemp
	if rv == nil || known == nil {
		return func() {}
	}
	p.isTemp = func(name string) bool { return name != rv.Relname && known(name) }
	return func() { p.isTemp = known }
}

// partitionedAtOnce reports what PostgreSQL does for all partitions in transactions of their own.
func (p *planner) partitionedAtOnce(n *pg.Node, tables []*catalog.Table) bool {
	if n.GetClusterStmt() == nil && n.GetReindexStmt() == nil {
		return false
	}
	return slices.ContainsFunc(tables, func(t *catalog.Table) bool { return t.Kind == catalog.KindPartitioned })
}

// temporaryOver refuses temporary views and children of tables that are not local: they live on
// the home node, which has some of the rows only.
func (p *planner) temporaryOver(n *pg.Node, tables []*catalog.Table) bool {
	if n.GetViewStmt() == nil && len(n.GetCreateStmt().GetInhRelations()) == 0 {
		return false
	}
	for _, t := range tables {
		if p.placed(t).placement == catalog.Distributed || t.Kind == catalog.KindView && p.viewReach(t, 0).distributed {
			p.fail(refuse("Use a view that is not temporary.", "a temporary view or child of distributed table %q is not supported", t.Name))
			return true
		}
	}
	return false
}

// alterSpread refuses changes of tables that are not local that leave rows on wrong nodes, or make
// the copies of a reference table differ.
func (p *planner) alterSpread(n *pg.Node, tables []*catalog.Table) {
	s := n.GetAlterTableStmt()
	i := slices.IndexFunc(tables, func(t *catalog.Table) bool { return p.placed(t).placement != catalog.Local })
	if s == nil || s.Relation == nil || i < 0 {
		return
	}
	t := tables[i]
	for _, node := range s.Cmds {
		c := node.GetAlterTableCmd()
		switch c.GetSubtype() {
		case pg.AlterTableType_AT_AttachPartition, pg.AlterTableType_AT_DetachPartition, pg.AlterTableType_AT_DetachPartitionFinalize:
			p.fail(refuse("Use CREATE TABLE ... PARTITION OF and DROP TABLE, or call undistribute_table() first.",
				"attaching and detaching partitions of %s table %q is not supported", p.placed(t).placement, p.root(t).Name))
		case pg.AlterTableType_AT_AlterColumnType:
			p.alterKeyType(t, c)
		}
		if p.placed(t).placement == catalog.Reference && p.fillsPerNode(c) {
			p.fail(refuse("Add the column without a default, fill it, then set the default.",
				"the value of a column of reference table %q would be computed per node", t.Name))
		}
	}
}

// alterKeyType allows a new type of a key column only when all keys keep their points.
func (p *planner) alterKeyType(t *catalog.Table, c *pg.AlterTableCmd) {
	place := p.placed(t)
	at := t.Column(c.Name)
	if place.placement != catalog.Distributed || at < 0 || !slices.Contains(place.keys, at) {
		return
	}
	old, _ := p.keyType(column{&ref{table: t}, at})
	def := c.GetDef().GetColumnDef()
	to, array, ok := p.castType(def.GetTypeName())
	if !ok || array || to.Canonical() != old.Canonical() || def.RawDefault != nil {
		p.fail(refuse("Call undistribute_table() first.",
			"the type of the key column %q of distributed table %q cannot be changed so", c.Name, t.Name))
	}
}

// fillsPerNode reports a new column, or a new type of one, whose values each node computes for itself.
func (p *planner) fillsPerNode(c *pg.AlterTableCmd) bool {
	def := c.GetDef().GetColumnDef()
	if def == nil {
		return false
	}
	_, typeName := analyze.Name(def.GetTypeName().GetNames())
	differs := strings.HasSuffix(typeName, "serial") || def.RawDefault != nil && p.hasUnstable(def.RawDefault)
	for _, k := range def.Constraints {
		con := k.GetConstraint()
		differs = differs || con.Contype == pg.ConstrType_CONSTR_IDENTITY || con.RawExpr != nil && p.hasUnstable(con.RawExpr)
	}
	return differs
}

// listed resolves the names of DROP and COMMENT, which are lists and not RangeVars.
func (p *planner) listed(n *pg.Node, temporary *bool) []*catalog.Table {
	var kind pg.ObjectType
	var objects []*pg.Node
	switch s := n.Node.(type) {
	case *pg.Node_DropStmt:
		kind, objects = s.DropStmt.RemoveType, s.DropStmt.Objects
	case *pg.Node_CommentStmt:
		kind, objects = s.CommentStmt.Objtype, []*pg.Node{s.CommentStmt.Object}
	case *pg.Node_CreateFunctionStmt:
		if schema, _ := analyze.Name(s.CreateFunctionStmt.Funcname); strings.HasPrefix(schema, "pg_temp") {
			*temporary = true
		}
		return nil
	}
	last := 0 // parts of the name behind the relation's
	switch kind {
	case pg.ObjectType_OBJECT_TABLE, pg.ObjectType_OBJECT_VIEW, pg.ObjectType_OBJECT_MATVIEW,
		pg.ObjectType_OBJECT_SEQUENCE, pg.ObjectType_OBJECT_FOREIGN_TABLE, pg.ObjectType_OBJECT_INDEX:
	case pg.ObjectType_OBJECT_COLUMN, pg.ObjectType_OBJECT_TRIGGER, pg.ObjectType_OBJECT_RULE,
		pg.ObjectType_OBJECT_POLICY, pg.ObjectType_OBJECT_TABCONSTRAINT:
		last = 1
	default:
		return nil
	}
	var tables []*catalog.Table
	for _, o := range objects {
		items := o.GetList().GetItems()
		schema, name := analyze.Name(items[:max(0, len(items)-last)])
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
				p.fail(refuse("Do the rule's work in the application.", "rules on or over distributed and reference tables are not supported"))
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
