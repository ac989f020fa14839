package router

import (
	"context"
	"fmt"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/topo"
)

// set gives a key an entry in another shard. Its rows go along, in one transaction and behind a fence.
func (c *directoryCall) set(ctx context.Context) ([][][]byte, error) {
	where := c.args["shard"]
	if where == "" {
		where = c.args["node"]
	}
	if where == "" || c.args["shard"] != "" && c.args["node"] != "" {
		return nil, pgwire.Errorf("22023", "directory_set needs a shard or a node").WithHint("Write directory_set('table', 'key', node => 'name').")
	}
	text, key, err := c.key(ctx, "key")
	if err != nil {
		return nil, err
	}
	load := &directoryLoad{}
	load.refresh(ctx, c.s.router, c.m, c.d)
	entry, err := c.place(load, where)
	if err != nil {
		return nil, err
	}
	found, err := c.s.router.assignEntries(ctx, c.m, c.d, []newEntry{{key, entry}})
	if err != nil {
		return nil, err
	}
	old, asked := &c.d.Shards[c.d.FindEntry(found[string(key)])], &c.d.Shards[c.d.FindEntry(entry)]
	if there := old.ID == asked.ID || c.args["node"] == old.Node; !there {
		if err := c.change(ctx, string(text), key, entry); err != nil {
			return nil, err
		}
		return [][][]byte{c.row(string(text), entry)}, nil
	}
	return [][][]byte{c.row(string(text), found[string(key)])}, nil
}

// change replaces an entry that rows may depend on.
func (c *directoryCall) change(ctx context.Context, text string, key []byte, entry uint64) error {
	s := c.s
	var tables []*catalog.Table
	oids := []uint32{schemaTable}
	for _, t := range c.cat.Tables() {
		if t.Placement == catalog.Distributed && t.Distribution == c.d.ID && !t.IsPartition {
			tables = append(tables, t)
			oids = append(oids, t.OID)
		}
	}
	if err := s.raiseFence(ctx, oids[1:]); err != nil {
		return err
	}
	if err := c.forget(ctx); err != nil {
		return err
	}
	if _, err := s.enterAny(ctx, oids); err != nil {
		return err
	}
	s.schemaChanged = true // so that all routers follow before the client hears of it
	// Nothing is under way on the tables now, so this is what all rows of the key were stored by.
	found, err := s.router.readEntries(ctx, c.m, c.d, [][]byte{key})
	if err != nil {
		return err
	}
	from, to := c.d.Shards[c.d.FindEntry(found[string(key)])].Node, c.d.Shards[c.d.FindEntry(entry)].Node
	if from != to {
		if err := c.moveKey(ctx, tables, text, from, to); err != nil {
			return err
		}
	}
	holder, err := c.m.EntryNode(c.d, key)
	if err != nil {
		return err
	}
	part, err := s.participant(ctx, holder)
	if err == nil {
		err = s.flushPreamble(part)
	}
	if err != nil {
		return err
	}
	part.wrote = true
	return withoutContext(part.conn.Exec(ctx, fmt.Sprintf("SELECT pg_shoal.set_entry(%d, %s, %d)", c.d.ID, keyHex(key), catalog.StoreEntry(entry))))
}

// forget makes all routers ask again for the directory's entries. The fence is up, so nobody asks before it falls, whatever
// becomes of the change.
func (c *directoryCall) forget(ctx context.Context) error {
	m, err := topo.UpdateMap(ctx, c.s.router.store, func(m *keyspace.Map) (*keyspace.Map, error) { return m.ChangeEntries(c.d.ID) })
	if err != nil {
		return schemaError(ctx, "changing the directory", err)
	}
	if _, err := c.s.router.follower.Wait(ctx, m.Epoch); err != nil {
		return schemaError(ctx, "changing the directory", err)
	}
	d := m.Distribution(c.d.ID)
	if d == nil {
		return errStale()
	}
	for i := range d.Shards {
		if i >= len(c.d.Shards) || !sameShard(d.Shards[i], c.d.Shards[i]) {
			return errStale()
		}
	}
	c.m = m
	// The old version stays in c.d: what is read from here on is not remembered, since it is about to change.
	return nil
}

// moveKey moves the rows of one key of all tables.
func (c *directoryCall) moveKey(ctx context.Context, tables []*catalog.Table, text, from, to string) error {
	for _, t := range tablesByReference(tables) {
		p := &placement{s: c.s, m: c.m, home: c.home}
		if err := p.lock(ctx, t.OID); err != nil {
			return err
		}
		filter, where := c.keyCondition(t, text)
		source, target := c.s.txn.part(from), c.s.txn.part(to)
		source.wrote, target.wrote = true, true
		if err := p.moveRows(ctx, source.conn, target.conn, where, []keyspace.Filter{filter}); err != nil {
			return fmt.Errorf("moving the rows of a key: %w", err)
		}
	}
	return nil
}

// errInBlock is for what must be a transaction of its own.
func errInBlock(call *plan.Placing) error {
	return pgwire.Errorf("25001", "%s cannot run inside a transaction block", call.Function)
}
