package keyspace_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
)

func newSeeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func BenchmarkFindHash(b *testing.B) {
	m := addNodes(b, keyspace.NewMap("test"), "a", "b", "c")
	_, d, err := m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: 10000})
	if err != nil {
		b.Fatal(err)
	}
	r := newSeeded(1)
	points := make([]uint64, 1<<16)
	for i := range points {
		points[i] = r.Uint64()
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if d.FindHash(points[i&(len(points)-1)]) == nil {
			b.Fatal("no shard")
		}
		i++
	}
}

// lookup is a strategy with about 10,000 shards, and the rows that are looked up.
type lookup struct {
	strategy
	rows [][]string
}

func lookups() []lookup {
	r := newSeeded(9)
	row := map[keyspace.Type]func() string{
		keyspace.Int8: func() string { return strconv.Itoa(r.IntN(1_000_000_000)) },
		keyspace.Text: func() string { return pick(r, pick(r, regions...).Values...) },
		keyspace.Timestamptz: func() string {
			return fmt.Sprintf("2024-%02d-%02d %02d:00:00+00", 1+r.IntN(12), 1+r.IntN(28), r.IntN(24))
		},
	}
	all := []lookup{
		{strategy: newStrategy("hash", 10_000, []keyspace.Type{keyspace.Int8}, dimension(keyspace.Hash, 0))},
		{strategy: newStrategy("range", 0, []keyspace.Type{keyspace.Int8}, dimension(keyspace.Range, 0))},
		{strategy: newStrategy("list", 3333, []keyspace.Type{keyspace.Text, keyspace.Int8}, list(0, "eu"), dimension(keyspace.Hash, 1))},
		{strategy: newStrategy("composite", 3333, []keyspace.Type{keyspace.Text, keyspace.Int8, keyspace.Timestamptz},
			list(0, "eu"), dimension(keyspace.Hash, 1), dimension(keyspace.Range, 2))},
	}
	for i := range all {
		l := &all[i]
		for range 1 << 12 {
			var texts []string
			for _, t := range l.types {
				texts = append(texts, row[t]())
			}
			l.rows = append(l.rows, texts)
		}
	}
	for i := range 9999 {
		b, err := all[1].key.ParseBound([]string{strconv.Itoa((i + 1) * 100_000)})
		if err != nil {
			panic(err)
		}
		all[1].layout.SplitAt = append(all[1].layout.SplitAt, b)
	}
	return all
}

// finder finds the shards of rows as a router does: components into a buffer, then the shard.
type finder struct {
	d          *keyspace.Distribution
	components []keyspace.Component
	types      [][]keyspace.Type
	values     [][][]keyspace.Value // of row, component, column
	point      []byte
}

func newFinder(tb testing.TB, l lookup) *finder {
	tb.Helper()
	_, d, err := regionNodes(tb).CreateDistribution("app", l.key, l.layout)
	if err != nil {
		tb.Fatal(err)
	}
	f := &finder{d: d, components: d.Components()}
	for _, c := range f.components {
		var types []keyspace.Type
		for _, i := range c.Columns {
			types = append(types, l.types[i])
		}
		f.types = append(f.types, types)
	}
	for _, row := range l.rows {
		var values [][]keyspace.Value
		for _, c := range f.components {
			var own []keyspace.Value
			for _, i := range c.Columns {
				own = append(own, keyspace.Value{Data: []byte(row[i]), From: l.types[i]})
			}
			values = append(values, own)
		}
		f.values = append(f.values, values)
	}
	return f
}

func (f *finder) find(tb testing.TB, row int) int {
	f.point = f.point[:0]
	var err error
	for i := range f.components {
		if f.point, err = f.d.AppendComponent(f.point, &f.components[i], f.types[i], f.values[row][i]); err != nil {
			tb.Fatal(err)
		}
	}
	return f.d.Find(f.point)
}

func BenchmarkLookup(b *testing.B) {
	for _, l := range lookups() {
		b.Run(l.name, func(b *testing.B) {
			f := newFinder(b, l)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				f.find(b, i%len(f.values))
			}
		})
	}
}

func TestLookupDoesNotAllocate(t *testing.T) {
	for _, l := range lookups() {
		f := newFinder(t, l)
		f.find(t, 0)
		i := 0
		if n := testing.AllocsPerRun(1000, func() { f.find(t, i); i++ }); n != 0 {
			t.Errorf("%s: %v allocations", l.name, n)
		}
	}
}

// benchmarkValues are typical keys, with their binary format.
func benchmarkValues() map[keyspace.Type][2]string {
	return map[keyspace.Type][2]string{
		keyspace.Int8:        {"1234567890123", "\x00\x00\x01\x1f\x71\xfb\x04\xcb"},
		keyspace.Text:        {"customer-000123456", "customer-000123456"},
		keyspace.Bpchar:      {"DE  ", "DE  "},
		keyspace.UUID:        {"f47ac10b-58cc-4372-a567-0e02b2c3d479", "\xf4\x7a\xc1\x0b\x58\xcc\x43\x72\xa5\x67\x0e\x02\xb2\xc3\xd4\x79"},
		keyspace.Bytea:       {`\xf47ac10b58cc4372a5670e02b2c3d479`, "\xf4\x7a\xc1\x0b\x58\xcc\x43\x72\xa5\x67\x0e\x02\xb2\xc3\xd4\x79"},
		keyspace.Numeric:     {"-12345678.9012", "\x00\x03\x00\x01\x40\x00\x00\x04\x04\xd2\x16\x2e\x23\x34"},
		keyspace.Date:        {"2024-02-29", "\x00\x00\x22\x79"},
		keyspace.Timestamp:   {"2024-02-29 12:34:56.789", "\x00\x02\xb5\xd0\x5d\x1a\x6a\x00"},
		keyspace.Timestamptz: {"2024-02-29 12:34:56.789+02", "\x00\x02\xb5\xd0\x5d\x1a\x6a\x00"},
		keyspace.Bool:        {"true", "\x01"},
	}
}

func TestHashDoesNotAllocate(t *testing.T) {
	for typ, value := range benchmarkValues() {
		text, binary := []byte(value[0]), []byte(value[1])
		if n := testing.AllocsPerRun(100, func() {
			if _, err := keyspace.HashText(typ, typ, text); err != nil {
				t.Errorf("%s text: %v", typ, err)
			}
			if _, err := keyspace.HashBinary(typ, typ, binary); err != nil {
				t.Errorf("%s binary: %v", typ, err)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", typ, n)
		}
	}
}

func BenchmarkHashText(b *testing.B) {
	for typ, value := range benchmarkValues() {
		b.Run(typ.String(), func(b *testing.B) {
			text := []byte(value[0])
			b.ReportAllocs()
			for b.Loop() {
				if _, err := keyspace.HashText(typ, typ, text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkHashBinary(b *testing.B) {
	for typ, value := range benchmarkValues() {
		b.Run(typ.String(), func(b *testing.B) {
			data := []byte(value[1])
			b.ReportAllocs()
			for b.Loop() {
				if _, err := keyspace.HashBinary(typ, typ, data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
