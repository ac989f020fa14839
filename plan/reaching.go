package plan

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// Reaching adds to tables, views and routines all relations whose use may come to one of them without naming it: views over them, and tables
// with triggers and other code that uses them. When the former change their rows' places or their meaning, statements on
// the latter go astray, too.
func Reaching(cat *catalog.Catalog, oids []uint32) []uint32 {
	p := &planner{catalog: cat, plan: &Plan{}}
	reached := map[uint32]bool{}
	for _, oid := range oids {
		reached[oid] = true
	}
	list := slices.Clone(oids)
	for more := true; more; {
		more = false
		for _, t := range cat.Tables() {
			if u := p.usesOf(t); !reached[t.OID] && (u.dynamic || slices.ContainsFunc(u.oids, func(oid uint32) bool { return reached[oid] })) {
				reached[t.OID], more = true, true
				list = append(list, t.OID)
			}
		}
	}
	return list
}

// uses is what a use of a relation may come to, one step down.
type uses struct {
	oids    []uint32
	dynamic bool
}

type usesKey struct{ oid uint32 }

func (p *planner) usesOf(t *catalog.Table) *uses {
	return p.catalog.Derived(usesKey{t.OID}, func() any {
		u := &uses{}
		if t.Kind == catalog.KindView {
			p.usesOfView(u, t)
		}
		for _, tr := range t.Triggers {
			if f := p.catalog.Function(tr.Function); f != nil {
				u.add(p.bodyOf(f))
			}
		}
		for i := range t.Hidden {
			u.add(p.hiddenBody(&t.Hidden[i]))
		}
		for _, f := range p.defaultsOf(t) {
			u.add(p.bodyOf(f))
		}
		for _, fk := range t.ReferencedBy {
			if acts(fk.OnDelete) || acts(fk.OnUpdate) {
				u.oids = append(u.oids, fk.Table)
			}
		}
		return u
	}).(*uses)
}

func (p *planner) usesOfView(u *uses, t *catalog.Table) {
	tree := p.viewTree(t)
	if tree == nil {
		u.dynamic = true
		return
	}
	for _, rv := range analyze.Relations(tree) {
		if below := p.catalog.Lookup(nil, rv.Schemaname, rv.Relname); below != nil {
			u.oids = append(u.oids, p.root(below).OID)
		}
	}
	for _, c := range analyze.Calls(tree) {
		for _, f := range p.functions(c) {
			if !f.Builtin {
				u.add(p.bodyOf(f))
			}
		}
	}
}

func (u *uses) add(b body) {
	u.dynamic = u.dynamic || b.dynamic
	u.oids = append(u.oids, b.routines...)
	for _, t := range b.tables {
		u.oids = append(u.oids, t.OID)
	}
}

// fenceCode holds back statements on what gets other code that may come to tables which are not local: a plan from before it knows nothing of that.
func (p *planner) fenceCode(n *pg.Node, tables []*catalog.Table) {
	if !p.spread() {
		return
	}
	var changed []uint32
	switch s := n.GetNode().(type) {
	case *pg.Node_ViewStmt:
		view := p.catalog.Lookup(p.path, s.ViewStmt.View.Schemaname, s.ViewStmt.View.Relname)
		if s.ViewStmt.Replace && view != nil {
			changed = append(changed, view.OID)
		}
	case *pg.Node_CreateFunctionStmt:
		changed = p.sameNamed(s.CreateFunctionStmt)
	case *pg.Node_CreateTrigStmt:
		schema, name := analyze.Name(s.CreateTrigStmt.Funcname)
		if len(tables) > 0 && slices.ContainsFunc(p.catalog.Functions(p.path, schema, name), func(f *catalog.Function) bool { return p.matters(p.bodyOf(f)) }) {
			changed = append(changed, p.root(tables[0]).OID)
		}
	case *pg.Node_CreatePolicyStmt, *pg.Node_AlterPolicyStmt:
		if len(tables) > 1 || slices.ContainsFunc(analyze.Calls(n), p.callReaches) {
			changed = append(changed, p.root(tables[0]).OID)
		}
	}
	for _, oid := range Reaching(p.catalog, changed) {
		if len(changed) > 0 && !slices.Contains(p.plan.Fenced, oid) {
			p.plan.Fenced = append(p.plan.Fenced, oid)
		}
	}
}

// sameNamed are the routines that one replaces, or that calls may no longer mean, if some of them comes to tables that are not local.
func (p *planner) sameNamed(s *pg.CreateFunctionStmt) []uint32 {
	_, name := analyze.Name(s.Funcname)
	made := &catalog.Function{Name: name, Language: "sql"}
	for _, o := range s.Options {
		switch e := o.GetDefElem(); e.GetDefname() {
		case "as":
			if items := e.GetArg().GetList().GetItems(); len(items) > 0 {
				made.Source = items[0].GetString_().GetSval()
			}
		case "language":
			made.Language = e.GetArg().GetString_().GetSval()
		}
	}
	if text, err := analyze.Deparse(&pg.Node{Node: &pg.Node_CreateFunctionStmt{CreateFunctionStmt: s}}); err == nil && s.SqlBody != nil {
		made.Source = text
	}
	matters := p.matters(p.readRoutine(made))
	var oids []uint32
	for _, f := range p.nameIndex().functions[strings.ToLower(name)] {
		oids = append(oids, f.OID)
		matters = matters || p.matters(p.bodyOf(f))
	}
	if !matters {
		return nil
	}
	return oids
}

// matters reports code that the planner refuses in some place.
func (p *planner) matters(b body) bool {
	return b.dynamic || b.ddl || slices.ContainsFunc(b.tables, func(t *catalog.Table) bool {
		return p.placed(t).placement != catalog.Local || t.Kind == catalog.KindView && p.viewMatters(t)
	})
}
