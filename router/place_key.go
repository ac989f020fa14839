package router

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/topo"
)

// defaultShards is how many shards a distribution begins with.
const defaultShards = 32

// tableKey is the key of a table: its columns, and what a distribution makes of them.
type tableKey struct {
	key     keyspace.Key
	columns []int           // in the table, in the key's order
	types   []keyspace.Type // the columns' own
	// keys are those that a table to be distributed by a directory has, by the node where they belong.
	keys map[string][]string
}

// resolve finds the key that a call describes, and the distribution if the call names a table of it.
func (p *placement) resolve(ctx context.Context, s *distributeSpec) (*tableKey, *keyspace.Distribution, error) {
	key := &tableKey{}
	for _, name := range s.columns {
		c, t, err := p.keyColumn(name)
		if err != nil {
			return nil, nil, err
		}
		if slices.Contains(key.columns, c) {
			return nil, nil, pgwire.Errorf("42701", "column %q is named twice in the key", name)
		}
		key.columns, key.types = append(key.columns, c), append(key.types, t)
		key.key.Types = append(key.key.Types, t.Canonical())
	}
	for _, d := range s.dimensions {
		dim := keyspace.Dimension{Method: d.method}
		for _, name := range d.columns {
			dim.Columns = append(dim.Columns, slices.Index(s.columns, name))
		}
		key.key.Dimensions = append(key.key.Dimensions, dim)
	}
	if s.regionsGiven() && len(s.dimensions) > 0 {
		list := &key.key.Dimensions[0]
		regions, err := p.listRegions(ctx, s, key.types[list.Columns[0]])
		if err != nil {
			return nil, nil, err
		}
		list.Regions, list.Default = regions, s.fallback
	}
	if !s.colocated() {
		return key, nil, nil
	}
	d, err := p.colocated(ctx, s, key)
	return key, d, err
}

// keyColumn finds a column by its name as it is written, or else folded as PostgreSQL folds names.
func (p *placement) keyColumn(name string) (int, keyspace.Type, error) {
	i := p.table.Column(name)
	if i < 0 {
		i = p.table.Column(strings.ToLower(name))
	}
	if i < 0 {
		return 0, 0, pgwire.Errorf("42703", "column %q of relation %q does not exist", name, p.table.Name)
	}
	c := &p.table.Columns[i]
	if c.Generated != 0 || !c.Deterministic {
		return 0, 0, pgwire.Errorf("0A000", "column %q of relation %q cannot be a key", c.Name, p.table.Name).
			WithHint("A key is neither a generated column nor of a nondeterministic collation.")
	}
	t, ok := keyspace.TypeByOID(p.cat.BaseType(c.TypeOID))
	if !ok {
		return 0, 0, pgwire.Errorf("0A000", "column %q of type %s cannot be a key", c.Name, c.TypeName).
			WithHint("Keys are integers, text, uuid, bytea, numeric, date, timestamps and boolean.")
	}
	return i, t, nil
}

// colocated checks that the table can join the distribution of another one. What the call does not say about the
// strategy it takes from there.
func (p *placement) colocated(ctx context.Context, s *distributeSpec, key *tableKey) (*keyspace.Distribution, error) {
	oid, err := tableOID(ctx, p.home, s.with)
	if err != nil {
		return nil, err
	}
	t := p.cat.Table(oid)
	if t == nil || t.Placement != catalog.Distributed {
		return nil, pgwire.Errorf("55000", "table %s is not distributed", s.with).WithHint("Distribute it first.")
	}
	d := p.m.Distribution(t.Distribution)
	if d == nil {
		return nil, fmt.Errorf("distribution %d is not in the map", t.Distribution)
	}
	if len(key.key.Dimensions) == 0 {
		key.key.Dimensions = d.Dimensions
	} else if !s.regionsGiven() && len(d.Dimensions) > 0 {
		key.key.Dimensions[0].Regions, key.key.Dimensions[0].Default = d.Dimensions[0].Regions, d.Dimensions[0].Default
	}
	switch {
	case !slices.Equal(key.key.Types, d.Types):
		types := make([]string, len(d.Types))
		for i, t := range d.Types {
			types[i] = t.String()
		}
		return nil, pgwire.Errorf("42804", "cannot co-locate with %s: its key is of type %s", s.with, strings.Join(types, ", "))
	case !key.key.Equal(&d.Key):
		return nil, pgwire.Errorf("42804", "cannot co-locate with %s: its strategy is %s", s.with, d.StrategyOf(t.KeyColumns())).
			WithHint("Leave strategy and regions out to take its own.")
	case s.assignBy != "" && s.assignBy != d.Directory.AssignBy:
		return nil, pgwire.Errorf("22023", "cannot co-locate with %s: it assigns keys by %s", s.with, d.Directory.AssignBy).
			WithHint("Leave assign_by out.")
	case s.shards != 0 && s.shards != len(d.Shards):
		return nil, pgwire.Errorf("22023", "cannot co-locate with %s: it has %d shards", s.with, len(d.Shards)).
			WithHint("Leave shard_count out.")
	}
	return d, nil
}

// distribution finds or makes the distribution that the table joins, when no table of it is named.
func (p *placement) distribution(ctx context.Context, s *distributeSpec, key *tableKey) (*keyspace.Distribution, error) {
	layout, err := p.layout(ctx, s, &key.key)
	if err != nil {
		return nil, err
	}
	var found *keyspace.Distribution
	m, err := topo.UpdateMap(ctx, p.s.router.store, func(m *keyspace.Map) (next *keyspace.Map, err error) {
		next, found, err = chooseDistribution(m, p.s.database, s, key, layout)
		return next, err
	})
	if err != nil {
		return nil, schemaError(ctx, "making the distribution", err)
	}
	p.m = m
	if found.Directory != nil {
		return found, p.placeDirectory(ctx, found)
	}
	return found, nil
}

// chooseDistribution returns the distribution of tables with the same hashed key, or a new one.
func chooseDistribution(m *keyspace.Map, database string, s *distributeSpec, key *tableKey, layout keyspace.Layout) (*keyspace.Map, *keyspace.Distribution, error) {
	if dims := key.key.Dimensions; s.with == "default" && len(dims) == 1 && dims[0].Method == keyspace.Hash {
		for _, d := range m.Distributions {
			if d.Database == database && d.Key.Equal(&key.key) && !m.HoldsEntries(d.ID) && (s.shards == 0 || s.shards == len(d.Shards)) {
				return m, d, nil
			}
		}
	}
	create := m.CreateDistribution
	if key.key.Dimensions[0].Method == keyspace.Directory {
		create = func(database string, key keyspace.Key, layout keyspace.Layout) (*keyspace.Map, *keyspace.Distribution, error) {
			return m.CreateDirectory(database, key, layout, s.assignBy)
		}
	}
	next, d, err := create(database, key.key, layout)
	if err != nil {
		return nil, nil, pgwire.Errorf("22023", "%v", err)
	}
	return next, d, nil
}

// layout says into which shards a new distribution is cut.
func (p *placement) layout(ctx context.Context, s *distributeSpec, key *keyspace.Key) (keyspace.Layout, error) {
	spread := 0 // the dimension that is cut
	if key.Dimensions[0].Method == keyspace.List {
		spread = 1
	}
	if key.Dimensions[spread].Method == keyspace.Range {
		if s.shards > 0 {
			return keyspace.Layout{}, pgwire.Errorf("22023", "shard_count does not go with a range, which has no equal parts").
				WithHint("Give the values that begin a shard: split_at => ARRAY[...], or split shards later.")
		}
		points, err := p.splitPoints(ctx, s, key)
		return keyspace.Layout{SplitAt: points}, err
	}
	if s.shards > 0 {
		return keyspace.Layout{Shards: s.shards}, nil
	}
	return keyspace.Layout{Shards: defaultShards}, nil
}

// splitPoints has PostgreSQL read split_at: values of the first column of the range, or rows of its first columns.
func (p *placement) splitPoints(ctx context.Context, s *distributeSpec, key *keyspace.Key) ([][]byte, error) {
	if s.splitAt == "" {
		return nil, nil
	}
	array := plan.QuoteLiteral(s.splitAt) + "::pg_catalog.text[]"
	shape, err := p.home.Query(ctx, "SELECT coalesce(pg_catalog.array_ndims(a), 0), coalesce(pg_catalog.array_length(a, 2), 1) FROM (SELECT "+array+" AS a) AS s")
	if err != nil {
		return nil, inSplitAt(err)
	}
	columns := key.Dimensions[0].Columns
	dims, width := int(atoi(shape[0][0])), int(atoi(shape[0][1]))
	if dims > 2 || width > len(columns) {
		return nil, pgwire.Errorf("22023", "split_at has %d values where the range has %d columns", width, len(columns)).
			WithHint("Write split_at => ARRAY[value, ...], or ARRAY[ARRAY[a, b], ...] for several columns.")
	}
	fields := make([]string, width)
	for i := range fields {
		element := "a[i]"
		if dims == 2 {
			element = fmt.Sprintf("a[i][%d]", i+1)
		}
		t := key.Types[columns[i]]
		fields[i] = exec.CanonicalSQL(t, element+"::"+t.SQL())
	}
	rows, err := p.home.Query(ctx, "SELECT "+strings.Join(fields, ", ")+" FROM (SELECT "+array+" AS a) AS s, pg_catalog.generate_subscripts(a, 1) AS i ORDER BY i")
	if err != nil {
		return nil, inSplitAt(err)
	}
	return splitBounds(key, rows)
}

// splitBounds encodes the values, which must ascend.
func splitBounds(key *keyspace.Key, rows [][][]byte) ([][]byte, error) {
	points := make([][]byte, len(rows))
	for i, row := range rows {
		values := make([]string, len(row))
		for j, v := range row {
			if v == nil {
				return nil, pgwire.Errorf("22004", "split_at contains a null value")
			}
			values[j] = string(v)
		}
		point, err := key.ParseBound(values)
		if err != nil {
			return nil, pgwire.Errorf("22023", "split_at: %v", err)
		}
		points[i] = point
		if i == 0 {
			continue
		}
		switch c := bytes.Compare(points[i-1], point); {
		case c == 0:
			return nil, pgwire.Errorf("22023", "split_at contains %s twice", key.FormatBound(point))
		case c > 0:
			return nil, pgwire.Errorf("22023", "split_at is not in ascending order: %s follows %s", key.FormatBound(point), key.FormatBound(points[i-1])).
				WithHint("Text is ordered by its bytes, as under COLLATE \"C\".")
		}
	}
	return points, nil
}

func inSplitAt(err error) error {
	if e, ok := withoutContext(err).(*pgwire.Error); ok {
		e.Where = "split_at"
		return e
	}
	return err
}

// filters are the conditions for the rows of a node, one for each run of neighbouring shards.
func (k *tableKey) filters(d *keyspace.Distribution, node string) ([]keyspace.Filter, error) {
	var all []keyspace.Filter
	if d.Directory != nil {
		if keys := k.keys[node]; len(keys) > 0 {
			all = append(all, d.KeysFilter(keys))
		}
		return all, nil
	}
	for i := 0; i < len(d.Shards); i++ {
		if d.Shards[i].Node != node {
			continue
		}
		low, high := d.Interval(i)
		for i+1 < len(d.Shards) && d.Shards[i+1].Node == node {
			i++
			_, high = d.Interval(i)
		}
		f, err := d.Filter(low, high)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// condition is the SQL condition for the rows of a node, "" when it has no shard.
func (k *tableKey) condition(t *catalog.Table, d *keyspace.Distribution, node string) (string, error) {
	filters, err := k.filters(d, node)
	if err != nil {
		return "", err
	}
	columns := make([]keyspace.FilterColumn, len(k.columns))
	for i, c := range k.columns {
		columns[i] = keyspace.FilterColumn{SQL: plan.QuoteIdent(t.Columns[c].Name), Type: k.types[i]}
	}
	parts := make([]string, len(filters))
	for i, f := range filters {
		parts[i] = f.SQL(columns)
	}
	return strings.Join(parts, " OR "), nil
}
