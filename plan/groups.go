package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
)

// completeGroups adds columns to GROUP BY that follow from a primary key in it. PostgreSQL allows them to be left out because
// it knows the table's key; gathered rows have none. The groups stay the same.
func (x *exchanger) completeGroups(b *block) {
	s := b.stmt
	if len(s.GroupClause) == 0 || slices.ContainsFunc(s.GroupClause, func(n *pg.Node) bool { return n.GetGroupingSet() != nil }) {
		return
	}
	grouped := map[column]bool{}
	for _, n := range s.GroupClause {
		if c := x.p.columnOf(b, n); c != nil {
			grouped[*c] = true
		} else if i := int(n.GetAConst().GetIval().GetIval()); i > 0 && i <= len(b.outputs) && b.outputs[i-1].source != nil {
			grouped[*b.outputs[i-1].source] = true
		}
	}
	for _, n := range slices.Concat(s.TargetList, s.SortClause, []*pg.Node{s.HavingClause}) {
		if n == nil {
			continue
		}
		analyze.Walk(n, func(m proto.Message) bool {
			switch e := m.(type) {
			case *pg.FuncCall:
				if (&combiner{x: x, b: b}).isAggregate(e) {
					return false
				}
			case *pg.ColumnRef:
				c := b.resolve(e)
				if c == nil || grouped[*c] || c.ref.table == nil || !b.tree.refs[c.ref] || !x.keyGrouped(c.ref, grouped) {
					return true
				}
				grouped[*c] = true
				s.GroupClause = append(s.GroupClause, columnNode(c.ref.alias, c.ref.columnName(c.index)))
			}
			return true
		})
	}
}

// keyGrouped reports a table whose whole primary key is grouped by.
func (x *exchanger) keyGrouped(r *ref, grouped map[column]bool) bool {
	for _, u := range r.table.Uniques {
		if u.Primary {
			return !slices.ContainsFunc(u.Columns, func(name string) bool { return !grouped[column{r, r.table.Column(name)}] })
		}
	}
	return false
}
