package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// SplitRequest says where to cut a shard: at a bound, into equal parts, or where a node's rows say.
type SplitRequest struct {
	At    []string `json:"at,omitempty"` // values of the first key columns, as FormatBound shows them
	Parts int      `json:"parts,omitempty"`
	By    string   `json:"by,omitempty"` // size or load
	Dry   bool     `json:"dry_run,omitempty"`
}

// MergeRequest names two neighbouring shards of one node.
type MergeRequest struct {
	Shards []uint32 `json:"shards"`
	Dry    bool     `json:"dry_run,omitempty"`
}

// IsolateRequest names the key that gets a shard of its own: values of all its columns, or of the first ones.
type IsolateRequest struct {
	Database string   `json:"database,omitempty"`
	Table    string   `json:"table"`
	Key      []string `json:"key"`
	Dry      bool     `json:"dry_run,omitempty"`
}

// ShardsChanged is what an edit of shards makes, or would make.
type ShardsChanged struct {
	Epoch   uint64      `json:"epoch"`
	Dry     bool        `json:"dry_run"`
	Removed []ShardInfo `json:"removed"` // the shards as they were
	Shards  []ShardInfo `json:"shards"`  // those that stand in their place
}

// editMap applies an edit of shards, and waits until all routers work with it. A dry run only says what it would make.
func (c *Controller) editMap(ctx context.Context, dry bool, edit func(*keyspace.Map) (*keyspace.Map, error)) (*ShardsChanged, error) {
	var before *keyspace.Map
	refused := func(m *keyspace.Map) (*keyspace.Map, error) {
		before = m
		next, err := edit(m)
		var known *Refusal
		if err != nil && !errors.As(err, &known) {
			err = conflict("See pgshoal shard list.", "%v", err)
			if errors.Is(err, keyspace.ErrNotFound) {
				err = notFound("See pgshoal shard list.", "%v", err)
			}
		}
		return next, err
	}
	if dry {
		m, err := topo.LoadMap(ctx, c.store)
		if err != nil {
			return nil, err
		}
		after, err := refused(m)
		if err != nil {
			return nil, err
		}
		return changedShards(before, after, true), nil
	}
	after, err := topo.UpdateMap(ctx, c.store, refused)
	if err != nil {
		return nil, err
	}
	// Rows stay where they are, so nothing goes wrong before every router has seen it.
	if err := c.waitAcked(ctx, after.Epoch); err != nil {
		c.log.Warn("not all routers have the new map yet", "epoch", after.Epoch, "error", err)
	}
	return changedShards(before, after, false), nil
}

// changedShards compares the shards of two maps.
func changedShards(before, after *keyspace.Map, dry bool) *ShardsChanged {
	out := &ShardsChanged{Epoch: after.Epoch, Dry: dry, Removed: []ShardInfo{}, Shards: []ShardInfo{}}
	for _, d := range after.Distributions {
		old := before.Distribution(d.ID)
		if old == nil {
			continue
		}
		was, is := shardsOf(before, old), shardsOf(after, d)
		out.Removed = append(out.Removed, slices.DeleteFunc(slices.Clone(was), func(s ShardInfo) bool { return hasShard(is, s) })...)
		out.Shards = append(out.Shards, slices.DeleteFunc(slices.Clone(is), func(s ShardInfo) bool { return hasShard(was, s) })...)
	}
	return out
}

func hasShard(list []ShardInfo, s ShardInfo) bool {
	return slices.ContainsFunc(list, func(o ShardInfo) bool {
		return o.ID == s.ID && o.Low == s.Low && o.High == s.High && o.Node == s.Node
	})
}

// SplitShard cuts a shard in two or more, all on its node.
func (c *Controller) SplitShard(ctx context.Context, id uint32, req SplitRequest) (*ShardsChanged, error) {
	ways := 0
	for _, given := range []bool{len(req.At) > 0, req.Parts != 0, req.By != ""} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return nil, badRequest("", "a shard is split at a value, into parts, or by size or load: give one of them")
	case req.By != "" && req.By != "size" && req.By != "load":
		return nil, badRequest("", "a shard can be split by size or load, not by %q", req.By)
	case ways == 0:
		req.Parts = 2
	}
	var median []byte
	var err error
	switch req.By {
	case "size":
		median, err = c.medianPoint(ctx, id)
	case "load":
		median, err = c.medianLoad(ctx, id)
	}
	if err != nil {
		return nil, err
	}
	return c.editMap(ctx, req.Dry, func(m *keyspace.Map) (*keyspace.Map, error) {
		switch {
		case median != nil:
			return m.SplitShard(id, median)
		case req.Parts != 0:
			return m.SplitParts(id, req.Parts)
		}
		d, _, err := m.Shard(id)
		if err != nil {
			return nil, err
		}
		at, err := d.ParseBound(req.At)
		if err != nil {
			return nil, badRequest("Write the values of the first key columns as pgshoal shard list shows them.", "%q cannot be a bound: %v", req.At, err)
		}
		return m.SplitShard(id, at)
	})
}

// MergeShards joins two neighbouring shards of one node.
func (c *Controller) MergeShards(ctx context.Context, req MergeRequest) (*ShardsChanged, error) {
	if len(req.Shards) != 2 {
		return nil, badRequest("", "two shards are merged, not %d", len(req.Shards))
	}
	return c.editMap(ctx, req.Dry, func(m *keyspace.Map) (*keyspace.Map, error) { return m.MergeShards(req.Shards[0], req.Shards[1]) })
}

// Isolate gives a key a shard of its own.
func (c *Controller) Isolate(ctx context.Context, req IsolateRequest) (*ShardsChanged, error) {
	m, d, err := c.distributed(ctx, req.Database, req.Table)
	if err != nil {
		return nil, err
	}
	prefix, err := c.keyPrefix(ctx, m, d, req.Key)
	if err != nil {
		return nil, err
	}
	return c.editMap(ctx, req.Dry, func(m *keyspace.Map) (*keyspace.Map, error) {
		next, _, err := m.Isolate(d.ID, prefix)
		return next, err
	})
}

// distributed is the distribution of a table, and the map that has it.
func (c *Controller) distributed(ctx context.Context, database, table string) (*keyspace.Map, *keyspace.Distribution, error) {
	if database == "" {
		database = c.cfg.Access.Database
	}
	m, err := topo.LoadMap(ctx, c.store)
	if err != nil {
		return nil, nil, err
	}
	id, err := c.distributionOf(ctx, m, database, table)
	if err != nil {
		return nil, nil, err
	}
	d := m.Distribution(id)
	if d == nil {
		return nil, nil, conflict("Try again.", "distribution %d is not in the map", id)
	}
	return m, d, nil
}

// keyPrefix is what the points of a key begin with: values of all key columns, or of those of the first dimensions.
func (c *Controller) keyPrefix(ctx context.Context, m *keyspace.Map, d *keyspace.Distribution, key []string) ([]byte, error) {
	if len(key) == 0 || len(key) > len(d.Types) {
		return nil, badRequest("", "the key has %d columns, and %d values are given", len(d.Types), len(key))
	}
	var prefix []byte
	components := d.Components()
	for i := range components {
		comp := &components[i]
		if slices.ContainsFunc(comp.Columns, func(at int) bool { return at >= len(key) }) {
			break
		}
		types, values := make([]keyspace.Type, len(comp.Columns)), make([]keyspace.Value, len(comp.Columns))
		for j, at := range comp.Columns {
			types[j] = d.Types[at]
			values[j] = keyspace.Value{Data: []byte(key[at]), From: d.Types[at]}
		}
		next, err := d.AppendComponent(prefix, comp, types, values)
		if errors.Is(err, keyspace.ErrNotProven) {
			if err = c.canonical(ctx, m, d.Database, types, values); err == nil {
				next, err = d.AppendComponent(prefix, comp, types, values)
			}
		}
		if err != nil {
			return nil, badRequest("", "%q is not a key here: %v", key, err)
		}
		if comp.Method == keyspace.Directory {
			entry, err := c.entryOf(ctx, m, d, next)
			if err != nil {
				return nil, err
			}
			next = keyspace.AppendEntry(nil, entry)
		}
		prefix = next
	}
	if len(prefix) == 0 {
		return nil, badRequest("Give values of more columns.", "the values do not fix the first part of the key")
	}
	return prefix, nil
}

// canonical asks the home node how it reads values.
func (c *Controller) canonical(ctx context.Context, m *keyspace.Map, database string, types []keyspace.Type, values []keyspace.Value) error {
	conn, err := c.connectHome(ctx, m, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for i := range values {
		var text string
		sql := "SELECT " + exec.CanonicalSQL(types[i], "$1::text::"+types[i].SQL())
		if err := conn.QueryRow(ctx, sql, string(values[i].Data)).Scan(&text); err != nil {
			return err
		}
		values[i].Data = []byte(text)
	}
	return nil
}

// shard is the map, the distribution that has a shard, and the shard's place in it.
func (c *Controller) shard(ctx context.Context, id uint32) (*keyspace.Map, *keyspace.Distribution, int, error) {
	m, err := topo.LoadMap(ctx, c.store)
	if err != nil {
		return nil, nil, 0, err
	}
	d, at, err := m.Shard(id)
	if err != nil {
		err = notFound("See pgshoal shard list.", "%v", err)
	}
	return m, d, at, err
}

// sampled is how many rows decide where a shard is cut by size.
const sampled = 20_000

// medianPoint looks at rows of the shard on its node and returns the point in their middle.
func (c *Controller) medianPoint(ctx context.Context, id uint32) ([]byte, error) {
	m, d, at, err := c.shard(ctx, id)
	if err != nil {
		return nil, err
	}
	low, high := d.Interval(at)
	filter, err := d.Filter(low, high)
	if err != nil {
		return nil, conflict("Split it into parts, or at an entry.", "the rows of shard %d cannot be sampled: %v", id, err)
	}
	points, err := c.samplePoints(ctx, m, d, d.Shards[at].Node, filter)
	if err != nil {
		return nil, err
	}
	if middle := keyspace.Halve(points); middle != nil {
		return middle, nil
	}
	return nil, conflict("A key is never split; move it to a shard of its own with pgshoal shard isolate.",
		"%d sampled rows of shard %d have no two keys", len(points), id)
}

// samplePoints reads keys of the distribution's largest table.
func (c *Controller) samplePoints(ctx context.Context, m *keyspace.Map, d *keyspace.Distribution, node string, filter keyspace.Filter) ([][]byte, error) {
	n, err := m.Node(node)
	if err != nil {
		return nil, err
	}
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
	if len(tables) == 0 {
		return nil, conflict("Split it into parts.", "no table uses distribution %d", d.ID)
	}
	t := tables[0]
	texts := make([]string, len(t.columns))
	for i, col := range t.columns {
		texts[i] = exec.CanonicalSQL(col.Type, col.SQL)
	}
	percent := 100.0
	if t.rows > 5*sampled {
		percent = 100 * 5 * sampled / t.rows
	}
	sql := fmt.Sprintf("SELECT ARRAY[%s] FROM %s TABLESAMPLE SYSTEM (%s) WHERE %s LIMIT %d", strings.Join(texts, ", "), t.name,
		strconv.FormatFloat(percent, 'f', 6, 64), filter.SQL(t.columns), sampled)
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	components := d.Components()
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]byte, error) {
		var key []string
		if err := row.Scan(&key); err != nil {
			return nil, err
		}
		return pointOf(d, components, t.columns, key)
	})
}

// pointOf is the point of a key in PostgreSQL's canonical text.
func pointOf(d *keyspace.Distribution, components []keyspace.Component, columns []keyspace.FilterColumn, key []string) ([]byte, error) {
	var point []byte
	for i := range components {
		comp := &components[i]
		types, values := make([]keyspace.Type, len(comp.Columns)), make([]keyspace.Value, len(comp.Columns))
		for j, at := range comp.Columns {
			types[j] = columns[at].Type
			values[j] = keyspace.Value{Data: []byte(key[at]), From: columns[at].Type}
		}
		var err error
		if point, err = d.AppendComponent(point, comp, types, values); err != nil {
			return nil, err
		}
	}
	return point, nil
}

// shardOfKey reports the one shard that has a key, for shard list --key.
func (c *Controller) shardOfKey(ctx context.Context, m *keyspace.Map, list []ShardInfo, key []string) ([]ShardInfo, error) {
	if len(list) == 0 {
		return list, nil
	}
	d := m.Distribution(list[0].Distribution)
	prefix, err := c.keyPrefix(ctx, m, d, key)
	if err != nil {
		return nil, err
	}
	first, last := d.Find(prefix), len(d.Shards)-1
	if after := keyspace.After(prefix); after != nil {
		if last = d.Find(after); bytes.Equal(d.Shards[last].Low, after) {
			last--
		}
	}
	return list[first : max(first, last)+1], nil
}

func (c *Controller) postSplit(ctx context.Context, r *http.Request) (any, error) {
	id, err := strconv.ParseUint(r.PathValue("id"), 10, 32)
	if err != nil {
		return nil, badRequest("", "%q is not the id of a shard", r.PathValue("id"))
	}
	var req SplitRequest
	if err := decodeBody(r, &req); err != nil {
		return nil, err
	}
	return c.SplitShard(ctx, uint32(id), req)
}

func (c *Controller) postMerge(ctx context.Context, r *http.Request) (any, error) {
	var req MergeRequest
	if err := decodeBody(r, &req); err != nil {
		return nil, err
	}
	return c.MergeShards(ctx, req)
}

func (c *Controller) postIsolate(ctx context.Context, r *http.Request) (any, error) {
	var req IsolateRequest
	if err := decodeBody(r, &req); err != nil {
		return nil, err
	}
	return c.Isolate(ctx, req)
}
