package router

import (
	"context"
	"errors"
	"slices"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// extended is the session's state in the extended query protocol. Messages for a node are
// collected in its connection's buffer and sent at Sync, at Flush, or when another node's turn
// comes; answers keep the order of the messages.
type extended struct {
	statements map[string]*prepared
	portals    map[string]*portal // those with a name
	unnamed    portal             // the one without, its memory used again and again
	hasUnnamed bool

	parse    pgwire.Parse
	bind     pgwire.Bind
	values   bound
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
	text  string // in UTF-8
	oids  []uint32
	key   []byte // of the plan cache; made when it is first needed
	entry *planned
	rows  []byte // the description of its result that the client relies on
	// raw is the text as the client wrote it, when that was in another encoding.
	raw, rawEncoding string
	// atHome is set for a statement of SQL's PREPARE that exists in the home node's session too.
	atHome bool
}

// portal is a bound statement.
type portal struct {
	stmt   *prepared
	part   *participant
	values [][]byte // parameters, for statements that the router executes itself
	// spread is the statement when it runs on several nodes, with its arguments.
	spread *plannedStatement
	args   arguments
	// columns are those whose values have OIDs that are not the home node's.
	columns []oidColumn
	// signal is the client that a call is about.
	signal signalled
}

func (e *extended) busy() bool { return e.segment != nil || e.touched }

// closePortals forgets portals at the end of a transaction.
func (e *extended) closePortals() {
	if e.hasUnnamed {
		e.dropPortal("")
	}
	if len(e.portals) > 0 {
		clear(e.portals)
	}
}

// bound is a portal that the client has bound, or nil.
func (e *extended) bound(name string) *portal {
	if name != "" {
		return e.portals[name]
	}
	if e.hasUnnamed {
		return &e.unnamed
	}
	return nil
}

// setPortal stores a portal.
func (e *extended) setPortal(name string, p portal) {
	if name == "" {
		e.unnamed, e.hasUnnamed = p, true
		return
	}
	if e.portals == nil {
		e.portals = map[string]*portal{}
	}
	named := p // so that only these are on the heap
	e.portals[name] = &named
}

func (e *extended) dropPortal(name string) {
	if name == "" {
		e.unnamed, e.hasUnnamed = portal{}, false // its values can be large
		return
	}
	delete(e.portals, name)
}

// dropPortal forgets the unnamed statement and portal, as a simple query does.
func (t *transaction) dropPortal(s *session) {
	s.extended.dropPortal("")
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
	if !e.touched {
		e.touched = true
		s.beginBatch(ctx, typ, msg)
	}
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
	if s.extended.owed != nil { // a Parse that went well before
		s.extended.owed = nil
		s.client.Append(pgwire.AppendParseComplete(nil))
	}
	// What the batch did before fails with it, also when no node has seen the error.
	if perr := s.protectBatch(ctx); perr != nil {
		s.failBlock()
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
	s.replica = false
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
	text, err := s.readStatement(ctx, e.parse.Query)
	if err != nil {
		return err
	}
	s.text, s.raw = text, e.parse.Query
	if name == "" && !s.encodings.foreign && s.parsedBefore(e.statements[name]) {
		e.owed = e.statements[name]
		return nil
	}
	p := &prepared{name: name, text: string(text), oids: e.parse.OIDs(nil)}
	if s.encodings.foreign {
		p.raw, p.rawEncoding = string(e.parse.Query), s.encodings.client
	}
	if s.txn.failed {
		if err := endsTransaction(p.text); err != nil {
			return err
		}
	}
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

// parsedBefore reports that a Parse would make the statement that is there already. Drivers that do
// not name their statements send the same text again and again.
func (s *session) parsedBefore(p *prepared) bool {
	parse := &s.extended.parse
	if p == nil || s.namesUnknown || p.text != string(s.text) || len(p.oids) != parse.NumOIDs() {
		return false
	}
	for i, oid := range p.oids {
		if parse.OID(i) != oid {
			return false
		}
	}
	return s.findPrepared(p, s.router.view.Load().m.Epoch) == p.entry
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

// executeMessage runs a portal.
func (s *session) executeMessage(ctx context.Context, msg []byte) error {
	e := &s.extended
	if err := e.execute.Decode(msg); err != nil {
		return err
	}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	po := s.portal(string(e.execute.Portal))
	if po == nil {
		return pgwire.Errorf("34000", "portal %q does not exist", e.execute.Portal)
	}
	if po.spread != nil && po.part == nil && e.execute.MaxRows > 0 {
		if err := s.storePortal(ctx, po, string(e.execute.Portal)); err != nil {
			return err
		}
	}
	if po.part == nil {
		return s.executeOwn(ctx, po)
	}
	s.count(plan.Route, po.part.node)
	p, err := s.segmentOn(ctx, po.part.node)
	if err != nil {
		return err
	}
	p.conn.Stream.Append(msg)
	e.awaited++
	s.relay.executes = append(s.relay.executes, po.columns)
	if po.stmt == nil { // a cursor of SQL
		return nil
	}
	st := &po.stmt.entry.statements[0]
	if st.plan != nil && (st.plan.Hold != "" || len(st.plan.Settings) > 0 || st.class == analyze.Declare) {
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
	if !s.staysOnLoop(po.spread) {
		s.task.Detach()
	}
	// It may use the batch's connections, or end its transaction.
	if err := s.protectBatch(ctx); err != nil {
		return err
	}
	entry := po.stmt.entry
	if len(entry.statements) == 0 {
		out := s.client.Out()
		*out = pgwire.AppendEmptyQueryResponse(*out)
		return nil
	}
	st := &entry.statements[0]
	if po.signal.pid != 0 {
		return s.signal(ctx, st.signal, po.signal, false, slices.Contains(po.args.results, 1))
	}
	if st.plan != nil && st.plan.Kind == plan.Distribute {
		return s.inUTF8(ctx, func() error { return s.place(ctx, st.plan.Placing, po.values) })
	}
	if po.spread != nil {
		return s.executeSpread(ctx, po)
	}
	if st.plan != nil && (len(po.values) > 0 || isEvery(entry)) {
		return s.everyWithParams(ctx, st, po)
	}
	s.text, s.raw = []byte(po.stmt.text), nil
	if po.stmt.rawEncoding == s.encodings.client {
		s.raw = []byte(po.stmt.raw)
	}
	mark := len(*s.client.Out())
	if err := s.runPlanned(ctx, st, nil); err != nil {
		return err
	}
	s.stripDescription(mark)
	if s.stopped {
		s.stopped = false
		return errToldAlready
	}
	return nil
}

// storePortal brings all rows of a portal that is read piece by piece to the home node; from then on it is that node's.
func (s *session) storePortal(ctx context.Context, po *portal, name string) error {
	stored := po.spread.plan.Exchange
	if stored.Final == "" {
		stored = stored.Stored
	} else if stored.Gathered != nil {
		stored = stored.Gathered
	}
	if stored == nil || po.spread.class != analyze.Query {
		return nil
	}
	s.task.Detach()
	if err := s.finishSegment(ctx); err != nil {
		return err
	}
	if s.txn.mode == modeIdle {
		if err := s.promote(ctx); err != nil {
			return err
		}
	}
	run, err := s.beginSpread(ctx, po.spread, stored, po.args)
	if errors.Is(err, errOtherEpoch) {
		if po.spread, err = s.planSpread(ctx, po.spread, po.args.types); err != nil {
			return err
		}
		return s.storePortal(ctx, po, name)
	}
	if err != nil {
		return err
	}
	final, extra, err := s.gather(ctx, run)
	if err != nil {
		return err
	}
	p, err := s.participant(ctx, run.m.Home)
	if err == nil {
		err = s.flushPreamble(p)
	}
	if err != nil {
		return err
	}
	s.appendFinal(run, p, name, final, extra)
	out := p.conn.Stream.Out()
	*out = pgwire.AppendSync(*out)
	if _, err := s.collect(ctx, p.conn); err != nil {
		return err
	}
	po.part, po.stmt = p, nil
	return s.tidy(ctx, run, p, true, extra == nil)
}

// executeSpread runs a portal over several nodes.
func (s *session) executeSpread(ctx context.Context, po *portal) error {
	s.text = []byte(po.stmt.text)
	s.count(plan.Spread, "")
	err := s.spread(ctx, po.spread, po.args, false)
	if errors.Is(err, errShown) {
		s.stopped = false
		return errToldAlready
	}
	return err
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
	po := s.portal(name)
	e.dropPortal(name)
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
