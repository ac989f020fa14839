package router

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
)

func testDirectory(t testing.TB, shards int, weights ...float64) (*keyspace.Map, *keyspace.Distribution) {
	t.Helper()
	m := keyspace.NewMap("test")
	var err error
	for i, w := range weights {
		m, err = m.AddNode(keyspace.Node{Name: fmt.Sprintf("n%d", i), Addresses: []string{"h:1"}, Weight: w, State: keyspace.NodeActive})
		if err != nil {
			t.Fatal(err)
		}
	}
	key := keyspace.Key{Types: []keyspace.Type{keyspace.Int8}, Dimensions: []keyspace.Dimension{{Method: keyspace.Directory, Columns: []int{0}}}}
	m, d, err := m.CreateDirectory("db", key, keyspace.Layout{Shards: shards}, assignByWeight)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Validate(); err != nil {
		t.Fatal(err)
	}
	return m, d
}

func testKey(i int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

// The cache forgets what was not used, and what a newer version of the directory may have changed.
func TestDirectoryCache(t *testing.T) {
	m, d := testDirectory(t, 8, 1)
	var c directoryCache
	c.init(320)
	for i := range 10000 {
		c.put(d, testKey(i), uint64(i))
		if _, ok := c.get(d, testKey(0)); !ok {
			t.Fatalf("the key that is used all the time was forgotten after %d others", i)
		}
	}
	kept := 0
	for i := range 10000 {
		if entry, ok := c.get(d, testKey(i)); ok {
			kept++
			if entry != uint64(i) {
				t.Fatalf("key %d has entry %d", i, entry)
			}
		}
	}
	if kept < 160 || kept > 320 {
		t.Errorf("%d of 320 places are used", kept)
	}
	next, err := m.ChangeEntries(d.ID)
	if err != nil {
		t.Fatal(err)
	}
	changed := next.Distribution(d.ID)
	if _, ok := c.get(changed, testKey(0)); ok {
		t.Error("an entry of an older version is used")
	}
	c.put(changed, testKey(0), 7)
	c.put(d, testKey(0), 8) // read before the change, and late
	if entry, ok := c.get(changed, testKey(0)); !ok || entry != 7 {
		t.Errorf("the entry is %d, %v", entry, ok)
	}
}

// New keys go where the load is least for the node's weight, and not into shards that were cut for one key.
func TestLeastLoaded(t *testing.T) {
	m, d := testDirectory(t, 9, 1, 2)
	first, _ := d.EntriesOf(4)
	m, _, err := m.Isolate(d.ID, keyspace.AppendEntry(nil, first+77))
	if err != nil {
		t.Fatal(err)
	}
	d = m.Distribution(d.ID)
	l := &directoryLoad{d: d, weights: map[string]float64{"n0": 1, "n1": 2}, nodes: map[string]float64{}, shards: make([]int64, len(d.Shards))}
	nodes := map[string]int{}
	for range 3000 {
		entry, err := l.choose("", 1)
		if err != nil {
			t.Fatal(err)
		}
		shard := d.FindEntry(entry)
		if _, width := d.EntriesOf(shard); width == 1 {
			t.Fatal("a key was put beside one that is alone")
		}
		nodes[d.Shards[shard].Node]++
	}
	if nodes["n0"] != 1000 || nodes["n1"] != 2000 {
		t.Errorf("keys by node: %v", nodes)
	}
	delete(l.weights, "n0")
	if entry, err := l.choose("", 1); err != nil || d.Shards[d.FindEntry(entry)].Node != "n1" {
		t.Errorf("a node that does not answer gets a key: %v", err)
	}
	if _, err := l.choose("n0", 1); err == nil {
		t.Error("a node that does not answer can be asked for")
	}
}

func BenchmarkDirectoryCache(b *testing.B) {
	_, d := testDirectory(b, 32, 1)
	for _, size := range []int{1000, cachedEntries / 8, cachedEntries} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			var c directoryCache
			c.init(2 * size)
			keys := make([][]byte, size)
			for i := range keys {
				keys[i] = fmt.Appendf(nil, "tenant-%07d\x00\x00", i)
				c.put(d, keys[i], uint64(i))
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				i = (i + 7919) % size
				if _, ok := c.get(d, keys[i]); !ok {
					b.Fatal("forgotten")
				}
			}
		})
	}
}
