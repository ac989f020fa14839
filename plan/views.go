package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

type (
	viewTreeKey  struct{ oid uint32 }
	viewReachKey struct{ oid uint32 }
)

// reach says which tables that are not local a view comes to.
type reach struct{ distributed, reference bool }

// viewTree is the parsed body of a view, nil when it cannot be read. It is shared: nobody changes it.
func (p *planner) viewTree(t *catalog.Table) *pg.Node {
	return p.catalog.Derived(viewTreeKey{t.OID}, func() any {
		var none *pg.Node
		stmts, err := analyze.Parse(t.ViewSQL)
		if err != nil || len(stmts) != 1 || t.Unread {
			return none
		}
		return stmts[0].Tree
	}).(*pg.Node)
}

// insertedView lets an INSERT through a view be planned like one into the table behind it, by the names and defaults that the view gives to its
// columns. The statement itself goes through the view, so that CHECK OPTION and privileges are PostgreSQL's business. refs and
// bodies are how many there were before the view: its rows are not read.
func (p *planner) insertedView(r *ref, refs, bodies int) {
	below := r
	for below.body != nil {
		if len(below.body.refs) != 1 || below.view == nil || hasSublink(p.viewTree(below.view)) {
			return
		}
		below = below.body.refs[0]
	}
	if below.table == nil || p.placed(below.table).placement != catalog.Distributed {
		return
	}
	base := below.table
	seen := *base
	seen.Key = make([]int, len(p.placed(base).keys))
	for i := range seen.Key {
		seen.Key[i] = -1
	}
	seen.Columns = nil
	for i := range r.width() {
		view := r.view.Columns[i]
		at := -1
		if t, index := (column{r, i}).base(); t == base {
			at = index
			own := base.Columns[index]
			if own.Identity != 0 && own.Name != view.Name {
				if own.Identity == 'a' {
					return
				}
				own.Default, own.DefaultVolatile, own.Identity = identityDefault(base, &own), true, 0 // by the table's name for it
			}
			if view.Default != "" {
				own.Default, own.DefaultVolatile, own.Identity = view.Default, view.DefaultVolatile, 0
			}
			own.Name = view.Name
			view = own
		}
		if k := slices.Index(p.placed(base).keys, at); k >= 0 && at >= 0 {
			if seen.Key[k] >= 0 {
				return // it is there twice
			}
			seen.Key[k] = i
		}
		seen.Columns = append(seen.Columns, view)
	}
	if slices.Contains(seen.Key, -1) || base.IsPartition {
		return
	}
	p.refs, p.bodies = append(p.refs[:refs], r), p.bodies[:bodies]
	r.table, r.body, r.view, r.aliases, r.unknown = &seen, nil, nil, nil, false
}

// viewMatters reports views whose body reaches tables that are not local.
func (p *planner) viewMatters(t *catalog.Table) bool {
	r := p.viewReach(t, 0)
	return r.distributed || r.reference
}

func (p *planner) viewReach(t *catalog.Table, depth int) reach {
	if t.OID < firstUserOID || p.alone {
		return reach{}
	}
	return p.catalog.Derived(viewReachKey{t.OID}, func() any {
		tree := p.viewTree(t)
		if tree == nil || depth > 64 {
			return reach{true, true} // it is refused when it is planned
		}
		var r reach
		for _, rv := range analyze.Relations(tree) {
			// A CTE's name may hide a table; to look too closely is only slower.
			below := p.catalog.Lookup(nil, rv.Schemaname, rv.Relname)
			if below == nil {
				continue
			}
			if below.Kind == catalog.KindView {
				b := p.viewReach(below, depth+1)
				r = reach{r.distributed || b.distributed, r.reference || b.reference}
				continue
			}
			placement := p.placed(below).placement
			r.distributed = r.distributed || placement == catalog.Distributed || p.policyReaches(below)
			r.reference = r.reference || placement == catalog.Reference
		}
		for _, call := range analyze.Calls(tree) {
			r.distributed = r.distributed || p.callReaches(call)
		}
		return r
	}).(reach)
}

// callReaches reports calls of routines that may use tables that are not local, so that a view
// with one of them is looked at closely.
func (p *planner) callReaches(c *pg.FuncCall) bool {
	for _, f := range p.functions(c) {
		if f.Builtin {
			continue
		}
		b := p.bodyOf(f)
		if b.dynamic || slices.ContainsFunc(b.tables, func(t *catalog.Table) bool {
			return t.Kind == catalog.KindView || p.placed(t).placement != catalog.Local
		}) {
			return true
		}
	}
	return false
}
