package router

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// execute runs one statement of a text in the simple protocol, without ReadyForQuery. It returns
// only errors that end the session; all others have been told to the client.
func (s *session) execute(ctx context.Context, entry *planned, i int, raw []byte) error {
	if entry.statements[i].class != analyze.Begin {
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
// since it was planned may have changed the schema or the map.
func (s *session) current(ctx context.Context, entry *planned, i int) (*plannedStatement, error) {
	st := &entry.statements[i]
	v := s.router.view.Load()
	if st.plan == nil && st.err == nil || !s.schemaChanged && entry.epoch == v.m.Epoch || s.txn.failed {
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
	}
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
	if s.txn.mode == modeExplicit || s.txn.failed {
		// PostgreSQL's own refusal is the right answer.
		return s.routeOne(ctx, &plannedStatement{class: st.class, text: st.text, plan: &plan.Plan{Epoch: s.router.view.Load().m.Epoch, Writes: true}}, nil)
	}
	if s.txn.mode == modeBlock {
		if len(s.txn.parts) > 0 {
			return pgwire.Errorf("25001", "%s cannot be executed together with other statements", firstWord(st.text))
		}
		s.txn.mode = modeIdle
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
		p, err := s.participant(ctx, name)
		if err == nil {
			s.sendText(p.conn, st.text)
			var a []byte
			if a, err = s.collect(ctx, p.conn); name == m.Home {
				answer = a
			}
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

// collect reads a node's whole answer, without ReadyForQuery and without what only the extended
// protocol has.
func (s *session) collect(ctx context.Context, c *pool.Conn) ([]byte, error) {
	s.task.Detach()
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
	if s.schemaChanged || s.hold != "" {
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
