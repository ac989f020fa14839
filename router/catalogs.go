package router

import (
	"context"
	"sync"

	"github.com/pgshoal/pgshoal/catalog"
)

// catalogs keeps the schema of each database, read again when the map says that it changed.
type catalogs struct {
	router *Router
	loader *catalog.Loader // keeps what comes with the server, which all databases share
	mu     sync.Mutex
	byName map[string]*databaseCatalog
}

type databaseCatalog struct {
	mu     sync.Mutex
	loaded *catalog.Catalog
}

func (c *catalogs) init(r *Router) {
	c.router, c.loader = r, catalog.NewLoader()
	c.byName = map[string]*databaseCatalog{}
}

// get returns the catalog of a database as of the view's schema version.
func (c *catalogs) get(ctx context.Context, v *view, database string) (*catalog.Catalog, error) {
	c.mu.Lock()
	d := c.byName[database]
	if d == nil {
		d = &databaseCatalog{}
		c.byName[database] = d
	}
	c.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded != nil && d.loaded.Version >= v.m.Schemas[database] {
		return d.loaded, nil
	}
	return c.load(ctx, v, d, database)
}

// renew reads the catalog of a database again although its version is the same, unless that has happened already since old was read.
func (c *catalogs) renew(ctx context.Context, v *view, database string, old *catalog.Catalog) error {
	c.mu.Lock()
	d := c.byName[database]
	c.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.loaded != old {
		return nil
	}
	_, err := c.load(ctx, v, d, database)
	return err
}

func (c *catalogs) load(ctx context.Context, v *view, d *databaseCatalog, database string) (*catalog.Catalog, error) {
	conn, err := c.router.service(ctx, v.m.Home, database)
	if err != nil {
		return nil, err
	}
	defer c.router.pool.Release(conn)
	loaded, err := c.loader.Load(ctx, conn, database, v.m.Schemas[database])
	if err != nil {
		return nil, err
	}
	d.loaded = loaded
	return loaded, nil
}

// private reads the catalog as a transaction with uncommitted changes sees it.
func (c *catalogs) private(ctx context.Context, q catalog.Querier, database string, version uint64) (*catalog.Catalog, error) {
	return c.loader.Load(ctx, q, database, version)
}
