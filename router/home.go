package router

import (
	"context"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/pool"
)

// collect reads a node's whole answer, without ReadyForQuery and without what only the extended
// protocol has.
func (s *session) collect(_ context.Context, c *pool.Conn) ([]byte, error) {
	s.task.Detach()
	return s.answerOf(c)
}

// answerOf is collect where the caller has made sure that waiting holds nobody up.
func (s *session) answerOf(c *pool.Conn) ([]byte, error) {
	if err := c.Stream.Flush(); err != nil {
		c.Broken = true
		return nil, lostNode(c.Key.Node)
	}
	var answer []byte
	var failure *pgwire.Error
	for {
		typ, msg, err := c.Stream.Next()
		if err != nil {
			c.Broken = true
			if failure != nil {
				return nil, failure
			}
			return nil, lostNode(c.Key.Node)
		}
		switch typ {
		case 'Z':
			c.TxStatus = pgwire.ReadyStatus(msg)
			if failure != nil {
				return nil, failure
			}
			return answer, nil
		case 'E':
			if failure == nil {
				failure = pgwire.ParseError(msg)
			}
		case 'S':
			c.ParameterStatus(msg)
		case '1', '2', '3', 'n', 't':
		case 'A':
			s.ownNotification(c, msg)
			answer = append(answer, msg...)
		case 'G':
			// No statement that is collected may ask for data.
			out := c.Stream.Out()
			*out = pgwire.AppendCopyFail(*out, "COPY FROM STDIN is not possible here")
			if err := c.Stream.Flush(); err != nil {
				c.Broken = true
				return nil, lostNode(c.Key.Node)
			}
		default:
			answer = append(answer, msg...)
		}
	}
}

// homeConnection gets a connection to the home node for a question: the transaction's own when it
// sees more than others do.
func (s *session) homeConnection(ctx context.Context) (*pool.Conn, func(), error) {
	s.task.Detach()
	if s.schemaChanged || s.hold != "" || s.txn.setLocal {
		return s.homeInTransaction(ctx)
	}
	// Another connection would wait for locks that the transaction itself holds: TRUNCATE, LOCK.
	if p := s.txn.part(s.router.view.Load().m.Home); p != nil && p.began && p.wrote && !s.txn.failed {
		if err := s.finishSegment(ctx); err != nil {
			return nil, nil, err
		}
		return s.homeInTransaction(ctx)
	}
	conn, err := s.acquire(ctx, s.router.view.Load().m.Home)
	if err != nil {
		return nil, nil, err
	}
	if err := s.sync(ctx, conn); err != nil {
		s.router.pool.Release(conn)
		return nil, nil, err
	}
	return conn, func() { s.router.pool.Release(conn) }, nil
}

// homeInTransaction is the home node's part in the transaction.
func (s *session) homeInTransaction(ctx context.Context) (*pool.Conn, func(), error) {
	s.task.Detach()
	if s.txn.failed {
		return nil, nil, errAborted()
	}
	if err := s.protectBatch(ctx); err != nil {
		return nil, nil, err
	}
	// What the batch has for this connection comes first: its answers must not be taken for those of the question.
	if err := s.finishSegment(ctx); err != nil {
		return nil, nil, err
	}
	p, err := s.participant(ctx, s.router.view.Load().m.Home)
	if err != nil {
		return nil, nil, err
	}
	if err := s.flushPreamble(p); err != nil {
		return nil, nil, err
	}
	return p.conn, func() {}, nil
}

// Canonical asks the home node for a key that only PostgreSQL can read.
func (s *session) Canonical(key keyspace.Type, as string, text []byte) ([]byte, error) {
	conn, done, err := s.homeConnection(context.Background())
	if err != nil {
		return nil, err
	}
	defer done()
	return canonicalOn(conn, key, as, text)
}

// canonicalOn asks about a text that is in the server's encoding, and gives its answer in it.
func canonicalOn(conn *pool.Conn, key keyspace.Type, as string, text []byte) ([]byte, error) {
	if !sendsAsServer(conn, text) {
		return canonicalBytes(conn, key, as, text)
	}
	rows, err := conn.QueryParams(context.Background(), "SELECT "+exec.CanonicalSQL(key, "$1::"+as), text)
	if err != nil {
		return nil, err
	}
	return rows[0][0], nil
}
