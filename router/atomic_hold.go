package router

import (
	"context"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pool"
)

// Snapshots agree when they are taken at a moment at which no transaction is between its decision and its last commit. With many writers
// there may be no such moment for long. Then the reader makes one: for some milliseconds it keeps new decisions from being made, on all nodes, by a
// lock that every decision has to wait for; those that were made come to their end meanwhile.

const (
	// holdEvery is after how many rounds without success decisions are held off; 8 rounds take about as long as a commit.
	holdEvery = 8
	// holdLimit bounds how long: a transaction whose coordinator is gone may stay undone for seconds, and writers must not wait for it.
	// A node ends the hold of a router that stops in between, see pg_shoal.hold_decisions.
	holdLimit = 300 * time.Millisecond
)

// holding keeps decisions from being made until it is released.
type holding struct {
	router *Router
	conns  []*pool.Conn
	until  time.Time
}

// holdDecisions returns nil when a node did not take part: the reader goes on without.
func (s *session) holdDecisions(ctx context.Context) *holding {
	h := &holding{router: s.router, until: time.Now().Add(holdLimit)}
	ctx, cancel := context.WithDeadline(ctx, h.until)
	defer cancel()
	var mu sync.Mutex
	var group sync.WaitGroup
	all := true
	for _, n := range s.router.view.Load().m.Nodes {
		if n.State == keyspace.NodeJoining {
			continue
		}
		group.Go(func() {
			conn, err := s.router.service(ctx, n.Name, s.database)
			if err == nil {
				err = conn.Exec(ctx, "BEGIN; SELECT pg_shoal.hold_decisions()")
			}
			mu.Lock()
			defer mu.Unlock()
			if conn != nil {
				h.conns = append(h.conns, conn)
			}
			all = all && err == nil
		})
	}
	group.Wait()
	if !all {
		h.release()
		return nil
	}
	return h
}

// release lets decisions be made again. A connection that does not end its transaction is closed, which ends it too.
func (h *holding) release() {
	if h == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), holdLimit)
	defer cancel()
	var group sync.WaitGroup
	for _, conn := range h.conns {
		group.Go(func() {
			_ = conn.Exec(ctx, "ROLLBACK")
			h.router.pool.Release(conn)
		})
	}
	group.Wait()
	h.conns = nil
}
