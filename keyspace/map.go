// Package keyspace says where a row is: a key becomes a point, a point lies in a shard, a shard is on a node.
// It is pure, so that routers, controllers and tests all compute the same answer.
package keyspace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"sort"
	"strings"
)

// NodeState says what a node may be used for.
type NodeState string

const (
	// NodeJoining is a node that is getting the schema and the reference tables; it serves nothing.
	NodeJoining NodeState = "joining"
	// NodeActive is a node that serves.
	NodeActive NodeState = "active"
	// NodeDraining is a node that serves what it has and gets nothing new.
	NodeDraining NodeState = "draining"
)

// Node is one PostgreSQL server: a primary and any replicas.
type Node struct {
	Name string `json:"name"`
	// ID is small, unique and never reused: it picks the node's block of every sequence.
	ID int `json:"id"`
	// Addresses are host:port pairs, or directories of Unix sockets as "/dir:port"; which of
	// them is the primary is found by asking, because failovers are done by others.
	Addresses []string  `json:"addresses"`
	Region    string    `json:"region,omitempty"`
	Weight    float64   `json:"weight"`
	State     NodeState `json:"state"`
}

// Shard is a half-open interval of points, owned by one node. It ends where the next one begins.
type Shard struct {
	ID   uint32 `json:"id"`
	Low  []byte `json:"low"`
	Node string `json:"node"`
}

// Distribution is a way to spread rows; its shards cover the whole point space.
type Distribution struct {
	ID       uint32 `json:"id"`
	Database string `json:"database"`
	Key
	Shards []Shard `json:"shards"` // sorted by Low; the first Low is empty
	// Directory is what only a directory has.
	Directory *DirectoryFacts `json:"directory,omitempty"`

	prefixes []uint64 // the first eight bytes of each Low
	// starts cuts the space into at least as many equal slots as there are shards: starts[i] is the shard
	// that holds the first point of slot i. So a search is over the few shards that begin in one slot.
	starts    []uint32
	slotShift int // a point shifted right by it is its slot
}

// Fence holds statements back from some tables while their placement or shape changes.
type Fence struct {
	ID       string   `json:"id"`
	Database string   `json:"database"`
	Tables   []uint32 `json:"tables"` // OIDs on the home node
	Router   string   `json:"router"` // who set it; a fence dies with its router
}

// Map is the immutable, versioned picture of a cluster. Edits return a new Map.
type Map struct {
	Epoch         uint64            `json:"epoch"`
	Cluster       string            `json:"cluster"` // random identity, part of every gid
	Home          string            `json:"home"`
	Nodes         []Node            `json:"nodes"` // sorted by name
	Distributions []*Distribution   `json:"distributions"`
	Fences        []Fence           `json:"fences,omitempty"`
	Schemas       map[string]uint64 `json:"schemas,omitempty"` // database -> schema version
	// LastShard, LastDistribution and LastNode are the highest ids ever given.
	LastShard        uint32 `json:"last_shard"`
	LastDistribution uint32 `json:"last_distribution"`
	LastNode         int    `json:"last_node"`
}

// ErrNotFound means that the map has no such node, distribution, shard or fence.
var ErrNotFound = errors.New("not found in the map")

// Node returns the named node.
func (m *Map) Node(name string) (Node, error) {
	i, ok := m.nodeIndex(name)
	if !ok {
		return Node{}, fmt.Errorf("node %q: %w", name, ErrNotFound)
	}
	return m.Nodes[i], nil
}

func (m *Map) nodeIndex(name string) (int, bool) {
	return slices.BinarySearchFunc(m.Nodes, name, func(n Node, s string) int { return strings.Compare(n.Name, s) })
}

// NodesActive returns the nodes that may get shards, in order of their names.
func (m *Map) NodesActive() []Node {
	var active []Node
	for _, n := range m.Nodes {
		if n.State == NodeActive {
			active = append(active, n)
		}
	}
	return active
}

// ShardsOf returns how many shards a node owns.
func (m *Map) ShardsOf(node string) int {
	count := 0
	for _, d := range m.Distributions {
		for i := range d.Shards {
			if d.Shards[i].Node == node {
				count++
			}
		}
	}
	return count
}

// Distribution returns the distribution with this id, or nil.
func (m *Map) Distribution(id uint32) *Distribution {
	if i := m.distributionIndex(id); i >= 0 {
		return m.Distributions[i]
	}
	return nil
}

func (m *Map) distributionIndex(id uint32) int {
	return slices.IndexFunc(m.Distributions, func(d *Distribution) bool { return d.ID == id })
}

// Shard returns the distribution that has the shard with this id, and the shard's index in it.
func (m *Map) Shard(id uint32) (*Distribution, int, error) {
	for _, d := range m.Distributions {
		for i := range d.Shards {
			if d.Shards[i].ID == id {
				return d, i, nil
			}
		}
	}
	return nil, 0, fmt.Errorf("shard %d: %w", id, ErrNotFound)
}

// Interval returns the bounds of the shard at an index; high is nil for the last shard.
func (d *Distribution) Interval(index int) (low, high []byte) {
	if index+1 < len(d.Shards) {
		high = d.Shards[index+1].Low
	}
	return d.Shards[index].Low, high
}

// Index builds the lookup structure. Whoever makes or decodes a Distribution by other means than JSON and
// the edits of a Map calls it once, before the Distribution is shared.
func (d *Distribution) Index() {
	d.indexed = nil
	if d.Key.validate() == nil {
		d.indexed = d.pieces()
	}
	d.prefixes = make([]uint64, len(d.Shards))
	for i, s := range d.Shards {
		d.prefixes[i] = prefix(s.Low)
	}
	slotBits := bits.Len(uint(max(1, len(d.Shards)) - 1))
	d.slotShift = 64 - slotBits
	d.starts = make([]uint32, 1<<slotBits+1)
	shard := 0
	for slot := range 1 << slotBits {
		first := uint64(slot) << d.slotShift
		for shard+1 < len(d.prefixes) && d.prefixes[shard+1] <= first {
			shard++
		}
		d.starts[slot] = uint32(shard)
	}
	d.starts[1<<slotBits] = uint32(max(1, len(d.Shards)) - 1)
}

// UnmarshalJSON reads a distribution and makes it ready for lookups.
func (d *Distribution) UnmarshalJSON(data []byte) error {
	type plain Distribution // without this method
	if err := json.Unmarshal(data, (*plain)(d)); err != nil {
		return err
	}
	d.Index()
	return nil
}

// FindHash is Find for a key that is a single hash; it allocates nothing.
func (d *Distribution) FindHash(point uint64) *Shard { return &d.Shards[d.hashIndex(point)] }

// hashIndex finds the last shard whose Low is not after the point. Hash bounds are at most eight bytes,
// zero-padded on the right, so the prefix decides.
func (d *Distribution) hashIndex(point uint64) int {
	slot := point >> d.slotShift
	base, last := int(d.starts[slot]), int(d.starts[slot+1])
	// The first Low is the lowest point, so prefixes[base] <= point holds throughout.
	for n := last - base + 1; n > 1; {
		half := n / 2
		if d.prefixes[base+half] <= point {
			base += half
		}
		n -= half
	}
	return base
}

// Find returns the index of the shard that holds a point; it allocates nothing.
func (d *Distribution) Find(point []byte) int {
	p := prefix(point)
	last := d.hashIndex(p)
	if d.prefixes[last] < p {
		return last
	}
	// All shards that begin with these eight bytes are candidates, and the one before them.
	first := sort.Search(last, func(i int) bool { return d.prefixes[i] >= p })
	after := first + sort.Search(last+1-first, func(i int) bool { return bytes.Compare(d.Shards[first+i].Low, point) > 0 })
	return max(0, after-1)
}

// prefix returns the first eight bytes as a number, missing ones as zeros.
func prefix(b []byte) uint64 {
	var p uint64
	for i := range 8 {
		p <<= 8
		if i < len(b) {
			p |= uint64(b[i])
		}
	}
	return p
}

// bound writes a hash point as a shard's bound: big-endian, without zero bytes at the end, so that a point
// has one spelling and the start of the space is the empty string.
func bound(point uint64) []byte {
	b := make([]byte, 0, 8)
	for ; point != 0; point <<= 8 {
		b = append(b, byte(point>>56))
	}
	return b
}
