package keyspace

import (
	"errors"
	"strconv"
	"strings"
)

// HashExpression returns the SQL expression for the hash of a column of type t. It uses only immutable
// built-in functions, so that triggers, indexes and publications may contain it. The column is SQL: a quoted
// identifier, with a qualifier where needed.
func (t Type) HashExpression(column string) string {
	if typeFacts[t].callable {
		return typeFacts[t].function + "(" + column + ", " + strconv.Itoa(HashSeed) + ")"
	}
	// The hash of a row with one column is that column's hash, by its type's own operator class.
	return "hash_record_extended(ROW(" + column + "), " + strconv.Itoa(HashSeed) + ")"
}

// RowFilter returns the SQL condition that holds for the rows of the interval of hash points from low up to
// but without high, where high nil is the end of the space. The column is SQL, as for HashExpression.
func (t Type) RowFilter(column string, low, high []byte) string {
	hash := t.HashExpression(column)
	from, to := prefix(low), prefix(high)
	switch {
	case from == 0 && high == nil:
		return "true"
	case from == 0:
		return "(" + hash + " < " + signed(to) + ")"
	case high == nil:
		return "(" + hash + " >= " + signed(from) + ")"
	}
	return "(" + hash + " >= " + signed(from) + " AND " + hash + " < " + signed(to) + ")"
}

// signed prints a point as PostgreSQL prints its hash.
func signed(point uint64) string { return strconv.FormatInt(int64(point^1<<63), 10) }

// FilterColumn is a key column of a table.
type FilterColumn struct {
	SQL  string // a quoted identifier, with a qualifier where needed
	Type Type   // the column's own type
}

// Filter is the condition that holds for the rows of an interval of points. Its JSON form names no SQL, so that a
// function that runs with the rights of its owner can take it.
type Filter struct {
	// Terms are the pieces of a point that the bounds compare.
	Terms []FilterTerm `json:"terms"`
	// Low and High are nil at the start and at the end of the space.
	Low  *FilterBound `json:"low,omitempty"`
	High *FilterBound `json:"high,omitempty"`
}

// FilterTerm is one piece of a point as SQL computes it.
type FilterTerm struct {
	Method  Method `json:"method"`
	Columns []int  `json:"columns"` // positions among the key columns
	Types   []Type `json:"types"`   // the canonical types of these columns
}

// FilterBound compares the first terms with as many values, as a row.
type FilterBound struct {
	Op     string   `json:"op"`     // >= or > for low, < or <= for high
	Values []string `json:"values"` // in PostgreSQL's text format; a hash is a bigint
}

// Filter returns the condition for the interval from low up to but without high, where high nil is the end.
func (k *Key) Filter(low, high []byte) (Filter, error) {
	if !k.SingleHash() {
		return Filter{}, errors.New("there is no filter for strategy " + k.Strategy())
	}
	f := Filter{Terms: []FilterTerm{{Method: Hash, Columns: k.Dimensions[0].Columns, Types: k.Types}}}
	if prefix(low) != 0 {
		f.Low = &FilterBound{Op: ">=", Values: []string{signed(prefix(low))}}
	}
	if high != nil {
		f.High = &FilterBound{Op: "<", Values: []string{signed(prefix(high))}}
	}
	return f, nil
}

// SQL writes the condition for a table with these key columns. It uses only built-in immutable functions.
func (f Filter) SQL(columns []FilterColumn) string {
	var conditions []string
	for _, b := range []*FilterBound{f.Low, f.High} {
		if b == nil {
			continue
		}
		c := columns[f.Terms[0].Columns[0]]
		conditions = append(conditions, c.Type.HashExpression(c.SQL)+" "+b.Op+" "+b.Values[0])
	}
	if len(conditions) == 0 {
		return "true"
	}
	return "(" + strings.Join(conditions, " AND ") + ")"
}
