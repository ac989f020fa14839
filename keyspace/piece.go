package keyspace

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// piece is a component with what its encodings look like. A hash, a directory's and a schema's entry have eight
// bytes, a region has two, a range's column has an ordered encoding.
type piece struct {
	Component
	typ Type // of a range's column
	// regions are those of a list in the order of their IDs; byValue finds one by the ordered encoding of a value.
	regions []Region
	byValue map[string]uint16
	other   *uint16 // where all other values live
}

// pieces returns the components with their encodings; Index has made them before a distribution is used.
func (k *Key) pieces() []piece {
	if k.indexed != nil {
		return k.indexed
	}
	components := k.Components()
	all := make([]piece, len(components))
	for i, c := range components {
		all[i].Component = c
		switch c.Method {
		case Range:
			all[i].typ = k.Types[c.Columns[0]]
		case List:
			all[i].addRegions(&k.Dimensions[c.Dimension], k.Types[c.Columns[0]])
		}
	}
	return all
}

func (p *piece) addRegions(d *Dimension, key Type) {
	p.regions = slices.Clone(d.Regions)
	slices.SortFunc(p.regions, func(a, b Region) int { return cmp.Compare(a.ID, b.ID) })
	p.byValue = make(map[string]uint16)
	for i, r := range d.Regions {
		for _, text := range r.Values {
			// A value that cannot be read is found by validate.
			if b, err := AppendOrdered(nil, key, Value{Data: []byte(text), From: key}); err == nil {
				p.byValue[string(b)] = r.ID
			}
		}
		if r.Name == d.Default {
			p.other = &d.Regions[i].ID
		}
	}
}

// entrySize is the size of a hash and of an entry, regionSize that of a region.
const (
	entrySize  = 8
	regionSize = 2
)

// fixedSize is the size of the encodings, 0 when they have several.
func (p *piece) fixedSize() int {
	switch p.Method {
	case Hash, Directory, Schema:
		return entrySize
	case List:
		return regionSize
	}
	switch p.typ {
	case Int8, Timestamp, Timestamptz:
		return 8 + 1
	case Date:
		return 4 + 1
	case Bool:
		return 1 + 1
	case UUID:
		return 16 + 1
	}
	return 0
}

// whole returns the size of the encoding that b begins with, 0 when it does not begin with a whole one.
func (p *piece) whole(b []byte) int {
	if size := p.fixedSize(); size > 0 {
		if len(b) < size || p.Method == Range && b[size-1] != 0 || p.Method == List && p.region(b) == nil {
			return 0
		}
		return size
	}
	if p.typ == Numeric {
		size, end := numericEnd(b)
		if end != endWhole {
			return 0
		}
		return size
	}
	size, end := stringEnd(b)
	if end != endWhole {
		return 0
	}
	return size
}

// region returns the region that b begins with, nil when there is none.
func (p *piece) region(b []byte) *Region {
	i, found := slices.BinarySearchFunc(p.regions, binary.BigEndian.Uint16(b), func(r Region, id uint16) int { return cmp.Compare(r.ID, id) })
	if !found {
		return nil
	}
	return &p.regions[i]
}

// end says how a string of bytes that begins like an encoding goes on.
type end uint8

const (
	endWhole end = iota
	// endAfter is what After makes of a whole encoding.
	endAfter
	// endOpen is neither.
	endOpen
)

// stringEnd finds the end of an encoded text or bytea: the size up to and with the terminator, or with what stands in
// its place.
func stringEnd(b []byte) (int, end) {
	for i := 0; ; {
		zero := bytes.IndexByte(b[i:], 0)
		if zero < 0 || i+zero+1 >= len(b) {
			return len(b), endOpen
		}
		i += zero + 2
		switch b[i-1] {
		case 0x00:
			return i, endWhole
		case 0x01:
			return i, endAfter
		case 0xff:
		default:
			return i, endOpen
		}
	}
}

func numericEnd(b []byte) (int, end) {
	if len(b) < 2 {
		return len(b), endOpen
	}
	whole, after := uint16(0x0000), uint16(0x0001)
	switch b[0] {
	case orderedPositive:
	case orderedNegative:
		whole, after = 0xfffe, 0xffff
	default:
		if b[0] < orderedMinusInfinity || b[0] > orderedNaN || b[1] > 1 {
			return 2, endOpen
		}
		return 2, end(b[1]) // 0 or 1: whole or after
	}
	for i := 3; i+1 < len(b); i += 2 {
		switch pair := binary.BigEndian.Uint16(b[i:]); pair {
		case whole:
			return i + 2, endWhole
		case after:
			return i + 2, endAfter
		}
	}
	return len(b), endOpen
}

// ceiling returns the lowest encoding that is not below b, nil when there is none. Between two different numerics there
// are always more, and so it returns b itself when that is not a whole one.
func (p *piece) ceiling(b []byte) []byte {
	switch {
	case p.Method == List:
		for i := range p.regions {
			if id := binary.BigEndian.AppendUint16(nil, p.regions[i].ID); bytes.Compare(id, b) >= 0 {
				return id
			}
		}
		return nil
	case p.Method != Range:
		return fixedCeiling(b, entrySize, 0)
	case p.fixedSize() > 0:
		return p.valid(fixedCeiling(b, p.fixedSize()-1, 1))
	case p.typ == Numeric:
		if len(b) == 0 {
			return []byte{orderedMinusInfinity, 0}
		}
		if bytes.Compare(b, []byte{orderedNaN, 0}) > 0 {
			return nil
		}
		return b
	}
	return stringCeiling(b, p.typ == Bytea)
}

// valid goes on to the next value that PostgreSQL has: there are gaps between the dates and the infinities.
func (p *piece) valid(b []byte) []byte {
	if b == nil {
		return nil
	}
	switch p.typ {
	case Bool:
		if b[0] > 1 {
			return nil
		}
	case Date:
		if v := int64(int32(binary.BigEndian.Uint32(b) ^ 1<<31)); !validDate(v) {
			b, _ = appendFixed(nil, Date, nextValid(v, minDate, math.MaxInt32))
		}
	case Timestamp, Timestamptz:
		if v := int64(binary.BigEndian.Uint64(b) ^ 1<<63); !validTimestamp(v) {
			b, _ = appendFixed(nil, p.typ, nextValid(v, minTimestamp, math.MaxInt64))
		}
	}
	return b
}

func nextValid(v, first, infinity int64) int64 {
	if v < first {
		return first
	}
	return infinity
}

// fixedCeiling is ceiling for numbers of some bytes that are followed by some zero bytes.
func fixedCeiling(b []byte, size, zeros int) []byte {
	c := make([]byte, size+zeros)
	copy(c, b)
	if len(b) <= size {
		return c
	}
	clear(c[size:])
	if bytes.Compare(c, b) >= 0 {
		return c
	}
	for i := size - 1; i >= 0; i-- {
		if c[i]++; c[i] != 0 {
			return c
		}
	}
	return nil
}

// stringCeiling is ceiling for text, which has no zero byte, and bytea, which may.
func stringCeiling(b []byte, zeros bool) []byte {
	for i := 0; ; i += 2 {
		zero := bytes.IndexByte(b[i:], 0)
		if zero < 0 {
			return append(slices.Clone(b), 0, 0)
		}
		i += zero
		switch {
		case i+1 == len(b):
			return append(slices.Clone(b), 0)
		case b[i+1] == 0 && i+2 == len(b):
			return b
		case b[i+1] == 0xff && zeros:
			continue
		case zeros:
			return append(slices.Clone(b[:i]), 0, 0xff, 0, 0)
		}
		return append(slices.Clone(b[:i]), 1, 0, 0)
	}
}
