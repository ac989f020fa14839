package router

import (
	"context"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// own executes the statements that concern the session and its transaction.
func (s *session) own(ctx context.Context, st *plannedStatement) error {
	switch st.class {
	case analyze.Begin:
		return s.beginTransaction(ctx, st)
	case analyze.Commit:
		return s.commitStatement(ctx, st)
	case analyze.Rollback:
		return s.rollbackStatement(ctx, st)
	case analyze.Savepoint, analyze.Release, analyze.RollbackTo:
		return s.savepoint(ctx, st)
	case analyze.Set:
		return s.set(ctx, st)
	case analyze.Show:
		return s.show(ctx, st)
	case analyze.Discard:
		return s.discard(ctx, st)
	case analyze.SetConstraints:
		return s.everywhere(ctx, st)
	case analyze.PrepareTransaction:
		return s.prepareTransaction(ctx, st)
	case analyze.FinishPrepared:
		return s.toHome(ctx, st, "")
	case analyze.Fetch, analyze.CloseCursor:
		return s.cursor(ctx, st)
	case analyze.Prepare:
		return s.prepareStatement(ctx, st)
	case analyze.Execute:
		return s.executeStatement(ctx, st)
	}
	return s.deallocate(ctx, st)
}

func (s *session) beginTransaction(ctx context.Context, st *plannedStatement) error {
	if s.txn.failed {
		return errAborted()
	}
	if s.txn.mode == modeExplicit {
		notice := pgwire.Noticef("25001", "there is already a transaction in progress")
		notice.Severity, notice.SeverityRaw = "WARNING", "WARNING"
		out := s.client.Out()
		*out = notice.AppendNoticeTo(*out)
		s.complete("BEGIN")
		return nil
	}
	if s.txn.mode == modeBlock && s.begun() {
		s.txn.mode = modeExplicit // what the same text did before belongs to the transaction
	} else {
		s.open(modeExplicit, st.text)
	}
	tag := "BEGIN"
	if st.tree.Tree.GetTransactionStmt().GetKind() == pg.TransactionStmtKind_TRANS_STMT_START {
		tag = "START TRANSACTION"
	}
	s.complete(tag)
	return nil
}

func (s *session) commitStatement(ctx context.Context, st *plannedStatement) error {
	chain := st.tree.Tree.GetTransactionStmt().GetChain()
	if s.txn.mode != modeExplicit {
		return s.noTransaction(ctx, "COMMIT", chain)
	}
	begin, failed := s.txn.begin, s.txn.failed
	if err := s.commit(ctx); err != nil {
		return err
	}
	switch {
	case failed:
		s.complete("ROLLBACK")
	case s.txn.committed != nil:
		s.client.Append(s.txn.committed)
	default:
		s.complete("COMMIT")
	}
	if chain {
		s.open(modeExplicit, begin)
	}
	return nil
}

func (s *session) rollbackStatement(ctx context.Context, st *plannedStatement) error {
	chain := st.tree.Tree.GetTransactionStmt().GetChain()
	if s.txn.mode != modeExplicit {
		return s.noTransaction(ctx, "ROLLBACK", chain)
	}
	begin := s.txn.begin
	_ = s.rollback(ctx)
	s.complete("ROLLBACK")
	if chain {
		s.open(modeExplicit, begin)
	}
	return nil
}

func (s *session) noTransaction(ctx context.Context, tag string, chain bool) error {
	if chain {
		return pgwire.Errorf("25P01", "%s AND CHAIN can only be used in transaction blocks", tag)
	}
	if err := s.protectBatch(ctx); err != nil {
		return err
	}
	if s.txn.mode == modeBlock && len(s.txn.parts) > 0 {
		// Inside a text of several statements, or a pipeline, it ends what came before.
		var err error
		if tag == "COMMIT" {
			err = s.commit(ctx)
		} else {
			err = s.rollback(ctx)
		}
		if err != nil {
			return err
		}
	}
	notice := pgwire.Noticef("25P01", "there is no transaction in progress")
	notice.Severity, notice.SeverityRaw = "WARNING", "WARNING"
	out := s.client.Out()
	*out = notice.AppendNoticeTo(*out)
	s.complete(tag)
	return nil
}

// savepoint handles SAVEPOINT, RELEASE and ROLLBACK TO on all nodes of the transaction; nodes that
// join later get the savepoints that are still set.
func (s *session) savepoint(ctx context.Context, st *plannedStatement) error {
	t := &s.txn
	name := st.tree.Tree.GetTransactionStmt().GetSavepointName()
	if t.mode != modeExplicit {
		return pgwire.Errorf("25P01", "%s can only be used in transaction blocks", savepointCommand(st.class))
	}
	if t.failed && st.class != analyze.RollbackTo {
		return errAborted()
	}
	at := len(t.savepoints) - 1
	for at >= 0 && t.savepoints[at].name != name {
		at--
	}
	if st.class != analyze.Savepoint && at < 0 {
		return pgwire.Errorf("3B001", "savepoint %q does not exist", name)
	}
	if err := s.onBegun(ctx, st.text); err != nil {
		return err
	}
	switch st.class {
	case analyze.Savepoint:
		t.savepoints = append(t.savepoints, savepoint{name: name, replay: len(t.replay), settings: s.settings})
		t.replay = append(t.replay, st.text)
	case analyze.Release:
		// What was set since stays; the savepoint itself no longer matters to nodes that join.
		t.savepoints = t.savepoints[:at]
		t.replay = append(t.replay, st.text)
	case analyze.RollbackTo:
		sp := t.savepoints[at]
		t.savepoints = t.savepoints[:at+1]
		t.replay = append(t.replay[:sp.replay], "SAVEPOINT "+plan.QuoteIdent(name))
		t.failed = false
		s.ownCatalog = nil
		s.txn.forgetOIDs()
		s.namesUnknown = s.namesUnknown || s.spends || t.setLocal
		if s.settings != sp.settings {
			s.changeSettings(sp.settings)
			for _, p := range t.parts {
				p.conn.Settings = unknownSettings
			}
		}
	}
	s.complete(savepointWords(st.class))
	if p := t.part(s.router.view.Load().m.Home); st.class == analyze.RollbackTo && p != nil && !p.conn.Broken {
		s.reportParameters(p.conn.Params) // what the rollback has changed back
	}
	return nil
}

func savepointCommand(c analyze.Class) string {
	switch c {
	case analyze.Savepoint:
		return "SAVEPOINT"
	case analyze.Release:
		return "RELEASE SAVEPOINT"
	}
	return "ROLLBACK TO SAVEPOINT"
}

func savepointWords(c analyze.Class) string {
	switch c {
	case analyze.Savepoint:
		return "SAVEPOINT"
	case analyze.Release:
		return "RELEASE"
	}
	return "ROLLBACK"
}

// onBegun runs a statement on every node where the transaction has begun.
func (s *session) onBegun(ctx context.Context, sql string) error {
	for _, p := range s.txn.parts {
		if !p.began {
			continue
		}
		if err := s.flushPreamble(p); err != nil {
			return err
		}
		if err := p.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// everywhere runs a statement like SET CONSTRAINTS or SET LOCAL on all nodes of the transaction,
// now and when they join.
func (s *session) everywhere(ctx context.Context, st *plannedStatement) error {
	if s.txn.failed {
		return errAborted()
	}
	// The home node checks the statement and gives the answer.
	conn, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return err
	}
	defer done()
	s.sendText(conn, st.text)
	answer, err := s.collect(ctx, conn)
	if err != nil {
		return err
	}
	for _, p := range s.txn.parts {
		if p.conn == conn || !p.began {
			continue
		}
		if err := s.flushPreamble(p); err != nil {
			return err
		}
		if err := p.conn.Exec(ctx, st.text); err != nil {
			return err
		}
	}
	if s.txn.mode != modeIdle {
		s.txn.replay = append(s.txn.replay, st.text)
		s.txn.setLocal = true
		s.namesUnknown = s.namesUnknown || changesNames(st)
	}
	s.client.Append(answer)
	s.reportParameters(conn.Params)
	return nil
}

// cursor sends FETCH, MOVE and CLOSE to the node where the cursor is.
func (s *session) cursor(ctx context.Context, st *plannedStatement) error {
	if s.txn.failed {
		return errAborted()
	}
	p, err := s.answering(ctx, s.cursorNode(cursorName(st.tree.Tree)))
	if err != nil {
		return err
	}
	s.sendText(p.conn, st.text)
	s.relay.keepReady = true
	failed, err := s.exchange(ctx, p)
	s.relay.keepReady = false
	if err == nil && failed {
		s.stopped = true
		s.failBlock()
	}
	return err
}

// cursorName is the cursor that a statement is about, "" for other statements.
func cursorName(n *pg.Node) string {
	switch e := n.Node.(type) {
	case *pg.Node_FetchStmt:
		return e.FetchStmt.Portalname
	case *pg.Node_ClosePortalStmt:
		return e.ClosePortalStmt.Portalname
	case *pg.Node_DeclareCursorStmt:
		return e.DeclareCursorStmt.Portalname
	}
	return ""
}

// cursorNode is where a cursor lives; one that nobody knows is the home node's to complain about.
func (s *session) cursorNode(name string) string {
	if node, ok := s.cursors[name]; ok {
		return node
	}
	return s.router.view.Load().m.Home
}

// noteCursor remembers where a cursor was declared. SQL's cursors and the protocol's portals share
// their names.
func (s *session) noteCursor(st *plannedStatement, p *participant) {
	stmts, err := analyze.Parse(st.text)
	if err != nil || len(stmts) != 1 {
		return
	}
	if s.cursors == nil {
		s.cursors, s.cursorsApart = map[string]string{}, map[string]bool{}
	}
	name := cursorName(stmts[0].Tree)
	s.cursors[name], s.cursorsApart[name] = p.node, st.plan.Kind == plan.Spread
}

// discard resets the session.
func (s *session) discard(ctx context.Context, st *plannedStatement) error {
	if s.txn.failed {
		return errAborted()
	}
	target := st.tree.Tree.GetDiscardStmt().GetTarget()
	if target != pg.DiscardMode_DISCARD_ALL {
		p := &plan.Plan{Epoch: s.router.view.Load().m.Epoch}
		err := s.routeOne(ctx, &plannedStatement{class: st.class, text: st.text, plan: p}, nil)
		if err == nil && !s.stopped && target == pg.DiscardMode_DISCARD_TEMP {
			s.namesUnknown = true
		}
		return err
	}
	if s.txn.mode != modeIdle {
		return pgwire.Errorf("25001", "DISCARD ALL cannot run inside a transaction block")
	}
	for _, p := range s.txn.parts {
		s.clean(p.conn)
	}
	s.hold, s.spends, s.listening, s.temporary, s.temporaryCode, s.cursors = "", false, false, nil, nil, nil
	s.pinned.Store("")
	s.extended.statements = nil
	s.namesUnknown, s.hidden = false, nil
	s.changeSettings(s.startup)
	s.release()
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return err
	}
	defer done()
	s.complete("DISCARD ALL")
	s.reportParameters(conn.Params)
	return nil
}
