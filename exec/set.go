package exec

import (
	"bytes"
	"errors"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// span is an interval of encoded values of one column, [low, high); nil is an end of the space. A
// span of one value is marked, because it fixes the component.
type span struct {
	low, high []byte
	value     bool
}

// set is a union of spans.
type set []span

func everything() set { return set{{}} }

func valueSpan(value []byte) span { return span{value, keyspace.After(value), true} }

// opSpan is where a comparison with an encoded value holds.
func opSpan(op plan.Op, value []byte) span {
	switch op {
	case plan.Less:
		return span{high: value}
	case plan.LessEqual:
		return span{high: keyspace.After(value)}
	case plan.Greater:
		return span{low: keyspace.After(value)}
	case plan.GreaterEqual:
		return span{low: value}
	}
	return valueSpan(value)
}

// prefixSpan is where texts begin with what a pattern begins with.
func prefixSpan(op plan.Op, v *keyValue) set {
	prefix := v.Data
	if op == plan.Like {
		if i := bytes.IndexAny(prefix, `%_\`); i >= 0 {
			prefix = prefix[:i]
		}
	}
	if len(prefix) == 0 || bytes.IndexByte(prefix, 0) >= 0 {
		return everything()
	}
	return set{{low: bytes.Clone(prefix), high: keyspace.After(prefix)}}
}

// maxSpans bounds what an intersection may cost; beyond it one side is taken for both.
const maxSpans = 1 << 16

func (a set) intersect(b set) set {
	switch {
	case len(a) == 1 && a[0].everything():
		return b
	case len(b) == 1 && b[0].everything() || len(a)*len(b) > maxSpans:
		return a
	}
	var both set
	for i := range a {
		for j := range b {
			if s, some := a[i].intersect(&b[j]); some {
				both = append(both, s)
			}
		}
	}
	return both
}

func (s *span) everything() bool { return s.low == nil && s.high == nil }

func (s *span) intersect(o *span) (span, bool) {
	out := *s
	if bytes.Compare(o.low, out.low) > 0 {
		out.low = o.low
	}
	if out.high == nil || o.high != nil && bytes.Compare(o.high, out.high) < 0 {
		out.high = o.high
	}
	// Spans begin and end between values, so one value is inside another span or outside.
	out.value = s.value || o.value
	return out, out.high == nil || bytes.Compare(out.low, out.high) < 0
}

func (a set) part() keyspace.Part {
	if len(a) == 1 && a[0].everything() {
		return keyspace.Part{All: true}
	}
	var p keyspace.Part
	for i := range a {
		if a[i].value {
			p.Values = append(p.Values, a[i].low)
		} else {
			p.Ranges = append(p.Ranges, keyspace.Interval{Low: a[i].low, High: a[i].high})
		}
	}
	return p
}

// needsAsking reports a value that only PostgreSQL can read.
func needsAsking(err error) bool { return errors.Is(err, keyspace.ErrNotProven) }
