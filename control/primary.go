package control

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

// Primaries finds the primary of a node for recovery. A primary that was replaced and goes on must not be asked: it does not know what
// its successor has decided. Each promotion makes a higher timeline, and a lower one than was seen before is of the past.
type Primaries struct {
	access NodeAccess

	mu      sync.Mutex
	highest map[string]int64 // timelines, by node
}

// NewPrimaries logs in with the given access.
func NewPrimaries(access NodeAccess) *Primaries {
	return &Primaries{access: access, highest: map[string]int64{}}
}

// primaryCandidate is a server that answered as a primary.
type primaryCandidate struct {
	conn     *pgx.Conn
	timeline int64
	err      error
}

// Connect opens a connection to a database on the node's primary; an empty database is the access's own.
func (p *Primaries) Connect(ctx context.Context, n keyspace.Node, database string) (*pgx.Conn, error) {
	if len(n.Addresses) < 2 {
		cfg, err := p.access.Config(n, database)
		if err != nil {
			return nil, err
		}
		return pgx.ConnectConfig(ctx, cfg)
	}
	answers := make(chan primaryCandidate)
	for _, address := range n.Addresses {
		go func() { answers <- p.ask(ctx, address, database) }()
	}
	var best primaryCandidate
	var failed error
	for range n.Addresses {
		a := <-answers
		if a.conn != nil && (best.conn == nil || a.timeline > best.timeline) {
			a, best = best, a
		}
		if a.conn != nil {
			_ = a.conn.Close(context.WithoutCancel(ctx)) // of the past
		}
		failed = errors.Join(failed, a.err)
	}
	if best.conn == nil {
		return nil, failed
	}
	if known := p.remember(n.Name, best.timeline); best.timeline < known {
		_ = best.conn.Close(context.WithoutCancel(ctx))
		return nil, errors.Join(fmt.Errorf("the only primary that answers is on timeline %d, and the node has been on %d", best.timeline, known), failed)
	}
	return best.conn, nil
}

func (p *Primaries) ask(ctx context.Context, address, database string) primaryCandidate {
	cfg, err := p.access.config([]string{address}, database, "primary")
	if err != nil {
		return primaryCandidate{err: err}
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return primaryCandidate{err: err}
	}
	a := primaryCandidate{conn: conn}
	if err := conn.QueryRow(ctx, "SELECT ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint").Scan(&a.timeline); err != nil {
		_ = conn.Close(context.WithoutCancel(ctx))
		return primaryCandidate{err: err}
	}
	return a
}

// remember notes a timeline and returns the highest.
func (p *Primaries) remember(node string, timeline int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.highest[node] = max(p.highest[node], timeline)
	return p.highest[node]
}
