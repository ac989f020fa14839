package sqldiff

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
)

//go:embed schema/*.sql
var schemaFiles embed.FS

// A Layout says how each table is placed; tables that it does not name are local.
type Layout struct {
	Name string
	// About is for the report.
	About  string
	Placed map[string]Placement
}

// Placement is what happens to one table.
type Placement struct {
	Reference bool
	// Key is the column of a distributed table.
	Key string
	// With is the table that it is co-located with; without it the table has a distribution of its own.
	With string
	// Options are further arguments of create_distributed_table, for strategies other than hash.
	Options string
}

func reference() Placement                   { return Placement{Reference: true} }
func alone(key string) Placement             { return Placement{Key: key} }
func beside(table, key string) Placement     { return Placement{Key: key, With: table} }
func strategy(key, options string) Placement { return Placement{Key: key, Options: options} }

// statement is the call that places the table.
func (p Placement) statement(name string) string {
	if p.Reference {
		return fmt.Sprintf("SELECT create_reference_table('%s')", name)
	}
	with := p.With
	if with == "" {
		with = "none"
	}
	options := ""
	if p.Options != "" {
		options = ", " + p.Options
	}
	return fmt.Sprintf("SELECT create_distributed_table('%s', '%s', colocate_with => '%s'%s)", name, p.Key, with, options)
}

// analytics and entry are placed alike in the layouts that do not change them.
var (
	analytics = map[string]Placement{
		"tpch.region": reference(), "tpch.nation": reference(), "tpch.supplier": alone("s_suppkey"), "tpch.customer": alone("c_custkey"),
		"tpch.orders": alone("o_orderkey"), "tpch.lineitem": beside("tpch.orders", "l_orderkey"),
		"tpch.part": alone("p_partkey"), "tpch.partsupp": beside("tpch.part", "ps_partkey"),
	}
	entry = map[string]Placement{
		"entry.item": reference(), "entry.warehouse": alone("w_id"), "entry.district": beside("entry.warehouse", "d_w_id"),
		"entry.customer": beside("entry.warehouse", "c_w_id"), "entry.history": beside("entry.warehouse", "h_w_id"),
		"entry.stock": beside("entry.warehouse", "s_w_id"), "entry.orders": beside("entry.warehouse", "o_w_id"),
		"entry.new_order": beside("entry.warehouse", "no_w_id"), "entry.order_line": beside("entry.warehouse", "ol_w_id"),
	}
)

// Layouts are all placements of the schema that are tried.
func Layouts() []Layout {
	shop := map[string]Placement{
		"countries": reference(), "products": reference(), "customers": alone("id"), "orders": beside("customers", "customer_id"),
		"items": beside("customers", "customer_id"), "returns": beside("customers", "customer_id"),
		"events": alone("device"), "accounts": alone("id"), "tickets": alone("id"), "samples": alone("id"),
	}
	return []Layout{
		{"hash", "customers, orders, items co-located; events, accounts, tickets each alone", merge(shop, analytics, entry)},
		{"apart", "nothing joins on its key except orders with items", merge(shop, analytics, entry, map[string]Placement{
			"orders": alone("id"), "items": beside("orders", "order_id"), "returns": alone("id"), "products": alone("id"),
			"staff": alone("dept"), "calendar": reference(), "samples": alone("grp"),
			"tpch.lineitem": alone("l_linenumber"), "tpch.partsupp": alone("ps_suppkey"),
		})},
		{"mixed", "local, reference and distributed tables in turns", map[string]Placement{
			"orders": alone("customer_id"), "items": beside("orders", "customer_id"), "staff": reference(), "events": reference(),
			"tickets": alone("id"), "tpch.lineitem": alone("l_orderkey"), "tpch.part": reference(), "tpch.customer": alone("c_custkey"),
			"entry.stock": alone("s_w_id"), "entry.orders": alone("o_w_id"), "entry.order_line": beside("entry.orders", "ol_w_id"),
		}},
		{"range", "ranges of keys", merge(shop, analytics, map[string]Placement{
			"customers": strategy("id", "strategy => 'range', split_at => ARRAY[5, 12, 20, 33, 41]"),
			"events":    strategy("device", "strategy => 'range', split_at => ARRAY['dev-03', 'dev-07']"),
			"accounts":  alone("id"), "tpch.orders": strategy("o_orderkey", "strategy => 'range', split_at => ARRAY[40, 100, 200]"),
			"staff": strategy("dept", "strategy => 'range', split_at => ARRAY['m']"),
		})},
		{"list", "listed values", merge(shop, analytics, map[string]Placement{
			"events": strategy("kind", `strategy => 'list', regions => '{"eu": ["login", "logout"], "us": ["click", "error", "Click"]}'`),
			"staff":  strategy("dept", `strategy => 'list', regions => '{"eu": ["sales", "it"], "us": ["legal", "ops"]}'`),
		})},
	}
}

func merge(parts ...map[string]Placement) map[string]Placement {
	all := map[string]Placement{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all
}

// statements are the calls that place the tables: those that others are co-located with come first, and
// one transaction holds all, because foreign keys connect tables.
func (l Layout) statements() []string {
	names := slices.SortedFunc(maps.Keys(l.Placed), func(a, b string) int {
		if x, y := rank(l.Placed[a]), rank(l.Placed[b]); x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
	var out []string
	for _, name := range names {
		out = append(out, l.Placed[name].statement(name))
	}
	return out
}

func rank(p Placement) int {
	switch {
	case p.Reference:
		return 0
	case p.With == "":
		return 1
	}
	return 2
}

// tableNames are all tables, in an order in which they can be filled.
func tableNames() []string {
	return []string{
		"countries", "products", "customers", "orders", "items", "returns", "events", "accounts", "tickets", "staff", "audit", "calendar", "samples",
		"tpch.region", "tpch.nation", "tpch.supplier", "tpch.part", "tpch.partsupp", "tpch.customer", "tpch.orders", "tpch.lineitem",
		"entry.warehouse", "entry.district", "entry.customer", "entry.history", "entry.item", "entry.stock", "entry.orders",
		"entry.new_order", "entry.order_line",
	}
}

// schema is the DDL of all tables.
func schema() (string, error) {
	var out strings.Builder
	for _, name := range []string{"shop", "tpch", "entry"} {
		text, err := schemaFiles.ReadFile("schema/" + name + ".sql")
		if err != nil {
			return "", err
		}
		out.Write(text)
	}
	return out.String(), nil
}
