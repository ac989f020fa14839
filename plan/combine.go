package plan

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
)

// Combine is how values of one column, one from each node, become the value of the answer's column. NULL counts as no value.
type Combine uint8

const (
	// CombineSum adds integers: counts, and sums of smallint and integer, which are bigint.
	CombineSum Combine = iota + 1
	// CombineWhole adds numerics that are known to be whole: sums of bigint.
	CombineWhole
	CombineMin
	CombineMax
	CombineAnd
	CombineOr
	CombineXor
)

func (c Combine) String() string {
	return [...]string{"", "sum", "sum", "min", "max", "and", "or", "xor"}[c]
}

// combinable are the aggregates of which the router can make the result over all rows from those over parts. What the types are
// is known when the fragment has been described; the router does it for those that it handles exactly.
var combinable = map[string]Combine{
	"count": CombineSum, "sum": CombineSum, "min": CombineMin, "max": CombineMax,
	"bool_and": CombineAnd, "every": CombineAnd, "bit_and": CombineAnd, "bool_or": CombineOr, "bit_or": CombineOr, "bit_xor": CombineXor,
}

// combines says how the rows of the one fragment are the answer when each of its columns is combined on its own; nil when PostgreSQL is
// needed for more. Each output is one aggregate then, which has become one column of the fragment at the same place.
func (c *combiner) combines(targets []*pg.Node) []Combine {
	s := c.b.stmt
	if s != c.x.root.GetSelectStmt() || c.x.tree != c.x.root || len(s.GroupClause) > 0 || s.HavingClause != nil || len(s.SortClause) > 0 ||
		len(s.DistinctClause) > 0 || s.LimitCount != nil || s.LimitOffset != nil || len(targets) != len(c.fragment.TargetList) || len(c.x.out.Fragments) > 0 {
		return nil
	}
	var out []Combine
	for i, t := range targets {
		f := t.GetResTarget().GetVal().GetFuncCall()
		part := c.fragment.TargetList[i].GetResTarget().GetVal().GetFuncCall()
		if f == nil || part == nil || !c.isAggregate(f) {
			return nil
		}
		_, name := analyze.Name(f.Funcname)
		_, partName := analyze.Name(part.Funcname)
		how := combinable[name]
		if how == 0 || partName != name {
			return nil
		}
		if name == "sum" && len(f.Args) == 1 && c.isBigint(f.Args[0]) {
			how = CombineWhole
		}
		out = append(out, how)
	}
	return slices.Clip(out)
}

// HowCombined names the ways of all columns.
func (e *Exchange) HowCombined() string {
	names := make([]string, len(e.Combine))
	for i, c := range e.Combine {
		names[i] = c.String()
	}
	return strings.Join(names, ", ")
}

// isBigint reports a column of type bigint.
func (c *combiner) isBigint(n *pg.Node) bool {
	col := c.x.p.columnOf(c.b, n)
	if col == nil {
		return false
	}
	oid, _ := c.x.p.columnType(*col)
	return c.x.p.catalog.BaseType(oid) == 20
}
