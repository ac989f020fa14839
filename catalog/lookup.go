package catalog

import (
	"cmp"
	"slices"
)

const (
	systemSchema = "pg_catalog"
	tempSchema   = "pg_temp"
)

func compareTables(a, b *Table) int {
	return cmp.Or(cmp.Compare(a.Schema, b.Schema), cmp.Compare(a.Name, b.Name), cmp.Compare(a.OID, b.OID))
}

// Lookup finds a relation by name as PostgreSQL does: in the given schema, or, when schema is
// empty, in pg_catalog (unless the path lists it) and then along the path. Temporary relations
// belong to sessions and are not known here, so pg_temp finds nothing.
func (c *Catalog) Lookup(path []string, schema, name string) *Table {
	if schema != "" {
		return c.named(schema, name)
	}
	if !slices.Contains(path, systemSchema) {
		if t := c.named(systemSchema, name); t != nil {
			return t
		}
	}
	for _, s := range path {
		if t := c.named(s, name); t != nil {
			return t
		}
	}
	return nil
}

func (c *Catalog) named(schema, name string) *Table {
	q := qualified{schema, name}
	if t := c.names[q]; t != nil {
		return t
	}
	return c.builtin.names[q]
}

// Functions returns every function a call by this name can mean: PostgreSQL chooses among them
// by the arguments, so a caller must assume the worst of all. Functions in pg_temp are never
// found without a schema, as in PostgreSQL.
func (c *Catalog) Functions(path []string, schema, name string) []*Function {
	if schema != "" {
		return c.overloads(nil, schema, name)
	}
	var found []*Function
	if !slices.Contains(path, systemSchema) {
		found = c.overloads(found, systemSchema, name)
	}
	for i, s := range path {
		if s == tempSchema || slices.Contains(path[:i], s) {
			continue
		}
		found = c.overloads(found, s, name)
	}
	return found
}

func (c *Catalog) overloads(found []*Function, schema, name string) []*Function {
	q := qualified{schema, name}
	if f := c.builtin.functions[q]; f != nil {
		found = append(found, f)
	}
	return append(found, c.functions[q]...)
}

// Volatile tells whether a call by this name may reach a volatile function; a name that is not
// known counts as volatile.
func (c *Catalog) Volatile(path []string, schema, name string) bool {
	found := c.Functions(path, schema, name)
	if len(found) == 0 {
		return true
	}
	return slices.ContainsFunc(found, func(f *Function) bool { return f.Volatility == 'v' })
}

// Schema tells whether a schema is distributed, and where its tables live.
func (c *Catalog) Schema(name string) (SchemaPlace, bool) {
	p, ok := c.schemas[name]
	return p, ok
}

// TablesIn lists the relations of a schema.
func (c *Catalog) TablesIn(schema string) []*Table {
	var list []*Table
	for q, t := range c.names {
		if q.schema == schema {
			list = append(list, t)
		}
	}
	slices.SortFunc(list, compareTables)
	return list
}
