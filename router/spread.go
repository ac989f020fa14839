package router

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
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
	parks        bool         // it waits for nodes as a task of the loop
	session      *session
	st           *plannedStatement
	own          []uint32         // the types of the client's own parameters
	arrays       map[int][][]byte // few moved rows, by fragment: an array for each column
}

// spread runs a statement over several nodes. The row description goes along unless the protocol has its own place for it.
func (s *session) spread(ctx context.Context, st *plannedStatement, args arguments, describe bool) error {
	if !s.staysOnLoop(st) {
		s.task.Detach()
	}
	if st.lifted {
		args = s.lifted
	}
	run, err := s.beginSpread(ctx, st, s.exchangeOf(st), args)
	for errors.Is(err, errOtherEpoch) { // the map has changed since it was planned
		if st, err = s.planSpread(ctx, st, args.types); err != nil {
			return err
		}
		run, err = s.beginSpread(ctx, st, s.exchangeOf(st), args)
	}
	if err != nil {
		return err
	}
	work := func() error { return s.runSpread(ctx, st, run, describe) }
	if s.readsAtomically() && run.onlyReads(st) {
		err = s.atomically(ctx, run, work)
	} else {
		err = work()
	}
	if st.lifted && err != nil {
		return s.literalError(ctx, err)
	}
	return err
}

// exchangeOf is the plan that this session can use: the bytes of texts have the order of the server's only in its own encoding.
func (s *session) exchangeOf(st *plannedStatement) *plan.Exchange {
	e := st.plan.Exchange
	if e.Stored != nil && s.ordersOtherwise(e) {
		return e.Stored
	}
	return e
}

// ordersOtherwise reports rows that are merged by texts which the client has in another encoding.
func (s *session) ordersOtherwise(e *plan.Exchange) bool {
	return (s.encodings.foreign || s.encodings.serverForeign) && slices.ContainsFunc(e.Merge.Order, func(k plan.SortKey) bool { return k.IsText() })
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
		return s.explainSpread(ctx, st, run, describe)
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
		return s.parked(run, func() error { return s.work(ctx, st, run) })
	}
	if run.combines(st) {
		return s.parked(run, func() error { return s.combine(ctx, run) })
	}
	if s.capture == nil && s.txn.mode == modeIdle && run.oncePerNode(st) && !run.shape.large.Load() {
		done := false
		err := s.parked(run, func() (err error) {
			done, err = s.lastStepAlone(ctx, st, run)
			return err
		})
		if done || err != nil {
			return err
		}
	}
	s.task.Detach()
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
	if s.schemaChanged {
		if err := s.answeringAll(ctx, homeFirst(v.m)); err != nil {
			return nil, err
		}
	}
	return s.prepareSpread(ctx, st, v.m, e, args)
}

// prepareSpread computes what all fragments share.
func (s *session) prepareSpread(ctx context.Context, st *plannedStatement, m *keyspace.Map, e *plan.Exchange, args arguments) (*spreadRun, error) {
	err := s.cutsSafely(e)
	if err == nil && s.ordersOtherwise(e) {
		err = pgwire.Errorf(pgwire.CodeFeatureNotSupported, "ORDER BY a text over several nodes in client encoding %s is not supported here", s.encodings.client).
			WithHint("SET client_encoding = 'UTF8'.")
	}
	if err != nil {
		return nil, err
	}
	run := &spreadRun{e: e, m: m, arguments: args, limit: s.exchangeLimit(), session: s, st: st, own: args.types}
	// Parameters that the statement does not use are left out: what is evaluated comes right behind those it uses.
	// What is added to the client's goes elsewhere than its own.
	run.values, run.types = slices.Clip(args.values[:min(e.Params, len(args.values))]), slices.Clip(args.types[:min(e.Params, len(args.types))])
	if run.formats = slices.Clip(args.formats); len(run.formats) != len(run.values) {
		run.formats = append(run.formats, make([]int16, len(run.values))...)[:len(run.values)]
	}
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
func (s *session) nodesOf(r *spreadRun, index int) ([]string, error) {
	f := &r.e.Fragments[index]
	var known *atomic.Pointer[openNodes]
	if index < len(r.shape.fragments) && len(f.Uses) == 0 && len(f.Pins) == 1 && f.Pins[0].Open() {
		known = &r.shape.fragments[index].open
		if n := known.Load(); n != nil && n.m == r.m {
			return n.nodes, nil
		}
	}
	nodes, err := s.findNodes(r, f)
	if err == nil && known != nil {
		known.Store(&openNodes{r.m, nodes})
	}
	return nodes, err
}

func (s *session) findNodes(r *spreadRun, f *plan.Fragment) ([]string, error) {
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
	for _, u := range f.Uses {
		// Rows that go by key may be on any node of the distribution, and matter also where nothing joins them.
		if to := r.e.Fragments[u].Motion.To; to != nil {
			for _, shard := range to.Shards {
				if !slices.Contains(nodes, shard.Node) {
					nodes = append(nodes, shard.Node)
				}
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
	// columns are those whose values have OIDs that are not the home node's.
	columns []oidColumn
	tag     string // what the node says it has done

	node        string // as part may be given back before it is shown
	fragment    int
	rows, bytes int64
	started     time.Time
	took        time.Duration
	ended       bool
	untold      bool // nobody asks what it has done, and how long that took
}

// ask sends a fragment to all its nodes. All of them work while the first one's rows are read. With wait, nothing
// is done until the last of them begins to answer: by then the others usually have, and are not read in vain.
func (s *session) ask(ctx context.Context, r *spreadRun, index int, nodes []string, results []int16, wait bool) ([]*nodeRows, error) {
	f := &r.e.Fragments[index]
	asked, all := make([]*nodeRows, 0, len(nodes)), make([]nodeRows, len(nodes))
	for i, node := range nodes {
		p, err := s.reader(ctx, node, f)
		if err != nil {
			s.abandon(asked)
			return nil, err
		}
		s.parkAsked(r, p)
		rows := &all[i]
		*rows = nodeRows{s: s, part: p, node: node, fragment: index, untold: r.parks}
		if !r.parks {
			rows.started = time.Now()
		}
		if r.e.Final == "" { // they are the client's
			rows.columns = r.oidColumns(p)
		}
		s.sendFragment(r, rows, index, results)
		err = p.conn.Stream.Flush()
		if err == nil && wait && i == len(nodes)-1 {
			err = p.conn.Stream.Await()
		}
		if err != nil {
			p.conn.Broken = true
			s.abandon(asked)
			return nil, lostNode(node)
		}
		s.atNode(node)
		asked = append(asked, rows)
	}
	if !r.parks { // EXPLAIN never does
		r.asked = append(r.asked, asked...)
	}
	return asked, nil
}

// reader is the node's part in the transaction, for a fragment. What the planner lets into fragments writes nothing, unless it hides
// code of users, so a node that has run no more than those need not be asked at the end.
func (s *session) reader(ctx context.Context, node string, f *plan.Fragment) (*participant, error) {
	before := s.txn.part(node)
	other := before != nil && before.began && before.other // in this transaction
	p, err := s.answering(ctx, node)
	if err != nil {
		return nil, err
	}
	p.other = other || f.Opaque
	p.wrote = p.wrote || f.Locks || f.Writes
	return p, nil
}

// sendFragment queues a fragment for one node; its connection keeps it prepared.
func (s *session) sendFragment(r *spreadRun, rows *nodeRows, index int, results []int16) {
	f, shape := &r.e.Fragments[index], r.shape.fragments[index]
	id, text, formats := shape.id, f.Text, r.formats
	types, values := usedOnly(r.types, r.values, f.Params)
	if r.arrays != nil && len(f.Uses) > 0 {
		id, text, formats = shape.arraysID, shape.arrays, slices.Clone(formats)
		values, types = slices.Clip(values), slices.Clip(types)
		for _, u := range f.Uses {
			values = append(values, r.arrays[u]...)
		}
		formats = append(formats, make([]int16, len(values)-len(formats))...)
		types = append(types, make([]uint32, len(values)-len(types))...)
	}
	conn := rows.part.conn
	name, known := "", r.st.lifted
	out := conn.Stream.Out()
	if known { // a plan for any values would not be what the client's literals get
		*out = pgwire.AppendParse(*out, "", conn.Wire(text), rows.part.typesAt(types))
	} else if name, known = conn.Statements.Name(id); !known {
		name, _ = parseNamed(conn, id, text, rows.part.typesAt(types))
		rows.id = id
	}
	*out = pgwire.AppendBind(*out, "", name, formats, rows.part.valuesAt(types, formats, values), results)
	*out = pgwire.AppendExecute(*out, "", 0)
	*out = pgwire.AppendSync(*out)
}

// parseNamed queues the preparation of a statement that the connection does not have yet. Closed reports that another one
// gave way, whose CloseComplete comes first.
func parseNamed(conn *pool.Conn, id uint64, text string, types []uint32) (name string, closed bool) {
	out := conn.Stream.Out()
	name, evicted := conn.Statements.Add(id)
	if evicted != "" {
		*out = pgwire.AppendClose(*out, pgwire.Statement, evicted)
	}
	*out = pgwire.AppendParse(*out, name, conn.Wire(text), types)
	return name, evicted != ""
}

// usedOnly are parameters for a text that has only some of them. Of the others, those of types that a node may not know
// become NULL of a type that every node knows.
func usedOnly(types []uint32, values [][]byte, used map[int]bool) ([]uint32, [][]byte) {
	own := false
	for i, t := range types {
		if t < firstUserOID || used[i+1] {
			continue
		}
		if !own {
			types, values, own = slices.Clone(types), slices.Clone(values), true
		}
		types[i] = 25 // text
		if i < len(values) {
			values[i] = nil
		}
	}
	return types, values
}

// next reads up to the next row; false at the end of the rows.
func (n *nodeRows) next() (bool, error) {
	if n.ended {
		return false, nil
	}
	if n.part.owes() {
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
			if n.columns != nil {
				if err := rowToHome(n.part.oids, n.columns, msg[5:]); err != nil {
					return false, err
				}
			}
			return true, nil
		case 'E':
			failure = pgwire.ParseError(msg)
			if n.id != 0 {
				conn.Statements.Remove(n.id)
			}
		case 'C':
			if tag, err := pgwire.CommandTag(msg); err == nil && !n.untold {
				n.tag = string(tag)
			}
		case 'N':
			n.s.client.Append(msg)
		case 'S':
			conn.ParameterStatus(msg)
		case 'Z':
			conn.TxStatus, n.ended = pgwire.ReadyStatus(msg), true
			if !n.started.IsZero() {
				n.took = time.Since(n.started)
			}
			if failure != nil {
				return false, failure
			}
			return false, nil
		}
	}
}

// abandon stops what nodes still do and reads what they have sent, so that their connections can be used again.
func (s *session) abandon(asked []*nodeRows) {
	s.task.Detach()
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
