package placement

import (
	"math"
	"slices"
)

// newRendezvous gives a shard to the node with the highest score, where the score -weight/ln(u) comes from a number
// u between 0 and 1 that is hashed from shard and node together. A node wins with the probability weight/sum of
// weights, independently for each shard.
//
// When a node joins, shards move only to it, and when one leaves, only its own move: exactly its fair part f in
// expectation. Bound, proven by the tests: no node holds more than f*S + 8*sqrt(f*S) + 8 of S shards.
func newRendezvous(nodes []Node, candidates []int32) picker {
	// By weight, so that a class of equal weights needs one comparison of integers per node.
	order := slices.Clone(candidates)
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case nodes[a].Weight > nodes[b].Weight:
			return -1
		case nodes[a].Weight < nodes[b].Weight:
			return 1
		}
		return 0
	})
	salts := make([]uint64, len(order))
	for i, node := range order {
		salts[i] = hashName(nodes[node].Name, 0)
	}
	var ends []int // of each class
	for i := range order {
		if i+1 == len(order) || nodes[order[i+1]].Weight != nodes[order[i]].Weight {
			ends = append(ends, i+1)
		}
	}
	return func(hash uint64) int32 {
		best, bestScore, start := int32(-1), 0.0, 0
		for _, end := range ends {
			top, at := highest(hash, salts[start:end])
			u := (float64(top>>11) + 0.5) / (1 << 53)
			node := order[start+at]
			if score := -nodes[node].Weight / math.Log(u); best < 0 || score > bestScore {
				best, bestScore = node, score
			}
			start = end
		}
		return best
	}
}

// highest finds the winner among nodes of one weight, where the highest hash has the highest score.
func highest(hash uint64, salts []uint64) (top uint64, at int) {
	for i, salt := range salts {
		if h := mix(hash ^ salt); h > top {
			top, at = h, i
		}
	}
	return top, at
}
