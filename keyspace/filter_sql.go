package keyspace

import (
	"slices"
	"strconv"
	"strings"
)

// SQL writes the condition for a table with these key columns. It has only built-in operators, types, collations and
// immutable functions in it, so that triggers, indexes and publications may contain it.
func (f Filter) SQL(columns []FilterColumn) string {
	if f.Keys != nil {
		return f.keysSQL(columns)
	}
	var conditions []string
	for _, b := range []*FilterBound{f.Low, f.High} {
		if b == nil {
			continue
		}
		var left, right []string
		for i, value := range b.Values {
			left = append(left, f.Terms[i].sql(columns))
			right = append(right, f.Terms[i].literal(value))
		}
		conditions = append(conditions, row(left)+" "+b.Op+" "+row(right))
	}
	if len(conditions) == 0 {
		return "true"
	}
	return "(" + strings.Join(conditions, " AND ") + ")"
}

func row(items []string) string {
	if len(items) == 1 {
		return items[0]
	}
	return "(" + strings.Join(items, ", ") + ")"
}

func (f Filter) keysSQL(columns []FilterColumn) string {
	if len(f.Keys) == 0 {
		return "false"
	}
	t := f.Terms[0]
	// One array, because many keys in a list would each be an expression of their own.
	elements := make([]string, len(f.Keys))
	for i, key := range f.Keys {
		elements[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(key) + `"`
	}
	return "(" + columns[t.Columns[0]].SQL + " = ANY (" + t.literal("{"+strings.Join(elements, ",")+"}") + "[]))"
}

// sql writes what the term is in a row.
func (t *FilterTerm) sql(columns []FilterColumn) string {
	first := columns[t.Columns[0]]
	switch t.Method {
	case Hash:
		expression := strconv.Itoa(HashSeed)
		for _, c := range t.Columns {
			expression = columns[c].Type.seededHash(columns[c].SQL, expression)
		}
		return expression
	case List:
		return t.regionSQL(first)
	}
	return collated(first)
}

// collated makes a text compare by its bytes, whatever collation the column has.
func collated(c FilterColumn) string {
	if slices.Contains([]Type{Text, Varchar, Bpchar}, c.Type) {
		return "(" + c.SQL + ` COLLATE "C")`
	}
	return c.SQL
}

func (t *FilterTerm) regionSQL(c FilterColumn) string {
	var b strings.Builder
	b.WriteString("(CASE")
	for i := 0; i < len(t.Regions); {
		var values []string
		id := t.Regions[i].ID
		for ; i < len(t.Regions) && t.Regions[i].ID == id; i++ {
			values = append(values, typed(t.Regions[i].Value, t.Types[0]))
		}
		b.WriteString(" WHEN " + collated(c) + " IN (" + strings.Join(values, ", ") + ") THEN " + strconv.Itoa(int(id)))
	}
	if len(t.Regions) == 0 {
		b.WriteString(" WHEN false THEN 0")
	}
	if t.Default != nil {
		b.WriteString(" ELSE " + strconv.Itoa(int(*t.Default)))
	}
	b.WriteString(" END)")
	return b.String()
}

// literal writes a value that the term is compared with.
func (t *FilterTerm) literal(value string) string {
	switch t.Method {
	case Hash:
		return typed(value, Int8)
	case List:
		return typed(value, Int4)
	}
	return typed(value, t.Types[0])
}

func typed(value string, t Type) string {
	name := t.String()
	if t == Bpchar {
		name = "bpchar" // "character" is one character long
	}
	quoted := "'" + strings.ReplaceAll(value, "'", "''") + "'"
	if strings.Contains(value, `\`) {
		// Whatever standard_conforming_strings says.
		quoted = "E" + strings.ReplaceAll(quoted, `\`, `\\`)
	}
	return quoted + "::" + name
}
