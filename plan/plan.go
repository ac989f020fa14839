// Package plan decides where a statement runs. It is pure: a statement, the schema and the map go
// in, a Plan comes out that prints as text; nothing is read or written.
package plan

import (
	"fmt"
	"strconv"
	"strings"
)

// Kind is the way a plan is executed.
type Kind uint8

const (
	// Route runs the statement unchanged on one node.
	Route Kind = iota
	// Every runs the statement on all nodes in one transaction, the home node first.
	Every
	// NodeByNode runs the statement on one node after the other, outside a transaction.
	NodeByNode
	// CopyIn splits the rows of COPY FROM by their key.
	CopyIn
	// Distribute changes the placement of a table.
	Distribute
	// Spread runs fragments on several nodes and the rest over their rows.
	Spread
)

func (k Kind) String() string {
	return [...]string{"Route", "Every", "NodeByNode", "CopyIn", "Distribute", "Spread"}[k]
}

// Plan says where and how a statement runs. It is immutable and made under one epoch.
type Plan struct {
	Kind  Kind
	Epoch uint64

	// Pins of a Route name the keys whose rows the statement needs; all must lead to one node.
	// Without pins a Route goes to the home node, or to any node when AnyNode is set.
	Pins    []Pin
	AnyNode bool
	// Cursor is set for a Route to the node where a cursor is: WHERE CURRENT OF.
	Cursor string

	Writes bool
	// Tables are the OIDs of the tables, views and routines it touches: a fence on one of them holds it back.
	Tables []uint32

	// Rewrite, when set, replaces the statement's text after Eval was evaluated on the home node.
	Rewrite *Rewrite
	// OtherText is what nodes other than home get under Every, when it is not the same text.
	OtherText string
	// Shape names the table that the home node makes from what only it has; the others get it empty.
	Shape *Shape
	// Schema is set when the statement changes the schema, so that catalogs must be read again.
	Schema bool
	// Fenced are the tables, and the routines, that must be fenced in all routers before the statement runs.
	Fenced []uint32

	// Lent are tables whose rows the home node borrows from the others while it runs the statement.
	Lent []Lent

	Copy     *Copy
	Placing  *Placing
	Exchange *Exchange
	Settings []SetConfig
	// Sets are settings that code which the statement runs may change, by name; see AnySetting.
	Sets []string
	// Hold says why the session must keep its server connection after this statement.
	Hold string
	// Steady is set when PostgreSQL can keep one plan for all values of the statement's parameters, see steady.
	Steady bool
	// Sequence is set when the statement reads currval or lastval of its session.
	Sequence bool
	// Unknown are names that the catalog does not have; nil when it has all. What has one may only run when the home node has
	// been asked, see Names.
	Unknown *Names
	// MayWrite is set when a function that the statement calls could write, though the statement reads.
	MayWrite bool
}

// Rewrite is a statement whose values are computed once before it is sent. Eval expressions
// become parameters $Params+1, $Params+2 and so on.
type Rewrite struct {
	Text   string
	Params int // parameters of the client's own statement
	Eval   []string
}

// Shape is a new table whose columns are known once the home node has made it.
type Shape struct {
	Schema, Name string // Schema is "" for the one that new tables go to
	IfNotExists  bool
}

// Copy describes COPY FROM of a distributed or reference table.
type Copy struct {
	Table   string
	Columns []string // of the data
	Keys    []int    // positions of the key columns in Columns, in the key's order; nil for reference tables
	Pin     Pin      // of the rows: without operands, they are the data's
	Options []CopyOption
	// Text is what nodes get: the statement without HEADER, since header lines are not passed on.
	Text string
}

func (c *Copy) split() string {
	if len(c.Keys) == 0 {
		return "split by column 0 of " + strconv.Itoa(len(c.Columns))
	}
	at := make([]string, len(c.Keys))
	for i, k := range c.Keys {
		at[i] = strconv.Itoa(k + 1)
	}
	return fmt.Sprintf("split by column %s of %d", strings.Join(at, ", "), len(c.Columns))
}

// CopyOption is one option of COPY as the grammar gives it.
type CopyOption struct {
	Name    string
	Value   string
	Columns []int // for FORCE_NULL and the like: positions in the column list; nil and Value "*": all
}

// SetConfig is a session setting that the statement changes through set_config().
type SetConfig struct {
	Name, Value string
	Local       bool
}

// String prints the plan for EXPLAIN and golden files.
func (p *Plan) String() string {
	var b strings.Builder
	b.WriteString(p.Kind.String())
	switch {
	case p.Kind == Route && len(p.Pins) > 0:
		b.WriteString(" by key")
	case p.Kind == Route && p.Cursor != "":
		b.WriteString(" to the node of cursor " + QuoteIdent(p.Cursor))
	case p.Kind == Route && p.AnyNode:
		b.WriteString(" to any node")
	case p.Kind == Route:
		b.WriteString(" to the home node")
	}
	if p.Writes {
		b.WriteString(", writes")
	}
	if p.Schema {
		b.WriteString(", changes the schema")
	}
	b.WriteByte('\n')
	for _, pin := range p.Pins {
		fmt.Fprintf(&b, "  pin %s\n", pin.String())
	}
	if p.Rewrite != nil {
		for i, e := range p.Rewrite.Eval {
			fmt.Fprintf(&b, "  evaluate $%d = %s\n", p.Rewrite.Params+i+1, e)
		}
		fmt.Fprintf(&b, "  send %s\n", p.Rewrite.Text)
	}
	for _, l := range p.Lent {
		fmt.Fprintf(&b, "  the home node borrows the rows of %s\n", l.Table)
	}
	if p.OtherText != "" {
		fmt.Fprintf(&b, "  other nodes %s\n", p.OtherText)
	}
	if p.Shape != nil {
		fmt.Fprintf(&b, "  other nodes get table %s without rows\n", QuoteIdent(p.Shape.Name))
	}
	if p.Copy != nil {
		fmt.Fprintf(&b, "  %s\n", p.Copy.split())
	}
	if p.Exchange != nil {
		b.WriteString(p.Exchange.String())
	}
	if p.Placing != nil {
		if p.Placing.Explain != "" {
			fmt.Fprintf(&b, "  explain as %s\n", p.Placing.Explain)
		}
		fmt.Fprintf(&b, "  %s(%s)\n", p.Placing.Function, p.Placing.arguments())
	}
	if p.Hold != "" {
		fmt.Fprintf(&b, "  hold: %s\n", p.Hold)
	}
	for _, s := range p.Settings {
		fmt.Fprintf(&b, "  set %s = %q local=%v\n", s.Name, s.Value, s.Local)
	}
	return b.String()
}
