package placement

// newMaglev is the lookup table of Google's Maglev: each node has its own permutation of the table's entries, and nodes
// take turns in claiming the next free entry of theirs; a node with half the weight takes half the turns. A shard
// looks up the entry of its hash.
//
// Bound, proven by the tests: with n nodes and a table of M entries a node with the fair part f has at most f*M + f*n + 1
// entries, so the table is even to 1% from M = 100*n on for equal weights; S shards that look up by chance add
// 8*sqrt(f*S) + 8. When a node joins or leaves, a few entries change between other nodes; fewer in larger tables.
func newMaglev(nodes []Node, candidates []int32, size int) picker {
	table := maglevTable(nodes, candidates, size)
	return func(hash uint64) int32 { return table[hash%uint64(len(table))] }
}

// MaglevTable returns the table itself, with indexes of nodes, to look at its evenness and at what changes.
func MaglevTable(nodes []Node, size int) ([]int32, error) {
	cfg := Config{Algorithm: Maglev, TableSize: size}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &problem{cfg: cfg, nodes: nodes}
	candidates := p.candidates("")
	if len(candidates) == 0 {
		return nil, &NoNodeError{}
	}
	return maglevTable(nodes, candidates, size), nil
}

func maglevTable(nodes []Node, candidates []int32, size int) []int32 {
	table := make([]int32, size)
	for i := range table {
		table[i] = -1
	}
	next, skip := make([]uint64, len(candidates)), make([]uint64, len(candidates))
	turns := make([]float64, len(candidates)) // how many a node gets in a round, at most 1
	heaviest := 0.0
	for _, node := range candidates {
		heaviest = max(heaviest, nodes[node].Weight)
	}
	m := uint64(size)
	for i, node := range candidates {
		next[i] = hashName(nodes[node].Name, 1) % m
		skip[i] = hashName(nodes[node].Name, 2)%(m-1) + 1
		turns[i] = nodes[node].Weight / heaviest
	}
	filled := 0
	taken := make([]int, len(candidates))
	for round := 1; ; round++ {
		for i, node := range candidates {
			if taken[i] >= int(float64(round)*turns[i]) {
				continue
			}
			for table[next[i]] >= 0 {
				next[i] = (next[i] + skip[i]) % m
			}
			table[next[i]] = node
			taken[i]++
			if filled++; filled == size {
				return table
			}
		}
	}
}
