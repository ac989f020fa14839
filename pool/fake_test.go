package pool

import (
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
)

// silentConn is a socket to nobody: the bookkeeping of the pool needs no server behind it.
type silentConn struct {
	net.Conn
	closed atomic.Bool
}

func (c *silentConn) Write(b []byte) (int, error)      { return len(b), nil }
func (c *silentConn) Close() error                     { c.closed.Store(true); return nil }
func (c *silentConn) SetWriteDeadline(time.Time) error { return nil }

// newSilent makes a pool whose connections reach nobody, with one node "n1".
func newSilent(tb testing.TB, cfg Config) *Pool {
	tb.Helper()
	p, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	var pid atomic.Uint32
	p.dial = func(ctx context.Context, address string, _ Key, _ Credentials) (*pgwire.Backend, error) {
		return &pgwire.Backend{
			Stream: pgwire.NewStream(&silentConn{}), PID: pid.Add(1), Params: map[string]string{}, Address: address,
		}, ctx.Err()
	}
	p.SetNodes([]keyspace.Node{{Name: "n1", Addresses: []string{"nowhere:1"}}})
	return p
}

func isClosed(c *Conn) bool { return c.Stream.Conn.(*silentConn).closed.Load() }
