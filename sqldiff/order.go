package sqldiff

import (
	"strings"

	pgquery "github.com/pganalyze/pg_query_go/v6"
)

// orderOf finds out what a statement promises about the order of its rows: the output columns by which it
// sorts, or that every row has its place (when it sorts by what is not in the output: the corpus then sorts
// totally), or nothing.
func orderOf(sql string, columns []Column) (order []int, total bool) {
	tree, err := pgquery.Parse(sql)
	if err != nil || len(tree.Stmts) != 1 {
		return nil, false
	}
	node := tree.Stmts[0].Stmt
	if c := node.GetCopyStmt(); c != nil && c.Query.GetSelectStmt() != nil {
		return nil, len(c.Query.GetSelectStmt().SortClause) > 0
	}
	s := node.GetSelectStmt()
	if s == nil {
		return nil, false
	}
	for _, item := range s.SortClause {
		i := outputColumn(tree.Version, item.GetSortBy().Node, s, columns)
		if i < 0 {
			return nil, true
		}
		order = append(order, i)
	}
	return order, false
}

// outputColumn is the column that an ORDER BY item means, or -1.
func outputColumn(version int32, item *pgquery.Node, s *pgquery.SelectStmt, columns []Column) int {
	if c := item.GetAConst(); c != nil && c.GetIval() != nil {
		return int(c.GetIval().Ival) - 1
	}
	text, ok := deparse(version, item)
	if !ok {
		return -1
	}
	if len(s.TargetList) == len(columns) { // otherwise a star is among them, and only names help
		for i, target := range s.TargetList {
			if val, ok := deparse(version, target.GetResTarget().Val); ok && val == text {
				return i
			}
		}
	}
	if item.GetColumnRef() == nil {
		return -1
	}
	name, found := strings.Trim(text[strings.LastIndexByte(text, '.')+1:], `"`), -1
	for i, c := range columns {
		if c.Name != name {
			continue
		}
		if found >= 0 {
			return -1
		}
		found = i
	}
	return found
}

// deparse prints an expression in one way.
func deparse(version int32, expr *pgquery.Node) (string, bool) {
	text, err := pgquery.Deparse(&pgquery.ParseResult{Version: version, Stmts: []*pgquery.RawStmt{{
		Stmt: &pgquery.Node{Node: &pgquery.Node_SelectStmt{SelectStmt: &pgquery.SelectStmt{
			TargetList: []*pgquery.Node{{Node: &pgquery.Node_ResTarget{ResTarget: &pgquery.ResTarget{Val: expr}}}},
			Op:         pgquery.SetOperation_SETOP_NONE, LimitOption: pgquery.LimitOption_LIMIT_OPTION_DEFAULT,
		}}},
	}}})
	return strings.TrimPrefix(text, "SELECT "), err == nil
}
