package placement

// bound is consistent hashing with bounded loads (Mirrokni, Thorup, Zadimoghaddam): a shard goes clockwise from its
// point on the ring to the first node where it fits, that is, where the node stays within Factor times
// its fair part.
//
// Bound, proven by the tests. Let c be the Factor, f a node's fair part, and one measure be known (sizes, or loads,
// or only the number of shards). A node holds at most c*f while every shard fits somewhere, which equal
// shards do when c*f allows each node at least its rounded-up part; else it holds less than c*f plus one shard.
// With sizes and loads both given, each is kept under c*f the same way while shards fit; a shard that fits
// nowhere goes to the node that is filled least, so a node holds at most max(c, 2)*f plus one shard.
//
// A shard that is bound to a region can only overflow within it. There the fair part is that of the region's
// shards on the region's nodes, and what is left to the shards without a region is filled up evenly.
func (p *problem) bound() {
	w := newWeighing(p, 0)
	for _, g := range p.groups {
		r := newRing(p.nodes, g.candidates, p.cfg.VirtualNodes)
		limit := w.limits(g, p.cfg.Factor)
		for _, i := range byHash(p, g.members) {
			at := p.firstFit(r, w, limit, i)
			if at < 0 {
				at = w.coolest(g.candidates)
			}
			p.owner[i] = at
			w.add(i, at)
		}
	}
}

// firstFit walks the ring from the shard's point on, and remembers the first node that is not yet full for the case
// that the shard fits nowhere.
func (p *problem) firstFit(r *ring, w *weighing, limit [][]float64, shard int32) int32 {
	const rounding = 1e-9
	start := r.find(hashShard(p.shards[shard].ID))
	notFull := int32(-1)
	for step := range r.points {
		node := r.nodes[(start+step)%len(r.points)]
		fits, free := true, true
		for d, cost := range w.cost {
			used := w.used[d][node]
			fits = fits && used+cost[shard] <= limit[d][node]*(1+rounding)
			free = free && used < limit[d][node]
		}
		if fits {
			return node
		}
		if free && notFull < 0 {
			notFull = node
		}
	}
	return notFull
}

// limits returns how much of each measure a node may hold when the group has been placed.
func (w *weighing) limits(g group, factor float64) [][]float64 {
	limits := make([][]float64, len(w.cost))
	for d := range w.cost {
		level := fillLevel(w.used[d], w.share, g.candidates, w.total(d, g))
		limits[d] = make([]float64, len(w.share))
		for _, node := range g.candidates {
			limits[d][node] = max(w.used[d][node], factor*level*w.share[node])
		}
	}
	return limits
}
