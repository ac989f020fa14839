package plan_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator writes random statements over the tables of the differential test. They are often
// wrong; those that PostgreSQL refuses say nothing. Literals are written as {0}, {1}, ... so that one
// text can have several sets of them.
type generator struct {
	rand     *rand.Rand
	literals int
	ctes     []source
	// ordered adds comparisons, which say something when the key keeps the order of values; two adds
	// conditions on the second key column, w.
	ordered, two bool
}

// source is something that can stand in FROM, and the names of its columns.
type source struct {
	name    string
	columns []string
}

// scope is what names can mean: the innermost first.
type scope []source

func tables() []source {
	return []source{
		{"a", []string{"k", "v", "w"}},
		{"b", []string{"k", "v", "w"}},
		{"c", []string{"w", "k", "id"}},
		{"r", []string{"k", "v"}},
		{"va", []string{"k", "n"}},
		{"vb", []string{"k", "v"}},
		{"vu", []string{"k", "v"}},
		{"vl", []string{"k", "v"}},
	}
}

func (g *generator) pick(words ...string) string { return words[g.rand.IntN(len(words))] }
func (g *generator) source(list []source) source { return list[g.rand.IntN(len(list))] }
func (g *generator) chance(percent int) bool     { return g.rand.IntN(100) < percent }

// literal is most often the statement's first one, so that several keys lead to one node.
func (g *generator) literal() string {
	if g.literals > 0 && g.chance(65) {
		return "{0}"
	}
	g.literals++
	return fmt.Sprintf("{%d}", g.literals-1)
}

// alias comes from a small pool, so that names hide each other.
func (g *generator) alias() string { return g.pick("x", "y", "z", "a", "b") }

// column names a column of the scope, now and then by a name that may mean several or none.
func (g *generator) column(s scope) string {
	if len(s) == 0 || g.chance(2) {
		return g.pick("k", "v", "x.k", "y.k")
	}
	item := s[0]
	if g.chance(60) {
		item = g.source(s)
	}
	if len(item.columns) == 0 {
		return g.pick("k", "v")
	}
	name := item.columns[0]
	if g.chance(35) {
		name = g.pick(item.columns...)
	}
	if item.name == "" || g.chance(15) {
		return name
	}
	return item.name + "." + name
}

// query writes a query of at least the given number of columns.
func (g *generator) query(outer scope, depth, width int) (sql string, columns []string) {
	switch {
	case depth > 0 && g.chance(10):
		return g.with(outer, depth, width)
	case depth > 0 && g.chance(12):
		return g.setOperation(outer, depth, width)
	}
	return g.selection(outer, depth, width)
}

func (g *generator) with(outer scope, depth, width int) (string, []string) {
	before := g.ctes
	defer func() { g.ctes = before }()
	name := g.pick("q", "a", "b")
	body, columns := g.query(nil, depth-1, 2)
	list := ""
	if g.chance(30) {
		columns = []string{"v", "k"}
		list = "(v, k)"
	}
	g.ctes = append([]source{{name, columns}}, g.ctes...)
	main, out := g.query(outer, depth-1, width)
	return "WITH " + g.pick("", "", "RECURSIVE ") + name + list + " AS " + g.pick("", "", "MATERIALIZED ") + "(" + body + ") " + main, out
}

func (g *generator) setOperation(outer scope, depth, width int) (string, []string) {
	l, columns := g.selection(outer, depth-1, -width)
	r, _ := g.selection(outer, depth-1, -width)
	sql := "(" + l + ") " + g.pick("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL") + " (" + r + ")"
	if g.chance(10) {
		sql += " ORDER BY 1, 2 LIMIT 2"
	}
	return sql, columns
}

// selection writes a SELECT. A negative width is exact.
func (g *generator) selection(outer scope, depth, width int) (string, []string) {
	from, inner := g.from(outer, depth)
	full := append(append(scope{}, inner...), outer...)
	where := ""
	if terms := g.pins(inner, full, depth); len(terms) > 0 {
		where = " WHERE " + strings.Join(terms, " AND ")
	}
	if g.chance(15) {
		return g.grouped(from, where, inner, full, width)
	}
	exact, n := width < 0, max(width, -width)
	if !exact && g.chance(25) {
		columns := []string{}
		for _, s := range inner {
			columns = append(columns, s.columns...)
		}
		return "SELECT * FROM " + from + where, columns
	}
	var list, columns []string
	for len(list) < n {
		e, name := g.target(full, depth)
		list = append(list, e+" AS "+name)
		columns = append(columns, name)
	}
	sql := "SELECT " + g.pick("", "", "", "DISTINCT ", "DISTINCT ON ("+g.column(inner)+") ") + strings.Join(list, ", ") + " FROM " + from + where
	if strings.HasPrefix(sql, "SELECT DISTINCT ON") {
		inside := sql[len("SELECT DISTINCT ON ("):]
		return sql + " ORDER BY " + inside[:strings.Index(inside, ")")] + ", " + ordinals(n), columns
	}
	if g.chance(15) {
		sql += " ORDER BY " + ordinals(n) + " LIMIT 2"
	}
	return sql, columns
}

func ordinals(n int) string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprint(i+1))
	}
	return strings.Join(out, ", ")
}

func (g *generator) grouped(from, where string, inner, full scope, width int) (string, []string) {
	key := g.column(inner)
	sql := "SELECT " + key + " AS k, " + g.pick("count(*)", "sum("+g.column(full)+")", "max("+g.column(full)+")") + "::bigint AS v"
	columns := []string{"k", "v"}
	for len(columns) < max(width, -width) {
		sql += ", count(*) AS w"
		columns = append(columns, "w")
	}
	if -width == 1 {
		sql, columns = "SELECT "+key+" AS k", columns[:1]
	}
	sql += " FROM " + from + where + " GROUP BY " + g.pick(key, key, "1", "GROUPING SETS (("+key+"), ())", "ROLLUP ("+key+")")
	if g.chance(20) {
		sql += " HAVING count(*) > " + g.literal()
	}
	return sql, columns
}

func (g *generator) target(s scope, depth int) (expr, name string) {
	name = g.pick("k", "k", "v", "w", "n")
	switch {
	case depth > 0 && g.chance(8):
		q, _ := g.query(s, depth-1, 1)
		return "(SELECT count(*) FROM (" + q + ") cnt)", name
	case depth > 0 && g.chance(6):
		q, _ := g.selection(s, depth-1, -1)
		return "(" + g.column(s) + " " + g.pick("IN", "NOT IN") + " (" + q + "))::int", name
	case g.chance(8):
		return "count(*) OVER (PARTITION BY " + g.column(s) + ")", name
	case g.chance(8):
		return g.literal() + "::bigint", name
	}
	return g.column(s), name
}

// from writes a FROM list and returns what it makes visible.
func (g *generator) from(outer scope, depth int) (string, scope) {
	var parts []string
	var s scope
	for range 1 + g.rand.IntN(2) {
		sql, inner := g.join(outer, s, depth)
		parts = append(parts, sql)
		s = append(s, inner...)
	}
	return strings.Join(parts, ", "), s
}

func (g *generator) join(outer, left scope, depth int) (string, scope) {
	sql, item := g.item(outer, left, depth)
	s := scope{item}
	for g.chance(45) && len(s) < 4 {
		r, right := g.item(outer, append(append(scope{}, s...), left...), depth)
		both := append(append(scope{}, s...), right)
		kind := g.pick("JOIN", "LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
		switch {
		case g.chance(15):
			sql = sql + " " + kind + " " + r + " USING (k)"
		case g.chance(6):
			sql = sql + " NATURAL " + kind + " " + r
		case kind == "FULL JOIN" || g.chance(60):
			sql = sql + " " + kind + " " + r + " ON " + right.name + ".k = " + g.pick(g.column(s), s[0].name+".k", s[len(s)-1].name+".k")
			if g.chance(30) && kind != "FULL JOIN" {
				sql += " AND " + g.pick(right.name, s[0].name) + ".k = " + g.literal()
			}
		default:
			sql = sql + " " + kind + " " + r + " ON " + g.condition(append(both, outer...), 0)
		}
		s = both
		if g.chance(15) {
			sql = "(" + sql + ")"
		}
		if g.chance(6) {
			sql = "(" + sql + ") AS j(k, v)"
			s = scope{{"j", []string{"k", "v"}}}
		}
	}
	return sql, s
}

func (g *generator) item(outer, left scope, depth int) (string, source) {
	alias := g.alias()
	if depth > 0 && g.chance(25) {
		lateral, see := "", outer
		if g.chance(35) {
			lateral, see = "LATERAL ", append(append(scope{}, left...), outer...)
		}
		q, columns := g.query(see, depth-1, 2)
		return lateral + "(" + q + ") AS " + alias, source{alias, columns}
	}
	if g.chance(6) {
		return "(VALUES (" + g.literal() + ", " + g.literal() + "), (" + g.pick("NULL", g.literal()) + ", 3)) AS " + alias + "(k, v)", source{alias, []string{"k", "v"}}
	}
	all := append(append([]source{}, g.ctes...), tables()...)
	t := g.source(all)
	if len(g.ctes) > 0 && g.chance(40) {
		t = g.ctes[0]
	}
	switch {
	case g.chance(10):
		return t.name, source{t.name, t.columns}
	case g.chance(8) && len(t.columns) > 1:
		columns := append([]string{"v", "k"}, t.columns[2:]...)
		return t.name + " AS " + alias + "(v, k)", source{alias, columns}
	}
	return t.name + " AS " + alias, source{alias, t.columns}
}

// pins are terms that give items of FROM a key, so that many statements can be routed: all of
// them, one of them, or none, so that the others must get theirs from joins or from outside.
func (g *generator) pins(inner, full scope, depth int) []string {
	var terms []string
	chosen, all := g.rand.IntN(len(inner)), g.chance(35)
	for i, item := range inner {
		switch {
		case g.ordered && (all || i == chosen) && g.chance(50):
			terms = append(terms, g.bound(item))
		case all && g.chance(45) || !all && i == chosen && g.chance(60):
			terms = append(terms, item.name+".k = "+g.literal())
		case g.chance(35):
			other := g.source(full).name
			terms = append(terms, item.name+".k = "+other+".k")
			if g.two && g.chance(60) {
				terms = append(terms, item.name+".w = "+other+".w")
			}
		}
		if g.two && g.chance(50) {
			terms = append(terms, item.name+".w = "+g.literal())
		}
	}
	if g.chance(30) {
		terms = append(terms, g.term(full, depth))
	}
	return terms
}

// bound compares the key, or a part of it, with literals.
func (g *generator) bound(item source) string {
	k := item.name + ".k"
	op := g.pick("<", "<=", ">", ">=", "<", "<=")
	switch g.rand.IntN(9) {
	case 0:
		return k + " BETWEEN " + g.literal() + " AND " + g.literal()
	case 1:
		return k + " BETWEEN SYMMETRIC " + g.literal() + " AND " + g.literal()
	case 2:
		return "(" + k + " " + op + " " + g.literal() + " OR " + k + " " + g.pick("=", "<") + " " + g.literal() + ")"
	case 3:
		return "(" + k + ", " + item.name + "." + g.pick("w", "v") + ") " + op + " (" + g.literal() + ", " + g.pick("NULL", g.literal(), g.literal()) + ")"
	case 4:
		return g.literal() + " " + op + " " + k
	case 5:
		return k + " = " + g.literal() + " AND " + item.name + ".w " + op + " " + g.literal()
	case 6:
		return "(" + k + ", " + item.name + ".w) " + g.pick("=", "<=", "IN") + " ((" + g.literal() + ", " + g.literal() + "))"
	}
	return k + " " + op + " " + g.literal()
}

// condition writes a condition.
func (g *generator) condition(s scope, depth int) string {
	terms := []string{g.term(s, depth)}
	for g.chance(55) && len(terms) < 4 {
		terms = append(terms, g.term(s, depth))
	}
	return strings.Join(terms, " AND ")
}

func (g *generator) term(s scope, depth int) string {
	c := g.column(s)
	switch n := g.rand.IntN(100); {
	case n < 30:
		return c + " = " + g.literal()
	case n < 48:
		return c + " = " + g.column(s)
	case n < 54:
		return c + " IN (" + g.literal() + ", " + g.literal() + ")"
	case n < 58:
		return c + " = ANY (ARRAY[" + g.literal() + ", " + g.literal() + "])"
	case n < 62:
		return "(" + c + ", " + g.column(s) + ") IN ((" + g.literal() + ", " + g.literal() + "), (" + g.literal() + ", " + g.literal() + "))"
	case n < 67:
		return "(" + g.term(s, 0) + " OR " + g.term(s, 0) + ")"
	case n < 71:
		return "(" + c + " = " + g.literal() + " OR " + c + " = " + g.literal() + ")"
	case n < 74:
		return "NOT (" + g.term(s, depth) + ")"
	case n < 77:
		return c + " IS " + g.pick("NULL", "NOT NULL")
	case n < 80:
		return c + g.pick(" > ", " < ", " <= ", " >= ") + g.literal()
	case n < 82:
		return "coalesce(" + c + ", " + g.literal() + ") = " + g.literal()
	case depth > 0 && n < 90:
		q, _ := g.selection(s, depth-1, -1)
		return c + " " + g.pick("IN", "NOT IN", "= ANY") + " (" + q + ")"
	case depth > 0 && n < 97:
		q, _ := g.query(s, depth-1, 1)
		return g.pick("", "NOT ") + "EXISTS (" + q + ")"
	case depth > 0:
		q, _ := g.selection(s, depth-1, -1)
		return c + " = (SELECT max(k) FROM (" + q + ") AS m(k))"
	}
	return g.column(s) + " = " + g.column(s)
}

// write writes a statement that changes a or b.
func (g *generator) write(depth int) string {
	target := source{g.pick("a", "b"), []string{"k", "v", "w"}}
	t := source{"t", target.columns}
	switch n := g.rand.IntN(100); {
	case n < 30:
		q, _ := g.query(nil, depth, 3)
		return "INSERT INTO " + target.name + g.pick("(k, v, w)", "(v, k, w)") + " SELECT q.* FROM (" + q + ") q" + g.pick("", "", " RETURNING *")
	case n < 45:
		q, _ := g.selection(nil, depth, -3)
		return "INSERT INTO " + target.name + "(k, v, w) " + q
	case n < 65:
		from, s := g.from(nil, depth)
		return "DELETE FROM " + target.name + " AS t USING " + from + " WHERE " + strings.Join(append(g.pins(append(scope{t}, s...), append(scope{t}, s...), depth), "true"), " AND ")
	case n < 85:
		from, s := g.from(nil, depth)
		return "UPDATE " + target.name + " AS t SET " + g.pick("v", "v", "w", "k") + " = " + g.literal() + " FROM " + from +
			" WHERE " + strings.Join(append(g.pins(append(scope{t}, s...), append(scope{t}, s...), depth), "true"), " AND ")
	case n < 92:
		q, columns := g.query(nil, depth, 3)
		s := source{"s", columns}
		return "MERGE INTO " + target.name + " AS t USING (" + q + ") AS s ON " + g.column(scope{t}) + " = " + g.column(scope{s}) +
			" WHEN MATCHED THEN " + g.pick("DELETE", "UPDATE SET v = "+g.literal()) +
			" WHEN NOT MATCHED THEN INSERT (k, v) VALUES (" + g.column(scope{s}) + ", " + g.literal() + ")"
	}
	q, _ := g.selection(nil, depth, -3)
	return "WITH w AS (" + g.pick("DELETE FROM b AS t WHERE "+g.condition(scope{t}, depth)+" RETURNING *",
		"UPDATE b AS t SET v = "+g.literal()+" WHERE "+g.condition(scope{t}, depth)+" RETURNING v, k, w",
		"INSERT INTO b(k, v, w) "+q+" RETURNING k, v, w") +
		") INSERT INTO a(k, v, w) SELECT * FROM w"
}
