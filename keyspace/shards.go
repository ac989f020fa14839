package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"math/bits"
	"slices"
)

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

// SplitShard cuts a shard in two at a bound inside it (see ParseBound). The upper part is a new shard on the same node.
func (m *Map) SplitShard(id uint32, at []byte) (*Map, error) {
	d, i, err := m.Shard(id)
	if err != nil {
		return nil, err
	}
	if at, err = d.bound(at); err != nil {
		return nil, err
	}
	low, high := d.Interval(i)
	if at == nil || bytes.Compare(at, low) <= 0 || high != nil && bytes.Compare(at, high) >= 0 {
		return nil, fmt.Errorf("%s is not inside shard %d, which goes from %s to %s",
			d.name(at, "the end"), id, d.name(low, ""), d.name(high, "the end"))
	}
	return m.editShards(d, func(next *Map, shards []Shard) []Shard {
		return cut(next, shards, i, at)
	}), nil
}

// bound returns the one spelling of a bound that somebody names, in memory of its own.
func (d *Distribution) bound(b []byte) ([]byte, error) {
	c, err := d.canonical(b)
	if err != nil {
		return nil, fmt.Errorf("%x cannot be a bound: %w", b, err)
	}
	return slices.Clone(c), nil
}

// name writes a bound in a message.
func (d *Distribution) name(b []byte, ifNil string) string {
	switch {
	case b == nil && ifNil != "":
		return ifNil
	case len(b) == 0:
		return "the start"
	}
	return d.FormatBound(b)
}

// cut begins a new shard at a place inside shards[i].
func cut(next *Map, shards []Shard, i int, at []byte) []Shard {
	next.LastShard++
	return slices.Insert(shards, i+1, Shard{ID: next.LastShard, Low: at, Node: shards[i].Node})
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
	if d.Region(i) != d.Region(j) {
		return nil, fmt.Errorf("shard %d is of region %q and shard %d of region %q", a, d.Region(i), b, d.Region(j))
	}
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
	if region := d.Region(i); d.isList() && n.Region != region {
		return nil, fmt.Errorf("shard %d is of region %q, and node %q is in %s", id, region, node, regionText(n.Region))
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
	shared, first, width, err := d.evenSpace(i)
	if err != nil {
		return nil, err
	}
	if n < 2 || n > MaxShards || width != 0 && uint64(n) > width {
		return nil, fmt.Errorf("shard %d cannot be cut into %d parts", id, n)
	}
	bounds := make([][]byte, n)
	for part := 1; part < n; part++ {
		high, low := bits.Mul64(width, uint64(part))
		if width == 0 {
			high = uint64(part)
		}
		offset, _ := bits.Div64(high, low, uint64(n))
		if bounds[part], err = d.bound(AppendEntry(slices.Clone(shared), first+offset)); err != nil {
			return nil, err
		}
	}
	return m.editShards(d, func(next *Map, shards []Shard) []Shard {
		for part := n - 1; part > 0; part-- {
			shards = cut(next, shards, i, bounds[part])
		}
		return shards
	}), nil
}

// evenSpace finds the hashes or entries that a shard consists of: what its points have in common before them, the first
// one and their number, where 0 stands for all of them.
func (d *Distribution) evenSpace(i int) (shared []byte, first, width uint64, err error) {
	low, high := d.Interval(i)
	pieces := d.pieces()
	if d.isList() && len(low) == 0 {
		low = pieces[0].ceiling(nil)
	}
	open := high == nil
	for k := range pieces {
		rest := low[len(shared):]
		if p := &pieces[k]; p.Method != Range && p.Method != List {
			first = prefix(rest[:min(len(rest), entrySize)])
			if open {
				return shared, first, -first, nil
			}
			if width = prefix(high[len(shared):]) - first; width > 0 {
				return shared, first, width, nil
			}
			// The bounds differ in a later component.
		}
		size := pieces[k].whole(rest)
		if size == 0 {
			break
		}
		shared = low[:len(shared)+size]
		if open || bytes.HasPrefix(high, shared) {
			continue
		}
		after, err := d.canonical(After(shared))
		if err != nil || !bytes.Equal(after, high) {
			break
		}
		open = true // up to the end of what begins with shared
	}
	return nil, 0, 0, fmt.Errorf("shard %d is no interval of hashes: it is split at a value", d.Shards[i].ID)
}

// Isolate gives the keys whose points begin with a prefix, the encoding of leading components, a shard of their own
// on the node where they are, and returns that shard.
func (m *Map) Isolate(distribution uint32, prefix []byte) (*Map, Shard, error) {
	d := m.Distribution(distribution)
	if d == nil {
		return nil, Shard{}, fmt.Errorf("distribution %d: %w", distribution, ErrNotFound)
	}
	low, high, err := d.prefixInterval(prefix)
	if err != nil {
		return nil, Shard{}, err
	}
	i := d.Find(low)
	from, to := d.Interval(i)
	startsHere, endsHere := bytes.Equal(low, from), bytes.Equal(high, to) && (high == nil) == (to == nil)
	if startsHere && endsHere {
		return nil, Shard{}, fmt.Errorf("the keys from %s on already have a shard of their own, shard %d", d.name(low, ""), d.Shards[i].ID)
	}
	if to != nil && (high == nil || bytes.Compare(high, to) > 0) {
		return nil, Shard{}, fmt.Errorf("the keys from %s up to %s are in several shards; merge them first",
			d.name(low, ""), d.name(high, "the end"))
	}
	if !startsHere {
		i++ // where their shard will be
	}
	next := m.editShards(d, func(next *Map, shards []Shard) []Shard {
		if !startsHere {
			shards = cut(next, shards, i-1, low)
		}
		if !endsHere {
			shards = cut(next, shards, i, high)
		}
		return shards
	})
	return next, next.Distribution(d.ID).Shards[i], nil
}

// prefixInterval returns the bounds of all points that begin with whole components.
func (d *Distribution) prefixInterval(prefix []byte) (low, high []byte, err error) {
	pieces := d.pieces()
	rest, n := prefix, 0
	for ; len(rest) > 0; n++ {
		size := 0
		if n < len(pieces) {
			size = pieces[n].whole(rest)
		}
		if size == 0 {
			return nil, nil, fmt.Errorf("%x is no prefix of a point: %w", prefix, errNotWhole)
		}
		rest = rest[size:]
	}
	if n == 0 {
		return nil, nil, errors.New("a prefix of a point has at least one component")
	}
	if low, err = d.bound(prefix); err != nil {
		return nil, nil, err
	}
	high, err = d.bound(After(prefix))
	return low, high, err
}

func (d *Distribution) isList() bool { return d.Dimensions[0].Method == List }

// Region returns the name of the region that a list's shard is in, "" for other strategies. A node that holds the shard
// is in that region.
func (d *Distribution) Region(index int) string {
	if !d.isList() {
		return ""
	}
	p := &d.pieces()[0]
	low := d.Shards[index].Low
	if len(low) < regionSize {
		return p.regions[0].Name
	}
	return p.region(low).Name
}

func regionText(region string) string {
	if region == "" {
		return "no region"
	}
	return fmt.Sprintf("region %q", region)
}
