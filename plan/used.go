package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
)

// usedColumns are the columns that a statement uses; those of a table that it does not use need not move.
type usedColumns struct {
	names    map[string]bool // all names of columns in it
	loose    map[string]bool // those of which it is not known whose they are: of any table
	exact    map[mention]bool
	star     bool // all columns of all tables
	wholeRow bool // rows as values
}

// mention is a column of a relation where it stands in the statement.
type mention struct {
	relation *pg.RangeVar
	column   int
}

// needs reports a column that the statement uses, or may use.
func (x *exchanger) needs(r *ref, i int) bool {
	if x.star || len(r.aliases) > 0 {
		return true
	}
	return x.loose[r.columnName(i)] || x.exact[mention{r.node.GetRangeVar(), i}]
}

// noteColumns collects the columns that the statement uses.
func (x *exchanger) noteColumns() {
	x.names, x.loose, x.exact = map[string]bool{}, map[string]bool{}, map[mention]bool{}
	aliases := map[string]bool{}
	for _, r := range x.p.refs {
		aliases[r.alias] = true
	}
	x.noteColumnsIn(nil, x.root, aliases)
}

// noteColumnsIn looks at everything below a message whose names are looked up in scope; nil: nobody knows in which.
func (x *exchanger) noteColumnsIn(scope *block, root proto.Message, aliases map[string]bool) {
	analyze.Walk(root, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pg.SelectStmt:
			if m == root {
				return true
			}
			x.noteColumnsIn(x.p.blocks[e], e, aliases)
			return false
		case *pg.ColumnRef:
			x.mention(scope, e, aliases)
		case *pg.JoinExpr:
			// The alias of a join names columns by their places, and stands for whole rows.
			x.star = x.star || e.IsNatural || e.Alias != nil
			for _, u := range e.UsingClause {
				x.names[u.GetString_().GetSval()], x.loose[u.GetString_().GetSval()] = true, true
			}
		}
		return true
	})
}

func (x *exchanger) mention(scope *block, e *pg.ColumnRef, aliases map[string]bool) {
	last := e.Fields[len(e.Fields)-1]
	if last.GetAStar() != nil {
		x.star = true
		return
	}
	name := last.GetString_().GetSval()
	x.names[name] = true
	if aliases[name] { // the whole row, or a column of the same name
		x.star, x.wholeRow = true, true
	}
	var c *column
	if scope != nil {
		c = scope.resolve(e)
	}
	if c == nil || c.ref.node.GetRangeVar() == nil {
		x.loose[name] = true
		return
	}
	x.exact[mention{c.ref.node.GetRangeVar(), c.index}] = true
}
