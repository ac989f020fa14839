package catalog

import (
	"context"
)

// OIDList is what one server calls the types and tables that users have made: each server gives them OIDs of its own.
type OIDList struct {
	types  map[qualified]uint32 // arrays and multiranges are found through what they are of
	arrays map[uint32]uint32    // by element
	multis map[uint32]uint32    // multiranges by range
	tables map[qualified]listedTable
	forms  map[uint32]typeForm
}

type listedTable struct {
	oid     uint32
	columns []int // attribute numbers; dropped columns leave gaps, not the same on every server
}

// typeForm says where OIDs stand in the binary form of a type's values.
type typeForm struct {
	kind byte // 'a' array, 'c' composite, 'd' domain, 'r' range, 'm' multirange; others have none
	of   uint32
}

// Types that come with the server and hold values of any type.
const (
	recordOID      = 2249
	recordArrayOID = 2287
	anyArrayOID    = 2277
)

// FirstUserOID is where the OIDs of objects made after initdb begin; those below are the same on every server.
const FirstUserOID = 16384

const oidQuery = `SELECT 't', t.oid, n.nspname, t.typname,
	CASE WHEN e.oid IS NOT NULL THEN 'a' ELSE t.typtype END,
	CASE WHEN e.oid IS NOT NULL THEN e.oid WHEN t.typtype = 'd' THEN t.typbasetype WHEN t.typtype = 'r' THEN r.rngsubtype WHEN t.typtype = 'm' THEN m.rngtypid ELSE 0 END::pg_catalog.text
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid
LEFT JOIN pg_catalog.pg_range r ON r.rngtypid = t.oid
LEFT JOIN pg_catalog.pg_range m ON m.rngmultitypid = t.oid
WHERE t.oid >= ` + firstUserOID + ` AND n.nspname !~ '^pg_(temp|toast)'
UNION ALL
SELECT 'r', c.oid, n.nspname, c.relname, c.relkind,
	(SELECT pg_catalog.string_agg(a.attnum::pg_catalog.text, ',' ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
	WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid >= ` + firstUserOID + ` AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname !~ '^pg_(temp|toast)'`

// LoadOIDs asks a server for the OIDs of a database.
func LoadOIDs(ctx context.Context, q Querier) (*OIDList, error) {
	rows, err := q.Query(ctx, oidQuery)
	if err != nil {
		return nil, err
	}
	l := &OIDList{
		types: map[qualified]uint32{}, arrays: map[uint32]uint32{}, multis: map[uint32]uint32{}, tables: map[qualified]listedTable{},
		forms: map[uint32]typeForm{recordOID: {kind: 'c'}, recordArrayOID: {'a', recordOID}, anyArrayOID: {kind: 'a'}},
	}
	for _, row := range rows {
		l.add(string(row[0]), number(row[1]), qualified{string(row[2]), string(row[3])}, row[4][0], row[5])
	}
	return l, nil
}

func (l *OIDList) add(what string, oid uint32, name qualified, kind byte, more []byte) {
	if what == "r" {
		l.tables[name] = listedTable{oid, list[int](more)}
		return
	}
	of := number(more)
	l.forms[oid] = typeForm{kind, of}
	switch kind {
	case 'a':
		l.arrays[of] = oid
	case 'm':
		l.multis[of] = oid
	default:
		l.types[name] = oid
	}
}

// OIDMap turns the OIDs of one node into those of the home node and back. It is immutable.
type OIDMap struct {
	forms   map[uint32]typeForm // by the home node's OIDs
	types   map[uint32]uint32   // the node's to home's
	back    map[uint32]uint32   // home's to the node's
	tables  map[uint32]uint32   // the node's to home's
	columns map[uint32]map[int16]int16
}

// MapOIDs pairs what has the same name. What an array or a multirange is called depends on what else there
// was when it was made, so these follow what they are of.
func MapOIDs(node, home *OIDList) *OIDMap {
	m := &OIDMap{
		forms: home.forms, types: make(map[uint32]uint32, len(node.forms)), back: make(map[uint32]uint32, len(node.forms)),
		tables: make(map[uint32]uint32, len(node.tables)), columns: map[uint32]map[int16]int16{},
	}
	for name, t := range node.types {
		h, ok := home.types[name]
		if !ok {
			continue
		}
		m.pair(t, h)
		m.pairArray(node, home, t, h)
		if nm, hm := node.multis[t], home.multis[h]; nm != 0 && hm != 0 {
			m.pair(nm, hm)
			m.pairArray(node, home, nm, hm)
		}
	}
	for name, t := range node.tables {
		if h, ok := home.tables[name]; ok {
			m.tables[t.oid] = h.oid
			m.pairColumns(t, h)
		}
	}
	return m
}

func (m *OIDMap) pair(node, home uint32) { m.types[node], m.back[home] = home, node }

func (m *OIDMap) pairArray(node, home *OIDList, of, homeOf uint32) {
	if na, ha := node.arrays[of], home.arrays[homeOf]; na != 0 && ha != 0 {
		m.pair(na, ha)
	}
}

// pairColumns notes columns whose numbers differ: the schema of a node that joined later has no dropped columns.
func (m *OIDMap) pairColumns(node, home listedTable) {
	if len(node.columns) != len(home.columns) {
		return
	}
	for i, n := range node.columns {
		if n == home.columns[i] {
			continue
		}
		if m.columns[node.oid] == nil {
			m.columns[node.oid] = map[int16]int16{}
		}
		m.columns[node.oid][int16(n)] = int16(home.columns[i])
	}
}

// HomeType is a node's type as the home node knows it.
func (m *OIDMap) HomeType(oid uint32) (uint32, bool) { return lookup(m.types, oid) }

// NodeType is a type of the home node as the node knows it.
func (m *OIDMap) NodeType(oid uint32) (uint32, bool) { return lookup(m.back, oid) }

func lookup(oids map[uint32]uint32, oid uint32) (uint32, bool) {
	if oid < FirstUserOID {
		return oid, true
	}
	other, ok := oids[oid]
	return other, ok
}

// HomeColumn is a node's table and column as the home node knows them.
func (m *OIDMap) HomeColumn(table uint32, column int16) (uint32, int16, bool) {
	if table < FirstUserOID {
		return table, column, true
	}
	home, ok := m.tables[table]
	if numbers := m.columns[table]; ok && numbers != nil {
		if other, changed := numbers[column]; changed {
			column = other
		}
	}
	return home, column, ok
}
