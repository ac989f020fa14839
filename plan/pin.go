package plan

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pgshoal/pgshoal/keyspace"
)

// Pin says which rows of one reference to a distributed table a statement can need, or which rows it
// makes: what is known about each key column. What is not known stands for all values.
type Pin struct {
	Distribution uint32
	Table        string // for people
	Keys         []KeyColumn
	// Rows are comparisons of several key columns at once; all hold.
	Rows []RowBound
	// Insert is set for the rows of VALUES: row i has the i-th operand of each key column.
	Insert bool
	// Stored is set when rows are stored under these keys and the distribution may have no place for
	// them: that is an error then, not a row that does not exist. Insert implies it.
	Stored bool
	// Entry is the entry of the table's schema when that is its key; then there are no Keys.
	Entry *uint64
}

// KeyColumn is what a pin knows about one key column: Operands, Bounds and Unions all hold.
type KeyColumn struct {
	Type   keyspace.Type
	Column string // for people: table.column
	// Cast is the column's type with its modifiers, when it has any: they can change a value that
	// is stored. Length is the number of characters of varchar(n) and char(n).
	Cast   string
	Length int
	// Assigned is set when the operands themselves are stored: they must not be NULL.
	Assigned bool
	// Operands, if any: the column is equal to one of them.
	Operands []Operand
	Bounds   []Bound
	Unions   []Union
}

// Op is how a key column is compared with an operand. Columns are compared as the map orders
// them: text by its bytes.
type Op uint8

// The comparisons.
const (
	Equal Op = iota
	Less
	LessEqual
	Greater
	GreaterEqual
	// Like is a match with a pattern of LIKE, of which only what stands before the first wildcard counts.
	Like
	// Prefix is a value that begins with the operand.
	Prefix
)

func (o Op) String() string {
	return [...]string{"=", "<", "<=", ">", ">=", "LIKE", "begins with"}[o]
}

// commuted is the comparison with its sides exchanged.
func (o Op) commuted() Op {
	switch o {
	case Less:
		return Greater
	case LessEqual:
		return GreaterEqual
	case Greater:
		return Less
	case GreaterEqual:
		return LessEqual
	}
	return o
}

// Bound is one comparison of a key column that holds in all rows that matter.
type Bound struct {
	Op      Op
	Operand Operand
}

// Union is a list of conjunctions of which one holds.
type Union [][]Bound

// RowBound is a comparison like (a, b) > ($1, $2).
type RowBound struct {
	Columns  []int // positions in Pin.Keys
	Op       Op
	Operands []Operand
}

// Operand is a value known when the statement is executed.
type Operand struct {
	Param   int           // $n, or 0
	Literal int           // index of the literal in the normalised text, or -1
	Text    string        // the constant itself when Literal is -1 and Param is 0
	Null    bool          // the constant NULL
	Negate  bool          // the literal stands behind a minus sign
	Array   bool          // the value is an array: any element may be the key
	Eval    int           // index into Rewrite.Eval plus one, or 0
	From    keyspace.Type // the operand's own type
}

// Restricts reports whether anything is known about the column.
func (k *KeyColumn) Restricts() bool { return len(k.Operands)+len(k.Bounds)+len(k.Unions) > 0 }

// Open reports a pin that knows nothing: every shard of the distribution may have rows for it.
func (p *Pin) Open() bool {
	return p.Entry == nil && !p.Insert && len(p.Rows) == 0 && !slices.ContainsFunc(p.Keys, func(k KeyColumn) bool { return k.Restricts() })
}

// Columns names the key columns for people.
func (p *Pin) Columns() string {
	if len(p.Keys) == 0 {
		return p.Table
	}
	names := make([]string, len(p.Keys))
	for i := range p.Keys {
		names[i] = p.Keys[i].Column
	}
	return strings.Join(names, ", ")
}

// Restricted names the columns that the pin knows something about, or the table.
func (p *Pin) Restricted() string {
	var names []string
	for i := range p.Keys {
		if p.Keys[i].Restricts() || slices.ContainsFunc(p.Rows, func(r RowBound) bool { return slices.Contains(r.Columns, i) }) {
			names = append(names, p.Keys[i].Column)
		}
	}
	if len(names) == 0 {
		return p.Table
	}
	return strings.Join(names, ", ")
}

func (p *Pin) same(q *Pin) bool {
	return p.Distribution == q.Distribution && p.Insert == q.Insert && p.Stored == q.Stored &&
		(p.Entry == nil) == (q.Entry == nil) && (p.Entry == nil || *p.Entry == *q.Entry) &&
		slices.EqualFunc(p.Keys, q.Keys, func(a, b KeyColumn) bool {
			return a.Type == b.Type && a.Cast == b.Cast && a.Assigned == b.Assigned && slices.Equal(a.Operands, b.Operands) &&
				slices.Equal(a.Bounds, b.Bounds) && slices.EqualFunc(a.Unions, b.Unions, sameUnion)
		}) &&
		slices.EqualFunc(p.Rows, q.Rows, func(a, b RowBound) bool {
			return a.Op == b.Op && slices.Equal(a.Columns, b.Columns) && slices.Equal(a.Operands, b.Operands)
		})
}

func sameUnion(a, b Union) bool {
	return slices.EqualFunc(a, b, func(x, y []Bound) bool { return slices.Equal(x, y) })
}

// String prints the pin for EXPLAIN and golden files.
func (p *Pin) String() string {
	if p.Entry != nil {
		return fmt.Sprintf("%s: entry %d", p.Table, *p.Entry)
	}
	if p.Insert && len(p.Keys) > 1 {
		return p.Columns() + " = " + p.rows()
	}
	var parts []string
	for i := range p.Keys {
		parts = append(parts, p.Keys[i].parts()...)
	}
	for _, r := range p.Rows {
		names := make([]string, len(r.Columns))
		for i, c := range r.Columns {
			names[i] = p.Keys[c].Column
		}
		parts = append(parts, fmt.Sprintf("(%s) %s (%s)", strings.Join(names, ", "), r.Op, listed(r.Operands)))
	}
	if len(parts) == 0 {
		return p.Table + ": all rows"
	}
	return strings.Join(parts, ", ")
}

// rows prints the keys of VALUES row by row.
func (p *Pin) rows() string {
	rows := make([]string, len(p.Keys[0].Operands))
	for i := range rows {
		row := make([]Operand, len(p.Keys))
		for k := range p.Keys {
			row[k] = p.Keys[k].Operands[i]
		}
		rows[i] = "(" + listed(row) + ")"
	}
	return strings.Join(rows, ", ")
}

func (k *KeyColumn) parts() []string {
	var parts []string
	if len(k.Operands) > 0 {
		parts = append(parts, k.Column+" = "+operands(k.Operands))
	}
	for _, b := range k.Bounds {
		parts = append(parts, k.Column+" "+b.String())
	}
	for _, u := range k.Unions {
		arms := make([]string, len(u))
		for i, arm := range u {
			bounds := make([]string, len(arm))
			for j, b := range arm {
				bounds[j] = b.String()
			}
			arms[i] = strings.Join(bounds, " and ")
		}
		parts = append(parts, k.Column+" ("+strings.Join(arms, ", or ")+")")
	}
	return parts
}

func (b Bound) String() string { return b.Op.String() + " " + b.Operand.String() }

func operands(ops []Operand) string {
	if len(ops) == 1 {
		return ops[0].String()
	}
	return "any of (" + listed(ops) + ")"
}

func listed(ops []Operand) string {
	parts := make([]string, len(ops))
	for i, o := range ops {
		parts[i] = o.String()
	}
	return strings.Join(parts, ", ")
}

func (o Operand) String() string {
	s := ""
	switch {
	case o.Eval > 0:
		s = fmt.Sprintf("evaluated %d", o.Eval)
	case o.Param > 0:
		s = fmt.Sprintf("$%d", o.Param)
	case o.Null:
		return "NULL"
	case o.Literal >= 0:
		s = fmt.Sprintf("literal %d", o.Literal)
	default:
		s = "'" + o.Text + "'"
	}
	if o.Negate {
		s = "-" + s
	}
	if o.Array {
		s = "elements of " + s
	}
	return s + "::" + o.From.String()
}
