package plan

import (
	"strings"
	"unicode"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
)

// aggregateNames are the built-in aggregates; the catalog keeps one entry per built-in name.
var aggregateNames = map[string]bool{
	"count": true, "sum": true, "avg": true, "min": true, "max": true, "array_agg": true, "string_agg": true,
	"bool_and": true, "bool_or": true, "every": true, "bit_and": true, "bit_or": true, "bit_xor": true,
	"json_agg": true, "jsonb_agg": true, "json_object_agg": true, "jsonb_object_agg": true, "xmlagg": true,
	"corr": true, "covar_pop": true, "covar_samp": true, "stddev": true, "stddev_pop": true, "stddev_samp": true,
	"variance": true, "var_pop": true, "var_samp": true, "regr_avgx": true, "regr_avgy": true, "regr_count": true,
	"regr_intercept": true, "regr_r2": true, "regr_slope": true, "regr_sxx": true, "regr_sxy": true, "regr_syy": true,
	"mode": true, "percentile_cont": true, "percentile_disc": true, "rank": true, "dense_rank": true,
	"percent_rank": true, "cume_dist": true, "range_agg": true, "range_intersect_agg": true, "any_value": true,
}

// functions finds what a call may mean: all visible overloads of its name.
func (p *planner) functions(c *pg.FuncCall) []*catalog.Function {
	schema, name := analyze.Name(c.Funcname)
	return p.catalog.Functions(p.path, schema, name)
}

// call notes what a function call means for the session and which routines may run.
func (p *planner) call(c *pg.FuncCall) {
	_, name := analyze.Name(c.Funcname)
	for _, f := range p.functions(c) {
		if !f.Builtin {
			p.routines = append(p.routines, f)
		}
	}
	switch name {
	case "pg_advisory_lock", "pg_advisory_lock_shared", "pg_try_advisory_lock", "pg_try_advisory_lock_shared":
		p.plan.Hold = "session advisory lock"
	case "setseed":
		p.plan.Hold = "setseed"
	case "currval", "lastval":
		p.plan.Sequence = true
	case "set_config":
		p.setConfig(c)
	}
}

func (p *planner) setConfig(c *pg.FuncCall) {
	if len(c.Args) == 3 {
		name, value := c.Args[0].GetAConst().GetSval(), c.Args[1].GetAConst().GetSval()
		local, known := boolConstant(c.Args[2])
		if name != nil && value != nil && known {
			p.plan.Settings = append(p.plan.Settings, SetConfig{Name: strings.ToLower(name.Sval), Value: value.Sval, Local: local})
			p.fixed = true
			return
		}
	}
	p.plan.Hold = "set_config with computed arguments"
}

func boolConstant(n *pg.Node) (value, known bool) {
	if v := n.GetAConst().GetBoolval(); v != nil {
		return v.Boolval, true
	}
	if c := n.GetAConst(); c != nil && !c.Isnull && c.GetSval() == nil && c.GetIval() == nil && c.GetFval() == nil {
		return false, true // the grammar writes FALSE as a Boolean without a value
	}
	return false, false
}

// body is what the text of a routine says about what it may do.
type body struct {
	tables  []*catalog.Table // relations of users whose names occur
	dynamic bool             // builds SQL from strings
	ddl     bool
}

// schemaWords follow CREATE, ALTER or DROP in a body that changes the schema.
var schemaWords = map[string]bool{
	"table": true, "index": true, "type": true, "view": true, "schema": true, "sequence": true, "function": true,
	"procedure": true, "extension": true, "role": true, "user": true, "trigger": true, "domain": true, "policy": true,
	"unique": true, "materialized": true, "or": true, "unlogged": true, "aggregate": true, "publication": true,
}

// readBody looks at the words of a routine's source. It is deliberately coarse: a name that
// occurs counts as a use.
func (p *planner) readBody(source string) body {
	var b body
	words := strings.FieldsFunc(strings.ToLower(source), func(r rune) bool {
		return r != '_' && r != '$' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	seen := map[string]bool{}
	for i, w := range words {
		switch w {
		case "execute":
			b.dynamic = true
		case "create", "alter", "drop":
			if i+1 < len(words) && schemaWords[words[i+1]] {
				b.ddl = true
			}
		}
		seen[w] = true
	}
	for _, t := range p.catalog.Tables() {
		if seen[strings.ToLower(t.Name)] {
			b.tables = append(b.tables, t)
		}
	}
	return b
}

// bodyOf reads a routine and the routines its body names.
func (p *planner) bodyOf(f *catalog.Function, seen map[uint32]bool) body {
	if seen[f.OID] || f.Language == "c" || f.Language == "internal" {
		return body{}
	}
	seen[f.OID] = true
	b := p.readBody(f.Source)
	lower := strings.ToLower(f.Source)
	for _, other := range p.catalog.UserFunctions() {
		if other.OID != f.OID && strings.Contains(lower, strings.ToLower(other.Name)) {
			o := p.bodyOf(other, seen)
			b.tables = append(b.tables, o.tables...)
			b.dynamic = b.dynamic || o.dynamic
			b.ddl = b.ddl || o.ddl
		}
	}
	return b
}

// checkRoutines refuses routines that would see one node's rows only. onNode is set when the
// statement runs elsewhere than on the home node, where local tables have no rows either.
func (p *planner) checkRoutines(onNode bool) {
	if len(p.routines) == 0 {
		return
	}
	spread := p.anySpread()
	for _, f := range p.routines {
		b := p.bodyOf(f, map[uint32]bool{})
		if spread || onNode {
			p.checkBody("function "+`"`+f.Name+`"`, b, onNode)
		}
		if b.ddl && !onNode && p.plan.Kind == Route {
			p.plan.Kind, p.plan.Schema, p.plan.Writes = Every, true, true
		}
		if f.Volatility == 'v' {
			p.plan.Writes = true
		}
	}
}

// anySpread reports whether any table has rows outside the home node.
func (p *planner) anySpread() bool {
	for _, t := range p.catalog.Tables() {
		if t.Placement != catalog.Local {
			return true
		}
	}
	return false
}

func (p *planner) checkBody(what string, b body, onNode bool) {
	for _, t := range b.tables {
		place := p.placed(t).placement
		if t.Kind == catalog.KindView && p.viewMatters(t) {
			place = catalog.Distributed
		}
		if place == catalog.Distributed || place == catalog.Local && onNode && t.Kind != catalog.KindSequence {
			p.fail(refuse("Run the statements of its body directly.",
				"%s uses table %q, whose rows it would not all see where it runs", what, t.Name))
			return
		}
		if place == catalog.Reference {
			p.fail(refuse("Run the statements of its body directly.",
				"%s uses reference table %q, which it could change on one node only", what, t.Name))
			return
		}
	}
	if b.dynamic {
		p.fail(refuse("Run the statements of its body directly.",
			"%s builds SQL from strings, so the tables it uses are not known", what))
	}
}

// doBlock plans DO: a body that only changes the schema runs on every node, one that works on
// rows runs on the home node.
func (p *planner) doBlock(d *pg.DoStmt) {
	source := ""
	for _, a := range d.Args {
		if e := a.GetDefElem(); e.GetDefname() == "as" {
			source = e.GetArg().GetString_().GetSval()
			if source == "" && len(e.GetArg().GetList().GetItems()) > 0 {
				source = e.GetArg().GetList().GetItems()[0].GetString_().GetSval()
			}
		}
	}
	b := p.bodyOf(&catalog.Function{Name: "DO", Source: source, Language: "plpgsql"}, map[uint32]bool{})
	if p.anySpread() {
		if b.ddl {
			b.dynamic = false
			b.tables = nil // DDL names the tables it changes; the check after it has the last word
		}
		p.checkBody("the DO block", b, false)
	}
	p.plan.Kind, p.plan.Writes, p.fixed = Route, true, true
	if b.ddl {
		p.plan.Kind, p.plan.Schema = Every, true
	}
}
