package keyspace

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

const (
	// MaxShards is the most shards one distribution may be created with.
	MaxShards = 1 << 16
	// MaxNodeID is the highest node id: sequences have 2^15 blocks of 2^48 values.
	MaxNodeID = 1<<15 - 1
)

// NewMap returns the map of a new cluster: epoch 1 and nothing in it.
func NewMap(cluster string) *Map { return &Map{Epoch: 1, Cluster: cluster} }

// edited returns a copy that may be changed at its top level; what it points to is shared with m.
func (m *Map) edited() *Map {
	next := *m
	next.Epoch++
	next.Nodes = slices.Clone(m.Nodes)
	next.Distributions = slices.Clone(m.Distributions)
	next.Fences = slices.Clone(m.Fences)
	next.Schemas = maps.Clone(m.Schemas)
	return &next
}

// AddNode adds a node and gives it its id; the first node is the home node. Without a state it is joining,
// without a weight it weighs 1.
func (m *Map) AddNode(n Node) (*Map, error) {
	i, taken := m.nodeIndex(n.Name)
	if taken {
		return nil, fmt.Errorf("there is already a node %q", n.Name)
	}
	if n.State == "" {
		n.State = NodeJoining
	}
	if n.Weight == 0 {
		n.Weight = 1
	}
	next := m.edited()
	if m.Home == "" {
		next.Home, next.LastNode = n.Name, 0
	} else {
		next.LastNode++
	}
	n.ID = next.LastNode
	n.Addresses = slices.Clone(n.Addresses)
	if err := n.validate(); err != nil {
		return nil, err
	}
	next.Nodes = slices.Insert(next.Nodes, i, n)
	return next, nil
}

// SetNodeState changes what a node may be used for.
func (m *Map) SetNodeState(name string, state NodeState) (*Map, error) {
	return m.editNode(name, func(n *Node) error {
		if state == NodeJoining && n.State != NodeJoining {
			return fmt.Errorf("node %q has joined; it can be active or draining", name)
		}
		n.State = state
		return nil
	})
}

// SetNodeAddresses changes where a node is reached.
func (m *Map) SetNodeAddresses(name string, addresses []string) (*Map, error) {
	return m.editNode(name, func(n *Node) error {
		n.Addresses = slices.Clone(addresses)
		return nil
	})
}

func (m *Map) editNode(name string, edit func(*Node) error) (*Map, error) {
	i, ok := m.nodeIndex(name)
	if !ok {
		return nil, fmt.Errorf("node %q: %w", name, ErrNotFound)
	}
	next := m.edited()
	if err := edit(&next.Nodes[i]); err != nil {
		return nil, err
	}
	if err := next.Nodes[i].validate(); err != nil {
		return nil, err
	}
	return next, nil
}

// Layout says into which shards a new distribution is cut.
type Layout struct {
	// Shards is how many equal intervals of hashes or entries there are; a list has that many in each region.
	Shards int
	// SplitAt are the bounds between the shards of a key that begins with a range, in order.
	SplitAt [][]byte
}

// CreateDistribution adds a distribution. Each active node gets one run of neighbouring shards, as long as its
// weight says, so that a node's rows are few intervals.
func (m *Map) CreateDistribution(database string, key Key, layout Layout) (*Map, *Distribution, error) {
	shardCount := layout.Shards
	if len(layout.SplitAt) != 0 {
		return nil, nil, errors.New("a hash distribution is cut into equal intervals, not at given points")
	}
	if shardCount < 1 || shardCount > MaxShards {
		return nil, nil, fmt.Errorf("a distribution has between 1 and %d shards, not %d", MaxShards, shardCount)
	}
	nodes := m.nodesByLoad()
	if len(nodes) == 0 {
		return nil, nil, errors.New("no node is active, so there is none to hold the shards")
	}
	next := m.edited()
	next.LastDistribution++
	d := &Distribution{
		ID: next.LastDistribution, Database: database, Key: key,
		Shards: make([]Shard, shardCount),
	}
	owners := runs(nodes, shardCount)
	for i := range d.Shards {
		next.LastShard++
		low, _ := bits.Div64(uint64(i), 0, uint64(shardCount)) // i * 2^64 / shardCount
		d.Shards[i] = Shard{ID: next.LastShard, Low: bound(low), Node: owners[i]}
	}
	if err := d.validate(next); err != nil {
		return nil, nil, err
	}
	d.Index()
	next.Distributions = append(next.Distributions, d)
	return next, d, nil
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

// DropDistribution removes a distribution that no table uses any more.
func (m *Map) DropDistribution(id uint32) (*Map, error) {
	i := m.distributionIndex(id)
	if i < 0 {
		return nil, fmt.Errorf("distribution %d: %w", id, ErrNotFound)
	}
	next := m.edited()
	next.Distributions = slices.Delete(next.Distributions, i, i+1)
	return next, nil
}

// editShards replaces the shards of a distribution by what edit makes of a copy of them.
func (m *Map) editShards(d *Distribution, edit func(next *Map, shards []Shard) []Shard) *Map {
	next := m.edited()
	changed := *d
	changed.Shards = edit(next, slices.Clone(d.Shards))
	changed.Index()
	next.Distributions[m.distributionIndex(d.ID)] = &changed
	return next
}

// SplitShard cuts a shard in two at a point inside it. The upper part is a new shard on the same node.
func (m *Map) SplitShard(id uint32, at []byte) (*Map, error) {
	d, i, err := m.Shard(id)
	if err != nil {
		return nil, err
	}
	if len(at) > 8 {
		return nil, fmt.Errorf("a hash point has 8 bytes, not %d", len(at))
	}
	point := prefix(at)
	low, high := d.Interval(i)
	if point <= prefix(low) || high != nil && point >= prefix(high) {
		return nil, fmt.Errorf("point %x is not inside shard %d, which goes from %x to %s", at, id, low, upperName(high))
	}
	return m.editShards(d, func(next *Map, shards []Shard) []Shard {
		return cut(next, shards, i, point)
	}), nil
}

// cut begins a new shard at a point inside shards[i].
func cut(next *Map, shards []Shard, i int, point uint64) []Shard {
	next.LastShard++
	return slices.Insert(shards, i+1, Shard{ID: next.LastShard, Low: bound(point), Node: shards[i].Node})
}

func upperName(high []byte) string {
	if high == nil {
		return "the end"
	}
	return fmt.Sprintf("%x", high)
}

// MergeShards joins two neighbouring shards on one node. The lower one's id stays, whichever is named first.
func (m *Map) MergeShards(a, b uint32) (*Map, error) {
	d, i, err := m.Shard(a)
	if err != nil {
		return nil, err
	}
	other, j, err := m.Shard(b)
	if err != nil {
		return nil, err
	}
	if d != other || i != j+1 && j != i+1 {
		return nil, fmt.Errorf("shards %d and %d are not neighbours", a, b)
	}
	if d.Shards[i].Node != d.Shards[j].Node {
		return nil, fmt.Errorf("shard %d is on node %q and shard %d on node %q; move one of them first",
			a, d.Shards[i].Node, b, d.Shards[j].Node)
	}
	upper := max(i, j)
	return m.editShards(d, func(_ *Map, shards []Shard) []Shard {
		return slices.Delete(shards, upper, upper+1)
	}), nil
}

// MoveShard makes an active node the owner of a shard.
func (m *Map) MoveShard(id uint32, node string) (*Map, error) {
	d, i, err := m.Shard(id)
	if err != nil {
		return nil, err
	}
	n, err := m.Node(node)
	if err != nil {
		return nil, err
	}
	if n.State != NodeActive {
		return nil, fmt.Errorf("node %q is %s, so it gets no shards", node, n.State)
	}
	if d.Shards[i].Node == node {
		return nil, fmt.Errorf("shard %d is already on node %q", id, node)
	}
	return m.editShards(d, func(_ *Map, shards []Shard) []Shard {
		shards[i].Node = node
		return shards
	}), nil
}

// SplitParts cuts a shard into n equal intervals of hashes or entries, all on its node.
func (m *Map) SplitParts(id uint32, n int) (*Map, error) {
	d, i, err := m.Shard(id)
	if err != nil {
		return nil, err
	}
	low, high := d.Interval(i)
	first := prefix(low)
	width := prefix(high) - first // 0 is the whole space
	if n < 2 || n > MaxShards || width != 0 && uint64(n) > width {
		return nil, fmt.Errorf("shard %d cannot be cut into %d parts", id, n)
	}
	return m.editShards(d, func(next *Map, shards []Shard) []Shard {
		for part := n - 1; part > 0; part-- {
			high, low := bits.Mul64(width, uint64(part))
			if width == 0 {
				high = uint64(part)
			}
			offset, _ := bits.Div64(high, low, uint64(n))
			shards = cut(next, shards, i, first+offset)
		}
		return shards
	}), nil
}

// Isolate gives the keys whose points begin with a prefix, the encoding of leading components, a shard of their own
// on the node where they are, and returns that shard.
func (m *Map) Isolate(distribution uint32, prefix []byte) (*Map, Shard, error) {
	d := m.Distribution(distribution)
	if d == nil {
		return nil, Shard{}, fmt.Errorf("distribution %d: %w", distribution, ErrNotFound)
	}
	if len(prefix) != 8 {
		return nil, Shard{}, fmt.Errorf("a hash point has 8 bytes, not %d", len(prefix))
	}
	return m.isolate(d, binary.BigEndian.Uint64(prefix))
}

func (m *Map) isolate(d *Distribution, point uint64) (*Map, Shard, error) {
	i := d.hashIndex(point)
	low, high := d.Interval(i)
	startsHere := prefix(low) == point
	endsHere := point+1 == 0 || high != nil && prefix(high) == point+1
	if startsHere && endsHere {
		return nil, Shard{}, fmt.Errorf("point %x already has a shard of its own, shard %d", bound(point), d.Shards[i].ID)
	}
	if !startsHere {
		i++ // where the point's shard will be
	}
	next := m.editShards(d, func(next *Map, shards []Shard) []Shard {
		if !startsHere {
			shards = cut(next, shards, i-1, point)
		}
		if !endsHere {
			shards = cut(next, shards, i, point+1)
		}
		return shards
	})
	return next, next.Distribution(d.ID).Shards[i], nil
}

// BumpSchema records that the schema of a database has changed.
func (m *Map) BumpSchema(database string) (*Map, error) {
	if database == "" {
		return nil, errors.New("a schema version belongs to a database, and none is named")
	}
	next := m.edited()
	if next.Schemas == nil {
		next.Schemas = make(map[string]uint64)
	}
	next.Schemas[database]++
	return next, nil
}

// AddFence holds statements back from the fence's tables.
func (m *Map) AddFence(f Fence) (*Map, error) {
	if err := f.validate(); err != nil {
		return nil, err
	}
	if m.fenceIndex(f.ID) >= 0 {
		return nil, fmt.Errorf("there is already a fence %q", f.ID)
	}
	next := m.edited()
	f.Tables = slices.Clone(f.Tables)
	next.Fences = append(next.Fences, f)
	return next, nil
}

// RemoveFence lets statements go on.
func (m *Map) RemoveFence(id string) (*Map, error) {
	i := m.fenceIndex(id)
	if i < 0 {
		return nil, fmt.Errorf("fence %q: %w", id, ErrNotFound)
	}
	next := m.edited()
	next.Fences = slices.Delete(next.Fences, i, i+1)
	if len(next.Fences) == 0 {
		next.Fences = nil // as it is read back
	}
	return next, nil
}

func (m *Map) fenceIndex(id string) int {
	return slices.IndexFunc(m.Fences, func(f Fence) bool { return f.ID == id })
}
