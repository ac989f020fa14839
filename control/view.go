package control

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

// TableInfo is one table of a database and where its rows are.
type TableInfo struct {
	Database     string   `json:"database"`
	Schema       string   `json:"schema"`
	Name         string   `json:"name"`
	Kind         string   `json:"kind"` // local, distributed or reference
	Distribution uint32   `json:"distribution,omitempty"`
	Key          []string `json:"key,omitempty"`
	Strategy     string   `json:"strategy,omitempty"` // as create_distributed_table reads it
	Shards       int      `json:"shards,omitempty"`
	Owner        string   `json:"owner"`
}

// ShardInfo is one shard: the half-open interval [low, high) in the key's own terms; an empty low is the
// start of the space, an empty high its end.
type ShardInfo struct {
	ID           uint32   `json:"id"`
	Distribution uint32   `json:"distribution"`
	Database     string   `json:"database"`
	Low          string   `json:"low"`
	High         string   `json:"high"`
	Node         string   `json:"node"`
	Region       string   `json:"region,omitempty"` // of the node
	Strategy     string   `json:"strategy"`         // its methods: list, hash
	Types        []string `json:"types"`
}

const tablesSQL = `
	SELECT n.nspname, c.relname, coalesce(t.kind, 'local'), coalesce(t.distribution, 0),
		ARRAY(SELECT a.attname::text FROM unnest(t.key_columns) WITH ORDINALITY k(num, pos)
			JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.num ORDER BY k.pos),
		pg_catalog.pg_get_userbyid(c.relowner)
	FROM pg_catalog.pg_class c
	JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	LEFT JOIN pg_shoal.placed t ON t.relid = c.oid
	WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't'
		AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'pg_shoal') AND n.nspname NOT LIKE 'pg\_toast%'
	ORDER BY 1, 2`

// tables lists the tables of one database, or of all, as the home node knows them.
func (c *Controller) tables(ctx context.Context, m *keyspace.Map, database string) ([]TableInfo, error) {
	databases, err := c.databases(ctx, m)
	if err != nil {
		return nil, err
	}
	if database != "" {
		if !slices.Contains(databases, database) {
			return nil, notFound("", "database %q does not exist", database)
		}
		databases = []string{database}
	}
	all := []TableInfo{}
	for _, db := range databases {
		list, err := c.tablesOf(ctx, m, db)
		if err != nil {
			return nil, fmt.Errorf("tables of database %s: %w", db, err)
		}
		all = append(all, list...)
	}
	return all, nil
}

func (c *Controller) tablesOf(ctx context.Context, m *keyspace.Map, database string) ([]TableInfo, error) {
	conn, err := c.connectHome(ctx, m, database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, tablesSQL)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (TableInfo, error) {
		t := TableInfo{Database: database}
		err := row.Scan(&t.Schema, &t.Name, &t.Kind, &t.Distribution, &t.Key, &t.Owner)
		if d := m.Distribution(t.Distribution); d != nil {
			t.Shards, t.Strategy = len(d.Shards), d.StrategyOf(t.Key)
		}
		return t, err
	})
}

func (c *Controller) connectHome(ctx context.Context, m *keyspace.Map, database string) (*pgx.Conn, error) {
	home, err := m.Node(m.Home)
	if err != nil {
		return nil, err
	}
	cfg, err := c.cfg.Access.Config(home, database)
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg)
}

// databases lists those that clients can use.
func (c *Controller) databases(ctx context.Context, m *keyspace.Map) ([]string, error) {
	conn, err := c.connectHome(ctx, m, "")
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `SELECT datname FROM pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// shards lists the shards of one table ("name" or "schema.name"), or all.
func (c *Controller) shards(ctx context.Context, m *keyspace.Map, database, table string) ([]ShardInfo, error) {
	wanted := func(d *keyspace.Distribution) bool { return database == "" || d.Database == database }
	if table != "" {
		if database == "" {
			database = c.cfg.Access.Database
		}
		id, err := c.distributionOf(ctx, m, database, table)
		if err != nil {
			return nil, err
		}
		wanted = func(d *keyspace.Distribution) bool { return d.ID == id }
	}
	all := []ShardInfo{}
	for _, d := range m.Distributions {
		if wanted(d) {
			all = append(all, shardsOf(m, d)...)
		}
	}
	return all, nil
}

func (c *Controller) distributionOf(ctx context.Context, m *keyspace.Map, database, table string) (uint32, error) {
	list, err := c.tables(ctx, m, database)
	if err != nil {
		return 0, err
	}
	var found []TableInfo
	for _, t := range list {
		if t.Name == table || t.Schema+"."+t.Name == table {
			found = append(found, t)
		}
	}
	switch {
	case len(found) == 0:
		return 0, notFound("See pgshoal table list.", "table %q does not exist in database %q", table, database)
	case len(found) > 1:
		schemas := make([]string, len(found))
		for i, t := range found {
			schemas[i] = t.Schema
		}
		return 0, badRequest("Write it as schema.table.", "table %q is in several schemas: %s", table, strings.Join(schemas, ", "))
	case found[0].Kind != "distributed":
		return 0, conflict(fmt.Sprintf("Distribute it with SELECT create_distributed_table('%s', '<column>').", table),
			"table %q is a %s table and has no shards", table, found[0].Kind)
	}
	return found[0].Distribution, nil
}

func shardsOf(m *keyspace.Map, d *keyspace.Distribution) []ShardInfo {
	types := make([]string, len(d.Types))
	for i, t := range d.Types {
		types[i] = t.String()
	}
	regions := map[string]string{}
	for _, n := range m.Nodes {
		regions[n.Name] = n.Region
	}
	list := make([]ShardInfo, len(d.Shards))
	for i, s := range d.Shards {
		low, high := d.Interval(i)
		list[i] = ShardInfo{
			ID: s.ID, Distribution: d.ID, Database: d.Database, Low: d.FormatBound(low), High: d.FormatBound(high),
			Node: s.Node, Region: regions[s.Node], Strategy: d.Strategy(), Types: types,
		}
	}
	return list
}
