// Package plan decides where a statement runs. It is pure: a statement, the schema and the map go
// in, a Plan comes out that prints as text; nothing is read or written.
package plan

import (
	"fmt"
	"strings"

	"github.com/pgshoal/pgshoal/keyspace"
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
)

func (k Kind) String() string {
	return [...]string{"Route", "Every", "NodeByNode", "CopyIn", "Distribute"}[k]
}

// Plan says where and how a statement runs. It is immutable and made under one epoch.
type Plan struct {
	Kind  Kind
	Epoch uint64

	// Pins of a Route name the keys whose rows the statement needs; all must lead to one node.
	// Without pins a Route goes to the home node, or to any node when AnyNode is set.
	Pins    []Pin
	AnyNode bool

	Writes bool
	// Tables are the OIDs of the tables it touches: a fence on one of them holds it back.
	Tables []uint32

	// Rewrite, when set, replaces the statement's text after Eval was evaluated on the home node.
	Rewrite *Rewrite
	// OtherText is what nodes other than home get under Every, when it is not the same text.
	OtherText string
	// Schema is set when the statement changes the schema, so that catalogs must be read again.
	Schema bool
	// Fenced are the tables that must be fenced in all routers before the statement runs.
	Fenced []uint32

	Copy     *Copy
	Placing  *Placing
	Settings []SetConfig
	// Hold says why the session must keep its server connection after this statement.
	Hold string
	// Sequence is set when the statement reads currval or lastval of its session.
	Sequence bool
}

// Pin is a key column that is equal to one of some operands.
type Pin struct {
	Distribution uint32
	Type         keyspace.Type
	Column       string // for people: table.column
	Operands     []Operand
	// Insert is set when the operand becomes the key of a new row, which must not be NULL.
	Insert bool
	// Cast is the column's type with its modifiers, when it has any: they can change a value that
	// is stored. Length is the number of characters of varchar(n) and char(n).
	Cast   string
	Length int
}

// Operand is a value known when the statement is executed.
type Operand struct {
	Param   int           // $n, or 0
	Literal int           // index of the literal in the normalised text, or -1
	Text    string        // the constant itself when Literal is -1 and Param is 0
	Null    bool          // the constant NULL
	Negate  bool          // the literal stands behind a minus sign
	Array   bool          // the value is an array: any element may be the key
	Eval    int           // index into Rewrite.Eval plus one, or 0
	From    keyspace.Type // the operand's own type
}

// Rewrite is a statement whose values are computed once before it is sent. Eval expressions
// become parameters $Params+1, $Params+2 and so on.
type Rewrite struct {
	Text   string
	Params int // parameters of the client's own statement
	Eval   []string
}

// Copy describes COPY FROM of a distributed or reference table.
type Copy struct {
	Table   string
	Columns []string // of the data
	Key     int      // position of the key in Columns, -1 for reference tables
	Pin     Pin      // Operands unused
	Options []CopyOption
	// Text is what nodes get: the statement without HEADER, since header lines are not passed on.
	Text string
}

// CopyOption is one option of COPY as the grammar gives it.
type CopyOption struct {
	Name    string
	Value   string
	Columns []int // for FORCE_NULL and the like: positions in the column list; nil and Value "*": all
}

// Placing is a call of create_distributed_table and its relatives.
type Placing struct {
	Function string // its name, which is also the result column's
	Args     []PlacingArg
}

// PlacingArg is an argument of such a call; the router evaluates parameters.
type PlacingArg struct {
	Name  string // "" for a positional one
	Value string
	Null  bool
	Param int
}

func (p *Placing) arguments() string {
	parts := make([]string, len(p.Args))
	for i, a := range p.Args {
		switch {
		case a.Null:
			parts[i] = "NULL"
		case a.Param > 0:
			parts[i] = fmt.Sprintf("$%d", a.Param)
		default:
			parts[i] = QuoteLiteral(a.Value)
		}
		if a.Name != "" {
			parts[i] = a.Name + " => " + parts[i]
		}
	}
	return strings.Join(parts, ", ")
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
		fmt.Fprintf(&b, "  pin %s = %s\n", pin.Column, operands(pin.Operands))
	}
	if p.Rewrite != nil {
		for i, e := range p.Rewrite.Eval {
			fmt.Fprintf(&b, "  evaluate $%d = %s\n", p.Rewrite.Params+i+1, e)
		}
		fmt.Fprintf(&b, "  send %s\n", p.Rewrite.Text)
	}
	if p.OtherText != "" {
		fmt.Fprintf(&b, "  other nodes %s\n", p.OtherText)
	}
	if p.Copy != nil {
		fmt.Fprintf(&b, "  split by column %d of %d\n", p.Copy.Key+1, len(p.Copy.Columns))
	}
	if p.Placing != nil {
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

func operands(ops []Operand) string {
	parts := make([]string, len(ops))
	for i, o := range ops {
		parts[i] = o.String()
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return "any of (" + strings.Join(parts, ", ") + ")"
}

func (o Operand) String() string {
	s := ""
	switch {
	case o.Eval > 0:
		s = fmt.Sprintf("evaluated %d", o.Eval)
	case o.Param > 0:
		s = fmt.Sprintf("$%d", o.Param)
	case o.Null:
		return "NULL"
	case o.Literal >= 0:
		s = fmt.Sprintf("literal %d", o.Literal)
	default:
		s = "'" + o.Text + "'"
	}
	if o.Negate {
		s = "-" + s
	}
	if o.Array {
		s = "elements of " + s
	}
	return s + "::" + o.From.String()
}
