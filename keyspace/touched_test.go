package keyspace_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/keyspace"
)

// small is a component with few encodings that bounds and conditions use, and enough of all others that wherever an
// encoding fits between two of these, there is one.
type small struct {
	used, all [][]byte
}

func smallTexts(t keyspace.Type, used, more []string) (s small) {
	for i, text := range slices.Concat(used, more) {
		b, err := keyspace.AppendOrdered(nil, t, keyspace.Value{Data: []byte(text), From: t})
		if err != nil {
			panic(err)
		}
		if i < len(used) {
			s.used = append(s.used, b)
		}
		s.all = append(s.all, b)
	}
	return s
}

func smallHashes() (s small) {
	for _, p := range []uint64{0, 1, 7 << 32, 8 << 56, 8<<56 + 1, 0xff << 56, math.MaxUint64 - 255, math.MaxUint64} {
		b := binary.BigEndian.AppendUint64(nil, p)
		s.used = append(s.used, b)
		s.all = append(s.all, b, binary.BigEndian.AppendUint64(nil, p+1), binary.BigEndian.AppendUint64(nil, p-1))
	}
	return s
}

func smallRegions() (s small) {
	for _, r := range regions {
		s.used = append(s.used, binary.BigEndian.AppendUint16(nil, r.ID))
	}
	s.all = s.used
	return s
}

func smallComponent(k *keyspace.Key, c *keyspace.Component) small {
	switch c.Method {
	case keyspace.List:
		return smallRegions()
	case keyspace.Range:
	default:
		return smallHashes()
	}
	switch t := k.Types[c.Columns[0]]; t {
	case keyspace.Int8:
		return smallTexts(t, []string{"-9223372036854775808", "-1", "0", "2", "3", "9223372036854775807"}, []string{"-2", "1", "4", "-9223372036854775807", "9223372036854775806"})
	case keyspace.Date:
		return smallTexts(t, []string{"-infinity", "infinity", "2024-02-28", "2024-03-01"}, []string{"2024-02-29", "2024-02-27", "2024-03-02"})
	case keyspace.Timestamp, keyspace.Timestamptz:
		return smallTexts(t, []string{"-infinity", "infinity", "2024-01-01 00:00:00Z", "2024-01-01 00:00:00.000002Z"},
			[]string{"2023-12-31 23:59:59.999999Z", "2024-01-01 00:00:00.000001Z", "2024-01-01 00:00:00.000003Z"})
	case keyspace.Text, keyspace.Bpchar:
		return smallTexts(t, []string{"", "a", "aa", "ab", "b"}, []string{"\x01", "a\x01", "aa\x01", "ab\x01", "b\x01", "a`", "c"})
	case keyspace.Bytea:
		return smallTexts(t, []string{`\x`, `\x00`, `\x01`, `\x0100`, `\xff`}, []string{`\x0000`, `\x000000`, `\x0101`, `\x010000`, `\xff00`, `\x02`})
	case keyspace.Numeric:
		return smallTexts(t, []string{"-Infinity", "-1", "0", "1", "1.0001", "NaN"}, []string{"-2", "-0.5", "0.5", "1.00001", "2", "Infinity"})
	case keyspace.UUID:
		return smallTexts(t, []string{"00000000-0000-0000-0000-000000000000", "7fffffff-ffff-ffff-ffff-ffffffffffff", "ffffffff-ffff-ffff-ffff-ffffffffffff"},
			[]string{"00000000-0000-0000-0000-000000000001", "80000000-0000-0000-0000-000000000000", "7fffffff-ffff-ffff-ffff-fffffffffffe", "ffffffff-ffff-ffff-ffff-fffffffffffe"})
	}
	return smallTexts(keyspace.Bool, []string{"false", "true"}, nil)
}

// touching is a distribution whose bounds, and conditions on it, are made of small components.
type touching struct {
	r      *rand.Rand
	smalls []small
	d      *keyspace.Distribution
}

func newTouching(t *testing.T, s strategy, r *rand.Rand) *touching {
	x := &touching{r: r}
	for _, c := range s.key.Components() {
		x.smalls = append(x.smalls, smallComponent(&s.key, &c))
	}
	m, d, err := regionNodes(t).CreateDistribution("app", s.key, keyspace.Layout{Shards: min(s.layout.Shards, 1)})
	if err != nil {
		t.Fatal(err)
	}
	for range r.IntN(12) {
		if at := x.bound(); at != nil {
			if next, err := m.SplitShard(d.Shards[d.Find(at)].ID, at); err == nil {
				m, d = next, next.Distribution(d.ID)
			}
		}
	}
	x.d = d
	return x
}

func (x *touching) bound() []byte {
	var b []byte
	for _, s := range x.smalls[:1+x.r.IntN(len(x.smalls))] {
		b = append(b, pick(x.r, s.used...)...)
	}
	if x.r.IntN(2) == 0 {
		return keyspace.After(b)
	}
	return b
}

func (x *touching) part(s small) (p keyspace.Part) {
	edge := func() []byte {
		b := pick(x.r, s.used...)
		if x.r.IntN(2) == 0 {
			return keyspace.After(b)
		}
		return b
	}
	switch x.r.IntN(6) {
	case 0, 1:
		p.All = true
	case 2, 3:
		for range x.r.IntN(4) {
			p.Values = append(p.Values, pick(x.r, s.used...))
		}
	case 4:
		p.Values = append(p.Values, pick(x.r, s.used...))
		fallthrough
	default:
		for range 1 + x.r.IntN(2) {
			low, high := edge(), edge()
			if low == nil || x.r.IntN(4) == 0 {
				low = []byte{}
			}
			if x.r.IntN(4) == 0 {
				high = nil
			}
			p.Ranges = append(p.Ranges, keyspace.Interval{Low: low, High: high})
		}
	}
	return p
}

func inside(b []byte, v keyspace.Interval) bool {
	return bytes.Compare(b, v.Low) >= 0 && (v.High == nil || bytes.Compare(b, v.High) < 0)
}

func holds(p keyspace.Part, b []byte) bool {
	return p.All || slices.ContainsFunc(p.Values, func(v []byte) bool { return bytes.Equal(v, b) }) ||
		slices.ContainsFunc(p.Ranges, func(v keyspace.Interval) bool { return inside(b, v) })
}

// brute tries all points that small components have.
func (x *touching) brute(parts []keyspace.Part, within []keyspace.Interval) []int {
	touched := map[int]bool{}
	var walk func(index int, point []byte)
	walk = func(index int, point []byte) {
		if index == len(x.smalls) {
			if !slices.ContainsFunc(within, func(v keyspace.Interval) bool { return !inside(point, v) }) {
				touched[x.d.Find(point)] = true
			}
			return
		}
		for _, b := range x.smalls[index].all {
			if holds(parts[index], b) {
				walk(index+1, slices.Concat(point, b))
			}
		}
	}
	walk(0, nil)
	var indexes []int
	for i := range x.d.Shards {
		if touched[i] {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

func TestTouchedIsExact(t *testing.T) {
	for _, s := range strategies() {
		t.Run(s.name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
				x := newTouching(t, s, r)
				for range 10 {
					var parts []keyspace.Part
					for _, small := range x.smalls {
						parts = append(parts, x.part(small))
					}
					var within []keyspace.Interval
					for range r.IntN(3) {
						within = append(within, keyspace.Interval{Low: x.bound(), High: x.bound()})
					}
					got, want := x.d.Touched(parts, within), x.brute(parts, within)
					if !slices.Equal(got, want) {
						for i := range x.d.Shards {
							t.Logf("shard %d from %s", i, x.d.FormatBound(x.d.Shards[i].Low))
						}
						t.Fatalf("parts %+v within %x touch shards %v, want %v", parts, within, got, want)
					}
				}
			})
		})
	}
}

// A statement that fixes the first dimensions looks at few shards, however many there are.
func BenchmarkTouched(b *testing.B) {
	s := newStrategy("composite", 3000, []keyspace.Type{keyspace.Text, keyspace.Int8, keyspace.Date},
		list(0, "eu"), dimension(keyspace.Hash, 1), dimension(keyspace.Range, 2))
	_, d, err := regionNodes(b).CreateDistribution("app", s.key, s.layout)
	if err != nil {
		b.Fatal(err)
	}
	point := s.point(b, newSeeded(1), []string{"de", "42", "2024-01-01"})
	parts := []keyspace.Part{{Values: point[:1]}, {Values: point[1:2]}, {Ranges: []keyspace.Interval{{Low: point[2]}}}}
	b.ReportAllocs()
	for b.Loop() {
		if len(d.Touched(parts, nil)) != 1 {
			b.Fatal("not one shard")
		}
	}
}
