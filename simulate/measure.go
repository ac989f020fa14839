package simulate

import "math"

// Spread is how evenly nodes are filled.
type Spread struct {
	MaxMean float64 `json:"max_mean"` // bytes on the fullest node, divided by the mean
	StdDev  float64 `json:"stddev"`   // of bytes, divided by the mean
	// Hottest is the node that gets most statements, and its part of them.
	Hottest      string  `json:"hottest"`
	HottestShare float64 `json:"hottest_share"`
	Nodes        []Held  `json:"per_node"`
}

// Held is what one node holds.
type Held struct {
	Node  string  `json:"node"`
	Rows  uint64  `json:"rows"`
	Bytes uint64  `json:"bytes"`
	Load  float64 `json:"load"` // part of all statements
}

func (r *Result) measure(cfg *Config, how *routing, c *counts, before, after []int32) {
	r.Before, r.After = spread(cfg.Nodes, c, before), spread(cfg.To, c, after)
	for i := range before {
		if before[i] != after[i] {
			r.MovedKeys += c.shards[i].rows
			r.MovedBytes += c.shards[i].bytes
			r.Moves++
		}
	}
	r.MovedShare = float64(r.MovedKeys) / float64(c.total.rows)
	r.FanOut = fanOut(cfg, how, c, after)
	r.MapBytes = how.mapBytes(cfg)
}

func spread(nodes int, c *counts, owners []int32) Spread {
	s := Spread{Nodes: make([]Held, nodes)}
	for i := range s.Nodes {
		s.Nodes[i].Node = nodeName(i)
	}
	for i, t := range c.shards {
		held := &s.Nodes[owners[i]]
		held.Rows += t.rows
		held.Bytes += t.bytes
		held.Load += c.load(i)
	}
	mean := float64(c.total.bytes) / float64(nodes)
	squares := 0.0
	for _, held := range s.Nodes {
		ratio := float64(held.Bytes) / mean
		s.MaxMean = max(s.MaxMean, ratio)
		squares += (ratio - 1) * (ratio - 1)
		if s.Hottest == "" || held.Load > s.HottestShare {
			s.Hottest, s.HottestShare = held.Node, held.Load
		}
	}
	s.StdDev = math.Sqrt(squares / float64(nodes))
	return s
}

// fanOut is how many nodes a query for a part of the rows, neighbours by key, has to ask. Only Range knows where
// neighbours are; all others ask every node that has shards.
func fanOut(cfg *Config, how *routing, c *counts, owners []int32) float64 {
	asked := make([]int, cfg.To) // the last query that asked the node
	if how.strategy != Range {
		nodes := 0
		for _, owner := range owners {
			nodes += 1 - asked[owner]
			asked[owner] = 1
		}
		return float64(nodes)
	}
	const queries = 1000
	width := cfg.RangeWidth * float64(c.total.rows)
	rest := float64(c.total.rows) - width
	asks, first, below := 0, 0, 0.0 // below: rows before the first shard
	for q := 1; q <= queries; q++ {
		start := rest * (float64(q) - 0.5) / queries
		for below+float64(c.shards[first].rows) <= start && first+1 < len(owners) {
			below += float64(c.shards[first].rows)
			first++
		}
		end := below
		for i := first; i < len(owners) && (i == first || end < start+width); i++ {
			if owner := owners[i]; asked[owner] != q {
				asked[owner] = q
				asks++
			}
			end += float64(c.shards[i].rows)
		}
	}
	return float64(asks) / queries
}

// mapBytes is what a router needs in memory to find nodes: for each shard its first point and its node, and for each
// entry of a directory the key's hash, its shard, and the free places of a hash table.
func (how *routing) mapBytes(cfg *Config) uint64 {
	const bound, node, entry, spare = 8, 4, 8 + 4, 1.5
	switch how.strategy {
	case Mod:
		return uint64(cfg.To) * node
	case Directory:
		return uint64(how.shards)*node + uint64(float64(how.entries.size)*entry*spare)
	}
	return uint64(how.shards) * (bound + node)
}
