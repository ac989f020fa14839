package keyspace

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Validate reports the first way in which the map contradicts itself. A map made by edits never does;
// a map that was read from elsewhere is validated before it is used.
func (m *Map) Validate() error {
	if m.Cluster == "" {
		return errors.New("the map names no cluster")
	}
	if m.Epoch == 0 {
		return errors.New("the map has no epoch")
	}
	if err := m.validateNodes(); err != nil {
		return err
	}
	shards := make(map[uint32]bool)
	distributions := make(map[uint32]bool)
	for _, d := range m.Distributions {
		if d == nil {
			return errors.New("a distribution is null")
		}
		if err := d.validate(m); err != nil {
			return err
		}
		if distributions[d.ID] {
			return fmt.Errorf("distribution %d is there twice", d.ID)
		}
		distributions[d.ID] = true
		for i := range d.Shards {
			id := d.Shards[i].ID
			if shards[id] {
				return fmt.Errorf("shard %d is there twice", id)
			}
			shards[id] = true
		}
	}
	fences := make(map[string]bool)
	for _, f := range m.Fences {
		if err := f.validate(); err != nil {
			return err
		}
		if fences[f.ID] {
			return fmt.Errorf("fence %q is there twice", f.ID)
		}
		fences[f.ID] = true
	}
	return nil
}

func (m *Map) validateNodes() error {
	ids := make(map[int]bool)
	for i, n := range m.Nodes {
		if err := n.validate(); err != nil {
			return err
		}
		if i > 0 && m.Nodes[i-1].Name >= n.Name {
			return fmt.Errorf("node %q does not follow node %q in order of names", n.Name, m.Nodes[i-1].Name)
		}
		if n.ID > m.LastNode {
			return fmt.Errorf("node %q has id %d, higher than the last one given, %d", n.Name, n.ID, m.LastNode)
		}
		if ids[n.ID] {
			return fmt.Errorf("node %q shares id %d with another node", n.Name, n.ID)
		}
		ids[n.ID] = true
	}
	if m.Home == "" && len(m.Nodes) == 0 {
		return nil
	}
	if _, err := m.Node(m.Home); err != nil {
		return fmt.Errorf("home node: %w", err)
	}
	return nil
}

func (n Node) validate() error {
	switch {
	case n.Name == "":
		return errors.New("a node needs a name")
	case n.ID < 0 || n.ID > MaxNodeID:
		return fmt.Errorf("node %q has id %d; ids go from 0 to %d and are not used again", n.Name, n.ID, MaxNodeID)
	case len(n.Addresses) == 0:
		return fmt.Errorf("node %q needs an address", n.Name)
	case !(n.Weight > 0) || math.IsInf(n.Weight, 1):
		return fmt.Errorf("node %q has weight %v; a weight is a positive number", n.Name, n.Weight)
	}
	switch n.State {
	case NodeJoining, NodeActive, NodeDraining:
		return nil
	}
	return fmt.Errorf("node %q has state %q; a node is joining, active or draining", n.Name, n.State)
}

func (f Fence) validate() error {
	if f.ID == "" || f.Database == "" {
		return errors.New("a fence needs an id and a database")
	}
	return nil
}

// validate checks the distribution against the nodes and counters of the map it is in.
func (d *Distribution) validate(m *Map) error {
	switch {
	case d.ID == 0 || d.ID > m.LastDistribution:
		return fmt.Errorf("distribution %d is outside the ids given, 1 to %d", d.ID, m.LastDistribution)
	case d.Database == "":
		return fmt.Errorf("distribution %d names no database", d.ID)
	case len(d.Shards) == 0 || len(d.Shards[0].Low) != 0:
		return fmt.Errorf("distribution %d has no shard at the start of its space", d.ID)
	}
	if err := d.Key.validate(); err != nil {
		return fmt.Errorf("distribution %d has %w", d.ID, err)
	}
	nodes := make(map[string]*Node, len(m.Nodes))
	for i := range m.Nodes {
		nodes[m.Nodes[i].Name] = &m.Nodes[i]
	}
	for i := range d.Shards {
		if err := d.validateShard(i, m, nodes); err != nil {
			return err
		}
	}
	return d.validateRegions()
}

// validateRegions makes sure that no shard goes beyond its region.
func (d *Distribution) validateRegions() error {
	if !d.isList() {
		return nil
	}
	for _, r := range d.pieces()[0].regions[1:] {
		border := binary.BigEndian.AppendUint16(nil, r.ID)
		if _, found := slices.BinarySearchFunc(d.Shards, border, func(s Shard, b []byte) int { return bytes.Compare(s.Low, b) }); !found {
			return fmt.Errorf("distribution %d has no shard that begins with region %q", d.ID, r.Name)
		}
	}
	return nil
}

func (d *Distribution) validateShard(i int, m *Map, nodes map[string]*Node) error {
	s := &d.Shards[i]
	node := nodes[s.Node]
	low, err := d.canonical(s.Low)
	switch {
	case s.ID == 0 || s.ID > m.LastShard:
		return fmt.Errorf("shard %d is outside the ids given, 1 to %d", s.ID, m.LastShard)
	case node == nil:
		return fmt.Errorf("shard %d is on node %q, which is not in the map", s.ID, s.Node)
	case node.State == NodeJoining:
		return fmt.Errorf("shard %d is on node %q, which is still joining", s.ID, s.Node)
	case err != nil:
		return fmt.Errorf("shard %d begins at %x: %w", s.ID, s.Low, err)
	case !bytes.Equal(low, s.Low):
		return fmt.Errorf("shard %d begins at %x, which is written %x", s.ID, s.Low, low)
	case i > 0 && bytes.Compare(d.Shards[i-1].Low, s.Low) >= 0:
		return fmt.Errorf("shard %d begins at %x, not after the shard before it", s.ID, s.Low)
	case d.isList() && node.Region != d.Region(i):
		return fmt.Errorf("shard %d of region %q is on node %q, which is in %s", s.ID, d.Region(i), s.Node, regionText(node.Region))
	}
	return nil
}
