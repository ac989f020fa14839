package control

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// tableLockTimeout bounds the wait for transactions that have written a reference table and are open.
const tableLockTimeout = "20s"

// referenceTables are those of one database.
type referenceTables struct {
	database string
	oids     []uint32
	names    []string // quoted
}

func (r referenceTables) fence(node, controller string) keyspace.Fence {
	return keyspace.Fence{ID: "join-" + node + "-" + r.database, Database: r.database, Tables: r.oids, Router: controller}
}

// holdReferences makes the rows of reference tables stand still until the node is active: routers
// hold new statements back (a fence in the map), and a lock on the home node waits for transactions
// that have already written. Without it, a row written between copy and activation would be missing.
func (j *join) holdReferences(ctx context.Context) error {
	var err error
	if j.refs, err = j.c.referenceTables(ctx, j.m); err != nil || len(j.refs) == 0 {
		return err
	}
	var fences []string
	for _, r := range j.refs {
		fences = append(fences, r.fence(j.node.Name, j.c.cfg.Name).ID)
	}
	m, err := topo.UpdateMap(ctx, j.c.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		var err error
		for _, r := range j.refs {
			if m, err = m.AddFence(r.fence(j.node.Name, j.c.cfg.Name)); err != nil {
				return nil, err
			}
		}
		return m, nil
	})
	if err != nil {
		return err
	}
	if err := j.c.waitQuiet(ctx, m.Epoch, fences...); err != nil {
		return err
	}
	for _, r := range j.refs {
		if err := j.lockTables(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (j *join) lockTables(ctx context.Context, r referenceTables) error {
	conn, err := j.c.connectHome(ctx, j.m, r.database)
	if err != nil {
		return err
	}
	j.release = append(j.release, func() { _ = conn.Close(context.WithoutCancel(ctx)) }) // rolls back
	lock := fmt.Sprintf("BEGIN; SET LOCAL lock_timeout = '%s'; LOCK TABLE %s IN SHARE MODE",
		tableLockTimeout, strings.Join(r.names, ", "))
	if _, err := conn.PgConn().Exec(ctx, lock).ReadAll(); err != nil {
		return &Refusal{
			Status: 409, Err: err, Way: "End the transaction that wrote it, then try again.",
			Message: fmt.Sprintf("a reference table of database %s could not be locked: %v", r.database, err),
		}
	}
	return nil
}

// letGo ends the locks. It comes after the activation: until then nobody may write.
func (j *join) letGo() {
	for _, release := range j.release {
		release()
	}
	j.release = nil
}

// unfenced is the map without this join's fences.
func (j *join) unfenced(m *keyspace.Map) (*keyspace.Map, error) {
	next := m
	for _, r := range j.refs {
		id := r.fence(j.node.Name, j.c.cfg.Name).ID
		for _, f := range m.Fences {
			if f.ID != id {
				continue
			}
			var err error
			if next, err = next.RemoveFence(id); err != nil {
				return nil, err
			}
		}
	}
	return next, nil
}

// referenceTables lists the reference tables of all databases that have any.
func (c *Controller) referenceTables(ctx context.Context, m *keyspace.Map) ([]referenceTables, error) {
	databases, err := c.databases(ctx, m)
	if err != nil {
		return nil, err
	}
	var all []referenceTables
	for _, database := range databases {
		r, err := c.referenceTablesOf(ctx, m, database)
		if err != nil {
			return nil, fmt.Errorf("reference tables of database %s: %w", database, err)
		}
		if len(r.oids) > 0 {
			all = append(all, r)
		}
	}
	return all, nil
}

func (c *Controller) referenceTablesOf(ctx context.Context, m *keyspace.Map, database string) (referenceTables, error) {
	r := referenceTables{database: database}
	conn, err := c.connectHome(ctx, m, database)
	if err != nil {
		return r, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `
		SELECT t.relid, pg_catalog.format('%I.%I', n.nspname, c.relname)
		FROM pg_shoal.tables t
		JOIN pg_catalog.pg_class c ON c.oid = t.relid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
		WHERE t.kind = 'reference' ORDER BY 2`)
	if err != nil {
		return r, err
	}
	var oid uint32
	var name string
	_, err = pgx.ForEachRow(rows, []any{&oid, &name}, func() error {
		r.oids, r.names = append(r.oids, oid), append(r.names, name)
		return nil
	})
	return r, err
}
