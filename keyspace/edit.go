package keyspace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
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

// SetNodeRegion labels a node with a region. A node that holds shards of a region keeps it.
func (m *Map) SetNodeRegion(name, region string) (*Map, error) {
	next, err := m.editNode(name, func(n *Node) error {
		n.Region = region
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, d := range next.Distributions {
		if err := d.validate(next); err != nil {
			return nil, fmt.Errorf("node %q cannot be in region %q: %w", name, region, err)
		}
	}
	return next, nil
}

// SetNodeWeight changes a node's share of new shards.
func (m *Map) SetNodeWeight(name string, weight float64) (*Map, error) {
	return m.editNode(name, func(n *Node) error {
		n.Weight = weight
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
