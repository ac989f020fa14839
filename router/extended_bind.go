package router

import (
	"bytes"
	"context"
	"slices"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// bindMessage finds the node of a statement and sends it there.
func (s *session) bindMessage(ctx context.Context, msg []byte) error {
	e := &s.extended
	s.replica = false
	if err := e.bind.Decode(msg); err != nil {
		return err
	}
	st := e.statements[string(e.bind.Statement)]
	if st == nil {
		if len(e.bind.Statement) == 0 {
			return pgwire.Errorf("26000", "unnamed prepared statement does not exist")
		}
		return pgwire.Errorf("26000", "prepared statement %q does not exist", e.bind.Statement)
	}
	if s.clock.bound == "" {
		s.clock.bound = st.text
	}
	if st != e.owed {
		if err := s.payOwed(ctx); err != nil {
			return err
		}
	}
	if err := s.replan(ctx, st); err != nil {
		return err
	}
	if got, want := e.bind.NumParams(), len(st.entry.params); got != want {
		if err := s.payOwed(ctx); err != nil {
			return err
		}
		return pgwire.Errorf(pgwire.CodeProtocolViolation, "bind message supplies %d parameters, but prepared statement \"%s\" requires %d", got, st.name, want)
	}
	name := string(e.bind.Portal)
	if name != "" && e.bound(name) != nil {
		return pgwire.Errorf("42P03", "cursor %q already exists", name)
	}
	return s.bindStatement(ctx, st, name)
}

// bindStatement binds to what the statement's plan says.
func (s *session) bindStatement(ctx context.Context, st *prepared, name string) error {
	e := &s.extended
	if to := bindSignal(st.entry, &e.bind); to.pid != 0 {
		po := portal{stmt: st, signal: to}
		if e.bind.NumResultFormats() > 0 {
			po.args.results = []int16{e.bind.ResultFormat(0)}
		}
		e.setPortal(name, po)
		if err := s.payOwed(ctx); err != nil {
			return err
		}
		return s.synthesize(ctx, pgwire.AppendBindComplete(nil))
	}
	if routed(st.entry) {
		return s.bindRoute(ctx, st, name)
	}
	if named := s.executed(st.entry); named != nil {
		return s.bindExecuted(ctx, st, named, name)
	}
	e.setPortal(name, portal{stmt: st, values: textParams(&e.bind), args: argumentsOf(&e.bind, st.entry.params)})
	if spreads(st.entry) {
		return s.bindSpread(ctx, st, &st.entry.statements[0], name, nil)
	}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	if !s.ownPortal(st.entry) && !isEvery(st.entry) {
		for i := range e.bind.NumParams() {
			if e.bind.ParamFormat(i) != 0 {
				return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "binary parameters are not supported for this statement")
			}
		}
	}
	return s.synthesize(ctx, pgwire.AppendBindComplete(nil))
}

// bindAgain binds under a new plan, because the map has changed.
func (s *session) bindAgain(ctx context.Context, st *prepared, name string) error {
	if err := s.replan(ctx, st); err != nil {
		return err
	}
	return s.bindStatement(ctx, st, name)
}

func (s *session) ownPortal(entry *planned) bool {
	return len(entry.statements) == 0 || entry.statements[0].plan == nil
}

// isEvery reports a write to a reference table.
func isEvery(entry *planned) bool {
	pl := entry.statements[0].plan
	return pl != nil && pl.Kind == plan.Every && !pl.Schema
}

// bindSpread makes a portal for a statement over several nodes; it runs when it is executed.
func (s *session) bindSpread(ctx context.Context, st *prepared, planned *plannedStatement, name string, computed *computedValues) error {
	e := &s.extended
	args := argumentsOf(&e.bind, st.entry.params)
	args.computed = computed
	e.setPortal(name, portal{stmt: st, spread: planned, args: args})
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	return s.synthesize(ctx, pgwire.AppendBindComplete(nil))
}

// spreads reports a query over several nodes.
func spreads(entry *planned) bool {
	return len(entry.statements) == 1 && entry.statements[0].plan != nil && entry.statements[0].plan.Kind == plan.Spread
}

// argumentsOf copies what a Bind message says.
func argumentsOf(b *pgwire.Bind, types []uint32) arguments {
	a := arguments{types: slices.Clone(types), values: textParams(b)}
	for i := range a.values {
		a.formats = append(a.formats, b.ParamFormat(i))
	}
	for i := range b.NumResultFormats() {
		a.results = append(a.results, b.ResultFormat(i))
	}
	return a
}

func textParams(b *pgwire.Bind) [][]byte {
	values := make([][]byte, b.NumParams())
	for i := range values {
		if v, null := b.Param(i); !null {
			values[i] = append([]byte{}, v...)
		}
	}
	return values
}

// routed reports a plan that sends the client's own statement to one node.
func routed(entry *planned) bool {
	if len(entry.statements) != 1 {
		return false
	}
	st := &entry.statements[0]
	return st.plan != nil && st.plan.Kind == plan.Route || isCursor(st.class)
}

// isCursor reports statements that go where their cursor is.
func isCursor(c analyze.Class) bool { return c == analyze.Fetch || c == analyze.CloseCursor }

// replan makes a plan again that is of an older epoch, or of a time when names meant something else.
func (s *session) replan(ctx context.Context, st *prepared) error {
	if err := s.learnNames(ctx); err != nil {
		return err
	}
	for st.entry.epoch != s.router.view.Load().m.Epoch || st.entry.space != s.space || s.schemaChanged {
		entry, err := s.planPrepared(ctx, st)
		if err != nil {
			return err
		}
		st.entry = entry
		if !sameResult(rowsOf(entry.described), st.rows) {
			return errResultChanged()
		}
		if s.schemaChanged {
			break
		}
	}
	if len(st.entry.statements) == 1 && st.entry.statements[0].err != nil {
		if s.txn.failed {
			return errAborted()
		}
		return s.nodeError(ctx, []byte(st.text), st.entry.statements[0].err)
	}
	return nil
}

// sameResult compares descriptions of results as PostgreSQL does: a column may come from another table.
func sameResult(a, b []byte) bool {
	return bytes.Equal(a, b) || bytes.Equal(withoutTables(a), withoutTables(b))
}

func withoutTables(rows []byte) []byte {
	rows = slices.Clone(rows)
	columns := pgwire.ColumnsOf(rows)
	for c := columns.Next(); c != nil; c = columns.Next() {
		c.SetTable(0, 0)
	}
	return rows
}

// errResultChanged is PostgreSQL's own error, which drivers know: they prepare the statement again.
func errResultChanged() *pgwire.Error {
	e := pgwire.Errorf("0A000", "cached plan must not change result type")
	e.Routine = "RevalidateCachedQuery"
	return e
}

// bound gives operands the values of the Bind message.
type bound struct {
	b *pgwire.Bind
	s *session
}

func (v *bound) Value(o *plan.Operand) (exec.Value, error) {
	if o.Null {
		return exec.Value{Null: true}, nil
	}
	if o.Param == 0 {
		return v.s.textKey([]byte(o.Text))
	}
	if o.Param > v.b.NumParams() {
		return exec.Value{}, pgwire.Errorf(pgwire.CodeProtocolViolation, "bind message supplies %d parameters, but the statement needs more", v.b.NumParams())
	}
	data, null := v.b.Param(o.Param - 1)
	return v.s.clientKey(exec.Value{Data: data, Null: null, Binary: v.b.ParamFormat(o.Param-1) == 1}, o)
}

// bindRoute sends Bind, and Parse where the node's connection does not have the statement.
func (s *session) bindRoute(ctx context.Context, st *prepared, name string) error {
	e := &s.extended
	pl := st.entry.statements[0].plan
	if isCursor(st.entry.statements[0].class) {
		pl = cursorPlan
	}
	if pl.Rewrite != nil {
		return s.bindRewritten(ctx, st, name)
	}
	node, fresh, err := s.bindTarget(ctx, st, pl)
	if err != nil {
		instead, err := s.severalNodes(ctx, &st.entry.statements[0], st.text, st.entry.params, err)
		if err != nil {
			return err
		}
		return s.bindSpread(ctx, st, instead, name, nil)
	}
	if fresh {
		return s.bindAgain(ctx, st, name)
	}
	p, err := s.segmentOn(ctx, node)
	if err == nil && e.awaited == 0 && s.needsSequence(pl) {
		if err = s.checkSequence(p); err != nil {
			e.segment = nil
		}
	}
	if err != nil {
		return err
	}
	p.wrote = p.wrote || pl.Writes
	columns := s.boundColumns(p, st)
	if st.entry.statements[0].class == analyze.Copy && p.oids != nil {
		types, err := s.binaryTypes(ctx, st.text)
		if err == nil {
			_, err = s.segmentOn(ctx, node) // the question may have ended the segment
		}
		if err != nil {
			return err
		}
		columns = p.copyColumns(types)
	}
	server := s.parseOn(p, st)
	s.bindOIDs(p, st)
	out := p.conn.Stream.Out()
	*out = e.bind.AppendRenamed(*out, name, server)
	e.awaited++
	e.setPortal(name, portal{stmt: st, part: p, columns: columns})
	return nil
}

// cursorPlan stands in for the plan of FETCH, MOVE and CLOSE, which have none.
var cursorPlan = &plan.Plan{Writes: true}

// bindTarget finds the node of a bound statement.
func (s *session) bindTarget(ctx context.Context, st *prepared, pl *plan.Plan) (node string, fresh bool, err error) {
	if pl != cursorPlan {
		s.extended.values = bound{&s.extended.bind, s} // a place of its own, so that nothing is allocated
		return s.route(ctx, pl, &s.extended.values)
	}
	if s.txn.failed {
		return "", false, errAborted()
	}
	return s.cursorNode(cursorName(st.entry.statements[0].tree.Tree)), false, nil
}

// parseOn makes sure that the connection has the statement, and returns its name there. The
// ParseComplete that comes is the client's own if it is still owed one.
func (s *session) parseOn(p *participant, st *prepared) string {
	e := &s.extended
	out := p.conn.Stream.Out()
	server := ""
	// When answers are awaited, the ParseComplete has to come from the node: it belongs between them.
	if owed := e.owed == st; !(owed && e.awaited > 0) && s.keeps(st) {
		known := false
		if server, known = p.conn.Statements.Name(st.entry.id); known {
			if owed {
				e.owed = nil
				told := s.client.Out()
				*told = pgwire.AppendParseComplete(*told)
			}
			return server
		}
		var evicted string
		server, evicted = p.conn.Statements.Add(st.entry.id)
		e.fresh = append(e.fresh, st.entry.id)
		if evicted != "" {
			*out = pgwire.AppendClose(*out, pgwire.Statement, evicted)
			s.relay.Watch['3'] = true
			s.relay.ownCloses++
		}
	}
	*out = pgwire.AppendParse(*out, server, st.onWire(p.conn), p.typesAt(st.oids))
	s.relay.swallow = append(s.relay.swallow, e.owed != st)
	s.relay.Watch['1'] = true
	e.owed = nil
	return server
}

// keeps reports a statement that stays on server connections: one that the client has named, or whose text comes again and
// again without a name, which PostgreSQL would parse and plan each time, when its plan cannot depend on the values.
func (s *session) keeps(st *prepared) bool {
	if st.name != "" {
		return true
	}
	pl := st.entry.statements[0].plan
	if pl == nil || !pl.Steady || s.schemaChanged {
		return false
	}
	return st.entry.uses.Load() >= keptUses || st.entry.uses.Add(1) >= keptUses
}

// keptUses is how often a text comes before it is kept.
const keptUses = 5

// segmentOn makes the node's participant the one that collects messages. When another one has
// collected before, its answers are relayed first; without a transaction block the two nodes'
// work becomes one.
func (s *session) segmentOn(ctx context.Context, node string) (*participant, error) {
	e := &s.extended
	if e.segment != nil && e.segment.node != node {
		if err := s.finishSegment(ctx); err != nil {
			return nil, err
		}
	}
	if s.txn.mode == modeIdle && s.elsewhere(node) {
		if err := s.promote(ctx); err != nil {
			return nil, err
		}
	}
	s.batching = true
	p, err := s.answering(ctx, node)
	s.batching = false
	if err != nil {
		return nil, err
	}
	e.segment, p.inBatch = p, true
	return p, nil
}

// elsewhere reports that the batch has already worked on another node.
func (s *session) elsewhere(node string) bool {
	return slices.ContainsFunc(s.txn.parts, func(p *participant) bool { return p.inBatch && p.node != node })
}

// protectBatch makes the batch a transaction block before the router asks a question of its own on one
// of its connections: the end of the question would otherwise end the batch's transaction. What was
// collected is answered first, or the question would take its answers.
func (s *session) protectBatch(ctx context.Context) error {
	if err := s.finishSegment(ctx); err != nil {
		return err
	}
	if s.txn.mode != modeIdle || !s.elsewhere("") {
		return nil
	}
	return s.promote(ctx)
}

// promote turns the node's implicit transaction, which lasts until Sync, into a block, because a
// second node joins.
func (s *session) promote(ctx context.Context) error {
	s.open(modeBlock, "BEGIN")
	for _, p := range s.txn.parts {
		if !p.inBatch {
			continue // a session that keeps its connections; it begins there when it is needed
		}
		s.task.Detach()
		p.began = true
		if err := p.conn.Exec(ctx, "BEGIN"); err != nil {
			return err
		}
	}
	return nil
}

// replanned makes sure that a description is of the current schema.
func (s *session) replanned(ctx context.Context, st *prepared) error {
	if err := s.learnNames(ctx); err != nil {
		return err
	}
	if st.entry.epoch == s.router.view.Load().m.Epoch && st.entry.space == s.space && !s.schemaChanged {
		return nil
	}
	entry, err := s.planPrepared(ctx, st)
	if err == nil {
		st.entry = entry
	}
	return err
}
