package plan

import (
	"regexp"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/catalog"
)

// doBlock plans DO: a body that changes the schema runs on every node, one that works on rows
// runs on the home node.
func (p *planner) doBlock(d *pg.DoStmt) {
	f := &catalog.Function{Name: "DO", Language: "plpgsql"}
	for _, a := range d.Args {
		switch e := a.GetDefElem(); e.GetDefname() {
		case "as":
			f.Source = e.GetArg().GetString_().GetSval()
			if items := e.GetArg().GetList().GetItems(); f.Source == "" && len(items) > 0 {
				f.Source = items[0].GetString_().GetSval()
			}
		case "language":
			f.Language = strings.ToLower(e.GetArg().GetString_().GetSval())
		}
	}
	b := p.bodyOf(f)
	p.plan.Kind, p.plan.Writes, p.fixed = Route, true, true
	if b.settings {
		p.plan.Hold, p.plan.Sets = "DO block that may change settings", b.sets
	}
	p.touchTables(b.tables)
	ddl := b.ddl
	if ddl {
		p.plan.Kind, p.plan.Schema = Every, true
		if f.Language == "plpgsql" {
			b = p.besideDDL(f)
		}
	}
	p.temporaryCode()
	p.checkAlone("the DO block", b)
	if p.spread() {
		b.writes = b.writes || ddl
		p.checkBody("the DO block", b, ddl)
	}
}

// besideDDL is what a block does other than changing the schema: statements that begin with CREATE, ALTER and the like
// only name tables. What looks like more than that counts in full.
func (p *planner) besideDDL(f *catalog.Function) body {
	var b body
	x := p.nameIndex()
	var called []*catalog.Function
	for _, piece := range pieces.Split(strings.ToLower(f.Source), -1) {
		if onlyDDL(piece) {
			called = append(called, x.readSource(&body{}, piece)...)
		} else {
			called = append(called, x.readSource(&b, piece)...)
		}
	}
	for _, f := range called {
		other := p.bodyOf(f)
		b.add(&other)
	}
	b.tables = distinctTables(b.tables)
	return b
}

// pieces separates what may be a statement of its own in PL/pgSQL.
var pieces = regexp.MustCompile(`;|\b(?:begin|then|else|loop)\b`)

// schemaVerb matches the beginning of a statement that changes the schema, or of an EXECUTE of such a text.
var schemaVerb = regexp.MustCompile(`^\s*(?:execute\s+(?:format\s*\(\s*)?'\s*)?(?:(?:create|alter|drop)\s+(\w+)|comment\s+on|grant)\b`)

// onlyDDL reports a piece that changes the schema and does nothing with rows.
func onlyDDL(piece string) bool {
	verb := schemaVerb.FindStringSubmatch(piece)
	if verb == nil || verb[1] != "" && !schemaWords[verb[1]] {
		return false
	}
	words := strings.FieldsFunc(piece, func(r rune) bool { return !isWordRune(r) })
	if words[0] == "execute" {
		words = words[1:]
	}
	for i, w := range words[1:] {
		before, after := words[i], ""
		if i+2 < len(words) {
			after = words[i+2]
		}
		switch w {
		case "select":
			if words[0] != "grant" {
				return false
			}
		case "from": // FOR VALUES FROM is a partition's bound
			if before != "values" && before != "distinct" {
				return false
			}
		case "update", "delete", "insert", "truncate": // of triggers, foreign keys, policies and privileges
			if words[0] != "grant" && !slices.Contains([]string{"on", "before", "after", "or", "for", "of"}, before) {
				return false
			}
		case "execute":
			if words[0] != "grant" && after != "function" && after != "procedure" {
				return false
			}
		case "merge", "copy", "call", "perform":
			return false
		}
		if runsSQL(w) {
			return false
		}
	}
	return true
}
