package simulate

import (
	"context"
	"math/bits"
	"slices"
	"sort"
)

// routing finds the shards of keys by one strategy.
type routing struct {
	strategy Strategy
	shards   int
	// bounds of Range: shard i+1 begins at bounds[i].
	bounds []uint64
	// starts cuts the space between the first and the last bound into slots, so that a search is short.
	slots slots
	// parts of List: the regions' cumulated parts of the rows, as points, and their first shards.
	regions []Region
	ends    []uint64
	firsts  []int
	// entries of Directory.
	entries directory
}

// samplesPerShard is how many keys decide where a range shard ends.
const samplesPerShard, maxSamples = 64, 4_000_000

func newRouting(ctx context.Context, cfg *Config, src source, strategy Strategy) (*routing, error) {
	how := &routing{strategy: strategy, shards: cfg.Shards}
	var err error
	switch strategy {
	case Mod:
		how.shards = leastCommonMultiple(cfg.Nodes, cfg.To)
	case Range:
		err = how.cutRanges(src)
	case List:
		how.cutRegions(cfg)
	case Directory:
		how.entries, err = newDirectory(ctx, src, how.shards)
	}
	return how, err
}

func (how *routing) cutRanges(src source) error {
	values, err := src.sample(min(max(how.shards*samplesPerShard, blockSize), max(maxSamples, how.shards*4)))
	if err != nil {
		return err
	}
	slices.Sort(values)
	for i := 1; i < how.shards; i++ {
		bound := values[int(float64(i)/float64(how.shards)*float64(len(values)))]
		// A key cannot be cut: where it fills several shards, there is one bound.
		if bound > values[0] && (len(how.bounds) == 0 || bound > how.bounds[len(how.bounds)-1]) {
			how.bounds = append(how.bounds, bound)
		}
	}
	how.shards = len(how.bounds) + 1
	how.slots = newSlots(how.bounds)
	return nil
}

func (how *routing) cutRegions(cfg *Config) {
	how.regions = cfg.Regions
	cumulated, first := 0.0, 0
	for i, r := range cfg.Regions {
		cumulated += r.Share
		how.firsts = append(how.firsts, first)
		how.ends = append(how.ends, uint64(min(cumulated, 1)*(1<<63))<<1-1)
		// Each region gets its part of the shards, at least one, and leaves one for each region after it.
		after := len(cfg.Regions) - i - 1
		first = min(max(int(cumulated*float64(how.shards)), first+1), how.shards-after)
	}
	how.ends[len(how.ends)-1] = 1<<64 - 1
	how.firsts = append(how.firsts, how.shards)
}

// region returns the region that a shard is bound to, if any.
func (how *routing) region(shard uint32) string {
	if how.strategy != List {
		return ""
	}
	return how.regions[sort.SearchInts(how.firsts, int(shard)+1)-1].Name
}

// find fills in the shards of a block's keys.
func (how *routing) find(b *block) {
	switch how.strategy {
	case Mod:
		for i, point := range b.point[:b.n] {
			b.shard[i] = uint32(point % uint64(how.shards))
		}
	case Hash:
		for i, point := range b.point[:b.n] {
			high, _ := bits.Mul64(point, uint64(how.shards))
			b.shard[i] = uint32(high)
		}
	case Range:
		for i, order := range b.order[:b.n] {
			b.shard[i] = how.slots.find(how.bounds, order)
		}
	case List:
		for i, index := range b.index[:b.n] {
			b.shard[i] = how.findInRegion(mix(index^golden), b.point[i])
		}
	case Directory:
		how.entries.find(b)
	}
}

// findInRegion takes the value that says the region from chance: it is another column than the key.
func (how *routing) findInRegion(value, point uint64) uint32 {
	region := 0
	for value > how.ends[region] {
		region++
	}
	first := how.firsts[region]
	high, _ := bits.Mul64(point, uint64(how.firsts[region+1]-first))
	return uint32(first) + uint32(high)
}

// slots speeds a search among sorted bounds up: equal parts of the space that they span, with the first bound of each.
type slots struct {
	low, high uint64
	shift     int
	starts    []uint32
}

func newSlots(bounds []uint64) slots {
	if len(bounds) == 0 {
		return slots{}
	}
	s := slots{low: bounds[0], high: bounds[len(bounds)-1]}
	for (s.high-s.low)>>s.shift > uint64(len(bounds)) {
		s.shift++
	}
	s.starts = make([]uint32, (s.high-s.low)>>s.shift+2)
	at := 0
	for slot := range s.starts {
		for at < len(bounds) && (bounds[at]-s.low)>>s.shift < uint64(slot) {
			at++
		}
		s.starts[slot] = uint32(at)
	}
	return s
}

// find counts the bounds at or below the value.
func (s *slots) find(bounds []uint64, value uint64) uint32 {
	switch {
	case len(bounds) == 0 || value < s.low:
		return 0
	case value >= s.high:
		return uint32(len(bounds))
	}
	slot := (value - s.low) >> s.shift
	base, n := s.starts[slot], s.starts[slot+1]-s.starts[slot]
	for n > 0 {
		half := n / 2
		if bounds[base+half] <= value {
			base += half + 1
			n -= half + 1
		} else {
			n = half
		}
	}
	return base
}
