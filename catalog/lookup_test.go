package catalog

import (
	"slices"
	"testing"
)

func lookupCatalog() *Catalog {
	own := newBuilder(&builtin{functions: map[qualified]*Function{}})
	table := func(c *Catalog, oid uint32, schema, name string) {
		t := &Table{OID: oid, Schema: schema, Name: name}
		c.tables[oid], c.names[qualified{schema, name}] = t, t
	}
	table(own.catalog, 1, "pg_catalog", "pg_class")
	own.catalog.builtin.functions[qualified{"pg_catalog", "now"}] = &Function{Schema: "pg_catalog", Name: "now", Volatility: 's', Builtin: true}
	b := &builtin{tables: own.catalog.tables, names: own.catalog.names, functions: own.catalog.builtin.functions}
	c := newBuilder(b).catalog
	table(c, 10, "public", "t")
	table(c, 11, "a", "t")
	table(c, 12, "a", "pg_class")
	table(c, 13, "a", "T")
	table(c, 14, "pg_catalog", "added")
	for _, f := range []*Function{
		{OID: 20, Schema: "a", Name: "f", Volatility: 'i'},
		{OID: 21, Schema: "public", Name: "f", Volatility: 'v'},
		{OID: 22, Schema: "a", Name: "now", Volatility: 'v'},
	} {
		q := qualified{f.Schema, f.Name}
		c.functions[q] = append(c.functions[q], f)
	}
	return c
}

func TestLookup(t *testing.T) {
	c := lookupCatalog()
	for _, l := range []struct {
		path         []string
		schema, name string
		want         uint32
	}{
		{[]string{"public", "a"}, "", "t", 10},
		{[]string{"a", "public"}, "", "t", 11},
		{[]string{"missing", "public"}, "", "t", 10},
		{[]string{"missing"}, "", "t", 0},
		{nil, "", "t", 0},
		{nil, "a", "t", 11},
		{[]string{"public"}, "a", "T", 13},
		{[]string{"public"}, "", "T", 0},
		{[]string{"a"}, "", "pg_class", 1},
		{[]string{"a", "pg_catalog"}, "", "pg_class", 12},
		{[]string{"pg_catalog", "a"}, "", "pg_class", 1},
		{nil, "pg_catalog", "pg_class", 1},
		{nil, "", "added", 14},
		{[]string{"pg_temp", "public"}, "", "t", 10},
		{[]string{"public"}, "pg_temp", "t", 0},
	} {
		var got uint32
		if found := c.Lookup(l.path, l.schema, l.name); found != nil {
			got = found.OID
			if c.Table(got) != found {
				t.Errorf("Table(%d) is another one", got)
			}
		}
		if got != l.want {
			t.Errorf("Lookup(%q, %q, %q) = %d, want %d", l.path, l.schema, l.name, got, l.want)
		}
	}
}

func TestFunctions(t *testing.T) {
	c := lookupCatalog()
	for _, l := range []struct {
		path         []string
		schema, name string
		want         []uint32 // 0 is the built-in one
		volatile     bool
	}{
		{[]string{"a"}, "", "f", []uint32{20}, false},
		{[]string{"a", "public"}, "", "f", []uint32{20, 21}, true},
		{[]string{"a", "a"}, "", "f", []uint32{20}, false},
		{[]string{"public"}, "a", "f", []uint32{20}, false},
		{[]string{"public"}, "", "now", []uint32{0}, false},
		{[]string{"a"}, "", "now", []uint32{0, 22}, true},
		{[]string{"a", "pg_catalog"}, "", "now", []uint32{22, 0}, true},
		{[]string{"a"}, "pg_catalog", "now", []uint32{0}, false},
		{nil, "", "f", nil, true},
	} {
		var got []uint32
		for _, f := range c.Functions(l.path, l.schema, l.name) {
			got = append(got, f.OID)
		}
		if !slices.Equal(got, l.want) {
			t.Errorf("Functions(%q, %q, %q) = %v, want %v", l.path, l.schema, l.name, got, l.want)
		}
		if v := c.Volatile(l.path, l.schema, l.name); v != l.volatile {
			t.Errorf("Volatile(%q, %q, %q) = %v", l.path, l.schema, l.name, v)
		}
	}
}

func BenchmarkLookup(b *testing.B) {
	c := lookupCatalog()
	path := []string{"alice", "public"}
	b.ReportAllocs()
	for b.Loop() {
		if c.Lookup(path, "", "t") == nil {
			b.Fatal("not found")
		}
	}
}
