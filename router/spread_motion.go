package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// maxMotions is how many statements move rows into temporary tables of nodes at once; others gather. Each has two connections to a
// node then: if all connections belonged to sessions that wait for their second one, none would go on.
const maxMotions = 8

// gatherMoving is gather for a plan whose rows move between nodes; done is false when they cannot, and all rows are gathered instead.
func (s *session) gatherMoving(ctx context.Context, r *spreadRun) (final string, extra [][]byte, done bool, err error) {
	if !r.shape.large.Load() && !slices.ContainsFunc(r.e.Fragments, func(f plan.Fragment) bool { return f.Motion != nil && f.Motion.To != nil }) {
		extra, fit, err := s.gatherArrays(ctx, r, maxArrays)
		if err != nil || fit {
			return r.shape.arrays, extra, true, err
		}
		r.shape.large.Store(true)
	}
	r.arrays, r.moved, r.asked = nil, 0, nil
	// What the client's own transaction has written is seen by its own connections only, and one that has made a temporary table on a
	// node cannot be prepared there.
	if s.txn.mode != modeBlock || s.txn.aligned || s.hold != "" || slices.ContainsFunc(s.txn.parts, func(p *participant) bool { return p.began && (p.other || p.wrote) }) {
		return "", nil, false, nil
	}
	if !s.canHash(r) || slices.ContainsFunc(r.e.Fragments, func(f plan.Fragment) bool { return f.Opaque }) {
		return "", nil, false, nil
	}
	free := s.motionPlace()
	if free == nil {
		return "", nil, false, nil
	}
	defer free()
	if able, err := s.canMove(ctx, r); err != nil || !able {
		return "", nil, false, err
	}
	for i := range r.e.Fragments {
		if r.e.Fragments[i].Motion != nil {
			err = s.moveTable(ctx, r, i)
		} else {
			err = s.gatherTable(ctx, r, i)
		}
		if err != nil {
			return "", nil, false, err
		}
	}
	return r.shape.final, nil, true, nil
}

// canHash reports rows whose keys can be read here as the nodes mean them: in the binary format and in the servers' encoding.
func (s *session) canHash(r *spreadRun) bool {
	for i := range r.e.Fragments {
		if m := r.e.Fragments[i].Motion; m != nil && m.To != nil && (!r.shape.fragments[i].binary || s.encodings.foreign || s.encodings.serverForeign) {
			return false
		}
	}
	return true
}

// motionPlace takes a place among the statements that move rows; nil when there is none.
func (s *session) motionPlace() (free func()) {
	places := s.router.motions
	select {
	case places <- struct{}{}:
		return func() { <-places }
	default:
		return nil
	}
}

// canMove reports a transaction that can have temporary tables and takes a new snapshot for each statement, so that it does not
// matter which connection reads.
func (s *session) canMove(ctx context.Context, r *spreadRun) (bool, error) {
	p, err := s.reader(ctx, r.m.Home, &plan.Fragment{})
	if err == nil {
		err = s.flushPreamble(p)
	}
	if err != nil {
		return false, err
	}
	rows, err := p.conn.Query(ctx, `SELECT pg_catalog.current_setting('transaction_read_only') = 'off' AND
		pg_catalog.current_setting('transaction_isolation') IN ('read committed', 'read uncommitted')`)
	return err == nil && string(rows[0][0]) == "t", err
}

// fallBack goes on with the plan that gathers all rows.
func (s *session) fallBack(ctx context.Context, r *spreadRun) error {
	shape, err := s.shapeOf(ctx, r.st, r.e.Gathered, r.types, r.own)
	if err != nil {
		return err
	}
	r.e, r.shape, r.arrays, r.moved, r.asked = r.e.Gathered, shape, nil, 0, nil
	return nil
}

// motionTargets are the nodes that need the rows of a fragment: those where others use them.
func (s *session) motionTargets(r *spreadRun, index int) ([]string, error) {
	var targets []string
	for i := range r.e.Fragments {
		f := &r.e.Fragments[i]
		if !slices.Contains(f.Uses, index) {
			continue
		}
		nodes, err := s.findNodes(r, f)
		if err != nil {
			return nil, err
		}
		for _, n := range nodes {
			if !slices.Contains(targets, n) {
				targets = append(targets, n)
			}
		}
	}
	return targets, nil
}

// moveTable brings the rows of a fragment into temporary tables on the nodes that need them. They are read on connections of their
// own, as each node may have some to give and some to get.
func (s *session) moveTable(ctx context.Context, r *spreadRun, index int) error {
	f := &r.e.Fragments[index]
	targets, err := s.motionTargets(r, index)
	if err != nil {
		return err
	}
	table := plan.QuoteIdent(f.Name)
	isBinary := r.shape.fragments[index].binary
	m := &mover{s: s, r: r, motion: f.Motion, binary: isBinary}
	places := targets
	if !slices.Contains(places, r.m.Home) {
		places = append(slices.Clone(places), r.m.Home) // it describes fragments
	}
	for _, node := range places {
		p, err := s.reader(ctx, node, f)
		if err == nil {
			err = s.flushPreamble(p)
		}
		if err == nil {
			_, err = s.askHomeWith(ctx, p, r, "CREATE TEMPORARY TABLE "+table+" ON COMMIT DROP AS "+f.Text+" WITH NO DATA")
		}
		if err != nil {
			return err
		}
		if slices.Contains(targets, node) {
			m.targets = append(m.targets, &copyTarget{part: p})
		}
	}
	if f.Motion.To != nil {
		m.byNode = map[string]*copyTarget{}
		for _, t := range m.targets {
			m.byNode[t.part.node] = t
		}
	}
	sources, err := s.askApart(ctx, r, index, isBinary)
	defer s.releaseSources(sources)
	if err != nil {
		return err
	}
	r.asked = append(r.asked, sources...)
	return m.run("COPY pg_temp."+table+" FROM STDIN", sources)
}

// askApart sends a fragment to its nodes on connections outside the transaction.
func (s *session) askApart(ctx context.Context, r *spreadRun, index int, isBinary bool) ([]*nodeRows, error) {
	nodes, err := s.nodesOf(r, index)
	if err != nil {
		return nil, err
	}
	var format []int16
	if isBinary {
		format = []int16{1}
	}
	var sources []*nodeRows
	for _, node := range nodes {
		conn, err := s.acquire(ctx, node)
		if err != nil {
			return sources, err
		}
		rows := &nodeRows{s: s, part: &participant{node: node, conn: conn}, node: node, fragment: index, started: time.Now()}
		s.mu.Lock()
		s.running = append(s.running, conn)
		s.mu.Unlock()
		sources = append(sources, rows)
		err = s.sync(ctx, conn)
		if err == nil {
			err = s.knowOIDs(ctx, rows.part)
		}
		if err != nil {
			rows.ended = true
			return sources, err
		}
		s.sendFragment(r, rows, index, format)
		if err := conn.Stream.Flush(); err != nil {
			conn.Broken, rows.ended = true, true
			return sources, lostNode(node)
		}
		s.atNode(node)
	}
	return sources, nil
}

// releaseSources gives the connections back; what they still have to say is stopped and read first.
func (s *session) releaseSources(sources []*nodeRows) {
	s.abandon(sources)
	for _, n := range sources {
		conn := n.part.conn
		s.mu.Lock()
		if i := slices.Index(s.running, conn); i >= 0 {
			s.running = slices.Delete(s.running, i, i+1)
		}
		s.mu.Unlock()
		s.router.pool.Release(conn)
	}
}

// mover takes rows from some nodes and gives them to others.
type mover struct {
	s       *session
	r       *spreadRun
	motion  *plan.Motion
	binary  bool
	targets []*copyTarget
	byNode  map[string]*copyTarget // nil: all get all
	values  [][]byte
	key     []exec.Value
}

func (m *mover) run(text string, sources []*nodeRows) error {
	if m.binary {
		text += " (FORMAT binary)"
	}
	for i, t := range m.targets {
		t.part.conn.SendQuery(text)
		if _, err := beginCopy(t.part); err != nil {
			_ = failCopies(m.targets[:i], "another node failed")
			return err
		}
		if m.binary {
			out := t.part.conn.Stream.Out()
			*out = pgwire.AppendCopyData(*out, binaryHeader)
		}
	}
	for _, n := range sources {
		if err := m.take(n); err != nil {
			_ = failCopies(m.targets, "another node failed")
			return err
		}
	}
	for _, t := range m.targets {
		out := t.part.conn.Stream.Out()
		if m.binary {
			*out = pgwire.AppendCopyData(*out, []byte{0xff, 0xff})
		}
		*out = pgwire.AppendCopyDone(*out)
	}
	return endCopies(m.targets)
}

// take moves all rows of one node.
func (m *mover) take(n *nodeRows) error {
	for {
		more, err := n.next()
		if err != nil || !more {
			return err
		}
		if m.byNode == nil {
			for _, t := range m.targets {
				if err := m.give(t, n.row); err != nil {
					return err
				}
			}
			continue
		}
		t, err := m.target(n.row)
		if err == nil {
			err = m.give(t, n.row)
		}
		if err != nil {
			return err
		}
	}
}

// target is where a row belongs. A key that is NULL or has no place in the distribution joins nothing: such rows go to one node.
func (m *mover) target(row []byte) (*copyTarget, error) {
	var err error
	if m.values, err = pgwire.DataRow(row, m.values[:0]); err != nil {
		return nil, err
	}
	m.key = m.key[:0]
	for _, at := range m.motion.Key {
		v := exec.Value{Data: m.values[at], Null: m.values[at] == nil, Binary: m.binary}
		if v.Null {
			return m.targets[0], nil
		}
		m.key = append(m.key, v)
	}
	shard, err := exec.Row(m.motion.To, &m.motion.Pin, m.key, m.s)
	var homeless *exec.Homeless
	if errors.As(err, &homeless) {
		return m.targets[0], nil
	}
	if err != nil {
		return nil, err
	}
	return m.byNode[shard.Node], nil
}

// give appends a row to what a node gets.
func (m *mover) give(t *copyTarget, row []byte) error {
	if err := m.r.moves(len(row)); err != nil {
		return err
	}
	out := t.part.conn.Stream.Out()
	if m.binary {
		*out = pgwire.AppendCopyData(*out, row[5:]) // a row of COPY is the body of a DataRow
	} else {
		values, err := pgwire.DataRow(row, m.values[:0])
		if err != nil {
			return err
		}
		m.values = values
		*out = appendCopyLine(*out, values)
	}
	if len(*out) < copyChunk {
		return nil
	}
	if err := t.part.conn.Stream.Flush(); err != nil {
		t.part.conn.Broken = true
		return lostNode(t.part.node)
	}
	return nil
}
