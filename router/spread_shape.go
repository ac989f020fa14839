package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// spreadShape is what the home node says about the parts of a query over several nodes. It is made once per plan.
type spreadShape struct {
	rows      []byte   // RowDescription of the statement itself
	own       []uint32 // the types of its columns
	columns   int      // of the one fragment, without hidden ones
	fragments []*fragmentShape
	final     string
	finalID   uint64 // names arrays among the prepared statements
	arrays    string // the final statement over array parameters
	// large is set when the rows were too many for arrays once.
	large atomic.Bool
	// types are those of the columns of a feed's rows, once they were needed.
	types atomic.Pointer[[]plan.ColumnType]
	// steps are those of the plan, with types.
	steps atomic.Pointer[[]plan.Step]
}

type fragmentShape struct {
	id     uint64 // names it among the prepared statements of server connections
	binary bool   // all its columns mean the same on every node in the binary format
	width  int
	types  []uint32
	// arrays is the fragment over few moved rows, arraysID its name among the prepared statements.
	arrays   string
	arraysID uint64
	open     atomic.Pointer[openNodes]
}

// openNodes are the nodes that a fragment goes to whatever its arguments are.
type openNodes struct {
	m     *keyspace.Map
	nodes []string
}

// shapeCache keeps shapes beside an immutable plan. They are read without the lock, which is held while a node is asked.
type shapeCache struct {
	mu sync.Mutex
	// instead is the plan of a statement that was planned for one node and led to several.
	instead atomic.Pointer[plannedStatement]
	shapes  atomic.Pointer[map[*plan.Exchange]*spreadShape] // never changed, but replaced
}

func (c *shapeCache) shape(e *plan.Exchange) *spreadShape {
	if shapes := c.shapes.Load(); shapes != nil {
		return (*shapes)[e]
	}
	return nil
}

// add keeps one more shape. c.mu is held.
func (c *shapeCache) add(e *plan.Exchange, shape *spreadShape) {
	more := map[*plan.Exchange]*spreadShape{e: shape}
	if shapes := c.shapes.Load(); shapes != nil {
		maps.Copy(more, *shapes)
	}
	c.shapes.Store(&more)
}

// shapeOf describes the statement and its fragments on the home node, which has the schema of all.
func (s *session) shapeOf(ctx context.Context, st *plannedStatement, e *plan.Exchange, types, own []uint32) (*spreadShape, error) {
	if shape := st.spread.shape(e); shape != nil {
		return shape, nil
	}
	s.task.Detach()
	st.spread.mu.Lock()
	defer st.spread.mu.Unlock()
	if shape := st.spread.shape(e); shape != nil {
		return shape, nil
	}
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	shape := &spreadShape{}
	if st.class == analyze.Query {
		// A write without RETURNING has no rows.
		if shape.rows, err = describeRows(conn, st.text, own); err != nil {
			return nil, err
		}
		if shape.rows != nil {
			columns, err := pgwire.RowDescription(shape.rows)
			if err != nil {
				return nil, err
			}
			shape.own = typesOf(columns)
		}
	}
	var names [][]plan.ColumnType
	for i := range e.Fragments {
		f := &e.Fragments[i]
		if e.CopyEach {
			break
		}
		text, types := f.Text, types
		fs := &fragmentShape{id: s.router.plans.lastID.Add(1)}
		if len(f.Uses) > 0 { // the relations that it reads are nowhere yet
			text = e.WithTypes(f.TextArrays, names)
			fs.arrays, fs.arraysID = text, s.router.plans.lastID.Add(1)
			types = slices.Clone(types)
			for _, u := range f.Uses {
				types = append(types, make([]uint32, shape.fragments[u].width)...)
			}
		}
		rows, err := describeRows(conn, text, types)
		if err != nil {
			return nil, err
		}
		var columns []pgwire.Column
		if rows != nil {
			if columns, err = pgwire.RowDescription(rows); err != nil {
				return nil, err
			}
		}
		fs.binary, fs.width, fs.types = sameInBinary(columns), len(columns), typesOf(columns)
		shape.fragments = append(shape.fragments, fs)
		if e.Final == "" {
			continue
		}
		list, err := columnTypes(ctx, conn, text, f.Columns, columns, types)
		if err != nil {
			return nil, err
		}
		names = append(names, list)
	}
	if len(shape.fragments) == 1 {
		shape.columns = shape.fragments[0].width - e.Merge.Hidden
	}
	if e.Final != "" {
		shape.finalID = s.router.plans.lastID.Add(1)
		shape.final, shape.arrays = e.WithTypes(e.Final, names), e.WithTypes(e.FinalArrays, names)
	}
	st.spread.add(e, shape)
	return shape, nil
}

// severalNodes plans a statement again whose values turned out to lead to several nodes. Text is the
// statement's own: a plan for any literals has the text it was first made for.
func (s *session) severalNodes(ctx context.Context, st *plannedStatement, text string, params []uint32, cause error) (*plannedStatement, error) {
	var several *exec.SeveralNodes
	if !errors.As(cause, &several) {
		return nil, cause
	}
	if st.spread != nil && text == st.text {
		if instead := st.spread.instead.Load(); instead != nil && instead.plan.Epoch == s.router.view.Load().m.Epoch && !s.schemaChanged {
			return instead, nil
		}
	}
	s.task.Detach()
	stmts, err := analyze.Parse(text)
	if err != nil || len(stmts) != 1 {
		return nil, cause
	}
	v := s.router.view.Load()
	cat, err := s.catalog(ctx, v)
	if err != nil {
		return nil, err
	}
	in := s.planInput(cat, v, stmts[0], params)
	e, err := plan.MakeExchange(in, text)
	if err != nil {
		return nil, err
	}
	instead := &plannedStatement{class: st.class, text: text, spread: &shapeCache{}, plan: plan.SpreadOf(st.plan, e, v.m.Epoch)}
	if st.spread != nil && text == st.text && !s.schemaChanged {
		st.spread.instead.Store(instead)
	}
	return instead, nil
}

func typesOf(columns []pgwire.Column) []uint32 {
	types := make([]uint32, len(columns))
	for i, c := range columns {
		types[i] = c.TypeOID
	}
	return types
}

// sameInBinary reports columns whose binary format has no numbers that differ between nodes, as those
// of types that users made have, and of names of the catalog.
func sameInBinary(columns []pgwire.Column) bool {
	for _, c := range columns {
		switch {
		case c.TypeOID >= firstUserOID:
			return false
		case c.TypeOID == 24, c.TypeOID >= 2202 && c.TypeOID <= 2211, c.TypeOID == 3734, c.TypeOID == 3735, c.TypeOID == 3769, c.TypeOID == 3770,
			c.TypeOID == 4089, c.TypeOID == 4090, c.TypeOID == 4096, c.TypeOID == 4097, c.TypeOID == 4191, c.TypeOID == 4192, // regproc and its like
			c.TypeOID == 1033, c.TypeOID == 1034, // aclitem has no binary format
			c.TypeOID == 2249, c.TypeOID == 2287: // records carry their columns' types
			return false
		}
	}
	return true
}

// columnTypes are the types and collations of a fragment's columns, as the home node finds them out.
func columnTypes(ctx context.Context, conn *pool.Conn, text string, names []string, columns []pgwire.Column, types []uint32) ([]plan.ColumnType, error) {
	var b strings.Builder
	for i, c := range columns {
		if i > 0 {
			b.WriteString(" UNION ALL ")
		}
		fmt.Fprintf(&b, "SELECT %d, pg_catalog.format_type(%d, %d), (SELECT typcollation FROM pg_catalog.pg_type WHERE oid = %[2]d)", i, c.TypeOID, c.TypeModifier)
	}
	rows, err := conn.Query(ctx, b.String())
	if err != nil {
		return nil, err
	}
	list := make([]plan.ColumnType, len(columns))
	var asked []int
	b.Reset()
	for i := range columns {
		list[i].Name = string(rows[i][1])
		if string(rows[i][2]) != "0" && i < len(names) {
			if len(asked) > 0 {
				b.WriteString(", ")
			}
			fmt.Fprintf(&b, "pg_catalog.pg_collation_for(f.%s)", plan.QuoteIdent(names[i]))
			asked = append(asked, i)
		}
	}
	if len(asked) == 0 {
		return list, nil
	}
	nulls := make([][]byte, len(types))
	rows, err = conn.QueryTyped(ctx, "SELECT "+b.String()+" FROM (SELECT) one LEFT JOIN ("+text+") f ON false", types, nulls)
	if err != nil {
		return nil, err
	}
	for j, i := range asked {
		if c := string(rows[0][j]); c != `"default"` {
			list[i].Collation = c
		}
	}
	return list, nil
}

// describeRows asks for the row description of a text of the router's own; nil when it has no rows.
func describeRows(conn *pool.Conn, text string, types []uint32) ([]byte, error) {
	described, _, err := describeOn(conn, conn.Wire(text), types)
	if rows := rowsOf(described); err == nil && len(rows) > 0 && rows[0] == 'T' {
		return rows, nil
	}
	return nil, err
}
