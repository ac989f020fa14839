package sqldiff

import (
	"fmt"
	"slices"
	"strings"
)

// kind is a type of the generator: few, so that expressions fit together. Numbers of kind amount always have
// two digits after the point, so that equal ones also look equal.
type kind int

const (
	integer kind = iota
	amount
	word
	truth3
)

// field is a column that can be named.
type field struct {
	name string
	kind kind
}

// source is something in FROM.
type source struct {
	name   string
	fields []field
}

// writer makes random statements whose answer is never ambiguous: LIMIT comes with an order by all columns,
// aggregates do not depend on the order of rows, and nothing can fail for one row only.
type writer struct {
	*choices
	aliases int
	ctes    []source
}

func fields(list string) []field {
	kinds := map[byte]kind{'i': integer, 'n': amount, 't': word, 'b': truth3}
	var out []field
	for f := range strings.FieldsSeq(list) {
		name, k, _ := strings.Cut(f, ":")
		out = append(out, field{name, kinds[k[0]]})
	}
	return out
}

var randomTables = []source{
	{"customers", fields("id:i name:t city:t country:t credit:n vip:b referrer:i")},
	{"orders", fields("customer_id:i id:i status:t total:n note:t")},
	{"items", fields("customer_id:i order_id:i line:i product_id:i quantity:i price:n")},
	{"events", fields("customer_id:i device:t kind:t seq:i")},
	{"accounts", fields("owner:i balance:n")},
	{"tickets", fields("id:i subject:t customer_id:i open:b")},
	{"products", fields("id:i name:t category:t price:n")},
	{"countries", fields("code:t name:t region:t population:i")},
	{"staff", fields("id:i dept:t name:t manager:i salary:n")},
	{"audit", fields("id:i what:t amount:n customer_id:i")},
	{"returns", fields("customer_id:i id:i reason:t amount:n")},
	{"customer_totals", fields("customer_id:i orders:i total:n")},
	{"order_lines", fields("customer_id:i order_id:i status:t line:i quantity:i")},
}

func (w *writer) alias() string {
	w.aliases++
	return fmt.Sprintf("x%d", w.aliases)
}

// kinds chooses the types of some columns.
func (w *writer) kinds(n int) []kind {
	out := make([]kind, n)
	for i := range out {
		out[i] = kind(w.n(4))
	}
	return out
}

// query writes a query with columns of these types, named c1, c2, ...
func (w *writer) query(want []kind, outer []source, depth int) string {
	switch {
	case depth > 0 && w.chance(10):
		return w.with(want, outer, depth-1)
	case depth > 0 && w.chance(12):
		op := w.pick("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL")
		return w.limited("("+w.selection(want, outer, depth-1)+") "+op+" ("+w.selection(want, outer, depth-1)+")", len(want))
	}
	return w.selection(want, outer, depth)
}

func (w *writer) with(want []kind, outer []source, depth int) string {
	before := w.ctes
	defer func() { w.ctes = before }()
	inner := w.kinds(1 + w.n(3))
	body := w.query(inner, nil, depth)
	name := w.alias()
	w.ctes = append(slices.Clone(before), source{name, outputs(inner)})
	return "WITH " + name + " AS " + w.pick("", "MATERIALIZED ", "NOT MATERIALIZED ") + "(" + body + ") " + w.selection(want, outer, depth)
}

func outputs(kinds []kind) []field {
	out := make([]field, len(kinds))
	for i, k := range kinds {
		out[i] = field{fmt.Sprintf("c%d", i+1), k}
	}
	return out
}

// limited adds an order by all columns, and then maybe a limit.
func (w *writer) limited(sql string, width int) string {
	if !w.chance(25) {
		return sql
	}
	var order []string
	for i := range width {
		order = append(order, fmt.Sprint(i+1)+w.pick("", " DESC", " NULLS FIRST", " DESC NULLS LAST"))
	}
	sql += " ORDER BY " + strings.Join(order, ", ")
	if w.chance(60) {
		sql += fmt.Sprintf(" LIMIT %d", w.n(12))
	}
	if w.chance(25) {
		sql += fmt.Sprintf(" OFFSET %d", w.n(6))
	}
	return sql
}

func (w *writer) selection(want []kind, outer []source, depth int) string {
	from, inner := w.from(outer, depth)
	scope := slices.Concat(inner, outer)
	where := ""
	if w.chance(65) {
		where = " WHERE " + w.condition(scope, depth)
	}
	if w.chance(25) {
		return w.grouped(want, from, where, inner, depth)
	}
	distinct := ""
	if w.chance(12) {
		distinct = "DISTINCT "
	}
	var list []string
	for i, k := range want {
		e := w.expression(k, scope, depth)
		if k == integer && w.chance(8) {
			e = w.window(inner)
		}
		list = append(list, fmt.Sprintf("%s AS c%d", e, i+1))
	}
	return w.limited("SELECT "+distinct+strings.Join(list, ", ")+" FROM "+from+where, len(want))
}

// window writes a window function whose value is the same for all peers.
func (w *writer) window(s []source) string {
	by := w.column(kind(w.n(3)), s)
	return w.pick("count(*) OVER (PARTITION BY "+by+")", "rank() OVER (ORDER BY "+by+")", "dense_rank() OVER (ORDER BY "+by+" DESC)",
		"count(*) OVER (ORDER BY "+by+")", "count(*) OVER ()")
}

func (w *writer) grouped(want []kind, from, where string, inner []source, depth int) string {
	var keys []string
	var kinds []kind
	for range w.n(3) {
		k := kind(w.n(4))
		if key := w.column(k, inner); strings.HasPrefix(key, "x") { // a constant would mean something else there
			keys, kinds = append(keys, key), append(kinds, k)
		}
	}
	var list []string
	for i, k := range want {
		e := w.aggregate(k, inner, depth)
		if at := slices.Index(kinds, k); at >= 0 && w.n(2) == 0 {
			e = keys[at]
		}
		list = append(list, fmt.Sprintf("%s AS c%d", e, i+1))
	}
	sql := "SELECT " + strings.Join(list, ", ") + " FROM " + from + where
	if len(keys) > 0 {
		form := w.pick("%s", "%s", "%s", "ROLLUP (%s)", "CUBE (%s)", "GROUPING SETS ((%s), ())")
		sql += " GROUP BY " + fmt.Sprintf(form, strings.Join(keys, ", "))
	}
	if w.chance(25) {
		sql += " HAVING " + w.aggregate(integer, inner, 0) + w.pick(" > ", " < ", " <> ") + fmt.Sprint(w.n(5))
	}
	return w.limited(sql, len(want))
}

func (w *writer) aggregate(k kind, s []source, depth int) string {
	filter := ""
	if w.chance(12) {
		filter = " FILTER (WHERE " + w.condition(s, 0) + ")"
	}
	switch k {
	case amount:
		c := w.column(amount, s)
		return w.pick("sum("+c+")"+filter, "min("+c+")"+filter, "max("+c+")"+filter, "round(avg("+c+")"+filter+", 2)", "sum(DISTINCT "+c+")"+filter)
	case word:
		c := w.column(word, s)
		return w.pick("max("+c+")"+filter, "min("+c+")"+filter, "string_agg("+c+", ',' ORDER BY "+c+")"+filter, "string_agg(DISTINCT "+c+", '')"+filter)
	case truth3:
		c := w.column(truth3, s)
		return w.pick("bool_or("+c+")", "bool_and("+c+")") + filter
	}
	c := w.column(integer, s)
	return w.pick("count(*)"+filter, "count("+c+")"+filter, "sum("+c+")"+filter+"::bigint", "max("+c+")"+filter, "min("+c+")"+filter,
		"count(DISTINCT "+w.column(kind(w.n(3)), s)+")"+filter)
}
