package plan

import (
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// ref is one occurrence of a relation in a FROM clause, or the target of a write.
type ref struct {
	alias   string
	aliases []string // column aliases, which replace the first names
	// schema is the relation's own when it has no alias: then schema.name.column means it.
	schema  string
	table   *catalog.Table // a base table
	body    *block         // a subquery, a view or a CTE
	cte     *cte
	view    *catalog.Table // the view whose body it is
	node    *pg.Node       // the item of the FROM clause
	lateral bool
	sample  *pg.Node     // the TABLESAMPLE around it
	join    []joinColumn // a join with an alias, which hides the refs below it
	owner   *block       // the block whose FROM clause has it
	// shared is set when several references read one evaluation of body, so that what one of
	// them needs says nothing about the body's rows.
	shared bool
	// unknown is set when its columns are not known: a function, a recursive reference.
	unknown bool
	// onlyQualified is set for the alias of USING, which adds no names without a qualifier.
	onlyQualified bool
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
	open   bool // a restriction of the output may be moved below the block
	// constants are the values of an output that is the same for all rows, or of a column of
	// VALUES; typ is their type.
	constants []Operand
	typ       keyspace.Type
}

// block is one query block (or set operation): a scope for names and a list of outputs.
type block struct {
	parent  *block
	ctes    map[string]*cte
	refs    []*ref // those that names can mean
	items   []*joinTree
	merged  map[string]*column // columns merged by USING or NATURAL, by name
	outputs []output
	// holes is set when outputs is not the whole list, so that positions and names mean nothing.
	holes bool
	arms  []*block // of a set operation
	stmt  *pg.SelectStmt
	tree  *joinTree // of the whole FROM clause
}

// cte is a WITH item.
type cte struct {
	expr      *pg.CommonTableExpr
	name      string
	aliases   []string
	body      *block // nil while it is being planned
	refs      []*ref
	recursive bool
	writes    bool
	extended  bool // SEARCH and CYCLE add columns
}

// systemColumns are in every table and in no list of columns.
var systemColumns = []string{"ctid", "xmin", "xmax", "cmin", "cmax", "tableoid"}

// outside is the scope of what stands in a FROM clause without LATERAL: it sees the WITH items of
// the block, not its relations.
func (b *block) outside() *block { return &block{parent: b.parent, ctes: b.ctes} }

func (r *ref) width() int {
	switch {
	case r.unknown:
		return 0
	case r.table != nil:
		return len(r.table.Columns)
	case r.join != nil:
		return len(r.join)
	case r.body != nil:
		return len(r.body.outputs)
	}
	return 0
}

func (r *ref) columnName(i int) string {
	switch {
	case i < len(r.aliases):
		return r.aliases[i]
	case r.table != nil:
		return r.table.Columns[i].Name
	case r.join != nil:
		return r.join[i].name
	}
	return r.body.outputs[i].name
}

// at is the column in a place of the ref; through the alias of a join it is one of a ref below.
func (r *ref) at(i int) *column {
	if r.join != nil {
		return r.join[i].column
	}
	return &column{r, i}
}

// find returns the place of a name; ambiguous when there are several.
func (r *ref) find(name string) (at int, ambiguous bool) {
	at = -1
	for i := range r.width() {
		if r.columnName(i) == name {
			if at >= 0 {
				return at, true
			}
			at = i
		}
	}
	return at, false
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
		return b.resolveName(names[0])
	case 2, 3:
		r := b.qualified(names[:len(names)-1])
		if r == nil {
			return nil, false
		}
		if i, ambiguous := r.find(names[len(names)-1]); i >= 0 && !ambiguous {
			return r.at(i), true
		}
		return nil, true
	}
	return nil, true
}

// qualified finds the ref that a qualifier (name, or schema and name) means.
func (b *block) qualified(qualifier []string) *ref {
	n := len(qualifier)
	for _, r := range b.refs {
		if r.alias == qualifier[n-1] && (n == 1 || r.schema != "" && r.schema == qualifier[0]) {
			return r
		}
	}
	return nil
}

func (b *block) resolveName(name string) (_ *column, found bool) {
	if c, ok := b.merged[name]; ok {
		return c, true
	}
	var hit *column
	hits, unknown := 0, false
	for _, r := range b.refs {
		if r.onlyQualified {
			continue
		}
		// A name that nothing here is known to have may still belong to an unknown ref, and every
		// table has the system's columns; to look for it further out would be a guess.
		unknown = unknown || r.unknown || r.table != nil && slices.Contains(systemColumns, name)
		if i, ambiguous := r.find(name); ambiguous {
			return nil, true
		} else if i >= 0 {
			hit = r.at(i)
			hits++
		}
	}
	if hits > 1 {
		return nil, true
	}
	return hit, hits == 1 || unknown
}
