// Package simulate answers "what if" without a server: it spreads keys over shards and shards over nodes, by chosen
// strategies and placements, changes the number of nodes, and measures what that costs.
//
// Keys are made in blocks by all cores, counted per shard and forgotten, so memory does not grow with their
// number. The same Config gives the same Report, apart from the measured times.
package simulate

import (
	"context"
	"fmt"
	"time"

	"github.com/pgshoal/pgshoal/placement"
)

// Report is what a simulation found.
type Report struct {
	Nodes   int      `json:"nodes"`
	To      int      `json:"to"`
	Keys    uint64   `json:"keys"`
	Dist    string   `json:"dist"`
	Seed    uint64   `json:"seed"`
	Writes  float64  `json:"writes"`
	Range   float64  `json:"range_width"`
	Minimum float64  `json:"minimum_moved"` // the part of the data that evenness needs to move
	Results []Result `json:"results"`
	Seconds float64  `json:"seconds"`
}

// Result is one strategy with one placement.
type Result struct {
	Strategy  Strategy            `json:"strategy"`
	Placement placement.Algorithm `json:"placement,omitempty"` // none for mod
	Shards    int                 `json:"shards"`

	Before Spread `json:"before"`
	After  Spread `json:"after"`

	MovedKeys  uint64  `json:"moved_keys"`
	MovedBytes uint64  `json:"moved_bytes"`
	MovedShare float64 `json:"moved_share"` // of the keys
	Moves      int     `json:"moves"`       // shards

	FanOut float64 `json:"fan_out"` // nodes that a range query asks, on average

	MapBytes  uint64  `json:"map_bytes"`  // what a router keeps to find a key's node
	LookupNS  float64 `json:"lookup_ns"`  // measured: key to node
	PlacingNS float64 `json:"placing_ns"` // measured: choosing a node, per shard
	Table     *Table  `json:"maglev_table,omitempty"`
}

// Name is how a result is called in tables and pictures.
func (r Result) Name() string {
	if r.Placement == "" {
		return string(r.Strategy)
	}
	return string(r.Strategy) + " " + string(r.Placement)
}

// Run simulates. Errors about the Config are *InputError.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	start := time.Now()
	src, err := newSource(&cfg)
	if err != nil {
		return nil, err
	}
	report := &Report{
		Nodes: cfg.Nodes, To: cfg.To, Keys: src.rows(), Dist: cfg.Dist.String(), Seed: cfg.Seed,
		Writes: cfg.Writes, Range: cfg.RangeWidth, Minimum: minimum(cfg.Nodes, cfg.To),
	}
	for _, strategy := range cfg.Strategies {
		results, err := runStrategy(ctx, &cfg, src, strategy)
		if err != nil {
			return nil, fmt.Errorf("strategy %s: %w", strategy, err)
		}
		report.Results = append(report.Results, results...)
	}
	report.Seconds = time.Since(start).Seconds()
	return report, nil
}

// minimum is the part that has to move so that equal nodes hold equal parts before and after.
func minimum(from, to int) float64 {
	if to >= from {
		return 1 - float64(from)/float64(to)
	}
	return 1 - float64(to)/float64(from)
}

func runStrategy(ctx context.Context, cfg *Config, src source, strategy Strategy) ([]Result, error) {
	how, err := newRouting(ctx, cfg, src, strategy)
	if err != nil {
		return nil, err
	}
	counted, err := count(ctx, cfg, src, how)
	if err != nil {
		return nil, err
	}
	base := Result{Strategy: strategy, Shards: how.shards}
	if strategy == Mod {
		base.Shards = cfg.To
	}
	lookup, err := newLookup(src, how)
	if err != nil {
		return nil, err
	}
	if strategy == Mod {
		before, after := modOwners(how.shards, cfg.Nodes), modOwners(how.shards, cfg.To)
		base.measure(cfg, how, counted, before, after)
		base.LookupNS = lookup.nanoseconds(after)
		return []Result{base}, nil
	}
	var results []Result
	for _, algorithm := range cfg.Placements {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r := base
		before, after, err := r.place(cfg, how, counted, algorithm)
		if err != nil {
			return nil, fmt.Errorf("placement %s: %w", algorithm, err)
		}
		r.measure(cfg, how, counted, before, after)
		r.LookupNS = lookup.nanoseconds(after)
		results = append(results, r)
	}
	return results, nil
}

// modOwners treats the remainders by the least common multiple of both counts as shards, so that one count of keys
// answers for both.
func modOwners(shards, nodes int) []int32 {
	owners := make([]int32, shards)
	for i := range owners {
		owners[i] = int32(i % nodes)
	}
	return owners
}

// place asks for an even start and for what has to change.
func (r *Result) place(cfg *Config, how *routing, c *counts, algorithm placement.Algorithm) (before, after []int32, err error) {
	r.Placement = algorithm
	settings := cfg.Placement
	settings.Algorithm = algorithm
	shards := make([]placement.Shard, how.shards)
	for i := range shards {
		shards[i] = placement.Shard{ID: uint32(i), Size: int64(c.shards[i].bytes), Load: c.load(i), Region: how.region(uint32(i))}
	}
	nodes := cfg.makeNodes(cfg.Nodes, r.Strategy)
	start := time.Now()
	first, err := placement.Propose(settings, shards, nodes)
	if err != nil {
		return nil, nil, err
	}
	r.PlacingNS = float64(time.Since(start).Nanoseconds()) / float64(how.shards)
	for i, owner := range first.Owner {
		shards[i].Node = nodes[owner].Name
	}
	nodes = cfg.makeNodes(max(cfg.Nodes, cfg.To), r.Strategy)
	for i := cfg.To; i < len(nodes); i++ {
		nodes[i].State = placement.Draining
	}
	second, err := placement.Propose(settings, shards, nodes)
	if err != nil {
		return nil, nil, err
	}
	if algorithm == placement.Maglev {
		r.Table, err = lookAtTable(cfg, settings.TableSize)
	}
	return first.Owner, second.Owner, err
}

// Table is Maglev's own table, without the chance that shards add when they look up in it.
type Table struct {
	Size    int     `json:"size"`
	MaxMean float64 `json:"max_mean"` // entries of the node that has most, divided by the mean
	Changed float64 `json:"changed"`  // part of the entries that have another node after the change
}

func lookAtTable(cfg *Config, size int) (*Table, error) {
	before, err := placement.MaglevTable(cfg.makeNodes(cfg.Nodes, Hash), size)
	if err != nil {
		return nil, err
	}
	after, err := placement.MaglevTable(cfg.makeNodes(cfg.To, Hash), size)
	if err != nil {
		return nil, err
	}
	held, changed, most := make([]int, cfg.To), 0, 0
	for i := range after {
		held[after[i]]++
		most = max(most, held[after[i]])
		if before[i] != after[i] {
			changed++
		}
	}
	return &Table{size, float64(most) * float64(cfg.To) / float64(size), float64(changed) / float64(size)}, nil
}
