package plan

import (
	"fmt"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// evaluateKey arranges that the key of one row of VALUES is computed before the statement is sent:
// the expression, or the column's default, becomes a parameter of the rewritten statement.
func (p *planner) evaluateKey(s *pg.InsertStmt, t *catalog.Table, key column, source *pg.SelectStmt, row, at int, expr *pg.Node) (Operand, bool) {
	col := t.Columns[key.index]
	var text string
	switch {
	case expr != nil && expr.GetSetToDefault() == nil:
		if hasColumnOrSubquery(expr) || hasParam(expr) {
			p.fail(refuseSeveral("Compute the key first and insert it as a value.",
				"the key of a row for distributed table %q is given by an expression that cannot be computed beforehand", t.Name))
			return Operand{}, false
		}
		var err error
		if text, err = deparseExpression(expr); err != nil {
			p.fail(refuse("", "the key expression of distributed table %q cannot be read: %v", t.Name, err))
			return Operand{}, false
		}
	case col.Identity != 0:
		text = identityDefault(t, &col)
		s.Override = pg.OverridingKind_OVERRIDING_SYSTEM_VALUE
	case col.Default != "":
		text = col.Default
	default:
		kt, _ := p.keyType(key)
		return Operand{Literal: -1, Null: true, From: kt}, true
	}
	kt, _ := p.keyType(key)
	p.eval = append(p.eval, fmt.Sprintf("(%s)::%s", text, col.TypeName))
	n := p.maxParam + len(p.eval)
	p.placeValue(s, source, key, row, at, paramNode(n))
	return Operand{Literal: -1, Eval: len(p.eval), From: kt}, true
}

// identityDefault is the expression behind an identity column.
func identityDefault(t *catalog.Table, c *catalog.Column) string {
	return fmt.Sprintf("pg_catalog.nextval(pg_catalog.pg_get_serial_sequence(%s, %s)::pg_catalog.regclass)",
		QuoteLiteral(QuoteIdent(t.Schema)+"."+QuoteIdent(t.Name)), QuoteLiteral(c.Name))
}

// placeValue puts the parameter where the key's value goes, adding the column when it is missing.
func (p *planner) placeValue(s *pg.InsertStmt, source *pg.SelectStmt, key column, row, at int, param *pg.Node) {
	t := key.ref.table
	name := t.Columns[key.index].Name
	if source == nil { // DEFAULT VALUES
		s.Cols = []*pg.Node{pg.MakeResTargetNodeWithName(name, -1)}
		s.SelectStmt = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: &pg.SelectStmt{
			ValuesLists: []*pg.Node{pg.MakeListNode([]*pg.Node{param})},
		}}}
		return
	}
	items := source.ValuesLists[row].GetList()
	if at >= 0 && at < len(items.Items) {
		items.Items[at] = param
		return
	}
	if row == 0 {
		if len(s.Cols) == 0 {
			for _, c := range t.Columns[:len(items.Items)] {
				s.Cols = append(s.Cols, pg.MakeResTargetNodeWithName(c.Name, -1))
			}
		}
		s.Cols = append(s.Cols, pg.MakeResTargetNodeWithName(name, -1))
	}
	items.Items = append(items.Items, param)
}

func paramNode(n int) *pg.Node { return pg.MakeParamRefNode(int32(n), -1) }

func hasColumnOrSubquery(n *pg.Node) bool {
	found := false
	analyze.Walk(n, func(m proto.Message) bool {
		switch m.(type) {
		case *pg.ColumnRef, *pg.SubLink:
			found = true
		}
		return !found
	})
	return found
}

func hasParam(n *pg.Node) bool {
	found := false
	analyze.Walk(n, func(m proto.Message) bool {
		if _, ok := m.(*pg.ParamRef); ok {
			found = true
		}
		return !found
	})
	return found
}

func deparseExpression(n *pg.Node) (string, error) {
	sel := &pg.SelectStmt{TargetList: []*pg.Node{pg.MakeResTargetNodeWithVal(n, -1)}}
	text, err := analyze.Deparse(&pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: sel}})
	return strings.TrimPrefix(text, "SELECT "), err
}

// QuoteIdent quotes an identifier for SQL text.
func QuoteIdent(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// QuoteLiteral quotes a string for SQL text.
func QuoteLiteral(s string) string {
	q := "'" + strings.ReplaceAll(s, "'", "''") + "'"
	if strings.Contains(s, `\`) {
		return " E" + strings.ReplaceAll(q, `\`, `\\`)
	}
	return q
}
