package keyspace_test

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/keyspace"
)

func addNodes(tb testing.TB, m *keyspace.Map, names ...string) *keyspace.Map {
	tb.Helper()
	for _, name := range names {
		var err error
		if m, err = m.AddNode(keyspace.Node{Name: name, Addresses: []string{name + ":5432"}, State: keyspace.NodeActive}); err != nil {
			tb.Fatal(err)
		}
	}
	return m
}

func bytesOf(point uint64) []byte { return binary.BigEndian.AppendUint64(nil, point) }

// pointOf reads a bound without the package's own code.
func pointOf(b []byte) uint64 {
	var whole [8]byte
	copy(whole[:], b)
	return binary.BigEndian.Uint64(whole[:])
}

// editor applies random edits and holds what must be true of every map against each.
type editor struct {
	m      *keyspace.Map
	points []uint64 // watched points: random ones and the edges of every interval made
}

func (e *editor) Check(t *rapid.T) {
	if err := e.m.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, d := range e.m.Distributions {
		for _, p := range e.points {
			var holders []uint32
			for i, s := range d.Shards {
				_, high := d.Interval(i)
				if pointOf(s.Low) <= p && (high == nil || p < pointOf(high)) {
					holders = append(holders, s.ID)
				}
			}
			if found := d.FindHash(p); len(holders) != 1 || found.ID != holders[0] {
				t.Fatalf("point %x lies in shards %v, found in %d", p, holders, found.ID)
			}
		}
	}
	text, err := json.Marshal(e.m)
	if err != nil {
		t.Fatal(err)
	}
	var again keyspace.Map
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(e.m, &again) {
		t.Fatalf("JSON changed the map from\n%+v to\n%+v", e.m, &again)
	}
}

// owners lists the node of every watched point.
func (e *editor) owners(m *keyspace.Map) []string {
	var owners []string
	for _, d := range m.Distributions {
		for _, p := range e.points {
			owners = append(owners, d.FindHash(p).Node)
		}
	}
	return owners
}

// apply takes an edit that must succeed and must leave the old map alone; it returns the old owners.
func (e *editor) apply(t *rapid.T, edit func() (*keyspace.Map, error)) (before []string) {
	old, err := json.Marshal(e.m)
	if err != nil {
		t.Fatal(err)
	}
	before = e.owners(e.m)
	next, err := edit()
	if err != nil {
		t.Fatal(err)
	}
	if now, err := json.Marshal(e.m); err != nil || string(now) != string(old) {
		t.Fatalf("the edit changed the map it started from, error %v", err)
	}
	if next.Epoch != e.m.Epoch+1 {
		t.Fatalf("epoch %d follows %d", next.Epoch, e.m.Epoch)
	}
	e.m = next
	return before
}

func (e *editor) distribution(t *rapid.T) *keyspace.Distribution {
	if len(e.m.Distributions) == 0 {
		t.Skip("no distribution")
	}
	return rapid.SampledFrom(e.m.Distributions).Draw(t, "distribution")
}

func (e *editor) sameOwners(t *rapid.T, before []string) {
	if !slices.Equal(before, e.owners(e.m)) {
		t.Fatal("the edit moved rows")
	}
}

func (e *editor) AddNode(t *rapid.T) {
	if len(e.m.Nodes) > 6 {
		t.Skip("enough nodes")
	}
	name := fmt.Sprintf("n%d", rapid.IntRange(0, 1000).Draw(t, "node"))
	if _, err := e.m.Node(name); err == nil {
		t.Skip("taken")
	}
	state := rapid.SampledFrom([]keyspace.NodeState{"", keyspace.NodeActive, keyspace.NodeDraining}).Draw(t, "state")
	e.apply(t, func() (*keyspace.Map, error) {
		return e.m.AddNode(keyspace.Node{Name: name, Addresses: []string{"h:1"}, State: state})
	})
}

func (e *editor) CreateDistribution(t *rapid.T) {
	if len(e.m.Distributions) > 2 {
		t.Skip("enough distributions")
	}
	count := rapid.IntRange(1, 40).Draw(t, "count")
	e.apply(t, func() (*keyspace.Map, error) {
		m, d, err := e.m.CreateDistribution("app", keyspace.HashKey(keyspace.Int4), keyspace.Layout{Shards: count})
		if err == nil && len(d.Shards) != count {
			t.Fatalf("%d shards, want %d", len(d.Shards), count)
		}
		return m, err
	})
}

func (e *editor) DropDistribution(t *rapid.T) {
	d := e.distribution(t)
	e.apply(t, func() (*keyspace.Map, error) { return e.m.DropDistribution(d.ID) })
}

func (e *editor) Split(t *rapid.T) {
	d := e.distribution(t)
	i := rapid.IntRange(0, len(d.Shards)-1).Draw(t, "shard")
	low, high := d.Interval(i)
	first, last := pointOf(low), uint64(math.MaxUint64)
	if high != nil {
		last = pointOf(high) - 1
	}
	if first == last {
		t.Skip("one point cannot be split")
	}
	at := rapid.Uint64Range(first+1, last).Draw(t, "at")
	e.points = append(e.points, at-1, at)
	before := e.apply(t, func() (*keyspace.Map, error) { return e.m.SplitShard(d.Shards[i].ID, bytesOf(at)) })
	e.sameOwners(t, before)
	if got := e.m.Distribution(d.ID); len(got.Shards) != len(d.Shards)+1 || pointOf(got.FindHash(at).Low) != at {
		t.Fatalf("no shard begins at %x", at)
	}
}

func (e *editor) Merge(t *rapid.T) {
	d := e.distribution(t)
	if len(d.Shards) < 2 {
		t.Skip("one shard")
	}
	i := rapid.IntRange(0, len(d.Shards)-2).Draw(t, "lower")
	a, b := d.Shards[i], d.Shards[i+1]
	if a.Node != b.Node {
		if _, err := e.m.MergeShards(a.ID, b.ID); err == nil {
			t.Fatal("shards of two nodes were merged")
		}
		return
	}
	first, second := a.ID, b.ID
	if rapid.Bool().Draw(t, "reversed") {
		first, second = second, first
	}
	before := e.apply(t, func() (*keyspace.Map, error) { return e.m.MergeShards(first, second) })
	e.sameOwners(t, before)
	if got := e.m.Distribution(d.ID).FindHash(pointOf(b.Low)); got.ID != a.ID {
		t.Fatalf("the merged shard is %d, want %d", got.ID, a.ID)
	}
}

func (e *editor) Move(t *rapid.T) {
	d := e.distribution(t)
	i := rapid.IntRange(0, len(d.Shards)-1).Draw(t, "shard")
	to := rapid.SampledFrom(e.m.Nodes).Draw(t, "to")
	if to.State != keyspace.NodeActive || to.Name == d.Shards[i].Node {
		if _, err := e.m.MoveShard(d.Shards[i].ID, to.Name); err == nil {
			t.Fatalf("a shard moved from %s to %s, which is %s", d.Shards[i].Node, to.Name, to.State)
		}
		return
	}
	want := e.apply(t, func() (*keyspace.Map, error) { return e.m.MoveShard(d.Shards[i].ID, to.Name) })
	low, high := d.Interval(i)
	n := 0
	for _, each := range e.m.Distributions {
		for _, p := range e.points {
			if each.ID == d.ID && p >= pointOf(low) && (high == nil || p < pointOf(high)) {
				want[n] = to.Name
			}
			n++
		}
	}
	e.sameOwners(t, want)
}

func (e *editor) Isolate(t *rapid.T) {
	d := e.distribution(t)
	p := rapid.OneOf(rapid.Uint64(), rapid.SampledFrom(e.points)).Draw(t, "point")
	e.points = append(e.points, p-1, p, p+1)
	i := slices.IndexFunc(d.Shards, func(s keyspace.Shard) bool { return s.ID == d.FindHash(p).ID })
	low, high := d.Interval(i)
	if pointOf(low) == p && (high == nil && p == math.MaxUint64 || high != nil && pointOf(high) == p+1) {
		if _, _, err := e.m.Isolate(d.ID, bytesOf(p)); err == nil {
			t.Fatal("an isolated point was isolated again")
		}
		return
	}
	var own keyspace.Shard
	before := e.apply(t, func() (m *keyspace.Map, err error) {
		m, own, err = e.m.Isolate(d.ID, bytesOf(p))
		return m, err
	})
	e.sameOwners(t, before)
	got := e.m.Distribution(d.ID)
	if s := got.FindHash(p); s.ID != own.ID || pointOf(s.Low) != p {
		t.Fatalf("point %x is in shard %d from %x, not in its own, %d", p, s.ID, s.Low, own.ID)
	}
	if p != math.MaxUint64 && got.FindHash(p+1).ID == own.ID || p != 0 && got.FindHash(p-1).ID == own.ID {
		t.Fatalf("the shard of point %x holds its neighbour", p)
	}
}

func (e *editor) SchemaAndFence(t *rapid.T) {
	e.apply(t, func() (*keyspace.Map, error) { return e.m.BumpSchema("app") })
	f := keyspace.Fence{ID: fmt.Sprint(e.m.Epoch), Database: "app", Tables: []uint32{1, 2}, Router: "r1"}
	e.apply(t, func() (*keyspace.Map, error) { return e.m.AddFence(f) })
	if rapid.Bool().Draw(t, "remove") {
		id := rapid.SampledFrom(e.m.Fences).Draw(t, "fence").ID
		e.apply(t, func() (*keyspace.Map, error) { return e.m.RemoveFence(id) })
	}
}

func TestEditsKeepTheSpaceCovered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := &editor{points: []uint64{0, 1, math.MaxUint64 - 1, math.MaxUint64}}
		for range 20 {
			e.points = append(e.points, rapid.Uint64().Draw(t, "watched"))
		}
		e.m = keyspace.NewMap("test")
		for _, name := range []string{"a", "b", "c"} {
			e.apply(t, func() (*keyspace.Map, error) {
				return e.m.AddNode(keyspace.Node{Name: name, Addresses: []string{"h:1"}, State: keyspace.NodeActive})
			})
		}
		e.CreateDistribution(t)
		t.Repeat(rapid.StateMachineActions(e))
	})
}

func TestNodeIDsAreNeverUsedAgain(t *testing.T) {
	m := addNodes(t, keyspace.NewMap("test"), "z", "a", "m")
	if m.Home != "z" {
		t.Errorf("home is %q", m.Home)
	}
	for name, want := range map[string]int{"z": 0, "a": 1, "m": 2} {
		if n, err := m.Node(name); err != nil || n.ID != want || n.Weight != 1 {
			t.Errorf("node %q is %+v, error %v", name, n, err)
		}
	}
	last := *m
	last.LastNode = keyspace.MaxNodeID
	if _, err := last.AddNode(keyspace.Node{Name: "more", Addresses: []string{"h:1"}}); err == nil {
		t.Error("a node got an id for which sequences have no block")
	}
}

func TestCreateDistributionPlacesRuns(t *testing.T) {
	m := addNodes(t, keyspace.NewMap("test"), "a", "b", "c")
	for _, count := range []int{1, 2, 3, 4, 7, 16, 32, 100, 1000, keyspace.MaxShards} {
		_, d, err := m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: count})
		if err != nil {
			t.Fatal(err)
		}
		perNode, changes := map[string]int{}, 0
		var least, most uint64 = math.MaxUint64, 0
		for i, s := range d.Shards {
			perNode[s.Node]++
			if i > 0 {
				width := pointOf(s.Low) - pointOf(d.Shards[i-1].Low)
				least, most = min(least, width), max(most, width)
				if s.Node != d.Shards[i-1].Node {
					changes++
				}
			}
		}
		if count > 1 && most-least > 1 {
			t.Errorf("%d shards: intervals of %d and %d points", count, least, most)
		}
		if want := min(count, 3); changes != want-1 || len(perNode) != want {
			t.Errorf("%d shards: %d nodes, owner changes %d times", count, len(perNode), changes)
		}
		for node, n := range perNode {
			if n < count/3 || n > count/3+1 {
				t.Errorf("%d shards: node %s has %d", count, node, n)
			}
		}
	}
}

func TestCreateDistributionFollowsWeightAndLoad(t *testing.T) {
	m := addNodes(t, keyspace.NewMap("test"), "a")
	for _, n := range []keyspace.Node{
		{Name: "b", Addresses: []string{"h:1"}, Weight: 3, State: keyspace.NodeActive},
		{Name: "c", Addresses: []string{"h:1"}, Weight: 9, State: keyspace.NodeDraining},
		{Name: "d", Addresses: []string{"h:1"}, Weight: 9},
	} {
		var err error
		if m, err = m.AddNode(n); err != nil {
			t.Fatal(err)
		}
	}
	m, d, err := m.CreateDistribution("app", keyspace.HashKey(keyspace.Varchar), keyspace.Layout{Shards: 16})
	if err != nil {
		t.Fatal(err)
	}
	for node, want := range map[string]int{"a": 4, "b": 12, "c": 0, "d": 0} {
		if got := m.ShardsOf(node); got != want {
			t.Errorf("node %s has %d shards, want %d", node, got, want)
		}
	}
	if d.Types[0] != keyspace.Text {
		t.Errorf("key type %s is not canonical", d.Types[0])
	}
	m = must(m.SetNodeState("c", keyspace.NodeActive))(t)
	_, d, err = m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: 1})
	if err != nil || d.Shards[0].Node != "c" {
		t.Errorf("a single shard is on %q, not on the empty node; error %v", d.Shards[0].Node, err)
	}
}

func must(m *keyspace.Map, err error) func(testing.TB) *keyspace.Map {
	return func(tb testing.TB) *keyspace.Map {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
		return m
	}
}

func TestRefusedEdits(t *testing.T) {
	m := addNodes(t, keyspace.NewMap("test"), "a", "b")
	m = must(m.AddNode(keyspace.Node{Name: "new", Addresses: []string{"h:1"}}))(t)
	m = must(m.AddFence(keyspace.Fence{ID: "f", Database: "app"}))(t)
	m, d, err := m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: 4})
	if err != nil {
		t.Fatal(err)
	}
	create := func(database string, key keyspace.Key, n int) error {
		_, _, err := m.CreateDistribution(database, key, keyspace.Layout{Shards: n})
		return err
	}
	id := func(i int) uint32 { return d.Shards[i].ID }
	hash := keyspace.HashKey(keyspace.Int8)
	_, _, isolate := m.Isolate(99, bytesOf(1))
	_, _, empty := keyspace.NewMap("test").CreateDistribution("app", hash, keyspace.Layout{Shards: 4})
	for _, c := range []struct {
		err  error
		want string
	}{
		{second(m.AddNode(keyspace.Node{Name: "a", Addresses: []string{"h:1"}})), `already a node "a"`},
		{second(m.AddNode(keyspace.Node{Addresses: []string{"h:1"}})), "needs a name"},
		{second(m.AddNode(keyspace.Node{Name: "x"})), "needs an address"},
		{second(m.AddNode(keyspace.Node{Name: "x", Addresses: []string{"h:1"}, Weight: math.NaN()})), "positive number"},
		{second(m.SetNodeState("a", "asleep")), `state "asleep"`},
		{second(m.SetNodeState("a", keyspace.NodeJoining)), "has joined"},
		{second(m.SetNodeState("x", keyspace.NodeActive)), "not found"},
		{second(m.SetNodeAddresses("a", nil)), "needs an address"},
		{create("app", hash, 0), "between 1 and"},
		{create("app", hash, keyspace.MaxShards+1), "between 1 and"},
		{create("app", keyspace.HashKey(), 4), "0 key columns"},
		{create("app", keyspace.HashKey(0), 4), "no known type"},
		{create("app", keyspace.Key{Dimensions: []keyspace.Dimension{{Method: "circle"}}}, 4), `strategy "circle"`},
		{create("", hash, 4), "names no database"},
		{empty, "no node is active"},
		{second(m.SplitShard(99, []byte{1})), "not found"},
		{second(m.SplitShard(id(0), nil)), "not inside shard"},
		{second(m.SplitShard(id(0), d.Shards[1].Low)), "not inside shard"},
		{second(m.SplitShard(id(3), []byte{1})), "not inside shard"},
		{second(m.SplitShard(id(0), make([]byte, 9))), "has 8 bytes"},
		{second(m.MergeShards(id(0), id(2))), "not neighbours"},
		{second(m.MergeShards(id(0), id(0))), "not neighbours"},
		{second(m.MergeShards(id(1), id(2))), "move one of them first"},
		{second(m.MergeShards(id(1), 99)), "not found"},
		{second(m.MoveShard(id(0), "a")), `already on node "a"`},
		{second(m.MoveShard(id(0), "new")), "is joining"},
		{second(m.MoveShard(id(0), "x")), "not found"},
		{isolate, "not found"},
		{second(m.DropDistribution(99)), "not found"},
		{second(m.BumpSchema("")), "none is named"},
		{second(m.AddFence(keyspace.Fence{ID: "f", Database: "app"})), `already a fence "f"`},
		{second(m.AddFence(keyspace.Fence{ID: "g"})), "needs an id and a database"},
		{second(m.RemoveFence("g")), "not found"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %q, want one with %q", c.err, c.want)
		}
		if c.want == "not found" && !errors.Is(c.err, keyspace.ErrNotFound) {
			t.Errorf("error %q is not ErrNotFound", c.err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// Each change breaks a valid map in one way.
func TestValidate(t *testing.T) {
	for name, damage := range map[string]func(m *keyspace.Map){
		"names no cluster":          func(m *keyspace.Map) { m.Cluster = "" },
		"has no epoch":              func(m *keyspace.Map) { m.Epoch = 0 },
		"home node":                 func(m *keyspace.Map) { m.Home = "x" },
		"in order of names":         func(m *keyspace.Map) { slices.Reverse(m.Nodes) },
		"shares id 0":               func(m *keyspace.Map) { m.Nodes[1].ID = 0 },
		"higher than the last one":  func(m *keyspace.Map) { m.LastNode = 0 },
		"state \"\"":                func(m *keyspace.Map) { m.Nodes[0].State = "" },
		"still joining":             func(m *keyspace.Map) { m.Nodes[0].State = keyspace.NodeJoining },
		"a distribution is null":    func(m *keyspace.Map) { m.Distributions[0] = nil },
		"distribution 1 is there":   func(m *keyspace.Map) { m.Distributions[1] = m.Distributions[0] },
		"outside the ids given":     func(m *keyspace.Map) { m.LastDistribution = 1 },
		"which stands for bigint":   func(m *keyspace.Map) { m.Distributions[0].Types[0] = keyspace.Int4 },
		"no shard at the start":     func(m *keyspace.Map) { m.Distributions[0].Shards = nil },
		"at the start of its space": func(m *keyspace.Map) { m.Distributions[0].Shards[0].Low = []byte{1} },
		"shard 1 is there twice":    func(m *keyspace.Map) { m.Distributions[1].Shards[0].ID = 1 },
		"1 to 3":                    func(m *keyspace.Map) { m.LastShard = 3 },
		"not in the map":            func(m *keyspace.Map) { m.Distributions[0].Shards[0].Node = "x" },
		"a hash point has 8 bytes":  func(m *keyspace.Map) { m.Distributions[0].Shards[1].Low = make([]byte, 9) },
		"which is written 01":       func(m *keyspace.Map) { m.Distributions[0].Shards[1].Low = []byte{1, 0} },
		"not after the shard":       func(m *keyspace.Map) { m.Distributions[0].Shards[1].Low = []byte{0xf0} },
		"needs an id":               func(m *keyspace.Map) { m.Fences[0].ID = "" },
		"fence \"f\" is there":      func(m *keyspace.Map) { m.Fences = append(m.Fences, m.Fences[0]) },
	} {
		m := addNodes(t, keyspace.NewMap("test"), "a", "b")
		m = must(m.AddFence(keyspace.Fence{ID: "f", Database: "app"}))(t)
		for range 2 {
			var err error
			if m, _, err = m.CreateDistribution("app", keyspace.HashKey(keyspace.Int8), keyspace.Layout{Shards: 3}); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Validate(); err != nil {
			t.Fatal(err)
		}
		damage(m)
		if err := m.Validate(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want one with %q", err, name)
		}
	}
}
