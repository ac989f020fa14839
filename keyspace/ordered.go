package keyspace

import (
	"bytes"
	"encoding/binary"
)

// The ordered encoding of a value is a string of bytes such that
//
//   - memcmp order of encodings is PostgreSQL's btree order of values, for text that of the collation "C";
//   - equal values have equal encodings;
//   - no encoding is a prefix of another, so encodings of several columns can stand one after the other;
//   - the last byte is never 0xff, so that After only increments it.
//
//	integers       8 bytes big-endian with the sign bit flipped, 00
//	date           4 bytes likewise, 00
//	timestamps     8 bytes likewise, 00
//	boolean        1 byte, 00
//	uuid           its 16 bytes, 00
//	text, bytea    its bytes, where 00 becomes 00 ff; 00 00. A character's blanks at the end are left out
//	numeric        its class: 01 -Infinity, 02 negative, 03 zero, 04 positive, 05 Infinity, 06 NaN. Zero and the
//	               special ones end with 00. A positive number goes on with its weight (2 bytes with the sign bit
//	               flipped), its base-10000 digits (2 bytes each, plus 2), 00 00. A negative one has all bits of weight
//	               and digits flipped, and ends with ff fe
//
// The digits' plus 2 keeps 00 01 and ff ff free, which are what After makes of a number's end.

// AppendOrdered appends the ordered encoding of a value as a key of type key. An integer beyond the key's type is
// encoded too: no row has it, but it bounds a range.
func AppendOrdered(dst []byte, key Type, v Value) ([]byte, error) {
	if !key.Accepts(v.From) {
		return dst, ErrNotProven
	}
	switch v.From {
	case Int2, Int4, Int8, Date, Timestamp, Timestamptz, Bool:
		read := parseFixed
		if v.Binary {
			read = readFixedBinary
		}
		n, err := read(v.From, v.Data)
		if err != nil {
			return dst, err
		}
		if key == Numeric {
			whole := numericOfInt(n)
			return whole.appendOrdered(dst), nil
		}
		return appendFixed(dst, key, n)
	case Text, Varchar, Bpchar:
		s := v.Data
		if bytes.IndexByte(s, 0) >= 0 {
			return dst, ErrInvalid
		}
		if key == Bpchar {
			s = bytes.TrimRight(s, " ")
		}
		return append(append(dst, s...), 0, 0), nil
	case UUID:
		return appendOrderedUUID(dst, v)
	case Bytea:
		return appendOrderedBytea(dst, v)
	case Numeric:
		parse := parseNumericText
		if v.Binary {
			parse = parseNumericBinary
		}
		n, err := parse(v.Data)
		if err != nil {
			return dst, err
		}
		return n.appendOrdered(dst), nil
	}
	return dst, ErrNotProven
}

func appendFixed(dst []byte, key Type, n int64) ([]byte, error) {
	switch key.Canonical() {
	case Int8, Timestamp, Timestamptz:
		dst = binary.BigEndian.AppendUint64(dst, uint64(n)^1<<63)
	case Date:
		dst = binary.BigEndian.AppendUint32(dst, uint32(n)^1<<31)
	case Bool:
		dst = append(dst, byte(n))
	default:
		return dst, ErrNotProven
	}
	return append(dst, 0), nil
}

func appendOrderedUUID(dst []byte, v Value) ([]byte, error) {
	if v.Binary {
		if len(v.Data) != 16 {
			return dst, ErrInvalid
		}
		return append(append(dst, v.Data...), 0), nil
	}
	u, err := parseUUID(v.Data)
	if err != nil {
		return dst, err
	}
	return append(append(dst, u[:]...), 0), nil
}

func appendOrderedBytea(dst []byte, v Value) ([]byte, error) {
	start := len(dst)
	if v.Binary {
		for _, b := range v.Data {
			dst = appendEscaped(dst, b)
		}
		return append(dst, 0, 0), nil
	}
	rest, next := byteaReader(v.Data)
	for {
		b, after, state := next(rest)
		switch state {
		case byteInvalid:
			return dst[:start], ErrInvalid
		case byteEnd:
			return append(dst, 0, 0), nil
		}
		dst = appendEscaped(dst, b)
		rest = after
	}
}

func appendEscaped(dst []byte, b byte) []byte {
	if b == 0 {
		return append(dst, 0, 0xff)
	}
	return append(dst, b)
}

// The first byte of a numeric.
const (
	orderedMinusInfinity = iota + 1
	orderedNegative
	orderedZero
	orderedPositive
	orderedInfinity
	orderedNaN
)

func (n *numeric) appendOrdered(dst []byte) []byte {
	switch {
	case n.class == numericMinusInfinity:
		return append(dst, orderedMinusInfinity, 0)
	case n.class == numericInfinity:
		return append(dst, orderedInfinity, 0)
	case n.class == numericNaN:
		return append(dst, orderedNaN, 0)
	case n.count == 0:
		return append(dst, orderedZero, 0)
	}
	class, flip, end := byte(orderedPositive), uint16(0), uint16(0)
	if n.negative {
		class, flip, end = orderedNegative, 0xffff, 0xfffe
	}
	dst = append(dst, class)
	dst = binary.BigEndian.AppendUint16(dst, uint16(n.weight)^1<<15^flip)
	n.each(func(digit uint16) { dst = binary.BigEndian.AppendUint16(dst, (digit+2)^flip) })
	return binary.BigEndian.AppendUint16(dst, end)
}
