package router

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// every runs a statement on all nodes in one transaction: the home node first, whose answer the
// client gets, so that concurrent ones queue up there.
func (s *session) every(ctx context.Context, st *plannedStatement) error {
	var answer []byte
	err := s.inTransaction(ctx, func() (err error) {
		answer, err = s.everyNode(ctx, st)
		return err
	})
	if err == nil {
		s.client.Append(answer)
	}
	return err
}

func (s *session) everyNode(ctx context.Context, st *plannedStatement) ([]byte, error) {
	tables := st.plan.Tables
	if st.plan.Schema {
		tables = append([]uint32{schemaTable}, tables...)
		if err := s.raiseFence(ctx, st.plan.Fenced); err != nil {
			return nil, err
		}
	}
	m, err := s.enterAny(ctx, tables)
	if err == nil && st.plan.Schema {
		err = s.disconnect(ctx, m, st.text)
	}
	if err != nil {
		return nil, err
	}
	text, err := s.withVerifier(st)
	if err != nil {
		return nil, err
	}
	other := st.plan.OtherText
	var args *arguments
	if rw := st.plan.Rewrite; rw != nil {
		args, text = &arguments{}, rw.Text
		if args.values, args.types, err = s.evaluate(ctx, rw.Eval); err != nil {
			return nil, err
		}
	}
	if other == "" {
		other = text
	}
	atHome := args
	if e := st.plan.Exchange; e != nil {
		if text, atHome, err = s.gathered(ctx, st, e); err != nil {
			return nil, err
		}
	}
	var answer []byte
	err = s.withLent(ctx, m, st.plan.Lent, func() (err error) {
		answer, err = s.onHome(ctx, m, text, atHome)
		return err
	})
	if err != nil {
		return nil, err
	}
	if st.plan.Schema {
		s.schemaChanged, s.ownCatalog = true, nil
		s.txn.forgetOIDs()
	}
	if st.plan.Shape != nil {
		if other, err = s.shape(ctx, m, st.plan.Shape); err != nil {
			return nil, err
		}
	}
	if err := s.onOthers(ctx, m, st, other, args); err != nil {
		return nil, err
	}
	if st.plan.Hold != "" { // before the transaction ends and gives the connections back
		s.keep(st.plan.Hold)
		s.noteHidden(st.plan.Sets)
	}
	s.namesUnknown = s.namesUnknown || s.spends // DROP ... CASCADE reaches temporary views
	return answer, nil
}

// enterAny enters tables under whatever view is current; used where the plan does not depend on it.
func (s *session) enterAny(ctx context.Context, tables []uint32) (*keyspace.Map, error) {
	for {
		epoch := s.router.view.Load().m.Epoch
		v, err := s.enter(ctx, tables, epoch)
		if err != nil {
			return nil, err
		}
		if v.m.Epoch == epoch {
			return v.m, nil
		}
	}
}

func (s *session) onHome(ctx context.Context, m *keyspace.Map, text string, args *arguments) ([]byte, error) {
	p, err := s.participant(ctx, m.Home)
	if err != nil {
		return nil, err
	}
	if err := s.flushPreamble(p); err != nil {
		return nil, err
	}
	p.wrote = true
	if args != nil {
		appendStatement(p, text, *args)
	} else {
		s.sendText(p.conn, text)
	}
	return s.collect(ctx, p.conn)
}

// onOthers runs the statement on all nodes but home, in parallel.
func (s *session) onOthers(ctx context.Context, m *keyspace.Map, st *plannedStatement, text string, args *arguments) error {
	var g errgroup.Group
	for _, n := range m.Nodes {
		if n.Name == m.Home || n.State == keyspace.NodeJoining {
			continue
		}
		p, err := s.participant(ctx, n.Name)
		if err == nil && args != nil {
			err = s.knowOIDs(ctx, p)
		}
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		p.wrote = true
		g.Go(func() error {
			if err := s.flushPreamble(p); err != nil {
				return err
			}
			if args != nil {
				own := *args
				own.types, own.values = usedOnly(own.types, own.values, textParameters(text))
				appendStatement(p, text, own)
			} else {
				s.sendText(p.conn, text)
			}
			if _, err := s.collect(ctx, p.conn); err != nil {
				return onNode(n.Name, err)
			}
			if !st.plan.Schema {
				return nil
			}
			return onNode(n.Name, p.conn.Exec(ctx, "SELECT pg_shoal.place_sequences(), pg_shoal.forget_dropped()"))
		})
	}
	return g.Wait()
}

// onNode names the node in an error that the client did not expect from elsewhere.
func onNode(node string, err error) error {
	var e *pgwire.Error
	if err == nil || !errors.As(err, &e) {
		return err
	}
	out := *e
	where := "on node " + node
	if out.Where != "" {
		where = out.Where + "\n" + where
	}
	out.Where = where
	return &out
}

// nodeByNode runs what PostgreSQL refuses inside a transaction: one node after the other. When one
// fails the error says which nodes have it.
func (s *session) nodeByNode(ctx context.Context, st *plannedStatement) error {
	if s.txn.mode != modeIdle || s.txn.failed {
		// PostgreSQL's own refusal is the right answer, also in a text of several statements.
		return s.routeOne(ctx, &plannedStatement{class: st.class, text: st.text, plan: &plan.Plan{Epoch: s.router.view.Load().m.Epoch, Writes: true}}, nil)
	}
	tables := st.plan.Tables
	if st.plan.Schema {
		tables = append([]uint32{schemaTable}, tables...)
	}
	m, err := s.enterAny(ctx, tables)
	if err != nil {
		return err
	}
	if err := s.disconnect(ctx, m, st.text); err != nil {
		return err
	}
	if st.plan.Schema {
		if err := s.router.storeReachable(ctx); err != nil {
			return err
		}
	}
	var answer []byte
	var done []string
	for _, name := range homeFirst(m) {
		a, err := s.atNodeAlone(ctx, name, st.text)
		if s.inUseByRouters(ctx, name, st.text, err) {
			a, err = s.atNodeAlone(ctx, name, st.text)
		}
		if name == m.Home {
			answer = a
		}
		if err != nil {
			return partly(st, name, done, homeFirst(m), err)
		}
		done = append(done, name)
	}
	if st.plan.Schema {
		s.release()
		s.databaseChanged(ctx, st.text)
		s.publishSchema(ctx)
	}
	s.client.Append(answer)
	return nil
}

func homeFirst(m *keyspace.Map) []string {
	names := []string{m.Home}
	for _, n := range m.Nodes {
		if n.Name != m.Home && n.State != keyspace.NodeJoining {
			names = append(names, n.Name)
		}
	}
	return names
}

// partly explains a statement that ran on some nodes only.
func partly(st *plannedStatement, failed string, done, all []string, err error) error {
	var e *pgwire.Error
	if !errors.As(err, &e) {
		e = pgwire.Errorf(pgwire.CodeInternal, "%v", err)
	}
	if len(done) == 0 {
		return e
	}
	out := *e
	detail := "The statement failed on node " + failed + ". It is done on: " + strings.Join(done, ", ") + "."
	if rest := all[len(done)+1:]; len(rest) > 0 {
		detail += " Not tried on: " + strings.Join(rest, ", ") + "."
	}
	out.Detail = strings.TrimSpace(out.Detail + " " + detail)
	out.Hint = "Remove the cause and run the statement again with IF NOT EXISTS or IF EXISTS, or undo it; `pgshoal schema diff` shows where the nodes differ."
	return &out
}

// atNodeAlone runs a statement that cannot be part of a transaction on one node.
func (s *session) atNodeAlone(ctx context.Context, node, text string) ([]byte, error) {
	p, err := s.participant(ctx, node)
	if err != nil {
		return nil, err
	}
	s.sendText(p.conn, text)
	return s.collect(ctx, p.conn)
}
