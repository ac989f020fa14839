package router

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/topo"
)

// placesSchema reports functions that place a schema.
func placesSchema(function string) bool { return placingParameters[function][0] == "schema_name" }

// schemaPlacing is a change of a schema's placement under way.
type schemaPlacing struct {
	s      *session
	m      *keyspace.Map
	home   *pool.Conn
	name   string
	place  catalog.SchemaPlace
	placed bool
	tables []*placement // those that go where the schema goes, each after the ones it refers to
}

// placeSchema executes create_distributed_schema and its relatives. Changes of the database's schema wait meanwhile, so that
// no table is made in it that nobody moves.
func (s *session) placeSchema(ctx context.Context, call *plan.Placing, values [][]byte) error {
	home, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return err
	}
	defer done()
	args, err := placingArgs(ctx, call, values, home)
	if err != nil {
		return err
	}
	rows, err := home.Query(ctx, "SELECT nspname FROM pg_catalog.pg_namespace WHERE oid = "+plan.QuoteLiteral(args["schema_name"])+"::pg_catalog.regnamespace")
	if err != nil {
		return err
	}
	if err := s.raiseFence(ctx, []uint32{schemaTable}); err != nil {
		return err
	}
	s.schemaChanged, s.ownCatalog = true, nil
	p := &schemaPlacing{s: s, home: home, name: string(rows[0][0])}
	if err := p.lock(ctx); err != nil {
		return err
	}
	if call.Function == "create_distributed_schema" || call.Function == "citus_schema_distribute" {
		err = p.distribute(ctx)
	} else {
		err = p.undistribute(ctx)
	}
	s.ownCatalog = nil // it was read before the placement changed
	return err
}

// lock fences and locks the tables that go along.
func (p *schemaPlacing) lock(ctx context.Context) error {
	cat, err := p.s.catalog(ctx, p.s.router.view.Load())
	if err != nil {
		return err
	}
	p.place, p.placed = cat.Schema(p.name)
	oids := []uint32{schemaTable}
	var tables []*catalog.Table
	for _, t := range cat.TablesIn(p.name) {
		if t.Kind != catalog.KindTable && t.Kind != catalog.KindPartitioned || t.IsPartition || t.Placement == catalog.Reference {
			continue
		}
		if t.Placement == catalog.Distributed && len(t.Key) > 0 {
			return pgwire.Errorf("55000", "table %q of schema %q is distributed by a key", t.Name, p.name).
				WithHint("Call undistribute_table() for it first.")
		}
		tables, oids = append(tables, t), append(oids, t.OID)
	}
	if err := p.s.raiseFence(ctx, plan.Reaching(cat, oids)); err != nil {
		return err
	}
	if p.m, err = p.s.enterAny(ctx, oids); err != nil {
		return err
	}
	for _, t := range tablesByReference(tables) {
		one := &placement{s: p.s, m: p.m, home: p.home}
		if err := one.lock(ctx, t.OID); err != nil {
			return err
		}
		p.tables = append(p.tables, one)
	}
	return nil
}

func (p *schemaPlacing) distribute(ctx context.Context) error {
	if p.placed {
		return pgwire.Errorf("55000", "schema %q is already distributed", p.name)
	}
	d, err := p.distribution(ctx)
	if err != nil {
		return err
	}
	entry, err := p.choose(ctx, d)
	if err != nil {
		return err
	}
	sql := fmt.Sprintf("SELECT pg_shoal.set_schema(%s, %d, %d)", plan.QuoteLiteral(p.name), d.ID, catalog.StoreEntry(entry))
	if err := p.everywhere(ctx, sql); err != nil {
		return withoutContext(err)
	}
	node := d.Shards[d.FindEntry(entry)].Node
	for _, t := range p.tables {
		if err := t.boundSequences(ctx); err != nil {
			return err
		}
		if err := t.emptyOthers(ctx); err != nil {
			return err
		}
		if node == p.m.Home {
			continue
		}
		if err := t.moveAll(ctx, p.home, p.s.txn.part(node).conn); err != nil {
			return err
		}
	}
	return nil
}

// everywhere runs a statement on all nodes.
func (p *schemaPlacing) everywhere(ctx context.Context, sql string) error {
	return (&placement{s: p.s, m: p.m, home: p.home}).everywhere(ctx, sql)
}

// moveAll moves all rows of the table.
func (p *placement) moveAll(ctx context.Context, from, to *pool.Conn) error {
	copied, err := p.copyRows(ctx, from, to, "true")
	if err != nil {
		return err
	}
	removed, err := removeRows(ctx, from, p.name, nil)
	if err == nil && removed != copied {
		err = fmt.Errorf("moving %s: %d rows were copied and %d removed", p.name, copied, removed)
	}
	return err
}

// distribution finds or makes the distribution of the database's schemas.
func (p *schemaPlacing) distribution(ctx context.Context) (*keyspace.Distribution, error) {
	key := keyspace.Key{Dimensions: []keyspace.Dimension{{Method: keyspace.Schema}}}
	var found *keyspace.Distribution
	m, err := topo.UpdateMap(ctx, p.s.router.store, func(m *keyspace.Map) (next *keyspace.Map, err error) {
		for _, d := range m.Distributions {
			if d.Database == p.s.database && d.Key.Equal(&key) {
				found = d
				return m, nil
			}
		}
		next, found, err = m.CreateDistribution(p.s.database, key, keyspace.Layout{Shards: defaultShards})
		return next, err
	})
	if err != nil {
		return nil, schemaError(ctx, "making the distribution", err)
	}
	p.m = m
	for _, t := range p.tables {
		t.m = m
	}
	return found, nil
}

// choose finds the shard with the fewest schemas on the node that has the fewest for its weight.
func (p *schemaPlacing) choose(ctx context.Context, d *keyspace.Distribution) (uint64, error) {
	load := &directoryLoad{d: d, weights: map[string]float64{}, nodes: map[string]float64{}, shards: make([]int64, len(d.Shards))}
	for _, n := range p.m.NodesActive() {
		load.weights[n.Name] = n.Weight
	}
	rows, err := p.home.Query(ctx, fmt.Sprintf("SELECT entry FROM pg_shoal.schemas WHERE distribution = %d", d.ID))
	if err != nil {
		return 0, err
	}
	for _, r := range rows {
		stored, _ := strconv.ParseInt(string(r[0]), 10, 64)
		shard := d.FindEntry(catalog.StoredEntry(stored))
		load.shards[shard]++
		load.nodes[d.Shards[shard].Node]++
	}
	return load.choose("", 1)
}

// undistribute brings the schema's rows back to the home node.
func (p *schemaPlacing) undistribute(ctx context.Context) error {
	if !p.placed {
		return pgwire.Errorf("55000", "schema %q is not distributed", p.name)
	}
	d := p.m.Distribution(p.place.Distribution)
	if d == nil {
		return fmt.Errorf("distribution %d is not in the map", p.place.Distribution)
	}
	node := d.Shards[d.FindEntry(p.place.Entry)].Node
	if node != p.m.Home && slices.Contains(homeFirst(p.m), node) {
		for _, t := range p.tables {
			if err := t.moveAll(ctx, p.s.txn.part(node).conn, p.home); err != nil {
				return err
			}
		}
	}
	return p.everywhere(ctx, "SELECT pg_shoal.unset_schema("+plan.QuoteLiteral(p.name)+")")
}
