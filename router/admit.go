package router

import (
	"context"
	"fmt"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/pool"
)

// admitTimeout bounds how long a connection waits for a newer map, unless the configuration bounds logins otherwise.
const admitTimeout = 5 * time.Second

// admit tells a node whose backend this is. The node refuses a router whose map is too old; another router can have
// told it of an epoch a moment before this one hears of it, so the next map is waited for.
func (r *Router) admit(ctx context.Context, node string, pid uint32) error {
	wait := r.cfg.Pool.ConnectTimeout
	if wait == 0 {
		wait = admitTimeout
	}
	over := time.NewTimer(wait)
	defer over.Stop()
	for {
		v := r.view.Load()
		admitted, err := r.askAdmission(ctx, node, v.m.Epoch, pid)
		if err != nil || admitted {
			return err
		}
		select {
		case <-v.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-over.C:
			return pgwire.Errorf("57P03", "node %q does not admit this router: its map has epoch %d, which is too old", node, v.m.Epoch).
				WithHint("The router must reach the topology store again.")
		}
	}
}

func (r *Router) askAdmission(ctx context.Context, node string, epoch uint64, pid uint32) (bool, error) {
	key := pool.Key{Node: node, Role: r.cfg.ServiceUser, Database: serviceDatabase}
	conn, err := r.pool.AcquireAlive(ctx, key, pool.Credentials{Password: r.cfg.ServicePassword})
	if err != nil {
		return false, err
	}
	defer r.pool.Release(conn)
	rows, err := conn.Query(ctx, fmt.Sprintf("SELECT pg_shoal.admit('%s', %d, %d)", quoteBody(r.cfg.Name), epoch, pid))
	return err == nil && len(rows) == 1 && string(rows[0][0]) == "t", err
}
