package keyspace

import (
	"bytes"
	"slices"
)

// Interval is a half-open interval of points, or of one component's encodings. High nil is the end.
type Interval struct{ Low, High []byte }

// Part is what a statement can touch of one component: everything, or the union of values and ranges, all of them
// encoded.
type Part struct {
	All    bool
	Values [][]byte
	Ranges []Interval
}

// Touched returns the indexes of the shards that have a point in the product of parts, one for each component, and
// inside every interval of within. A shard between two texts or numerics that are so close that no value fits between
// them may be among them.
func (d *Distribution) Touched(parts []Part, within []Interval) []int {
	p := product{pieces: d.pieces()}
	p.parts = append(make([]Part, 0, len(p.pieces)), parts...)
	for i := range p.parts {
		if values := p.parts[i].Values; !slices.IsSortedFunc(values, bytes.Compare) {
			p.parts[i].Values = slices.Clone(values)
			slices.SortFunc(p.parts[i].Values, bytes.Compare)
		}
	}
	var space Interval
	for _, w := range within {
		space = space.meet(w)
	}
	var touched []int
	for _, candidates := range p.leading() {
		candidates = candidates.meet(space)
		for i := d.Find(candidates.Low); i < len(d.Shards); i++ {
			low, high := d.Interval(i)
			if candidates.High != nil && bytes.Compare(low, candidates.High) >= 0 {
				break
			}
			if n := len(touched); n > 0 && touched[n-1] >= i {
				continue // the intervals come in order, so it has been looked at
			}
			shard := Interval{low, high}.meet(space)
			if p.any(0, shard.Low, shard.High, shard.High != nil) {
				touched = append(touched, i)
			}
		}
	}
	return touched
}

// meet returns what two intervals have in common; when they have nothing, High is not after Low.
func (v Interval) meet(o Interval) Interval {
	if bytes.Compare(o.Low, v.Low) > 0 {
		v.Low = o.Low
	}
	if v.High == nil || o.High != nil && bytes.Compare(o.High, v.High) < 0 {
		v.High = o.High
	}
	return v
}

// product is the set of points whose components are in the parts.
type product struct {
	pieces []piece
	parts  []Part
}

// maxLeading is how many intervals are looked up one by one; beyond it the shards between them are looked at too.
const maxLeading = 1 << 14

// leading returns intervals that cover the product, in order: those of the leading components that have only values,
// and of the first component that has ranges.
func (p *product) leading() []Interval {
	prefixes := [][]byte{nil}
	for i := range p.parts {
		part := &p.parts[i]
		if part.All || len(prefixes)*max(len(part.Values), len(part.Ranges)) > maxLeading {
			break
		}
		if len(part.Ranges) > 0 {
			return rangesAfter(prefixes, part)
		}
		longer := make([][]byte, 0, len(prefixes)*len(part.Values))
		for _, prefix := range prefixes {
			for _, v := range part.Values {
				longer = append(longer, slices.Concat(prefix, v))
			}
		}
		prefixes = longer
	}
	intervals := make([]Interval, len(prefixes))
	for i, prefix := range prefixes {
		intervals[i] = Interval{prefix, After(prefix)}
	}
	return intervals
}

func rangesAfter(prefixes [][]byte, part *Part) []Interval {
	var intervals []Interval
	for _, prefix := range prefixes {
		for _, v := range part.Values {
			v = slices.Concat(prefix, v)
			intervals = append(intervals, Interval{v, After(v)})
		}
		for _, r := range part.Ranges {
			high := After(prefix)
			if r.High != nil {
				high = slices.Concat(prefix, r.High)
			}
			intervals = append(intervals, Interval{slices.Concat(prefix, r.Low), high})
		}
	}
	slices.SortFunc(intervals, func(a, b Interval) int { return bytes.Compare(a.Low, b.Low) })
	return intervals
}

// any reports whether the parts from the one at index on have a sequence of encodings that is not below low and,
// if bounded, below high.
func (p *product) any(index int, low, high []byte, bounded bool) bool {
	if bounded && len(high) == 0 {
		return false
	}
	if index == len(p.pieces) {
		return len(low) == 0
	}
	piece, part := &p.pieces[index], &p.parts[index]
	// First the encodings between the bounds' own, where the rest is free.
	from, to := low, high
	atLow, atHigh := piece.whole(low), 0
	if atLow > 0 {
		from = After(low[:atLow])
	}
	if bounded {
		if atHigh = piece.whole(high); atHigh > 0 {
			to = high[:atHigh]
		}
	}
	ended := atLow > 0 && from == nil
	if !ended && part.between(piece, from, to, bounded) && p.anyRest(index+1) {
		return true
	}
	// Then those that a bound begins with, where the rest of the bound decides.
	onLow := atLow > 0 && part.has(low[:atLow])
	if atLow > 0 && atHigh > 0 && bytes.Equal(low[:atLow], high[:atHigh]) {
		return onLow && p.any(index+1, low[atLow:], high[atHigh:], true)
	}
	if onLow && (!bounded || bytes.Compare(low[:atLow], to) < 0) && p.any(index+1, low[atLow:], nil, false) {
		return true
	}
	return atHigh > 0 && bytes.Compare(from, to) <= 0 && !ended && part.has(to) && p.any(index+1, nil, high[atHigh:], true)
}

// anyRest reports whether the parts from the one at index on are not empty.
func (p *product) anyRest(index int) bool {
	for i := index; i < len(p.parts); i++ {
		if !p.parts[i].between(&p.pieces[i], nil, nil, false) {
			return false
		}
	}
	return true
}

func (p *Part) has(encoding []byte) bool {
	if p.All {
		return true
	}
	if _, found := slices.BinarySearchFunc(p.Values, encoding, bytes.Compare); found {
		return true
	}
	return slices.ContainsFunc(p.Ranges, func(r Interval) bool {
		return bytes.Compare(encoding, r.Low) >= 0 && (r.High == nil || bytes.Compare(encoding, r.High) < 0)
	})
}

// between reports whether the part has an encoding that is not below low and, if bounded, below high.
func (p *Part) between(piece *piece, low, high []byte, bounded bool) bool {
	below := func(encoding, high []byte, bounded bool) bool {
		return encoding != nil && (!bounded || bytes.Compare(encoding, high) < 0)
	}
	if p.All {
		return below(piece.ceiling(low), high, bounded)
	}
	if i, _ := slices.BinarySearchFunc(p.Values, low, bytes.Compare); i < len(p.Values) && below(p.Values[i], high, bounded) {
		return true
	}
	for _, r := range p.Ranges {
		from := r.Low
		if bytes.Compare(low, from) > 0 {
			from = low
		}
		if c := piece.ceiling(from); below(c, high, bounded) && below(c, r.High, r.High != nil) {
			return true
		}
	}
	return false
}
