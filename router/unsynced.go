package router

import (
	"context"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
)

// simpleQuery answers a Query message. One that comes in the place of a Sync ends the batch before it: both are one
// transaction, as in PostgreSQL. After an error in the batch it is ignored, as everything is up to Sync.
func (s *session) simpleQuery(ctx context.Context, msg []byte) error {
	e := &s.extended
	if e.skip {
		return nil
	}
	if s.txn.mode == modeExplicit || !e.busy() {
		if ignore, err := s.unsynced(ctx); err != nil || ignore {
			return err
		}
		return s.simple(ctx, msg)
	}
	err := s.payOwed(ctx)
	if err == nil {
		err = s.protectBatch(ctx)
	}
	if err == nil {
		err = s.finishSegment(ctx)
	}
	if err != nil {
		return s.extendedError(ctx, err)
	}
	if s.txn.mode != modeBlock { // nothing of it was for a node
		if _, err := s.unsynced(ctx); err != nil {
			return err
		}
		return s.simple(ctx, msg)
	}
	for _, p := range s.txn.parts {
		p.resync, p.inBatch = false, false // a Query needs no Sync before it
	}
	e.touched = false
	return s.simpleJoined(ctx, msg)
}

// simpleJoined runs a Query message in the transaction of the batch that it ends.
func (s *session) simpleJoined(ctx context.Context, msg []byte) error {
	ctx, raw, err := s.beginQuery(ctx, msg)
	if err != nil {
		return err
	}
	defer s.finish()
	entry, err := s.planExact(ctx, raw)
	switch {
	case err != nil:
		s.report(s.nodeError(ctx, s.text, err))
	case len(entry.statements) == 0:
		out := s.client.Out()
		*out = pgwire.AppendEmptyQueryResponse(*out)
	default:
		for i := 0; i < len(entry.statements) && !s.stopped; i++ {
			if s.txn.mode == modeIdle {
				s.open(modeBlock, "BEGIN")
			}
			if err := s.execute(ctx, entry, i, nil); err != nil {
				return err
			}
		}
	}
	if s.txn.mode == modeBlock {
		if err := s.commit(ctx); err != nil {
			if err = s.failed(ctx, err); err != nil {
				return err
			}
		}
	}
	return s.ready()
}

// planExact plans a text for itself only: its statements are sent one by one, as they are written in it.
func (s *session) planExact(ctx context.Context, raw []byte) (*planned, error) {
	text, err := s.readStatement(ctx, raw)
	s.raw, s.text = raw, text
	if err == nil {
		err = s.learnNames(ctx)
	}
	if err != nil {
		return nil, err
	}
	stmts, err := analyze.Parse(string(text))
	if err == nil {
		err = s.knowsNames(ctx, string(text))
	}
	if err != nil {
		return nil, err
	}
	keepPositions(text, stmts)
	entry, _, err := s.planStatements(ctx, s.router.view.Load(), stmts, nil, false)
	return entry, err
}
