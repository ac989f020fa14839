package pool

import (
	"cmp"
	"maps"
	"slices"
)

// Stats are the numbers of one pool, those of a Replica key for all replicas of the node together. Counters start again when a pool was unused for long.
type Stats struct {
	Key Key
	// Idle, Active and Opening add up to what counts against the limits; Waiting sessions do not.
	Idle, Active, Opening, Waiting int
	// Opened and Closed connections, failed attempts to open one, and sessions that waited in vain.
	Opened, Closed, Errors, Timeouts uint64
}

// Stats lists all pools, sorted by key.
func (p *Pool) Stats() []Stats {
	var all []Stats
	for _, k := range *p.pools.Load() {
		all = append(all, k.stats())
	}
	for _, s := range *p.replicas.Load() {
		all = append(all, s.stats()...)
	}
	slices.SortFunc(all, func(a, b Stats) int {
		return cmp.Or(cmp.Compare(a.Key.Node, b.Key.Node), cmp.Compare(a.Key.Role, b.Key.Role), cmp.Compare(a.Key.Database, b.Key.Database),
			compareBool(a.Key.Replica, b.Key.Replica))
	})
	return all
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// stats adds up what each key has at all replicas.
func (s *replicas) stats() []Stats {
	sums := make(map[Key]*Stats)
	for _, server := range s.servers() {
		for _, k := range server.keyPools() {
			sum := sums[k.key]
			if sum == nil {
				sum = &Stats{Key: k.key}
				sums[k.key] = sum
			}
			sum.add(k.stats())
		}
	}
	var all []Stats
	for _, sum := range sums {
		all = append(all, *sum)
	}
	return all
}

func (n *node) keyPools() []*keyPool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Collect(maps.Values(n.pools))
}

func (s *Stats) add(other Stats) {
	s.Idle += other.Idle
	s.Active += other.Active
	s.Opening += other.Opening
	s.Waiting += other.Waiting
	s.Opened += other.Opened
	s.Closed += other.Closed
	s.Errors += other.Errors
	s.Timeouts += other.Timeouts
}

func (k *keyPool) stats() Stats {
	k.node.mu.Lock()
	defer k.node.mu.Unlock()
	return Stats{
		Key: k.key, Idle: len(k.idle), Active: len(k.open) - len(k.idle), Opening: k.total - len(k.open),
		Waiting: len(k.queue.waiters), Opened: k.opened, Closed: k.closed, Errors: k.failed, Timeouts: k.timeouts,
	}
}

// Primary returns the address where the node's primary was last found, if it is known.
func (p *Pool) Primary(node string) (address string, ok bool) {
	p.mu.Lock()
	n := p.nodes[node]
	p.mu.Unlock()
	if n == nil {
		return "", false
	}
	place := n.place()
	return place.known, place.known != ""
}
