package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// keyedFunction is the function of a call that create_distributed_function has given a key, when no other function can be meant.
func (p *planner) keyedFunction(c *pg.FuncCall) *catalog.Function {
	var keyed *catalog.Function
	for _, f := range p.functions(c) {
		if !f.Builtin && !f.Variadic && (len(c.Args) < len(f.Args)-f.Defaults || len(c.Args) > len(f.Args)) && f.Kind != 'p' {
			continue
		}
		if keyed != nil || f.KeyArg == 0 {
			return nil
		}
		keyed = f
	}
	if keyed == nil || p.alone || c.Over != nil || c.FuncVariadic {
		return nil
	}
	return keyed
}

// keyedCall pins a call to the node of its key.
func (p *planner) keyedCall(c *pg.FuncCall, f *catalog.Function) {
	d := p.m.Distribution(f.Distribution)
	kt, known := keyspace.TypeByOID(p.catalog.BaseType(f.KeyType))
	if d == nil || !known || !KeyedType(d, kt) {
		p.fail(refuse("Call create_distributed_function() again.", "the distribution of function %q does not exist any more", f.Name))
		return
	}
	column := KeyColumn{Type: kt, Column: fmt.Sprintf("%s.$%d", f.Name, f.KeyArg), Assigned: true}
	if f.KeyName != "" {
		column.Column = f.Name + "." + f.KeyName
	}
	op, ok := Operand{}, false
	if arg := keyArgument(c, f); arg != nil {
		op, ok = p.keyOperand(arg, kt)
	}
	if !ok {
		p.fail(refuse("Give it as a literal or a parameter.", "the key argument %s of function %q is not given as a value", column.Column, f.Name))
		return
	}
	column.Operands = []Operand{op}
	pin := Pin{Distribution: f.Distribution, Table: f.Name, Keys: []KeyColumn{column}, Insert: true, Stored: true}
	p.keyed = append(p.keyed, pin)
	p.checkKeyed(f)
}

// keyArgument is the argument of a call that is its key; nil when it is left out.
func keyArgument(c *pg.FuncCall, f *catalog.Function) *pg.Node {
	for i, a := range c.Args {
		switch named := a.GetNamedArgExpr(); {
		case named == nil && i+1 == f.KeyArg:
			return a
		case named != nil && f.KeyName != "" && named.Name == f.KeyName:
			return named.Arg
		}
	}
	return nil
}

// checkKeyed refuses a function that uses what the node of its key cannot have. That it uses only rows of its key is its author's
// promise.
func (p *planner) checkKeyed(f *catalog.Function) {
	b := p.bodyOf(f)
	p.writes = p.writes || f.Volatility == 'v'
	const hint = "A function with a key uses tables of its distribution, and reads reference tables."
	what := "function " + `"` + f.Name + `"`
	switch {
	case b.ddl:
		p.fail(refuse(hint, "%s changes the schema", what))
	case len(b.sets) > 0:
		p.fail(refuse("Change them before the call, with SET.", "%s has a key and changes settings", what))
	case b.homeOnly != "":
		p.fail(p.notHome(b.homeOnly + " in " + what))
	}
	tables := b.tables
	for _, t := range b.tables {
		if t.Kind == catalog.KindView {
			tables = slices.Concat(tables, p.writtenWith(t))
		}
	}
	// A body is read for names: a table of the distribution is more likely meant than another one of its name.
	meant := map[string]bool{}
	for _, t := range tables {
		if pl := p.placed(t); pl.placement == catalog.Distributed && pl.distribution == f.Distribution {
			meant[strings.ToLower(t.Name)] = true
		}
	}
	for _, t := range tables {
		pl := p.placed(t)
		switch {
		case meant[strings.ToLower(t.Name)] && pl.distribution != f.Distribution:
		case t.Kind == catalog.KindView || t.Kind == catalog.KindSequence:
		case pl.placement == catalog.Local:
			p.fail(refuse(hint, "%s uses local table %q, which has no rows where it runs", what, t.Name))
		case pl.placement == catalog.Distributed && (pl.distribution != f.Distribution || pl.entry != nil):
			p.fail(refuse(hint, "%s uses table %q, which is not co-located with its key", what, t.Name))
		case pl.placement == catalog.Reference && slices.Contains(b.written, t):
			p.fail(refuse(hint, "%s writes to reference table %q, which it would change on one node only", what, t.Name))
		}
	}
	p.hiddenUses(&b)
	// SQL that it builds from strings may use any table of the distribution, so the fences of all of them concern it.
	for _, t := range p.catalog.Tables() {
		if t.Placement == catalog.Distributed && t.Distribution == f.Distribution {
			tables = append(tables, t)
		}
	}
	p.touchTables(tables)
}

// routeKeyed completes the plan of a statement with such calls: everything else in it must be on the same node.
func (p *planner) routeKeyed(distributed, local []*ref) {
	p.routed = true
	p.checkRoutines(true)
	const hint = "Call it in a statement of its own."
	switch {
	case p.writesReference() || len(local) > 0 || p.temporary || p.unknownTable:
		p.fail(refuse(hint, "a function with a key, together with local or temporary tables or a write to a reference table, is not supported"))
	case p.locksCopies():
		return
	}
	p.pin(distributed)
	for _, pin := range p.keyed {
		p.addPin(pin)
	}
	if len(p.eval) > 0 {
		p.fail(refuse(hint, "a function with a key in a statement whose values are computed beforehand is not supported"))
	}
	if r := (*Refusal)(nil); errors.As(p.err, &r) && r.several {
		p.err = refuse("Fix the keys of all tables, or call it in a statement of its own.", "a function with a key in a statement over several nodes is not supported")
	}
}

// callsKeyed reports a call of a function with a key below a node.
func (p *planner) callsKeyed(n *pg.Node) bool {
	return slices.ContainsFunc(analyze.Calls(n), func(c *pg.FuncCall) bool { return p.keyedFunction(c) != nil })
}

// KeyedType reports whether values of a type can be keys of a distribution with one key column.
func KeyedType(d *keyspace.Distribution, t keyspace.Type) bool {
	return len(d.Types) == 1 && d.Types[0].Canonical() == t.Canonical()
}
