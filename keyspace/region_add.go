package keyspace

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// AddToRegion makes values of a list live in a region, which becomes one of the list's if it is new. Nothing moves: without
// a default region there are no rows with values that are in no list.
func (m *Map) AddToRegion(distribution uint32, region string, values []string) (*Map, error) {
	d := m.Distribution(distribution)
	switch {
	case d == nil:
		return nil, fmt.Errorf("distribution %d: %w", distribution, ErrNotFound)
	case !d.isList():
		return nil, fmt.Errorf("distribution %d has no regions: it is spread by %s", distribution, d.Strategy())
	case len(values) == 0:
		return nil, fmt.Errorf("no value is given for region %q", region)
	case d.Dimensions[0].Default != "":
		return nil, fmt.Errorf("rows with values that are in no list live in the default region %q, and would have to move", d.Dimensions[0].Default)
	}
	at := slices.IndexFunc(d.Dimensions[0].Regions, func(r Region) bool { return r.Name == region })
	var home *Node
	if at < 0 {
		nodes := slices.DeleteFunc(m.nodesByLoad(), func(n Node) bool { return n.Region != region })
		if len(nodes) == 0 {
			return nil, fmt.Errorf("no active node is in region %q", region)
		}
		home = &nodes[0]
	}
	next := m.editShards(d, func(next *Map, shards []Shard) []Shard {
		if home == nil {
			return shards
		}
		next.LastShard++
		return append(shards, Shard{ID: next.LastShard, Low: binary.BigEndian.AppendUint16(nil, d.newRegion()), Node: home.Name})
	})
	changed := next.Distribution(distribution)
	changed.Dimensions = slices.Clone(d.Dimensions)
	list := &changed.Dimensions[0]
	list.Regions = slices.Clone(list.Regions)
	if home != nil {
		list.Regions, at = append(list.Regions, Region{Name: region, ID: d.newRegion()}), len(list.Regions)
	}
	list.Regions[at].Values = append(slices.Clone(list.Regions[at].Values), values...)
	changed.Index()
	return next, next.Validate()
}

// newRegion is the ID of a region behind all others.
func (d *Distribution) newRegion() uint16 {
	last := uint16(0)
	for _, r := range d.Dimensions[0].Regions {
		last = max(last, r.ID)
	}
	return last + 1
}
