package router

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/twopc"
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
	setLocal   bool // SET LOCAL was used: the node tells the old values at the end
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
	preamble int // queries sent ahead whose answers come before those that count
	wrote    bool
	other    bool // it ran something else than fragments that only read
	resync   bool // it got messages of the extended protocol and no Sync yet
	inBatch  bool // it takes part in the current batch of the extended protocol
	// oids translates the node's OIDs; nil for the home node and until it is needed.
	oids    *catalog.OIDMap
	ownOIDs bool // they are of this transaction's own schema
}

// Node names the participant for two-phase commit.
func (p *participant) Node() string { return p.node }

// Exec runs one statement for two-phase commit.
func (p *participant) Exec(ctx context.Context, sql string) error { return p.conn.Exec(ctx, sql) }

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

// inTransaction runs work that needs a transaction over several nodes: in the client's own, or in
// one that commits with the work.
func (s *session) inTransaction(ctx context.Context, work func() error) error {
	if s.txn.failed {
		return errAborted()
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
	if s.hidden[plan.AnySetting] && node != s.router.view.Load().m.Home {
		return nil, errHidden()
	}
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
	p.other = true
	if s.txn.mode != modeIdle && !p.began {
		p.began = true
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

// flushPreamble runs what was queued, before a use of the connection that cannot read past it.
func (s *session) flushPreamble(p *participant) error {
	if p.preamble == 0 {
		return nil
	}
	s.task.Detach()
	if err := p.conn.Stream.Flush(); err != nil {
		p.conn.Broken = true
		return lostNode(p.node)
	}
	return s.readPreamble(p)
}

// readPreamble reads the answers to what was queued.
func (s *session) readPreamble(p *participant) error {
	for p.preamble > 0 {
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

// commit ends the transaction on all nodes, or on none. It returns nil when it is durable.
func (s *session) commit(ctx context.Context) error {
	s.task.Detach()
	t := &s.txn
	if t.failed {
		return s.rollback(ctx)
	}
	var err error
	switch {
	case s.schemaChanged:
		err = s.commitSchema(ctx)
	default:
		err = s.commitParts(ctx)
	}
	if err != nil && !errors.Is(err, twopc.ErrInDoubt) {
		s.restore()
	}
	if t.mode == modeBlock {
		s.passAsides(t.committed) // nobody passes on the answer to a COMMIT that the client did not send
	}
	s.closeTransaction(ctx)
	if errors.Is(err, twopc.ErrInDoubt) {
		return pgwire.Errorf("08007", "the outcome of the transaction is not known yet: %v", err).
			WithHint("It is settled within seconds; look at its effects before you run it again.")
	}
	return err
}

// commitParts commits what the participants have: plainly where at most one of them wrote.
func (s *session) commitParts(ctx context.Context) error {
	parts := slices.DeleteFunc(slices.Clone(s.txn.parts), func(p *participant) bool { return !p.began })
	for _, p := range parts {
		if err := s.flushPreamble(p); err != nil {
			return s.abort(ctx, err)
		}
	}
	if mayWrite(parts) > 1 {
		if err := s.findWriters(ctx, parts); err != nil {
			return s.abort(ctx, err)
		}
	}
	// The home node decides when it takes part: what cannot be prepared (temporary tables, NOTIFY)
	// happens there.
	home := s.router.view.Load().m.Home
	slices.SortStableFunc(parts, func(a, b *participant) int { return rank(a, home) - rank(b, home) })
	writers := 0
	for _, p := range parts {
		if p.wrote {
			writers++
		}
	}
	if writers < 2 {
		return s.commitPlain(ctx, parts)
	}
	list := make([]twopc.Participant, 0, writers)
	for _, p := range parts[:writers] {
		list = append(list, p)
	}
	m := s.router.view.Load().m
	id := twopc.NewID(m.Cluster, parts[0].node)
	s.mu.Lock()
	s.span.gid = id.GID
	s.mu.Unlock()
	err := twopc.Driver{Hook: s.router.cfg.CommitHook, Again: s.another}.Commit(ctx, id, list)
	s.router.measures.twoPhase(err)
	if err != nil {
		_ = s.finishReaders(ctx, parts[writers:], "ROLLBACK")
		return err
	}
	return s.finishReaders(ctx, parts[writers:], "COMMIT")
}

// another opens a further session on a node, as the client's role.
func (s *session) another(ctx context.Context, node string) (twopc.Participant, func(), error) {
	conn, err := s.router.pool.Acquire(ctx, s.poolKey(node), s.creds)
	if err != nil {
		return nil, nil, err
	}
	return &participant{node: node, conn: conn}, func() { s.router.pool.Release(conn) }, nil
}

// mayWrite is how many of the participants can have written.
func mayWrite(parts []*participant) int {
	n := 0
	for _, p := range parts {
		if p.wrote || p.other {
			n++
		}
	}
	return n
}

func rank(p *participant, home string) int {
	switch {
	case p.wrote && p.node == home:
		return 0
	case p.wrote:
		return 1
	case p.other:
		return 2
	}
	return 3
}

// findWriters asks the nodes whose statements looked like reads whether they wrote after all.
func (s *session) findWriters(ctx context.Context, parts []*participant) error {
	var g errgroup.Group
	for _, p := range parts {
		if p.wrote {
			continue
		}
		g.Go(func() error {
			rows, err := p.conn.Query(ctx, "SELECT pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL")
			if err != nil {
				return err
			}
			p.wrote = string(rows[0][0]) == "t"
			return nil
		})
	}
	return g.Wait()
}

// commitPlain commits where at most the first participant wrote. The others have nothing that could be lost, so all of
// them end at once.
func (s *session) commitPlain(ctx context.Context, parts []*participant) error {
	if len(parts) == 0 {
		return nil
	}
	for _, p := range parts[1:] {
		if p.conn.SendQuery("COMMIT"); p.conn.Stream.Flush() != nil {
			p.conn.Broken = true
		}
	}
	parts[0].conn.SendQuery("COMMIT")
	answer, err := s.collect(ctx, parts[0].conn)
	for _, p := range parts[1:] {
		if !p.conn.Broken {
			_, _ = s.collect(ctx, p.conn)
		}
	}
	if err == nil {
		s.txn.committed = answer
	}
	return err
}

// finishReaders ends transactions that wrote nothing; their failure loses nothing.
func (s *session) finishReaders(ctx context.Context, parts []*participant, how string) error {
	var g errgroup.Group
	for _, p := range parts {
		g.Go(func() error {
			_ = p.conn.Exec(ctx, how)
			return nil
		})
	}
	return g.Wait()
}

func (s *session) abort(ctx context.Context, cause error) error {
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
	if p.preamble > 0 {
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
