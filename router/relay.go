package router

import (
	"context"
	"encoding/binary"
	"errors"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/pool"
)

// relayState passes a node's answer to the client. It lives as long as the session, so that a
// statement allocates nothing for it.
type relayState struct {
	pgwire.Relay
	s    *session
	on   func(byte, []byte) (pgwire.Action, error)
	part *participant

	keepReady bool          // ReadyForQuery is for the router, not for the client
	extended  bool          // the client spoke the simple protocol, the router extended to the node
	untilDone int           // stop after so many complete answers instead of at ReadyForQuery
	swallow   []bool        // for each ParseComplete of the segment: is it the router's own?
	parsed    int           // so many of them have come
	ownCloses int           // so many CloseComplete are the router's own
	executes  [][]oidColumn // for each Execute of the segment: columns whose values are translated
	executed  int           // so many of them are over
	described []oidColumn   // the same for the rows that the last RowDescription is of, or a COPY, in the simple protocol
	copyIn    bool
	synced    bool // what was sent ended with the client's Sync
	failed    bool
	fatal     *pgwire.Error
	instead   *pgwire.Error // what the client is told in place of the node's error
}

func (r *relayState) init(s *session) {
	r.s = s
	r.on = r.message
	for _, t := range []byte("ZEGSWA") {
		r.Watch[t] = true
	}
}

// message looks at the messages that matter to the session.
func (r *relayState) message(typ byte, msg []byte) (pgwire.Action, error) {
	switch typ {
	case 'Z':
		r.part.conn.TxStatus = pgwire.ReadyStatus(msg)
		if r.keepReady {
			return pgwire.StopDrop, nil
		}
		return pgwire.Stop, nil
	case 'E':
		return r.failure(msg)
	case 'S':
		r.part.conn.ParameterStatus(msg)
		return r.s.parameter(msg), nil
	case 'A':
		r.s.ownNotification(r.part.conn, msg)
	case 'T', 'D', 'd', 'C', 's', 'I':
		if err := r.translate(typ, msg); err != nil {
			return pgwire.StopDrop, err
		}
	case 'G':
		r.copyIn = true
		return pgwire.Stop, nil
	case 'W':
		return pgwire.StopDrop, errors.New("a node began a copy in both directions")
	case '1':
		if r.parsed < len(r.swallow) {
			drop := r.swallow[r.parsed]
			r.parsed++
			if drop {
				return pgwire.Drop, nil
			}
		}
		if r.extended {
			return pgwire.Drop, nil
		}
	case '2', 'n':
		if r.extended {
			return pgwire.Drop, nil
		}
	case '3':
		if r.ownCloses > 0 {
			r.ownCloses--
			return pgwire.Drop, nil
		}
	}
	return r.counted(typ)
}

// counted stops when the last awaited answer has passed.
func (r *relayState) counted(typ byte) (pgwire.Action, error) {
	if r.untilDone == 0 {
		return pgwire.Forward, nil
	}
	switch typ {
	case 'C', 's', 'I', '2', 'T', 'n', '3':
		r.untilDone--
		if r.untilDone == 0 {
			return pgwire.Stop, nil
		}
	}
	return pgwire.Forward, nil
}

func (r *relayState) failure(msg []byte) (pgwire.Action, error) {
	r.failed = true
	e := pgwire.ParseError(msg)
	if e.IsFatal() { // told to the client by whoever asked

		r.fatal = e
		r.part.conn.Broken = true
		return pgwire.StopDrop, nil
	}
	if v := r.s.victim.Load(); v != nil && e.Code == pgwire.CodeQueryCanceled {
		r.instead = v
		return pgwire.StopDrop, nil
	}
	r.s.fault(e.Code)
	if r.untilDone > 0 {
		r.untilDone = 0
		return pgwire.Stop, nil
	}
	return pgwire.Forward, nil
}

// ownNotification gives a notification that the session sent to itself the process number that the
// client knows as its own.
func (s *session) ownNotification(c *pool.Conn, msg []byte) {
	if len(msg) >= 9 && binary.BigEndian.Uint32(msg[5:]) == c.PID {
		binary.BigEndian.PutUint32(msg[5:], s.pid)
	}
}

// parameter passes a changed parameter on, once.
func (s *session) parameter(msg []byte) pgwire.Action {
	name, value, err := pgwire.ParameterStatus(msg)
	if err != nil {
		return pgwire.Forward
	}
	if s.reported[string(name)] == string(value) {
		return pgwire.Drop
	}
	withheld := s.withholds(string(name))
	s.reported[string(name)] = string(value)
	s.encodingChanged()
	if withheld {
		return pgwire.Drop
	}
	return pgwire.Forward
}

// answer relays what the participant says up to ReadyForQuery, COPY FROM STDIN included. Failed
// reports an error that the client has seen.
func (s *session) answer(ctx context.Context, p *participant) (failed bool, err error) {
	r := &s.relay
	r.part, r.failed, r.fatal, r.copyIn = p, false, nil, false
	if p.oids != nil {
		r.watchOIDs(true)
		defer r.watchOIDs(false)
	}
	if p.owes() {
		if err := s.readPreamble(p); err != nil {
			return true, err
		}
	}
	for {
		err := r.Run(p.conn.Stream, s.client, r.on)
		if err != nil {
			return true, s.relayError(p, err)
		}
		if r.fatal != nil {
			return true, r.fatal
		}
		if r.instead != nil {
			s.send(r.instead)
			r.instead = nil
			if r.untilDone == 0 {
				continue // to ReadyForQuery
			}
			r.untilDone = 0
			return true, nil
		}
		if !r.copyIn {
			return r.failed, nil
		}
		r.copyIn = false
		s.park(p, nil)
		s.task.Detach()
		if err := s.client.Flush(); err != nil {
			p.conn.Broken = true
			return true, errClientGone
		}
		if err := s.copyData(p); err != nil {
			return true, err
		}
	}
}

func (s *session) relayError(p *participant, err error) error {
	p.conn.Broken = true
	var w *pgwire.WriteError
	if errors.As(err, &w) {
		return errClientGone
	}
	return lostNode(p.node)
}

// copyData passes the client's COPY data to the node until it ends. The node may fail early; it
// then reads on until the end of the data, so nothing can get stuck.
func (s *session) copyData(p *participant) error {
	for {
		typ, msg, err := s.client.Next()
		if err != nil {
			p.conn.Broken = true
			return errClientGone
		}
		switch typ {
		case 'd', 'c', 'f':
			p.conn.Stream.Append(msg)
		case 'H', 'S':
			continue // flushing and syncing do not matter during COPY
		default:
			p.conn.Broken = true
			return s.lostSync(typ)
		}
		if typ != 'd' {
			if err := s.endCopyData(p); err != nil {
				return err
			}
		}
		if typ != 'd' || p.conn.Stream.Pending() >= copyChunk || s.client.Buffered() == 0 {
			if err := p.conn.Stream.Flush(); err != nil {
				p.conn.Broken = true
				return lostNode(p.node)
			}
		}
		if typ != 'd' {
			return nil
		}
	}
}

// lostSync ends a session whose client sends something else than COPY data, as PostgreSQL does: nobody knows where the
// next message begins.
func (s *session) lostSync(typ byte) error {
	s.send(pgwire.Errorf(pgwire.CodeProtocolViolation, "unexpected message type 0x%02X during COPY from stdin", typ))
	s.send(pgwire.Fatalf(pgwire.CodeProtocolViolation, "terminating connection because protocol synchronization was lost"))
	_ = s.client.Flush()
	return errClientGone
}

// endCopyData makes the node answer after the data. In the extended protocol it does so at a Sync or a
// Flush, and those that it got before or during the COPY do not count.
func (s *session) endCopyData(p *participant) error {
	out := p.conn.Stream.Out()
	if s.relay.untilDone > 0 {
		*out = pgwire.AppendFlush(*out)
	}
	if !s.relay.synced {
		return nil
	}
	for {
		typ, _, err := s.client.Next()
		if err != nil {
			p.conn.Broken = true
			return errClientGone
		}
		switch typ {
		case 'H', 'd', 'c', 'f':
		case 'S':
			*out = pgwire.AppendSync(*out)
			return nil
		default:
			p.conn.Broken = true
			return pgwire.Errorf(pgwire.CodeProtocolViolation, "unexpected message type 0x%02X after COPY from stdin", typ)
		}
	}
}

const copyChunk = 32 << 10
