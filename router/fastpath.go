package router

import (
	"context"
	"encoding/binary"
	"strconv"

	"github.com/pgshoal/pgshoal/pgwire"
)

// firstUserOID is where the OIDs of objects made after initdb begin.
const firstUserOID = 16384

// functionCall passes a FunctionCall message to the home node. Drivers use it for large objects,
// which live there; functions of users may hide SQL and are refused.
func (s *session) functionCall(ctx context.Context, msg []byte) error {
	var err error
	switch {
	case s.txn.failed:
		err = errAborted()
	case len(msg) < 9:
		err = pgwire.Errorf(pgwire.CodeProtocolViolation, "invalid function call message")
	default:
		err = s.checkCall(ctx, binary.BigEndian.Uint32(msg[5:]))
		if err == nil {
			err = s.passCall(ctx, msg)
		}
	}
	if err != nil {
		if err = s.failed(ctx, err); err != nil {
			return err
		}
	}
	s.statementOver(ctx)
	return s.ready()
}

// checkCall refuses functions of users; one that does not exist is the node's to complain about.
func (s *session) checkCall(ctx context.Context, oid uint32) error {
	if oid < firstUserOID {
		return nil
	}
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return err
	}
	defer done()
	rows, err := conn.Query(ctx, "SELECT FROM pg_catalog.pg_proc WHERE oid = "+strconv.FormatUint(uint64(oid), 10))
	if err != nil || len(rows) == 0 {
		return err
	}
	return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "the function call protocol is supported for built-in functions only").
		WithHint("Call the function with SELECT.")
}

func (s *session) passCall(ctx context.Context, msg []byte) error {
	p, err := s.participant(ctx, s.router.view.Load().m.Home)
	if err != nil {
		return err
	}
	p.wrote = true
	p.conn.Stream.Append(msg)
	s.relay.keepReady = true
	failed, err := s.exchange(ctx, p)
	s.relay.keepReady = false
	if failed {
		s.failBlock()
	}
	return err
}
