package topo

import (
	"bytes"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/keyspace"
)

// TestPageHasAllFields fails when a shard gets a field that pages do not store.
func TestPageHasAllFields(t *testing.T) {
	if n := reflect.TypeFor[keyspace.Shard]().NumField(); n != 3 {
		t.Fatalf("a shard has %d fields, pages store 3: extend encodePage and decodePage", n)
	}
}

func TestPageRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		page := rapid.Uint32Range(0, 1<<32/pageShards-1).Draw(t, "page")
		ids := rapid.SliceOfNDistinct(rapid.Uint32Range(0, pageShards-1), 0, pageShards, rapid.ID).Draw(t, "ids")
		var shards []placed
		for _, id := range ids {
			shards = append(shards, placed{
				distribution: rapid.Uint32().Draw(t, "distribution"),
				Shard: keyspace.Shard{
					ID:   page*pageShards + id,
					Low:  rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "low"),
					Node: rapid.StringN(1, 10, -1).Draw(t, "node"),
				},
			})
		}
		data := encodePage(page, shards)
		back, err := decodePage(page, data)
		if err != nil {
			t.Fatal(err)
		}
		if len(back) != len(shards) || len(shards) > 0 && !reflect.DeepEqual(back, shards) {
			t.Fatalf("%v\nwant %v", back, shards)
		}
		if cut := rapid.IntRange(0, len(data)-1).Draw(t, "cut"); cut < len(data) {
			if _, err := decodePage(page, data[:cut]); err == nil {
				t.Fatalf("decoded %d of %d bytes", cut, len(data))
			}
		}
		if _, err := decodePage(page, append(data, 0)); err == nil {
			t.Fatal("decoded a byte too many")
		}
	})
}

func FuzzDecodePage(f *testing.F) {
	f.Add(uint32(0), []byte{})
	f.Add(uint32(0), encodePage(0, []placed{
		{1, keyspace.Shard{ID: 1, Node: "a"}},
		{1, keyspace.Shard{ID: 2, Low: []byte{0x80}, Node: "b"}},
	}))
	f.Add(uint32(7), encodePage(7, nil))
	f.Fuzz(func(t *testing.T, page uint32, data []byte) {
		page %= 1 << 32 / pageShards
		shards, err := decodePage(page, data)
		if err != nil {
			return
		}
		if again := encodePage(page, shards); !bytes.Equal(again, data) {
			t.Fatalf("%x was read as %v, which is written as %x", data, shards, again)
		}
	})
}
