package keyspace_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
)

func create(t *testing.T, m *keyspace.Map, s strategy) (*keyspace.Map, *keyspace.Distribution) {
	t.Helper()
	m, d, err := m.CreateDistribution("app", s.key, s.layout)
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return m, d
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want one with %q", err, want)
	}
}

// eu, us and asia follow each other in the order of their IDs.
func TestShardsStayInTheirRegion(t *testing.T) {
	m, d := create(t, regionNodes(t), newStrategy("list", 2, []keyspace.Type{keyspace.Text, keyspace.Int8}, list(0, ""), dimension(keyspace.Hash, 1)))
	for i, want := range []string{"eu", "eu", "us", "us", "asia", "asia"} {
		if d.Region(i) != want || !strings.HasPrefix(d.Shards[i].Node, want) {
			t.Errorf("shard %d of region %q is on %s, want %q", i, d.Region(i), d.Shards[i].Node, want)
		}
	}
	for i, want := range []string{"", "(eu, 0)", "us", "(us, 0)", "asia", "(asia, 0)"} {
		if got := d.FormatBound(d.Shards[i].Low); got != want {
			t.Errorf("bound %d is %q, want %q", i, got, want)
		}
	}
	eu, us := d.Shards[1].ID, d.Shards[2].ID
	wantError(t, second(m.MoveShard(eu, "us0")), `is of region "eu", and node "us0" is in region "us"`)
	wantError(t, second(m.MoveShard(eu, "nowhere")), "in no region")
	m = must(m.MoveShard(eu, "eu0"))(t)
	damaged := *m
	damaged.Nodes = append([]keyspace.Node(nil), m.Nodes...)
	for i := range damaged.Nodes {
		damaged.Nodes[i].Region = "eu"
	}
	wantError(t, damaged.Validate(), `of region "us" is on node`)
	for i := range damaged.Nodes {
		damaged.Nodes[i].Region = m.Nodes[i].Region
	}
	crossing := *m.Distribution(d.ID)
	crossing.Shards = append(append([]keyspace.Shard(nil), crossing.Shards[:2]...), crossing.Shards[3:]...)
	damaged.Distributions = []*keyspace.Distribution{&crossing}
	wantError(t, damaged.Validate(), `no shard that begins with region "us"`)
	wantError(t, second(m.MergeShards(eu, us)), "move one of them first")
	_, _, err := addNodes(t, keyspace.NewMap("test"), "a").CreateDistribution("app", d.Key, keyspace.Layout{Shards: 1})
	wantError(t, err, `no active node is in region "eu"`)
}

func TestMergeStopsAtTheRegion(t *testing.T) {
	k := keyspace.Key{Types: []keyspace.Type{keyspace.Text}, Dimensions: []keyspace.Dimension{list(0, "")}}
	m, d, err := regionNodes(t).CreateDistribution("app", k, keyspace.Layout{})
	if err != nil {
		t.Fatal(err)
	}
	// No edit leads to two regions on one node; a node whose region was changed elsewhere must not open the way.
	d.Shards[1].Node = d.Shards[0].Node
	wantError(t, second(m.MergeShards(d.Shards[0].ID, d.Shards[1].ID)), `of region "eu" and shard 2 of region "us"`)
}

func TestRegionOfValue(t *testing.T) {
	value := func(text string) []keyspace.Value { return []keyspace.Value{{Data: []byte(text), From: keyspace.Text}} }
	for other, want := range map[string]string{"": "", "us": "\x00\x03"} {
		s := newStrategy("list", 0, []keyspace.Type{keyspace.Text}, list(0, other))
		_, d := create(t, regionNodes(t), s)
		c := d.Components()[0]
		for _, k := range []*keyspace.Key{&s.key, &d.Key} { // with and without the distribution's index
			if b, err := k.AppendComponent([]byte("x"), &c, s.types, value("jp")); err != nil || string(b) != "x\x02\x00" {
				t.Errorf("jp: %x, error %v", b, err)
			}
			b, err := k.AppendComponent(nil, &c, s.types, value("br"))
			var none *keyspace.NoRegion
			if want == "" && (!errors.As(err, &none) || none.Value != "br") || string(b) != want {
				t.Errorf("br with default %q: %x, error %v", other, b, err)
			}
		}
	}
}

func TestRefusedKeys(t *testing.T) {
	m := regionNodes(t)
	text, hash := []keyspace.Type{keyspace.Text}, dimension(keyspace.Hash, 0)
	listed := func(edit func(d *keyspace.Dimension)) keyspace.Dimension {
		d := list(0, "")
		d.Regions = append([]keyspace.Region(nil), d.Regions...)
		edit(&d)
		return d
	}
	for want, s := range map[string]strategy{
		"without dimensions":           newStrategy("", 1, text),
		"in 2 dimensions":              newStrategy("", 1, text, hash, dimension(keyspace.Range, 0)),
		"in 0 dimensions":              newStrategy("", 1, []keyspace.Type{keyspace.Text, keyspace.Text}, hash),
		"key column 3 of 1":            newStrategy("", 1, text, hash, dimension(keyspace.Range, 2)),
		"not the first dimension":      newStrategy("", 1, []keyspace.Type{keyspace.Text, keyspace.Text}, hash, list(1, "")),
		"0 key columns for a range":    newStrategy("", 1, text, hash, dimension(keyspace.Range)),
		"a directory among other":      newStrategy("", 1, []keyspace.Type{keyspace.Text, keyspace.Text}, dimension(keyspace.Directory, 0), dimension(keyspace.Range, 1)),
		"2 key columns for a direct":   newStrategy("", 1, []keyspace.Type{keyspace.Text, keyspace.Text}, dimension(keyspace.Directory, 0, 1)),
		"1 key columns for a schema":   newStrategy("", 1, text, dimension(keyspace.Schema, 0)),
		"regions for a hash":           newStrategy("", 1, text, keyspace.Dimension{Method: keyspace.Hash, Columns: []int{0}, Default: "eu"}),
		"a list without regions":       newStrategy("", 1, text, listed(func(d *keyspace.Dimension) { d.Regions = nil })),
		"without a name or an ID":      newStrategy("", 1, text, listed(func(d *keyspace.Dimension) { d.Regions[0].ID = 0 })),
		`region "asia", with ID 1, tw`: newStrategy("", 1, text, listed(func(d *keyspace.Dimension) { d.Regions[2].ID = 1 })),
		`"de" in regions "eu" and`:     newStrategy("", 1, text, listed(func(d *keyspace.Dimension) { d.Regions[2].Values = []string{"de"} })),
		`default region "mars"`:        newStrategy("", 1, text, list(0, "mars")),
		`"us" of type date`:            newStrategy("", 1, []keyspace.Type{keyspace.Date}, list(0, "")),
		"it is cut at given bounds":    newStrategy("", 2, text, dimension(keyspace.Range, 0)),
		"a range has no equal":         newStrategy("", 2, []keyspace.Type{keyspace.Text, keyspace.Int8}, list(0, ""), dimension(keyspace.Range, 1)),
		"between 1 and 65536":          newStrategy("", 30000, text, list(0, ""), hash),
	} {
		_, _, err := m.CreateDistribution("app", s.key, s.layout)
		wantError(t, err, want)
	}
}

func TestLayoutAtGivenBounds(t *testing.T) {
	s := newStrategy("range", 0, []keyspace.Type{keyspace.Date, keyspace.Text}, dimension(keyspace.Range, 0, 1))
	for _, values := range [][]string{{"2024-02-01"}, {"2024-01-01"}, {"2024-02-01", "m"}, {"2024-01-01"}, {"-infinity"}} {
		b, err := s.key.ParseBound(values)
		if err != nil {
			t.Fatal(err)
		}
		s.layout.SplitAt = append(s.layout.SplitAt, b)
	}
	s.layout.SplitAt = append(s.layout.SplitAt, keyspace.After(s.layout.SplitAt[0]), keyspace.After(s.layout.SplitAt[2]))
	m, d := create(t, addNodes(t, keyspace.NewMap("test"), "a", "b"), s)
	var got []string
	for _, shard := range d.Shards {
		got = append(got, shard.Node+" "+d.FormatBound(shard.Low))
	}
	want := "a , a 2024-01-01, a 2024-02-01, b (2024-02-01, m), b after (2024-02-01, m), b 2024-02-02"
	if strings.Join(got, ", ") != want {
		t.Errorf("shards %q, want %s", got, want)
	}
	wantError(t, second(m.SplitParts(d.Shards[0].ID, 2)), "is split at a value")
	wantError(t, second(m.SplitShard(d.Shards[0].ID, []byte{0x80, 1, 2, 3, 7, 7})), "not made of whole components")
	both := keyspace.Layout{Shards: 2, SplitAt: s.layout.SplitAt}
	_, _, err := m.CreateDistribution("app", s.key, both)
	wantError(t, err, "not both")
	for _, values := range [][]string{nil, {"2024-01-01", "a", "b"}} {
		_, err := s.key.ParseBound(values)
		wantError(t, err, "has from 1 to 2")
	}
	_, err = s.key.ParseBound([]string{"soon"})
	wantError(t, err, `"soon" of type date`)
}

func TestIsolatedKeysHaveOneShard(t *testing.T) {
	s := newStrategy("hash then range", 1, []keyspace.Type{keyspace.Int8, keyspace.Date}, dimension(keyspace.Hash, 0), dimension(keyspace.Range, 1))
	m, d := create(t, addNodes(t, keyspace.NewMap("test"), "a", "b"), s)
	point := s.point(t, nil, []string{"42", "2024-01-01"})
	m, own, err := m.Isolate(d.ID, point[0])
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = m.Isolate(d.ID, point[0])
	wantError(t, err, "already have a shard of their own")
	m = must(m.SplitShard(own.ID, append(point[0], point[1]...)))(t)
	_, _, err = m.Isolate(d.ID, point[0])
	wantError(t, err, "in several shards; merge them first")
	_, _, err = m.Isolate(d.ID, point[0][:5])
	wantError(t, err, "not made of whole components")
	_, _, err = m.Isolate(d.ID, nil)
	wantError(t, err, "at least one component")
}

func TestAddToRegion(t *testing.T) {
	s := newStrategy("list", 2, []keyspace.Type{keyspace.Text, keyspace.Int8}, list(0, ""), dimension(keyspace.Hash, 1))
	m, d := create(t, regionNodes(t), s)
	m = must(m.AddToRegion(d.ID, "us", []string{"mx", "br"}))(t)
	if got := m.Distribution(d.ID); len(got.Shards) != len(d.Shards) {
		t.Errorf("%d shards, want %d", len(got.Shards), len(d.Shards))
	}
	point := func(value string) []byte {
		t.Helper()
		d := m.Distribution(d.ID)
		b, err := d.AppendComponent(nil, &d.Components()[0], []keyspace.Type{keyspace.Text}, []keyspace.Value{{Data: []byte(value), From: keyspace.Text}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	if got := m.Distribution(d.ID).Region(m.Distribution(d.ID).Find(point("mx"))); got != "us" {
		t.Errorf("mx is in %q", got)
	}
	wantError(t, second(m.AddToRegion(d.ID, "eu", []string{"mx"})), `"mx" in regions "us" and "eu"`)
	wantError(t, second(m.AddToRegion(d.ID, "moon", []string{"x"})), `no active node is in region "moon"`)
	wantError(t, second(m.AddToRegion(d.ID, "eu", nil)), "no value is given")
	wantError(t, second(m.AddToRegion(d.ID+1, "eu", []string{"x"})), "not found")
	m = must(m.AddNode(keyspace.Node{Name: "moon0", Addresses: []string{"moon0:1"}, Region: "moon", Weight: 1, State: keyspace.NodeActive}))(t)
	m = must(m.AddToRegion(d.ID, "moon", []string{"luna"}))(t)
	at := m.Distribution(d.ID).Find(point("luna"))
	if got := m.Distribution(d.ID); at != len(got.Shards)-1 || got.Region(at) != "moon" || got.Shards[at].Node != "moon0" {
		t.Errorf("luna is in shard %d of %d, of region %q on %s", at, len(got.Shards), got.Region(at), got.Shards[at].Node)
	}
	s = newStrategy("list", 2, []keyspace.Type{keyspace.Text, keyspace.Int8}, list(0, "eu"), dimension(keyspace.Hash, 1))
	m, d = create(t, regionNodes(t), s)
	wantError(t, second(m.AddToRegion(d.ID, "us", []string{"mx"})), "would have to move")
}
