package plan

import (
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// utility plans everything that is not a query.
func (p *planner) utility(s *analyze.Statement) {
	p.fixed = true
	switch s.Class {
	case analyze.Copy:
		p.copy(s.Tree.GetCopyStmt())
	case analyze.Do:
		p.doBlock(s.Tree.GetDoStmt())
	case analyze.Call:
		p.expressions(&block{}, s.Tree)
		p.plan.Writes, p.writes = true, true
		if len(p.keyed) > 0 {
			p.decide(s.Tree)
			return
		}
		p.checkRoutines(false)
	case analyze.Lock:
		p.everyIfSpread(s.Tree)
	case analyze.Truncate:
		p.everyIfSpread(s.Tree)
		if s.Tree.GetTruncateStmt().Behavior == pg.DropBehavior_DROP_CASCADE && p.spread() {
			p.plan.Kind = Every
		}
	case analyze.CreateAs:
		p.createAs(s.Tree)
	case analyze.Refresh:
		p.refresh(s.Tree.GetRefreshMatViewStmt())
	case analyze.Listen:
		p.plan.Hold = "LISTEN"
	case analyze.DDL:
		p.ddl(s.Tree)
	case analyze.NodeWise:
		p.nodeWise(s.Tree)
	case analyze.Load:
		// The library must be wherever the session's statements run, and stays until its sessions end.
		p.plan.Kind, p.plan.Hold = Every, "LOAD"
	default: // SHOW, NOTIFY and what the router answers itself
		p.plan.Kind = Route
		p.plan.Writes = s.Class == analyze.Notify
	}
}

// named collects the tables of the catalog that a tree names.
func (p *planner) named(n proto.Message) (tables []*catalog.Table, temporary bool) {
	for _, rv := range analyze.Relations(n) {
		if p.isTemporary(rv) {
			temporary = true
			continue
		}
		if t := p.catalog.Lookup(p.path, rv.Schemaname, rv.Relname); t != nil {
			tables = append(tables, t)
		}
	}
	return tables, temporary
}

func (p *planner) everyIfSpread(n *pg.Node) {
	tables, temporary := p.named(n)
	for _, rv := range analyze.Relations(n) {
		if !p.isTemporary(rv) && p.catalog.Lookup(p.path, rv.Schemaname, rv.Relname) == nil {
			p.unknownRelation(rv)
		}
	}
	p.plan.Writes = true
	p.touchTables(tables)
	for _, t := range tables {
		if n.GetTruncateStmt() != nil {
			p.hiddenTruncate(t, n.GetTruncateStmt().Behavior == pg.DropBehavior_DROP_CASCADE)
		}
		if p.placed(t).placement != catalog.Local || t.Kind == catalog.KindView && p.viewMatters(t) {
			p.plan.Kind = Every
		}
	}
	if temporary && p.plan.Kind == Every {
		p.fail(refuse("Use two statements.", "a statement over temporary and distributed or reference tables is not supported"))
	}
}

// createAs plans CREATE TABLE AS: rows go to the home node, the empty table to all the others.
func (p *planner) createAs(n *pg.Node) {
	s := n.GetCreateTableAsStmt()
	if s == nil { // SELECT ... INTO
		sel := n.GetSelectStmt()
		into := sel.IntoClause
		sel.IntoClause = nil
		s = &pg.CreateTableAsStmt{Query: n, Into: into, Objtype: pg.ObjectType_OBJECT_TABLE, IsSelectInto: true}
		n = &pg.Node{Node: &pg.Node_CreateTableAsStmt{CreateTableAsStmt: s}}
	}
	if ex := s.Query.GetExecuteStmt(); ex != nil {
		p.fail(refuse("Write the query itself.", "CREATE TABLE AS EXECUTE is not supported"))
		return
	}
	p.query(s.Query, nil)
	if p.createsInSchema(s.Into.Rel, s.Objtype) {
		return
	}
	p.touch(p.refs)
	isView := s.Objtype == pg.ObjectType_OBJECT_MATVIEW
	for _, r := range p.refs {
		if p.placed(r.table).placement == catalog.Distributed && !isView {
			p.fail(refuseSeveral("Fill the table later.", "CREATE TABLE AS over distributed table %q is not supported", r.table.Name))
			return
		}
	}
	p.checkRoutines(false)
	if isView && !s.Into.SkipData && !(s.IfNotExists && p.catalog.Lookup(p.path, s.Into.Rel.Schemaname, s.Into.Rel.Relname) != nil) {
		p.lendTo(s.Query)
	}
	p.plan.Writes = true
	if rel := s.Into.Rel; rel.Relpersistence == "t" || strings.HasPrefix(rel.Schemaname, "pg_temp") {
		p.plan.Kind, p.plan.Hold = Route, "temporary table"
		return
	}
	if p.temporary && s.Objtype == pg.ObjectType_OBJECT_TABLE {
		p.plan.Kind, p.plan.Schema = Every, true
		p.plan.Shape = &Shape{Schema: s.Into.Rel.Schemaname, Name: s.Into.Rel.Relname, IfNotExists: s.IfNotExists}
		return
	}
	s.Into.SkipData = true
	text, err := analyze.Deparse(n)
	if err != nil {
		p.fail(refuse("", "the statement cannot be written again: %v", err))
		return
	}
	p.plan.Kind, p.plan.Schema, p.plan.OtherText = Every, true, text
}

// createFrom completes the plan of CREATE TABLE AS over several nodes: the other nodes get the empty table.
func (p *planner) createFrom(text string) error {
	stmts, err := analyze.Parse(text)
	if err != nil {
		return err
	}
	n := withQuery(stmts[0])
	s := n.GetCreateTableAsStmt()
	p.plan.Writes = true
	if rel := s.Into.Rel; rel.Relpersistence == "t" || strings.HasPrefix(rel.Schemaname, "pg_temp") {
		p.plan.Hold = "temporary table"
		return nil
	}
	if p.createsInSchema(s.Into.Rel, s.Objtype) {
		return p.err
	}
	s.Into.SkipData = true
	if text, err = analyze.Deparse(n); err != nil {
		return refuse("", "the statement cannot be written again: %v", err)
	}
	p.plan.Kind, p.plan.Schema, p.plan.OtherText = Every, true, text
	return nil
}

func (p *planner) nodeWise(n *pg.Node) {
	if v := n.GetVacuumStmt(); v != nil {
		p.plan.Kind, p.plan.Writes = NodeByNode, true
		if !v.IsVacuumcmd { // ANALYZE may stand in a transaction
			p.plan.Kind = Every
		}
		if _, temporary := p.named(n); temporary {
			p.plan.Kind = Route
		}
		return
	}
	tables, temporary := p.named(n)
	if temporary {
		p.plan.Kind, p.plan.Writes = Route, true
		return
	}
	p.alterSpread(n, tables)
	p.computesRows(n, tables)
	p.plan.Kind, p.plan.Writes, p.plan.Schema = NodeByNode, true, true
}
