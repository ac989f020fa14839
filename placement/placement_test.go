package placement

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func testNodes(n int) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{ID: i, Name: fmt.Sprintf("node%d", i+1), Weight: 1, State: Active}
	}
	return nodes
}

func testShards(n int) []Shard {
	shards := make([]Shard, n)
	for i := range shards {
		shards[i].ID = uint32(i + 1)
	}
	return shards
}

func mustPropose(t rapid.TB, cfg Config, shards []Shard, nodes []Node) Plan {
	t.Helper()
	plan, err := Propose(cfg, shards, nodes)
	if err != nil {
		t.Fatalf("Propose(%+v): %v", cfg, err)
	}
	return plan
}

// apply returns the shards as they are after a plan.
func apply(shards []Shard, nodes []Node, plan Plan) []Shard {
	after := slices.Clone(shards)
	for i, owner := range plan.Owner {
		after[i].Node = nodes[owner].Name
	}
	return after
}

// situation is a cluster in any state: unequal nodes in regions, some of which drain or join, and shards anywhere.
type situation struct {
	cfg    Config
	nodes  []Node
	shards []Shard
}

func drawSituation(t *rapid.T) situation {
	cfg := Default(rapid.SampledFrom(Algorithms).Draw(t, "algorithm"))
	cfg.Slack = rapid.SampledFrom([]float64{0, 0.05, 0.3}).Draw(t, "slack")
	cfg.VirtualNodes = rapid.IntRange(1, 40).Draw(t, "virtual nodes")
	cfg.TableSize = rapid.SampledFrom([]int{2, 13, 257, 1009}).Draw(t, "table size")
	cfg.Factor = rapid.Float64Range(1.01, 3).Draw(t, "factor")
	regions := rapid.SampledFrom([][]string{{""}, {"eu", "us"}}).Draw(t, "regions")
	var s situation
	for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
		n := Node{ID: i * rapid.SampledFrom([]int{1, 1, 7}).Draw(t, "gap"), Name: fmt.Sprintf("n%d", i), Weight: 1}
		for slices.ContainsFunc(s.nodes, func(o Node) bool { return o.ID == n.ID }) {
			n.ID++
		}
		if cfg.Algorithm != Jump {
			n.Weight = rapid.SampledFrom([]float64{1, 1, 2, 0.5}).Draw(t, "weight")
		}
		n.Region = rapid.SampledFrom(regions).Draw(t, "region")
		n.State = rapid.SampledFrom([]State{Active, Active, Active, Draining, Joining}).Draw(t, "state")
		s.nodes = append(s.nodes, n)
	}
	measures := rapid.IntRange(0, 3).Draw(t, "measures")
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	for i := range rapid.IntRange(0, 200).Draw(t, "shards") {
		shard := Shard{ID: uint32(i * 3)}
		if at := random.IntN(len(s.nodes) + 2); at < len(s.nodes) {
			shard.Node = s.nodes[at].Name
		} else if at == len(s.nodes) {
			shard.Node = "gone"
		}
		if measures&1 != 0 {
			shard.Size = int64(math.Exp(random.NormFloat64()*2) * 1000)
		}
		if measures&2 != 0 {
			shard.Load = max(0, random.NormFloat64())
		}
		shard.Region = regions[random.IntN(len(regions))]
		if random.IntN(2) == 0 {
			shard.Region = ""
		}
		s.shards = append(s.shards, shard)
	}
	s.cfg = cfg
	return s
}

// TestEveryShardOnceWithinConstraints is what all algorithms promise in every situation.
func TestEveryShardOnceWithinConstraints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		plan, err := Propose(s.cfg, s.shards, s.nodes)
		var none *NoNodeError
		if errors.As(err, &none) {
			for _, n := range s.nodes {
				if n.receives() && (none.Region == "" || n.Region == none.Region) {
					t.Fatalf("%v, but there is %+v", err, n)
				}
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(plan.Owner) != len(s.shards) {
			t.Fatalf("%d owners for %d shards", len(plan.Owner), len(s.shards))
		}
		moves := map[uint32]Move{}
		for _, m := range plan.Moves {
			if _, twice := moves[m.Shard]; twice {
				t.Fatalf("shard %d moves twice", m.Shard)
			}
			moves[m.Shard] = m
		}
		for i, shard := range s.shards {
			owner := s.nodes[plan.Owner[i]]
			if owner.State != Active {
				t.Fatalf("%+v is placed on %+v", shard, owner)
			}
			if shard.Region != "" && owner.Region != shard.Region {
				t.Fatalf("%+v is placed on %+v", shard, owner)
			}
			move, moved := moves[shard.ID]
			if moved != (shard.Node != "" && shard.Node != owner.Name) {
				t.Fatalf("%+v goes to %s, moved: %v", shard, owner.Name, moved)
			}
			if moved && (move.From != shard.Node || move.To != owner.Name || move.Size != shard.Size) {
				t.Fatalf("%+v to %s is moved by %+v", shard, owner.Name, move)
			}
		}
	})
}

// TestStable: the order of the input does not matter, and a plan that has been carried out proposes nothing more.
func TestStable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		plan, err := Propose(s.cfg, s.shards, s.nodes)
		if err != nil {
			return
		}
		owners := map[uint32]string{}
		for i, shard := range s.shards {
			owners[shard.ID] = s.nodes[plan.Owner[i]].Name
		}
		shards, nodes := slices.Clone(s.shards), slices.Clone(s.nodes)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 2))
		random.Shuffle(len(shards), func(i, j int) { shards[i], shards[j] = shards[j], shards[i] })
		random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
		again := mustPropose(t, s.cfg, shards, nodes)
		for i, shard := range shards {
			if got, want := nodes[again.Owner[i]].Name, owners[shard.ID]; got != want {
				t.Fatalf("shard %d goes to %s, in another order to %s", shard.ID, want, got)
			}
		}
		if !slices.Equal(plan.Moves, again.Moves) {
			t.Fatalf("moves differ:\n%v\n%v", plan.Moves, again.Moves)
		}
		if next := mustPropose(t, s.cfg, apply(s.shards, s.nodes, plan), s.nodes); len(next.Moves) > 0 {
			t.Fatalf("after the plan, further moves are proposed: %v", next.Moves)
		}
	})
}

func TestMaxMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSituation(t)
		full, err := Propose(s.cfg, s.shards, s.nodes)
		if err != nil {
			return
		}
		s.cfg.MaxMoves = rapid.IntRange(1, 50).Draw(t, "max moves")
		plan := mustPropose(t, s.cfg, s.shards, s.nodes)
		if want := min(len(full.Moves), s.cfg.MaxMoves); len(plan.Moves) != want || plan.Left != len(full.Moves)-want {
			t.Fatalf("%d moves and %d left of %d", len(plan.Moves), plan.Left, len(full.Moves))
		}
		forcedEnd := slices.IndexFunc(full.Moves, func(m Move) bool { return !m.Forced })
		if forcedEnd >= 0 && slices.ContainsFunc(full.Moves[forcedEnd:], func(m Move) bool { return m.Forced }) {
			t.Fatal("a forced move comes after one that is not")
		}
		for i, shard := range s.shards {
			moved := slices.ContainsFunc(plan.Moves, func(m Move) bool { return m.Shard == shard.ID })
			at := ""
			if plan.Owner[i] >= 0 {
				at = s.nodes[plan.Owner[i]].Name
			}
			if stays := shard.Node != "" && !moved; stays && at != shard.Node && shard.Node != "gone" {
				t.Fatalf("%+v does not move, but is at %q", shard, at)
			}
		}
	})
}

func TestWrongInputIsRefused(t *testing.T) {
	with := func(change func(*Config)) Config {
		cfg := Default(Balanced)
		change(&cfg)
		return cfg
	}
	two := testNodes(2)
	edit := func(change func(*Node)) []Node {
		nodes := slices.Clone(two)
		change(&nodes[1])
		return nodes
	}
	tests := []struct {
		cfg    Config
		shards []Shard
		nodes  []Node
		want   string
	}{
		{Config{}, nil, two, `there is no placement "", but balanced, ring,`},
		{with(func(c *Config) { c.Slack = -1 }), nil, two, "slack -1"},
		{with(func(c *Config) { c.MaxMoves = -1 }), nil, two, "at most -1 moves"},
		{with(func(c *Config) { c.Algorithm, c.VirtualNodes = Ring, 0 }), nil, two, "0 virtual nodes"},
		{with(func(c *Config) { c.Algorithm, c.TableSize = Maglev, 65536 }), nil, two, "table size 65536 is not a prime"},
		{with(func(c *Config) { c.Algorithm, c.Factor = Bounded, 1 }), nil, two, "factor 1 is not above 1"},
		{Default(Balanced), nil, edit(func(n *Node) { n.Name = "node1" }), `two nodes "node1"`},
		{Default(Balanced), nil, edit(func(n *Node) { n.Name = "" }), "has no name"},
		{Default(Balanced), nil, edit(func(n *Node) { n.ID = 0 }), `nodes "node1" and "node2" have the same ID 0`},
		{Default(Balanced), nil, edit(func(n *Node) { n.ID = -1 }), "negative ID"},
		{Default(Balanced), nil, edit(func(n *Node) { n.Weight = math.NaN() }), "weight NaN"},
		{Default(Balanced), nil, edit(func(n *Node) { n.State = "" }), "unknown state"},
		{Default(Jump), nil, edit(func(n *Node) { n.Weight = 2 }), "jump cannot weigh nodes"},
		{Default(Ring), nil, edit(func(n *Node) { n.Weight = 1e6 }), "virtual nodes, more than"},
		{Default(Balanced), []Shard{{ID: 7}, {ID: 7}}, two, "two shards 7"},
		{Default(Balanced), []Shard{{ID: 7, Size: -1}}, two, "size -1"},
		{Default(Balanced), []Shard{{ID: 7}}, nil, "no active node for shard 7"},
		{Default(Maglev), []Shard{{ID: 7, Region: "eu"}, {ID: 8, Region: "eu"}}, two, `no active node in region "eu" for shard 7 and 1 others`},
	}
	for _, tt := range tests {
		if _, err := Propose(tt.cfg, tt.shards, tt.nodes); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("got %v, want %s", err, tt.want)
		}
	}
}

func TestNothingToPlace(t *testing.T) {
	for _, a := range Algorithms {
		if plan := mustPropose(t, Default(a), nil, nil); len(plan.Owner)+len(plan.Moves) > 0 {
			t.Errorf("%s: %+v", a, plan)
		}
	}
}

// TestBothMeasures: a node that joins gets its part of the size and of the load, although they have nothing to do with
// each other.
func TestBothMeasures(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	shards := testShards(10_000)
	size, load := 0.0, 0.0
	for i := range shards {
		shards[i].Size, shards[i].Load = int64(1000*math.Exp(random.NormFloat64())), random.ExpFloat64()
		size, load = size+float64(shards[i].Size), load+shards[i].Load
	}
	before := mustPropose(t, Default(Balanced), shards, testNodes(9))
	after := mustPropose(t, Default(Balanced), apply(shards, testNodes(9), before), testNodes(10))
	newSize, newLoad := 0.0, 0.0
	for i, owner := range after.Owner {
		if owner == 9 {
			newSize, newLoad = newSize+float64(shards[i].Size), newLoad+shards[i].Load
		}
	}
	if s, l := 10*newSize/size, 10*newLoad/load; min(s, l) < 0.7 || max(s, l) > 1.06 {
		t.Errorf("the new node has %.2f of its part of the size and %.2f of the load", s, l)
	}
}

// TestLarge keeps many shards in reach.
func TestLarge(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	random := rand.New(rand.NewPCG(1, 1))
	shards := testShards(100_000)
	for i := range shards {
		shards[i].Size, shards[i].Load = int64(1000+random.IntN(1000)), random.Float64()
	}
	for _, a := range Algorithms {
		start := time.Now()
		before := mustPropose(t, Default(a), shards, testNodes(100))
		after := mustPropose(t, Default(a), apply(shards, testNodes(100), before), testNodes(101))
		t.Logf("%s: %v, %d moves", a, time.Since(start).Round(time.Millisecond), len(after.Moves))
		if a != Bounded && (len(after.Moves) < 300 || len(after.Moves) > 6000) {
			t.Errorf("%s makes %d moves, ideal are about 990", a, len(after.Moves))
		}
	}
}
