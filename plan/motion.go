package plan

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// Size is how large a table is on all nodes together.
type Size struct{ Rows, Bytes int64 }

// Motion says where the rows of a fragment go that other fragments read.
type Motion struct {
	// To is the distribution by whose points they go; nil: each node gets all of them.
	To *keyspace.Distribution
	// Key are the columns that make the point, and Pin says of which types they are.
	Key []int
	Pin Pin
}

// ownDistribution is the number of a distribution that exists only within one statement.
const ownDistribution = ^uint32(0)

// moved is what is chosen for one relation of a FROM clause.
type moved struct {
	to  *keyspace.Distribution
	key []column
}

// side is where the rows of a relation are once they have moved. On every node: as those of a reference table. By the points of
// a distribution: as if the table belonged to it. Rows whose key is NULL or has no place in the distribution all go to one node; they
// join nothing, and stay together in groups. So each rule about tables holds for moved rows as well.
func (m *moved) side() side {
	if m.to == nil {
		return side{at: copies}
	}
	return side{at: spread, distribution: m.to.ID, keys: [][]column{m.key}}
}

// choice is a set of relations to move, and what that costs.
type choice struct {
	moves map[*ref]*moved
	cost  float64
}

// choose looks for relations whose rows can be moved so that the block distributes, for less than it costs to gather them all.
// What is right is proven by core, as for tables that lie there; sizes only say what is cheap.
func (x *exchanger) choose(b *block) bool {
	if !x.moving || x.wholeRow || b.tree == nil || len(b.arms) > 0 || len(b.stmt.LockingClause) > 0 || x.core(b, nil).at != nowhere {
		return false
	}
	leaves, sizes, ok := x.movable(b)
	if !ok || len(leaves) < 2 {
		return false
	}
	n := float64(len(x.nodes()))
	best := choice{}
	for _, r := range leaves {
		if x.p.placed(r.table).placement == catalog.Distributed {
			best.cost += sizes[r] * (2 - 1/n) // through the router, and all of them written on one node
		}
	}
	for _, c := range slices.Concat(x.aroundEach(b, leaves, sizes), x.byEach(b, leaves)) {
		c.cost = 0
		for _, r := range leaves {
			switch m := c.moves[r]; {
			case m == nil:
			case m.to == nil:
				c.cost += sizes[r] * (1 + n)
			default:
				c.cost += sizes[r] * (1 + 1/n)
			}
		}
		if len(c.moves) > 0 && c.cost < best.cost {
			best = c
		}
	}
	x.moves = best.moves
	if best.moves != nil {
		x.moveTree(b, b.tree, conjuncts(b.stmt.WhereClause))
	}
	return best.moves != nil
}

// nodes are those that hold shards.
func (x *exchanger) nodes() []string {
	var nodes []string
	for i := range x.in.Map.Distributions {
		for _, s := range x.in.Map.Distributions[i].Shards {
			if !slices.Contains(nodes, s.Node) {
				nodes = append(nodes, s.Node)
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// movable are the tables of a FROM clause that are on several nodes or on the home node, with the bytes of their rows that
// can matter. It is not ok when one of them has no known size.
func (x *exchanger) movable(b *block) ([]*ref, map[*ref]float64, bool) {
	var leaves []*ref
	sizes := map[*ref]float64{}
	ok := true
	x.eachLeaf(b.tree, conjuncts(b.stmt.WhereClause), func(r *ref, conds []scoped) {
		if r.table == nil || r.table.OID < firstUserOID || x.p.placed(r.table).placement == catalog.Reference {
			return
		}
		size, known := x.in.Sizes(r.table)
		if !known || r.sample != nil || r.lateral || r.alias == "" || r.node.GetRangeVar() == nil || x.p.isTemporary(r.node.GetRangeVar()) {
			ok = false
			return
		}
		leaves = append(leaves, r)
		needed := 0
		for i := range r.table.Columns {
			if x.needs(r, i) {
				needed++
			}
		}
		bytes := float64(size.Bytes) * float64(needed) / float64(max(len(r.table.Columns), 1))
		for _, c := range conds {
			scope := c.scope
			if scope == nil {
				scope = b
			}
			if x.readsOnly(scope, r, c.cond) {
				bytes /= 4 // nobody knows
			}
		}
		sizes[r] = bytes + 1
	})
	return leaves, sizes, ok
}

// aroundEach keeps one distributed table where it is and moves what does not join it there: by its points where the join allows it,
// else to every node.
func (x *exchanger) aroundEach(b *block, leaves []*ref, sizes map[*ref]float64) []choice {
	largest := slices.Clone(leaves)
	slices.SortStableFunc(largest, func(a, b *ref) int { return cmp.Compare(sizes[b], sizes[a]) })
	var found []choice
	for _, kept := range largest {
		pl := x.p.placed(kept.table)
		if pl.placement != catalog.Distributed {
			continue
		}
		moves := map[*ref]*moved{}
		for _, r := range leaves {
			if r != kept {
				moves[r] = &moved{}
			}
		}
		if !x.distributes(b, moves) {
			continue
		}
		for _, r := range largest {
			if r == kept {
				continue
			}
			all := moves[r]
			if delete(moves, r); x.distributes(b, moves) {
				continue
			}
			moves[r] = all
			if to := x.towards(b, r, kept); to != nil {
				if moves[r] = to; !x.distributes(b, moves) {
					moves[r] = all
				}
			}
		}
		found = append(found, choice{moves: moves})
	}
	return found
}

// distributes reports that the block does, with these relations moved.
func (x *exchanger) distributes(b *block, moves map[*ref]*moved) bool {
	x.moves = moves
	defer func() { x.moves = nil }()
	return x.core(b, nil).at == spread
}

// towards moves a relation by columns of its own that are equal to the key of another one.
func (x *exchanger) towards(b *block, r, kept *ref) *moved {
	keys := x.p.wholeKey(kept)
	d := x.in.Map.Distribution(x.p.placed(kept.table).distribution)
	if len(keys) == 0 || d == nil || slices.ContainsFunc(d.Dimensions, func(dim keyspace.Dimension) bool {
		return dim.Method != keyspace.Hash && dim.Method != keyspace.Range && dim.Method != keyspace.List
	}) {
		return nil
	}
	equal := equalColumns(x.equalities(b))
	m := &moved{to: d}
	for _, k := range keys[0] {
		at := slices.IndexFunc(r.table.Columns, func(c catalog.Column) bool {
			own := column{r, r.table.Column(c.Name)}
			return c.Deterministic && equal.find(own) == equal.find(k) && x.p.comparable(own, k)
		})
		if at < 0 {
			return nil
		}
		m.key = append(m.key, column{r, at})
	}
	return m
}

// byEach moves the tables that a column of each class of equal ones belongs to by the hash of that column, and all others to every node.
func (x *exchanger) byEach(b *block, leaves []*ref) []choice {
	equal := equalColumns(x.equalities(b))
	classes := map[column]map[*ref]*moved{}
	var order []column
	for _, r := range leaves {
		for i := range r.table.Columns {
			c := column{r, i}
			t, ok := x.p.keyType(c)
			root := equal.find(c)
			if _, alone := equal[c]; !ok || !r.table.Columns[i].Deterministic || !alone && root == c && !equal.isRoot(c) {
				continue
			}
			if classes[root] == nil {
				classes[root] = map[*ref]*moved{}
				order = append(order, root)
			}
			if classes[root][r] == nil {
				classes[root][r] = &moved{to: x.hashOver(t), key: []column{c}}
			}
		}
	}
	var found []choice
	for _, root := range order {
		moves := maps.Clone(classes[root])
		if len(moves) < 2 {
			continue
		}
		for _, r := range leaves {
			if moves[r] == nil {
				moves[r] = &moved{}
			}
		}
		if x.distributes(b, moves) {
			found = append(found, choice{moves: moves})
		}
	}
	return found
}

// isRoot reports a column that stands for others.
func (c classes) isRoot(a column) bool {
	for _, b := range c {
		if b == a {
			return true
		}
	}
	return false
}

// hashOver spreads values of a type over all nodes.
func (x *exchanger) hashOver(t keyspace.Type) *keyspace.Distribution {
	nodes := x.nodes()
	d := &keyspace.Distribution{ID: ownDistribution, Key: keyspace.HashKey(t)}
	step := ^uint64(0)/uint64(len(nodes)) + 1
	for i, n := range nodes {
		s := keyspace.Shard{ID: uint32(i + 1), Node: n}
		if i > 0 {
			s.Low = binary.BigEndian.AppendUint64(nil, step*uint64(i))
		}
		d.Shards = append(d.Shards, s)
	}
	d.Index()
	return d
}

// equalities are all equalities of columns that some condition of the block states. Where each of them holds is for core to say.
func (x *exchanger) equalities(b *block) []condition {
	all := x.p.conditions(b, b.stmt.WhereClause)
	var visit func(t *joinTree)
	visit = func(t *joinTree) {
		if t.leaf != nil {
			return
		}
		if t.cond != nil {
			all = append(all, x.p.conditions(t.scope, t.cond)...)
		}
		all = append(all, t.using...)
		visit(t.left)
		visit(t.right)
	}
	visit(b.tree)
	return all
}

// eachLeaf visits the relations of a FROM clause with the conditions that rows of theirs must meet to matter.
func (x *exchanger) eachLeaf(t *joinTree, conds []scoped, visit func(*ref, []scoped)) {
	if t.leaf != nil {
		visit(t.leaf, conds)
		return
	}
	left, right := t.passed(conds)
	x.eachLeaf(t.left, left, visit)
	x.eachLeaf(t.right, right, visit)
}

// moveTree puts fragments in the place of the relations that move.
func (x *exchanger) moveTree(b *block, t *joinTree, conds []scoped) {
	x.eachLeaf(t, conds, func(r *ref, conds []scoped) {
		m := x.moves[r]
		if m == nil || x.p.err != nil {
			return
		}
		pl := x.p.placed(r.table)
		at := side{at: spread, distribution: pl.distribution}
		x.gatherTable(b, r, conds, at, []*ref{r}, tableNames(r.table))
		f := &x.out.Fragments[len(x.out.Fragments)-1]
		f.Motion = &Motion{To: m.to, Pin: Pin{Stored: true}} // a key without a place is told apart
		for _, c := range m.key {
			name := r.table.Columns[c.index].Name
			t, _ := x.p.keyType(c)
			f.Motion.Key = append(f.Motion.Key, slices.Index(f.Columns, name))
			f.Motion.Pin.Keys = append(f.Motion.Pin.Keys, KeyColumn{Type: t, Column: r.alias + "." + name})
		}
		if slices.Contains(f.Motion.Key, -1) {
			x.p.fail(refuse("", "a column that rows move by is not among those that are read"))
		}
	})
}

// use notes which moved rows a fragment reads.
func (x *exchanger) use(f *Fragment, s *pg.SelectStmt) {
	for _, rv := range analyze.Relations(s) {
		for i := range x.out.Fragments {
			if g := &x.out.Fragments[i]; g.Motion != nil && g.Name == rv.Relname && rv.Schemaname == "" && !slices.Contains(f.Uses, i) {
				f.Uses = append(f.Uses, i)
			}
		}
	}
	f.tree = s
}

// useArrays writes the fragments that read moved rows for few of them: array parameters, as in the last step.
func (x *exchanger) useArrays() error {
	for i := range x.out.Fragments {
		f := &x.out.Fragments[i]
		if len(f.Uses) == 0 {
			continue
		}
		root := &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: f.tree}}
		param := x.out.Params + len(x.out.Eval)
		var items []*pg.Node
		for _, u := range f.Uses {
			items = append(items, x.arrayItem(u, &param))
		}
		with := withClause(root)
		with.Ctes = append(items, with.Ctes...)
		text, err := analyze.Deparse(root)
		if err != nil {
			return refuse("", "a part of the statement cannot be written again: %v", err)
		}
		f.TextArrays = text
	}
	return nil
}

// String says where rows go, for people.
func (m *Motion) String() string {
	if m.To == nil {
		return "to every node"
	}
	return fmt.Sprintf("by %s", m.Pin.Columns())
}
