package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/catalog"
)

// distributedSchema finds the first distributed schema among those that a name without a table can mean.
func (p *planner) distributedSchema(schema string) (string, bool) {
	schemas := p.path
	if schema != "" {
		schemas = []string{schema}
	}
	for _, s := range schemas {
		if _, ok := p.catalog.Schema(s); ok && !p.alone {
			return s, true
		}
	}
	return "", false
}

// mustExist refuses a table that the catalog does not know where it could be one of a distributed schema: if it was made just now,
// the home node has it too, and would answer with rows or keep them although the schema is elsewhere.
func (p *planner) mustExist(rv *pg.RangeVar) {
	if _, ok := p.distributedSchema(rv.Schemaname); !ok {
		return
	}
	name := rv.Relname
	if rv.Schemaname != "" {
		name = rv.Schemaname + "." + name
	}
	p.fail(&Refusal{Code: "42P01", Message: "relation \"" + name + "\" does not exist"})
}

// createsInSchema refuses CREATE TABLE AS in a distributed schema: its rows would be on the home node.
func (p *planner) createsInSchema(rel *pg.RangeVar, kind pg.ObjectType) bool {
	if rel.Relpersistence == "t" || kind == pg.ObjectType_OBJECT_MATVIEW {
		return false
	}
	schema := rel.Schemaname
	for i := 0; schema == "" && i < len(p.path); i++ {
		if p.catalog.HasSchema(p.path[i]) {
			schema = p.path[i]
		}
	}
	_, ok := p.catalog.Schema(schema)
	if ok = ok && !p.alone; ok {
		p.fail(refuse("Create the table, then use INSERT ... SELECT.", "CREATE TABLE AS in distributed schema %q is not supported", schema))
	}
	return ok
}

// inSchemas lists the tables of schemas that are dropped or renamed: statements on them are held back meanwhile.
func (p *planner) inSchemas(n *pg.Node) []*catalog.Table {
	var names []string
	switch s := n.Node.(type) {
	case *pg.Node_DropStmt:
		if s.DropStmt.RemoveType == pg.ObjectType_OBJECT_SCHEMA {
			for _, o := range s.DropStmt.Objects {
				names = append(names, o.GetString_().GetSval())
			}
		}
	case *pg.Node_RenameStmt:
		if s.RenameStmt.RenameType == pg.ObjectType_OBJECT_SCHEMA {
			names = append(names, s.RenameStmt.Subname)
		}
	}
	var tables []*catalog.Table
	for _, name := range names {
		for _, t := range p.catalog.TablesIn(name) {
			if t.Kind == catalog.KindTable || t.Kind == catalog.KindPartitioned {
				tables = append(tables, t)
			}
		}
	}
	return tables
}

// moveToSchema refuses that a table goes into a distributed schema or out of it without its rows.
func (p *planner) moveToSchema(n *pg.Node, tables []*catalog.Table) {
	s := n.GetAlterObjectSchemaStmt()
	if s == nil {
		return
	}
	_, into := p.catalog.Schema(s.Newschema)
	for _, t := range tables {
		if t.Kind != catalog.KindTable && t.Kind != catalog.KindPartitioned || p.alone {
			continue
		}
		if place := p.placed(t); place.entry != nil && !t.IsPartition || into && place.placement == catalog.Local {
			p.fail(refuse("Create the table there and copy its rows.", "ALTER TABLE ... SET SCHEMA of table %q into or out of a distributed schema is not supported", t.Name))
		}
	}
}
