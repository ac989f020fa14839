package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/keyspace"
)

// Timelines remembers the highest timeline of each node's primary; see topo.Timelines.
type Timelines interface {
	Highest(ctx context.Context, n keyspace.Node) (uint32, error)
	Raise(ctx context.Context, n keyspace.Node, timeline uint32) error
}

// Waits for the other servers of a node while one of them is about to be used: shorter when it can be measured by what
// was seen before.
const (
	grace      = 250 * time.Millisecond
	firstGrace = 2 * time.Second
)

var errPast = errors.New("it is a primary of the past")

// newest refuses a server that another one of the node outranks.
func (a NodeAccess) newest(n keyspace.Node, isPrimary pgconn.ValidateConnectFunc) pgconn.ValidateConnectFunc {
	return func(ctx context.Context, conn *pgconn.PgConn) error {
		if err := isPrimary(ctx, conn); err != nil {
			return err
		}
		own, err := timelineOf(ctx, conn)
		if err != nil {
			return err
		}
		known, err := a.highest(ctx, n)
		if err != nil {
			return err
		}
		wait := grace
		if known == 0 {
			wait = firstGrace
		}
		if highest := max(known, a.others(ctx, n, wait)); own < highest {
			return fmt.Errorf("%w: its timeline is %d, but %d was seen", errPast, own, highest)
		}
		if own > known && a.remembers(n) {
			return a.Timelines.Raise(ctx, n, own)
		}
		return nil
	}
}

func (a NodeAccess) highest(ctx context.Context, n keyspace.Node) (uint32, error) {
	if !a.remembers(n) {
		return 0, nil
	}
	return a.Timelines.Highest(ctx, n)
}

// remembers reports a node of the map; one that is about to join has no name yet.
func (a NodeAccess) remembers(n keyspace.Node) bool { return a.Timelines != nil && n.Name != "" }

// others is the highest timeline of the node's primaries, as far as they answer in time.
func (a NodeAccess) others(ctx context.Context, n keyspace.Node, wait time.Duration) (highest uint32) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	answers := make(chan uint32)
	for _, address := range n.Addresses {
		go func() {
			timeline, err := a.timelineAt(ctx, address)
			if err != nil {
				timeline = 0 // away, or a replica
			}
			answers <- timeline
		}()
	}
	for range n.Addresses {
		highest = max(highest, <-answers)
	}
	return highest
}

func (a NodeAccess) timelineAt(ctx context.Context, address string) (uint32, error) {
	cfg, err := a.config([]string{address}, "", "primary")
	if err != nil {
		return 0, err
	}
	conn, err := pgconn.ConnectConfig(ctx, &cfg.Config)
	if err != nil {
		return 0, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return timelineOf(ctx, conn)
}

// timelineOf asks a primary. A WAL file's name begins with the timeline.
func timelineOf(ctx context.Context, conn *pgconn.PgConn) (uint32, error) {
	results, err := conn.Exec(ctx, "SELECT ('x' || pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8))::bit(32)::bigint").ReadAll()
	if err != nil {
		return 0, err
	}
	var timeline uint32
	_, err = fmt.Sscan(string(results[0].Rows[0][0]), &timeline)
	return timeline, err
}
