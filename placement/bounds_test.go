package placement

import (
	"math"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestBalanceBounds proves the bound in each algorithm's comment, for shards without a region.
func TestBalanceBounds(t *testing.T) {
	for _, a := range Algorithms {
		t.Run(string(a), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cfg := Default(a)
				cfg.Slack = rapid.SampledFrom([]float64{0, 0.05, 0.2}).Draw(t, "slack")
				cfg.Factor = rapid.Float64Range(1.02, 2).Draw(t, "factor")
				cfg.TableSize = 4099
				cfg.VirtualNodes = rapid.IntRange(16, 200).Draw(t, "virtual nodes")
				nodes := testNodes(rapid.IntRange(1, 20).Draw(t, "nodes"))
				weights := rapid.SampledFrom([][]float64{{1}, {1, 2, 0.5}}).Draw(t, "weights")
				for i := range nodes {
					if a != Jump {
						nodes[i].Weight = weights[i%len(weights)]
					}
				}
				shards := testShards(rapid.IntRange(1, 1500).Draw(t, "shards"))
				measures := 0
				if a == Balanced || a == Bounded {
					measures = rapid.IntRange(0, 3).Draw(t, "measures")
				}
				random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
				for i := range shards {
					if measures&1 != 0 {
						shards[i].Size = int64(math.Exp(random.NormFloat64()) * 1000)
					}
					if measures&2 != 0 {
						shards[i].Load = random.ExpFloat64()
					}
					if random.IntN(3) > 0 { // an unbalanced start; only Balanced looks at it
						shards[i].Node = nodes[random.IntN(1+len(nodes)/2)].Name
					}
				}
				checkBound(t, cfg, shards, nodes, mustPropose(t, cfg, shards, nodes))
			})
		})
	}
}

func checkBound(t *rapid.T, cfg Config, shards []Shard, nodes []Node, plan Plan) {
	p, err := newProblem(cfg, shards, nodes)
	if err != nil {
		t.Fatal(err)
	}
	floor := 0.0
	if cfg.Algorithm == Balanced {
		floor = emptyShard
	}
	w := newWeighing(p, floor)
	largest, smallestShare := 0.0, 1.0
	for i, owner := range plan.Owner {
		w.add(int32(i), owner)
		largest = max(largest, w.largest(int32(i)))
	}
	for _, share := range w.share {
		smallestShare = min(smallestShare, share)
	}
	for node := range nodes {
		f, level := w.share[node], w.level(int32(node))
		s := float64(len(shards))
		bound := 0.0
		switch cfg.Algorithm {
		case Balanced:
			bound = max(1+cfg.Slack, float64(len(w.cost))+largest/smallestShare)
		case Bounded:
			bound = max(cfg.Factor, float64(len(w.cost)-1)*2) + largest/f
		case Ring:
			bound = 1 + 8*math.Sqrt(1/(float64(cfg.VirtualNodes)*nodes[node].Weight)+1/(f*s)) + 8/(f*s)
		case Maglev:
			entries := float64(cfg.TableSize)
			table := (f*entries + f*float64(len(nodes)) + 1) / entries
			bound = (table*s + 8*math.Sqrt(table*s) + 8) / (f * s)
		default:
			bound = (f*s + 8*math.Sqrt(f*s) + 8) / (f * s)
		}
		if level > bound*(1+1e-9) {
			t.Fatalf("%s: %s of %d, with %d shards, is at %.4f of its fair part, the bound is %.4f", cfg.Algorithm, nodes[node].Name, len(nodes), len(shards), level, bound)
		}
	}
}

// TestBoundedKeepsItsFactor: equal shards never exceed the factor where it leaves room for whole shards.
func TestBoundedKeepsItsFactor(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := Default(Bounded)
		cfg.Factor = rapid.Float64Range(1.05, 2).Draw(t, "factor")
		n := rapid.IntRange(1, 30).Draw(t, "nodes")
		count := n * rapid.IntRange(40, 100).Draw(t, "shards per node")
		plan := mustPropose(t, cfg, testShards(count), testNodes(n))
		held := make([]int, n)
		for _, owner := range plan.Owner {
			held[owner]++
		}
		for _, h := range held {
			if ratio := float64(h) * float64(n) / float64(count); ratio > cfg.Factor*(1+1e-9) {
				t.Fatalf("%v of the mean, the factor is %v", ratio, cfg.Factor)
			}
		}
	})
}

// TestFewMoves compares the moved part with the least that evenness needs, when one node joins or leaves.
func TestFewMoves(t *testing.T) {
	for _, a := range Algorithms {
		t.Run(string(a), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				cfg := Default(a)
				cfg.TableSize = 16381
				n := rapid.IntRange(2, 12).Draw(t, "nodes")
				shards := testShards(n * rapid.IntRange(100, 200).Draw(t, "shards per node"))
				all := testNodes(n + 1)
				few, many := all[:n], all
				start := apply(shards, few, mustPropose(t, cfg, shards, few))
				joins := mustPropose(t, cfg, start, many)
				ideal := float64(len(shards)) / float64(n+1)
				checkMoves(t, a, "joins", len(joins.Moves), ideal)
				for _, m := range joins.Moves {
					if onlyToNew(a) && m.To != all[n].Name {
						t.Fatalf("a node joins, and shard %d moves between others", m.Shard)
					}
				}

				// Any node leaves, not only the last.
				leaver := rapid.IntRange(0, n).Draw(t, "leaver")
				full := apply(start, many, joins)
				left := testNodes(n + 1)
				left[leaver].State = Draining
				leaves := mustPropose(t, cfg, full, left)
				checkMoves(t, a, "leaves", len(leaves.Moves), ideal)
				for _, m := range leaves.Moves {
					if onlyToNew(a) && m.From != all[leaver].Name {
						t.Fatalf("a node leaves, and shard %d moves between others", m.Shard)
					}
				}
			})
		})
	}
}

func onlyToNew(a Algorithm) bool { return a != Maglev && a != Bounded }

func checkMoves(t *rapid.T, a Algorithm, what string, moves int, ideal float64) {
	slack := 8 * math.Sqrt(ideal) // chance
	switch a {
	case Balanced:
		slack = 0.05*ideal + 1
	case Ring:
		slack += 8 * ideal / math.Sqrt(128)
	case Maglev:
		slack += 0.5 * ideal // entries that change between others
	case Bounded:
		slack += 2.5 * ideal // what passes on moves with it
	}
	if float64(moves) > ideal+slack {
		t.Fatalf("a node %s: %d moves, ideal are %.0f", what, moves, ideal)
	}
}

// TestMaglevTable has the facts of the published algorithm for 1,000 nodes: entries differ by at most one between nodes,
// and when a node leaves, hardly more entries change than its own; the fewer, the larger the table.
func TestMaglevTable(t *testing.T) {
	extra := map[int]float64{}
	for size, limit := range map[int]float64{65537: 1.0071, 655373: 1.0010} {
		nodes := testNodes(1000)
		before, err := MaglevTable(nodes, size)
		if err != nil {
			t.Fatal(err)
		}
		held := make([]int, len(nodes))
		for _, node := range before {
			held[node]++
		}
		least, most := held[0], held[0]
		for _, h := range held {
			least, most = min(least, h), max(most, h)
		}
		ratio := float64(most) * 1000 / float64(size)
		if most-least > 1 || ratio > limit {
			t.Errorf("table of %d: nodes have %d to %d entries, %.4f of the mean", size, least, most, ratio)
		}
		nodes[500].State = Draining
		after, err := MaglevTable(nodes, size)
		if err != nil {
			t.Fatal(err)
		}
		changed := 0
		for i := range before {
			if before[i] != after[i] && before[i] != 500 {
				changed++
			}
		}
		extra[size] = float64(changed) / float64(size)
		t.Logf("table of %d: most/mean %.4f, %.3f%% of the entries change between nodes that stay", size, ratio, 100*extra[size])
	}
	if extra[65537] > 0.05 || extra[655373] > extra[65537] {
		t.Errorf("entries that change between nodes that stay: %v", extra)
	}
}

func TestRingSpread(t *testing.T) {
	for _, v := range []int{16, 128, 1024} {
		const n, shards = 100, 1_000_000
		cfg := Default(Ring)
		cfg.VirtualNodes = v
		plan := mustPropose(t, cfg, testShards(shards), testNodes(n))
		held := make([]float64, n)
		for _, owner := range plan.Owner {
			held[owner] += n / float64(shards)
		}
		sum := 0.0
		for _, h := range held {
			sum += (h - 1) * (h - 1)
		}
		spread, known := math.Sqrt(sum/n), math.Sqrt(1/float64(v)+float64(n)/shards)
		t.Logf("%d virtual nodes: standard deviation %.4f of the mean, known %.4f", v, spread, known)
		if spread < 0.7*known || spread > 1.4*known {
			t.Errorf("%d virtual nodes: standard deviation %.4f, want about %.4f", v, spread, known)
		}
	}
}

// TestWeights: a node with twice the weight gets twice as much.
func TestWeights(t *testing.T) {
	nodes := testNodes(4)
	nodes[0].Weight, nodes[1].Weight = 2, 0
	for _, a := range []Algorithm{Balanced, Ring, Rendezvous, Maglev, Bounded} {
		cfg := Default(a)
		cfg.VirtualNodes = 4096
		cfg.Factor = 1.05
		plan := mustPropose(t, cfg, testShards(40000), nodes)
		held := make([]float64, len(nodes))
		for _, owner := range plan.Owner {
			held[owner]++
		}
		for i, want := range []float64{20000, 0, 10000, 10000} {
			if math.Abs(held[i]-want) > 0.06*want {
				t.Errorf("%s: %s holds %v, want about %v", a, nodes[i].Name, held[i], want)
			}
		}
	}
}
