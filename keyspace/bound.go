package keyspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A bound of a shard is a sequence of whole components, so that it can be read by people and by SQL. The last one may
// be what After makes of a text, a bytea or a numeric; of every other encoding that is the next one. Components at the
// end that are the lowest there are have no effect and are left out, so that a place has one spelling and the start of
// the space is the empty string. A key that is a single hash leaves out the zero bytes at the end too.

var errNotWhole = errors.New("it is not made of whole components")

// canonical returns the one spelling of a bound, nil for the end of the space.
func (k *Key) canonical(b []byte) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	if k.SingleHash() {
		if len(b) > entrySize {
			return nil, fmt.Errorf("a hash point has %d bytes, not %d", entrySize, len(b))
		}
		return bound(prefix(b)), nil
	}
	pieces := k.pieces()
	var starts []int
	for at := 0; at < len(b); {
		if len(starts) == len(pieces) {
			return nil, errNotWhole
		}
		p := &pieces[len(starts)]
		size := p.whole(b[at:])
		if size == 0 {
			var err error
			if b, err = k.completed(p, b, at); b == nil || err != nil {
				return nil, err
			}
			starts = append(starts, at)
			break
		}
		starts = append(starts, at)
		at += size
	}
	return withoutLowest(pieces, b, starts), nil
}

// completed replaces a component that is not whole, the last one of a bound, by the next whole one.
func (k *Key) completed(p *piece, b []byte, at int) ([]byte, error) {
	rest := b[at:]
	if p.fixedSize() == 0 {
		n, end := stringEnd(rest)
		if p.typ == Numeric {
			n, end = numericEnd(rest)
		}
		if end != endAfter || n != len(rest) {
			return nil, errNotWhole
		}
		if p.ceiling(rest) != nil {
			return b, nil
		}
	} else {
		if len(rest) > p.fixedSize() {
			return nil, errNotWhole
		}
		if c := p.ceiling(rest); c != nil {
			return append(slices.Clone(b[:at]), c...), nil
		}
	}
	return k.canonical(After(b[:at]))
}

// withoutLowest leaves out what has no effect at the end of a bound.
func withoutLowest(pieces []piece, b []byte, starts []int) []byte {
	for i := len(starts) - 1; i >= 0; i-- {
		if starts[i] > len(b) || !bytes.Equal(pieces[i].ceiling(nil), b[starts[i]:]) {
			return b
		}
		b = b[:starts[i]]
	}
	return b
}

// boundValue is one component of a bound, for people and for SQL.
type boundValue struct {
	piece *piece
	text  string // in PostgreSQL's text format; a hash is a bigint, a region its ID
	after bool   // the bound is after all points with this value
}

// values reads a bound. It is canonical.
func (k *Key) values(b []byte) ([]boundValue, error) {
	if k.SingleHash() && len(b) > 0 {
		b = binary.BigEndian.AppendUint64(nil, prefix(b))
	}
	pieces := k.pieces()
	var all []boundValue
	for len(b) > 0 {
		if len(all) == len(pieces) {
			return nil, errNotWhole
		}
		p := &pieces[len(all)]
		v := boundValue{piece: p}
		size := p.whole(b)
		if size == 0 {
			if p.fixedSize() > 0 {
				return nil, errNotWhole
			}
			v.after, size = true, len(b)
		}
		var ok bool
		if v.text, ok = p.text(b[:size]); !ok {
			return nil, errNotWhole
		}
		all = append(all, v)
		b = b[size:]
	}
	return all, nil
}

// text reads a whole encoding, or what After makes of one.
func (p *piece) text(b []byte) (string, bool) {
	switch p.Method {
	case Hash:
		return signed(prefix(b)), len(b) == entrySize
	case Directory, Schema:
		return strconv.FormatUint(prefix(b), 10), len(b) == entrySize
	case List:
		return strconv.Itoa(int(binary.BigEndian.Uint16(b))), len(b) == regionSize
	}
	return orderedText(p.typ, b)
}

// FormatBound writes a shard's bound in the key's own terms: a hash as PostgreSQL prints it, a region's name, an
// entry's number, a value in PostgreSQL's text format. Several stand in parentheses. "after X" is the place after all
// keys with the value X. The start of the space is the empty string.
func (k *Key) FormatBound(b []byte) string {
	values, err := k.values(b)
	if err != nil {
		return fmt.Sprintf("%x", b)
	}
	texts := make([]string, len(values))
	after := ""
	for i, v := range values {
		texts[i] = v.text
		if v.piece.Method == List { // always the first
			texts[i] = v.piece.region(b).Name
		}
		if v.after {
			after = "after "
		}
	}
	if len(texts) == 1 {
		return after + texts[0]
	}
	if len(texts) == 0 {
		return ""
	}
	for i, text := range texts {
		if text == "" || strings.ContainsAny(text, `,()'`) || strings.TrimSpace(text) != text {
			texts[i] = "'" + strings.ReplaceAll(text, "'", "''") + "'"
		}
	}
	return after + "(" + strings.Join(texts, ", ") + ")"
}

// ParseBound reads a bound from the values of its leading components, as FormatBound writes each of them.
func (k *Key) ParseBound(values []string) ([]byte, error) {
	pieces := k.pieces()
	if len(values) == 0 || len(values) > len(pieces) {
		return nil, fmt.Errorf("%d values; a bound of strategy %q has from 1 to %d", len(values), k.Strategy(), len(pieces))
	}
	var b []byte
	for i, text := range values {
		var err error
		if b, err = pieces[i].parse(b, text); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func (p *piece) parse(dst []byte, text string) ([]byte, error) {
	switch p.Method {
	case Hash:
		hash, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a hash, a whole number from -2^63 to 2^63 - 1", text)
		}
		return binary.BigEndian.AppendUint64(dst, Point(uint64(hash))), nil
	case Directory, Schema:
		entry, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not an entry, a whole number from 0 to 2^64 - 1", text)
		}
		return AppendEntry(dst, entry), nil
	case List:
		for i := range p.regions {
			if p.regions[i].Name == text {
				return binary.BigEndian.AppendUint16(dst, p.regions[i].ID), nil
			}
		}
		return nil, fmt.Errorf("there is no region %q", text)
	}
	dst, err := AppendOrdered(dst, p.typ, Value{Data: []byte(text), From: p.typ})
	if err != nil {
		return nil, fmt.Errorf("%q of type %s: %w", text, p.typ, err)
	}
	return dst, nil
}
