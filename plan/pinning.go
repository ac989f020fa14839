package plan

import (
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// pin says for every distributed table which of its rows the statement can need.
func (p *planner) pin(distributed []*ref) {
	for _, r := range distributed {
		if p.settled[r] {
			continue
		}
		pin := p.pinOf(r)
		if !p.prunes(&pin) && p.spreadOverNodes(pin.Distribution) {
			p.fail(p.unpinned(r))
			return
		}
		p.addPin(pin)
	}
	for _, k := range p.rekeys {
		p.addPin(p.rekeyPin(k))
	}
	for _, pin := range p.newKeys {
		p.addPin(pin)
	}
	p.pinNewRows()
}

// pinOf collects what is known about the key of a ref.
func (p *planner) pinOf(r *ref) Pin {
	place := p.placed(r.table)
	pin := Pin{Distribution: place.distribution, Table: r.table.Name, Entry: place.entry}
	ordered := p.orderedColumns(place.distribution)
	for i, at := range place.keys {
		key := p.keyColumnOf(r.table, at)
		key.know(p.graph.facts[column{r, at}], slices.Contains(ordered, i))
		pin.Keys = append(pin.Keys, key)
	}
	for _, row := range p.rows[r] {
		if b, ok := rowBound(place.keys, row, ordered); ok {
			pin.Rows = append(pin.Rows, b)
		}
	}
	return pin
}

func (p *planner) keyColumnOf(t *catalog.Table, at int) KeyColumn {
	kt, _ := p.keyType(column{&ref{table: t}, at})
	return KeyColumn{Type: kt, Column: t.Name + "." + t.Columns[at].Name}
}

// know adds restrictions. Where the order is not kept, only equality tells where a row is.
func (k *KeyColumn) know(facts []*restriction, ordered bool) {
	k.Operands = bestOperands(facts)
	if !ordered || len(k.Operands) == 1 && !k.Operands[0].Array {
		return
	}
	for _, f := range facts {
		switch {
		case f.ops != nil:
		case len(f.union) == 1:
			k.Bounds = append(k.Bounds, f.union[0]...)
		default:
			k.Unions = append(k.Unions, f.union)
		}
	}
}

// bestOperands are those of the equality that leaves the fewest values.
func bestOperands(facts []*restriction) []Operand {
	const unknown = 1 << 20 // what an array may hold
	var best []Operand
	least := 0
	for _, f := range facts {
		size := len(f.ops)
		if slices.ContainsFunc(f.ops, func(o Operand) bool { return o.Array }) {
			size += unknown
		}
		if f.ops != nil && (best == nil || size < least) {
			best, least = f.ops, size
		}
	}
	return best
}

// orderedColumns are the positions of the key columns whose order the distribution keeps.
func (p *planner) orderedColumns(distribution uint32) []int {
	var ordered []int
	if d := p.m.Distribution(distribution); d != nil {
		for _, dim := range d.Key.Dimensions {
			if dim.Method == keyspace.Range {
				ordered = append(ordered, dim.Columns...)
			}
		}
	}
	return ordered
}

// rowBound keeps a comparison as far as its columns stand one after the other in the key.
func rowBound(keys []int, row *rowCondition, ordered []int) (RowBound, bool) {
	b := RowBound{Op: row.op}
	for i, c := range row.columns {
		at := slices.Index(keys, c.index)
		if at < 0 || !slices.Contains(ordered, at) || i > 0 && at != b.Columns[i-1]+1 {
			b.Op = orEqual(b.Op)
			break
		}
		b.Columns, b.Operands = append(b.Columns, at), append(b.Operands, row.operands[i])
	}
	return b, len(b.Columns) > 1
}

// prunes reports a pin that can leave shards out.
func (p *planner) prunes(pin *Pin) bool {
	d := p.m.Distribution(pin.Distribution)
	if d == nil || pin.Entry != nil || len(pin.Rows) > 0 {
		return true
	}
	for _, c := range d.Key.Components() {
		known := func(i int) bool { return i < len(pin.Keys) && len(pin.Keys[i].Operands) > 0 }
		if c.Method == keyspace.Range {
			known = func(i int) bool { return i < len(pin.Keys) && pin.Keys[i].Restricts() }
		}
		if !slices.ContainsFunc(c.Columns, func(i int) bool { return !known(i) }) {
			return true
		}
	}
	return false
}

// spreadOverNodes reports a distribution whose shards are on several nodes.
func (p *planner) spreadOverNodes(distribution uint32) bool {
	d := p.m.Distribution(distribution)
	return d != nil && slices.ContainsFunc(d.Shards, func(s keyspace.Shard) bool { return s.Node != d.Shards[0].Node })
}

// addPin leaves out a pin that says the same as another.
func (p *planner) addPin(pin Pin) {
	if !slices.ContainsFunc(p.plan.Pins, func(q Pin) bool { return q.same(&pin) }) {
		p.plan.Pins = append(p.plan.Pins, pin)
	}
}

func (p *planner) unpinned(r *ref) error {
	place := p.placed(r.table)
	ordered := p.orderedColumns(place.distribution)
	terms, how := make([]string, len(place.keys)), "IN, or = ANY"
	for i, k := range place.keys {
		terms[i] = QuoteIdent(r.table.Columns[k].Name) + " = value"
	}
	if len(ordered) > 0 {
		how = "IN, or a range of " + QuoteIdent(r.table.Columns[place.keys[ordered[0]]].Name)
	}
	refusal := refuse("Add a condition "+strings.Join(terms, " AND ")+" (or "+how+") for every distributed table, or join on the key.",
		"this statement needs rows of distributed table %q from several nodes, which is not supported yet", r.table.Name)
	refusal.several = true
	return refusal
}

// assignedColumn is a key column that gets the operands as its values.
func (p *planner) assignedColumn(t *catalog.Table, at int, ops []Operand) KeyColumn {
	key := p.keyColumnOf(t, at)
	key.Assigned, key.Operands = true, ops
	c := &t.Columns[at]
	name, modifier, has := strings.Cut(c.TypeName, "(")
	if domain := p.catalog.BaseType(c.TypeOID) != c.TypeOID; domain && key.Type.Canonical() != keyspace.Int8 {
		key.Cast = c.TypeName // it may have a modifier
		return key
	}
	if !has {
		return key
	}
	key.Cast = c.TypeName
	if name == "character varying" || name == "character" {
		key.Length, _ = strconv.Atoi(strings.TrimSuffix(modifier, ")"))
	}
	return key
}

// rekey is an assignment to key columns of rows of a table: by index of the column, the new value.
type rekey struct {
	ref    *ref
	values map[int]Operand
}

// rekeyPin is where rows go whose key changes: what is not assigned stays what it was.
func (p *planner) rekeyPin(k rekey) Pin {
	pin := p.pinOf(k.ref)
	pin.Stored, pin.Rows = p.declares(pin.Distribution), nil
	for i, at := range p.placed(k.ref.table).keys {
		if op, assigned := k.values[at]; assigned {
			pin.Keys[i] = p.assignedColumn(k.ref.table, at, []Operand{op})
		}
	}
	return pin
}

// newRow is a row to come whose key columns are columns of what it is made from, or constants.
type newRow struct {
	table   *catalog.Table
	sources []keySource
}

// keySource is where one key column of a new row comes from.
type keySource struct {
	column *column
	op     Operand
}

// pinNewRows demands that the keys of rows to come are known.
func (p *planner) pinNewRows() {
	for _, n := range p.newRows {
		place := p.placed(n.table)
		if !p.keysFit(n, place) {
			p.fail(refuseSeveral("Take the key from a plain column of the same type that is equal to a constant.",
				"the keys of new rows for distributed table %q are not known before the statement runs", n.table.Name))
			return
		}
		if p.staysPut(n, place) {
			continue
		}
		pin := Pin{Distribution: place.distribution, Table: n.table.Name, Stored: p.declares(place.distribution)}
		ordered := p.orderedColumns(place.distribution)
		for i, at := range place.keys {
			if s := n.sources[i]; s.column == nil {
				pin.Keys = append(pin.Keys, p.assignedColumn(n.table, at, []Operand{s.op}))
				continue
			}
			key := p.keyColumnOf(n.table, at)
			key.know(p.graph.facts[*n.sources[i].column], slices.Contains(ordered, i))
			pin.Keys = append(pin.Keys, key)
		}
		if !p.locates(&pin) {
			p.fail(refuseSeveral("Take the key from a plain column of the same type that is equal to a constant.",
				"the keys of new rows for distributed table %q are not known before the statement runs", n.table.Name))
			return
		}
		p.addPin(pin)
	}
}

// declares reports a distribution that has no place for a value unless it is declared or assigned.
func (p *planner) declares(distribution uint32) bool {
	d := p.m.Distribution(distribution)
	return d != nil && slices.ContainsFunc(d.Key.Dimensions, func(d keyspace.Dimension) bool { return mustDeclare(&d) })
}

func mustDeclare(d *keyspace.Dimension) bool {
	return d.Method == keyspace.Directory || d.Method == keyspace.List && d.Default == ""
}

// keysFit reports new rows whose key columns become, unchanged and not NULL, what their sources are.
func (p *planner) keysFit(n newRow, place placed) bool {
	for i, at := range place.keys {
		s := n.sources[i].column
		if s == nil {
			continue
		}
		key := column{&ref{table: n.table}, at}
		from, fromAt := s.base()
		// A modifier of the key's type could change the value on its way.
		cast := p.assignedColumn(n.table, at, nil).Cast
		if cast != "" && (from == nil || from.Columns[fromAt].TypeName != n.table.Columns[at].TypeName) || !p.comparable(*s, key) {
			return false
		}
		// What is restricted is NULL only where an outer join made it so.
		notNull := len(p.graph.facts[*s]) > 0 || from != nil && from.Columns[fromAt].NotNull
		if !n.table.Columns[at].NotNull && !(notNull && p.neverExtended(*s)) {
			return false
		}
	}
	return true
}

// staysPut reports new rows with the key of a row of the same distribution, whose pin is theirs too.
func (p *planner) staysPut(n newRow, place placed) bool {
	var from *ref
	for i := range place.keys {
		if n.sources[i].column == nil {
			return false
		}
		c, ok := n.sources[i].column.baseColumn()
		if !ok || from != nil && c.ref != from {
			return false
		}
		from = c.ref
		other := p.placed(from.table)
		if other.distribution != place.distribution || i >= len(other.keys) || other.keys[i] != c.index {
			return false
		}
	}
	return from != nil && !p.settled[from] && !p.rekeyed[from]
}

// locates reports a pin of new rows that tells where they belong: a region or an entry must be known
// for each of them, not only a set of nodes.
func (p *planner) locates(pin *Pin) bool {
	d := p.m.Distribution(pin.Distribution)
	if d == nil {
		return false
	}
	for _, c := range d.Key.Components() {
		for _, i := range c.Columns {
			if mustDeclare(&d.Key.Dimensions[c.Dimension]) && len(pin.Keys[i].Operands) == 0 {
				return false
			}
		}
	}
	return p.prunes(pin) || !p.spreadOverNodes(pin.Distribution)
}
