package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"
)

// Names are those of a statement that the catalog does not have. Most often there is nothing of that name, and PostgreSQL says so.
// But it may have been made a moment ago, over distributed tables: the home node, which knows it then, would answer
// for its own rows. So such a statement is run only after the home node has said that it is something that catalogs never have.
type Names struct {
	Relations []string // as SQL, with the schema if it was given
	Functions []string // without a schema, as in pg_proc
}

// ifAny is nil where names do not matter: with one node, and for DDL, which all nodes run.
func (n *Names) ifAny(harmless bool) *Names {
	if harmless || len(n.Relations)+len(n.Functions) == 0 {
		return nil
	}
	return n
}

func (p *planner) unknownRelation(rv *pg.RangeVar) {
	name := QuoteIdent(rv.Relname)
	if rv.Schemaname != "" {
		name = QuoteIdent(rv.Schemaname) + "." + name
	}
	if !slices.Contains(p.unknown.Relations, name) {
		p.unknown.Relations = append(p.unknown.Relations, name)
	}
}

// unknownFunction notes a call of something that may be a type or a column, too: PostgreSQL lets them be written like calls.
func (p *planner) unknownFunction(name string) {
	if !p.catalog.BuiltinType(name) && !slices.Contains(p.unknown.Functions, name) {
		p.unknown.Functions = append(p.unknown.Functions, name)
	}
}
