package control

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

// ResidencyCheck is what one node holds of one table whose rows belong to regions.
type ResidencyCheck struct {
	Database string `json:"database"`
	Table    string `json:"table"`
	Node     string `json:"node"`
	Region   string `json:"region"`  // of the node
	Rows     int64  `json:"rows"`    // all that the node has
	Outside  int64  `json:"outside"` // those that belong to another region
}

// distributedTable is a table as its rows are filtered on a node.
type distributedTable struct {
	name    string // qualified and quoted
	columns []keyspace.FilterColumn
	rows    float64 // as the planner estimates them
}

// distributedTables lists the tables of a distribution, the largest first.
func distributedTables(ctx context.Context, conn *pgx.Conn, distribution uint32) ([]distributedTable, error) {
	rows, err := conn.Query(ctx, `
		SELECT t.relid::pg_catalog.regclass::text, coalesce(s.reltuples, 0)::float8,
			ARRAY(SELECT pg_catalog.quote_ident(a.attname) FROM unnest(t.key_columns) WITH ORDINALITY k(num, pos)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = t.relid AND a.attnum = k.num ORDER BY k.pos),
			ARRAY(SELECT coalesce(nullif(y.typbasetype, 0), y.oid)::int8 FROM unnest(t.key_columns) WITH ORDINALITY k(num, pos)
				JOIN pg_catalog.pg_attribute a ON a.attrelid = t.relid AND a.attnum = k.num
				JOIN pg_catalog.pg_type y ON y.oid = a.atttypid ORDER BY k.pos)
		FROM pg_shoal.tables t
		LEFT JOIN LATERAL (SELECT sum(greatest(c.reltuples, 0)) AS reltuples FROM pg_catalog.pg_class c
			WHERE c.oid = t.relid OR c.oid IN (SELECT relid FROM pg_catalog.pg_partition_tree(t.relid))) s ON true
		WHERE t.distribution = $1 AND t.kind = 'distributed'
		ORDER BY 2 DESC, 1`, int64(distribution))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (distributedTable, error) {
		var t distributedTable
		var names []string
		var types []int64
		if err := row.Scan(&t.name, &t.rows, &names, &types); err != nil {
			return t, err
		}
		for i, name := range names {
			kt, ok := keyspace.TypeByOID(uint32(types[i]))
			if !ok {
				return t, fmt.Errorf("key column %s of table %s has a type that cannot be a key", name, t.name)
			}
			t.columns = append(t.columns, keyspace.FilterColumn{SQL: name, Type: kt})
		}
		return t, nil
	})
}

// residency counts on every node the rows that belong to another region than the node's.
func (c *Controller) residency(ctx context.Context, m *keyspace.Map) ([]ResidencyCheck, error) {
	checks := []ResidencyCheck{}
	for _, d := range m.Distributions {
		if len(d.Dimensions) == 0 || d.Dimensions[0].Method != keyspace.List {
			continue
		}
		for _, n := range m.Nodes {
			if n.State == keyspace.NodeJoining {
				continue
			}
			list, err := c.residencyOn(ctx, d, n)
			if err != nil {
				return nil, fmt.Errorf("node %s: %w", n.Name, err)
			}
			checks = append(checks, list...)
		}
	}
	return checks, nil
}

func (c *Controller) residencyOn(ctx context.Context, d *keyspace.Distribution, n keyspace.Node) ([]ResidencyCheck, error) {
	cfg, err := c.cfg.Access.Config(n, d.Database)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	tables, err := distributedTables(ctx, conn, d.ID)
	if err != nil {
		return nil, err
	}
	var checks []ResidencyCheck
	for _, t := range tables {
		inside, err := regionFilter(d, n.Region, t.columns)
		if err != nil {
			return nil, err
		}
		check := ResidencyCheck{Database: d.Database, Table: t.name, Node: n.Name, Region: n.Region}
		sql := fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE (%s) IS NOT TRUE) FROM %s", inside, t.name)
		if err := conn.QueryRow(ctx, sql).Scan(&check.Rows, &check.Outside); err != nil {
			return nil, fmt.Errorf("table %s: %w", t.name, err)
		}
		checks = append(checks, check)
	}
	return checks, nil
}

// regionFilter is the condition for the rows that belong to a region.
func regionFilter(d *keyspace.Distribution, region string, columns []keyspace.FilterColumn) (string, error) {
	at := slices.IndexFunc(d.Dimensions[0].Regions, func(r keyspace.Region) bool { return r.Name == region })
	if at < 0 {
		return "false", nil
	}
	low := binary.BigEndian.AppendUint16(nil, d.Dimensions[0].Regions[at].ID)
	f, err := d.Filter(low, keyspace.After(low))
	if err != nil {
		return "", err
	}
	return f.SQL(columns), nil
}
