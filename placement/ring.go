package placement

import (
	"cmp"
	"math"
	"slices"
)

// ring is consistent hashing with virtual nodes: every node has points on a circle, and a shard belongs to the
// node of the first point at or after its own.
//
// When a node joins, shards move only to it; when one leaves, only its own move. With v virtual nodes a node's
// part of the circle varies by a standard deviation of about 1/sqrt(v) around its fair part f, and chance
// adds 1/sqrt(S*f) for S shards. Bound, held by the tests: no node holds more than f*S*(1+8*sqrt(1/v+1/(f*S))) + 8.
type ring struct {
	points []uint64
	nodes  []int32 // of each point
	// starts cuts the circle into equal slots: starts[i] is the first point at or after the start of slot i, so
	// that a search is over a few points.
	starts []int32
	shift  int
}

func newRing(nodes []Node, candidates []int32, perWeight int) *ring {
	type point struct {
		at   uint64
		node int32
	}
	var points []point
	for _, i := range candidates {
		count := max(1, int(math.Round(float64(perWeight)*nodes[i].Weight)))
		for v := range count {
			points = append(points, point{hashName(nodes[i].Name, uint64(v)+1), i})
		}
	}
	slices.SortFunc(points, func(a, b point) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(nodes[a.node].ID, nodes[b.node].ID))
	})
	r := &ring{points: make([]uint64, len(points)), nodes: make([]int32, len(points))}
	for i, p := range points {
		r.points[i], r.nodes[i] = p.at, p.node
	}
	r.index()
	return r
}

func (r *ring) index() {
	bits := 1
	for 1<<bits < len(r.points) {
		bits++
	}
	r.shift = 64 - bits
	r.starts = make([]int32, 1<<bits+1)
	at := 0
	for slot := range r.starts {
		for at < len(r.points) && (slot == 1<<bits || r.points[at] < uint64(slot)<<r.shift) {
			at++
		}
		r.starts[slot] = int32(at)
	}
}

// find returns the index of the first point at or after the hash; the circle closes.
func (r *ring) find(hash uint64) int {
	slot := hash >> r.shift
	at := int(r.starts[slot])
	for at < len(r.points) && r.points[at] < hash {
		at++
	}
	if at == len(r.points) {
		return 0
	}
	return at
}

func (r *ring) pick(hash uint64) int32 { return r.nodes[r.find(hash)] }
