package catalog

import (
	"fmt"
	"slices"
	"strings"
)

// builder turns rows into a catalog. Repeated texts are kept once.
type builder struct {
	catalog *Catalog
	texts   map[string]string
	domains map[uint32]domainDefault
	later   [][][]byte // rows that name columns: read when all columns are there
}

type domainDefault struct {
	sql      string
	volatile bool
}

func newBuilder(own *builtin) *builder {
	return &builder{
		catalog: &Catalog{
			builtin: own,
			tables:  map[uint32]*Table{}, names: map[qualified]*Table{},
			functions: map[qualified][]*Function{}, procs: map[uint32]*Function{},
			types: map[uint32]Type{}, rights: newRights(), operators: map[string][]Operator{},
			schemas: map[string]SchemaPlace{},
			paths:   searchPaths{roles: map[string]string{}, inDB: map[string]string{}},
		},
		texts: map[string]string{}, domains: map[uint32]domainDefault{},
	}
}

func build(rows [][][]byte, own *builtin) (*Catalog, error) {
	b := newBuilder(own)
	if err := b.readAll(rows); err != nil {
		return nil, err
	}
	for _, t := range b.catalog.tables {
		b.place(t)
		b.inheritDefaults(t)
	}
	return b.catalog, nil
}

func buildBuiltin(rows [][][]byte) (*builtin, error) {
	b := newBuilder(&builtin{functions: map[qualified]*Function{}})
	if err := b.readAll(rows); err != nil {
		return nil, err
	}
	c := b.catalog
	return &builtin{tables: c.tables, names: c.names, functions: c.builtin.functions, types: c.types}, nil
}

func (b *builder) readAll(rows [][][]byte) error {
	for _, r := range rows {
		if len(r) != loadColumns || len(r[0]) == 0 {
			return fmt.Errorf("a row of %d columns, expected %d that begin with a kind", len(r), loadColumns)
		}
		b.read(r)
	}
	for _, t := range b.catalog.tables {
		slices.SortFunc(t.Columns, func(x, y Column) int { return int(x.Num) - int(y.Num) })
		t.Columns = slices.Clip(t.Columns)
	}
	for _, r := range b.later {
		b.readLater(r)
	}
	return nil
}

func (b *builder) intern(data []byte) string {
	if s, ok := b.texts[string(data)]; ok {
		return s
	}
	s := string(data)
	b.texts[s] = s
	return s
}

func (b *builder) read(r [][]byte) {
	c := b.catalog
	f := fields{r[0]}
	switch f.letter() {
	case 's':
		c.rights.usage[string(r[1])] = f.oids()
		if r[2] != nil {
			c.schemas[string(r[1])] = SchemaPlace{Distribution: number(r[2]), Entry: entry(r[3])}
		}
	case 'l':
		c.rights.addRole(f.oid(), string(r[1]), f.yes())
	case 'm':
		member := f.oid()
		c.rights.memberOf[member] = append(c.rights.memberOf[member], f.oid())
	case 'r':
		b.readTable(f, r)
	case 'c':
		b.readColumn(f, r)
	case 'y':
		t := Type{OID: f.oid(), Kind: f.letter(), Base: f.oid(), Elem: f.oid(), Schema: b.intern(r[1]), Name: string(r[2])}
		c.types[t.OID] = t
		if t.Kind == 'd' && r[3] != nil {
			b.domains[t.OID] = domainDefault{string(r[3]), f.yes()}
		}
	case 'n':
		fn := &Function{
			Kind: f.letter(), Volatility: f.letter(), ReturnsSet: f.yes(),
			Schema: b.intern(r[1]), Name: string(r[2]), Language: "internal", Builtin: true,
		}
		c.builtin.functions[qualified{fn.Schema, fn.Name}] = fn
	case 'p':
		b.readFunction(f, r)
	case 'o':
		o := Operator{
			OID: f.oid(), Left: f.oid(), Right: f.oid(), Function: f.oid(), Schema: b.intern(r[1]), Name: b.intern(r[2]),
		}
		c.operators[o.Name] = append(c.operators[o.Name], o)
	case 'D':
		c.paths.server = string(r[1])
	case 'd':
		c.paths.set(f.yes(), string(r[1]), string(r[2]))
	case 'e', 'q', 'u', 'f', 't', 'i', 'V', 'P', 'G', 'h', 'x':
		b.later = append(b.later, r)
	}
}

// table returns the table with this OID, making it when a column of it came first.
func (b *builder) table(oid uint32) *Table {
	t := b.catalog.tables[oid]
	if t == nil {
		t = &Table{OID: oid}
		b.catalog.tables[oid] = t
	}
	return t
}

func (b *builder) readTable(f fields, r [][]byte) {
	t := b.table(f.oid())
	t.Kind, t.Persistence, t.IsPartition, t.RowSecurity, t.HasRules = f.letter(), f.letter(), f.yes(), f.yes(), f.yes()
	switch string(f.next()) {
	case "distributed":
		t.Placement, t.Distribution = Distributed, f.oid()
		b.later = append(b.later, r)
	case "reference":
		t.Placement = Reference
	}
	t.Schema, t.Name, t.Owner = b.intern(r[1]), b.intern(r[2]), b.intern(r[3])
	if len(r[4]) > 0 {
		t.Options = strings.Split(b.intern(r[4]), "\x1f")
	}
	b.catalog.names[qualified{t.Schema, t.Name}] = t
}

func (b *builder) readColumn(f fields, r [][]byte) {
	t := b.table(f.oid())
	c := Column{Num: int16(f.oid()), TypeOID: f.oid(), NotNull: f.yes(), Name: b.intern(r[1]), TypeName: b.intern(r[2])}
	if id := f.letter(); id != '-' {
		c.Identity, c.DefaultVolatile = id, true
	}
	if generated := f.letter(); generated != '-' {
		c.Generated = generated
	}
	c.Deterministic, c.ByteOrder = f.yes(), f.yes()
	t.Columns = append(t.Columns, c)
}

func (b *builder) readFunction(f fields, r [][]byte) {
	fn := &Function{
		OID: f.oid(), Kind: f.letter(), Volatility: f.letter(), Defaults: int(f.oid()),
		Variadic: f.yes(), ReturnsSet: f.yes(), Definer: f.yes(),
		Schema: b.intern(r[1]), Name: b.intern(r[2]), Language: b.intern(r[3]), Source: string(r[4]), Args: f.oids(),
	}
	b.catalog.procs[fn.OID] = fn
	q := qualified{fn.Schema, fn.Name}
	b.catalog.functions[q] = append(b.catalog.functions[q], fn)
}

func (b *builder) readLater(r [][]byte) {
	f := fields{r[0]}
	kind := f.letter()
	if kind == 'h' {
		b.readHidden(f, r)
		return
	}
	oid := f.oid()
	if fn := b.catalog.procs[oid]; fn != nil && (kind == 'P' || kind == 'x') {
		if kind == 'P' {
			fn.Source, fn.Unread = string(r[1]), r[1] == nil
		} else {
			fn.Distribution, fn.KeyArg, fn.KeyType, fn.KeyName = f.oid(), int(f.oid()), f.oid(), string(r[1])
		}
		return
	}
	t := b.catalog.tables[oid]
	if t == nil {
		return // of a temporary or system table
	}
	switch kind {
	case 'r':
		for range 7 { // what readTable took
			f.next()
		}
		t.Key = t.indexes(f.numbers())
		t.Entry = entry(f.next())
	case 'V':
		t.ViewSQL, t.Unread = string(r[1]), r[1] == nil
	case 'e', 'q', 'G':
		b.readDefault(t, kind, f, r)
	case 'u':
		u := Unique{Name: string(r[1])}
		keys := int(f.oid())
		u.Primary, u.Constraint, u.Exclusion, u.Partial = f.yes(), f.yes(), f.yes(), f.yes()
		nums := f.numbers()
		nums = nums[:min(len(nums), keys)] // the rest are INCLUDE columns
		u.Columns, u.Expressions = t.columnNames(nums), slices.Contains(nums, 0)
		t.Uniques = append(t.Uniques, u)
	case 'f':
		b.readForeignKey(t, f, r)
	case 't':
		t.HasTriggers = true
		t.Triggers = append(t.Triggers, Trigger{Function: f.oid(), Enabled: f.letter(), Name: string(r[1])})
	case 'i':
		parent := b.catalog.tables[f.oid()]
		if parent == nil {
			return
		}
		if f.oid() == 1 {
			t.Parent = parent.OID
		}
		parent.Children = append(parent.Children, t.OID)
	}
}

// readHidden gives code that runs with something to what it runs with.
func (b *builder) readHidden(f fields, r [][]byte) {
	class, oid := f.letter(), f.oid()
	h := Hidden{Policy: class == 'p', What: b.intern(r[1]), RunsSQL: f.yes(), Functions: f.oids(), Tables: f.oids()}
	none := func(oid uint32) bool { return oid == 0 }
	h.Functions, h.Tables = slices.DeleteFunc(h.Functions, none), slices.DeleteFunc(h.Tables, none)
	switch t := b.catalog.tables[oid]; {
	case class == 'F':
		if fn := b.catalog.procs[oid]; fn != nil {
			fn.Calls, fn.RunsSQL = h.Functions, h.RunsSQL
		}
	case class == 'y':
		b.catalog.hidden = append(b.catalog.hidden, h)
	case t != nil:
		t.Hidden = append(t.Hidden, h)
	}
}

func (b *builder) readDefault(t *Table, kind byte, f fields, r [][]byte) {
	i := t.index(int(f.oid()))
	if i < 0 {
		return
	}
	c := &t.Columns[i]
	switch {
	case kind == 'q':
		c.SequenceOID, c.SequencePlaced, c.SequenceType = f.oid(), f.yes(), b.intern(r[1])
	case kind == 'e' && c.Generated == 0:
		c.DefaultVolatile, c.Default = f.yes(), b.intern(r[1])
	case kind == 'G':
		c.Default = b.intern(r[1])
		t.Unread = t.Unread || r[1] == nil
	}
}

func (b *builder) readForeignKey(from *Table, f fields, r [][]byte) {
	columns := from.columnNames(f.numbers())
	to := b.catalog.tables[f.oid()]
	if to == nil {
		return
	}
	fk := ForeignKey{
		Name: string(r[1]), Table: from.OID, Columns: columns,
		RefTable: to.OID, RefColumns: to.columnNames(f.numbers()), OnDelete: f.letter(), OnUpdate: f.letter(),
	}
	from.ForeignKeys = append(from.ForeignKeys, fk)
	to.ReferencedBy = append(to.ReferencedBy, fk)
}

// deepestPartition is more levels than anybody has; it only keeps nonsense from running in circles.
const deepestPartition = 100

// place gives a partition the placement of the table it is a part of: partitions made later
// need no row of their own in pg_shoal.tables.
func (b *builder) place(t *Table) {
	root := t
	for depth := 0; root.IsPartition && root.Placement == Local && depth < deepestPartition; depth++ {
		parent := b.catalog.tables[root.Parent]
		if parent == nil {
			return
		}
		root = parent
	}
	if root == t || root.Placement == Local {
		return
	}
	t.Placement, t.Distribution, t.Entry = root.Placement, root.Distribution, root.Entry
	t.Key = make([]int, 0, len(root.Key))
	for _, k := range root.Key {
		if i := t.Column(root.Columns[k].Name); i >= 0 {
			t.Key = append(t.Key, i)
		}
	}
}

// inheritDefaults gives columns without a default that of their domain, as PostgreSQL does.
func (b *builder) inheritDefaults(t *Table) {
	if len(b.domains) == 0 || t.Kind == KindView || t.Kind == KindMatView {
		return
	}
	for i := range t.Columns {
		c := &t.Columns[i]
		if d, ok := b.domains[c.TypeOID]; ok && c.Default == "" && c.Identity == 0 {
			c.Default, c.DefaultVolatile = d.sql, d.volatile
		}
	}
}

// index returns where the column with this attribute number is, or -1.
func (t *Table) index(num int) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return int(c.Num) == num })
}

func (t *Table) indexes(nums []int) []int {
	list := make([]int, 0, len(nums))
	for _, n := range nums {
		if i := t.index(n); i >= 0 {
			list = append(list, i)
		}
	}
	return list
}

func (t *Table) columnNames(nums []int) []string {
	names := make([]string, 0, len(nums))
	for _, i := range t.indexes(nums) {
		names = append(names, t.Columns[i].Name)
	}
	return names
}
