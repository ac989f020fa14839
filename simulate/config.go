package simulate

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/placement"
)

// Strategy is a way to turn keys into shards.
type Strategy string

const (
	// Mod is the hash modulo the number of nodes. It exists only here, to show why not.
	Mod Strategy = "mod"
	// Hash is intervals of the hash of the key.
	Hash Strategy = "hash"
	// Range is intervals of the key itself, cut so that shards have about the same number of keys.
	Range Strategy = "range"
	// List is a region for each row, and intervals of the hash within it.
	List Strategy = "list"
	// Directory is an entry for each key, made on its first use on the shard with the fewest rows.
	Directory Strategy = "directory"
)

// Strategies lists all.
var Strategies = []Strategy{Mod, Hash, Range, List, Directory}

const (
	maxNodes     = 10_000
	maxShards    = 10_000_000
	maxKeys      = 10_000_000_000
	maxDistinct  = 100_000_000
	maxEntries   = 10_000_000 // that a directory of keys from a file may have
	maxRemainder = 4_000_000  // shards that stand for mod
)

// Config is a question. Fields that are zero get a usual value, except those whose zero means something.
type Config struct {
	Strategies []Strategy
	Placements []placement.Algorithm
	// Placement has the settings of all placements.
	Placement placement.Config
	Nodes, To int // how many before and after
	Shards    int // zero: 1024 for each node, at most a million

	Keys     uint64 // rows; a file has its own number
	Dist     Dist
	Distinct uint64 // of zipf: how many different keys there are; zero: a million, at most Keys
	RowBytes int    // on average
	Seed     uint64

	// Writes is the part of statements that write. Where new keys are always the highest, writes go to those.
	Writes float64
	// Popularity is the exponent of Zipf's law by which statements choose keys; zero: all rows alike.
	Popularity float64
	// RangeWidth is the part of all rows that a range query asks for.
	RangeWidth float64
	// Regions of List, and the part of the rows that each has.
	Regions []Region
}

// Region is a part of the rows that must stay on nodes of this region.
type Region struct {
	Name  string
	Share float64
}

// InputError is a value that cannot be meant.
type InputError struct {
	Field   string // as the command's option is called
	Message string
}

func (e *InputError) Error() string { return e.Field + ": " + e.Message }

func wrong(field, format string, args ...any) error {
	return &InputError{Field: field, Message: fmt.Sprintf(format, args...)}
}

func (c *Config) setDefaults() {
	if c.Shards == 0 {
		c.Shards = min(1024*max(c.Nodes, c.To, 1), 1_000_000)
	}
	if c.Distinct == 0 {
		c.Distinct = min(1_000_000, max(c.Keys, 1))
	}
	if c.Regions == nil {
		c.Regions = []Region{{"eu", 0.5}, {"us", 0.3}, {"ap", 0.2}}
	}
}

func (c *Config) validate() error {
	switch {
	case len(c.Strategies) == 0:
		return wrong("strategy", "give at least one of %s", join(Strategies))
	case len(c.Placements) == 0 && (len(c.Strategies) > 1 || c.Strategies[0] != Mod):
		return wrong("placement", "give at least one of %s", join(placement.Algorithms))
	case c.Nodes < 1 || c.Nodes > maxNodes:
		return wrong("nodes", "%d is not between 1 and %d", c.Nodes, maxNodes)
	case c.To < 1 || c.To > maxNodes:
		return wrong("to", "%d is not between 1 and %d", c.To, maxNodes)
	case c.Shards < 1 || c.Shards > maxShards:
		return wrong("shards", "%d is not between 1 and %d", c.Shards, maxShards)
	case c.Dist.Kind != fromFile && (c.Keys < 1 || c.Keys > maxKeys):
		return wrong("keys", "%d is not between 1 and %d", c.Keys, uint64(maxKeys))
	case c.Distinct > maxDistinct:
		return wrong("distinct", "%d is more than %d", c.Distinct, maxDistinct)
	case c.RowBytes < 1 || c.RowBytes > 1<<30:
		return wrong("row-bytes", "%d is not between 1 and %d", c.RowBytes, 1<<30)
	case !(c.Writes >= 0 && c.Writes <= 1):
		return wrong("writes", "%v is not between 0 and 1", c.Writes)
	case !(c.RangeWidth > 0 && c.RangeWidth <= 1):
		return wrong("range-width", "%v is not above 0 and at most 1", c.RangeWidth)
	case !(c.Popularity >= 0 && c.Popularity <= maxExponent):
		return wrong("popularity", "the exponent %v is not between 0 and %d", c.Popularity, maxExponent)
	case c.Popularity > 0 && (c.Dist.Kind == fromFile || c.Dist.Kind == zipfian):
		return wrong("popularity", "with --dist %s the rows themselves say which keys are popular", c.Dist.Kind)
	}
	return c.validateCombinations()
}

func (c *Config) validateCombinations() error {
	for _, s := range c.Strategies {
		if !slices.Contains(Strategies, s) {
			return wrong("strategy", "there is no strategy %q, but %s", s, join(Strategies))
		}
	}
	if slices.Contains(c.Strategies, Mod) && leastCommonMultiple(c.Nodes, c.To) > maxRemainder {
		return wrong("strategy", "mod from %d to %d nodes would need %d counters; take fewer nodes, or node counts with a common divisor", c.Nodes, c.To, leastCommonMultiple(c.Nodes, c.To))
	}
	if slices.Contains(c.Strategies, List) {
		if err := c.validateRegions(); err != nil {
			return err
		}
	}
	for _, a := range c.Placements {
		if err := c.validatePlacement(a); err != nil {
			return err
		}
	}
	return nil
}

// validatePlacement names the option that the settings come from.
func (c *Config) validatePlacement(a placement.Algorithm) error {
	fields := map[placement.Algorithm]string{
		placement.Balanced: "slack", placement.Ring: "virtual-nodes", placement.Maglev: "table-size", placement.Bounded: "factor",
	}
	settings := c.Placement
	if a == placement.Bounded {
		if err := c.validatePlacement(placement.Ring); err != nil {
			return err
		}
	}
	settings.Algorithm = a
	if err := settings.Validate(); err != nil {
		return wrong(cmp.Or(fields[a], "placement"), "%s", strings.TrimPrefix(err.Error(), "placement: "))
	}
	return nil
}

func (c *Config) validateRegions() error {
	total := 0.0
	for i, r := range c.Regions {
		if r.Name == "" || !(r.Share > 0) || math.IsInf(r.Share, 0) || slices.ContainsFunc(c.Regions[:i], func(o Region) bool { return o.Name == r.Name }) {
			return wrong("regions", "each needs a name of its own and a part above 0")
		}
		total += r.Share
	}
	if n := len(c.Regions); n == 0 || n > min(c.Nodes, c.To) {
		return wrong("regions", "%d regions need at least as many nodes, before and after", n)
	}
	if c.Shards < len(c.Regions) {
		return wrong("shards", "%d regions need at least as many shards", len(c.Regions))
	}
	c.Regions = slices.Clone(c.Regions)
	for i := range c.Regions {
		c.Regions[i].Share /= total
	}
	return nil
}

// ParseStrategies reads a list with commas; "all" is all.
func ParseStrategies(text string) ([]Strategy, error) {
	if text == "all" {
		return Strategies, nil
	}
	var found []Strategy
	for name := range strings.SplitSeq(text, ",") {
		s := Strategy(strings.TrimSpace(name))
		if !slices.Contains(Strategies, s) {
			return nil, wrong("strategy", "there is no strategy %q, but %s, and all", s, join(Strategies))
		}
		if !slices.Contains(found, s) {
			found = append(found, s)
		}
	}
	return found, nil
}

// ParsePlacements reads a list with commas; "all" is all.
func ParsePlacements(text string) ([]placement.Algorithm, error) {
	if text == "all" {
		return placement.Algorithms, nil
	}
	var found []placement.Algorithm
	for name := range strings.SplitSeq(text, ",") {
		a, err := placement.ParseAlgorithm(strings.TrimSpace(name))
		if err != nil {
			return nil, wrong("placement", "%v, and all", err)
		}
		if !slices.Contains(found, a) {
			found = append(found, a)
		}
	}
	return found, nil
}

// ParseRegions reads "eu=0.5,us=0.5".
func ParseRegions(text string) ([]Region, error) {
	var found []Region
	for item := range strings.SplitSeq(text, ",") {
		name, share, ok := strings.Cut(strings.TrimSpace(item), "=")
		part, err := strconv.ParseFloat(share, 64)
		if !ok || err != nil {
			return nil, wrong("regions", "%q is not like eu=0.5", item)
		}
		found = append(found, Region{name, part})
	}
	return found, nil
}

// makeNodes gives the first nodes to regions in turn, and then each to the region with most rows per node. So a node
// keeps its region when others come.
func (c *Config) makeNodes(count int, strategy Strategy) []placement.Node {
	nodes := make([]placement.Node, count)
	given := make([]int, len(c.Regions))
	for i := range nodes {
		nodes[i] = placement.Node{ID: i, Name: nodeName(i), Weight: 1, State: placement.Active}
		if strategy != List {
			continue
		}
		best := 0
		for r := range c.Regions {
			if given[r] == 0 {
				best = r
				break
			}
			if c.Regions[r].Share*float64(given[best]) > c.Regions[best].Share*float64(given[r]) {
				best = r
			}
		}
		given[best]++
		nodes[i].Region = c.Regions[best].Name
	}
	return nodes
}

func nodeName(i int) string { return "node" + strconv.Itoa(i+1) }

func join[T ~string](list []T) string {
	names := make([]string, len(list))
	for i, item := range list {
		names[i] = string(item)
	}
	return strings.Join(names, ", ")
}
