package plan

import (
	"errors"
	"slices"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// oneNode reports a cluster in which every statement can see all rows.
func oneNode(m *keyspace.Map) bool { return len(m.Nodes) == 1 && m.Nodes[0].Name == m.Home }

// spread reports whether tables can have rows elsewhere than on the home node.
func (p *planner) spread() bool { return !p.alone && p.catalog.Spread() }

// standsAlone reports a statement that was refused because of where rows are, while all of them are on
// the only node there is.
func (p *planner) standsAlone(class analyze.Class) bool {
	var refusal *Refusal
	if !errors.As(p.err, &refusal) {
		return false
	}
	if slices.ContainsFunc(p.stored, p.weak) {
		return false
	}
	switch class {
	case analyze.Query, analyze.Explain, analyze.Declare, analyze.Copy, analyze.Do, analyze.Call, analyze.CreateAs, analyze.Refresh:
		return true
	}
	return false
}

// asLocal plans a statement as if no table were distributed; false when that is refused, too.
func (p *planner) asLocal(s *analyze.Statement) bool {
	p.alone = true
	p.statement(s)
	return p.err == nil
}

// weak reports a distributed table that PostgreSQL lets store rows which belong nowhere: without a
// key, or with one that must be declared or assigned first.
func (p *planner) weak(t *catalog.Table) bool {
	root := p.root(t)
	if root.Placement != catalog.Distributed {
		return false
	}
	for _, k := range root.Key {
		if !root.Columns[k].NotNull {
			return true
		}
	}
	return p.declares(root.Distribution)
}

// checkAlone refuses hidden writes that may store rows which belong nowhere.
func (p *planner) checkAlone(what string, b body) {
	if !p.alone || !b.writes && !b.dynamic {
		return
	}
	tables := b.tables
	if b.dynamic {
		tables = p.catalog.Tables()
	}
	for _, t := range tables {
		if p.weak(t) {
			p.fail(refuse("Declare the key columns NOT NULL.",
				"%s may write to distributed table %q, whose keys cannot be checked there", what, t.Name))
			return
		}
	}
}
