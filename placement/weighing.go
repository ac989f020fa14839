package placement

import (
	"cmp"
	"slices"
)

// weighing keeps account of how much nodes hold. All numbers are parts of the whole, so that size and load compare.
type weighing struct {
	// cost is what each shard adds, by measure: size, and load if any shard has one.
	cost [][]float64
	used [][]float64 // by measure and node
	// share is a node's part of the weights, 0 for nodes that get nothing.
	share []float64
	// fair is what a node holds, by measure, when all are filled as evenly as the shards' regions allow. Without
	// regions it is the share.
	fair [][]float64
}

// newWeighing adds to each shard the given part of an average one. That lets empty shards count for something.
func newWeighing(p *problem, floor float64) *weighing {
	w := &weighing{share: make([]float64, len(p.nodes))}
	total := 0.0
	for _, i := range p.candidates("") {
		total += p.nodes[i].Weight
	}
	for i, n := range p.nodes {
		if n.receives() {
			w.share[i] = n.Weight / total
		}
	}
	sizes := w.measure(p, floor, func(s Shard) float64 { return float64(s.Size) })
	loads := w.measure(p, floor, func(s Shard) float64 { return s.Load })
	switch {
	case sizes == nil && loads == nil:
		w.cost = [][]float64{w.measure(p, 0, func(Shard) float64 { return 1 })}
	case sizes == nil:
		w.cost = [][]float64{loads}
	case loads == nil:
		w.cost = [][]float64{sizes}
	default:
		w.cost = [][]float64{sizes, loads}
	}
	w.used = make([][]float64, len(w.cost))
	for d := range w.used {
		w.used[d] = make([]float64, len(p.nodes))
		w.fair = append(w.fair, w.fairParts(p, d))
	}
	return w
}

// fairParts pours the shards of each region over its nodes, and then those without a region over all.
func (w *weighing) fairParts(p *problem, d int) []float64 {
	const almostNothing = 1e-15 // for nodes that no shard may be placed on, because levels are quotients
	fair := make([]float64, len(p.nodes))
	for _, g := range p.groups {
		level := fillLevel(fair, w.share, g.candidates, w.total(d, g))
		for _, node := range g.candidates {
			fair[node] = max(fair[node], level*w.share[node])
		}
	}
	for node := range fair {
		fair[node] = max(fair[node], almostNothing)
	}
	return fair
}

func (w *weighing) total(d int, g group) float64 {
	total := 0.0
	for _, i := range g.members {
		total += w.cost[d][i]
	}
	return total
}

// fillLevel is how high the candidates are filled, as a multiple of their shares, when the total is poured over what
// they hold already.
func fillLevel(held, share []float64, candidates []int32, total float64) float64 {
	byLevel := slices.Clone(candidates)
	slices.SortStableFunc(byLevel, func(a, b int32) int { return cmp.Compare(held[a]/share[a], held[b]/share[b]) })
	sumHeld, sumShare := 0.0, 0.0
	for i, node := range byLevel {
		sumHeld, sumShare = sumHeld+held[node], sumShare+share[node]
		level := (total + sumHeld) / sumShare
		if i+1 == len(byLevel) || level <= held[byLevel[i+1]]/share[byLevel[i+1]] {
			return level
		}
	}
	return 0
}

// measure returns nil when no shard has any of it. Sums are made in the order of shard IDs, so that rounding does not
// depend on the order of the input.
func (w *weighing) measure(p *problem, floor float64, of func(Shard) float64) []float64 {
	total := 0.0
	for _, g := range p.groups {
		for _, i := range g.members {
			total += of(p.shards[i])
		}
	}
	if total == 0 {
		return nil
	}
	least := floor * total / float64(len(p.shards))
	total *= 1 + floor
	cost := make([]float64, len(p.shards))
	for i, s := range p.shards {
		cost[i] = (of(s) + least) / total
	}
	return cost
}

func (w *weighing) add(shard, node int32) {
	for d, cost := range w.cost {
		w.used[d][node] += cost[shard]
	}
}

func (w *weighing) remove(shard, node int32) {
	for d, cost := range w.cost {
		w.used[d][node] -= cost[shard]
	}
}

// largest is the shard's cost in the measure in which it is largest.
func (w *weighing) largest(shard int32) float64 {
	top := 0.0
	for _, cost := range w.cost {
		top = max(top, cost[shard])
	}
	return top
}

// level is how full a node is, as a multiple of its fair part, in the measure in which it is fullest.
func (w *weighing) level(node int32) float64 {
	top := 0.0
	for d := range w.used {
		top = max(top, w.used[d][node]/w.fair[d][node])
	}
	return top
}

// levelWith is the level if the node also held the shard.
func (w *weighing) levelWith(node, shard int32) float64 {
	top := 0.0
	for d := range w.used {
		top = max(top, (w.used[d][node]+w.cost[d][shard])/w.fair[d][node])
	}
	return top
}

func (w *weighing) coolest(candidates []int32) int32 {
	best := candidates[0]
	for _, node := range candidates[1:] {
		if w.level(node) < w.level(best) {
			best = node
		}
	}
	return best
}

// least is the shard's cost in the measure in which it is smallest.
func (w *weighing) least(shard int32) float64 {
	bottom := w.cost[0][shard]
	for _, cost := range w.cost[1:] {
		bottom = min(bottom, cost[shard])
	}
	return bottom
}

// byHash returns shards in an order that has nothing to do with their neighbourhood.
func byHash(p *problem, shards []int32) []int32 {
	sorted := slices.Clone(shards)
	slices.SortFunc(sorted, func(a, b int32) int {
		return cmp.Compare(hashShard(p.shards[a].ID), hashShard(p.shards[b].ID))
	})
	return sorted
}
