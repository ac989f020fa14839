package router

import (
	"context"
	"slices"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// feedRows is how many rows of a feed are under way at once.
const feedRows = 5000

// feed runs a write whose rows are computed first: they are stored on the home node and given to their nodes in portions.
func (s *session) feed(ctx context.Context, st *plannedStatement, r *spreadRun) error {
	f := r.e.Feed
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
	s.appendFinal(inner, home, "", `DECLARE "shoal feed" NO SCROLL CURSOR FOR `+final, extra)
	out := home.conn.Stream.Out()
	*out = pgwire.AppendSync(pgwire.AppendExecute(*out, "", 0))
	if _, err := s.collect(ctx, home.conn); err != nil {
		return err
	}
	w := &feeding{s: s, r: r, d: r.m.Distribution(f.Pin.Distribution)}
	for {
		rows, err := home.conn.Query(ctx, `FETCH `+itoa(feedRows)+` FROM "shoal feed"`)
		if err != nil {
			return err
		}
		if err := w.store(ctx, rows); err != nil {
			return err
		}
		if len(rows) < feedRows {
			break
		}
	}
	if err := home.conn.Exec(ctx, `CLOSE "shoal feed"`); err != nil {
		return err
	}
	s.complete(f.Tag + " " + itoa(int(w.total)))
	return s.tidy(ctx, inner, home, false, extra == nil)
}

// feeding gives rows to their nodes.
type feeding struct {
	s     *session
	r     *spreadRun
	d     *keyspace.Distribution
	total int64
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

func (w *feeding) store(ctx context.Context, rows [][][]byte) error {
	f := w.r.e.Feed
	var own, remove, store portions
	for _, row := range rows {
		if f.Everywhere {
			for _, n := range homeFirst(w.r.m) {
				own.add(n, row)
			}
			continue
		}
		node, err := w.node(row, f.Key)
		if err != nil {
			return err
		}
		if f.Move == nil {
			own.add(node, row)
			continue
		}
		to, err := w.node(row, f.Move.NewKey)
		if err != nil {
			return err
		}
		if to == node {
			own.add(node, row)
			continue
		}
		remove.add(node, row)
		store.add(to, row)
	}
	if err := w.run(ctx, f.Text, own, true); err != nil || f.Move == nil {
		return err
	}
	if err := w.run(ctx, f.Move.Remove, remove, false); err != nil {
		return err
	}
	return w.run(ctx, f.Move.Store, store, true)
}

// node is where a row with this key is.
func (w *feeding) node(row [][]byte, key []int) (string, error) {
	values := make([]exec.Value, len(key))
	for i, k := range key {
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

// run gives all nodes their portions at once and passes on what they return. The rows count when they are the answer's.
func (w *feeding) run(ctx context.Context, text string, list portions, counts bool) error {
	s := w.s
	var asked []*nodeRows
	for _, p := range list {
		part, err := s.answering(ctx, p.node)
		if err != nil {
			s.abandon(asked)
			return err
		}
		part.wrote = true
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
			s.abandon(asked)
			return lostNode(p.node)
		}
		s.atNode(p.node)
		asked = append(asked, &nodeRows{s: s, part: part, columns: w.r.oidColumns(part)})
	}
	for i, n := range asked {
		for {
			more, err := n.next()
			if err != nil {
				s.abandon(asked)
				return err
			}
			if !more {
				break
			}
			if w.r.e.Feed.Everywhere && i > 0 {
				continue // every node returns the same rows
			}
			if err := s.sendRow(n.row, 0); err != nil {
				s.abandon(asked)
				return err
			}
		}
		if counts && !(w.r.e.Feed.Everywhere && i > 0) {
			w.total += tagRows(n.tag)
		}
	}
	return nil
}
