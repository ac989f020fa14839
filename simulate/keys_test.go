package simulate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/placement"
)

func fileOf(text string) Dist {
	return Dist{Kind: fromFile, Path: "keys", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
}

// TestEveryKeyOnce: whatever is asked, all rows are somewhere, once, before and after.
func TestEveryKeyOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := question(func(cfg *Config) {
			cfg.Strategies, cfg.Placements = Strategies, []placement.Algorithm{rapid.SampledFrom(placement.Algorithms).Draw(t, "placement")}
			cfg.Nodes, cfg.To = rapid.IntRange(3, 9).Draw(t, "nodes"), rapid.IntRange(3, 9).Draw(t, "to")
			cfg.Shards = rapid.IntRange(3, 300).Draw(t, "shards")
			cfg.Keys = uint64(rapid.IntRange(1, 9000).Draw(t, "keys"))
			cfg.Dist = rapid.SampledFrom([]Dist{{Kind: uniform}, {Kind: sequential}, {Kind: timestamps}, {Kind: zipfian, Exponent: 1}, fileOf("b\na\nb\n\nc")}).Draw(t, "dist")
			cfg.Distinct = uint64(rapid.IntRange(0, 500).Draw(t, "distinct"))
			if cfg.Dist.Kind == uniform {
				cfg.Popularity = rapid.SampledFrom([]float64{0, 1}).Draw(t, "popularity")
			}
			cfg.Seed = rapid.Uint64().Draw(t, "seed")
		})
		report, err := Run(context.Background(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range report.Results {
			for _, s := range []Spread{r.Before, r.After} {
				rows, load := uint64(0), 0.0
				for _, held := range s.Nodes {
					rows += held.Rows
					load += held.Load
				}
				if rows != report.Keys || math.Abs(load-1) > 1e-6 {
					t.Fatalf("%s: %d of %d rows, %v of the load", r.Name(), rows, report.Keys, load)
				}
			}
			if r.MovedKeys > report.Keys || r.FanOut < 1 || r.FanOut > float64(report.To) || r.LookupNS <= 0 {
				t.Fatalf("%s: %+v", r.Name(), r)
			}
		}
	})
}

func TestSlotsFindLikeASearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := rapid.SliceOf(rapid.OneOf(rapid.Uint64(), rapid.Uint64Range(0, 50), rapid.Uint64Range(1<<63-9, 1<<63+9))).Draw(t, "bounds")
		slices.Sort(bounds)
		bounds = slices.Compact(bounds)
		s := newSlots(bounds)
		for _, value := range append(rapid.SliceOf(rapid.Uint64()).Draw(t, "values"), bounds...) {
			for _, v := range []uint64{value - 1, value, value + 1} {
				want := sort.Search(len(bounds), func(i int) bool { return bounds[i] > v })
				if got := s.find(bounds, v); int(got) != want {
					t.Fatalf("%d among %v: got %d, want %d", v, bounds, got, want)
				}
			}
		}
	})
}

func TestZipfFollowsItsLaw(t *testing.T) {
	for _, exponent := range []float64{0.2, 0.99, 1, 1.5, 3} {
		const count, draws = 1000, 400_000
		z, random := newZipf(exponent, count), rand.New(rand.NewPCG(1, 2))
		seen := make([]float64, count)
		for range draws {
			seen[z.draw(random)]++
		}
		sum := 0.0
		for rank := range count {
			sum += math.Pow(float64(rank+1), -exponent)
		}
		for _, rank := range []int{0, 1, 2, 10, 100, 999} {
			want := draws * math.Pow(float64(rank+1), -exponent) / sum
			if math.Abs(seen[rank]-want) > 6*math.Sqrt(want)+6 {
				t.Errorf("exponent %v: rank %d was drawn %v times, want about %.0f", exponent, rank, seen[rank], want)
			}
		}
	}
}

func TestTimestampsGrow(t *testing.T) {
	g := &generated{kind: timestamps, total: 1_000_000}
	for i := uint64(1); i < 1_100_000; i++ {
		if g.moment(i) <= g.moment(i-1) {
			t.Fatalf("row %d is not after the one before", i)
		}
	}
}

// TestDirectoryFillsEvenly: a new key goes to the shard with the fewest rows.
func TestDirectoryFillsEvenly(t *testing.T) {
	// a comes three times, so the others share the second shard until that has as many.
	cfg := question(func(cfg *Config) { cfg.Dist, cfg.Shards = fileOf("a\na\na\nb\nc\nd\ne"), 2 })
	src, err := newSource(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	how, err := newRouting(context.Background(), &cfg, src, Directory)
	if err != nil {
		t.Fatal(err)
	}
	c, err := count(context.Background(), &cfg, src, how)
	if err != nil {
		t.Fatal(err)
	}
	if c.shards[0].rows != 4 || c.shards[1].rows != 3 || how.entries.size != 5 {
		t.Errorf("%d and %d rows, %d entries", c.shards[0].rows, c.shards[1].rows, how.entries.size)
	}
}

// TestFileKeys: texts with a common beginning are told apart by what follows.
func TestFileKeys(t *testing.T) {
	var lines strings.Builder
	for i := range 10000 {
		fmt.Fprintf(&lines, "customer-number-%06d\r\n", i)
	}
	for name, text := range map[string]string{"texts": lines.String(), "integers": strings.ReplaceAll(lines.String(), "customer-number-", "-")} {
		got := one(t, Range, placement.Balanced, func(cfg *Config) { cfg.Dist, cfg.Shards, cfg.Keys = fileOf(text), 100, 0 })
		if got.Shards != 100 || got.After.MaxMean > 1.1 {
			t.Errorf("%s: %d shards, max/mean %v", name, got.Shards, got.After.MaxMean)
		}
	}
}

func TestWrongInputNamesTheField(t *testing.T) {
	tests := map[string]func(*Config){
		"strategy":    func(cfg *Config) { cfg.Strategies = nil },
		"placement":   func(cfg *Config) { cfg.Placements = nil },
		"nodes":       func(cfg *Config) { cfg.Nodes = -1 },
		"to":          func(cfg *Config) { cfg.To = 10001 },
		"shards":      func(cfg *Config) { cfg.Shards = -1 },
		"keys":        func(cfg *Config) { cfg.Keys = 0 },
		"distinct":    func(cfg *Config) { cfg.Distinct = 1e9 },
		"row-bytes":   func(cfg *Config) { cfg.RowBytes = 0 },
		"writes":      func(cfg *Config) { cfg.Writes = math.NaN() },
		"range-width": func(cfg *Config) { cfg.RangeWidth = 0 },
		"popularity":  func(cfg *Config) { cfg.Popularity, cfg.Dist = 1, Dist{Kind: zipfian, Exponent: 1} },
		"regions":     func(cfg *Config) { cfg.Strategies, cfg.Nodes = []Strategy{List}, 2 },
		"slack":       func(cfg *Config) { cfg.Placement.Slack = 2 },
		"factor":      func(cfg *Config) { cfg.Placements, cfg.Placement.Factor = placement.Algorithms, 1 },
		"dist":        func(cfg *Config) { cfg.Dist = fileOf("\n\n") },
	}
	for field, change := range tests {
		_, err := Run(context.Background(), question(change))
		var input *InputError
		if !errors.As(err, &input) || input.Field != field {
			t.Errorf("%s: got %v", field, err)
		}
	}
	for _, change := range []func(*Config){
		func(cfg *Config) { cfg.Strategies, cfg.Nodes, cfg.To = []Strategy{Mod}, 9999, 10000 },
		func(cfg *Config) { cfg.Dist = fileOf(strings.Repeat("x", 10000)) },
		func(cfg *Config) { cfg.Dist = fileOf("a\x00b") },
	} {
		var input *InputError
		if _, err := Run(context.Background(), question(change)); !errors.As(err, &input) {
			t.Errorf("got %v", err)
		}
	}
}

func TestCancel(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, question(func(cfg *Config) { cfg.Keys = maxKeys })); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("1\n2\n-3"))
	f.Add([]byte("a\r\n\nb"))
	f.Add([]byte{0xff, 0x00, '\n'})
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg := question(func(cfg *Config) {
			cfg.Strategies, cfg.Shards, cfg.Dist = []Strategy{Range, Directory}, 7, fileOf(string(data))
		})
		report, err := Run(context.Background(), cfg)
		if err != nil {
			return
		}
		lines := uint64(0)
		for line := range bytes.Lines(data) {
			if len(bytes.TrimRight(line, "\r\n")) > 0 {
				lines++
			}
		}
		if report.Keys != lines {
			t.Errorf("%d keys in %d lines", report.Keys, lines)
		}
	})
}
