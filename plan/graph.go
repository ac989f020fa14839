package plan

import (
	"github.com/pgshoal/pgshoal/catalog"
)

// graph holds what is known about which rows a statement can need. An edge u -> v says: where
// the rows of u that matter have one of some values, the same holds for v. A constant says it of
// one column directly. What reaches a key column pins its table.
type graph struct {
	edges  map[column][]column
	consts map[column][]Operand
	order  []column // columns with constants, in the order they were found, for stable plans
}

func newGraph() *graph {
	return &graph{edges: map[column][]column{}, consts: map[column][]Operand{}}
}

func (g *graph) directed(from, to column) { g.edges[from] = append(g.edges[from], to) }

func (g *graph) equal(a, b column) {
	g.directed(a, b)
	g.directed(b, a)
}

// constant records that only rows where c equals one of ops matter. The first record wins: each
// of them is true on its own.
func (g *graph) constant(c column, ops []Operand) {
	if _, known := g.consts[c]; known {
		return
	}
	g.consts[c] = ops
	g.order = append(g.order, c)
}

// spread carries the constants along the edges.
func (g *graph) spread() {
	for i := 0; i < len(g.order); i++ {
		from := g.order[i]
		for _, to := range g.edges[from] {
			if _, known := g.consts[to]; !known {
				g.consts[to] = g.consts[from]
				g.order = append(g.order, to)
			}
		}
	}
}

// base follows outputs of subqueries down to a column of a table, for its type.
func (c column) base() (*catalog.Table, int) {
	for c.ref.table == nil {
		if c.ref.body == nil || c.index >= len(c.ref.body.outputs) {
			return nil, 0
		}
		src := c.ref.body.outputs[c.index].source
		if src == nil {
			return nil, 0
		}
		c = *src
	}
	return c.ref.table, c.index
}
