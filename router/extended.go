package router

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// extended is the session's state in the extended query protocol. Messages for a node are
// collected in its connection's buffer and sent at Sync, at Flush, or when another node's turn
// comes; answers keep the order of the messages.
type extended struct {
	statements map[string]*prepared
	portals    map[string]*portal
	unnamed    portal // storage of the unnamed portal, used again and again

	parse    pgwire.Parse
	bind     pgwire.Bind
	describe pgwire.Describe
	closing  pgwire.Close
	execute  pgwire.Execute

	// segment is the participant that has collected messages since the last flush.
	segment *participant
	awaited int       // complete answers that the segment will give
	owed    *prepared // a statement whose ParseComplete the client has not got yet
	skip    bool      // an error happened: everything up to Sync is ignored
	touched bool      // something happened since the last Sync
	fresh   []uint64  // statements first parsed on the segment's connection by this segment
}

// prepared is a statement of the client.
type prepared struct {
	name  string
	text  string
	oids  []uint32
	entry *planned
	rows  []byte // the description of its result that the client relies on
	// atHome is set for a statement of SQL's PREPARE that exists in the home node's session too.
	atHome bool
}

// portal is a bound statement.
type portal struct {
	stmt   *prepared
	part   *participant
	values [][]byte // parameters, for statements that the router executes itself
}

func (e *extended) busy() bool { return e.segment != nil || e.touched }

// closePortals forgets portals at the end of a transaction.
func (e *extended) closePortals() { clear(e.portals) }

// dropPortal forgets the unnamed statement and portal, as a simple query does.
func (t *transaction) dropPortal(s *session) {
	delete(s.extended.portals, "")
	delete(s.extended.statements, "")
}

// extendedMessage handles one message. Errors of the statement are told to the client here.
func (s *session) extendedMessage(ctx context.Context, typ byte, msg []byte) error {
	e := &s.extended
	if typ == 'S' {
		return s.syncMessage(ctx)
	}
	if e.skip {
		return nil
	}
	e.touched = true
	var err error
	switch typ {
	case 'P':
		err = s.parseMessage(ctx, msg)
	case 'B':
		err = s.bindMessage(ctx, msg)
	case 'D':
		err = s.describeMessage(ctx, msg)
	case 'E':
		err = s.executeMessage(ctx, msg)
	case 'C':
		err = s.closeMessage(ctx, msg)
	case 'H':
		if err = s.settle(ctx); err == nil {
			err = s.client.Flush()
		}
	}
	return s.extendedError(ctx, err)
}

// extendedError reports an error and ignores what follows up to Sync.
func (s *session) extendedError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, errClientGone) {
		_ = s.client.Flush()
		return err
	}
	if errors.Is(err, errToldAlready) {
		s.extended.skip = true
		return nil
	}
	// The answers of what was collected before come first.
	if e := &s.extended; e.segment != nil {
		if ferr := s.finishSegment(ctx); ferr != nil && !errors.Is(ferr, errToldAlready) {
			err = ferr
		} else if ferr != nil {
			e.skip = true
			return nil
		}
	}
	s.report(err)
	s.stopped = false
	s.extended.skip = true
	return s.client.Flush() // a client may wait for it before it sends Sync
}

// errToldAlready is an error of a node that was relayed to the client.
var errToldAlready = errors.New("the client has seen the error")

// parseMessage plans a statement; nothing is sent until it is bound.
func (s *session) parseMessage(ctx context.Context, msg []byte) error {
	e := &s.extended
	if err := e.parse.Decode(msg); err != nil {
		return err
	}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	name := string(e.parse.Name)
	if name != "" && e.statements[name] != nil {
		return pgwire.Errorf("42P05", "prepared statement %q already exists", name)
	}
	s.text = e.parse.Query
	p := &prepared{name: name, text: string(e.parse.Query), oids: e.parse.OIDs(nil)}
	entry, err := s.planPrepared(ctx, p)
	if err != nil {
		return s.nodeError(ctx, []byte(p.text), err)
	}
	p.entry, p.rows = entry, rowsOf(entry.described)
	if e.statements == nil {
		e.statements = map[string]*prepared{}
	}
	e.statements[name] = p
	e.owed = p
	return nil
}

// planPrepared plans a statement of the extended protocol. The home node says what its parameters
// and its result are, once for all sessions; that also makes its errors PostgreSQL's own.
func (s *session) planPrepared(ctx context.Context, p *prepared) (*planned, error) {
	if err := s.knowSearchPath(ctx); err != nil {
		return nil, err
	}
	v := s.router.view.Load()
	key := preparedKey(p)
	if !s.schemaChanged && !s.hasTemporary() {
		if hit := s.space.find(nil, key, v.m.Epoch); hit != nil {
			s.router.plans.hits.Add(1)
			return hit, nil
		}
	}
	s.router.plans.misses.Add(1)
	stmts, err := analyze.Parse(p.text)
	if err != nil {
		return nil, err
	}
	if len(stmts) > 1 {
		return nil, pgwire.Errorf("42601", "cannot insert multiple commands into a prepared statement")
	}
	described, params, err := s.describeAtHome(ctx, p, stmts)
	if err != nil {
		return nil, err
	}
	entry, _, err := s.planStatements(ctx, v, stmts, params, false)
	if err != nil {
		return nil, err
	}
	entry.described = described
	if !s.schemaChanged && !s.hasTemporary() {
		s.space.store(nil, key, entry, true)
	}
	return entry, nil
}

// preparedKey is the text and the parameter types that the client gave.
func preparedKey(p *prepared) []byte {
	key := make([]byte, 0, len(p.text)+1+4*len(p.oids))
	key = append(key, p.text...)
	key = append(key, 0)
	for _, o := range p.oids {
		key = append(key, byte(o>>24), byte(o>>16), byte(o>>8), byte(o))
	}
	return key
}

// describeAtHome asks the home node for the statement's parameters and result.
func (s *session) describeAtHome(ctx context.Context, p *prepared, stmts []*analyze.Statement) (described []byte, params []uint32, err error) {
	if len(stmts) == 0 || ownDescription(stmts[0]) {
		return s.ownDescribed(stmts)
	}
	if placing(stmts[0]) {
		return s.placingDescribed(stmts[0])
	}
	if s.extended.segment != nil && (s.schemaChanged || s.hold != "") {
		if err := s.finishSegment(ctx); err != nil {
			return nil, nil, err
		}
	}
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	out := conn.Stream.Out()
	buf := pgwire.AppendParse(*out, "", p.text, p.oids)
	buf = pgwire.AppendDescribe(buf, pgwire.Statement, "")
	*out = pgwire.AppendSync(buf)
	if err := conn.Stream.Flush(); err != nil {
		conn.Broken = true
		return nil, nil, lostNode(conn.Key.Node)
	}
	var failure *pgwire.Error
	for {
		typ, msg, err := conn.Stream.Next()
		if err != nil {
			conn.Broken = true
			return nil, nil, lostNode(conn.Key.Node)
		}
		switch typ {
		case 't':
			described = append(described, msg...)
			params = parameterTypes(msg)
		case 'T', 'n':
			described = append(described, msg...)
		case 'E':
			failure = pgwire.ParseError(msg)
		case 'S':
			conn.ParameterStatus(msg)
		case 'Z':
			conn.TxStatus = pgwire.ReadyStatus(msg)
			if failure != nil {
				return nil, nil, failure
			}
			return described, params, nil
		}
	}
}

func parameterTypes(msg []byte) []uint32 {
	var oids []uint32
	for b := msg[7:]; len(b) >= 4; b = b[4:] {
		oids = append(oids, uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3]))
	}
	return oids
}

// ownDescription reports statements that the home node cannot or need not describe.
func ownDescription(st *analyze.Statement) bool {
	switch st.Class {
	case analyze.Begin, analyze.Commit, analyze.Rollback, analyze.Savepoint, analyze.Release, analyze.RollbackTo,
		analyze.Set, analyze.Discard, analyze.SetConstraints, analyze.PrepareTransaction, analyze.FinishPrepared,
		analyze.Deallocate, analyze.Prepare:
		return true
	case analyze.Show:
		return strings.HasPrefix(strings.ToLower(st.Tree.GetVariableShowStmt().GetName()), "shoal.")
	}
	return false
}

func (s *session) ownDescribed(stmts []*analyze.Statement) ([]byte, []uint32, error) {
	described := pgwire.AppendParameterDescription(nil, nil)
	if len(stmts) == 1 && stmts[0].Class == analyze.Show {
		if columns, ok := shoalColumns[strings.ToLower(stmts[0].Tree.GetVariableShowStmt().GetName())]; ok {
			return pgwire.AppendRowDescription(described, textColumns(columns)), nil, nil
		}
	}
	return pgwire.AppendNoData(described), nil, nil
}

// placing reports a call of a function that only routers know.
func placing(st *analyze.Statement) bool {
	for _, c := range analyze.Calls(st.Tree) {
		if _, name := analyze.Name(c.Funcname); placingParameters[name] != nil {
			return true
		}
	}
	return false
}

func (s *session) placingDescribed(st *analyze.Statement) ([]byte, []uint32, error) {
	name := ""
	n := 0
	for _, c := range analyze.Calls(st.Tree) {
		if _, f := analyze.Name(c.Funcname); placingParameters[f] != nil {
			name = f
			for _, a := range c.Args {
				if arg := a.GetNamedArgExpr(); arg != nil {
					a = arg.Arg
				}
				if cast := a.GetTypeCast(); cast != nil {
					a = cast.Arg
				}
				n = max(n, int(a.GetParamRef().GetNumber()))
			}
		}
	}
	oids := make([]uint32, n)
	for i := range oids {
		oids[i] = 25 // text
	}
	described := pgwire.AppendParameterDescription(nil, oids)
	return pgwire.AppendRowDescription(described, []pgwire.Column{voidColumn(name)}), oids, nil
}

// payOwed tells the client that its Parse is complete, when nothing else will.
func (s *session) payOwed(ctx context.Context) error {
	e := &s.extended
	if e.owed == nil {
		return nil
	}
	e.owed = nil
	return s.synthesize(ctx, pgwire.AppendParseComplete(nil))
}

// synthesize adds a message of the router's own to the answer, after those that are awaited.
func (s *session) synthesize(ctx context.Context, msg []byte) error {
	if err := s.finishSegment(ctx); err != nil {
		return err
	}
	s.client.Append(msg)
	return nil
}

// bindMessage finds the node of a statement and sends it there.
func (s *session) bindMessage(ctx context.Context, msg []byte) error {
	e := &s.extended
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
	if st != e.owed {
		if err := s.payOwed(ctx); err != nil {
			return err
		}
	}
	if err := s.replan(ctx, st); err != nil {
		return err
	}
	name := string(e.bind.Portal)
	if name != "" && e.portals[name] != nil {
		return pgwire.Errorf("42P03", "cursor %q already exists", name)
	}
	if e.portals == nil {
		e.portals = map[string]*portal{}
	}
	return s.bindStatement(ctx, st, name)
}

// bindStatement binds to what the statement's plan says.
func (s *session) bindStatement(ctx context.Context, st *prepared, name string) error {
	e := &s.extended
	if routed(st.entry) {
		return s.bindRoute(ctx, st, name)
	}
	e.portals[name] = &portal{stmt: st, values: textParams(&e.bind)}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	if !s.ownPortal(st.entry) {
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
	return len(entry.statements) == 1 && entry.statements[0].plan != nil && entry.statements[0].plan.Kind == plan.Route
}

// replan makes a plan of an older epoch again.
func (s *session) replan(ctx context.Context, st *prepared) error {
	for st.entry.epoch != s.router.view.Load().m.Epoch || s.schemaChanged {
		entry, err := s.planPrepared(ctx, st)
		if err != nil {
			return err
		}
		st.entry = entry
		if !bytes.Equal(rowsOf(entry.described), st.rows) {
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

// errResultChanged is PostgreSQL's own error, which drivers know: they prepare the statement again.
func errResultChanged() *pgwire.Error {
	e := pgwire.Errorf("0A000", "cached plan must not change result type")
	e.Routine = "RevalidateCachedQuery"
	return e
}

// bound gives operands the values of the Bind message.
type bound struct{ b *pgwire.Bind }

func (v bound) Value(o *plan.Operand) (exec.Value, error) {
	if o.Null {
		return exec.Value{Null: true}, nil
	}
	if o.Param == 0 {
		return exec.Value{Data: []byte(o.Text)}, nil
	}
	if o.Param > v.b.NumParams() {
		return exec.Value{}, pgwire.Errorf(pgwire.CodeProtocolViolation, "bind message supplies %d parameters, but the statement needs more", v.b.NumParams())
	}
	data, null := v.b.Param(o.Param - 1)
	return exec.Value{Data: data, Null: null, Binary: v.b.ParamFormat(o.Param-1) == 1}, nil
}

// bindRoute sends Bind, and Parse where the node's connection does not have the statement.
func (s *session) bindRoute(ctx context.Context, st *prepared, name string) error {
	e := &s.extended
	pl := st.entry.statements[0].plan
	if pl.Rewrite != nil {
		return s.bindRewritten(ctx, st, name)
	}
	node, fresh, err := s.route(ctx, pl, bound{&e.bind})
	if err != nil {
		return err
	}
	if fresh {
		return s.bindAgain(ctx, st, name)
	}
	p, err := s.segmentOn(ctx, node)
	if err != nil {
		return err
	}
	p.wrote = p.wrote || pl.Writes
	server := s.parseOn(p, st)
	out := p.conn.Stream.Out()
	*out = e.bind.AppendRenamed(*out, name, server)
	e.awaited++
	e.portals[name] = e.newPortal(name, portal{stmt: st, part: p})
	return nil
}

// newPortal stores a portal; the unnamed one needs no memory of its own.
func (e *extended) newPortal(name string, p portal) *portal {
	if name != "" {
		return &p
	}
	e.unnamed = p
	return &e.unnamed
}

// parseOn makes sure that the connection has the statement, and returns its name there. The
// ParseComplete that comes is the client's own if it is still owed one.
func (s *session) parseOn(p *participant, st *prepared) string {
	e := &s.extended
	out := p.conn.Stream.Out()
	server := ""
	if st.name != "" {
		known := false
		if server, known = p.conn.Statements.Name(st.entry.id); known {
			if e.owed == st {
				e.owed = nil
				// Nothing is awaited before it: Parse was the last message, and it flushed.
				s.client.Append(pgwire.AppendParseComplete(nil))
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
	*out = pgwire.AppendParse(*out, server, st.text, st.oids)
	s.relay.swallow = append(s.relay.swallow, e.owed != st)
	s.relay.Watch['1'] = true
	e.owed = nil
	return server
}

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
	if s.txn.mode == modeIdle && len(s.txn.parts) > 0 && s.txn.part(node) == nil && s.hold == "" {
		if err := s.promote(ctx); err != nil {
			return nil, err
		}
	}
	p, err := s.participant(ctx, node)
	if err != nil {
		return nil, err
	}
	e.segment = p
	return p, nil
}

// promote turns the node's implicit transaction, which lasts until Sync, into a block, because a
// second node joins.
func (s *session) promote(ctx context.Context) error {
	s.open(modeBlock, "BEGIN")
	for _, p := range s.txn.parts {
		p.began = true
		if err := p.conn.Exec(ctx, "BEGIN"); err != nil {
			return err
		}
	}
	return nil
}

// describeMessage describes a statement from what the home node said, or a portal on its node.
func (s *session) describeMessage(ctx context.Context, msg []byte) error {
	e := &s.extended
	if err := e.describe.Decode(msg); err != nil {
		return err
	}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	name := string(e.describe.Name)
	if e.describe.Object == pgwire.Statement {
		st := e.statements[name]
		if st == nil {
			return pgwire.Errorf("26000", "prepared statement %q does not exist", name)
		}
		if err := s.replanned(ctx, st); err != nil {
			return err
		}
		return s.synthesize(ctx, st.entry.described)
	}
	po := e.portals[name]
	if po == nil {
		return pgwire.Errorf("34000", "portal %q does not exist", name)
	}
	if po.part == nil {
		return s.synthesize(ctx, rowsOf(po.stmt.entry.described))
	}
	p, err := s.segmentOn(ctx, po.part.node)
	if err != nil {
		return err
	}
	p.conn.Stream.Append(msg)
	e.awaited++
	return nil
}

// replanned makes sure that a description is of the current schema.
func (s *session) replanned(ctx context.Context, st *prepared) error {
	if st.entry.epoch == s.router.view.Load().m.Epoch && !s.schemaChanged {
		return nil
	}
	entry, err := s.planPrepared(ctx, st)
	if err == nil {
		st.entry = entry
	}
	return err
}

// rowsOf is the part of a statement's description that a portal has: the row description.
func rowsOf(described []byte) []byte {
	if len(described) < 5 || described[0] != 't' {
		return described
	}
	size := int(described[1])<<24 | int(described[2])<<16 | int(described[3])<<8 | int(described[4])
	return described[1+size:]
}

// executeMessage runs a portal.
func (s *session) executeMessage(ctx context.Context, msg []byte) error {
	e := &s.extended
	if err := e.execute.Decode(msg); err != nil {
		return err
	}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	po := e.portals[string(e.execute.Portal)]
	if po == nil {
		return pgwire.Errorf("34000", "portal %q does not exist", e.execute.Portal)
	}
	if po.part == nil {
		return s.executeOwn(ctx, po)
	}
	s.router.counters.statement(plan.Route)
	p, err := s.segmentOn(ctx, po.part.node)
	if err != nil {
		return err
	}
	p.conn.Stream.Append(msg)
	e.awaited++
	st := &po.stmt.entry.statements[0]
	if st.plan != nil && (st.plan.Hold != "" || len(st.plan.Settings) > 0) {
		// What it changes in the session must be known before the next statement is planned.
		if err := s.finishSegment(ctx); err != nil {
			return err
		}
		s.effects(ctx, st, p)
		return nil
	}
	if p.conn.Stream.Pending() > maxSegment {
		return s.finishSegment(ctx)
	}
	return nil
}

// maxSegment bounds what is sent to a node before its answers are read: a node that cannot get rid
// of its answers stops reading.
const maxSegment = 32 << 10

// executeOwn runs what is not just sent to one node.
func (s *session) executeOwn(ctx context.Context, po *portal) error {
	if err := s.finishSegment(ctx); err != nil {
		return err
	}
	entry := po.stmt.entry
	if len(entry.statements) == 0 {
		out := s.client.Out()
		*out = pgwire.AppendEmptyQueryResponse(*out)
		return nil
	}
	st := &entry.statements[0]
	if st.plan != nil && st.plan.Kind == plan.Distribute {
		return s.place(ctx, st.plan.Placing, po.values)
	}
	if st.plan != nil && st.plan.Kind == plan.CopyIn {
		return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "COPY into distributed and reference tables needs the simple query protocol")
	}
	if len(po.values) > 0 && st.plan != nil {
		return s.everyWithParams(ctx, st, po)
	}
	s.text = []byte(po.stmt.text)
	mark := len(*s.client.Out())
	if err := s.run(ctx, st, nil); err != nil {
		return err
	}
	s.stripDescription(mark)
	if s.stopped {
		s.stopped = false
		return errToldAlready
	}
	return nil
}

// stripDescription takes out the row description that the simple protocol has and Execute has not.
func (s *session) stripDescription(mark int) {
	out := s.client.Out()
	if mark > len(*out) {
		return
	}
	b := (*out)[mark:]
	if len(b) > 5 && b[0] == 'T' {
		size := 1 + int(b[1])<<24 + int(b[2])<<16 + int(b[3])<<8 + int(b[4])
		*out = append((*out)[:mark], b[size:]...)
	}
}

// closeMessage closes a statement or a portal.
func (s *session) closeMessage(ctx context.Context, msg []byte) error {
	e := &s.extended
	if err := e.closing.Decode(msg); err != nil {
		return err
	}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	name := string(e.closing.Name)
	if e.closing.Object == pgwire.Statement {
		// The server connection keeps it for others until it is evicted.
		delete(e.statements, name)
		return s.synthesize(ctx, pgwire.AppendCloseComplete(nil))
	}
	po := e.portals[name]
	delete(e.portals, name)
	if po == nil || po.part == nil || s.txn.part(po.part.node) == nil {
		return s.synthesize(ctx, pgwire.AppendCloseComplete(nil))
	}
	p, err := s.segmentOn(ctx, po.part.node)
	if err != nil {
		return err
	}
	p.conn.Stream.Append(msg)
	e.awaited++
	return nil
}

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
	r.swallow, r.ownCloses = r.swallow[:0], 0
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
	failed, err := s.exchange(ctx, p)
	p.resync = false
	s.segmentOver(p, failed || err != nil)
	if err != nil {
		if err = s.failed(ctx, err); err != nil {
			return err
		}
		return s.ready()
	}
	if failed {
		s.failBlock()
	}
	if s.txn.mode == modeIdle {
		e.closePortals()
	}
	s.statementOver(ctx)
	return s.client.Flush()
}

// syncAll ends a batch that several nodes, or none, took part in.
func (s *session) syncAll(ctx context.Context) error {
	for _, p := range s.txn.parts {
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
	return s.ready()
}
