package exec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// directory is an asker that knows some entries and assigns others.
type directory struct {
	asked
	entries map[string]uint64
}

func (a *directory) Entry(_ *keyspace.Distribution, key []byte, assign bool) (uint64, bool, error) {
	entry, known := a.entries[string(key)]
	if !known && assign {
		entry, known = uint64(len(a.entries))<<62, true
		a.entries[string(key)] = entry
	}
	return entry, known, nil
}

func distribution(t testing.TB, key keyspace.Key, layout keyspace.Layout) *keyspace.Distribution {
	t.Helper()
	m := keyspace.NewMap("c")
	var err error
	for i := range 3 {
		n := keyspace.Node{Name: "n" + strconv.Itoa(i), Addresses: []string{"127.0.0.1:" + strconv.Itoa(7000+i)}, State: keyspace.NodeActive, Weight: 1, Region: "eu"}
		if i > 0 {
			n.Region = "us"
		}
		if m, err = m.AddNode(n); err != nil {
			t.Fatal(err)
		}
	}
	_, d, err := m.CreateDistribution("db", key, layout)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func pinOf(types []keyspace.Type, columns ...[]plan.Operand) *plan.Pin {
	p := &plan.Pin{Table: "t"}
	for i, ops := range columns {
		p.Keys = append(p.Keys, plan.KeyColumn{Type: types[i], Column: fmt.Sprintf("t.c%d", i), Operands: ops})
	}
	return p
}

func integers(values ...int) []plan.Operand {
	var ops []plan.Operand
	for _, v := range values {
		ops = append(ops, key(strconv.Itoa(v)))
	}
	return ops
}

func text(s string) plan.Operand { return plan.Operand{Literal: -1, Text: s, From: keyspace.Text} }

// The rows of VALUES are taken row by row, conditions on several columns in all combinations.
func TestRowsAndCombinations(t *testing.T) {
	two := []keyspace.Type{keyspace.Int8, keyspace.Int8}
	d := distribution(t, keyspace.HashKey(two...), keyspace.Layout{Shards: 4096})
	var zipped []int
	for i := range 3 {
		row, err := Row(d, pinOf(two, nil, nil), []Value{{Data: []byte(strconv.Itoa(i))}, {Data: []byte(strconv.Itoa(i + 10))}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		zipped = add(zipped, slices.IndexFunc(d.Shards, func(s keyspace.Shard) bool { return s.ID == row.ID }))
	}
	pin := pinOf(two, integers(0, 1, 2), integers(10, 11, 12))
	all, err := Shards(d, pin, constants{}, nil)
	if err != nil || len(all) != 9 {
		t.Errorf("combinations: %v, %v", all, err)
	}
	pin.Insert, pin.Stored = true, true
	rows, err := Shards(d, pin, constants{}, nil)
	if err != nil || !slices.Equal(rows, zipped) {
		t.Errorf("rows: %v, want %v, %v", rows, zipped, err)
	}
	many := make([]int, 100)
	for i := range many {
		many[i] = i
	}
	if all, err = Shards(d, pinOf(two, integers(many...), integers(many...)), constants{}, nil); err != nil || len(all) != len(d.Shards) {
		t.Errorf("too many combinations touch %d of %d shards, %v", len(all), len(d.Shards), err)
	}
}

// scratch gives all values the same place in memory, as a router does with literals that have escapes.
type scratch struct{ data []byte }

func (s *scratch) Value(o *plan.Operand) (Value, error) {
	s.data = append(s.data[:0], o.Text...)
	return Value{Data: s.data, Null: o.Null}, nil
}

func TestValuesInOnePlace(t *testing.T) {
	two := []keyspace.Type{keyspace.Text, keyspace.Text}
	hashes := distribution(t, keyspace.HashKey(two...), keyspace.Layout{Shards: 4096})
	ordered := distribution(t, keyspace.Key{Types: two, Dimensions: []keyspace.Dimension{
		{Method: keyspace.Hash, Columns: []int{0}}, {Method: keyspace.Range, Columns: []int{1}},
	}}, keyspace.Layout{Shards: 4096})
	for _, d := range []*keyspace.Distribution{hashes, ordered} {
		for _, insert := range []bool{false, true} {
			pin := pinOf(two, []plan.Operand{text("a1"), text("b1")}, []plan.Operand{text("a2"), text("b2")})
			pin.Insert = insert
			want, err := Shards(d, pin, constants{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := Shards(d, pin, &scratch{}, nil); err != nil || !slices.Equal(got, want) {
				t.Errorf("%s, insert %v: %v, want %v, %v", d.Key.Strategy(), insert, got, want, err)
			}
		}
	}
}

func TestNothingMatches(t *testing.T) {
	types := []keyspace.Type{keyspace.Int4, keyspace.Int8}
	d := distribution(t, keyspace.Key{Types: []keyspace.Type{keyspace.Int8, keyspace.Int8}, Dimensions: []keyspace.Dimension{
		{Method: keyspace.Range, Columns: []int{0, 1}},
	}}, keyspace.Layout{})
	null := plan.Operand{Literal: -1, Null: true, From: keyspace.Int8}
	for name, pin := range map[string]*plan.Pin{
		"equal to NULL":  pinOf(types, []plan.Operand{null}, nil),
		"empty interval": {Keys: []plan.KeyColumn{{Type: keyspace.Int4, Bounds: []plan.Bound{{Op: plan.Less, Operand: key("1")}, {Op: plan.Greater, Operand: key("1")}}}, {Type: keyspace.Int8}}},
		"less than NULL": {Keys: []plan.KeyColumn{{Type: keyspace.Int4, Bounds: []plan.Bound{{Op: plan.Less, Operand: null}}}, {Type: keyspace.Int8}}},
		"a row with NULL first": {
			Keys: []plan.KeyColumn{{Type: keyspace.Int4}, {Type: keyspace.Int8}},
			Rows: []plan.RowBound{{Columns: []int{0, 1}, Op: plan.Greater, Operands: []plan.Operand{null, key("1")}}},
		},
	} {
		if shards, err := Shards(d, pin, constants{}, nil); err != nil || len(shards) != 0 {
			t.Errorf("%s: %v, %v", name, shards, err)
		}
	}
	if shards, err := Shards(d, pinOf(types, nil, nil), constants{}, nil); err != nil || len(shards) != len(d.Shards) {
		t.Errorf("nothing known: %v, %v", shards, err)
	}
}

func TestDirectoryAndList(t *testing.T) {
	texts := []keyspace.Type{keyspace.Text}
	d := distribution(t, keyspace.Key{Types: texts, Dimensions: []keyspace.Dimension{{Method: keyspace.Directory, Columns: []int{0}}}}, keyspace.Layout{Shards: 4})
	ask := &directory{entries: map[string]uint64{}}
	read, write := pinOf(texts, []plan.Operand{text("a")}), pinOf(texts, []plan.Operand{text("a")})
	write.Insert, write.Stored, write.Keys[0].Assigned = true, true, true
	if shards, err := Shards(d, read, constants{}, ask); err != nil || len(shards) != 0 {
		t.Errorf("an unknown key: %v, %v", shards, err)
	}
	stored, err := Shards(d, write, constants{}, ask)
	if err != nil || len(stored) != 1 {
		t.Errorf("a new key: %v, %v", stored, err)
	}
	if shards, err := Shards(d, read, constants{}, ask); err != nil || !slices.Equal(shards, stored) {
		t.Errorf("a known key: %v, %v", shards, err)
	}
	d = distribution(t, keyspace.Key{Types: texts, Dimensions: []keyspace.Dimension{
		{Method: keyspace.List, Columns: []int{0}, Regions: []keyspace.Region{{Name: "eu", ID: 1, Values: []string{"a"}}, {Name: "us", ID: 2, Values: []string{"b"}}}},
		{Method: keyspace.Hash, Columns: []int{0}},
	}}, keyspace.Layout{Shards: 8})
	both := pinOf(texts, []plan.Operand{text("a"), text("b"), text("c")})
	if shards, err := Shards(d, both, constants{}, ask); err != nil || len(shards) != 2 {
		t.Errorf("two regions and none: %v, %v", shards, err)
	}
	write.Keys[0].Operands[0] = text("c")
	var homeless *Homeless
	if _, err := Shards(d, write, constants{}, ask); !errors.As(err, &homeless) || !strings.Contains(err.Error(), "t.c0") {
		t.Errorf("a row of no region: %v", err)
	}
}

func BenchmarkTarget(b *testing.B) {
	two := []keyspace.Type{keyspace.Int8, keyspace.Int8}
	composite := keyspace.Key{Types: two, Dimensions: []keyspace.Dimension{{Method: keyspace.Hash, Columns: []int{0}}, {Method: keyspace.Range, Columns: []int{1}}}}
	for _, c := range []struct {
		name string
		key  keyspace.Key
		pin  *plan.Pin
	}{
		{"hash", keyspace.HashKey(keyspace.Int8), pinOf(two, integers(42))},
		{"hashes", keyspace.HashKey(two...), pinOf(two, integers(42), integers(43))},
		{"hash and range", composite, pinOf(two, integers(42), nil)},
	} {
		b.Run(c.name, func(b *testing.B) {
			d := distribution(b, c.key, keyspace.Layout{Shards: 10000})
			m := &keyspace.Map{Home: "n0", Distributions: []*keyspace.Distribution{d}}
			c.pin.Distribution = d.ID
			p := &plan.Plan{Pins: []plan.Pin{*c.pin}}
			var values Values = fixed{data: []byte("42")}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Target(m, p, values, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// fixed is one value for all operands.
type fixed struct{ data []byte }

func (f fixed) Value(*plan.Operand) (Value, error) { return Value{Data: f.data}, nil }
