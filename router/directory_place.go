package router

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// placeDirectory tells all nodes by which distribution the entries of directories are spread. It does no harm if the
// transaction fails: the map says the same, and no entry is there yet.
func (p *placement) placeDirectory(ctx context.Context, d *keyspace.Distribution) error {
	for _, node := range homeFirst(p.m) {
		sql := fmt.Sprintf("SELECT pg_shoal.place_directory(%d)", d.Directory.Entries)
		if err := p.s.router.serviceExec(ctx, node, p.s.database, sql); err != nil {
			return err
		}
	}
	return nil
}

// keyRows is a key of a table that is to be distributed, and how many rows it has.
type keyRows struct {
	text string
	key  []byte
	rows float64
}

// assignKeys gives the keys that the table has their entries, the largest first, and notes to which nodes they
// lead. Without store the entries of new keys are only thought of.
func (p *placement) assignKeys(ctx context.Context, d *keyspace.Distribution, key *tableKey, store bool) error {
	if d.Directory == nil {
		return nil
	}
	keys, size, err := p.tableKeys(ctx, key)
	if err != nil {
		return err
	}
	r := p.s.router
	encoded := make([][]byte, len(keys))
	for i := range keys {
		encoded[i] = keys[i].key
	}
	known, err := r.readEntries(ctx, p.m, d, encoded)
	if err != nil {
		return err
	}
	load := &directoryLoad{}
	load.refresh(ctx, r, p.m, d)
	var list []newEntry
	for _, k := range keys {
		if _, has := known[string(k.key)]; has {
			continue
		}
		amount := map[string]float64{assignByRows: k.rows, assignByBytes: k.rows * size, assignByWeight: 1}[d.Directory.AssignBy]
		entry, err := load.choose("", amount)
		if err != nil {
			return err
		}
		list = append(list, newEntry{k.key, entry})
		known[string(k.key)] = entry
	}
	if store && len(list) > 0 {
		stored, err := r.assignEntries(ctx, p.m, d, list)
		if err != nil {
			return err
		}
		maps.Copy(known, stored)
	}
	key.keys = map[string][]string{}
	for _, k := range keys {
		node := d.Shards[d.FindEntry(known[string(k.key)])].Node
		key.keys[node] = append(key.keys[node], k.text)
	}
	return nil
}

// tableKeys reads the table's keys, those with the most rows first, and the size of a row.
func (p *placement) tableKeys(ctx context.Context, key *tableKey) (keys []keyRows, size float64, err error) {
	column := plan.QuoteIdent(p.table.Columns[key.columns[0]].Name)
	t := key.types[0]
	rows, err := p.home.Query(ctx, "SELECT "+exec.CanonicalSQL(t, column)+", pg_catalog.count(*) FROM "+p.name+" GROUP BY "+column)
	if err != nil {
		return nil, 0, err
	}
	total := 0.0
	for _, row := range rows {
		encoded, err := keyspace.AppendOrdered(nil, t, keyspace.Value{Data: row[0], From: t})
		if err != nil {
			return nil, 0, fmt.Errorf("the key %q of %s: %w", row[0], p.name, err)
		}
		n, _ := strconv.ParseFloat(string(row[1]), 64)
		total += n
		keys = append(keys, keyRows{string(row[0]), encoded, n})
	}
	slices.SortStableFunc(keys, func(a, b keyRows) int { return cmp.Compare(b.rows, a.rows) })
	bytes, err := tableSize(ctx, p.home, p.name)
	return keys, bytes / max(1, total), err
}

// tableSize is what a table takes on disk, partitions included.
func tableSize(ctx context.Context, conn *pool.Conn, name string) (float64, error) {
	rows, err := conn.Query(ctx, "SELECT coalesce(sum(pg_catalog.pg_total_relation_size(relid)), 0) FROM (SELECT "+plan.QuoteLiteral(name)+
		"::pg_catalog.regclass AS relid UNION SELECT relid FROM pg_catalog.pg_partition_tree("+plan.QuoteLiteral(name)+")) AS t")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(string(rows[0][0]), 64)
}
