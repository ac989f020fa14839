package keyspace

import (
	"encoding/binary"
	"fmt"
)

// Component is the smallest piece of a point that a bound can end with: a hash, a region, an entry, or one column
// of a range.
type Component struct {
	Dimension int // its index in Key.Dimensions
	Method    Method
	Columns   []int // positions in Key.Types
}

// Components returns the pieces of a point in sequence.
func (k *Key) Components() []Component {
	var all []Component
	for i, d := range k.Dimensions {
		if d.Method != Range {
			all = append(all, Component{Dimension: i, Method: d.Method, Columns: d.Columns})
			continue
		}
		for c := range d.Columns {
			all = append(all, Component{Dimension: i, Method: Range, Columns: d.Columns[c : c+1]})
		}
	}
	return all
}

// Value is a key column's value as it stands in a message.
type Value struct {
	Data   []byte
	From   Type // the value's own type
	Binary bool // the format of Data
}

// NoRegion means that a list has no region for a value, and no default.
type NoRegion struct{ Value string }

func (e *NoRegion) Error() string {
	return fmt.Sprintf("no region is declared for the value %q", e.Value)
}

// AppendComponent appends what values give for a component. types are the key columns' actual types, not the
// canonical ones; there are as many of them, and of values, as the component has columns. The errors are
// ErrNotProven, ErrInvalid and *NoRegion. For a directory it appends the ordered encoding of the key, by which its
// entry is found; AppendEntry makes the component of that.
func (k *Key) AppendComponent(dst []byte, c *Component, types []Type, values []Value) ([]byte, error) {
	if len(types) != len(c.Columns) || len(values) != len(c.Columns) {
		return dst, fmt.Errorf("%d types and %d values for %d key columns", len(types), len(values), len(c.Columns))
	}
	switch c.Method {
	case Hash:
		hash, err := hashValues(types, values)
		if err != nil {
			return dst, err
		}
		return binary.BigEndian.AppendUint64(dst, Point(hash)), nil
	case List:
		return k.appendRegion(dst, types[0], values[0])
	case Range, Directory:
		return AppendOrdered(dst, types[0], values[0])
	}
	return dst, fmt.Errorf("a %s has no key columns", c.Method)
}

// hashValues hashes one column after the other, each with the hash of those before it as its seed.
func hashValues(types []Type, values []Value) (hash uint64, err error) {
	hash = HashSeed
	for i := range values {
		if v := &values[i]; v.Binary {
			hash, err = hashBinary(types[i], v.From, v.Data, hash)
		} else {
			hash, err = hashText(types[i], v.From, v.Data, hash)
		}
		if err != nil {
			return 0, err
		}
	}
	return hash, nil
}

// appendRegion appends the ID of the region where a value lives.
func (k *Key) appendRegion(dst []byte, key Type, v Value) ([]byte, error) {
	start := len(dst)
	dst, err := AppendOrdered(dst, key, v)
	if err != nil {
		return dst[:start], err
	}
	p := &k.pieces()[0] // only the first dimension is a list
	if id, listed := p.byValue[string(dst[start:])]; listed {
		return binary.BigEndian.AppendUint16(dst[:start], id), nil
	}
	if p.other != nil {
		return binary.BigEndian.AppendUint16(dst[:start], *p.other), nil
	}
	return dst[:start], &NoRegion{Value: string(v.Data)}
}

// AppendEntry appends the component that a directory or a schema takes from an entry.
func AppendEntry(dst []byte, entry uint64) []byte { return binary.BigEndian.AppendUint64(dst, entry) }

// After returns the lowest string of bytes that is greater than every string with this prefix; nil is the end of
// the space.
func After(prefix []byte) []byte {
	end := len(prefix)
	for end > 0 && prefix[end-1] == 0xff {
		end--
	}
	if end == 0 {
		return nil
	}
	after := append([]byte(nil), prefix[:end]...)
	after[end-1]++
	return after
}
