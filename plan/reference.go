package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// everyNode plans a write to a reference table: the same statement on all nodes must have the
// same effect on all of them.
func (p *planner) everyNode(n *pg.Node, distributed, local []*ref) {
	at := slices.IndexFunc(p.targets, p.isReference)
	t := p.targets[at].table
	if len(distributed)+len(local) > 0 || p.temporary || p.unknownTable || len(p.targets) > 1 {
		p.fail(refuseSeveral("Write constants, or read from reference tables only.",
			"a write to reference table %q that reads other tables is not supported yet", t.Name))
		return
	}
	if n.GetSelectStmt() != nil || n.GetMergeStmt() != nil {
		p.fail(refuseSeveral("Use INSERT, UPDATE or DELETE on its own.",
			"MERGE into reference table %q, or a write to it inside WITH, is not supported yet", t.Name))
		return
	}
	p.checkRoutines(true)
	if hint, depends := p.orderDependent(n); depends {
		p.fail(refuseSeveral(hint, "this write to reference table %q could differ between nodes", t.Name))
		return
	}
	p.addDefaults(n, t)
	p.setDefaults(n, t)
	p.hoist(n, t.Name)
	p.plan.Kind = Every
	p.finishRewrite(n)
}

func (p *planner) isReference(r *ref) bool {
	return r.table != nil && p.placed(r.table).placement == catalog.Reference
}

// orderedAggregates answer with the rows in the order they come.
var orderedAggregates = map[string]bool{
	"array_agg": true, "string_agg": true, "json_agg": true, "jsonb_agg": true, "json_object_agg": true,
	"jsonb_object_agg": true, "xmlagg": true, "any_value": true, "mode": true,
}

// orderDependent reports statements whose effect may depend on the order in which a node finds its
// rows, which is not the same on all nodes.
func (p *planner) orderDependent(n *pg.Node) (hint string, depends bool) {
	if u := n.GetUpdateStmt(); u != nil && len(u.FromClause) > 0 {
		return "Use SET column = (SELECT ...) in place of FROM.", true // several rows may match one
	}
	if i := n.GetInsertStmt(); i != nil && i.OnConflictClause != nil && len(i.SelectStmt.GetSelectStmt().GetValuesLists()) == 0 {
		return "Use VALUES, or leave ON CONFLICT out.", true
	}
	analyze.Walk(n, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pg.SelectStmt:
			depends = depends || e.LimitCount != nil || e.LimitOffset != nil || distinctOn(e) || len(e.LockingClause) > 0
		case *pg.FuncCall:
			_, name := analyze.Name(e.Funcname)
			depends = depends || e.Over != nil || orderedAggregates[name] && len(e.AggOrder) == 0
			for _, f := range p.functions(e) {
				depends = depends || f.Kind == 'a' && !f.Builtin
			}
		case *pg.RangeTableSample:
			depends = true
		}
		return !depends
	})
	return "Write constants.", depends
}

// setDefaults refuses SET column = DEFAULT where each node would compute its own.
func (p *planner) setDefaults(n *pg.Node, t *catalog.Table) {
	targets := n.GetUpdateStmt().GetTargetList()
	targets = append(targets[:len(targets):len(targets)], n.GetInsertStmt().GetOnConflictClause().GetTargetList()...)
	for _, target := range targets {
		set := target.GetResTarget()
		if set.GetVal().GetSetToDefault() == nil {
			continue
		}
		if at := t.Column(set.Name); at >= 0 && p.defaultDiffers(&t.Columns[at]) {
			p.fail(refuseSeveral("Give the value.", "the default of column %q of reference table %q is computed per node", set.Name, t.Name))
		}
	}
}

// defaultDiffers reports columns whose default each node would answer in its own way.
func (p *planner) defaultDiffers(c *catalog.Column) bool {
	if c.Generated != 0 || c.Default == "" && c.Identity == 0 {
		return false
	}
	return c.Identity != 0 || c.DefaultVolatile || p.unstableDefault(c.Default)
}

// addDefaults makes defaults that differ per node visible in the statement, where hoist finds them.
func (p *planner) addDefaults(n *pg.Node, t *catalog.Table) {
	s := n.GetInsertStmt()
	if s == nil {
		return
	}
	names := insertNames(t, s.Cols)
	sel := s.SelectStmt.GetSelectStmt()
	for i := range t.Columns {
		c := &t.Columns[i]
		if !p.defaultDiffers(c) {
			continue
		}
		at := slices.Index(names, c.Name)
		if sel == nil || len(sel.ValuesLists) == 0 {
			if at < 0 || sel == nil {
				p.fail(refuseSeveral("Give all columns of the row.", "the default of column %q of reference table %q is computed per node", c.Name, t.Name))
			}
			continue
		}
		p.fillDefault(s, sel, t, c, at, names)
	}
}

func (p *planner) fillDefault(s *pg.InsertStmt, sel *pg.SelectStmt, t *catalog.Table, c *catalog.Column, at int, names []string) {
	first := sel.ValuesLists[0].GetList().GetItems()
	for row, l := range sel.ValuesLists {
		items := l.GetList()
		if at >= 0 && at < len(first) && items.Items[at].GetSetToDefault() == nil {
			continue
		}
		text := "(" + c.Default + ")::" + c.TypeName
		if c.Identity != 0 {
			text = identityDefault(t, c)
			s.Override = pg.OverridingKind_OVERRIDING_SYSTEM_VALUE
		}
		p.eval = append(p.eval, text)
		param := paramNode(p.maxParam + len(p.eval))
		if at >= 0 && at < len(first) {
			items.Items[at] = param
			continue
		}
		if row == 0 {
			if len(s.Cols) == 0 {
				for _, name := range names[:len(first)] {
					s.Cols = append(s.Cols, pg.MakeResTargetNodeWithName(name, -1))
				}
			}
			s.Cols = append(s.Cols, pg.MakeResTargetNodeWithName(c.Name, -1))
		}
		items.Items = append(items.Items, param)
	}
}

// unstableDefault reports a default like now(), which each node would answer in its own way.
func (p *planner) unstableDefault(text string) bool {
	stmts, err := analyze.Parse("SELECT " + text)
	return err != nil || len(stmts) != 1 || p.hasUnstable(stmts[0].Tree)
}

func (p *planner) hasUnstable(n *pg.Node) bool {
	unstable := p.volatility(n) != 'i'
	eachExpression(n.ProtoReflect(), func(n *pg.Node) bool {
		unstable = unstable || p.volatility(n) != 'i'
		return true
	})
	return unstable
}

// hoist replaces the calls that would answer differently on each node by parameters that are
// evaluated once. Calls that read columns cannot be; they refuse the statement. Volatile ones are
// evaluated for each row by PostgreSQL, so once is right only for what stands in VALUES.
func (p *planner) hoist(root *pg.Node, table string) {
	for _, l := range root.GetInsertStmt().GetSelectStmt().GetSelectStmt().GetValuesLists() {
		p.hoistBelow(l, table, true)
	}
	p.hoistBelow(root, table, false)
}

func (p *planner) hoistBelow(root *pg.Node, table string, once bool) {
	eachExpression(root.ProtoReflect(), func(n *pg.Node) bool {
		if once && n.GetSubLink() != nil {
			return false
		}
		v := p.volatility(n)
		if v == 'i' {
			return true
		}
		if v == 'v' && !once || hasColumnOrSubquery(n) || hasParam(n) {
			p.fail(refuseSeveral("Compute the value first and write it as a constant.",
				"a write to reference table %q uses a function that can answer differently on each node", table))
			return false
		}
		text, err := deparseExpression(n)
		if err != nil {
			p.fail(refuse("", "an expression of a write to reference table %q cannot be read: %v", table, err))
			return false
		}
		p.eval = append(p.eval, text)
		n.Node = paramNode(p.maxParam + len(p.eval)).Node
		return false
	})
}

// eachExpression shows visit every node below a message, parents first. It may change the node;
// when it returns false what is below it is left out.
func eachExpression(m protoreflect.Message, visit func(*pg.Node) bool) {
	analyze.EachField(m, func(m protoreflect.Message) {
		if n, ok := m.Interface().(*pg.Node); !ok || visit(n) {
			eachExpression(m, visit)
		}
	})
}

// sameOnNodes are stable functions that depend on the session's settings only, which all nodes share.
var sameOnNodes = map[string]bool{
	"concat": true, "concat_ws": true, "format": true, "to_char": true, "to_date": true, "to_timestamp": true,
	"date_trunc": true, "date_part": true, "extract": true, "timezone": true, "to_json": true, "to_jsonb": true,
	"json_build_object": true, "jsonb_build_object": true, "json_build_array": true, "jsonb_build_array": true,
	"row_to_json": true, "array_to_json": true, "array_to_string": true, "quote_literal": true, "quote_nullable": true,
	"to_tsvector": true, "to_tsquery": true, "plainto_tsquery": true, "make_timestamptz": true, "date": true, "text": true,
	"array_agg": true, "string_agg": true, "json_agg": true, "jsonb_agg": true, "json_object_agg": true, "jsonb_object_agg": true,
	"generate_series": true, "length": true, "lower": true, "upper": true, "substring": true, "json_populate_record": true,
	"jsonb_populate_record": true, "json_to_record": true, "jsonb_to_record": true, "json_to_recordset": true, "jsonb_to_recordset": true,
	"jsonb_path_query_tz": true, "websearch_to_tsquery": true, "phraseto_tsquery": true, "ts_headline": true,
}

// volatility is how far a node's own answer can be trusted to be that of all nodes: 'i' as far as
// its arguments, 's' within a statement, 'v' not at all.
func (p *planner) volatility(n *pg.Node) byte {
	if n.GetSqlvalueFunction() != nil {
		return 's'
	}
	call := n.GetFuncCall()
	if call == nil {
		return 'i'
	}
	fs := p.functions(call)
	if len(fs) == 0 {
		return 'v'
	}
	worst := byte('i')
	for _, f := range fs {
		switch {
		case f.Volatility == 'v':
			return 'v'
		case f.Volatility == 's' && !(f.Builtin && sameOnNodes[f.Name]):
			worst = 's'
		}
	}
	return worst
}
