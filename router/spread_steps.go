package router

import (
	"context"
	"slices"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// maxGiven is how many bytes of rows the parts of a statement may return to each other.
const maxGiven = 64 << 20

// captured are the rows of a part of a statement, which are not for the client: one array for each column, or only their number.
type captured struct {
	columns [][]byte
	rows    int64
	size    int
	tag     string
}

// add takes a DataRow.
func (c *captured) add(row []byte, hidden int) error {
	c.rows++
	if len(c.columns) == 0 {
		return nil
	}
	values, err := pgwire.DataRow(row, nil)
	if err != nil {
		return err
	}
	if c.size += len(row); c.size > maxGiven {
		return pgwire.Errorf("54000", "writes in WITH return more than %d MB of rows", maxGiven>>20).WithHint("Run its parts one by one.")
	}
	for i, v := range values[:len(values)-hidden] {
		if i == len(c.columns) {
			break
		}
		if len(c.columns[i]) > 1 {
			c.columns[i] = append(c.columns[i], ',')
		}
		c.columns[i] = appendElement(c.columns[i], v)
	}
	return nil
}

// steps runs the parts of a statement whose WITH clause writes. The last one is the statement itself, whose answer the client gets.
func (s *session) steps(ctx context.Context, st *plannedStatement, r *spreadRun) error {
	steps, err := s.stepsWithTypes(ctx, r)
	if err != nil {
		return err
	}
	args := arguments{types: slices.Clone(r.types), formats: slices.Clone(r.formats), values: slices.Clone(r.values)}
	outer := s.capture
	defer func() { s.capture = outer }()
	for i := range steps {
		step := &steps[i]
		last := i == len(steps)-1
		var taken *captured
		if s.capture = outer; last {
			args.results = r.results
		} else {
			taken = &captured{columns: make([][]byte, len(step.Columns))}
			for j := range taken.columns {
				taken.columns[j] = []byte{'{'}
			}
			s.capture = taken
		}
		inner, err := s.prepareSpread(ctx, st, r.m, step.Exchange, args)
		if err == nil {
			err = s.work(ctx, st, inner)
		}
		if err != nil {
			return err
		}
		r.below = append(r.below, inner)
		if last {
			return nil
		}
		for _, c := range taken.columns {
			const textArray = 1009
			args.values, args.types, args.formats = append(args.values, append(c, '}')), append(args.types, textArray), append(args.formats, 0)
		}
	}
	return nil
}

// stepsWithTypes are the steps with the types of what they read of each other, which the home node finds out once per plan.
func (s *session) stepsWithTypes(ctx context.Context, r *spreadRun) ([]plan.Step, error) {
	if steps := r.shape.steps.Load(); steps != nil {
		return *steps, nil
	}
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	steps := slices.Clone(r.e.Steps)
	for i := range steps {
		step := &steps[i]
		if len(step.Columns) == 0 {
			continue
		}
		rows, err := describeRows(conn, step.Shape, r.types)
		if err != nil {
			return nil, err
		}
		columns, err := pgwire.RowDescription(rows)
		if err != nil {
			return nil, err
		}
		names := make([]string, len(columns))
		for j := range columns {
			names[j] = columns[j].Name
		}
		types, err := columnTypes(ctx, conn, step.Shape, names, columns, r.types)
		if err != nil {
			return nil, err
		}
		for j := i + 1; j < len(steps); j++ {
			steps[j].Exchange = steps[j].Given(step.First, types)
		}
	}
	r.shape.steps.Store(&steps)
	return steps, nil
}

// capturedFinal runs the last step of a part whose rows are not for the client.
func (s *session) capturedFinal(ctx context.Context, r *spreadRun, p *participant, text string, extra [][]byte) error {
	s.appendFinal(r, p, "", text, extra)
	out := p.conn.Stream.Out()
	*out = pgwire.AppendSync(pgwire.AppendExecute(*out, "", 0))
	if err := p.conn.Stream.Flush(); err != nil {
		p.conn.Broken = true
		return lostNode(p.node)
	}
	n := &nodeRows{s: s, part: p, fragment: -1}
	for {
		more, err := n.next()
		if err != nil {
			s.drain([]*nodeRows{n})
			return err
		}
		if !more {
			s.complete(n.tag)
			return nil
		}
		if err := s.sendRow(n.row, 0); err != nil {
			s.abandon([]*nodeRows{n})
			return err
		}
	}
}
