package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
)

// usesOutside reports a block that needs something from around it: columns of an outer query, or a
// WITH item that is not its own. What is not understood counts as such a need.
func (x *exchanger) usesOutside(b *block) bool {
	inside := map[*block]bool{}
	ctes := map[*pg.CommonTableExpr]bool{}
	outside := false
	analyze.Walk(b.stmt, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pg.SelectStmt:
			if nested := x.p.blocks[e]; nested != nil {
				inside[nested] = true
			}
		case *pg.CommonTableExpr:
			ctes[e] = true
		}
		return true
	})
	analyze.Walk(b.stmt, func(m proto.Message) bool {
		if rv, ok := m.(*pg.RangeVar); ok {
			for _, r := range x.byVar[rv] {
				outside = outside || r.cte != nil && !ctes[r.cte.expr]
			}
		}
		return !outside
	})
	return outside || !x.closed(b, b.stmt, inside)
}

// closed reports that all names below a message mean something inside.
func (x *exchanger) closed(scope *block, root proto.Message, inside map[*block]bool) bool {
	ok := true
	first := true
	analyze.Walk(root, func(m proto.Message) bool {
		switch e := m.(type) {
		case *pg.SelectStmt:
			if first {
				first = false
				return true
			}
			nested := x.p.blocks[e]
			ok = ok && nested != nil && x.closed(nested, e, inside)
			return false
		case *pg.ColumnRef:
			ok = ok && x.means(scope, e, inside)
		case *pg.JoinExpr:
			// Names in its condition are looked up in the join; the block around it sees the same columns
			// unless an alias hides them.
			ok = ok && e.Alias == nil
		}
		return ok
	})
	return ok
}

func (x *exchanger) means(scope *block, cr *pg.ColumnRef, inside map[*block]bool) bool {
	if isStar(cr) {
		return len(cr.Fields) == 1 || scope.qualifiedHere(cr)
	}
	if c := scope.resolve(cr); c != nil {
		return inside[c.ref.owner]
	}
	return outputNamed(scope, &pg.Node{Node: &pg.Node_ColumnRef{ColumnRef: cr}}) != nil && scope.notElsewhere(cr)
}

// qualifiedHere reports t.* of a ref of this very block.
func (b *block) qualifiedHere(cr *pg.ColumnRef) bool {
	names := make([]string, 0, len(cr.Fields))
	for _, f := range cr.Fields[:len(cr.Fields)-1] {
		names = append(names, f.GetString_().GetSval())
	}
	return b.qualified(names) != nil
}

// notElsewhere reports a bare name that is no column of this block or one around it.
func (b *block) notElsewhere(cr *pg.ColumnRef) bool {
	name := []string{cr.Fields[0].GetString_().GetSval()}
	for scope := b; scope != nil; scope = scope.parent {
		if _, found := scope.resolveHere(name); found {
			return false
		}
	}
	return true
}
