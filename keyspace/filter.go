package keyspace

import (
	"fmt"
	"strconv"
)

// HashExpression returns the SQL expression for the hash of a column of type t. It uses only immutable
// built-in functions, so that triggers, indexes and publications may contain it. The column is SQL: a quoted
// identifier, with a qualifier where needed.
func (t Type) HashExpression(column string) string {
	return t.seededHash(column, strconv.Itoa(HashSeed))
}

func (t Type) seededHash(column, seed string) string {
	if typeFacts[t].callable {
		return typeFacts[t].function + "(" + column + ", " + seed + ")"
	}
	// The hash of a row with one column is that column's hash, by its type's own operator class.
	return "hash_record_extended(ROW(" + column + "), " + seed + ")"
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

// Filter is the condition that holds for the rows of an interval of points, or of some keys. Its JSON form has no SQL in
// it, so that a function that runs with the rights of its owner can take it.
type Filter struct {
	// Terms are the leading components of a point, as many as the bounds need.
	Terms []FilterTerm `json:"terms"`
	// Low and High are nil at the start and at the end of the space.
	Low  *FilterBound `json:"low,omitempty"`
	High *FilterBound `json:"high,omitempty"`
	// Keys, if it is not nil, are the keys of a directory instead: the rows whose key is one of them. No keys are no
	// rows, for every strategy.
	Keys []string `json:"keys,omitzero"`
}

// FilterTerm is one component of a point as SQL computes it: the hash of its columns, each with the hash of those
// before it as its seed; the region of its column; or its column, of which a text is compared in the collation "C".
type FilterTerm struct {
	Method  Method `json:"method"`
	Columns []int  `json:"columns"` // positions among the key columns, from 0
	// Types are the canonical types of these columns. The name "character" stands for bpchar.
	Types []Type `json:"types"`
	// Regions are the values of a list with the IDs of their regions; Default is the ID for all others.
	Regions []FilterRegion `json:"regions,omitempty"`
	Default *uint16        `json:"default,omitempty"`
}

// FilterRegion is a value of a list, in PostgreSQL's text format, and the ID of its region.
type FilterRegion struct {
	Value string `json:"value"`
	ID    uint16 `json:"id"`
}

// FilterBound compares the first terms with as many values, as a row.
type FilterBound struct {
	Op string `json:"op"` // >= or > for low, < or <= for high
	// Values are in PostgreSQL's text format: of type bigint for a hash, integer for a region, and of the column's
	// canonical type for a column.
	Values []string `json:"values"`
}

// Filter returns the condition for the interval from low up to but without high, where high nil is the end. Both are
// bounds of shards. The rows of a directory's interval are those of some keys (see KeysFilter), and what a schema's
// interval has are tables, so they have no such condition.
func (k *Key) Filter(low, high []byte) (Filter, error) {
	if m := k.Dimensions[0].Method; m == Directory || m == Schema {
		return Filter{}, fmt.Errorf("the rows of an interval of strategy %q are not known by their points", k.Strategy())
	}
	var f Filter
	if len(low) > 0 {
		c, err := k.canonical(low)
		switch {
		case err != nil:
			return Filter{}, fmt.Errorf("%x cannot be a bound: %w", low, err)
		case c == nil:
			return Filter{Keys: []string{}}, nil // nothing is after the end
		case len(c) > 0:
			if f.Low, err = k.filterBound(c, ">=", ">"); err != nil {
				return Filter{}, err
			}
		}
	}
	if high != nil {
		c, err := k.canonical(high)
		switch {
		case err != nil:
			return Filter{}, fmt.Errorf("%x cannot be a bound: %w", high, err)
		case c != nil && len(c) == 0:
			return Filter{Keys: []string{}}, nil // nor before the start
		case c != nil:
			if f.High, err = k.filterBound(c, "<", "<="); err != nil {
				return Filter{}, err
			}
		}
	}
	terms := 0
	for _, b := range []*FilterBound{f.Low, f.High} {
		if b != nil {
			terms = max(terms, len(b.Values))
		}
	}
	f.Terms = make([]FilterTerm, terms)
	for i := range f.Terms {
		f.Terms[i] = k.filterTerm(&k.pieces()[i])
	}
	return f, nil
}

// filterBound reads a bound; a row that is after all points with a value compares with another operator.
func (k *Key) filterBound(b []byte, op, afterOp string) (*FilterBound, error) {
	values, err := k.values(b)
	if err != nil {
		return nil, fmt.Errorf("%x cannot be a bound: %w", b, err)
	}
	bound := &FilterBound{Op: op}
	for _, v := range values {
		if v.after {
			bound.Op = afterOp
		}
		bound.Values = append(bound.Values, v.text)
	}
	return bound, nil
}

func (k *Key) filterTerm(p *piece) FilterTerm {
	t := FilterTerm{Method: p.Method, Columns: p.Columns}
	for _, c := range p.Columns {
		t.Types = append(t.Types, k.Types[c])
	}
	if p.Method != List {
		return t
	}
	for _, r := range p.regions {
		for _, value := range r.Values {
			t.Regions = append(t.Regions, FilterRegion{value, r.ID})
		}
	}
	t.Default = p.other
	return t
}

// KeysFilter returns the condition for the rows of some keys of a directory, in PostgreSQL's text format.
func (k *Key) KeysFilter(keys []string) Filter {
	return Filter{
		Terms: []FilterTerm{{Method: Directory, Columns: k.Dimensions[0].Columns, Types: k.Types}},
		Keys:  append([]string{}, keys...),
	}
}
