package plan

import (
	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
)

// scatter plans a query that distributes as one fragment: its rows are the answer, merged in order and cut here
// where that is exact, else by PostgreSQL.
func (x *exchanger) scatter(b *block) bool {
	s := b.stmt
	if len(b.arms) == 2 {
		at := x.setOperation(b)
		if at.at != spread || len(s.SortClause) > 0 || x.stored {
			return false
		}
		x.addFragment("", s, at.side, x.bases(s))
		return true
	}
	at := x.core(b, nil)
	if at.at != spread || !x.perKey(b, at) || s.LimitOption == pg.LimitOption_LIMIT_OPTION_WITH_TIES {
		return false
	}
	limit, ok := countOf(s.LimitCount)
	offset, also := countOf(s.LimitOffset)
	f := proto.Clone(s).(*pg.SelectStmt)
	order, sortable := x.mergeOrder(b, f)
	if !ok || !also || !sortable || x.stored {
		return x.sorted(b, at)
	}
	f.LimitOffset = nil
	if s.LimitCount != nil && s.LimitOffset != nil {
		f.LimitCount = rowsUpTo(f.LimitCount, s.LimitOffset)
	}
	x.out.Merge = Merge{Order: order, Hidden: len(order), Limit: limit, Offset: offset}
	x.addFragment("", f, at, x.bases(s))
	return true
}

// countOf reads LIMIT and OFFSET as far as they are known before the statement runs.
func countOf(n *pg.Node) (*Count, bool) {
	switch e := n.GetNode().(type) {
	case nil:
		return nil, true
	case *pg.Node_ParamRef:
		return &Count{Param: int(e.ParamRef.Number)}, true
	case *pg.Node_AConst:
		if e.AConst.Isnull {
			return nil, true
		}
		if i := e.AConst.GetIval(); i != nil {
			return &Count{Value: int64(i.Ival)}, true
		}
	}
	return nil, false
}

// mergeable are the types whose order is that of their binary format, as exec compares it.
var mergeable = map[uint32]bool{
	16: true, 17: true, 20: true, 21: true, 23: true, 26: true, 1082: true, 1083: true, 1114: true, 1184: true, 2950: true,
}

// orderedText are types whose order is that of their bytes under the collations C and POSIX, as long as the client has them in the
// server's encoding.
var orderedText = map[uint32]bool{19: true, 25: true, 1043: true}

// IsText reports a sort key that is compared by the bytes of a text.
func (k *SortKey) IsText() bool { return orderedText[k.Type] }

// mergeOrder adds a hidden column for every sort key, so that each can be had in the binary format.
func (x *exchanger) mergeOrder(b *block, f *pg.SelectStmt) ([]SortKey, bool) {
	var keys []SortKey
	for _, n := range b.stmt.SortClause {
		by := n.GetSortBy()
		source, byBytes := x.sortSource(b, by.Node), false
		if by.Node.GetCollateClause() != nil {
			source, byBytes = x.collatedSource(b, by.Node)
		}
		if source == nil || by.SortbyDir == pg.SortByDir_SORTBY_USING {
			return nil, false
		}
		t, at := source.base()
		if t == nil || source.ref.table == nil {
			return nil, false
		}
		typ := x.p.catalog.BaseType(t.Columns[at].TypeOID)
		if !mergeable[typ] && !(orderedText[typ] && (byBytes || t.Columns[at].ByteOrder)) {
			return nil, false
		}
		k := SortKey{Column: len(keys), Type: typ, Desc: by.SortbyDir == pg.SortByDir_SORTBY_DESC}
		k.NullsFirst = k.Desc && by.SortbyNulls != pg.SortByNulls_SORTBY_NULLS_LAST || by.SortbyNulls == pg.SortByNulls_SORTBY_NULLS_FIRST
		keys = append(keys, k)
		f.TargetList = append(f.TargetList, resTarget("", columnNode(source.ref.alias, source.ref.columnName(source.index))))
	}
	return keys, true
}

// sortSource is the column that an expression of ORDER BY means; nil when it is not plainly one.
func (x *exchanger) sortSource(b *block, n *pg.Node) *column {
	if at, ok := sortedOutput(b, n); ok && !b.holes {
		return b.outputs[at].source
	}
	if b.holes || len(b.stmt.DistinctClause) > 0 {
		return nil
	}
	c := x.p.columnOf(b, n)
	if c == nil || !b.tree.refs[c.ref] || c.ref.alias == "" {
		return nil
	}
	return c
}

// collatedSource is sortSource for a column with COLLATE "C".
func (x *exchanger) collatedSource(b *block, n *pg.Node) (*column, bool) {
	bare, _, ok := x.p.byteCollation(n)
	if !ok || b.holes || len(b.stmt.DistinctClause) > 0 {
		return nil, false
	}
	c := x.p.columnOf(b, bare)
	if c == nil || !b.tree.refs[c.ref] || c.ref.alias == "" {
		return nil, false
	}
	return c, true
}

// cut is sorted for a block that has an order and a limit of its own.
func (x *exchanger) cut(b *block) bool {
	at := x.core(b, nil)
	return at.at == spread && b.stmt.LimitCount != nil && x.perKey(b, at) && x.sorted(b, at)
}

// sorted lets the nodes do everything but the order and the limit, which PostgreSQL does over their rows.
func (x *exchanger) sorted(b *block, at side) bool {
	s := b.stmt
	targets, ok := explicitTargets(b)
	if !ok || len(s.LockingClause) > 0 {
		return false
	}
	f := proto.Clone(s).(*pg.SelectStmt)
	f.LimitCount, f.LimitOffset = nil, nil
	if !distinctOn(s) { // which rows it keeps depends on their order
		f.SortClause = nil
	}
	f.LimitOption = pg.LimitOption_LIMIT_OPTION_DEFAULT
	f.TargetList = cloneAll(targets)
	final := plainSelect()
	final.LimitCount, final.LimitOffset, final.LimitOption = s.LimitCount, s.LimitOffset, s.LimitOption
	for _, n := range s.SortClause {
		by := cloneNode(n)
		position, found := sortedOutput(b, by.GetSortBy().Node)
		if !found {
			if len(s.DistinctClause) > 0 && !distinctOn(s) || hasColumnOfOutput(b, by.GetSortBy().Node) {
				return false
			}
			position = len(f.TargetList)
			f.TargetList = append(f.TargetList, resTarget("", by.GetSortBy().Node))
		}
		by.GetSortBy().Node = columnNode(fragmentColumn(position))
		final.SortClause = append(final.SortClause, by)
	}
	for i := range targets {
		final.TargetList = append(final.TargetList, resTarget(b.outputName(i), columnNode(fragmentColumn(i))))
	}
	nameTargets(f.TargetList)
	x.pushLimit(f, final)
	final.FromClause = []*pg.Node{relationNode(x.newFragment(f, at, x.bases(s)))}
	proto.Reset(s)
	proto.Merge(s, final)
	return true
}

// pushLimit sorts and cuts on the nodes already, when the number of rows is a plain expression.
func (x *exchanger) pushLimit(f, final *pg.SelectStmt) {
	if final.LimitCount == nil || final.LimitOption == pg.LimitOption_LIMIT_OPTION_WITH_TIES || len(f.SortClause) > 0 ||
		!x.sameEverywhere(final.LimitCount) || final.LimitOffset != nil && !x.sameEverywhere(final.LimitOffset) {
		return
	}
	for _, n := range final.SortClause {
		by := cloneNode(n)
		name := by.GetSortBy().Node.GetColumnRef().Fields[0].GetString_().Sval
		by.GetSortBy().Node = columnNode(name) // an output's name, as ORDER BY understands it
		f.SortClause = append(f.SortClause, by)
	}
	f.LimitCount, f.LimitOption = rowsUpTo(final.LimitCount, final.LimitOffset), final.LimitOption
}

// rowsUpTo is how many rows of each node can matter under a limit and an offset.
func rowsUpTo(limit, offset *pg.Node) *pg.Node {
	limit = castNode(cloneNode(limit), "pg_catalog", "int8")
	if offset == nil {
		return limit
	}
	skipped := &pg.Node{Node: &pg.Node_CoalesceExpr{CoalesceExpr: &pg.CoalesceExpr{
		Args: []*pg.Node{castNode(cloneNode(offset), "pg_catalog", "int8"), castNode(pg.MakeAConstIntNode(0, -1), "pg_catalog", "int8")},
	}}}
	if smallCount(limit.GetTypeCast().Arg) && smallCount(offset) {
		return operatorNode("+", limit, skipped)
	}
	// Together they may be more than a bigint holds; then all rows are meant.
	sum := operatorNode("+", castNode(limit, "pg_catalog", "numeric"), skipped)
	return castNode(&pg.Node{Node: &pg.Node_MinMaxExpr{MinMaxExpr: &pg.MinMaxExpr{
		Op: pg.MinMaxOp_IS_LEAST, Args: []*pg.Node{sum, pg.MakeAConstStrNode("9223372036854775807", -1)},
	}}}, "pg_catalog", "int8")
}

// smallCount reports a literal that the grammar takes for an integer.
func smallCount(n *pg.Node) bool { return n.GetAConst().GetIval() != nil }

// hasColumnOfOutput reports a bare name in an expression of ORDER BY that only an output has.
func hasColumnOfOutput(b *block, n *pg.Node) bool {
	found := false
	analyze.Walk(n, func(m proto.Message) bool {
		if cr, ok := m.(*pg.ColumnRef); ok && b.resolve(cr) == nil {
			found = true
		}
		return !found
	})
	return found
}

// outputName is the name of an output as PostgreSQL gives it.
func (b *block) outputName(i int) string {
	if o := &b.outputs[i]; o.name != "" || o.expr == nil {
		return o.name
	} else {
		return figureName(o.expr)
	}
}
