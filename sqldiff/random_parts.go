package sqldiff

import (
	"fmt"
	"slices"
	"strings"
)

// from writes a FROM clause and returns what it makes visible.
func (w *writer) from(outer []source, depth int) (string, []source) {
	sql, first := w.item(outer, nil, depth)
	scope := []source{first}
	for len(scope) < 3 && w.chance(40) {
		r, right := w.item(outer, scope, depth)
		both := append(slices.Clone(scope), right)
		join := w.pick("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
		on := w.column(integer, scope) + " = " + w.column(integer, []source{right})
		switch {
		case strings.HasPrefix(r, "LATERAL") && (join == "RIGHT JOIN" || join == "FULL JOIN"):
			join = "LEFT JOIN"
		case join == "FULL JOIN": // PostgreSQL wants equality there
		case w.chance(12):
			on = w.column(word, scope) + " = " + w.column(word, []source{right})
		case w.chance(10):
			on = w.column(integer, scope) + w.pick(" < ", " > ") + w.column(integer, []source{right})
		case w.chance(20):
			on += " AND " + w.condition(both, 0)
		}
		sql, scope = sql+" "+join+" "+r+" ON "+on, both
	}
	return sql, scope
}

func (w *writer) item(outer, left []source, depth int) (string, source) {
	name := w.alias()
	if depth > 0 && w.chance(25) {
		inner := w.kinds(1 + w.n(3))
		if w.chance(25) {
			return "LATERAL (" + w.query(inner, slices.Concat(left, outer), depth-1) + ") AS " + name, source{name, outputs(inner)}
		}
		return "(" + w.query(inner, nil, depth-1) + ") AS " + name, source{name, outputs(inner)}
	}
	if w.chance(4) {
		return "(VALUES (2, 'Paris'), (5, 'paid'), (NULL, 'Ana')) AS " + name + "(c1, c2)", source{name, []field{{"c1", integer}, {"c2", word}}}
	}
	if len(w.ctes) > 0 && w.chance(50) {
		cte := w.ctes[w.n(len(w.ctes))]
		return cte.name + " AS " + name, source{name, cte.fields}
	}
	t := randomTables[w.n(len(randomTables))]
	return t.name + " AS " + name, source{name, t.fields}
}

// column names a column of a type, or a constant when there is none.
func (w *writer) column(k kind, s []source) string {
	var found []string
	for _, item := range s {
		for _, f := range item.fields {
			if f.kind == k {
				found = append(found, item.name+"."+f.name)
			}
		}
	}
	if len(found) == 0 {
		return w.constant(k)
	}
	return found[w.n(len(found))]
}

func (w *writer) constant(k kind) string {
	switch k {
	case integer:
		return w.pick("2", "5", "0", "-7", "11", "1002", "NULL::bigint")
	case amount:
		return w.pick("100.00", "0.00", "-5.25", "250.50")
	case word:
		return w.pick("'paid'", "'Paris'", "'Ana'", "'click'", "'de'", "''::text", "NULL::text")
	}
	return w.pick("true", "false", "NULL::boolean")
}

// expression writes a value that any row can have without an error.
func (w *writer) expression(k kind, s []source, depth int) string {
	if depth > 0 && w.chance(7) {
		from, inner := w.from(s, depth-1)
		scope := slices.Concat(inner, s)
		return "(SELECT " + w.aggregate(k, inner, 0) + " FROM " + from + " WHERE " + w.correlation(inner, s) + w.condition(scope, 0) + ")"
	}
	c := w.column(k, s)
	if !w.chance(30) {
		return c
	}
	d := w.column(k, s)
	switch k {
	case integer:
		return w.pick("coalesce("+c+", "+d+")", c+" + "+d, c+" - 1", "length("+w.column(word, s)+")::bigint", "greatest("+c+", "+d+")",
			"CASE WHEN "+w.condition(s, 0)+" THEN "+c+" END", w.constant(integer))
	case amount:
		return w.pick("coalesce("+c+", 0.00)", c+" + "+d, "-"+c, "least("+c+", "+d+")", "abs("+c+")")
	case word:
		return w.pick("coalesce("+c+", "+d+")", "upper("+c+")", c+" || "+d, "left("+c+", 2)", w.constant(word))
	}
	return w.pick("NOT "+c, c+" IS NULL", c+" OR "+d, "("+w.condition(s, 0)+")")
}

// correlation ties a subquery to its surroundings, most of the time.
func (w *writer) correlation(inner, outer []source) string {
	if len(outer) == 0 || w.chance(20) {
		return ""
	}
	return w.column(integer, inner) + " = " + w.column(integer, outer) + " AND "
}

func (w *writer) condition(s []source, depth int) string {
	terms := []string{w.term(s, depth)}
	for len(terms) < 3 && w.chance(30) {
		terms = append(terms, w.term(s, depth))
	}
	return strings.Join(terms, w.pick(" AND ", " AND ", " OR "))
}

func (w *writer) term(s []source, depth int) string {
	k := kind(w.n(3))
	c := w.column(k, s)
	if depth > 0 && w.chance(25) {
		return w.subqueryTerm(k, c, s, depth-1)
	}
	switch w.n(9) {
	case 0:
		return c + " = " + w.constant(k)
	case 1:
		return c + w.pick(" < ", " > ", " <= ", " <> ") + w.constant(k)
	case 2:
		return c + " IN (" + w.constant(k) + ", " + w.constant(k) + ", " + w.constant(k) + ")"
	case 3:
		return c + " IS " + w.pick("NULL", "NOT NULL")
	case 4:
		return c + w.pick(" = ", " <> ", " < ", " IS DISTINCT FROM ") + w.column(k, s)
	case 5:
		return w.column(integer, s) + " BETWEEN " + fmt.Sprint(w.n(20)-5) + " AND " + fmt.Sprint(w.n(90))
	case 6:
		return w.column(word, s) + w.pick(" LIKE 'A%'", " LIKE '%a%'", " NOT LIKE 'p%'")
	case 7:
		return w.column(truth3, s) + w.pick("", " IS NOT TRUE", " IS NULL")
	}
	return "NOT (" + c + " = " + w.constant(k) + ")"
}

func (w *writer) subqueryTerm(k kind, c string, s []source, depth int) string {
	switch w.n(4) {
	case 0:
		return c + w.pick(" IN (", " NOT IN (", " > ALL (", " = ANY (") + w.query([]kind{k}, s, depth) + ")"
	case 1:
		return c + w.pick(" IN (", " NOT IN (") + w.query([]kind{k}, nil, depth) + ")"
	case 2:
		from, inner := w.from(s, depth)
		return w.pick("EXISTS", "NOT EXISTS") + " (SELECT 1 FROM " + from + " WHERE " + w.correlation(inner, s) + w.condition(slices.Concat(inner, s), 0) + ")"
	}
	from, inner := w.from(s, depth)
	return c + w.pick(" = ", " > ", " < ") + "(SELECT " + w.aggregate(k, inner, 0) + " FROM " + from + " WHERE " + w.correlation(inner, s) + "true)"
}

// targets are what random writes change, with columns that any value of their type fits.
var targets = []struct {
	source
	free field
}{
	{randomTables[1], field{"note", word}},
	{randomTables[0], field{"referrer", integer}},
	{randomTables[5], field{"customer_id", integer}},
	{randomTables[3], field{"customer_id", integer}},
	{randomTables[6], field{"category", word}},
	{randomTables[9], field{"what", word}},
	{randomTables[8], field{"manager", integer}},
}

// statement writes a random statement that changes tables; every row it changes has one new value only.
func (w *writer) statement(depth int) string {
	t := targets[w.n(len(targets))]
	self := []source{{"t", t.fields}}
	value := w.expression(t.free.kind, self, depth)
	if t.free.kind == word {
		value = "coalesce(" + value + ", 'none')"
	} else {
		value = "(" + value + ")::int"
	}
	returning := ""
	if w.chance(30) {
		returning = " RETURNING t." + t.fields[0].name + ", t." + t.free.name
	}
	switch w.n(10) {
	case 7, 8:
		return w.writingCTE(t.source, t.free, value, depth)
	case 9:
		from, inner := w.from(nil, depth)
		return "UPDATE " + t.name + " AS t SET " + t.free.name + " = " + value + " FROM " + from + " WHERE " + w.column(integer, self) + " = " + w.column(integer, inner) +
			" AND " + w.condition(self, 0) + returning
	case 0:
		return "UPDATE " + t.name + " AS t SET " + t.free.name + " = " + value + " WHERE " + w.condition(self, depth) + returning
	case 1:
		return "DELETE FROM " + t.name + " AS t WHERE " + w.condition(self, depth) + returning
	case 2:
		from, inner := w.from(nil, depth)
		return "DELETE FROM " + t.name + " AS t USING " + from + " WHERE " + w.column(integer, self) + " = " + w.column(integer, inner) + " AND " + w.condition(append(inner, self...), 0) + returning
	case 3:
		return "UPDATE " + t.name + " AS t SET " + t.free.name + " = q.c2 FROM (" + w.perKey(t.free.kind, depth) + ") AS q WHERE q.c1 = " + w.column(integer, self) + returning
	case 4:
		return "INSERT INTO returns AS t (customer_id, id) SELECT DISTINCT coalesce(q.c1, 0), coalesce(q.c2, 0) FROM (" + w.query([]kind{integer, integer}, nil, depth) + ") AS q" + w.pick("", " RETURNING t.customer_id")
	case 5:
		return "MERGE INTO " + t.name + " AS t USING (" + w.perKey(t.free.kind, depth) + ") AS q ON q.c1 = " + w.column(integer, self) +
			w.pick("", " WHEN MATCHED AND q.c1 > 10 THEN DELETE") + " WHEN MATCHED THEN UPDATE SET " + t.free.name + " = q.c2"
	}
	return "UPDATE customers AS t SET id = t.id + 100000 WHERE " + w.condition([]source{{"t", randomTables[0].fields}}, depth) + w.pick("", " RETURNING t.id")
}

// writingCTE writes a statement that reads what a write in its WITH clause returns, and may read the table that is written.
func (w *writer) writingCTE(t source, free field, value string, depth int) string {
	self := []source{{"t", t.fields}}
	write := w.pick("DELETE FROM "+t.name+" AS t", "UPDATE "+t.name+" AS t SET "+free.name+" = "+value) + " WHERE " + w.condition(self, depth)
	before := w.ctes
	defer func() { w.ctes = before }()
	name := w.alias()
	first := t.fields[0]
	w.ctes = append(slices.Clone(before), source{name, []field{{"c1", first.kind}, {"c2", free.kind}}})
	with := "WITH " + name + " AS (" + write + " RETURNING t." + first.name + " AS c1, t." + free.name + " AS c2) "
	if w.chance(30) {
		return with + "INSERT INTO returns (customer_id, id) SELECT DISTINCT coalesce(q.c1, 0), coalesce(q.c2, 0) FROM (" + w.selection([]kind{integer, integer}, nil, depth) + ") AS q"
	}
	return with + w.selection(w.kinds(1+w.n(3)), nil, depth)
}

// perKey writes a query with one row for each value of its first column.
func (w *writer) perKey(k kind, depth int) string {
	from, inner := w.from(nil, depth)
	key, value := w.column(integer, inner), w.aggregate(k, inner, 0)
	if k == word {
		value = "coalesce(" + value + ", 'none')"
	}
	return "SELECT " + key + " AS c1, " + value + " AS c2 FROM " + from + " GROUP BY " + key
}
