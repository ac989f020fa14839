package router

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pganalyze/pg_query_go/v6/parser"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/ioloop"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// simple answers a Query message.
func (s *session) simple(ctx context.Context, msg []byte) error {
	ctx, raw, err := s.beginQuery(ctx, msg)
	if err != nil {
		return err
	}
	defer s.finish()
	entry, err := s.planRaw(ctx, raw)
	if err != nil {
		s.report(s.nodeError(ctx, s.text, err))
		s.statementOver(ctx)
		return s.ready()
	}
	switch len(entry.statements) {
	case 0:
		out := s.client.Out()
		*out = pgwire.AppendEmptyQueryResponse(*out)
		return s.ready()
	case 1:
		return s.simpleOne(ctx, entry, msg)
	}
	return s.simpleMany(ctx, entry, msg)
}

// beginQuery begins the answer to a Query message, whose text it returns; finish ends it.
func (s *session) beginQuery(ctx context.Context, msg []byte) (context.Context, []byte, error) {
	raw, err := pgwire.QueryText(msg)
	if err != nil {
		return ctx, nil, err
	}
	s.stopped, s.replica = false, false
	ctx = s.begin(ctx, raw, false)
	s.txn.dropPortal(s)
	return ctx, raw, nil
}

// planRaw plans what the client sent in its encoding.
func (s *session) planRaw(ctx context.Context, raw []byte) (*planned, error) {
	text, err := s.readStatement(ctx, raw)
	s.raw, s.text = raw, text
	if err != nil {
		return nil, err
	}
	return s.planText(ctx, text)
}

// simpleOne is the hot path: one statement, most often for one node, its bytes passed on as they
// came and the answer's bytes too.
func (s *session) simpleOne(ctx context.Context, entry *planned, msg []byte) error {
	for {
		st := &entry.statements[0]
		if st.plan == nil || st.plan.Kind != plan.Route || st.plan.Rewrite != nil || explains(st) || st.signalled().pid != 0 {
			break
		}
		node, fresh, err := s.route(ctx, st.plan, s)
		if err == nil && fresh {
			if entry, err = s.planText(ctx, s.text); err == nil {
				continue
			}
		}
		if err == nil {
			return s.forward(ctx, st, node, msg)
		}
		if st, err = s.severalLiterals(ctx, st, err); err == nil {
			return s.simpleSpread(ctx, st)
		}
		if err = s.failed(ctx, err); err != nil {
			return err
		}
		return s.ready()
	}
	if err := s.execute(ctx, entry, 0, msg); err != nil {
		return err
	}
	return s.ready()
}

// simpleSpread runs a statement that turned out to need several nodes.
func (s *session) simpleSpread(ctx context.Context, st *plannedStatement) error {
	s.count(plan.Spread, "")
	if err := s.spread(ctx, st, arguments{}, true); err != nil {
		if err = s.failed(ctx, err); err != nil {
			return err
		}
	}
	s.statementOver(ctx)
	return s.ready()
}

// failed reports an error of a statement; it returns only errors that end the session.
func (s *session) failed(ctx context.Context, err error) error {
	return s.failedIn(ctx, s.text, err)
}

// failedIn is failed for one statement of a text.
func (s *session) failedIn(ctx context.Context, text []byte, err error) error {
	if errors.Is(err, errClientGone) {
		_ = s.client.Flush()
		return err
	}
	if errors.Is(err, errShown) {
		s.statementOver(ctx)
		return nil
	}
	s.report(s.nodeError(ctx, text, err))
	s.statementOver(ctx)
	return nil
}

// forward sends the client's bytes to the node and relays the answer, ReadyForQuery included.
func (s *session) forward(ctx context.Context, st *plannedStatement, node string, msg []byte) error {
	p, err := s.answering(ctx, node)
	if err == nil && s.needsSequence(st.plan) {
		err = s.checkSequence(p)
	}
	if err == nil && st.class == analyze.Copy {
		err = s.copies(ctx, p, string(s.text))
	}
	if err != nil {
		if err = s.failed(ctx, err); err != nil {
			return err
		}
		return s.ready()
	}
	s.count(plan.Route, node)
	p.wrote = p.wrote || st.plan.Writes
	p.conn.Stream.Append(msg)
	failed, err := s.exchangeParked(ctx, p)
	if err != nil {
		if err = s.failed(ctx, err); err != nil {
			return err
		}
		return s.ready()
	}
	if !failed {
		s.effects(ctx, st, p)
		s.keepsSequence(p)
	} else if s.txn.mode == modeExplicit {
		s.txn.failed = true
	}
	s.statementOver(ctx)
	return s.client.Flush()
}

// exchange sends what is pending to the node and relays its answer.
func (s *session) exchange(ctx context.Context, p *participant) (failed bool, err error) {
	if err := p.conn.Stream.Flush(); err != nil {
		p.conn.Broken = true
		return true, lostNode(p.node)
	}
	return s.answer(ctx, p)
}

// exchangeParked is exchange where the loop may go on with the session when the answer comes.
func (s *session) exchangeParked(ctx context.Context, p *participant) (failed bool, err error) {
	s.park(p, s.task)
	failed, err = s.exchange(ctx, p)
	s.park(p, nil)
	return failed, err
}

func (s *session) park(p *participant, t *ioloop.Task) {
	parkNode(p, t)
	s.client.Socket.ParkWrites(t)
}

func parkNode(p *participant, t *ioloop.Task) {
	node := p.conn.Stream.Socket
	node.ParkReads(t)
	node.ParkWrites(t)
}

// statementOver gives connections back when no transaction is open.
func (s *session) statementOver(ctx context.Context) {
	if s.txn.mode == modeIdle {
		s.dropFence(ctx)
		s.release()
		s.leave()
	}
}

// effects notes what a statement changed in the session.
func (s *session) effects(ctx context.Context, st *plannedStatement, p *participant) {
	if st.plan == nil {
		return
	}
	if st.plan.Hold != "" {
		s.keep(st.plan.Hold)
		s.noteTemporaryCode(st)
		s.noteHidden(st.plan.Sets)
		s.namesUnknown = s.namesUnknown || s.spends
	}
	switch st.class {
	case analyze.Listen:
		s.listen(p.conn)
	case analyze.Declare:
		s.noteCursor(st, p)
	}
	for _, set := range st.plan.Settings {
		s.settingChanged(ctx, p, set.Name, set.Local)
	}
}

// keep holds the server connections from now on.
func (s *session) keep(why string) {
	s.hold = why
	s.pinned.Store(why)
	switch why {
	case "LISTEN", "session advisory lock", "prepared statement", "cursor with hold", "sequence values":
	default: // DISCARD ALL leaves a temporary schema, a seed, a library, the name of a setting
		s.spends = true
	}
}

// clean makes a kept connection fit for other sessions, or ends it.
func (s *session) clean(c *pool.Conn) { c.Dirty, c.Spent = !s.spends, s.spends }

// route finds the node of a Route plan and enters its tables. Fresh reports that the plan is of
// an older epoch and must be made again.
func (s *session) route(ctx context.Context, p *plan.Plan, values exec.Values) (node string, fresh bool, err error) {
	if s.txn.failed {
		return "", false, errAborted()
	}
	v, err := s.enter(ctx, p.Tables, p.Epoch)
	if err != nil {
		return "", false, err
	}
	if v.m.Epoch != p.Epoch && !s.schemaChanged {
		return "", true, nil
	}
	s.replica = s.readsReplica(p)
	if s.settings.values[readPreference] != "" {
		if err := s.checkReplicas(); err != nil {
			return "", false, err
		}
	}
	if p.AnyNode && len(s.txn.parts) > 0 {
		return s.txn.parts[0].node, false, nil
	}
	if p.Cursor != "" {
		if s.cursorsApart[p.Cursor] {
			return "", false, pgwire.Errorf(pgwire.CodeFeatureNotSupported, "WHERE CURRENT OF a cursor over several nodes is not supported").
				WithHint("Fix the key in the cursor's query, or find the row by its key.")
		}
		return s.cursorNode(p.Cursor), false, nil
	}
	node, err = exec.Target(v.m, p, values, s)
	if err != nil {
		node, err = s.withoutKey(ctx, v, p, values, err)
		return node, false, err
	}
	s.sampleLoad(v.m, p, values)
	return node, false, nil
}

func errAborted() *pgwire.Error {
	return pgwire.Errorf("25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

// Value gives an operand of a simple statement its value: a literal of the current text.
func (s *session) Value(o *plan.Operand) (exec.Value, error) {
	if o.Null {
		return exec.Value{Null: true}, nil
	}
	if o.Literal < 0 {
		return s.textKey([]byte(o.Text))
	}
	lit := s.norm.Literals[o.Literal]
	data, ok := lit.Value(s.text, s.norm.Text[len(s.norm.Text):])
	if !ok {
		return exec.Value{}, fmt.Errorf("%w: a literal of this form", keyspace.ErrNotProven)
	}
	if o.Negate {
		data = append([]byte{'-'}, data...)
	}
	return s.textKey(data)
}

// simpleMany runs several statements of one Query message: one transaction, unless they begin and
// end transactions themselves.
func (s *session) simpleMany(ctx context.Context, entry *planned, msg []byte) error {
	s.task.Detach()
	if node, ok := s.oneNode(ctx, entry); ok {
		st := &plannedStatement{plan: &plan.Plan{Writes: true}}
		return s.forward(ctx, st, node, msg)
	}
	s.withheld = map[string]string{}
	if s.txn.mode == modeIdle {
		s.open(modeBlock, "BEGIN")
	}
	for i := range entry.statements {
		if s.txn.mode == modeIdle {
			s.open(modeBlock, "BEGIN")
		}
		if err := s.execute(ctx, entry, i, nil); err != nil {
			return err
		}
		if s.stopped {
			break
		}
	}
	if s.txn.mode == modeBlock {
		if err := s.commit(ctx); err != nil {
			if err = s.failed(ctx, err); err != nil {
				return err
			}
		}
	}
	s.tellWithheld()
	return s.ready()
}

// oneNode reports that all statements of a text go to one node and touch nothing else, so that
// the text can be passed on as it is.
func (s *session) oneNode(ctx context.Context, entry *planned) (string, bool) {
	node := ""
	for i := range entry.statements {
		st := &entry.statements[i]
		if st.plan == nil || st.plan.Kind != plan.Route || st.plan.Rewrite != nil || st.plan.Hold != "" || st.unknown() ||
			len(st.plan.Settings) > 0 || s.txn.failed || st.signalled().pid != 0 || st.class == analyze.Copy {
			return "", false
		}
	}
	for i := range entry.statements {
		n, fresh, err := s.route(ctx, entry.statements[i].plan, s)
		if err != nil || fresh || node != "" && n != node {
			return "", false
		}
		node = n
	}
	return node, true
}

// report tells the client of an error and fails its transaction.
func (s *session) report(err error) {
	s.send(clientError(err))
	s.stopped = true
	if s.txn.mode != modeIdle {
		s.txn.failed = true
	}
}

// clientError turns an error into what a client sees.
func clientError(err error) *pgwire.Error {
	var e *pgwire.Error
	var refusal *plan.Refusal
	var several *exec.SeveralNodes
	var null *exec.NullKey
	var homeless *exec.Homeless
	switch {
	case errors.As(err, &e):
		return survivable(e)
	case errors.As(err, &refusal):
		out := pgwire.Errorf(refusal.SQLState(), "%s", refusal.Message)
		out.Detail, out.Hint = refusal.Detail, refusal.Hint
		return out
	case errors.Is(err, analyze.ErrSyntax):
		return syntaxError(err)
	case errors.As(err, &several):
		return pgwire.Errorf("0A000", "%s", several.Error()).
			WithHint("Use one statement per key, or a transaction of several statements.")
	case errors.Is(err, keyspace.ErrNotProven), errors.Is(err, keyspace.ErrInvalid):
		return pgwire.Errorf("0A000", "the value of the key in this statement cannot be read as the key's type").
			WithHint("Write the key as a literal or a parameter of the key's own type, without a fraction or a computation.")
	case errors.As(err, &null):
		return nullKeyError(null)
	case errors.As(err, &homeless):
		return homelessError(homeless)
	}
	return pgwire.Errorf(pgwire.CodeInternal, "%v", err)
}

// syntaxError is the grammar's own error, for a client whose failed transaction keeps the router from asking a node.
func syntaxError(err error) *pgwire.Error {
	var e *parser.Error
	if !errors.As(err, &e) {
		return pgwire.Errorf("42601", "%v", err)
	}
	out := pgwire.Errorf("42601", "%s", e.Message)
	out.Position = strconv.Itoa(e.Cursorpos)
	return out
}

// survivable makes the end of a server connection an error of the statement: the client's own
// connection is to the router, and goes on.
func survivable(e *pgwire.Error) *pgwire.Error {
	if !e.IsFatal() {
		return e
	}
	out := *e
	out.Severity, out.SeverityRaw = pgwire.SeverityError, pgwire.SeverityError
	return &out
}

// homelessError says it as PostgreSQL does for a row that a check forbids.
func homelessError(h *exec.Homeless) *pgwire.Error {
	table, column, _ := strings.Cut(h.Column, ".")
	e := pgwire.Errorf("23514", "no region is declared for value %q in column %q of relation %q", h.Value, column, table).
		WithHint("SHOW shoal.regions lists the values of each region. A distribution with a default region takes all others.")
	e.Table, e.Column = table, column
	return e
}

// nodeError asks the home node what it thinks of a text that the router refuses: PostgreSQL's own
// error, if it has one, is what the client should see.
func (s *session) nodeError(ctx context.Context, text []byte, err error) error {
	var refusal *plan.Refusal
	if !errors.Is(err, analyze.ErrSyntax) && !errors.As(err, &refusal) || s.txn.failed {
		return err
	}
	if mentionsPlacing(text) {
		return err // no node knows the function
	}
	if answer := s.askHome(ctx, text); answer != nil {
		return answer
	}
	if errors.Is(err, analyze.ErrSyntax) {
		return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "the statement is written in a form that pgshoal does not know: %v", err)
	}
	return err
}

// askHome parses a text on the home node and returns its error, if any.
func (s *session) askHome(ctx context.Context, text []byte) error {
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return err
	}
	defer done()
	out := conn.Stream.Out()
	*out = pgwire.AppendParse(*out, "", s.onWire(conn, string(text)), nil)
	*out = pgwire.AppendSync(*out)
	_, err = s.collect(ctx, conn)
	var e *pgwire.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}
