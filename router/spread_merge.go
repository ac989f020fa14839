package router

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// clientChunk is how much is collected for the client before it is sent.
const clientChunk = 16 << 10

// merge sends the rows of the one fragment to the client: in order when there is one, cut by LIMIT and OFFSET.
func (s *session) merge(ctx context.Context, r *spreadRun) error {
	limit, offset, err := r.limits()
	if err != nil {
		return err
	}
	nodes, err := s.nodesOf(r, 0)
	if err != nil {
		return err
	}
	asked, err := s.ask(ctx, r, 0, nodes, r.fragmentFormats(), true)
	if err != nil {
		return err
	}
	order := newOrder(asked, r.e.Merge)
	sent := int64(0)
	for limit < 0 || sent < limit {
		row, err := order.next()
		if err != nil {
			s.abandon(asked)
			return err
		}
		if row == nil {
			break
		}
		if offset > 0 {
			offset--
			continue
		}
		sent++
		if err := s.sendRow(row, r.e.Merge.Hidden); err != nil {
			s.abandon(asked)
			return err
		}
	}
	// What is left is at most what LIMIT lets each node send.
	s.drain(asked)
	if r.e.Fragments[0].Writes {
		s.complete(summedTag(asked))
	} else {
		s.complete("SELECT " + strconv.FormatInt(sent, 10))
	}
	return nil
}

// summedTag is the command tag of a write that several nodes have done together.
func summedTag(asked []*nodeRows) string {
	var words string
	var total int64
	for _, n := range asked {
		words, total = n.tag[:strings.LastIndexByte(n.tag, ' ')+1], total+tagRows(n.tag)
	}
	return words + strconv.FormatInt(total, 10)
}

// tagRows is the number of rows in a command tag.
func tagRows(tag string) int64 {
	rows, _ := strconv.ParseInt(tag[strings.LastIndexByte(tag, ' ')+1:], 10, 64)
	return rows
}

// fragmentFormats are the formats of the fragment's columns: the client's, and binary for hidden ones.
func (r *spreadRun) fragmentFormats() []int16 {
	if r.e.Merge.Hidden == 0 {
		return r.results
	}
	formats := make([]int16, r.shape.columns, r.shape.columns+r.e.Merge.Hidden)
	for i := range formats {
		switch len(r.results) {
		case 0:
		case 1:
			formats[i] = r.results[0]
		default:
			formats[i] = r.results[min(i, len(r.results)-1)]
		}
	}
	for range r.e.Merge.Hidden {
		formats = append(formats, 1)
	}
	return formats
}

// sendRow passes a row on, without its hidden columns.
func (s *session) sendRow(row []byte, hidden int) error {
	if s.capture != nil {
		return s.capture.add(row, hidden)
	}
	out := s.client.Out()
	if hidden == 0 {
		*out = append(*out, row...)
	} else {
		*out = appendVisible(*out, row, hidden)
	}
	if len(*out) < clientChunk {
		return nil
	}
	if err := s.client.Flush(); err != nil {
		return errClientGone
	}
	return nil
}

// appendVisible appends a DataRow without its last columns.
func appendVisible(out, row []byte, hidden int) []byte {
	columns := int(binary.BigEndian.Uint16(row[5:])) - hidden
	end := 7
	for range columns {
		if size := int32(binary.BigEndian.Uint32(row[end:])); size > 0 {
			end += int(size)
		}
		end += 4
	}
	out = append(out, 'D')
	out = binary.BigEndian.AppendUint32(out, uint32(end-1))
	out = binary.BigEndian.AppendUint16(out, uint16(columns))
	return append(out, row[7:end]...)
}

// order takes rows from several nodes in the order that each of them keeps.
type order struct {
	nodes   []*nodeRows
	merge   plan.Merge
	keys    [][][]byte // of the current row of each node; nil: not read yet
	current int        // the node whose row was given out
	started bool
}

func newOrder(nodes []*nodeRows, m plan.Merge) *order {
	return &order{nodes: nodes, merge: m, keys: make([][][]byte, len(nodes)), current: -1}
}

// next is the next row, nil at the end.
func (o *order) next() ([]byte, error) {
	if len(o.merge.Order) == 0 {
		return o.any()
	}
	if !o.started {
		o.started = true
		for i := range o.nodes {
			if err := o.advance(i); err != nil {
				return nil, err
			}
		}
	} else if err := o.advance(o.current); err != nil {
		return nil, err
	}
	o.current = -1
	for i, n := range o.nodes {
		if n.row != nil && (o.current < 0 || o.less(i, o.current)) {
			o.current = i
		}
	}
	if o.current < 0 {
		return nil, nil
	}
	return o.nodes[o.current].row, nil
}

// any takes the rows of one node after the other.
func (o *order) any() ([]byte, error) {
	for len(o.nodes) > 0 {
		more, err := o.nodes[0].next()
		if err != nil {
			return nil, err
		}
		if more {
			return o.nodes[0].row, nil
		}
		o.nodes = o.nodes[1:]
	}
	return nil, nil
}

// advance reads the next row of a node and finds its sort keys.
func (o *order) advance(i int) error {
	n := o.nodes[i]
	more, err := n.next()
	if err != nil {
		return err
	}
	if !more {
		n.row = nil
		return nil
	}
	values, err := pgwire.DataRow(n.row, o.keys[i][:0])
	if err != nil {
		return err
	}
	o.keys[i] = values
	return nil
}

func (o *order) less(a, b int) bool {
	for _, k := range o.merge.Order {
		av := o.keys[a][len(o.keys[a])-o.merge.Hidden+k.Column]
		bv := o.keys[b][len(o.keys[b])-o.merge.Hidden+k.Column]
		if c := compareKeys(k, av, bv); c != 0 {
			return c < 0
		}
	}
	return false
}

// compareKeys compares two values in the binary format as PostgreSQL's ORDER BY does.
func compareKeys(k plan.SortKey, a, b []byte) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil || b == nil:
		if (a == nil) == k.NullsFirst {
			return -1
		}
		return 1
	}
	c := 0
	switch k.Type {
	case 20, 1083, 1114, 1184: // bigint, time and timestamps
		c = cmp.Compare(int64(binary.BigEndian.Uint64(a)), int64(binary.BigEndian.Uint64(b)))
	case 23, 1082: // integer, date
		c = cmp.Compare(int32(binary.BigEndian.Uint32(a)), int32(binary.BigEndian.Uint32(b)))
	case 21: // smallint
		c = cmp.Compare(int16(binary.BigEndian.Uint16(a)), int16(binary.BigEndian.Uint16(b)))
	default: // boolean, bytea, oid and uuid: bytes
		c = bytes.Compare(a, b)
	}
	if k.Desc {
		return -c
	}
	return c
}
