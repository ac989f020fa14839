package keyspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
)

// Layout says into which shards a new distribution is cut: at given places, or into equal intervals.
type Layout struct {
	// Shards is how many equal intervals of hashes or entries there are; a list has that many in each region.
	Shards int
	// SplitAt are the bounds between the shards, in any order (see ParseBound). A list is cut between its regions too.
	SplitAt [][]byte
}

// CreateDistribution adds a distribution. Each active node gets one run of neighbouring shards, as long as its weight
// says, so that a node's rows are few intervals. The shards of a region are on the region's nodes.
func (m *Map) CreateDistribution(database string, key Key, layout Layout) (*Map, *Distribution, error) {
	if err := key.validate(); err != nil {
		return nil, nil, fmt.Errorf("a distribution cannot have %w", err)
	}
	lows, err := key.cuts(layout)
	if err != nil {
		return nil, nil, err
	}
	if len(lows) > MaxShards {
		return nil, nil, fmt.Errorf("a distribution has between 1 and %d shards, not %d", MaxShards, len(lows))
	}
	nodes := m.nodesByLoad()
	if len(nodes) == 0 {
		return nil, nil, errors.New("no node is active, so there is none to hold the shards")
	}
	next := m.edited()
	next.LastDistribution++
	d := &Distribution{ID: next.LastDistribution, Database: database, Key: key, Shards: make([]Shard, len(lows))}
	for i, low := range lows {
		next.LastShard++
		d.Shards[i] = Shard{ID: next.LastShard, Low: low}
	}
	d.Index()
	if err := d.place(nodes); err != nil {
		return nil, nil, err
	}
	if err := d.validate(next); err != nil {
		return nil, nil, err
	}
	next.Distributions = append(next.Distributions, d)
	return next, d, nil
}

// cuts returns where the shards of a new distribution begin.
func (k *Key) cuts(layout Layout) ([][]byte, error) {
	lows := [][]byte{{}}
	pieces := k.pieces()
	prefixes, spread := [][]byte{{}}, 0
	if pieces[0].Method == List {
		prefixes, spread = nil, 1
		for _, r := range pieces[0].regions {
			prefixes = append(prefixes, binary.BigEndian.AppendUint16(nil, r.ID))
		}
	}
	count := layout.Shards
	even := spread < len(pieces) && pieces[spread].Method != Range
	switch {
	case len(layout.SplitAt) > 0 && count > 0:
		return nil, errors.New("a distribution is cut at given bounds or into a number of shards, not both")
	case count == 0 && (!even || len(layout.SplitAt) > 0):
		count = 1
	case count < 1 || count > MaxShards:
		return nil, fmt.Errorf("a distribution has between 1 and %d shards, not %d", MaxShards, count)
	case count > 1 && !even:
		return nil, errors.New("a range has no equal intervals: it is cut at given bounds")
	}
	for _, prefix := range prefixes {
		for i := range count {
			low := prefix
			if i > 0 {
				at, _ := bits.Div64(uint64(i), 0, uint64(count)) // i * 2^64 / count
				low = binary.BigEndian.AppendUint64(slices.Clip(prefix), at)
			}
			lows = append(lows, low)
		}
	}
	for _, at := range layout.SplitAt {
		if at == nil {
			return nil, errors.New("a distribution cannot be cut at the end of its space")
		}
		lows = append(lows, at)
	}
	return k.sorted(lows)
}

// sorted puts bounds into their one spelling and into order, each once.
func (k *Key) sorted(lows [][]byte) ([][]byte, error) {
	for i, low := range lows {
		b, err := k.canonical(low)
		if err != nil {
			return nil, fmt.Errorf("%x cannot be a bound: %w", low, err)
		}
		if b == nil {
			return nil, fmt.Errorf("%s cannot be a bound: it is the end of the space", k.FormatBound(low))
		}
		lows[i] = slices.Clone(b)
	}
	slices.SortFunc(lows, bytes.Compare)
	return slices.CompactFunc(lows, bytes.Equal), nil
}

// place gives the shards to nodes, those of a list to the nodes of their region.
func (d *Distribution) place(nodes []Node) error {
	for first := 0; first < len(d.Shards); {
		region := d.Region(first)
		last := first
		for last < len(d.Shards) && d.Region(last) == region {
			last++
		}
		mine := nodes
		if d.isList() {
			mine = slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.Region != region })
		}
		if len(mine) == 0 {
			return fmt.Errorf("no active node is in region %q, so there is none to hold its shards", region)
		}
		for i, node := range runs(mine, last-first) {
			d.Shards[first+i].Node = node
		}
		first = last
	}
	return nil
}

// nodesByLoad returns the active nodes, the one with the fewest shards for its weight first.
func (m *Map) nodesByLoad() []Node {
	nodes := m.NodesActive()
	load := make(map[string]float64, len(nodes))
	for _, n := range nodes {
		load[n.Name] = float64(m.ShardsOf(n.Name)) / n.Weight
	}
	slices.SortStableFunc(nodes, func(a, b Node) int {
		switch x, y := load[a.Name], load[b.Name]; {
		case x < y:
			return -1
		case x > y:
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return nodes
}

// runs returns the owner of each of count shards: neighbours together, in proportion to the weights.
func runs(nodes []Node, count int) []string {
	nodes = nodes[:min(len(nodes), count)]
	total := 0.0
	for _, n := range nodes {
		total += n.Weight
	}
	owners := make([]string, count)
	i, until := 0, nodes[0].Weight
	for s := range owners {
		// The middle of the shard decides, so that rounding favours nobody.
		middle := (float64(s) + 0.5) / float64(count) * total
		for middle >= until && i+1 < len(nodes) {
			i++
			until += nodes[i].Weight
		}
		owners[s] = nodes[i].Name
	}
	return owners
}
