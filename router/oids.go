package router

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/pgwire"
)

// Each node has given types and tables OIDs of its own. Clients see those of the home node, which answers for the
// catalogs, whichever node answers the statement: what goes to another node or comes from it is translated.

// oidMaps knows how the OIDs of each node and database are translated.
type oidMaps struct {
	router *Router
	mu     sync.Mutex
	slots  map[oidKey]*oidSlot
}

type oidKey struct{ node, database string }

// oidSlot is one node's OIDs in one database; loading them locks nobody else out.
type oidSlot struct {
	mu     sync.Mutex
	list   *catalog.OIDList // of the home node
	listed uint64           // the version of the schema that it is of
	loaded *nodeOIDs        // of other nodes
}

// nodeOIDs is how one node's OIDs are translated under one version of the schema.
type nodeOIDs struct {
	oids    *catalog.OIDMap
	version uint64
	nodeID  int
	epoch   atomic.Uint64 // the last map that it was found good under
	again   bool          // it was loaded because something was missing before
}

func (o *oidMaps) init(r *Router) { o.router, o.slots = r, map[oidKey]*oidSlot{} }

func (o *oidMaps) slot(k oidKey) *oidSlot {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.slots[k]
	if s == nil {
		s = &oidSlot{}
		o.slots[k] = s
	}
	return s
}

// get is the translation of a node's OIDs as of the view's schema. Missing is one that lacked something, which was
// made a moment before the map tells of it.
func (o *oidMaps) get(ctx context.Context, v *view, node, database string, missing *nodeOIDs) (*nodeOIDs, error) {
	slot := o.slot(oidKey{node, database})
	slot.mu.Lock()
	defer slot.mu.Unlock()
	version := v.m.Schemas[database]
	n, err := v.m.Node(node)
	if err != nil {
		return nil, err
	}
	if e := slot.loaded; e != nil && e.version >= version && e.nodeID == n.ID && (e != missing || e.again) {
		e.epoch.Store(v.m.Epoch)
		return e, nil
	}
	home, err := o.home(ctx, v, database, version, missing != nil)
	if err != nil {
		return nil, err
	}
	own, err := o.load(ctx, node, database)
	if err != nil {
		return nil, err
	}
	e := &nodeOIDs{oids: catalog.MapOIDs(own, home), version: version, nodeID: n.ID, again: missing != nil}
	e.epoch.Store(v.m.Epoch)
	slot.loaded = e
	return e, nil
}

// home is what the home node calls things.
func (o *oidMaps) home(ctx context.Context, v *view, database string, version uint64, again bool) (*catalog.OIDList, error) {
	slot := o.slot(oidKey{v.m.Home, database})
	slot.mu.Lock()
	defer slot.mu.Unlock()
	if slot.list != nil && slot.listed >= version && !again {
		return slot.list, nil
	}
	list, err := o.load(ctx, v.m.Home, database)
	if err == nil {
		slot.list, slot.listed = list, version
	}
	return list, err
}

func (o *oidMaps) load(ctx context.Context, node, database string) (*catalog.OIDList, error) {
	conn, err := o.router.service(ctx, node, database)
	if err != nil {
		return nil, err
	}
	defer o.router.pool.Release(conn)
	list, err := catalog.LoadOIDs(ctx, conn)
	return list, onNode(node, err)
}

// answering is the node's part in the transaction, ready to be asked what a client gets to see.
func (s *session) answering(ctx context.Context, node string) (*participant, error) {
	p, err := s.participant(ctx, node)
	if err == nil {
		err = s.knowOIDs(ctx, p)
	}
	return p, err
}

// answeringAll prepares several nodes. It comes before the first of them is asked anything, because learning OIDs may take
// questions to the home node on the transaction's own connection.
func (s *session) answeringAll(ctx context.Context, nodes []string) error {
	for _, node := range nodes {
		if _, err := s.answering(ctx, node); err != nil {
			return err
		}
	}
	return nil
}

// knowOIDs makes sure that the participant's OIDs can be translated.
func (s *session) knowOIDs(ctx context.Context, p *participant) error {
	v := s.router.view.Load()
	if p.node == v.m.Home {
		return nil
	}
	if s.schemaChanged {
		return s.ownOIDs(ctx, p, v)
	}
	e, _ := p.conn.OIDs.(*nodeOIDs)
	if e == nil || e.epoch.Load() != v.m.Epoch {
		s.task.Detach()
		var err error
		if e, err = s.router.oids.get(ctx, v, p.node, s.database, nil); err != nil {
			return err
		}
		p.conn.OIDs = e
	}
	p.oids = e.oids
	return nil
}

// ownOIDs reads them in a transaction that has changed the schema: nobody else can see what it has made.
func (s *session) ownOIDs(ctx context.Context, p *participant, v *view) error {
	if p.oids != nil && p.ownOIDs {
		return nil
	}
	if err := s.finishSegment(ctx); err != nil {
		return err
	}
	home, err := s.participant(ctx, v.m.Home)
	if err != nil {
		return err
	}
	var lists [2]*catalog.OIDList
	for i, part := range []*participant{p, home} {
		if err := s.flushPreamble(part); err != nil {
			return err
		}
		if lists[i], err = catalog.LoadOIDs(ctx, part.conn); err != nil {
			return err
		}
	}
	p.oids, p.ownOIDs = catalog.MapOIDs(lists[0], lists[1]), true
	return nil
}

// forgetOIDs makes participants learn theirs again, because the transaction changes the schema or is over.
func (t *transaction) forgetOIDs() {
	for _, p := range t.parts {
		p.oids, p.ownOIDs = nil, false
	}
}

// unknownOID is the type that nothing is known of.
const unknownOID = 705

// missingTimeout bounds how long an answer waits while OIDs that just came up are looked for.
const missingTimeout = 5 * time.Second

// describedRows translates a RowDescription in place.
func (s *session) describedRows(p *participant, msg []byte) {
	if !knowsColumns(p.oids, msg) && !p.ownOIDs {
		s.missingOIDs(p)
	}
	for columns := pgwire.ColumnsOf(msg); ; {
		c := columns.Next()
		if c == nil {
			return
		}
		if table, column := c.Table(); table >= firstUserOID {
			table, column, _ = p.oids.HomeColumn(table, column)
			c.SetTable(table, column)
		}
		if oid := c.Type(); oid >= firstUserOID {
			home, ok := p.oids.HomeType(oid)
			if !ok {
				home = unknownOID
			}
			c.SetType(home)
		}
	}
}

// knowsColumns reports that all types and tables of a RowDescription can be translated.
func knowsColumns(oids *catalog.OIDMap, msg []byte) bool {
	for columns := pgwire.ColumnsOf(msg); ; {
		c := columns.Next()
		if c == nil {
			return true
		}
		if _, ok := oids.HomeType(c.Type()); !ok {
			return false
		}
		if _, _, ok := oids.HomeColumn(c.Table()); !ok {
			return false
		}
	}
}

// missingOIDs learns OIDs once more: another session's change of the schema can be on the nodes before this router
// has heard of it.
func (s *session) missingOIDs(p *participant) {
	ctx, cancel := context.WithTimeout(context.Background(), missingTimeout)
	defer cancel()
	before, _ := p.conn.OIDs.(*nodeOIDs)
	if e, err := s.router.oids.get(ctx, s.router.view.Load(), p.node, s.database, before); err == nil {
		p.conn.OIDs, p.oids = e, e.oids
	}
}

// oidColumn is a column whose values have OIDs in them.
type oidColumn struct {
	index int
	oid   uint32 // the home node's
}

// anyUserType reports types whose values may have OIDs in them in the binary format.
func anyUserType(types []uint32) bool {
	return slices.ContainsFunc(types, mayHaveOIDs)
}

func mayHaveOIDs(oid uint32) bool {
	return oid >= firstUserOID || oid == 2249 || oid == 2287 || oid == 2277 // record, record[], anyarray
}

// anyUserColumn is the same for a description.
func anyUserColumn(rows []byte) bool {
	for columns := pgwire.ColumnsOf(rows); ; {
		c := columns.Next()
		if c == nil {
			return false
		}
		if mayHaveOIDs(c.Type()) {
			return true
		}
	}
}

// oidColumns are those columns of a translated description whose values must be translated too. Format tells how
// they come.
func oidColumns(oids *catalog.OIDMap, rows []byte, isBinary func(i int, c pgwire.DescribedColumn) bool) (list []oidColumn) {
	columns := pgwire.ColumnsOf(rows)
	for i := 0; ; i++ {
		c := columns.Next()
		if c == nil {
			return list
		}
		if mayHaveOIDs(c.Type()) && isBinary(i, c) && oids.HasOIDs(c.Type()) {
			list = append(list, oidColumn{i, c.Type()})
		}
	}
}

func asDescribed(_ int, c pgwire.DescribedColumn) bool { return c.Binary() }

// asBound is the format that a list of result formats says.
func asBound(formats []int16) func(int, pgwire.DescribedColumn) bool {
	return func(i int, _ pgwire.DescribedColumn) bool { return formatIsBinary(formats, i) }
}

// rowToHome translates the values of a DataRow, or of a row of COPY in the binary format, in place: the number of
// columns, and each value behind its length.
func rowToHome(oids *catalog.OIDMap, columns []oidColumn, row []byte) error {
	return eachValue(row, columns, oids.ValueToHome)
}

func eachValue(row []byte, columns []oidColumn, translate func(uint32, []byte) error) error {
	if len(row) < 2 {
		return catalog.ErrOIDValue
	}
	count, row := int(binary.BigEndian.Uint16(row)), row[2:]
	for i := 0; i < count && len(columns) > 0; i++ {
		if len(row) < 4 {
			return catalog.ErrOIDValue
		}
		size := int(int32(binary.BigEndian.Uint32(row)))
		row = row[4:]
		if size > len(row) {
			return catalog.ErrOIDValue
		}
		size = max(size, -1)
		if i == columns[0].index {
			if size > 0 {
				if err := translate(columns[0].oid, row[:size]); err != nil {
					return err
				}
			}
			columns = columns[1:]
		}
		row = row[max(size, 0):]
	}
	return nil
}

// typesAt are parameter types as a node knows them; one that it does not know is found out from where the parameter stands.
func (p *participant) typesAt(types []uint32) []uint32 {
	if p.oids == nil || !slices.ContainsFunc(types, func(t uint32) bool { return t >= firstUserOID }) {
		return types
	}
	out := make([]uint32, len(types))
	for i, t := range types {
		out[i], _ = p.oids.NodeType(t)
	}
	return out
}

// valuesAt are parameters as a node reads them.
func (p *participant) valuesAt(types []uint32, formats []int16, values [][]byte) [][]byte {
	out, own := values, false
	for i, v := range values {
		if p.oids == nil || v == nil || i >= len(types) || !formatIsBinary(formats, i) || !mayHaveOIDs(types[i]) {
			continue
		}
		if !own {
			out, own = slices.Clone(values), true
		}
		out[i] = slices.Clone(v)
		p.valueAt(types[i], out[i])
	}
	return out
}

// valueAt translates one value in place. The node finds the faults of one that is malformed.
func (p *participant) valueAt(oid uint32, value []byte) { _ = p.oids.ValueToNode(oid, value) }

func formatIsBinary(formats []int16, i int) bool {
	return len(formats) == 1 && formats[0] == 1 || i < len(formats) && formats[i] == 1
}
