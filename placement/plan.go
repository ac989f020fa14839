package placement

import (
	"runtime"
	"sync"
)

// plan turns owners into moves.
func (p *problem) plan() Plan {
	var forced, chosen []int32
	inPlan := make([]bool, len(p.shards))
	add := func(i int32) {
		if inPlan[i] || p.shards[i].Node == "" || p.owner[i] == p.current[i] {
			return
		}
		inPlan[i] = true
		if p.mayStay(i) {
			chosen = append(chosen, i)
		} else {
			forced = append(forced, i)
		}
	}
	for _, i := range p.touched {
		add(i)
	}
	for _, g := range p.groups {
		for _, i := range g.members {
			add(i)
		}
	}
	order := append(forced, chosen...)
	result := Plan{Owner: p.owner}
	if limit := p.cfg.MaxMoves; limit > 0 && len(order) > limit {
		for _, i := range order[limit:] {
			p.owner[i] = p.current[i]
		}
		result.Left = len(order) - limit
		order = order[:limit]
	}
	result.Moves = make([]Move, len(order))
	for at, i := range order {
		s := p.shards[i]
		result.Moves[at] = Move{Shard: s.ID, From: s.Node, To: p.nodes[p.owner[i]].Name, Size: s.Size, Forced: !p.mayStay(i)}
	}
	return result
}

// pickEach asks for every shard of a group. The answers do not depend on each other, so all cores help.
func (p *problem) pickEach(g group, pick picker) {
	const atOnce = 4096
	var wait sync.WaitGroup
	parts := make(chan []int32)
	for range min(runtime.GOMAXPROCS(0), (len(g.members)+atOnce-1)/atOnce) {
		wait.Go(func() {
			for part := range parts {
				for _, i := range part {
					p.owner[i] = pick(hashShard(p.shards[i].ID))
				}
			}
		})
	}
	for rest := g.members; len(rest) > 0; {
		n := min(atOnce, len(rest))
		parts <- rest[:n]
		rest = rest[n:]
	}
	close(parts)
	wait.Wait()
}
