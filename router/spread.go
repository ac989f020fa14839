package router

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// arguments are the values of a statement's parameters, and the formats in which the client wants the columns
// of the result: none is text, one is for all.
type arguments struct {
	types   []uint32
	formats []int16
	values  [][]byte
	results []int16
	// computed are values that were evaluated before the statement turned out to need several nodes.
	computed *computedValues
}

// computedValues are expressions that have been evaluated.
type computedValues struct {
	exprs  []string
	values [][]byte
	types  []uint32
}

// spreadRun is one execution of a query over several nodes.
type spreadRun struct {
	e     *plan.Exchange
	m     *keyspace.Map
	shape *spreadShape
	arguments
	moved, limit int64 // bytes of rows that go from node to node
	asked        []*nodeRows
	below        []*spreadRun // the runs that are part of it
	session      *session
}

// spread runs a statement over several nodes. The row description goes along unless the protocol has its own place for it.
func (s *session) spread(ctx context.Context, st *plannedStatement, args arguments, describe bool) error {
	run, err := s.beginSpread(ctx, st, st.plan.Exchange, args)
	for errors.Is(err, errOtherEpoch) { // the map has changed since it was planned
		if st, err = s.planSpread(ctx, st, args.types); err != nil {
			return err
		}
		run, err = s.beginSpread(ctx, st, st.plan.Exchange, args)
	}
	if err != nil {
		return err
	}
	work := func() error { return s.runSpread(ctx, st, run, describe) }
	if s.readsAtomically() && run.onlyReads(st) {
		return s.atomically(ctx, run, work)
	}
	return work()
}

// onlyReads reports a query that neither writes nor locks rows.
func (r *spreadRun) onlyReads(st *plannedStatement) bool {
	return !st.plan.Writes && r.e.Feed == nil && r.e.Insert == nil && len(r.e.Steps) == 0 &&
		!slices.ContainsFunc(r.e.Fragments, func(f plan.Fragment) bool { return f.Writes || f.Locks })
}

// runSpread runs it in the session's transaction or outside one.
func (s *session) runSpread(ctx context.Context, st *plannedStatement, run *spreadRun, describe bool) error {
	switch {
	case st.class == analyze.Explain:
		return s.explainSpread(ctx, st, run)
	case run.e.CopyEach:
		return s.copyOut(ctx, run)
	}
	if describe && st.class == analyze.Query {
		s.client.Append(run.shape.rows)
	}
	return s.runWork(ctx, st, run)
}

// runWork does what the plan says, in a transaction unless one fragment only reads.
func (s *session) runWork(ctx context.Context, st *plannedStatement, run *spreadRun) error {
	if e := run.e; len(e.Steps) == 0 && e.Feed == nil && e.Insert == nil && e.Final == "" && !e.Fragments[0].Writes {
		return s.work(ctx, st, run)
	}
	return s.inTransaction(ctx, func() error { return s.work(ctx, st, run) })
}

// work does what the plan says.
func (s *session) work(ctx context.Context, st *plannedStatement, run *spreadRun) error {
	switch e := run.e; {
	case len(e.Steps) > 0:
		return s.steps(ctx, st, run)
	case e.Feed != nil:
		return s.feed(ctx, st, run)
	case e.Insert != nil:
		return s.insertRows(ctx, run)
	case e.Final == "":
		return s.merge(ctx, run)
	}
	return s.lastStep(ctx, st, run)
}

// lastStep gathers the rows and runs the last step over them.
func (s *session) lastStep(ctx context.Context, st *plannedStatement, run *spreadRun) error {
	final, extra, err := s.gather(ctx, run)
	if err != nil {
		return err
	}
	p, err := s.participant(ctx, run.m.Home)
	if err != nil {
		return err
	}
	p.wrote = p.wrote || st.plan.Writes
	if s.capture != nil {
		err = s.capturedFinal(ctx, run, p, final, extra)
	} else if st.class == analyze.Copy {
		err = s.finalText(ctx, run, p, final, extra)
	} else {
		err = s.final(ctx, run, p, final, extra)
	}
	if err != nil {
		return err
	}
	s.effects(ctx, st, p)
	return s.tidy(ctx, run, p, st.class == analyze.Declare, extra == nil)
}

// planSpread plans a statement over several nodes again under the current map.
func (s *session) planSpread(ctx context.Context, st *plannedStatement, params []uint32) (*plannedStatement, error) {
	again, err := s.planAgain(ctx, st, params)
	switch {
	case err != nil:
		return nil, err
	case again.plan != nil && again.plan.Kind == plan.Spread:
		return again, nil
	case again.plan != nil && again.plan.Kind == plan.Route: // its values decide, and they led to several nodes
		return s.severalNodes(ctx, again, again.text, params, &exec.SeveralNodes{})
	}
	return nil, errStale()
}

// beginSpread enters the tables and prepares the execution.
func (s *session) beginSpread(ctx context.Context, st *plannedStatement, e *plan.Exchange, args arguments) (*spreadRun, error) {
	if s.txn.failed {
		return nil, errAborted()
	}
	v, err := s.enter(ctx, st.plan.Tables, st.plan.Epoch)
	if err != nil {
		return nil, err
	}
	if v.m.Epoch != st.plan.Epoch && !s.schemaChanged {
		return nil, errOtherEpoch
	}
	return s.prepareSpread(ctx, st, v.m, e, args)
}

// prepareSpread computes what all fragments share.
func (s *session) prepareSpread(ctx context.Context, st *plannedStatement, m *keyspace.Map, e *plan.Exchange, args arguments) (*spreadRun, error) {
	err := s.cutsSafely(e)
	if err != nil {
		return nil, err
	}
	run := &spreadRun{e: e, m: m, arguments: args, limit: s.exchangeLimit(), session: s}
	// Parameters that the statement does not use are left out: what is evaluated comes right behind those it uses.
	run.values, run.types = slices.Clone(args.values[:min(e.Params, len(args.values))]), slices.Clone(args.types[:min(e.Params, len(args.types))])
	run.formats = append(slices.Clone(args.formats), make([]int16, len(run.values))...)[:len(run.values)]
	if len(e.Eval) > 0 && !onlyShown(st, e) {
		var values [][]byte
		var types []uint32
		if c := args.computed; c != nil && slices.Equal(c.exprs, e.Eval) {
			values, types = c.values, c.types
		} else if values, types, err = s.evaluate(ctx, e.Eval); err != nil {
			return nil, err
		}
		run.values, run.types = append(run.values, values...), append(run.types, types...)
		for range values {
			run.formats = append(run.formats, 0)
		}
	}
	run.shape, err = s.shapeOf(ctx, st, e, run.types, args.types)
	return run, err
}

// onlyShown reports an INSERT of rows that EXPLAIN shows without running it: its keys, which may come from sequences, are not computed.
func onlyShown(st *plannedStatement, e *plan.Exchange) bool {
	if st.class != analyze.Explain || e.Insert == nil {
		return false
	}
	analyzes, _, err := explainOptions(st.text)
	return err == nil && !analyzes
}

// Value gives an operand of a pin its value.
func (r *spreadRun) Value(o *plan.Operand) (exec.Value, error) {
	if o.Null {
		return exec.Value{Null: true}, nil
	}
	at := o.Param
	if o.Eval > 0 {
		at = r.e.Params + o.Eval
	}
	if at > len(r.values) {
		return exec.Value{}, pgwire.Errorf(pgwire.CodeFeatureNotSupported, "a value of this statement is known only while it runs")
	}
	if at == 0 {
		return r.session.textKey([]byte(o.Text))
	}
	v := r.values[at-1]
	return r.session.clientKey(exec.Value{Data: v, Null: v == nil, Binary: r.formats[at-1] == 1}, o)
}

// nodesOf are the nodes that have rows for a fragment; one node says that there are none.
func (s *session) nodesOf(r *spreadRun, f *plan.Fragment) ([]string, error) {
	var nodes []string
	for i := range f.Pins {
		some, err := exec.Nodes(r.m, &f.Pins[i], r, s)
		if err != nil {
			return nil, err
		}
		for _, n := range some {
			if !slices.Contains(nodes, n) {
				nodes = append(nodes, n)
			}
		}
	}
	if len(nodes) == 0 {
		nodes = []string{r.m.Home}
	}
	return nodes, nil
}

// nodeRows are the rows that one node answers to a fragment.
type nodeRows struct {
	s    *session
	part *participant
	id   uint64 // of the statement that was prepared for it, 0 if it was there
	row  []byte // the current DataRow message
	tag  string // what the node says it has done

	node        string // as part may be given back before it is shown
	fragment    int
	rows, bytes int64
	started     time.Time
	took        time.Duration
	ended       bool
}

// ask sends a fragment to all its nodes. All of them work while the first one's rows are read.
func (s *session) ask(ctx context.Context, r *spreadRun, index int, nodes []string, results []int16) ([]*nodeRows, error) {
	f := &r.e.Fragments[index]
	var asked []*nodeRows
	for _, node := range nodes {
		p, err := s.participant(ctx, node)
		if err != nil {
			s.abandon(asked)
			return nil, err
		}
		p.wrote = p.wrote || f.Locks || f.Writes
		rows := &nodeRows{s: s, part: p, node: node, fragment: index, started: time.Now()}
		s.sendFragment(r, rows, index, results)
		if err := p.conn.Stream.Flush(); err != nil {
			p.conn.Broken = true
			s.abandon(asked)
			return nil, lostNode(node)
		}
		s.atNode(node)
		asked = append(asked, rows)
	}
	r.asked = append(r.asked, asked...)
	return asked, nil
}

// sendFragment queues a fragment for one node; its connection keeps it prepared.
func (s *session) sendFragment(r *spreadRun, rows *nodeRows, index int, results []int16) {
	f, id := &r.e.Fragments[index], r.shape.fragments[index].id
	conn := rows.part.conn
	out := conn.Stream.Out()
	name, known := conn.Statements.Name(id)
	if !known {
		var evicted string
		if name, evicted = conn.Statements.Add(id); evicted != "" {
			*out = pgwire.AppendClose(*out, pgwire.Statement, evicted)
		}
		*out = pgwire.AppendParse(*out, name, conn.Wire(f.Text), nodeTypes(r.types, f.Params))
		rows.id = id
	}
	*out = pgwire.AppendBind(*out, "", name, r.formats, r.values, results)
	*out = pgwire.AppendExecute(*out, "", 0)
	*out = pgwire.AppendSync(*out)
}

// nodeTypes are the parameter types as any node knows them: those that users made have other numbers
// there, and are found out from where the parameters stand. Unused ones need some type.
func nodeTypes(types []uint32, used map[int]bool) []uint32 {
	out := make([]uint32, len(types))
	for i, t := range types {
		switch {
		case t < firstUserOID:
			out[i] = t
		case !used[i+1]:
			out[i] = 25 // text
		}
	}
	return out
}

// next reads up to the next row; false at the end of the rows.
func (n *nodeRows) next() (bool, error) {
	if n.ended {
		return false, nil
	}
	if n.part.preamble > 0 {
		if err := n.s.readPreamble(n.part); err != nil {
			n.ended = true
			return false, err
		}
	}
	conn := n.part.conn
	var failure *pgwire.Error
	for {
		typ, msg, err := conn.Stream.Next()
		if err != nil {
			conn.Broken, n.ended = true, true
			if failure != nil {
				return false, failure
			}
			return false, lostNode(n.part.node)
		}
		switch typ {
		case 'D':
			n.row, n.rows, n.bytes = msg, n.rows+1, n.bytes+int64(len(msg))
			return true, nil
		case 'E':
			failure = pgwire.ParseError(msg)
			if n.id != 0 {
				conn.Statements.Remove(n.id)
			}
		case 'C':
			if tag, err := pgwire.CommandTag(msg); err == nil {
				n.tag = string(tag)
			}
		case 'N':
			n.s.client.Append(msg)
		case 'S':
			conn.ParameterStatus(msg)
		case 'Z':
			conn.TxStatus, n.ended, n.took = pgwire.ReadyStatus(msg), true, time.Since(n.started)
			if failure != nil {
				return false, failure
			}
			return false, nil
		}
	}
}

// abandon stops what nodes still do and reads what they have sent, so that their connections can be used again.
func (s *session) abandon(asked []*nodeRows) {
	s.mu.Lock()
	for _, n := range asked {
		if !n.ended && !n.part.conn.Broken {
			_ = n.part.conn.Cancel(context.Background())
		}
	}
	s.mu.Unlock()
	s.drain(asked)
}

// drain reads the rest of the rows.
func (s *session) drain(asked []*nodeRows) {
	for _, n := range asked {
		for !n.ended {
			if more, err := n.next(); err != nil || !more {
				break
			}
		}
	}
}

// countValue is the number of rows that LIMIT or OFFSET says; -1 for none.
func (r *spreadRun) countValue(c *plan.Count) (int64, error) {
	if c == nil {
		return -1, nil
	}
	if c.Param == 0 {
		return c.Value, nil
	}
	v := r.values[c.Param-1]
	if v == nil {
		return -1, nil
	}
	if r.formats[c.Param-1] == 1 {
		n := int64(0)
		for i, b := range v {
			if i == 0 && b&0x80 != 0 {
				n = -1
			}
			n = n<<8 | int64(b)
		}
		return n, nil
	}
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, pgwire.Errorf("22P02", "invalid input syntax for type bigint: %q", v)
	}
	return n, nil
}

// limits reads LIMIT and OFFSET and refuses what PostgreSQL refuses.
func (r *spreadRun) limits() (limit, offset int64, err error) {
	if limit, err = r.countValue(r.e.Merge.Limit); err != nil {
		return 0, 0, err
	}
	if offset, err = r.countValue(r.e.Merge.Offset); err != nil {
		return 0, 0, err
	}
	switch {
	case limit < -1 || limit == -1 && r.e.Merge.Limit != nil && r.e.Merge.Limit.Param == 0:
		return 0, 0, pgwire.Errorf("2201W", "LIMIT must not be negative")
	case offset < -1 || offset == -1 && r.e.Merge.Offset != nil && r.e.Merge.Offset.Param == 0:
		return 0, 0, pgwire.Errorf("2201X", "OFFSET must not be negative")
	}
	return limit, max(offset, 0), nil
}

// final runs the last step on the home node, with the client's parameters and those that hold gathered rows.
func (s *session) final(ctx context.Context, r *spreadRun, p *participant, text string, extra [][]byte) error {
	s.appendFinal(r, p, "", text, extra)
	out := p.conn.Stream.Out()
	*out = pgwire.AppendSync(pgwire.AppendExecute(*out, "", 0))
	return s.shown(s.relayOwn(ctx, p))
}

// appendFinal queues Parse and Bind of the last step.
func (s *session) appendFinal(r *spreadRun, p *participant, portal, text string, extra [][]byte) {
	types := append(slices.Clone(r.types), make([]uint32, len(extra))...)
	values := append(slices.Clone(r.values), extra...)
	formats := append(slices.Clone(r.formats), make([]int16, len(extra))...)
	out := p.conn.Stream.Out()
	*out = pgwire.AppendParse(*out, "", p.conn.Wire(text), types)
	*out = pgwire.AppendBind(*out, portal, "", formats, values, r.results)
}

// finalText runs a last step that PostgreSQL takes no parameters for.
func (s *session) finalText(ctx context.Context, r *spreadRun, p *participant, text string, extra [][]byte) error {
	values, err := s.readValues(ctx, append(slices.Clone(r.values), extra...))
	if err != nil {
		return err
	}
	p.conn.SendQuery(withValues(text, values))
	s.relay.keepReady = true
	failed, err := s.exchange(ctx, p)
	s.relay.keepReady = false
	return s.shown(failed, err)
}

// shown notes an error that the client has seen.
func (s *session) shown(failed bool, err error) error {
	if err == nil && failed {
		s.stopped = true
		s.failBlock()
		return errShown
	}
	return err
}

// withValues writes values in place of $1, $2, ... in a text that the router has made itself.
func withValues(text string, values [][]byte) string {
	var b strings.Builder
	done := 0
	eachParameter(text, func(from, to, n int) {
		b.WriteString(text[done:from])
		if v := values[n-1]; v == nil {
			b.WriteString("NULL")
		} else {
			b.WriteString(plan.QuoteLiteral(string(v)))
		}
		done = to
	})
	b.WriteString(text[done:])
	return b.String()
}

// eachParameter finds the parameters of a text as analyze.Deparse writes it: strings are in single quotes, names in double ones.
func eachParameter(text string, visit func(from, to, number int)) {
	var quote byte
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '$' && i+1 < len(text) && text[i+1] >= '1' && text[i+1] <= '9':
			end := i + 1
			for end < len(text) && text[end] >= '0' && text[end] <= '9' {
				end++
			}
			n, _ := strconv.Atoi(text[i+1 : end])
			visit(i, end, n)
			i = end - 1
		}
	}
}

// tidy takes the temporary tables of a statement away, or out of the way of the next one when a cursor still reads them.
func (s *session) tidy(ctx context.Context, r *spreadRun, p *participant, cursor, tables bool) error {
	if !tables || s.txn.mode != modeExplicit && !cursor {
		return nil // they go with the transaction
	}
	for i := range r.e.Fragments {
		name := "pg_temp." + plan.QuoteIdent(r.e.Fragments[i].Name)
		sql := "DROP TABLE " + name
		if cursor {
			s.cursorTables++
			sql = "ALTER TABLE " + name + " RENAME TO " + plan.QuoteIdent("shoal cursor "+itoa(s.cursorTables))
		}
		if err := p.conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// errShown is an error that a node's answer has told the client already.
var errShown = errors.New("the client has the error")

// relayOwn relays an answer to messages of the extended protocol that the client does not know of.
func (s *session) relayOwn(ctx context.Context, p *participant) (failed bool, err error) {
	s.relay.keepReady, s.relay.extended = true, true
	for _, t := range []byte("12n") {
		s.relay.Watch[t] = true
	}
	failed, err = s.exchange(ctx, p)
	for _, t := range []byte("12n") {
		s.relay.Watch[t] = false
	}
	s.relay.keepReady, s.relay.extended = false, false
	return failed, err
}
