package placement

// newJump is jump consistent hashing (Lamping, Veach): a shard jumps through the numbers 0, 1, 2, ... of the nodes and
// stays at the last one within their count, which needs no memory and O(log n) steps. Numbers whose node may
// not hold the shard (draining, gone, another region) are skipped by jumping again with another hash, so that
// also a node in the middle may leave without moving other nodes' shards.
//
// When a node with a higher ID joins, shards move only to it: 1/(n+1) in expectation. Nodes weigh the same. Bound,
// proven by the tests: of S shards on n nodes no node holds more than S/n + 8*sqrt(S/n) + 8.
func newJump(nodes []Node, candidates []int32) picker {
	highest := 0
	for _, i := range candidates {
		highest = max(highest, nodes[i].ID)
	}
	if highest > 64*len(candidates) {
		// IDs with such holes would cost too many attempts: number the candidates themselves.
		return func(hash uint64) int32 { return candidates[jump(hash, len(candidates))] }
	}
	byID := make([]int32, highest+1)
	for i := range byID {
		byID[i] = -1
	}
	for _, i := range candidates {
		byID[nodes[i].ID] = i
	}
	return func(hash uint64) int32 {
		for attempt := range uint64(10000) {
			if node := byID[jump(mix(hash+attempt*golden), len(byID))]; node >= 0 {
				return node
			}
		}
		// At 64 numbers for each candidate this has a chance of 10^-68.
		return candidates[jump(hash, len(candidates))]
	}
}

// jump follows the published algorithm: after standing at b it goes on to floor((b+1)/r) for a random r in (0, 1].
func jump(key uint64, count int) int {
	at, next := int64(-1), int64(0)
	for next < int64(count) {
		at = next
		key = key*2862933555777941757 + 1
		next = int64(float64(at+1) * (float64(int64(1)<<31) / float64(key>>33+1)))
	}
	return int(at)
}
