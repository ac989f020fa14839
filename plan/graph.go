package plan

import (
	"slices"

	"github.com/pgshoal/pgshoal/catalog"
)

// restriction says which values a column can have in the rows that matter: one of ops, or else
// one of the conjunctions of a union holds.
type restriction struct {
	ops   []Operand
	union Union
}

// graph holds what is known about which rows a statement can need. An edge u -> v says: where the
// rows of u that matter are restricted to some values, the same holds for v. What reaches a key
// column pins its table. Every restriction of a column is true on its own, so that all of them together are.
type graph struct {
	edges map[column][]column
	facts map[column][]*restriction
	order []knowledge // in the order they were found, for stable plans
}

type knowledge struct {
	column column
	fact   *restriction
}

// maxFacts bounds what is kept about one column: to know less is only to need more nodes.
const maxFacts = 32

func newGraph() *graph {
	return &graph{edges: map[column][]column{}, facts: map[column][]*restriction{}}
}

func (g *graph) directed(from, to column) { g.edges[from] = append(g.edges[from], to) }

func (g *graph) equal(a, b column) {
	g.directed(a, b)
	g.directed(b, a)
}

// restrict records that only rows where c is one of the fact's values matter.
func (g *graph) restrict(c column, fact *restriction) {
	if known := g.facts[c]; len(known) >= maxFacts || slices.Contains(known, fact) {
		return
	}
	g.facts[c] = append(g.facts[c], fact)
	g.order = append(g.order, knowledge{c, fact})
}

func (g *graph) constant(c column, ops []Operand) { g.restrict(c, &restriction{ops: ops}) }

// spread carries what is known along the edges.
func (g *graph) spread() {
	for i := 0; i < len(g.order); i++ {
		k := g.order[i]
		for _, to := range g.edges[k.column] {
			g.restrict(to, k.fact)
		}
	}
}

// base follows outputs of subqueries down to a column of a table, for its type.
func (c column) base() (*catalog.Table, int) {
	b, ok := c.baseColumn()
	if !ok {
		return nil, 0
	}
	return b.ref.table, b.index
}

func (c column) baseColumn() (column, bool) {
	for c.ref.table == nil {
		if c.ref.body == nil || c.index >= len(c.ref.body.outputs) {
			return column{}, false
		}
		src := c.ref.body.outputs[c.index].source
		if src == nil {
			return column{}, false
		}
		c = *src
	}
	return c, true
}
