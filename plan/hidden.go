package plan

import (
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/pgshoal/pgshoal/catalog"
)

// body is what the text of a routine, and of those it names, says about what it may do. It is
// deliberately coarse: a name that occurs counts as a use.
type body struct {
	tables   []*catalog.Table // relations of users whose names occur
	rows     []*catalog.Table // those that stand where rows are read or written
	written  []*catalog.Table // those that plainly stand where rows are written
	routines []uint32         // itself and those it may call
	dynamic  bool             // builds SQL from strings, or cannot be read
	ddl      bool
	writes   bool
	homeOnly string   // a function it names whose effect is on the home node only
	settings bool     // may change settings of the session that outlive it
	sets     []string // which, by name; see AnySetting
}

// schemaWords follow CREATE, ALTER or DROP in a body that changes the schema.
var schemaWords = map[string]bool{
	"table": true, "index": true, "type": true, "view": true, "schema": true, "sequence": true, "function": true,
	"procedure": true, "extension": true, "role": true, "user": true, "trigger": true, "domain": true, "policy": true,
	"unique": true, "materialized": true, "or": true, "unlogged": true, "aggregate": true, "publication": true,
	"group": true, "collation": true, "operator": true, "cast": true, "rule": true, "foreign": true, "server": true,
	"statistics": true, "event": true, "owned": true, "database": true, "default": true, "language": true, "text": true,
}

// writeWords begin statements that change rows.
var writeWords = map[string]bool{
	"insert": true, "update": true, "delete": true, "merge": true, "truncate": true, "copy": true,
}

// rowWords stand before a table whose rows are used.
var rowWords = map[string]bool{
	"from": true, "join": true, "into": true, "update": true, "only": true, "using": true, "truncate": true, "copy": true, "lock": true,
}

// homeOnlyFunctions have an effect that only sessions of the same node notice.
func homeOnlyFunction(name string) bool {
	return strings.HasPrefix(name, "pg_advisory_") || strings.HasPrefix(name, "pg_try_advisory_") ||
		name == "pg_notify" || strings.HasPrefix(name, "lo_")
}

// runsSQL are functions of PostgreSQL and of usual extensions that run SQL given as a string, or
// read tables whose names are given so.
func runsSQL(name string) bool {
	switch name {
	case "query_to_xml", "query_to_xmlschema", "query_to_xml_and_xmlschema", "table_to_xml", "table_to_xml_and_xmlschema",
		"schema_to_xml", "schema_to_xml_and_xmlschema", "database_to_xml", "database_to_xml_and_xmlschema",
		"ts_stat", "ts_rewrite", "connectby", "xpath_table", "normal_rand_query":
		return true
	}
	return strings.HasPrefix(name, "crosstab")
}

// nameIndex finds tables and functions by the words of a text.
type nameIndex struct {
	tables    map[string][]*catalog.Table
	functions map[string][]*catalog.Function
	oddTables []*catalog.Table // whose names are not single words
	oddFuncs  []*catalog.Function
}

type nameIndexKey struct{}

func (p *planner) nameIndex() *nameIndex {
	return p.catalog.Derived(nameIndexKey{}, func() any {
		x := &nameIndex{tables: map[string][]*catalog.Table{}, functions: map[string][]*catalog.Function{}}
		for _, t := range p.catalog.Tables() {
			name := strings.ToLower(t.Name)
			if x.tables[name] = append(x.tables[name], t); !isWord(name) {
				x.oddTables = append(x.oddTables, t)
			}
		}
		for _, f := range p.catalog.UserFunctions() {
			name := strings.ToLower(f.Name)
			if x.functions[name] = append(x.functions[name], f); !isWord(name) {
				x.oddFuncs = append(x.oddFuncs, f)
			}
		}
		return x
	}).(*nameIndex)
}

func isWordRune(r rune) bool {
	return r == '_' || r == '$' || unicode.IsLetter(r) || unicode.IsDigit(r)
}

func isWord(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !isWordRune(r) })
}

// changesSettings finds set_config(), SET and RESET at the beginning of a statement, and SQL that
// is built from strings and may be one of them.
var changesSettings = regexp.MustCompile(`\bset_config\b|(^|;|\bbegin|\bthen|\belse|\bloop)\s*(re)?set\s|\bexecute\b(?s:.*)\b(re)?set\b`)

// quotedWord is a string of one word. It is no table where it stands: what makes SQL of strings counts as dynamic.
var quotedWord = regexp.MustCompile(`'[\pL\pN_$.]+'`)

// readSource adds what one text says to b and returns the functions that it names.
func (x *nameIndex) readSource(b *body, source string) []*catalog.Function {
	lower := strings.ToLower(source)
	words := strings.FieldsFunc(quotedWord.ReplaceAllLiteralString(lower, " "), func(r rune) bool { return !isWordRune(r) })
	var called []*catalog.Function
	if changesSettings.MatchString(lower) {
		b.settings, b.sets = true, append(b.sets, settingsIn(lower)...)
	}
	b.dynamic = b.dynamic || strings.Contains(lower, `u&"`) // a name that is spelled in another way
	for i, w := range words {
		switch {
		case w == "execute" || runsSQL(w):
			b.dynamic = true
		case w == "create" || w == "alter" || w == "drop":
			b.ddl = b.ddl || i+1 < len(words) && schemaWords[words[i+1]]
		case writeWords[w]:
			b.writes = true
		case w == "notify" || homeOnlyFunction(w):
			b.homeOnly = w
		}
		for _, t := range x.tables[w] {
			b.tables = append(b.tables, t)
			if writesTo(words[:i], t) {
				b.written = append(b.written, t)
			}
			if i > 0 && rowWords[words[i-1]] || i > 1 && words[i-1] == strings.ToLower(t.Schema) && rowWords[words[i-2]] {
				b.rows = append(b.rows, t)
			}
		}
		called = append(called, x.functions[w]...)
	}
	for _, t := range x.oddTables {
		if mentions(lower, t.Name) {
			b.tables, b.rows = append(b.tables, t), append(b.rows, t)
		}
	}
	for _, f := range x.oddFuncs {
		if mentions(lower, f.Name) {
			called = append(called, f)
		}
	}
	return called
}

// writesTo reports words after which the name of a table says that its rows are written.
func writesTo(before []string, t *catalog.Table) bool {
	word := func(back int) string {
		if back > len(before) {
			return ""
		}
		return before[len(before)-back]
	}
	at := 1
	if word(at) == strings.ToLower(t.Schema) {
		at++
	}
	if word(at) == "only" || word(at) == "table" && word(at+1) == "truncate" {
		at++
	}
	switch word(at) {
	case "into", "update", "truncate", "copy":
		return true
	case "from":
		return word(at+1) == "delete"
	}
	return false
}

// mentions reports a text in lower case that has a name which is no single word, quotes doubled or not.
func mentions(lower, name string) bool {
	name = strings.ToLower(name)
	return strings.Contains(lower, name) || strings.Contains(lower, strings.ReplaceAll(name, `"`, `""`))
}

type bodyKey struct{ oid uint32 }

// bodyOf reads a routine and the routines its body names.
func (p *planner) bodyOf(f *catalog.Function) body {
	if f.OID == 0 { // a DO block
		return p.readRoutine(f)
	}
	return p.catalog.Derived(bodyKey{f.OID}, func() any { return p.readRoutine(f) }).(body)
}

func (p *planner) readRoutine(root *catalog.Function) body {
	var b body
	x := p.nameIndex()
	seen := map[uint32]bool{}
	for queue := []*catalog.Function{root}; len(queue) > 0; queue = queue[1:] {
		f := queue[0]
		if seen[f.OID] {
			continue
		}
		seen[f.OID] = true
		b.routines = append(b.routines, f.OID)
		for _, oid := range f.Calls {
			if called := p.catalog.Function(oid); called != nil {
				queue = append(queue, called)
			}
		}
		b.dynamic = b.dynamic || f.RunsSQL
		switch {
		case runsSQL(strings.ToLower(f.Name)) || f.Unread:
			b.dynamic = true
		case f.Language == "c" || f.Language == "internal":
			b.dynamic = b.dynamic || runsSQL(f.Source) // under a name of the user's
		case f.Language != "sql" && f.Language != "plpgsql" && f.Kind != 'a':
			b.dynamic = true // its language is not read here
		default:
			queue = append(queue, x.readSource(&b, f.Source)...)
		}
	}
	b.tables = distinctTables(b.tables)
	return b
}

func distinctTables(tables []*catalog.Table) []*catalog.Table {
	slices.SortFunc(tables, func(a, c *catalog.Table) int { return int(int64(a.OID) - int64(c.OID)) })
	return slices.Compact(tables)
}

// add makes b what both texts may do together.
func (b *body) add(other *body) {
	b.tables = distinctTables(slices.Concat(b.tables, other.tables))
	b.routines = slices.Concat(b.routines, other.routines)
	b.rows, b.written = slices.Concat(b.rows, other.rows), slices.Concat(b.written, other.written)
	b.dynamic, b.ddl, b.writes = b.dynamic || other.dynamic, b.ddl || other.ddl, b.writes || other.writes
	b.settings, b.sets = b.settings || other.settings, slices.Concat(b.sets, other.sets)
	if b.homeOnly == "" {
		b.homeOnly = other.homeOnly
	}
}
