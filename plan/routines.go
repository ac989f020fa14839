package plan

import (
	"slices"
	"strings"

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

// readingNames are built-in functions that are volatile and yet write nothing: a replica can run them.
var readingNames = map[string]bool{
	"random": true, "clock_timestamp": true, "timeofday": true, "gen_random_uuid": true,
	"pg_sleep": true, "pg_sleep_for": true, "pg_sleep_until": true,
	"pg_is_in_recovery": true, "pg_last_wal_receive_lsn": true, "pg_last_wal_replay_lsn": true, "pg_last_xact_replay_timestamp": true,
}

// functions finds what a call may mean: all visible overloads of its name.
func (p *planner) functions(c *pg.FuncCall) []*catalog.Function {
	schema, name := analyze.Name(c.Funcname)
	return p.catalog.Functions(p.path, schema, name)
}

// call notes what a function call means for the session and which routines may run.
func (p *planner) call(c *pg.FuncCall) {
	schema, name := analyze.Name(c.Funcname)
	if f := p.keyedFunction(c); f != nil {
		p.plan.MayWrite = p.plan.MayWrite || f.Volatility == 'v'
		p.keyedCall(c, f)
		return
	}
	found := p.functions(c)
	for _, f := range found {
		if !f.Builtin {
			p.routines = append(p.routines, f)
		}
		if f.Volatility == 'v' && !(f.Builtin && readingNames[f.Name]) {
			p.plan.MayWrite = true
		}
	}
	if len(found) == 0 {
		p.plan.MayWrite = true
		p.unknownFunction(name)
	}
	if p.spread() && (runsSQL(name) || strings.HasPrefix(schema, "pg_temp")) {
		p.fail(refuse("Run the SQL itself.", "function %q runs SQL that is not known here, and not all tables are on one node", name))
	}
	if homeOnlyFunction(name) {
		p.homeOnly = name
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
	p.plan.Hold, p.plan.Sets = "set_config with computed arguments", append(p.plan.Sets, computedSetting(c))
}

// computedSetting is the name in a call of set_config() whose other arguments are computed.
func computedSetting(c *pg.FuncCall) string {
	if len(c.Args) > 0 {
		return strings.ToLower(c.Args[0].GetAConst().GetSval().GetSval())
	}
	return AnySetting
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

// checkRoutines refuses routines that would see one node's rows only. onNode is set when the
// statement runs elsewhere than on the home node, where local tables have no rows either.
func (p *planner) checkRoutines(onNode bool) {
	if onNode && p.homeOnly != "" {
		p.fail(p.notHome(p.homeOnly))
	}
	if len(p.keyed) > 0 && !p.routed {
		p.fail(refuse("Call it in a statement of its own.", "a function with a key in a statement that does not run on its node is not supported"))
	}
	if len(p.routines) == 0 {
		return
	}
	p.temporaryCode() // what they use may be temporary
	spread := p.spread()
	for _, f := range p.routines {
		b := p.bodyOf(f)
		p.checkAlone("function "+`"`+f.Name+`"`, b)
		if spread || onNode {
			p.checkBody("function "+`"`+f.Name+`"`, b, onNode || b.ddl)
		}
		if b.ddl && !onNode && p.plan.Kind == Route {
			p.plan.Kind, p.plan.Schema, p.plan.Writes = Every, true, true
		}
		if f.Volatility == 'v' {
			p.plan.Writes = true
		}
		if b.settings && f.Volatility != 'i' {
			p.plan.Hold, p.plan.Sets = "function that may change settings", slices.Concat(p.plan.Sets, b.sets)
		}
		p.touchTables(b.tables)
		p.touchCode(b.routines)
	}
}

func (p *planner) notHome(name string) error {
	return refuse("Call it in a statement of its own.",
		"%s has its effect on one node, and this statement does not run on the home node", name)
}

// checkBody refuses what works on rows that are not all where it runs.
func (p *planner) checkBody(what string, b body, onNode bool) {
	hint := "Drop it, or have it use nothing but its own row and reference tables."
	if strings.HasPrefix(what, "function ") || strings.HasPrefix(what, "the DO block") {
		hint = "Run the statements of its body directly, or declare which key a function is for with create_distributed_function()."
	}
	if onNode && b.homeOnly != "" {
		p.fail(p.notHome(b.homeOnly + " in " + what))
		return
	}
	for _, t := range b.tables {
		place := p.placed(t).placement
		if t.Kind == catalog.KindView {
			if r := p.viewReach(t, 0); r.distributed {
				place = catalog.Distributed
			} else if r.reference {
				place = catalog.Reference
			}
		}
		switch {
		case place == catalog.Distributed, place == catalog.Local && onNode && t.Kind != catalog.KindSequence:
			p.fail(refuse(hint, "%s uses table %q, whose rows it would not all see where it runs", what, t.Name))
			return
		case place == catalog.Reference && b.writes:
			p.fail(refuse(hint, "%s uses reference table %q, which it could change on one node only", what, t.Name))
			return
		}
	}
	p.hiddenUses(&b)
	if b.dynamic {
		p.fail(refuse(hint, "%s builds SQL from strings or is not readable, so the tables it uses are not known", what))
	}
}

type defaultsKey struct{ oid uint32 }

// defaultRoutines notes the routines that the defaults of a table call, behind a view too.
func (p *planner) defaultRoutines(t *catalog.Table) {
	p.routines = append(p.routines, p.defaultsOf(t)...)
}

func (p *planner) defaultsOf(t *catalog.Table) []*catalog.Function {
	return p.catalog.Derived(defaultsKey{t.OID}, func() any {
		var called []*catalog.Function
		tables := []*catalog.Table{t}
		if t.Kind == catalog.KindView {
			tables = p.writtenWith(t)
		}
		for _, t := range tables {
			for i := range t.Columns {
				called = append(called, p.nameIndex().readSource(&body{}, t.Columns[i].Default)...)
			}
		}
		return called
	}).([]*catalog.Function)
}

// touchCode adds routines whose fences concern the statement, beside the tables: OIDs of both are told apart well enough.
func (p *planner) touchCode(routines []uint32) {
	for _, oid := range routines {
		if oid != 0 && !slices.Contains(p.plan.Tables, oid) {
			p.plan.Tables = append(p.plan.Tables, oid)
		}
	}
}

// touchTables adds tables whose fences concern the statement.
func (p *planner) touchTables(tables []*catalog.Table) {
	for _, t := range tables {
		if oid := p.root(t).OID; !slices.Contains(p.plan.Tables, oid) {
			p.plan.Tables = append(p.plan.Tables, oid)
		}
	}
}
