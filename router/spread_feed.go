package router

import (
	"context"
	"slices"
	"strings"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// feedRows is how many rows of a feed are under way at once, and maxFeed how many bytes when all must be.
const (
	feedRows = 5000
	maxFeed  = 64 << 20
)

// feed runs a write whose rows are computed first: they are stored on the home node and given to their nodes in portions.
func (s *session) feed(ctx context.Context, st *plannedStatement, r *spreadRun) error {
	f := r.e.Feed
	if err := s.lockCopies(ctx, r.m, f.Lock); err != nil {
		return err
	}
	inner, err := s.prepareSpread(ctx, st, r.m, f.Query, r.arguments)
	if err != nil {
		return err
	}
	final, extra, err := s.gather(ctx, inner)
	if err != nil {
		return err
	}
	home, err := s.participant(ctx, r.m.Home)
	if err == nil {
		err = s.flushPreamble(home)
	}
	if err != nil {
		return err
	}
	w := &feeding{s: s, r: r, d: r.m.Distribution(f.Pin.Distribution), own: make([]portions, max(1, len(f.Actions))), seen: map[string]bool{}}
	if f.NeedsTypes() {
		if w.types, err = s.rowTypes(ctx, home, inner); err != nil {
			return err
		}
	}
	s.appendFinal(inner, home, "", `DECLARE "shoal feed" NO SCROLL CURSOR FOR `+final, extra)
	out := home.conn.Stream.Out()
	*out = pgwire.AppendSync(pgwire.AppendExecute(*out, "", 0))
	if _, err := s.collect(ctx, home.conn); err != nil {
		return err
	}
	if err := w.all(ctx, home); err != nil {
		return err
	}
	if err := home.conn.Exec(ctx, `CLOSE "shoal feed"`); err != nil {
		return err
	}
	r.below = append(r.below, inner)
	s.complete(f.Tag + " " + itoa(int(w.total)))
	return s.tidy(ctx, inner, home, false, extra == nil)
}

// lockCopies has all nodes lock the copies of a reference table, the home node first: from then on they stay the same until
// this statement changes them.
func (s *session) lockCopies(ctx context.Context, m *keyspace.Map, text string) error {
	if text == "" {
		return nil
	}
	for _, node := range homeFirst(m) {
		p, err := s.participant(ctx, node)
		if err == nil {
			err = s.flushPreamble(p)
		}
		if err != nil {
			return err
		}
		p.wrote = true
		if err := p.conn.Exec(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// rowTypes are the types of the columns that the query of a feed has.
func (s *session) rowTypes(ctx context.Context, home *participant, inner *spreadRun) ([]plan.ColumnType, error) {
	if types := inner.shape.types.Load(); types != nil {
		return *types, nil
	}
	rows, err := describeRows(home.conn, inner.shape.arrays, inner.types)
	if err != nil {
		return nil, err
	}
	columns, err := pgwire.RowDescription(rows)
	if err != nil {
		return nil, err
	}
	types, err := columnTypes(ctx, home.conn, "", nil, columns, nil)
	if err == nil {
		inner.shape.types.Store(&types)
	}
	return types, err
}

// feeding gives rows to their nodes.
type feeding struct {
	s     *session
	r     *spreadRun
	d     *keyspace.Distribution
	types []plan.ColumnType
	total int64

	own           []portions // for each action
	remove, store portions   // of rows that go to another node
	seen          map[string]bool
	size          int
}

// portion is what one node gets: one array for each column.
type portion struct {
	node    string
	columns [][]byte
}

// portions are the rows of one statement, by node.
type portions []*portion

func (p *portions) add(node string, row [][]byte) {
	i := slices.IndexFunc(*p, func(q *portion) bool { return q.node == node })
	if i < 0 {
		i = len(*p)
		*p = append(*p, &portion{node: node, columns: make([][]byte, len(row))})
	}
	for c, v := range row {
		to := &(*p)[i].columns[c]
		if *to == nil {
			*to = append(*to, '{')
		} else {
			*to = append(*to, ',')
		}
		*to = appendElement(*to, v)
	}
}

// all reads the rows and gives them to their nodes.
func (w *feeding) all(ctx context.Context, home *participant) error {
	for {
		rows, err := home.conn.Query(ctx, `FETCH `+itoa(feedRows)+` FROM "shoal feed"`)
		if err != nil {
			return err
		}
		for _, row := range rows {
			if err := w.place(row); err != nil {
				return err
			}
		}
		last := len(rows) < feedRows
		if last || !w.r.e.Feed.Whole {
			err = w.flush(ctx)
		} else if w.size > maxFeed {
			err = pgwire.Errorf("54000", "the statement changes more than %d MB of rows at once", maxFeed>>20).WithHint("Do it in parts.")
		}
		if err != nil || last {
			return err
		}
	}
}

// place finds out who gets a row.
func (w *feeding) place(row [][]byte) error {
	f := w.r.e.Feed
	at, key := 0, f.Key
	changes := len(f.Changed) > 0
	if len(f.Actions) > 0 {
		number := int(atoi(row[0]))
		if at = slices.IndexFunc(f.Actions, func(a plan.Action) bool { return a.Number == number }); at < 0 {
			return nil
		}
		key, changes = f.Actions[at].Key, f.Actions[at].Changes
	}
	for _, v := range row {
		w.size += len(v)
	}
	nodes := homeFirst(w.r.m)
	if !f.Everywhere {
		node, err := w.node(row, key)
		if err != nil {
			return err
		}
		nodes = []string{node}
	}
	if changes && (f.Everywhere || len(f.Actions) > 0) {
		again, err := w.again(nodes[0], row)
		if err != nil || again {
			return err
		}
	}
	if f.Move != nil {
		to, err := w.node(row, f.Move.NewKey)
		if err != nil {
			return err
		}
		if to != nodes[0] {
			w.remove.add(nodes[0], row)
			w.store.add(to, row)
			return nil
		}
	}
	for _, node := range nodes {
		w.own[at].add(node, row)
	}
	return nil
}

// again reports a row that is changed already. An UPDATE takes the first of several new values, as PostgreSQL does; MERGE
// must not change a row twice.
func (w *feeding) again(node string, row [][]byte) (bool, error) {
	f := w.r.e.Feed
	var changed strings.Builder
	changed.WriteString(node)
	for _, at := range f.Changed {
		changed.WriteString("\x00" + string(row[at]))
	}
	if !w.seen[changed.String()] {
		w.seen[changed.String()] = true
		return false, nil
	}
	if len(f.Actions) > 0 {
		return false, pgwire.Errorf("21000", "MERGE command cannot affect row a second time").
			WithHint("Ensure that not more than one source row matches any one target row.")
	}
	return true, nil
}

// flush has the nodes write what they were given.
func (w *feeding) flush(ctx context.Context) error {
	f := w.r.e.Feed
	for i, list := range w.own {
		text := f.Text
		if len(f.Actions) > 0 {
			text = f.Actions[i].Text
		}
		if err := w.run(ctx, text, list, true); err != nil {
			return err
		}
		w.own[i] = nil
	}
	if f.Move == nil {
		return nil
	}
	if err := w.run(ctx, f.Move.Remove, w.remove, false); err != nil {
		return err
	}
	if err := w.run(ctx, f.Move.Store, w.store, true); err != nil {
		return err
	}
	w.remove, w.store = nil, nil
	return nil
}

// node is where a row with this key is.
func (w *feeding) node(row [][]byte, key []int) (string, error) {
	values := make([]exec.Value, len(key))
	for i, k := range key {
		if row[k] == nil && w.r.e.Feed.NullAtHome {
			return w.r.m.Home, nil
		}
		v, err := w.s.clientKey(exec.Value{Data: row[k], Null: row[k] == nil}, &plan.Operand{})
		if err != nil {
			return "", err
		}
		values[i] = v
	}
	shard, err := exec.Row(w.d, &w.r.e.Feed.Pin, values, w.s)
	if err != nil {
		return "", err
	}
	return shard.Node, nil
}

// run gives nodes their portions and passes on what they return. The rows count when they are the answer's. The home node writes copies of
// a row before the others do, so that writers queue up there.
func (w *feeding) run(ctx context.Context, text string, list portions, counts bool) error {
	text = w.r.e.Feed.Typed(text, w.types)
	if !w.r.e.Feed.Everywhere || len(list) == 0 {
		_, err := w.together(ctx, text, list, counts)
		return err
	}
	first, err := w.together(ctx, text, list[:1], counts)
	if err != nil {
		return err
	}
	others, err := w.together(ctx, text, list[1:], false)
	for i := range others {
		if err == nil && others[i] != first[0] {
			err = pgwire.Errorf("40001", "the copies of reference table %q differ between nodes: %s against %s", w.r.e.Feed.Pin.Table, first[0], others[i]).
				WithHint("Another transaction may be about to end there: run the transaction again.")
		}
	}
	return err
}

// together gives nodes their portions at once and returns their command tags. Only rows that count are passed on.
func (w *feeding) together(ctx context.Context, text string, list portions, counts bool) (tags []string, err error) {
	s := w.s
	var asked []*nodeRows
	for _, p := range list {
		part, err := s.answering(ctx, p.node)
		if err == nil {
			part.wrote = true
			err = w.send(part, text, p)
		}
		if err != nil {
			s.abandon(asked)
			return nil, err
		}
		s.atNode(p.node)
		asked = append(asked, &nodeRows{s: s, part: part, columns: w.r.oidColumns(part)})
	}
	for _, n := range asked {
		if err := w.answered(n, !counts); err != nil {
			s.abandon(asked)
			return nil, err
		}
		if tags = append(tags, n.tag); counts {
			w.total += tagRows(n.tag)
		}
	}
	return tags, nil
}

// send has a node write its portion.
func (w *feeding) send(part *participant, text string, p *portion) error {
	values := slices.Clone(w.r.values)
	for _, c := range p.columns {
		values = append(values, append(c, '}'))
	}
	types := append(slices.Clone(w.r.types), make([]uint32, len(p.columns))...)
	formats := append(slices.Clone(w.r.formats), make([]int16, len(p.columns))...)
	types, values = usedOnly(types, values, textParameters(text))
	out := part.conn.Stream.Out()
	*out = pgwire.AppendParse(*out, "", part.conn.Wire(text), part.typesAt(types))
	*out = pgwire.AppendBind(*out, "", "", formats, part.valuesAt(types, formats, values), w.r.results)
	*out = pgwire.AppendSync(pgwire.AppendExecute(*out, "", 0))
	if err := part.conn.Stream.Flush(); err != nil {
		part.conn.Broken = true
		return lostNode(p.node)
	}
	return nil
}

// answered reads a node's answer and passes its rows on, unless they are not the client's.
func (w *feeding) answered(n *nodeRows, silent bool) error {
	for {
		more, err := n.next()
		if err != nil {
			return err
		}
		if !more {
			return nil
		}
		if silent {
			continue
		}
		if err := w.s.sendRow(n.row, 0); err != nil {
			return err
		}
	}
}
