package exec

import (
	"encoding/binary"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// KeyPoint is the point of the first key that a pin names, or nil when it names none: a range, NULL, a whole table.
func KeyPoint(d *keyspace.Distribution, p *plan.Pin, values Values, asker Asker) ([]byte, error) {
	if p.Entry != nil {
		return keyspace.AppendEntry(nil, *p.Entry), nil
	}
	s := newScan(d, p, values, asker)
	first := make([]keyValue, len(p.Keys))
	for i := range p.Keys {
		k := &p.Keys[i]
		if len(k.Operands) == 0 {
			return nil, nil
		}
		read, err := s.operand(nil, k, &k.Operands[0])
		if err != nil || len(read) == 0 {
			return nil, err
		}
		first[i] = read[0]
	}
	if d.Key.SingleHash() && len(first) == 1 {
		v := first[0]
		hash, exists, err := hashOf(&p.Keys[0], v.From, Value{Data: v.Data, Binary: v.Binary}, asker)
		if err != nil || !exists {
			return nil, err
		}
		return binary.BigEndian.AppendUint64(nil, keyspace.Point(hash)), nil
	}
	if len(first) == 0 {
		return nil, nil
	}
	point, exists, err := s.point(func(column int) *keyValue { return &first[column] })
	if err != nil || !exists {
		return nil, err
	}
	return append([]byte(nil), point...), nil
}
