package keyspace

import (
	"slices"
	"strings"
)

// Method is how some columns of a key become a part of the point.
type Method string

const (
	// Hash is PostgreSQL's own extended hash: eight bytes, spread evenly. Several columns are hashed one after the
	// other, each with the hash of those before it as its seed.
	Hash Method = "hash"
	// Range keeps the order of the values.
	Range Method = "range"
	// List maps a value to a region, a set of nodes.
	List Method = "list"
	// Directory takes the part from an entry that was made for the key on its first use.
	Directory Method = "directory"
	// Schema takes the part from the entry of the schema that the table is in; there are no key columns.
	Schema Method = "schema"
)

// Dimension is one part of a point: the key columns it is made from, and how.
type Dimension struct {
	Method Method `json:"method"`
	// Columns are positions in Key.Types.
	Columns []int `json:"columns,omitempty"`
	// Regions and Default belong to a list: which values live where, and where all others do. Without a default
	// other values are refused.
	Regions []Region `json:"regions,omitempty"`
	Default string   `json:"default,omitempty"`
}

// Region is a named set of nodes, those with this label, and the values of a list that live there.
type Region struct {
	Name string `json:"name"`
	// ID is the region's part of the point. It never changes, so that shards keep their place when
	// regions are added.
	ID     uint16   `json:"id"`
	Values []string `json:"values,omitempty"` // in PostgreSQL's text format
}

// Key is what the keys of a distribution look like and how they become points. A point is the parts of
// all dimensions, one after the other.
type Key struct {
	// Types are the canonical types of the key columns (see Type.Canonical).
	Types      []Type      `json:"types,omitempty"`
	Dimensions []Dimension `json:"dimensions"`

	indexed []piece // see pieces
}

// HashKey is the key that is spread by the hash of its columns.
func HashKey(types ...Type) Key {
	k := Key{Dimensions: []Dimension{{Method: Hash}}}
	for i, t := range types {
		k.Types = append(k.Types, t.Canonical())
		k.Dimensions[0].Columns = append(k.Dimensions[0].Columns, i)
	}
	return k
}

// Strategy names the key's way of spreading rows, for people: its methods in sequence.
func (k *Key) Strategy() string {
	methods := make([]string, len(k.Dimensions))
	for i, d := range k.Dimensions {
		methods[i] = string(d.Method)
	}
	return strings.Join(methods, ", ")
}

// Equal reports keys that turn the same values into the same points.
func (k *Key) Equal(o *Key) bool {
	return slices.Equal(k.Types, o.Types) && slices.EqualFunc(k.Dimensions, o.Dimensions, func(a, b Dimension) bool {
		return a.Method == b.Method && slices.Equal(a.Columns, b.Columns) && a.Default == b.Default &&
			slices.EqualFunc(a.Regions, b.Regions, func(x, y Region) bool {
				return x.Name == y.Name && x.ID == y.ID && slices.Equal(x.Values, y.Values)
			})
	})
}

// SingleHash reports the common key: the hash of one column. Its points are numbers (see FindHash).
func (k *Key) SingleHash() bool {
	return len(k.Dimensions) == 1 && k.Dimensions[0].Method == Hash && len(k.Types) == 1
}
