package plan

import (
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// copy plans COPY.
func (p *planner) copy(s *pg.CopyStmt) {
	if s.Query != nil {
		p.dml(s.Query)
		if p.plan.Kind != Route || p.plan.Rewrite != nil {
			p.fail(refuse("", "COPY of a statement that writes on several nodes is not supported"))
		}
		return
	}
	p.plan.Kind, p.plan.Writes = Route, s.IsFrom
	if p.isTemporary(s.Relation) {
		p.temporaryCode()
		return
	}
	t := p.catalog.Lookup(p.path, s.Relation.Schemaname, s.Relation.Relname)
	if t == nil {
		p.unknownRelation(s.Relation)
		p.mustExist(s.Relation)
		return
	}
	place := p.placed(t)
	p.hiddenRead(t)
	if s.IsFrom {
		p.stored = append(p.stored, t)
		p.expressions(&block{}, s.WhereClause)
		p.defaultRoutines(t)
		p.checkRoutines(place.placement != catalog.Local)
		p.hiddenWrites(t)
	}
	p.plan.Kind, p.plan.Writes = Route, s.IsFrom
	p.touchTables([]*catalog.Table{t})
	if t.Kind == catalog.KindView && p.viewMatters(t) {
		p.fail(refuse("Use COPY (SELECT ...).", "COPY of view %q over distributed tables is not supported", t.Name))
		return
	}
	if place.placement == catalog.Local {
		return
	}
	if !s.IsFrom {
		if place.placement == catalog.Reference {
			p.plan.AnyNode = true
			return
		}
		if pin := p.pinOf(&ref{table: t}); pin.Entry != nil || !p.spreadOverNodes(pin.Distribution) {
			p.addPin(pin)
			return
		}
		refusal := refuse("Use COPY (SELECT ... WHERE key = value) TO.",
			"COPY of distributed table %q needs rows from several nodes, which is not supported yet", t.Name)
		refusal.several = t.Kind == catalog.KindTable && s.Filename == "" && !s.IsProgram
		p.fail(refusal)
		return
	}
	if s.Filename != "" || s.IsProgram {
		p.fail(refuse("Use COPY FROM STDIN, or \\copy in psql.", "COPY FROM a file or program on a node is not supported for distributed and reference tables"))
		return
	}
	if place.entry != nil {
		p.addPin(p.pinOf(&ref{table: t}))
		return
	}
	p.copyIn(s, t, place)
}

func (p *planner) copyIn(s *pg.CopyStmt, t *catalog.Table, place placed) {
	names := make([]string, 0, len(t.Columns))
	for _, c := range s.Attlist {
		name := c.GetString_().GetSval()
		if t.Column(name) < 0 {
			return // PostgreSQL says that it does not exist
		}
		names = append(names, name)
	}
	if len(s.Attlist) == 0 {
		for i := range t.Columns {
			if t.Columns[i].Generated == 0 {
				names = append(names, t.Columns[i].Name)
			}
		}
	}
	c := &Copy{Table: t.Name, Columns: names}
	if place.placement == catalog.Distributed {
		c.Pin = Pin{Distribution: place.distribution, Table: t.Name, Insert: true, Stored: true}
		for _, key := range place.keys {
			at := slices.Index(names, t.Columns[key].Name)
			if at < 0 {
				p.fail(refuse("Add the key column to the data and to the column list.",
					"COPY into distributed table %q without its key column %q is not supported", t.Name, t.Columns[key].Name))
				return
			}
			c.Keys = append(c.Keys, at)
			c.Pin.Keys = append(c.Pin.Keys, p.assignedColumn(t, key, nil))
		}
	} else if p.missingDefault(t, names) {
		return
	}
	kept := s.Options[:0:0]
	for _, o := range s.Options {
		opt := copyOption(o.GetDefElem(), names)
		c.Options = append(c.Options, opt)
		if opt.Name != "header" {
			kept = append(kept, o)
		}
	}
	s.Options = kept
	text, err := analyze.Deparse(&pg.Node{Node: &pg.Node_CopyStmt{CopyStmt: s}})
	if err != nil {
		p.fail(refuse("", "the statement cannot be written again: %v", err))
		return
	}
	c.Text = text
	p.plan.Kind, p.plan.Copy = CopyIn, c
}

// missingDefault refuses rows of a reference table whose columns each node would fill differently.
func (p *planner) missingDefault(t *catalog.Table, names []string) bool {
	for i := range t.Columns {
		c := &t.Columns[i]
		if slices.Contains(names, c.Name) {
			continue
		}
		if p.defaultDiffers(c) {
			p.fail(refuse("Add the column to the data and to the column list.",
				"COPY into reference table %q without column %q, whose default each node would compute for itself", t.Name, c.Name))
			return true
		}
	}
	return false
}

func copyOption(d *pg.DefElem, names []string) CopyOption {
	o := CopyOption{Name: strings.ToLower(d.Defname), Value: optionValue(d.Arg)}
	if d.Arg.GetAStar() != nil {
		o.Value = "*"
	}
	for _, n := range d.Arg.GetList().GetItems() {
		o.Columns = append(o.Columns, slices.Index(names, n.GetString_().GetSval()))
	}
	return o
}

func optionValue(n *pg.Node) string {
	switch v := n.GetNode().(type) {
	case *pg.Node_String_:
		return v.String_.Sval
	case *pg.Node_Boolean:
		if v.Boolean.Boolval {
			return "true"
		}
		return "false"
	case *pg.Node_Integer:
		if v.Integer.Ival != 0 {
			return "true"
		}
		return "false"
	}
	if n == nil {
		return "true" // an option without a value is on
	}
	return ""
}
