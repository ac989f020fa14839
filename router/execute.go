package router

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// execute runs one statement of a text in the simple protocol, without ReadyForQuery. It returns
// only errors that end the session; all others have been told to the client.
func (s *session) execute(ctx context.Context, entry *planned, i int, raw []byte) error {
	if st := &entry.statements[i]; st.class != analyze.Begin && st.class != analyze.Commit && !s.staysOnLoop(st) {
		s.task.Detach()
	}
	st, err := s.current(ctx, entry, i)
	if err == nil {
		err = s.runPlanned(ctx, st, raw)
	}
	if err != nil {
		return s.failedIn(ctx, []byte(entry.statements[i].text), err)
	}
	if s.txn.mode == modeIdle {
		s.statementOver(ctx)
	}
	return nil
}

// current is the statement with a plan that holds now: what the same text or another session did
// since it was planned may have changed the schema, the map or what names mean.
func (s *session) current(ctx context.Context, entry *planned, i int) (*plannedStatement, error) {
	st := &entry.statements[i]
	v := s.router.view.Load()
	if st.lifted || st.plan == nil && st.err == nil || s.txn.failed {
		return st, nil
	}
	if err := s.learnNames(ctx); err != nil {
		return nil, err
	}
	if !s.schemaChanged && entry.epoch == v.m.Epoch && entry.space == s.space && (!st.unknown() || len(entry.statements) == 1) {
		return st, nil
	}
	stmts, err := analyze.Parse(st.text)
	if err != nil || len(stmts) != 1 {
		return st, err
	}
	fresh, _, err := s.planStatements(ctx, v, stmts, nil, false)
	if err != nil {
		return nil, err
	}
	return &fresh.statements[0], nil
}

// runPlanned runs a statement, with a new plan if the map changes before it has begun.
func (s *session) runPlanned(ctx context.Context, st *plannedStatement, raw []byte) error {
	for {
		err := s.run(ctx, st, raw)
		if !errors.Is(err, errOtherEpoch) {
			return err
		}
		if st, err = s.planAgain(ctx, st, nil); err != nil {
			return err
		}
	}
}

// planAgain plans a statement under the current map.
func (s *session) planAgain(ctx context.Context, st *plannedStatement, params []uint32) (*plannedStatement, error) {
	stmts, err := analyze.Parse(st.text)
	if err != nil || len(stmts) != 1 {
		return nil, errStale()
	}
	entry, _, err := s.planStatements(ctx, s.router.view.Load(), stmts, params, false)
	if err != nil {
		return nil, err
	}
	return &entry.statements[0], entry.statements[0].err
}

// run executes one statement; its errors are for the client unless they end the session.
func (s *session) run(ctx context.Context, st *plannedStatement, raw []byte) error {
	if st.err != nil {
		if s.txn.failed {
			return errAborted()
		}
		return st.err
	}
	if st.plan == nil {
		return s.own(ctx, st)
	}
	if to := st.signalled(); to.pid != 0 {
		return s.signal(ctx, st.signal, to, true, false)
	}
	s.count(st.plan.Kind, "")
	switch st.plan.Kind {
	case plan.Every:
		return s.measured(st, s.every(ctx, st))
	case plan.NodeByNode:
		return s.measured(st, s.nodeByNode(ctx, st))
	case plan.CopyIn:
		return s.copyIn(ctx, st)
	case plan.Distribute:
		return s.inUTF8(ctx, func() error { return s.place(ctx, st.plan.Placing, nil) })
	case plan.Spread:
		return s.spread(ctx, st, arguments{}, true)
	}
	return s.routeOne(ctx, st, raw)
}

// measured makes plans look at the sizes of tables again after VACUUM and ANALYZE.
func (s *session) measured(st *plannedStatement, err error) error {
	if word := strings.ToUpper(firstWord(st.text)); err == nil && (word == "ANALYZE" || word == "VACUUM" || word == "ANALYSE") {
		s.router.sizes.forget(s.database)
	}
	return err
}

// routeOne runs a Route that is not the whole message, or whose values are computed first.
func (s *session) routeOne(ctx context.Context, st *plannedStatement, raw []byte) error {
	if st.plan.Rewrite != nil {
		return s.rewritten(ctx, st)
	}
	node, fresh, err := s.route(ctx, st.plan, s)
	if err != nil {
		if st, err = s.severalNodes(ctx, st, st.text, nil, err); err != nil {
			return err
		}
		return s.spread(ctx, st, arguments{}, true)
	}
	if fresh {
		return errOtherEpoch
	}
	p, err := s.answering(ctx, node)
	if err != nil {
		return err
	}
	if st.class == analyze.Copy {
		if err := s.copies(ctx, p, st.text); err != nil {
			return err
		}
	}
	p.wrote = p.wrote || st.plan.Writes
	if raw != nil {
		p.conn.Stream.Append(raw)
	} else {
		s.sendText(p.conn, st.text)
	}
	if explains(st) {
		return s.explained(ctx, st, p)
	}
	s.relay.keepReady = true
	failed, err := s.exchange(ctx, p)
	s.relay.keepReady = false
	if err != nil {
		return err
	}
	if failed {
		s.stopped = true
		if s.txn.mode != modeIdle {
			s.txn.failed = true
		}
		return nil
	}
	s.effects(ctx, st, p)
	return nil
}

// errOtherEpoch is a plan that was made under another map than the one the statement entered. Nothing has been sent
// yet, so that the statement is planned again.
var errOtherEpoch = fmt.Errorf("planned under another map: %w", errStale())

// errStale is a change of the map that a statement under way cannot follow.
func errStale() *pgwire.Error {
	return pgwire.Errorf("40001", "the map changed while the statement was under way").
		WithHint("Run the transaction again.")
}

// evaluate computes expressions on the home node, in the session's transaction.
func (s *session) evaluate(ctx context.Context, exprs []string) (values [][]byte, types []uint32, err error) {
	conn, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	var list, outer strings.Builder
	for i, e := range exprs {
		if i > 0 {
			list.WriteString(", ")
			outer.WriteString(", ")
		}
		name := "v" + itoa(i)
		list.WriteString("(" + e + ") AS " + name)
		outer.WriteString(name + "::text, pg_catalog.pg_typeof(" + name + ")::oid")
	}
	// OFFSET 0 keeps each expression evaluated once.
	rows, err := conn.Query(ctx, "SELECT "+outer.String()+" FROM (SELECT "+list.String()+" OFFSET 0) AS computed")
	if err != nil {
		return nil, nil, err
	}
	for i := range exprs {
		values = append(values, rows[0][2*i])
		types = append(types, atoi(rows[0][2*i+1]))
	}
	return values, types, nil
}

// computed gives operands their values when some were evaluated beforehand.
type computed struct {
	exec.Values
	session *session
	values  [][]byte
}

func (c *computed) Value(o *plan.Operand) (exec.Value, error) {
	if o.Eval == 0 {
		return c.Values.Value(o)
	}
	v := c.values[o.Eval-1]
	return c.session.clientKey(exec.Value{Data: v, Null: v == nil}, o)
}

// rewritten runs a statement whose values are computed once and then sent as parameters.
func (s *session) rewritten(ctx context.Context, st *plannedStatement) error {
	rw := st.plan.Rewrite
	values, types, err := s.evaluate(ctx, rw.Eval)
	if err != nil {
		return err
	}
	node, fresh, err := s.route(ctx, st.plan, &computed{s, s, values})
	if err != nil {
		if st, err = s.severalNodes(ctx, st, st.text, nil, err); err != nil {
			return err
		}
		return s.spread(ctx, st, arguments{computed: &computedValues{rw.Eval, values, types}}, true)
	}
	if fresh {
		return errOtherEpoch
	}
	return s.sendParams(ctx, st, node, rw.Text, types, values)
}

// sendParams runs a text with parameters on a node for a client that spoke the simple protocol.
func (s *session) sendParams(ctx context.Context, st *plannedStatement, node, text string, types []uint32, values [][]byte) error {
	p, err := s.answering(ctx, node)
	if err != nil {
		return err
	}
	p.wrote = p.wrote || st.plan.Writes
	appendStatement(p, text, arguments{types: types, values: values})
	s.relay.keepReady, s.relay.extended = true, true
	for _, t := range []byte("12n") {
		s.relay.Watch[t] = true
	}
	failed, err := s.exchange(ctx, p)
	for _, t := range []byte("12n") {
		s.relay.Watch[t] = false
	}
	s.relay.keepReady, s.relay.extended = false, false
	if err != nil {
		return err
	}
	if failed {
		s.stopped = true
		s.failBlock()
		return nil
	}
	s.effects(ctx, st, p)
	return nil
}

// appendStatement sends a text with parameters in the extended protocol.
func appendStatement(p *participant, text string, a arguments) {
	out := p.conn.Stream.Out()
	buf := pgwire.AppendParse(*out, "", p.conn.Wire(text), p.typesAt(a.types))
	buf = pgwire.AppendBind(buf, "", "", a.formats, p.valuesAt(a.types, a.formats, a.values), a.results)
	buf = pgwire.AppendDescribe(buf, pgwire.Portal, "")
	buf = pgwire.AppendExecute(buf, "", 0)
	*out = pgwire.AppendSync(buf)
}
