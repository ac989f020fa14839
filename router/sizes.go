package router

import (
	"context"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/plan"
)

// sizes keeps how large tables are, as the nodes' own statistics say. Plans choose by them which rows move; they are read when
// a plan first asks, and again now and then.
type sizes struct {
	router *Router
	mu     sync.Mutex
	byName map[string]*databaseSizes
}

type databaseSizes struct {
	mu     sync.Mutex
	loaded map[tableName]plan.Size // nil: not yet, or forgotten
	tried  time.Time
}

type tableName struct{ schema, name string }

const (
	sizesEvery   = 30 * time.Second
	sizesTimeout = 2 * time.Second
)

func (z *sizes) init(r *Router) { z.router, z.byName = r, map[string]*databaseSizes{} }

func (z *sizes) database(name string) *databaseSizes {
	z.mu.Lock()
	defer z.mu.Unlock()
	d := z.byName[name]
	if d == nil {
		d = &databaseSizes{}
		z.byName[name] = d
	}
	return d
}

// lookup tells plans of a session how large tables are.
func (z *sizes) lookup(database string) func(*catalog.Table) (plan.Size, bool) {
	return func(t *catalog.Table) (plan.Size, bool) {
		d := z.database(database)
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.loaded == nil && time.Since(d.tried) > sizesEvery {
			z.load(context.Background(), database, d)
		}
		size, known := d.loaded[tableName{t.Schema, t.Name}]
		return size, known
	}
}

// load reads the sizes on all nodes; without one of them nothing is known.
func (z *sizes) load(ctx context.Context, database string, d *databaseSizes) {
	ctx, cancel := context.WithTimeout(ctx, sizesTimeout)
	defer cancel()
	d.tried = time.Now()
	all := map[tableName]plan.Size{}
	for _, n := range homeFirst(z.router.view.Load().m) {
		if err := z.read(ctx, n, database, all); err != nil {
			z.router.log.Warn("cannot read the sizes of tables", "database", database, "node", n, "error", err)
			return
		}
	}
	d.loaded = all
}

// sizesSQL reads what VACUUM and ANALYZE have found; it waits for no lock. A table that they have not seen is not there.
const sizesSQL = `SELECT n.nspname, c.relname, sum(p.reltuples)::bigint, sum(p.relpages)::bigint * pg_catalog.current_setting('block_size')::bigint
	FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
	CROSS JOIN LATERAL (SELECT c.oid WHERE c.relkind = 'r'
		UNION ALL SELECT relid FROM pg_catalog.pg_partition_tree(c.oid) WHERE c.relkind = 'p' AND isleaf) l
	JOIN pg_catalog.pg_class p ON p.oid = l.oid
	WHERE c.relkind IN ('r', 'p') AND c.oid >= 16384 AND c.relpersistence <> 't' AND p.reltuples >= 0 GROUP BY 1, 2`

func (z *sizes) read(ctx context.Context, node, database string, all map[tableName]plan.Size) error {
	conn, err := z.router.service(ctx, node, database)
	if err != nil {
		return err
	}
	defer z.router.pool.Release(conn)
	rows, err := conn.Query(ctx, sizesSQL)
	for _, r := range rows {
		name := tableName{string(r[0]), string(r[1])}
		tuples, _ := strconv.ParseInt(string(r[2]), 10, 64)
		bytes, _ := strconv.ParseInt(string(r[3]), 10, 64)
		all[name] = plan.Size{Rows: all[name].Rows + tuples, Bytes: all[name].Bytes + bytes}
	}
	return err
}

// forget makes the next plan read the sizes again, after a statement like ANALYZE.
func (z *sizes) forget(database string) {
	d := z.database(database)
	d.mu.Lock()
	d.loaded, d.tried = nil, time.Time{}
	d.mu.Unlock()
	z.router.plans.forget(database)
}

// watchSizes reads the sizes of databases again that plans have asked for. When a table has become much larger or smaller,
// statements are planned again.
func (r *Router) watchSizes(ctx context.Context) {
	tick := time.NewTicker(sizesEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.sizes.mu.Lock()
		known := maps.Clone(r.sizes.byName)
		r.sizes.mu.Unlock()
		for name, d := range known {
			if r.sizes.refresh(ctx, name, d) {
				r.plans.forget(name)
			}
		}
	}
}

// refresh reads the sizes again if some are there, and reports a change that matters.
func (z *sizes) refresh(ctx context.Context, database string, d *databaseSizes) bool {
	d.mu.Lock()
	old := d.loaded
	d.mu.Unlock()
	if old == nil {
		return false
	}
	fresh := &databaseSizes{}
	z.load(ctx, database, fresh)
	if fresh.loaded == nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !differ(old, fresh.loaded) {
		return false
	}
	d.loaded = fresh.loaded
	return true
}

// differ reports a table that is known only now, or has four times the size or a quarter of it.
func differ(old, fresh map[tableName]plan.Size) bool {
	for name, now := range fresh {
		was, known := old[name]
		if !known || now.Bytes > 4*was.Bytes || was.Bytes > 4*now.Bytes {
			return true
		}
	}
	return false
}

// forget drops the plans of a database.
func (p *planSpaces) forget(database string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, space := range p.spaces {
		if key.database != database {
			continue
		}
		space.mu.Lock()
		clear(space.normalised)
		clear(space.exact)
		space.mu.Unlock()
	}
}
