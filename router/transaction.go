package router

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/pool"
)

type txMode uint8

const (
	// modeIdle: no transaction; each statement is its own on its node.
	modeIdle txMode = iota
	// modeBlock: several statements or nodes make one transaction that the client did not begin.
	modeBlock
	// modeExplicit: the client began a transaction.
	modeExplicit
)

// transaction is the session's current transaction. It begins on a node when the first statement
// goes there, so that one that stays on one node costs nothing more.
type transaction struct {
	mode   txMode
	failed bool
	begin  string
	// replay are the statements a node that joins later must run after BEGIN: savepoints, SET LOCAL.
	replay []string
	parts  []*participant
	// saved are the settings to return to on rollback.
	saved      *settingSet
	setAny     bool
	setLocal   bool // SET LOCAL was used: other connections do not have it, and the node tells the old values at the end
	savepoints []savepoint
	// committed is what the one node that wrote answered to COMMIT: notices and notifications too.
	committed   []byte
	consistency string // what SET LOCAL shoal.read_consistency chose
	aligned     bool   // the snapshots of all nodes agree
}

type savepoint struct {
	name     string
	replay   int // length of replay when it was set
	settings *settingSet
}

// participant is a node's part in the transaction: a server connection held by the session.
type participant struct {
	node     string
	conn     *pool.Conn
	began    bool
	preamble int  // queries sent ahead whose answers come before those that count
	opening  bool // BEGIN was sent ahead of them in the extended protocol
	unsynced bool // and no Sync with it: a message of the extended protocol follows
	wrote    bool
	other    bool // it ran something else than fragments that only read
	resync   bool // it got messages of the extended protocol and no Sync yet
	inBatch  bool // it takes part in the current batch of the extended protocol
	// oids translates the node's OIDs; nil for the home node and until it is needed.
	oids    *catalog.OIDMap
	ownOIDs bool // they are of this transaction's own schema
}

// status is what ReadyForQuery says.
func (t *transaction) status() byte {
	switch {
	case t.mode != modeExplicit:
		return pgwire.TxIdle
	case t.failed:
		return pgwire.TxFailed
	}
	return pgwire.TxActive
}

func (t *transaction) part(node string) *participant {
	for _, p := range t.parts {
		if p.node == node {
			return p
		}
	}
	return nil
}

// open starts a transaction of the given mode; nodes join when they are needed.
func (s *session) open(mode txMode, begin string) {
	t := &s.txn
	t.mode, t.begin, t.failed = mode, begin, false
	t.saved, t.setAny, t.setLocal, t.committed = s.settings, false, false, nil
	t.consistency, t.aligned = "", false
}

// inTransaction runs work that needs a transaction over several nodes: in the client's own, in that of
// a batch of the extended protocol, which ends at Sync, or in one that commits with the work.
func (s *session) inTransaction(ctx context.Context, work func() error) error {
	if s.txn.failed {
		return errAborted()
	}
	if s.txn.mode == modeIdle && s.extended.touched {
		if err := s.promote(ctx); err != nil {
			return err
		}
	}
	alone := s.txn.mode == modeIdle
	if alone {
		s.open(modeBlock, "BEGIN")
	}
	err := work()
	if err == nil && alone {
		err = s.commit(ctx)
	}
	if err != nil && alone && s.txn.mode == modeBlock {
		_ = s.rollback(ctx)
	}
	return err
}

// participant returns the node's part in the transaction, joining it if needed. Statements queued
// as preamble are sent with the first statement.
func (s *session) participant(ctx context.Context, node string) (*participant, error) {
	if s.alignsFirst() {
		if err := s.alignAll(ctx); err != nil {
			return nil, err
		}
	}
	p := s.txn.part(node)
	if p == nil {
		conn, err := s.acquire(ctx, node)
		if err != nil {
			return nil, err
		}
		conn.Uses++
		p = s.newParticipant(node, conn)
		s.mu.Lock()
		s.running = append(s.running, conn)
		s.mu.Unlock()
		s.txn.parts = append(s.txn.parts, p)
	}
	if len(s.txn.parts) > 1 {
		s.beginSpan()
	}
	if p.conn.Broken {
		return nil, lostNode(node)
	}
	if !p.began {
		if err := s.sync(ctx, p.conn); err != nil {
			return nil, err
		}
	}
	if !s.batching {
		p.syncOpening()
	}
	p.other = true
	if s.txn.mode != modeIdle && !p.began {
		p.began = true
		if s.batching && len(s.txn.replay) == 0 {
			p.open(s.txn.begin)
			return p, nil
		}
		p.queue(s.txn.begin)
		for _, sql := range s.txn.replay {
			p.queue(sql)
		}
	}
	return p, nil
}

// newParticipant reuses the one of the last transaction.
func (s *session) newParticipant(node string, conn *pool.Conn) *participant {
	p := s.spare
	s.spare = nil
	if p == nil {
		p = &participant{}
	}
	*p = participant{node: node, conn: conn}
	return p
}

// queue sends a statement ahead of the next one.
func (p *participant) queue(sql string) {
	p.conn.SendQuery(sql)
	p.preamble++
}

// open begins a transaction in the same batch as the statement that follows. The node answers both at once, where it would
// answer a query of its own with a packet of its own, and wake the router for it.
func (p *participant) open(begin string) {
	out := p.conn.Stream.Out()
	buf := pgwire.AppendParse(*out, "", p.conn.Wire(begin), nil)
	buf = pgwire.AppendBind(buf, "", "", nil, nil, nil)
	*out = pgwire.AppendExecute(buf, "", 0)
	p.opening, p.unsynced = true, true
}

// syncOpening makes what was opened independent of what follows: after an error PostgreSQL ignores everything up to Sync.
func (p *participant) syncOpening() {
	if p.opening && p.unsynced {
		out := p.conn.Stream.Out()
		*out = pgwire.AppendSync(*out)
		p.unsynced = false
		p.preamble++
	}
}

// owes reports that answers come that are not to what counts.
func (p *participant) owes() bool { return p.opening || p.preamble > 0 }

// flushPreamble runs what was queued, before a use of the connection that cannot read past it.
func (s *session) flushPreamble(p *participant) error {
	if !p.owes() {
		return nil
	}
	s.task.Detach()
	p.syncOpening()
	if err := p.conn.Stream.Flush(); err != nil {
		p.conn.Broken = true
		return lostNode(p.node)
	}
	return s.readPreamble(p)
}

// readPreamble reads the answers to what was queued.
func (s *session) readPreamble(p *participant) error {
	for p.owes() {
		typ, msg, err := p.conn.Stream.Next()
		if err != nil {
			p.conn.Broken = true
			return lostNode(p.node)
		}
		switch typ {
		case 'E':
			p.conn.Broken = true // what follows was meant to run after it
			return pgwire.ParseError(msg)
		case 'S':
			p.conn.ParameterStatus(msg)
		case 'C':
			p.opening = false // it came first
		case 'Z':
			p.preamble--
			p.conn.TxStatus = pgwire.ReadyStatus(msg)
		}
	}
	return nil
}

func lostNode(node string) *pgwire.Error {
	return pgwire.Errorf("08006", "lost the connection to node %q", node)
}

// others runs one statement on all participants, in parallel, and returns the first error.
func (s *session) onAll(ctx context.Context, sql string) error {
	var g errgroup.Group
	for _, p := range s.txn.parts {
		g.Go(func() error {
			if err := s.flushPreamble(p); err != nil {
				return err
			}
			return p.conn.Exec(ctx, sql)
		})
	}
	return g.Wait()
}

func (s *session) abort(ctx context.Context, cause error) error {
	s.task.Detach()
	_ = s.onAll(ctx, "ROLLBACK")
	return cause
}

// rollback ends the transaction without effect.
func (s *session) rollback(ctx context.Context) error {
	s.task.Detach()
	for _, p := range s.txn.parts {
		if p.began && !p.conn.Broken {
			if s.flushPreamble(p) == nil {
				_ = p.conn.Exec(ctx, "ROLLBACK")
			}
		}
	}
	s.restore()
	s.closeTransaction(ctx)
	return nil
}

// restore takes back what the transaction changed in the session.
func (s *session) restore() {
	t := &s.txn
	if t.setAny {
		for _, p := range t.parts {
			if leavesTrace(p.conn, t.saved) && s.hold == "" {
				p.conn.Broken = true
			}
			p.conn.Settings = unknownSettings
		}
		s.changeSettings(t.saved)
	}
}

// closeTransaction forgets the transaction and gives connections back.
func (s *session) closeTransaction(ctx context.Context) {
	t := &s.txn
	if s.schemaChanged {
		s.schemaChanged, s.ownCatalog = false, nil
		t.forgetOIDs()
	}
	s.dropFence(ctx)
	if p := t.part(s.router.view.Load().m.Home); (t.setAny || t.setLocal) && p != nil && !p.conn.Broken {
		s.reportParameters(p.conn.Params) // what the end of the transaction has changed back
	}
	if len(t.parts) > 1 {
		s.endSpan()
	}
	s.namesUnknown = s.namesUnknown || s.spends || t.setLocal // ON COMMIT DROP, the end of SET LOCAL
	t.mode, t.failed = modeIdle, false
	t.consistency, t.aligned = "", false
	t.replay, t.savepoints = t.replay[:0], t.savepoints[:0]
	for _, p := range t.parts {
		p.began, p.wrote, p.other = false, false, false
	}
	s.extended.closePortals()
	if s.hold == "" {
		clear(s.cursors)
	}
	s.release()
	s.leave()
}

// release gives the connections back, unless the session must keep them.
func (s *session) release() {
	t := &s.txn
	kept := t.parts[:0]
	for _, p := range t.parts {
		if s.hold != "" && !p.conn.Broken {
			kept = append(kept, p)
			continue
		}
		s.giveBack(p)
	}
	clear(t.parts[len(kept):])
	t.parts = kept
}

// giveBack returns a connection to the pool. No cancel request of this client can hit it any more
// once it is off the running list.
func (s *session) giveBack(p *participant) {
	s.mu.Lock()
	if i := slices.Index(s.running, p.conn); i >= 0 {
		s.running = slices.Delete(s.running, i, i+1)
	}
	s.mu.Unlock()
	if p.owes() {
		p.conn.Broken = true
	}
	p.conn.Notification = nil
	if p.node == s.router.view.Load().m.Home {
		s.last = lastHome{p.conn, p.conn.Uses}
	}
	s.router.pool.Release(p.conn)
	p.conn = nil
	s.spare = p
}

// giveBackPart returns one connection before the transaction is over.
func (s *session) giveBackPart(p *participant) {
	s.txn.parts = slices.DeleteFunc(s.txn.parts, func(q *participant) bool { return q == p })
	s.giveBack(p)
}

// abandon ends everything when the client is gone.
func (t *transaction) abandon(s *session) {
	for _, p := range t.parts {
		if s.hold != "" {
			s.clean(p.conn)
		}
		if p.resync {
			// Its implicit transaction is open, though no status says so; the next Sync would commit it.
			p.conn.Broken = true
		}
		s.giveBack(p)
	}
	t.parts = nil
}
