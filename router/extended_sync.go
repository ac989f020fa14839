package router

import (
	"context"

	"github.com/pgshoal/pgshoal/pgwire"
)

// settle relays everything that is still to come, for Flush.
func (s *session) settle(ctx context.Context) error {
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	return s.finishSegment(ctx)
}

// finishSegment sends what was collected and relays its answers, leaving the transaction open.
func (s *session) finishSegment(ctx context.Context) error {
	e := &s.extended
	p := e.segment
	if p == nil {
		return nil
	}
	e.segment = nil
	if e.awaited == 0 {
		return nil
	}
	s.task.Detach()
	out := p.conn.Stream.Out()
	*out = pgwire.AppendFlush(*out)
	r := &s.relay
	r.untilDone = e.awaited
	e.awaited = 0
	for _, t := range []byte("CsI2Tn3") {
		r.Watch[t] = true
	}
	failed, err := s.exchange(ctx, p)
	for _, t := range []byte("CsI2Tn3") {
		r.Watch[t] = false
	}
	r.untilDone = 0
	s.segmentOver(p, failed || err != nil)
	if err != nil {
		return err
	}
	if failed {
		p.resync = true
		s.failBlock()
		return errToldAlready
	}
	p.resync = true
	return nil
}

// segmentOver resets what the relay of a segment needed.
func (s *session) segmentOver(p *participant, failed bool) {
	r := &s.relay
	r.swallow, r.parsed, r.ownCloses = r.swallow[:0], 0, 0
	clear(r.executes)
	r.executes, r.executed = r.executes[:0], 0
	r.Watch['1'], r.Watch['3'] = false, false
	if failed {
		for _, id := range s.extended.fresh {
			p.conn.Statements.Remove(id)
		}
	}
	s.extended.fresh = s.extended.fresh[:0]
}

func (s *session) failBlock() {
	if s.txn.mode != modeIdle {
		s.txn.failed = true
	}
}

// syncMessage ends a batch. When all of it went to one node, ReadyForQuery is that node's own.
func (s *session) syncMessage(ctx context.Context) error {
	e := &s.extended
	defer s.finish()
	skipped := e.skip
	e.skip, e.touched = false, false
	if !skipped {
		if err := s.payOwed(ctx); err != nil {
			if err = s.extendedError(ctx, err); err != nil {
				return err
			}
			e.skip = false
		}
	}
	e.owed = nil
	p := e.segment
	if p != nil && s.txn.mode != modeBlock && !s.othersNeedSync(p) {
		return s.syncSegment(ctx, p)
	}
	if p != nil {
		if err := s.extendedError(ctx, s.finishSegment(ctx)); err != nil {
			return err
		}
		e.skip = false
	}
	return s.syncAll(ctx)
}

func (s *session) othersNeedSync(p *participant) bool {
	for _, q := range s.txn.parts {
		if q != p && q.resync {
			return true
		}
	}
	return false
}

// syncSegment is the hot path: the batch, its Sync included, goes to one node, and the node's
// answer to the client.
func (s *session) syncSegment(ctx context.Context, p *participant) error {
	e := &s.extended
	e.segment, e.awaited = nil, 0
	out := p.conn.Stream.Out()
	*out = pgwire.AppendSync(*out)
	s.relay.synced = true
	failed, err := s.exchangeParked(ctx, p)
	s.relay.synced = false
	p.resync, p.inBatch = false, false
	s.segmentOver(p, failed || err != nil)
	if err != nil {
		if err = s.failed(ctx, err); err != nil {
			return err
		}
		return s.ready()
	}
	if failed {
		s.failBlock()
	} else {
		s.keepsSequence(p)
	}
	if s.txn.mode == modeIdle {
		e.closePortals()
	}
	s.statementOver(ctx)
	return s.client.Flush()
}

// syncAll ends a batch that several nodes, or none, took part in.
func (s *session) syncAll(ctx context.Context) error {
	if err := s.endBatch(ctx); err != nil {
		return err
	}
	return s.ready()
}

// unsynced ends a batch that the client follows up with a message of another kind instead of Sync. After an error
// such a message is ignored, as everything is up to Sync.
func (s *session) unsynced(ctx context.Context) (ignore bool, err error) {
	e := &s.extended
	if e.skip || !e.busy() {
		return e.skip, nil
	}
	if err = s.payOwed(ctx); err == nil {
		err = s.finishSegment(ctx)
	}
	if err != nil {
		return true, s.extendedError(ctx, err)
	}
	e.touched = false
	return false, s.endBatch(ctx)
}

func (s *session) endBatch(ctx context.Context) error {
	for _, p := range s.txn.parts {
		p.inBatch = false
		if !p.resync || p.conn.Broken {
			continue
		}
		p.resync = false
		out := p.conn.Stream.Out()
		*out = pgwire.AppendSync(*out)
		if _, err := s.collect(ctx, p.conn); err != nil {
			s.failBlock()
		}
	}
	if s.txn.mode == modeBlock {
		if err := s.commit(ctx); err != nil {
			if err = s.failed(ctx, err); err != nil {
				return err
			}
		}
	}
	if s.txn.mode == modeIdle {
		s.extended.closePortals()
	}
	s.statementOver(ctx)
	s.stopped = false
	return nil
}
