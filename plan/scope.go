package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/catalog"
)

// ref is one occurrence of a relation in a FROM clause, or the target of a write.
type ref struct {
	alias   string
	aliases []string       // column aliases, which replace the first names
	table   *catalog.Table // a base table
	body    *block         // a subquery, a view or a CTE
	// shared is set when several references read one evaluation of body, so that what one of
	// them needs says nothing about the body's rows.
	shared bool
	schema  string
	unknown bool // its columns are not known: a function, a recursive reference
}

// column is a column of a ref: of the table, or an output of the body.
type column struct {
	ref   *ref
	index int
}

// output is one column of a query block.
type output struct {
	name   string
	source *column // set when the output is just this column
	expr   *pg.Node
	scope  *block
	open   bool // a restriction of the output may be moved below the block
}

// block is one query block (or set operation): a scope for names and a list of outputs.
type block struct {
	parent  *block
	ctes    map[string]*cte
	refs    []*ref
	merged  map[string]*column // columns merged by USING or NATURAL, by name
	outputs []output
	arms    []*block // of a set operation
	// nullable are the refs whose columns an outer join of this block may turn into NULL.
	nullable map[*ref]bool
}

// cte is a WITH item.
type cte struct {
	name      string
	aliases   []string
	body      *block
	refs      []*ref
	recursive bool
	writes    bool
}

func (r *ref) width() int {
	if r.table != nil {
		return len(r.table.Columns)
	}
	if r.body != nil {
		return len(r.body.outputs)
	}
	return 0
}

func (r *ref) columnName(i int) string {
	if i < len(r.aliases) {
		return r.aliases[i]
	}
	if r.table != nil {
		return r.table.Columns[i].Name
	}
	return r.body.outputs[i].name
}

func (r *ref) find(name string) int {
	for i := range r.width() {
		if r.columnName(i) == name {
			return i
		}
	}
	return -1
}

// lookupCTE finds a WITH name from this block outwards.
func (b *block) lookupCTE(name string) *cte {
	for ; b != nil; b = b.parent {
		if c := b.ctes[name]; c != nil {
			return c
		}
	}
	return nil
}

// resolve finds what a column reference means, in this block or an outer one. It answers nil
// for everything that is not plainly one column: that is never an error here, only no knowledge.
func (b *block) resolve(n *pg.ColumnRef) *column {
	names := make([]string, 0, len(n.Fields))
	for _, f := range n.Fields {
		s := f.GetString_()
		if s == nil {
			return nil
		}
		names = append(names, s.Sval)
	}
	for scope := b; scope != nil; scope = scope.parent {
		if c, found := scope.resolveHere(names); found {
			return c
		}
	}
	return nil
}

func (b *block) resolveHere(names []string) (_ *column, found bool) {
	switch len(names) {
	case 1:
		if c, ok := b.merged[names[0]]; ok {
			return c, true
		}
		var hit *column
		unknown := false
		for _, r := range b.refs {
			unknown = unknown || r.unknown
			if i := r.find(names[0]); i >= 0 {
				if hit != nil {
					return nil, true
				}
				hit = &column{r, i}
			}
		}
		// A name that nothing here is known to have may still belong to an unknown ref; to look
		// for it further out would be a guess.
		return hit, hit != nil || unknown
	case 2, 3:
		qualifier, name := names[len(names)-2], names[len(names)-1]
		for _, r := range b.refs {
			if r.alias != qualifier || len(names) == 3 && r.schema != names[0] {
				continue
			}
			if i := r.find(name); i >= 0 {
				return &column{r, i}, true
			}
			return nil, true
		}
	}
	return nil, false
}
