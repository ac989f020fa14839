package control

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
)

// forgetEntries takes out what nodes have of a directory that is gone. Ids are not used again, so entries that stay on a node that
// is away only take up room.
func (c *Controller) forgetEntries(ctx context.Context, m *keyspace.Map, id uint32) {
	d := m.Distribution(id)
	if d == nil || d.Directory == nil && !d.SingleHash() {
		return
	}
	for _, n := range m.Nodes {
		if err := c.onNode(ctx, n, d.Database, func(conn *pgx.Conn) error {
			_, err := conn.Exec(ctx, `DELETE FROM pg_shoal.directory WHERE distribution = $1`, id)
			if err == nil {
				_, err = conn.Exec(ctx, `DELETE FROM pg_shoal.tables WHERE relid = 'pg_shoal.directory'::regclass AND distribution = $1`, id)
			}
			return err
		}); err != nil {
			c.log.Warn("entries of a dropped directory stay on a node", "node", n.Name, "distribution", id, "error", err)
		}
	}
}

func (c *Controller) onNode(ctx context.Context, n keyspace.Node, database string, do func(*pgx.Conn) error) error {
	cfg, err := c.cfg.Access.Config(n, database)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return do(conn)
}

// entryOf reads a directory's entry for a key, given in its ordered encoding.
func (c *Controller) entryOf(ctx context.Context, m *keyspace.Map, d *keyspace.Distribution, key []byte) (uint64, error) {
	name, err := m.EntryNode(d, key)
	if err != nil {
		return 0, err
	}
	node, err := m.Node(name)
	if err != nil {
		return 0, err
	}
	var stored int64
	err = c.onNode(ctx, node, d.Database, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT entry FROM pg_shoal.directory WHERE distribution = $1 AND key = $2`, d.ID, key).Scan(&stored)
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, notFound("It gets one with its first row, or with pgshoal directory set.", "the key has no entry in the directory")
	}
	return catalog.StoredEntry(stored), err
}
