package plan

import (
	"fmt"
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// independent reports parts that may run one after the other with the same effect as at once: none changes rows that another one
// changes, too, and none needs another one's change for its constraints to hold.
func (s *stepper) independent() bool {
	x := s.x
	for _, f := range x.p.routines {
		if b := x.p.bodyOf(f); f.Volatility != 'i' && (len(b.tables) > 0 || b.dynamic) {
			return false
		}
	}
	for k, q := range s.parts {
		if q.target == nil {
			continue
		}
		if q.target.table == nil || !s.quiet(q.target.table) {
			return false
		}
		for _, earlier := range s.parts[:k] {
			if earlier.target != nil && !s.inTurn(earlier, q) {
				return false
			}
		}
	}
	return true
}

// quiet reports a table whose triggers and rules do nothing to other rows.
func (s *stepper) quiet(t *catalog.Table) bool {
	for _, tr := range t.Triggers {
		f := s.x.p.catalog.Function(tr.Function)
		if f == nil {
			return false
		}
		if b := s.x.p.bodyOf(f); tr.Enabled != 'D' && (len(b.tables) > 0 || b.dynamic) {
			return false
		}
	}
	return !t.HasRules
}

// inTurn reports two writes of which the first may be done before the second.
func (s *stepper) inTurn(first, second *part) bool {
	a, b := s.x.p.root(first.target.table), s.x.p.root(second.target.table)
	if a == b {
		// New rows are not among those that others change.
		i := second.node.GetInsertStmt()
		return i != nil && i.GetOnConflictClause().GetAction() != pg.OnConflictAction_ONCONFLICT_UPDATE
	}
	if slices.Contains(s.changes(first)[1:], b.OID) { // by a foreign key, which acts at the end of the statement
		return false
	}
	for _, fk := range a.ForeignKeys { // the first refers to the second
		if fk.RefTable == b.OID && first.node.GetDeleteStmt() == nil && touches(first, fk.Columns) && touches(second, fk.RefColumns) {
			return false
		}
	}
	for _, fk := range b.ForeignKeys {
		if fk.RefTable == a.OID && first.node.GetInsertStmt() == nil && touches(first, fk.RefColumns) && touches(second, fk.Columns) {
			return false
		}
	}
	return true
}

// touches reports a write that may change values of these columns, or make or remove rows with them.
func touches(q *part, columns []string) bool {
	u := q.node.GetUpdateStmt()
	return u == nil || slices.ContainsFunc(u.TargetList, func(n *pg.Node) bool { return slices.Contains(columns, n.GetResTarget().Name) })
}

// changes are the tables that a part changes: its own first, then those that foreign keys change with it.
func (s *stepper) changes(q *part) []uint32 {
	list := []uint32{s.x.p.root(q.target.table).OID}
	for i := 0; i < len(list); i++ {
		t := s.x.p.catalog.Table(list[i])
		if t == nil {
			continue
		}
		for _, fk := range t.ReferencedBy {
			acts := slices.Contains([]byte("cnd"), fk.OnDelete) || slices.Contains([]byte("cnd"), fk.OnUpdate)
			if acts && !slices.Contains(list, fk.Table) {
				list = append(list, fk.Table)
			}
		}
	}
	return list
}

// takeBefore finds the tables that parts read after others have changed them, and makes steps at the beginning that take their rows.
func (s *stepper) takeBefore() []*part {
	var out []*part
	changed := map[uint32]bool{}
	for i, q := range s.parts {
		for _, n := range s.own(i) {
			for _, rv := range analyze.Relations(n) {
				for _, r := range s.x.byVar[rv] {
					if s.readsChanged(r, changed) {
						out = s.before(out, r, n)
					}
				}
			}
		}
		if q.target != nil {
			for _, oid := range s.changes(q) {
				changed[oid] = true
			}
		}
	}
	return out
}

// own are the pieces of the statement that a part evaluates: itself, and the items that stay inside it.
func (s *stepper) own(i int) []*pg.Node {
	q := s.parts[i]
	if q.inside {
		return nil
	}
	list := []*pg.Node{q.node}
	if q.cte == nil {
		list[0] = withoutItems(q.node)
	}
	var add func(uses []int)
	add = func(uses []int) {
		for _, j := range uses {
			if s.parts[j].inside {
				list = append(list, s.parts[j].node)
				add(s.parts[j].uses)
			}
		}
	}
	add(q.uses)
	return list
}

func (s *stepper) readsChanged(r *ref, changed map[uint32]bool) bool {
	if r.table != nil {
		return changed[s.x.p.root(r.table).OID]
	}
	return r.view != nil && slices.ContainsFunc(s.x.bases(s.x.p.viewTree(r.view)), func(b *ref) bool { return changed[s.x.p.root(b.table).OID] })
}

// before puts rows that are taken at the beginning in the place of a table.
func (s *stepper) before(out []*part, r *ref, n *pg.Node) []*part {
	x := s.x
	locks := false
	analyze.Walk(n, func(m proto.Message) bool {
		_, is := m.(*pg.LockingClause)
		locks = locks || is
		return !locks
	})
	if locks || r.sample != nil || slices.ContainsFunc(systemColumns, func(name string) bool { return x.names[name] }) {
		x.p.fail(refuse("Run its parts one by one.",
			"locking or sampling rows of %q, or reading its system columns, beside writes in WITH over several nodes that change it, is not supported", r.alias))
		return out
	}
	columns := r.table
	if columns == nil {
		columns = r.view
	}
	rv := proto.Clone(r.node.GetRangeVar()).(*pg.RangeVar)
	rv.Alias = nil
	take := plainSelect()
	taken := &part{read: true, cte: &cte{name: fmt.Sprintf("shoal before %d", len(out)+1)}}
	for i := range columns.Columns {
		if name := columns.Columns[i].Name; x.star || x.names[name] || len(r.aliases) > 0 || i == 0 {
			take.TargetList = append(take.TargetList, resTarget("", columnNode(name)))
			taken.names = append(taken.names, name)
		}
	}
	take.FromClause = []*pg.Node{{Node: &pg.Node_RangeVar{RangeVar: rv}}}
	taken.node = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: take}}
	out = append(out, taken)
	s.extra = append(s.extra, taken)
	alias := r.node.GetRangeVar().Alias
	if alias == nil {
		alias = &pg.Alias{Aliasname: r.alias}
	}
	r.node.Node = &pg.Node_RangeVar{RangeVar: &pg.RangeVar{Relname: taken.cte.name, Inh: true, Relpersistence: "p", Alias: alias}}
	return out
}
