package exec

import (
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// product finds the shards that have a point in the product of what is known of each component.
func (s *scan) product() ([]int, error) {
	parts := make([]keyspace.Part, len(s.components))
	for i := range s.components {
		part, err := s.part(&s.components[i])
		if err != nil {
			return nil, err
		}
		if !part.All && len(part.Values)+len(part.Ranges) == 0 {
			return nil, nil
		}
		parts[i] = part
	}
	var within []keyspace.Interval
	for i := range s.pin.Rows {
		interval, some, err := s.within(parts, &s.pin.Rows[i])
		if err != nil || !some {
			return nil, err
		}
		if interval.Low != nil || interval.High != nil {
			within = append(within, interval)
		}
	}
	return s.d.Touched(parts, within), nil
}

// part is what the pin says about one component.
func (s *scan) part(c *keyspace.Component) (keyspace.Part, error) {
	switch c.Method {
	case keyspace.Schema:
		if s.pin.Entry == nil {
			return keyspace.Part{All: true}, nil
		}
		return keyspace.Part{Values: [][]byte{keyspace.AppendEntry(nil, *s.pin.Entry)}}, nil
	case keyspace.Range:
		return s.ordered(c)
	}
	columns, combinations := make([][]keyValue, len(c.Columns)), 1
	for i, at := range c.Columns {
		columns[i] = s.columns[at]
		if combinations *= len(columns[i]); combinations > maxCombinations {
			break
		}
	}
	if combinations == 0 || combinations > maxCombinations {
		return keyspace.Part{All: true}, nil // a column without operands, or too many of them
	}
	var part keyspace.Part
	err := combine(columns, func(chosen []*keyValue) error {
		encode := s.component
		if c.Method == keyspace.Directory {
			encode = s.entry
		}
		value, exists, err := encode(nil, c, chosen)
		if err == nil && exists {
			part.Values = append(part.Values, value)
		}
		return err
	})
	return part, err
}

// ordered is what the pin says about one column of a range: all of it holds.
func (s *scan) ordered(c *keyspace.Component) (keyspace.Part, error) {
	at := c.Columns[0]
	k := &s.pin.Keys[at]
	known := everything()
	if values := s.columns[at]; len(values) > 0 && len(values) <= maxCombinations {
		var found set
		for i := range values {
			value, exists, err := s.component(nil, c, []*keyValue{&values[i]})
			if err != nil {
				return keyspace.Part{}, err
			}
			if exists {
				found = append(found, valueSpan(value))
			}
		}
		known = found
	}
	conjunction, err := s.conjunction(k, k.Bounds)
	if err != nil {
		return keyspace.Part{}, err
	}
	known = known.intersect(conjunction)
	for _, u := range k.Unions {
		var union set
		for _, arm := range u {
			spans, err := s.conjunction(k, arm)
			if err != nil {
				return keyspace.Part{}, err
			}
			union = append(union, spans...)
		}
		known = known.intersect(union)
	}
	return known.part(), nil
}

func (s *scan) conjunction(k *plan.KeyColumn, bounds []plan.Bound) (set, error) {
	all := everything()
	for i := range bounds {
		spans, err := s.bound(k, &bounds[i])
		if err != nil {
			return nil, err
		}
		all = all.intersect(spans)
	}
	return all, nil
}

// bound is the set of values for which one comparison holds.
func (s *scan) bound(k *plan.KeyColumn, b *plan.Bound) (set, error) {
	values, err := s.operand(nil, k, &b.Operand)
	if err != nil {
		return nil, err
	}
	var union set
	for i := range values { // none for NULL, several for = of an array
		if b.Op == plan.Like || b.Op == plan.Prefix {
			union = append(union, prefixSpan(b.Op, &values[i])...)
			continue
		}
		value, readable, err := s.limit(k, &values[i])
		if err != nil {
			return nil, err
		}
		if !readable {
			return everything(), nil
		}
		union = append(union, opSpan(b.Op, value))
	}
	return union, nil
}

// limit encodes a value that bounds a column. What PostgreSQL cannot read either is left to it.
func (s *scan) limit(k *plan.KeyColumn, v *keyValue) (value []byte, readable bool, err error) {
	for {
		if value, err = keyspace.AppendOrdered(nil, k.Type.Canonical(), v.Value); err == nil {
			return value, true, nil
		}
		if v.asked || v.Binary || !needsAsking(err) {
			return nil, false, nil
		}
		read, err := ask(&plan.KeyColumn{Type: k.Type, Column: k.Column}, v.From, Value{Data: v.Data}, s.asker)
		if err != nil {
			return nil, false, err
		}
		v.Value, v.asked = read, true
	}
}

// within is the interval of points that a comparison of several columns leaves, if the components
// before them are fixed. Some is false when nothing can match.
func (s *scan) within(parts []keyspace.Part, r *plan.RowBound) (_ keyspace.Interval, some bool, err error) {
	first, ok := s.consecutive(r.Columns)
	if !ok {
		return keyspace.Interval{}, true, nil
	}
	var prefix []byte
	for _, p := range parts[:first] {
		if p.All || len(p.Ranges) > 0 || len(p.Values) != 1 {
			return keyspace.Interval{}, true, nil
		}
		prefix = append(prefix, p.Values[0]...)
	}
	op, point := r.Op, append([]byte{}, prefix...)
	for i, at := range r.Columns {
		k := &s.pin.Keys[at]
		values, err := s.operand(nil, k, &r.Operands[i])
		if err != nil {
			return keyspace.Interval{}, false, err
		}
		if len(values) == 0 { // NULL: only what is decided before it is true
			if op = strict(op); i == 0 {
				return keyspace.Interval{}, false, nil
			}
			break
		}
		value, readable, err := s.limit(k, &values[0])
		if err != nil {
			return keyspace.Interval{}, false, err
		}
		if !readable {
			op = loose(op)
			break
		}
		point = append(point, value...)
	}
	if len(point) == len(prefix) {
		return keyspace.Interval{}, true, nil
	}
	span := opSpan(op, point)
	if span.low == nil {
		span.low = prefix
	}
	return keyspace.Interval{Low: span.low, High: span.high}, true, nil
}

// consecutive finds the components that the columns of a comparison are, one after the other.
func (s *scan) consecutive(columns []int) (first int, ok bool) {
	for first = range s.components {
		if c := &s.components[first]; c.Method == keyspace.Range && c.Columns[0] == columns[0] {
			ok = true
			break
		}
	}
	if !ok || first+len(columns) > len(s.components) {
		return 0, false
	}
	for i, column := range columns {
		if c := &s.components[first+i]; c.Method != keyspace.Range || c.Columns[0] != column {
			return 0, false
		}
	}
	return first, true
}

func strict(op plan.Op) plan.Op {
	switch op {
	case plan.LessEqual:
		return plan.Less
	case plan.GreaterEqual:
		return plan.Greater
	}
	return op
}

func loose(op plan.Op) plan.Op {
	switch op {
	case plan.Less:
		return plan.LessEqual
	case plan.Greater:
		return plan.GreaterEqual
	}
	return op
}
