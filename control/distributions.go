package control

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// dropUnused takes distributions out of the map that no table uses: after a table was undistributed,
// or when its distribution was made and its transaction then failed. Shards of nothing would keep
// a node from leaving.
func (c *Controller) dropUnused(ctx context.Context, t *term, before map[uint32]bool) {
	m := t.follower.Map()
	unused := map[uint32]bool{}
	for _, database := range databasesOf(m) {
		used, err := c.usedDistributions(ctx, m, database)
		if err != nil {
			continue // the node's state is reported elsewhere; nothing is lost by waiting
		}
		for _, d := range m.Distributions {
			if d.Directory != nil {
				used = append(used, d.Directory.Entries) // as long as there is a directory
			}
		}
		for _, d := range m.Distributions {
			if d.Database == database && !slices.Contains(used, d.ID) {
				unused[d.ID] = true
			}
		}
	}
	for id := range unused {
		if before[id] {
			c.dropDistribution(ctx, m, id)
		}
	}
	clear(before)
	for id := range unused {
		before[id] = true
	}
}

func databasesOf(m *keyspace.Map) []string {
	var names []string
	for _, d := range m.Distributions {
		if !slices.Contains(names, d.Database) {
			names = append(names, d.Database)
		}
	}
	return names
}

func (c *Controller) usedDistributions(ctx context.Context, m *keyspace.Map, database string) ([]uint32, error) {
	conn, err := c.connectHome(ctx, m, database)
	if err != nil {
		return nil, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, `SELECT t.distribution FROM pg_shoal.tables t JOIN pg_class c ON c.oid = t.relid
		WHERE t.kind = 'distributed' AND t.relid <> 'pg_shoal.directory'::regclass
		UNION SELECT s.distribution FROM pg_shoal.schemas s JOIN pg_namespace n ON n.oid = s.nspid`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uint32])
}

var errMapMoved = errors.New("the map has changed")

// dropDistribution acts only on the very map that was compared with the tables, and while no fence
// is up: whoever distributes a table raises one before choosing a distribution.
func (c *Controller) dropDistribution(ctx context.Context, seen *keyspace.Map, id uint32) {
	_, err := topo.UpdateMap(ctx, c.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		if m.Epoch != seen.Epoch || len(m.Fences) > 0 {
			return nil, errMapMoved
		}
		return m.DropDistribution(id)
	})
	switch {
	case err == nil:
		c.log.Info("dropped a distribution that no table uses", "distribution", id)
		c.forgetEntries(ctx, seen, id)
	case !errors.Is(err, errMapMoved) && ctx.Err() == nil:
		c.log.Warn("cannot drop an unused distribution", "distribution", id, "error", err)
	}
}
