package keyspace

import "bytes"

// Interval is a half-open interval of points, or of one component's encodings. High nil is the end.
type Interval struct{ Low, High []byte }

// Part is what a statement can touch of one component: everything, or the union of values and ranges, all of them
// encoded.
type Part struct {
	All    bool
	Values [][]byte
	Ranges []Interval
}

// Touched returns the indexes of the shards that can have a point in the product of parts, one for each component,
// and inside every interval of within.
func (d *Distribution) Touched(parts []Part, within []Interval) []int {
	var touched []int
	for i := range d.Shards {
		low, high := d.Interval(i)
		meets := true
		for _, w := range within {
			meets = meets && (high == nil || bytes.Compare(w.Low, high) < 0) && (w.High == nil || bytes.Compare(low, w.High) < 0)
		}
		if meets && (len(parts) == 0 || parts[0].meets(low, high)) {
			touched = append(touched, i)
		}
	}
	return touched
}

// meets reports whether the part can have an encoding that is the beginning of a point from low up to high.
func (p *Part) meets(low, high []byte) bool {
	if p.All {
		return true
	}
	for _, v := range p.Values {
		after := After(v)
		if (after == nil || bytes.Compare(low, after) < 0) && (high == nil || bytes.Compare(v, high) < 0) {
			return true
		}
	}
	for _, r := range p.Ranges {
		if (r.High == nil || bytes.Compare(low, r.High) < 0) && (high == nil || bytes.Compare(r.Low, high) < 0) {
			return true
		}
	}
	return false
}
