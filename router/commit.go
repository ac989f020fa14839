package router

import (
	"context"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/twopc"
)

// commit ends the transaction on all nodes, or on none. It returns nil when it is durable.
//
// Where it only waits for nodes that have written, the loop goes on with other sessions meanwhile.
func (s *session) commit(ctx context.Context) error {
	t := &s.txn
	if t.failed {
		return s.rollback(ctx)
	}
	var err error
	switch {
	case s.schemaChanged:
		s.task.Detach()
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
	err := s.commitTwoPhase(ctx, parts[:writers])
	s.router.measures.twoPhase(err)
	if err != nil {
		_ = s.finishReaders(ctx, parts[writers:], "ROLLBACK")
		return err
	}
	return s.finishReaders(ctx, parts[writers:], "COMMIT")
}

// commitTwoPhase commits where several have written; the first decides.
func (s *session) commitTwoPhase(ctx context.Context, parts []*participant) error {
	list := make([]twopc.Participant, len(parts))
	for i, p := range parts {
		list[i] = &writer{s.router, p.conn, s.hold == "" && !s.schemaChanged}
		parkNode(p, s.task)
		defer parkNode(p, nil)
	}
	id := twopc.NewID(s.router.view.Load().m.Cluster, parts[0].node)
	s.mu.Lock()
	s.span.gid = id.GID
	s.mu.Unlock()
	return twopc.Driver{Hook: s.router.cfg.CommitHook, Again: s.another, Blocks: s.task.Detach}.Commit(ctx, id, list)
}

// another opens a further session on a node, as the client's role.
func (s *session) another(ctx context.Context, node string) (twopc.Participant, func(), error) {
	conn, err := s.router.pool.Acquire(ctx, s.poolKey(node), s.creds)
	if err != nil {
		return nil, nil, err
	}
	return &writer{s.router, conn, true}, func() { s.router.pool.Release(conn) }, nil
}

// writer is a node that takes part in two-phase commit.
type writer struct {
	router *Router
	*pool.Conn
	keeps bool // not for a client that has the connection to itself and sees what is prepared there, nor for what is rare
}

// Node names it.
func (w *writer) Node() string { return w.Key.Node }

// Keep prepares one of the few statements of two-phase commit.
func (w *writer) Keep(ctx context.Context, sql string) (string, error) {
	if !w.keeps {
		return "", nil
	}
	id, known := w.router.kept.Load(sql)
	if !known {
		id, _ = w.router.kept.LoadOrStore(sql, w.router.plans.lastID.Add(1))
	}
	return w.Conn.Keep(ctx, id.(uint64), sql)
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
	if !slices.ContainsFunc(parts, func(p *participant) bool { return !p.wrote }) {
		return nil
	}
	s.task.Detach()
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
	for _, p := range parts {
		parkNode(p, s.task)
		defer parkNode(p, nil)
	}
	for _, p := range parts[1:] {
		if p.conn.SendQuery("COMMIT"); p.conn.Stream.Flush() != nil {
			p.conn.Broken = true
		}
	}
	parts[0].conn.SendQuery("COMMIT")
	answer, err := s.answerOf(parts[0].conn)
	for _, p := range parts[1:] {
		if !p.conn.Broken {
			_, _ = s.answerOf(p.conn)
		}
	}
	if err == nil {
		s.txn.committed = answer
	}
	return err
}

// finishReaders ends transactions that wrote nothing; their failure loses nothing.
func (s *session) finishReaders(ctx context.Context, parts []*participant, how string) error {
	if len(parts) == 0 {
		return nil
	}
	s.task.Detach()
	var g errgroup.Group
	for _, p := range parts {
		g.Go(func() error {
			_ = p.conn.Exec(ctx, how)
			return nil
		})
	}
	return g.Wait()
}
