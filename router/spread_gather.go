package router

import (
	"bytes"
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// defaultExchange is how many bytes of rows one statement moves between nodes unless shoal.max_exchange_bytes says otherwise.
const defaultExchange = 1 << 30

// parseBytes reads a size with PostgreSQL's units.
func parseBytes(text string) (int64, bool) {
	number := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	factor, known := map[string]int64{"": 1, "b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}[strings.ToLower(strings.TrimSpace(text[len(number):]))]
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	return n * factor, err == nil && known && n > 0 && n <= (1<<62)/max(factor, 1)
}

// exchangeLimit is how many bytes of rows a statement of this session may move.
func (s *session) exchangeLimit() int64 {
	if text := s.settings.values[maxExchange]; text != "" {
		if n, ok := parseBytes(text); ok {
			return n
		}
	}
	return defaultExchange
}

// moves counts a row that goes to another node.
func (r *spreadRun) moves(size int) error {
	if r.moved += int64(size); r.moved <= r.limit {
		return nil
	}
	return pgwire.Errorf("54000", "the statement moves more than %d bytes of rows between nodes", r.limit).
		WithHint("Restrict it, join on the key, or raise %s.", maxExchange)
}

// maxArrays is how many bytes of rows go to the home node as array parameters; more go through temporary tables.
const maxArrays = 1 << 20

// gather brings the rows of all fragments to the home node. It returns the final statement and the parameters that it has
// beside the client's own.
func (s *session) gather(ctx context.Context, r *spreadRun) (final string, extra [][]byte, err error) {
	if r.e.Gathered != nil {
		final, extra, done, err := s.gatherMoving(ctx, r)
		if done || err != nil {
			return final, extra, err
		}
		if err := s.fallBack(ctx, r); err != nil {
			return "", nil, err
		}
	}
	limit := maxArrays
	if r.shape.large.Load() {
		if limit, err = s.temporaryLimit(ctx); err != nil {
			return "", nil, err
		}
	}
	for limit > 0 {
		extra, fit, err := s.gatherArrays(ctx, r, limit)
		if err != nil || fit {
			return r.shape.arrays, extra, err
		}
		r.shape.large.Store(true)
		if limit == maxReadOnly {
			return "", nil, pgwire.Errorf("54000", "more than %d MB of rows for one node in a read-only transaction", maxReadOnly>>20).
				WithHint("Run the query in a transaction that is not read-only, where temporary tables can hold them.")
		}
		if limit, err = s.temporaryLimit(ctx); err != nil {
			return "", nil, err
		}
	}
	r.moved = 0
	for i := range r.e.Fragments {
		if err := s.gatherTable(ctx, r, i); err != nil {
			return "", nil, err
		}
	}
	return r.shape.final, nil, nil
}

// maxReadOnly is maxArrays for transactions that cannot make temporary tables.
const maxReadOnly = 64 << 20

// temporaryLimit is 0 where temporary tables can be made; else how much goes into arrays instead.
func (s *session) temporaryLimit(ctx context.Context) (int, error) {
	home, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return 0, err
	}
	defer done()
	rows, err := home.Query(ctx, "SHOW transaction_read_only")
	if err != nil || string(rows[0][0]) == "off" {
		return 0, err
	}
	return maxReadOnly, nil
}

// gatherArrays reads all rows into arrays, one for each column; fit is false when there are too many.
func (s *session) gatherArrays(ctx context.Context, r *spreadRun, limit int) (extra [][]byte, fit bool, err error) {
	size := 0
	for i := range r.e.Fragments {
		nodes, err := s.nodesOf(r, i)
		if err != nil {
			return nil, false, err
		}
		asked, err := s.ask(ctx, r, i, nodes, nil, true)
		if err != nil {
			return nil, false, err
		}
		columns := make([][]byte, r.shape.fragments[i].width)
		for j := range columns {
			columns[j] = []byte{'{'}
		}
		if err := s.readArrays(r, asked, columns, &size, limit); err != nil {
			s.abandon(asked)
			return nil, false, err
		}
		if size > limit {
			s.drain(asked)
			return nil, false, nil
		}
		for j := range columns {
			columns[j] = append(columns[j], '}')
		}
		if r.e.Fragments[i].Motion == nil {
			extra = append(extra, columns...)
			continue
		}
		if r.arrays == nil {
			r.arrays = map[int][][]byte{}
		}
		r.arrays[i] = columns
	}
	return extra, true, nil
}

func (s *session) readArrays(r *spreadRun, asked []*nodeRows, columns [][]byte, size *int, limit int) error {
	var values [][]byte
	for _, n := range asked {
		for {
			more, err := n.next()
			if err != nil {
				return err
			}
			if !more {
				break
			}
			if *size += len(n.row); *size > limit {
				return nil
			}
			if err := r.moves(len(n.row)); err != nil {
				return err
			}
			if values, err = pgwire.DataRow(n.row, values[:0]); err != nil {
				return err
			}
			for j, v := range values {
				if len(columns[j]) > 1 {
					columns[j] = append(columns[j], ',')
				}
				columns[j] = appendElement(columns[j], v)
			}
		}
	}
	return nil
}

// appendElement appends a value as an array has it.
func appendElement(out, v []byte) []byte {
	if v == nil {
		return append(out, "NULL"...)
	}
	out = append(out, '"')
	for _, b := range v {
		if b == '"' || b == '\\' {
			out = append(out, '\\')
		}
		out = append(out, b)
	}
	return append(out, '"')
}

// gatherTable brings the rows of one fragment into a temporary table on the home node. The home node's own rows never leave it.
func (s *session) gatherTable(ctx context.Context, r *spreadRun, index int) error {
	f := &r.e.Fragments[index]
	home, err := s.participant(ctx, r.m.Home)
	if err != nil {
		return err
	}
	if err := s.flushPreamble(home); err != nil {
		return err
	}
	table := plan.QuoteIdent(f.Name)
	isBinary := r.shape.fragments[index].binary
	format := int16(0)
	if isBinary {
		format = 1
	}
	var others []string
	atHome := false
	nodes, err := s.nodesOf(r, index)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if n == r.m.Home {
			atHome = true
		} else {
			others = append(others, n)
		}
	}
	asked, err := s.ask(ctx, r, index, others, []int16{format}, false)
	if err != nil {
		return err
	}
	// The columns of the table are those of the fragment, types and collations included.
	err = s.onConn(ctx, home, r, "CREATE TEMPORARY TABLE "+table+" ON COMMIT DROP AS "+f.Text+" WITH NO DATA")
	if err == nil && atHome {
		home.wrote = home.wrote || f.Locks
		started := time.Now()
		var rows int64
		rows, err = s.insertInto(ctx, home, r, "INSERT INTO pg_temp."+table+" "+f.Text)
		r.asked = append(r.asked, &nodeRows{part: home, node: home.node, fragment: index, rows: rows, took: time.Since(started)})
	}
	if err == nil && len(others) > 0 {
		err = s.copyTo(r, home, "COPY pg_temp."+table+" FROM STDIN", isBinary, asked)
	}
	if err != nil {
		s.abandon(asked)
	}
	return err
}

// insertInto runs an INSERT with the run's parameters on the home node and returns the number of rows.
func (s *session) insertInto(ctx context.Context, p *participant, r *spreadRun, text string) (int64, error) {
	answer, err := s.askHomeWith(ctx, p, r, text)
	if err != nil {
		return 0, err
	}
	tag, err := pgwire.CommandTag(answer)
	if err != nil {
		return 0, err
	}
	return tagRows(string(tag)), nil
}

// onConn runs a statement with the run's parameters on the home node.
func (s *session) onConn(ctx context.Context, p *participant, r *spreadRun, text string) error {
	_, err := s.askHomeWith(ctx, p, r, text)
	return err
}

func (s *session) askHomeWith(ctx context.Context, p *participant, r *spreadRun, text string) ([]byte, error) {
	out := p.conn.Stream.Out()
	*out = pgwire.AppendParse(*out, "", p.conn.Wire(text), r.types)
	*out = pgwire.AppendBind(*out, "", "", r.formats, r.values, nil)
	*out = pgwire.AppendExecute(*out, "", 0)
	*out = pgwire.AppendSync(*out)
	return s.collect(ctx, p.conn)
}

// copyTo streams rows of nodes into a COPY on the home node.
func (s *session) copyTo(r *spreadRun, home *participant, text string, isBinary bool, asked []*nodeRows) error {
	if isBinary {
		text += " (FORMAT binary)"
	}
	home.conn.SendQuery(text)
	if _, err := beginCopy(home); err != nil {
		return err
	}
	target := &copyTarget{part: home}
	if err := feedCopy(r, home, isBinary, asked); err != nil {
		_ = failCopies([]*copyTarget{target}, "another node failed")
		return err
	}
	out := home.conn.Stream.Out()
	*out = pgwire.AppendCopyDone(*out)
	return endCopies([]*copyTarget{target})
}

// binaryHeader begins COPY data in the binary format.
var binaryHeader = append([]byte("PGCOPY\n\xff\r\n\x00"), 0, 0, 0, 0, 0, 0, 0, 0)

func feedCopy(r *spreadRun, home *participant, isBinary bool, asked []*nodeRows) error {
	out := home.conn.Stream.Out()
	if isBinary {
		*out = pgwire.AppendCopyData(*out, binaryHeader)
	}
	var values [][]byte
	for _, n := range asked {
		for {
			more, err := n.next()
			if err != nil {
				return err
			}
			if !more {
				break
			}
			if err := r.moves(len(n.row)); err != nil {
				return err
			}
			if isBinary {
				// A row of COPY is the body of a DataRow.
				*out = pgwire.AppendCopyData(*out, n.row[5:])
			} else {
				if values, err = pgwire.DataRow(n.row, values[:0]); err != nil {
					return err
				}
				*out = appendCopyLine(*out, values)
			}
			if len(*out) >= copyChunk {
				if err := home.conn.Stream.Flush(); err != nil {
					home.conn.Broken = true
					return lostNode(home.node)
				}
				out = home.conn.Stream.Out()
			}
		}
	}
	if isBinary {
		*out = pgwire.AppendCopyData(*out, []byte{0xff, 0xff})
	}
	return nil
}

// appendCopyLine appends a row as COPY's text format has it.
func appendCopyLine(out []byte, values [][]byte) []byte {
	start := len(out)
	out = append(out, 'd', 0, 0, 0, 0)
	for i, v := range values {
		if i > 0 {
			out = append(out, '\t')
		}
		if v == nil {
			out = append(out, '\\', 'N')
			continue
		}
		if bytes.IndexByte(v, '\\') < 0 && bytes.IndexByte(v, '\t') < 0 && bytes.IndexByte(v, '\n') < 0 && bytes.IndexByte(v, '\r') < 0 {
			out = append(out, v...)
			continue
		}
		for _, b := range v {
			switch b {
			case '\\':
				out = append(out, '\\', '\\')
			case '\t':
				out = append(out, '\\', 't')
			case '\n':
				out = append(out, '\\', 'n')
			case '\r':
				out = append(out, '\\', 'r')
			default:
				out = append(out, b)
			}
		}
	}
	out = append(out, '\n')
	binary.BigEndian.PutUint32(out[start+1:], uint32(len(out)-start-1))
	return out
}
