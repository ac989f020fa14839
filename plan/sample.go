package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
)

// sampled is the FROM item that reads a table on its nodes, with its TABLESAMPLE. BERNOULLI takes each row, and SYSTEM each block,
// with the same probability wherever it is, so the samples of the nodes together are one of the table. A method that takes
// a number of rows would take it on each node.
func (x *exchanger) sampled(r *ref, rv *pg.RangeVar) *pg.Node {
	relation := &pg.Node{Node: &pg.Node_RangeVar{RangeVar: rv}}
	if r.sample == nil {
		return relation
	}
	s := proto.Clone(r.sample.GetRangeTableSample()).(*pg.RangeTableSample)
	schema, name := analyze.Name(s.Method)
	if schema != "" && schema != "pg_catalog" || name != "bernoulli" && name != "system" {
		x.p.fail(refuse("Use BERNOULLI or SYSTEM, or fix the key.", "TABLESAMPLE %s of a table on several nodes is not supported", name))
		return relation
	}
	for _, n := range append(s.Args, s.Repeatable) {
		if n != nil && (hasColumnOrSubquery(n) || !x.sameEverywhere(n)) {
			x.p.fail(refuse("Give its arguments as values.", "TABLESAMPLE with computed arguments, of a table on several nodes, is not supported"))
			return relation
		}
	}
	s.Relation = relation
	return &pg.Node{Node: &pg.Node_RangeTableSample{RangeTableSample: s}}
}

// noSystemColumns refuses columns that say something about a node and not about the row.
func (x *exchanger) noSystemColumns() {
	for _, name := range systemColumns {
		if x.names[name] {
			x.p.fail(refuse("Fix the key, or use the primary key in place of it.",
				"system column %q of a table on several nodes means something else on each of them", name))
			return
		}
	}
}
