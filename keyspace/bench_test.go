package keyspace_test

import (
	"math/rand/v2"
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
