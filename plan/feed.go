package plan

import (
	"fmt"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// Feed is a write whose rows are computed over several nodes first and then given to the nodes that store
// them, some at a time.
type Feed struct {
	// Query gives the rows: the key of the row to change or to store, and what Text needs.
	Query *Exchange
	// QueryText is the query itself, for people.
	QueryText string
	// Pin has the types of the key columns; Key are their places in the rows.
	Pin Pin
	Key []int
	// Text runs on the row's node. The rows are its last parameters, one array for each column.
	Text string
	// Tag is the command tag without the number of rows.
	Tag string
	// Everywhere is set when all nodes get all rows.
	Everywhere bool
	// Whole is set when a node must get all its rows in one statement: what it does for one may concern another.
	Whole bool
	// NullAtHome is set when the home node gets rows whose key is NULL.
	NullAtHome bool
	// Lock is what all nodes do before the rows are computed, so that copies of a reference table stay the same.
	Lock string
	// Move is set when rows may get another key: NewKey are the places of its columns. A row that leaves its node
	// is removed by Remove and stored by Store instead of Text.
	Move *Move
	// Actions are what MERGE does, in place of Text; the first column of a row is the number of its action, or 0.
	Actions []Action
	// Changed are the places of the columns that say which row of the table is changed.
	Changed []int
}

// Move is what happens to rows that an UPDATE gives a key of another node.
type Move struct {
	NewKey        []int
	Remove, Store string
}

// Action is what MERGE does with some of the rows.
type Action struct {
	Number int
	Key    []int // the places of the key that says where it is done
	Text   string
	// Changes is set when it changes a row that exists: no row may be changed twice.
	Changes bool
}

// rowsName stands for the fed rows in Feed.Text; rowsAlias is their name where they stand beside the table.
const (
	rowsName  = "shoal rows"
	rowsAlias = "shoal r"
)

// ctidName and tableoidName are how the query of a feed asks for the place of a row of the table that is written.
const (
	ctidName     = "shoal ctid"
	tableoidName = "shoal tableoid"
)

// rowType stands for the type of a column of the rows that only the home node knows.
func rowType(column int) string { return fmt.Sprintf("shoal row type %d", column+1) }

// Typed is a text of the feed with the types of the rows' columns.
func (f *Feed) Typed(text string, types []ColumnType) string {
	var pairs []string
	for i, t := range types {
		pairs = append(pairs, `"`+rowType(i)+`"`, t.Name)
	}
	return strings.NewReplacer(pairs...).Replace(text)
}

// NeedsTypes reports texts in which the types of some columns are missing.
func (f *Feed) NeedsTypes() bool {
	texts := []string{f.Text}
	for _, a := range f.Actions {
		texts = append(texts, a.Text)
	}
	if f.Move != nil {
		texts = append(texts, f.Move.Store)
	}
	return strings.Contains(strings.Join(texts, " "), `"shoal row type `)
}

// Shown is what the nodes do with the rows, for EXPLAIN.
func (f *Feed) Shown() []string {
	var lines []string
	for line := range strings.Lines(f.writes()) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// writes says what the nodes do with the rows, for people.
func (f *Feed) writes() string {
	var b strings.Builder
	where := "each node by " + f.Pin.Columns()
	if f.Everywhere {
		where = "every node"
	}
	if f.Lock != "" {
		fmt.Fprintf(&b, "  before: %s\n", f.Lock)
	}
	if f.Text != "" {
		fmt.Fprintf(&b, "  %s: %s\n", where, Readable(f.Text))
	}
	for _, a := range f.Actions {
		fmt.Fprintf(&b, "  %s, action %d: %s\n", where, a.Number, Readable(a.Text))
	}
	if f.Move != nil {
		fmt.Fprintf(&b, "  rows that leave: %s\n  rows that come: %s\n", Readable(f.Move.Remove), Readable(f.Move.Store))
	}
	return b.String()
}

// feed plans a write to a distributed table that needs rows of other nodes, or to a reference table that needs any others.
func (x *exchanger) feed(top *block, r *ref) bool {
	if r.table == nil || len(r.aliases) > 0 {
		return false
	}
	switch e := x.root.GetNode().(type) {
	case *pg.Node_InsertStmt:
		return x.feedInsert(top, e.InsertStmt, r)
	case *pg.Node_UpdateStmt:
		return x.feedUpdate(top, e.UpdateStmt, r)
	case *pg.Node_DeleteStmt:
		return x.feedDelete(top, e.DeleteStmt, r)
	case *pg.Node_MergeStmt:
		return x.feedMerge(top, e.MergeStmt, r) || x.joinMerge(top, e.MergeStmt, r)
	}
	return false
}

// feeder collects the columns of a feed's rows.
type feeder struct {
	x     *exchanger
	table *catalog.Table
	query *pg.SelectStmt
	types [][]string // the name of each column's type
	apart bool       // RETURNING does not see the rows
}

// add makes an expression a column of the rows, of the type of a table's column without its modifiers: those
// are applied, and may refuse the value, when it is stored.
func (f *feeder) add(n *pg.Node, column int) int {
	t, _ := f.x.p.catalog.Type(f.table.Columns[column].TypeOID)
	return f.addTyped(n, t.Schema, t.Name)
}

func (f *feeder) addTyped(n *pg.Node, schema, name string) int {
	at := len(f.types)
	f.query.TargetList = append(f.query.TargetList, resTarget(fragmentColumn(at), castNode(n, schema, name)))
	f.types = append(f.types, []string{schema, name})
	return at
}

// addOwn makes an expression a column of the rows, of its own type.
func (f *feeder) addOwn(n *pg.Node) int {
	at := len(f.types)
	f.query.TargetList = append(f.query.TargetList, resTarget(fragmentColumn(at), n))
	f.types = append(f.types, []string{rowType(at)})
	return at
}

// with puts the rows in front of a statement as a WITH item.
func (f *feeder) with(s *pg.Node) (string, error) {
	first := f.x.p.maxParam + len(f.x.p.eval)
	body := plainSelect()
	item := &pg.CommonTableExpr{Ctename: rowsName, Ctematerialized: pg.CTEMaterialize_CTEMaterializeAlways}
	alias := &pg.Alias{Aliasname: "u"}
	var args []*pg.Node
	for i, t := range f.types {
		array := castNode(paramNode(first+i+1), "pg_catalog", "text")
		array.GetTypeCast().TypeName.ArrayBounds = []*pg.Node{pg.MakeIntNode(-1)}
		args = append(args, pg.MakeListNode([]*pg.Node{callNode("unnest", array), {}}))
		alias.Colnames = append(alias.Colnames, pg.MakeStrNode(fragmentColumn(i)))
		item.Aliascolnames = append(item.Aliascolnames, pg.MakeStrNode(fragmentColumn(i)))
		body.TargetList = append(body.TargetList, resTarget("", castNode(columnNode("u", fragmentColumn(i)), t...)))
	}
	body.FromClause = []*pg.Node{{Node: &pg.Node_RangeFunction{RangeFunction: &pg.RangeFunction{IsRowsfrom: true, Functions: args, Alias: alias}}}}
	item.Ctequery = &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: body}}
	withClause(s).Ctes = []*pg.Node{{Node: &pg.Node_CommonTableExpr{CommonTableExpr: item}}}
	return analyze.Deparse(s)
}

// finish plans the query and puts the feed together.
func (f *feeder) finish(feed *Feed, statements ...*pg.Node) bool {
	text, err := analyze.Deparse(&pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: f.query}})
	if err != nil {
		f.x.p.fail(refuse("", "the statement cannot be written again: %v", err))
		return true
	}
	in := f.x.in
	in.Statement = &analyze.Statement{Class: analyze.Declare, Text: text}
	feed.QueryText = text
	if feed.Query, err = makeExchange(in, text, true); err != nil {
		f.x.p.fail(err)
		return true
	}
	texts := []*string{&feed.Text}
	if feed.Move != nil {
		texts = append(texts, &feed.Move.Remove, &feed.Move.Store)
	}
	if len(feed.Actions) > 0 {
		texts = nil
		for i := range feed.Actions {
			texts = append(texts, &feed.Actions[i].Text)
		}
	}
	for i, s := range statements {
		if *texts[i], err = f.with(s); err != nil {
			f.x.p.fail(refuse("", "the statement cannot be written again: %v", err))
			return true
		}
	}
	place := f.x.p.placed(f.table)
	feed.Pin = Pin{Distribution: place.distribution, Table: f.table.Name, Insert: true, Stored: true, Entry: place.entry}
	for _, at := range place.keys {
		feed.Pin.Keys = append(feed.Pin.Keys, f.x.p.assignedColumn(f.table, at, nil))
	}
	if place.placement == catalog.Reference {
		feed.Everywhere, feed.Pin = true, Pin{Table: f.table.Name}
		// Its rows are read on the home node itself, which knows their places under another name.
		own := strings.NewReplacer(QuoteIdent(ctidName), "ctid")
		feed.Query.Final, feed.Query.FinalArrays = own.Replace(feed.Query.Final), own.Replace(feed.Query.FinalArrays)
	}
	f.x.out.Feed = feed
	return true
}
