package simulate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"github.com/pgshoal/pgshoal/placement"
)

// question is the usual one, with what the test changes.
func question(change func(*Config)) Config {
	cfg := Config{
		Strategies: []Strategy{Hash}, Placements: []placement.Algorithm{placement.Balanced},
		Placement: placement.Default(placement.Balanced), Nodes: 3, To: 4, Keys: 200_000,
		Dist: Dist{Kind: uniform}, RowBytes: 100, Writes: 0.2, RangeWidth: 0.001, Seed: 1,
	}
	change(&cfg)
	return cfg
}

func run(t testing.TB, change func(*Config)) *Report {
	t.Helper()
	report, err := Run(context.Background(), question(change))
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// one runs a single strategy and placement.
func one(t testing.TB, s Strategy, a placement.Algorithm, change func(*Config)) Result {
	t.Helper()
	return run(t, func(cfg *Config) {
		cfg.Strategies, cfg.Placements = []Strategy{s}, []placement.Algorithm{a}
		if s == Mod {
			cfg.Placements = nil
		}
		change(cfg)
	}).Results[0]
}

func wantNear(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s: got %.4f, want %.4f with a tolerance of %.4f", what, got, want, tolerance)
	}
}

func TestModMovesAlmostEverything(t *testing.T) {
	for _, n := range []int{1, 3, 9, 49} {
		got := one(t, Mod, "", func(cfg *Config) { cfg.Nodes, cfg.To = n, n+1 })
		wantNear(t, fmt.Sprintf("mod from %d to %d", n, n+1), got.MovedShare, float64(n)/float64(n+1), 0.005)
	}
	// Twice as many nodes move half, the way back as well.
	wantNear(t, "mod from 4 to 8", one(t, Mod, "", func(cfg *Config) { cfg.Nodes, cfg.To = 4, 8 }).MovedShare, 0.5, 0.005)
	wantNear(t, "mod from 8 to 4", one(t, Mod, "", func(cfg *Config) { cfg.Nodes, cfg.To = 8, 4 }).MovedShare, 0.5, 0.005)
}

func TestOthersMoveTheMinimum(t *testing.T) {
	tolerance := map[placement.Algorithm]float64{ // relative
		placement.Balanced:   0.15, // it stops within its slack
		placement.Rendezvous: 0.15,
		placement.Jump:       0.15,
		placement.Maglev:     0.25,
		placement.Ring:       0.3, // 1/sqrt(128) is 9%, for one node
	}
	for _, change := range [][2]int{{3, 4}, {4, 3}, {9, 10}, {10, 9}} {
		report := run(t, func(cfg *Config) {
			cfg.Nodes, cfg.To, cfg.Keys, cfg.Shards = change[0], change[1], 400_000, 4000
			cfg.Placements = slices.Sorted(maps.Keys(tolerance))
		})
		for _, r := range report.Results {
			wantNear(t, fmt.Sprintf("%s from %d to %d", r.Name(), change[0], change[1]), r.MovedShare, report.Minimum, tolerance[r.Placement]*report.Minimum)
		}
	}
}

func TestRingSpreadsWithVirtualNodes(t *testing.T) {
	for _, v := range []int{16, 128, 1024} {
		got := one(t, Hash, placement.Ring, func(cfg *Config) {
			cfg.Nodes, cfg.To, cfg.Shards, cfg.Keys, cfg.Placement.VirtualNodes = 100, 100, 100_000, 400_000, v
		})
		known := math.Sqrt(1/float64(v) + 100.0/100_000 + 100.0/400_000*math.E)
		wantNear(t, fmt.Sprintf("standard deviation with %d virtual nodes", v), got.After.StdDev, known, 0.35*known)
	}
}

func TestBoundedStaysUnderItsFactor(t *testing.T) {
	for _, factor := range []float64{1.05, 1.25, 1.5} {
		for _, v := range []int{1, 8, 128} {
			got := one(t, Hash, placement.Bounded, func(cfg *Config) {
				cfg.Nodes, cfg.To, cfg.Placement.Factor, cfg.Placement.VirtualNodes = 20, 21, factor, v
			})
			if got.After.MaxMean > factor || got.Before.MaxMean > factor {
				t.Errorf("factor %v with %d virtual nodes: max/mean is %v before and %v after", factor, v, got.Before.MaxMean, got.After.MaxMean)
			}
		}
	}
	// The bound is what does it: the ring alone is above.
	ring := one(t, Hash, placement.Ring, func(cfg *Config) { cfg.Nodes, cfg.To, cfg.Placement.VirtualNodes = 20, 21, 8 })
	if ring.After.MaxMean < 1.5 {
		t.Errorf("a ring with 8 virtual nodes has max/mean %v", ring.After.MaxMean)
	}
}

// TestMaglevTables has the sizes of the Maglev paper: evenness to 1% where entries are 65 for each node, to 0.15% with ten
// times as many; and what changes beyond the minimum is under one percent, less in the larger table.
func TestMaglevTables(t *testing.T) {
	small := one(t, Hash, placement.Maglev, func(cfg *Config) { cfg.Nodes, cfg.To, cfg.Shards, cfg.Placement.TableSize = 1000, 999, 1000, 65537 }).Table
	large := one(t, Hash, placement.Maglev, func(cfg *Config) { cfg.Nodes, cfg.To, cfg.Shards, cfg.Placement.TableSize = 1000, 999, 1000, 655373 }).Table
	if small.MaxMean > 1.0101 || large.MaxMean > 1.0016 {
		t.Errorf("max/mean %v and %v", small.MaxMean, large.MaxMean)
	}
	if small.Changed < 0.001 || small.Changed > 0.01 || large.Changed < 0.001 || large.Changed > small.Changed {
		t.Errorf("%v and %v of the entries change when 1 of 1000 nodes leaves", small.Changed, large.Changed)
	}
}

// TestRangeQueries: only range knows where neighbours are.
func TestRangeQueries(t *testing.T) {
	few := func(cfg *Config) { cfg.Nodes, cfg.To, cfg.Shards, cfg.RangeWidth = 10, 10, 100, 0.001 }
	ranged := one(t, Range, placement.Balanced, few)
	wantNear(t, "fan-out of range", ranged.FanOut, 1.1, 0.05) // one shard, and each tenth query touches a second
	if hashed := one(t, Hash, placement.Balanced, few); hashed.FanOut != 10 {
		t.Errorf("fan-out of hash: %v", hashed.FanOut)
	}
	wide := one(t, Range, placement.Balanced, func(cfg *Config) { few(cfg); cfg.RangeWidth = 1 })
	if wide.FanOut != 10 {
		t.Errorf("fan-out of a query for everything: %v", wide.FanOut)
	}
}

// TestNewestKeysAreHotInRanges: inserts of growing keys all go to the last shard of range, and anywhere with hash.
func TestNewestKeysAreHotInRanges(t *testing.T) {
	for _, kind := range []kind{sequential, timestamps} {
		growing := func(cfg *Config) { cfg.Nodes, cfg.To, cfg.Dist.Kind, cfg.Writes = 10, 10, kind, 0.5 }
		if ranged := one(t, Range, placement.Balanced, growing); ranged.After.HottestShare < 0.5 {
			t.Errorf("%s: the hottest node of range gets %v of the load", kind, ranged.After.HottestShare)
		}
		if hashed := one(t, Hash, placement.Balanced, growing); hashed.After.HottestShare > 0.12 {
			t.Errorf("%s: the hottest node of hash gets %v of the load", kind, hashed.After.HottestShare)
		}
	}
}

// TestPopularKeyCannotBeSpread: with Zipf's law of exponent 1.5 the first key alone has 1/zeta(1.5) of the rows.
func TestPopularKeyCannotBeSpread(t *testing.T) {
	const first = 1 / 2.612
	for _, s := range []Strategy{Hash, Range, Directory} {
		got := one(t, s, placement.Balanced, func(cfg *Config) { cfg.Nodes, cfg.To, cfg.Dist = 10, 10, Dist{Kind: zipfian, Exponent: 1.5} })
		wantNear(t, string(s)+": hottest node", got.After.HottestShare, first, 0.02)
	}
	popular := one(t, Hash, placement.Ring, func(cfg *Config) { cfg.Nodes, cfg.To, cfg.Popularity = 10, 10, 1.5 })
	wantNear(t, "popularity: hottest node", popular.After.HottestShare, first+0.1*(1-first), 0.08)
	if popular.After.MaxMean > 1.4 {
		t.Errorf("popular keys have no more bytes, but max/mean is %v", popular.After.MaxMean)
	}
}

// TestListKeepsRegions: rows stay in their region, whatever that does to evenness.
func TestListKeepsRegions(t *testing.T) {
	got := one(t, List, placement.Balanced, func(cfg *Config) { cfg.Nodes, cfg.To, cfg.Regions = 4, 6, []Region{{"a", 3}, {"b", 1}} })
	// Nodes by region: a b a a, then a b. Six nodes: a has 4 for 3/4 of the rows, b has 2 for 1/4.
	wantNear(t, "rows of the fullest node", got.After.MaxMean, 0.75/4*6, 0.07)
	rows := uint64(0)
	for _, held := range got.After.Nodes {
		if held.Node == "node2" || held.Node == "node6" {
			rows += held.Rows
		}
	}
	wantNear(t, "rows in region b", float64(rows)/200_000, 0.25, 0.005)
}

// TestSameAnswer: neither the number of workers nor a second run changes anything but times.
func TestSameAnswer(t *testing.T) {
	all := func(cfg *Config) {
		cfg.Strategies, cfg.Placements = Strategies, []placement.Algorithm{placement.Balanced, placement.Bounded}
		cfg.Keys, cfg.Shards = 2*16*blockSize, 1000 // enough for two workers
		cfg.Dist, cfg.Seed = Dist{Kind: timestamps}, 7
		cfg.Popularity = 0.9
	}
	first := run(t, all)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	second := run(t, all)
	for _, r := range []*Report{first, second} {
		r.Seconds = 0
		for i := range r.Results {
			r.Results[i].LookupNS, r.Results[i].PlacingNS = 0, 0
		}
	}
	if !reflect.DeepEqual(first, second) {
		a, _ := json.Marshal(first)
		b, _ := json.Marshal(second)
		t.Errorf("two runs differ:\n%s\n%s", a, b)
	}
}
