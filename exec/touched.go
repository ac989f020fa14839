package exec

import (
	"bytes"
	"slices"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// maxCombinations bounds how many keys are made from the values of several columns; beyond it the
// component counts as not restricted.
const maxCombinations = 4096

// scan finds the shards of one pin.
type scan struct {
	d      *keyspace.Distribution
	pin    *plan.Pin
	values Values
	asker  Asker

	components []keyspace.Component
	columns    [][]keyValue // of each key column with operands, what they are

	// Space for keys of few columns, so that an ordinary statement allocates little.
	types  []keyspace.Type
	plain  []keyspace.Value
	chosen []*keyValue
	few    struct {
		types   [fewColumns]keyspace.Type
		plain   [fewColumns]keyspace.Value
		chosen  [fewColumns]*keyValue
		columns [fewColumns][]keyValue
		point   [64]byte
	}
}

const fewColumns = 4

func newScan(d *keyspace.Distribution, p *plan.Pin, values Values, asker Asker) *scan {
	s := &scan{d: d, pin: p, values: values, asker: asker, components: d.Key.Components()}
	s.types, s.plain, s.chosen = s.few.types[:0], s.few.plain[:0], s.few.chosen[:0]
	if len(p.Keys) <= fewColumns {
		s.columns = s.few.columns[:len(p.Keys)]
	} else {
		s.columns = make([][]keyValue, len(p.Keys))
	}
	return s
}

// touched returns the indexes of the shards that a pin can need, in order.
func touched(d *keyspace.Distribution, p *plan.Pin, values Values, asker Asker) ([]int, error) {
	s := newScan(d, p, values, asker)
	if p.Insert {
		return s.rows()
	}
	some, err := s.readOperands()
	if err != nil || !some {
		return nil, err
	}
	if s.onlyValues() {
		return s.points()
	}
	return s.product()
}

// readOperands reads the operands of each key column; some is false when one of them has no value,
// so that no row matches.
func (s *scan) readOperands() (some bool, err error) {
	for i := range s.pin.Keys {
		k := &s.pin.Keys[i]
		if len(k.Operands) == 0 {
			continue
		}
		s.columns[i] = make([]keyValue, 0, len(k.Operands))
		for j := range k.Operands {
			if s.columns[i], err = s.operand(s.columns[i], k, &k.Operands[j]); err != nil {
				return false, err
			}
		}
		if len(s.columns[i]) == 0 {
			return false, nil
		}
	}
	return true, nil
}

// operand appends the values of one operand: none for NULL, several for an array.
func (s *scan) operand(to []keyValue, k *plan.KeyColumn, o *plan.Operand) ([]keyValue, error) {
	v, err := s.values.Value(o)
	if err != nil {
		return nil, err
	}
	if v.Null {
		if k.Assigned {
			return nil, &NullKey{k.Column}
		}
		return to, nil
	}
	v.Data = bytes.Clone(v.Data) // the next operand may be read into the same place
	if !o.Array {
		return append(to, keyValue{Value: keyspace.Value{Data: v.Data, From: o.From, Binary: v.Binary}}), nil
	}
	err = eachElement(v, func(e Value) error {
		if !e.Null {
			to = append(to, keyValue{Value: keyspace.Value{Data: e.Data, From: o.From, Binary: e.Binary}})
		}
		return nil
	})
	return to, err
}

// rows finds the shards of the rows of VALUES: the operands of the columns belong together.
func (s *scan) rows() ([]int, error) {
	if len(s.pin.Keys) == 0 {
		return s.product() // of a schema
	}
	var shards []int
	row := make([]Value, len(s.pin.Keys))
	from := make([]keyspace.Type, len(s.pin.Keys))
	for i := range s.pin.Keys[0].Operands {
		for k := range s.pin.Keys {
			o := &s.pin.Keys[k].Operands[i]
			v, err := s.values.Value(o)
			if err != nil {
				return nil, err
			}
			v.Data = bytes.Clone(v.Data)
			row[k], from[k] = v, o.From
		}
		shard, err := s.row(row, from)
		if err != nil {
			return nil, err
		}
		shards = add(shards, shard)
	}
	return shards, nil
}

// row finds the shard of one new row.
func (s *scan) row(values []Value, from []keyspace.Type) (int, error) {
	read := make([]keyValue, len(values))
	for k, v := range values {
		if v.Null {
			return 0, &NullKey{s.pin.Keys[k].Column}
		}
		read[k] = keyValue{Value: keyspace.Value{Data: v.Data, From: from[k], Binary: v.Binary}}
	}
	point, exists, err := s.point(func(column int) *keyValue { return &read[column] })
	if err == nil && !exists {
		err = keyspace.ErrInvalid
	}
	if err != nil {
		return 0, err
	}
	return s.d.Find(point), nil
}

// Row finds the shard of a new row from the values of its key columns, which are of the columns'
// own types; for COPY.
func Row(d *keyspace.Distribution, p *plan.Pin, values []Value, asker Asker) (*keyspace.Shard, error) {
	if d.Key.SingleHash() {
		k := &p.Keys[0]
		if values[0].Null {
			return nil, &NullKey{k.Column}
		}
		hash, exists, err := hashOf(k, k.Type, values[0], asker)
		if err == nil && !exists {
			err = keyspace.ErrInvalid
		}
		if err != nil {
			return nil, err
		}
		return d.FindHash(keyspace.Point(hash)), nil
	}
	if p.Entry != nil {
		return &d.Shards[d.FindEntry(*p.Entry)], nil
	}
	s := newScan(d, p, nil, asker)
	from := make([]keyspace.Type, len(p.Keys))
	for i := range p.Keys {
		from[i] = p.Keys[i].Type
	}
	i, err := s.row(values, from)
	if err != nil {
		return nil, err
	}
	return &d.Shards[i], nil
}

// point makes the point of a whole key.
func (s *scan) point(value func(column int) *keyValue) (point []byte, exists bool, err error) {
	point = s.few.point[:0]
	for i := range s.components {
		c := &s.components[i]
		values := s.chosen[:0]
		for _, at := range c.Columns {
			values = append(values, value(at))
		}
		s.chosen = values
		if c.Method == keyspace.Directory {
			point, exists, err = s.entry(point, c, values)
		} else {
			point, exists, err = s.component(point, c, values)
		}
		if err != nil || !exists {
			return nil, false, err
		}
	}
	return point, true, nil
}

// entry appends the entry that a directory has for a key.
func (s *scan) entry(dst []byte, c *keyspace.Component, values []*keyValue) (point []byte, exists bool, err error) {
	key, exists, err := s.component(nil, c, values)
	if err != nil || !exists {
		return dst, false, err
	}
	entry, known, err := s.asker.Entry(s.d, key, s.pin.Stored)
	if err != nil || !known {
		return dst, false, err
	}
	return keyspace.AppendEntry(dst, entry), true, nil
}

// onlyValues reports a pin that is nothing but values for all columns, few enough to try each of their
// combinations.
func (s *scan) onlyValues() bool {
	combinations := 1
	for i := range s.pin.Keys {
		k := &s.pin.Keys[i]
		if len(k.Operands) == 0 || len(k.Bounds)+len(k.Unions) > 0 {
			return false
		}
		if combinations *= len(s.columns[i]); combinations > maxCombinations {
			return false
		}
	}
	return len(s.pin.Keys) > 0
}

// points finds the shard of each combination of the columns' values.
func (s *scan) points() ([]int, error) {
	var shards []int
	err := combine(s.columns, func(chosen []*keyValue) error {
		point, exists, err := s.point(func(column int) *keyValue { return chosen[column] })
		if err == nil && exists {
			shards = add(shards, s.d.Find(point))
		}
		return err
	})
	return shards, err
}

// combine calls f with every choice of one value per column.
func combine(columns [][]keyValue, f func(chosen []*keyValue) error) error {
	chosen := make([]*keyValue, len(columns))
	var choose func(i int) error
	choose = func(i int) error {
		if i == len(columns) {
			return f(chosen)
		}
		for j := range columns[i] {
			chosen[i] = &columns[i][j]
			if err := choose(i + 1); err != nil {
				return err
			}
		}
		return nil
	}
	return choose(0)
}

// add inserts a shard's index where it belongs, once.
func add(shards []int, i int) []int {
	at, found := slices.BinarySearch(shards, i)
	if found {
		return shards
	}
	return slices.Insert(shards, at, i)
}
