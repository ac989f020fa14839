package placement

import (
	"cmp"
	"slices"
)

// emptyShard is how much of an average shard an empty one counts. Without it all empty shards would go to one node.
const emptyShard = 0.01

// balance leaves shards where they are, places those that have no node or must leave theirs, the largest first, on the
// node that is filled least, and then moves shards from the fullest nodes to the emptiest until all are
// within Slack of their fair part, or no move helps.
//
// A node's level is what it holds divided by its fair part, in the measure (size or load) in which it is highest; an
// average node has 1. Bound, proven by the tests for shards without a region: when D measures are given, the level of
// every node is at most max(1+Slack, D + s), where s is the largest shard's part of the whole divided by the smallest
// node's fair part. For one measure that is: at most one shard too much. The reason: some node always has a level of
// at most D, because the levels' weighted mean is at most that in sum over measures; and as long as a shard of the
// node looked at would fit there below that node's level, it is moved.
//
// Every move lowers the sorted list of levels, so there is an end.
func (p *problem) balance() {
	b := &balancer{problem: p, weighing: newWeighing(p, emptyShard), held: make([][]int32, len(p.nodes))}
	b.stuck, b.free, b.inOrder = make([]bool, len(p.nodes)), make([]int, len(p.nodes)), p.candidates("")
	for _, g := range p.groups {
		for _, i := range g.members {
			if p.mayStay(i) {
				b.give(i, p.current[i])
			}
		}
	}
	for _, g := range p.groups {
		b.placeHomeless(g)
	}
	for _, shards := range b.held {
		slices.SortFunc(shards, b.byLeast)
	}
	for b.even() {
		// Nodes that were stuck may have become free by moves of others.
		clear(b.stuck)
	}
}

type balancer struct {
	*problem
	*weighing
	// held is, by node, its shards. Once all are placed those come first that are large in every measure, because
	// they fill a node evenly.
	held    [][]int32
	inOrder []int32 // nodes that may hold shards, by ID
	stuck   []bool  // by node: no move from it helps
	free    []int   // by node: how many of its shards may leave its region
}

func (b *balancer) give(shard, node int32) {
	b.owner[shard] = node
	b.add(shard, node)
	b.held[node] = append(b.held[node], shard)
	if b.shards[shard].Region == "" {
		b.free[node]++
	}
}

func (b *balancer) placeHomeless(g group) {
	var homeless []int32
	for _, i := range g.members {
		if b.owner[i] < 0 {
			homeless = append(homeless, i)
		}
	}
	slices.SortFunc(homeless, b.byLargest)
	heap := slices.Clone(g.candidates)
	for i := len(heap)/2 - 1; i >= 0; i-- {
		b.sink(heap, i)
	}
	for _, i := range homeless {
		b.give(i, heap[0])
		b.sink(heap, 0)
	}
}

func (b *balancer) byLargest(x, y int32) int {
	return cmp.Or(cmp.Compare(b.largest(y), b.largest(x)), cmp.Compare(b.shards[x].ID, b.shards[y].ID))
}

func (b *balancer) byLeast(x, y int32) int {
	return cmp.Or(cmp.Compare(b.least(y), b.least(x)), cmp.Compare(b.shards[x].ID, b.shards[y].ID))
}

// sink restores the heap of nodes, the emptiest on top, after the level at one place has grown.
func (b *balancer) sink(heap []int32, at int) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(heap); child++ {
			if b.emptier(heap[child], heap[least]) {
				least = child
			}
		}
		if least == at {
			return
		}
		heap[at], heap[least] = heap[least], heap[at]
		at = least
	}
}

func (b *balancer) emptier(a, c int32) bool {
	la, lc := b.level(a), b.level(c)
	return la < lc || la == lc && b.nodes[a].ID < b.nodes[c].ID
}

// even makes moves until no node that is not stuck is too full, and none is too empty. It says whether it made any.
func (b *balancer) even() bool {
	moved := false
	for {
		from, emptiest := b.fullest(), b.emptiest()
		if from < 0 || b.level(from) <= 1+b.cfg.Slack && b.level(emptiest) >= 1-b.cfg.Slack {
			return moved
		}
		if b.relieve(from) {
			moved = true
		} else {
			b.stuck[from] = true
		}
	}
}

func (b *balancer) fullest() int32 {
	best := int32(-1)
	for _, node := range b.inOrder {
		if !b.stuck[node] && (best < 0 || b.level(node) > b.level(best)) {
			best = node
		}
	}
	return best
}

func (b *balancer) emptiest() int32 {
	best := b.inOrder[0]
	for _, node := range b.inOrder[1:] {
		if b.level(node) < b.level(best) {
			best = node
		}
	}
	return best
}

// relieve moves one shard away from a node, to the emptiest node where that helps. Between nodes that are neither too
// full nor too empty nothing is moved.
func (b *balancer) relieve(from int32) bool {
	if len(b.held[from]) == 0 {
		return false
	}
	if to := b.emptiest(); b.wanted(from, to) {
		if at := b.choose(from, to); at >= 0 {
			b.move(from, to, at)
			return true
		}
	}
	targets := slices.DeleteFunc(slices.Clone(b.inOrder), func(to int32) bool { return !b.wanted(from, to) })
	slices.SortStableFunc(targets, func(x, y int32) int { return cmp.Compare(b.level(x), b.level(y)) })
	for _, to := range targets {
		if at := b.choose(from, to); at >= 0 {
			b.move(from, to, at)
			return true
		}
	}
	return false
}

func (b *balancer) wanted(from, to int32) bool {
	level := b.level(from)
	if from == to || b.level(to) >= level || (level <= 1+b.cfg.Slack && b.level(to) >= 1-b.cfg.Slack) {
		return false
	}
	if b.free[from] == 0 && b.nodes[from].Region != b.nodes[to].Region {
		return false
	}
	smallest := b.least(b.held[from][len(b.held[from])-1])
	for d := range b.fair {
		if smallest/b.fair[d][to] < level {
			return true
		}
	}
	return false
}

// choose finds the place in held[from] of the shard to move: the largest that makes neither node too empty nor
// too full, because large shards mean few moves; else the smallest that helps at all.
func (b *balancer) choose(from, to int32) int {
	shards, fullest := b.held[from], 0
	for d := range b.used {
		if b.used[d][from]/b.fair[d][from] > b.used[fullest][from]/b.fair[fullest][from] {
			fullest = d
		}
	}
	spare := b.used[fullest][from] - b.fair[fullest][from]*(1-b.cfg.Slack)
	room := b.fair[0][to] - b.used[0][to]
	for d := range b.used {
		room = min(room, b.fair[d][to]-b.used[d][to])
	}
	first, _ := slices.BinarySearchFunc(shards, room, func(shard int32, room float64) int {
		return cmp.Compare(room, b.least(shard))
	})
	for at := first; at < len(shards); at++ {
		if b.cost[fullest][shards[at]] <= spare && b.fits(shards[at], from, to) {
			return at
		}
	}
	const worthwhile = 1e-9
	limit := b.level(from) * (1 - worthwhile)
	for at := len(shards) - 1; at >= 0; at-- {
		if b.allowed(shards[at], to) && b.levelWith(to, shards[at]) < limit {
			return at
		}
	}
	return -1
}

func (b *balancer) fits(shard, from, to int32) bool {
	return b.allowed(shard, to) && b.levelWith(to, shard) <= min(1, b.level(from)*(1-1e-9))
}

func (b *balancer) allowed(shard, node int32) bool {
	region := b.shards[shard].Region
	return region == "" || b.nodes[node].Region == region
}

func (b *balancer) move(from, to int32, at int) {
	shard := b.held[from][at]
	b.held[from] = slices.Delete(b.held[from], at, at+1)
	place, _ := slices.BinarySearchFunc(b.held[to], shard, b.byLeast)
	b.held[to] = slices.Insert(b.held[to], place, shard)
	b.remove(shard, from)
	b.add(shard, to)
	b.owner[shard] = to
	if b.shards[shard].Region == "" {
		b.free[from]--
		b.free[to]++
	}
	b.touched = append(b.touched, shard)
}
