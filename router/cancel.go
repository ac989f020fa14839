package router

import (
	"context"
	"encoding/binary"
	"net"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/topo"
)

const cancelTimeout = 5 * time.Second

// cancel acts on a CancelRequest: for one of our sessions, or by passing it to the router that
// the process number names.
func (r *Router) cancel(ctx context.Context, req pgwire.CancelRequest) {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	number := routerOf(req.PID)
	if number == r.member.Load().Member().Number {
		if s := r.clients.find(req.PID); s != nil && s.secret == req.Secret {
			s.cancelRunning(ctx)
		}
		return
	}
	routers, err := topo.Members(ctx, r.store, topo.RoleRouter)
	if err != nil {
		r.log.Warn("cannot pass a cancel request on", "error", err)
		return
	}
	for _, m := range routers {
		if m.Number == number && m.Name != r.cfg.Name {
			passCancel(ctx, m.Address, req)
		}
	}
}

func passCancel(ctx context.Context, address string, req pgwire.CancelRequest) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer conn.Close()
	packet := make([]byte, 16)
	binary.BigEndian.PutUint32(packet, 16)
	binary.BigEndian.PutUint32(packet[4:], 80877102)
	binary.BigEndian.PutUint32(packet[8:], req.PID)
	binary.BigEndian.PutUint32(packet[12:], req.Secret)
	_, _ = conn.Write(packet)
}

// cancelRunning cancels what the session executes. A request can come before the statement is on its way to a node, or before
// the node has begun it, and PostgreSQL ignores those: so it is sent again while the same statement still runs.
func (s *session) cancelRunning(ctx context.Context) {
	statement := s.since.Load()
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		if !s.cancelNow(ctx, statement) || statement == 0 || pause > lastCancel {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// lastCancel is the pause before the last time that a request is sent; the client waits until then.
const lastCancel = 160 * time.Millisecond

// cancelNow cancels whatever the session's server connections are executing, unless that is another statement by now. It keeps the
// session from giving a connection back until the nodes have the request: it must hit no other statement than the one
// the client meant.
func (s *session) cancelNow(ctx context.Context, statement int64) (runs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.Load() != statement {
		return false
	}
	if s.awaited != nil {
		s.awaited(pgwire.Errorf(pgwire.CodeQueryCanceled, "canceling statement due to user request"))
	}
	for _, c := range s.running {
		if err := c.Cancel(ctx); err != nil {
			s.log.Debug("cancel failed", "error", err)
		}
	}
	return true
}

// awaitConnection says how to end the wait for a connection that a cancel request comes into; nil when it is over.
func (s *session) awaitConnection(end context.CancelCauseFunc) {
	s.mu.Lock()
	s.awaited = end
	s.mu.Unlock()
}
