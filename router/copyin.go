package router

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/copyrows"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// copyTarget is a node that gets rows of a COPY FROM.
type copyTarget struct {
	part    *participant
	columns []oidColumn // whose values have OIDs that are not the node's
	rows    int64
	tag     string
	err     error
}

// copyIn splits the rows of COPY FROM STDIN by their key; rows of a reference table go everywhere.
// All nodes take them in one transaction.
func (s *session) copyIn(ctx context.Context, st *plannedStatement) error {
	var rows int64
	err := s.inTransaction(ctx, func() (err error) {
		rows, err = s.copyRows(ctx, st)
		return err
	})
	if err == nil {
		s.complete("COPY " + strconv.FormatInt(rows, 10))
	}
	return err
}

func (s *session) copyRows(ctx context.Context, st *plannedStatement) (int64, error) {
	m, err := s.enterAny(ctx, st.plan.Tables)
	if err != nil {
		return 0, err
	}
	if m.Epoch != st.plan.Epoch && !s.schemaChanged {
		return 0, errOtherEpoch
	}
	c := st.plan.Copy
	splitter, data, err := s.splitter(c)
	if err != nil {
		return 0, err
	}
	text, err := s.copyText(c.Text, data)
	if err != nil {
		return 0, err
	}
	targets, answer, err := s.openCopies(ctx, m, st.text, text)
	if err != nil {
		return 0, err
	}
	s.client.Append(answer)
	if err := s.client.Flush(); err != nil {
		return 0, errClientGone
	}
	r := &rowSender{session: s, splitter: splitter, data: data, copy: c, targets: targets, binary: isBinary(c), byNode: map[string]*copyTarget{}}
	for _, t := range targets {
		r.byNode[t.part.node] = t
	}
	if len(c.Keys) > 0 {
		r.distribution = m.Distribution(c.Pin.Distribution)
	}
	return r.run(ctx)
}

// openCopies starts the COPY on every node and returns the answer that begins the client's.
func (s *session) openCopies(ctx context.Context, m *keyspace.Map, asked, text string) ([]*copyTarget, []byte, error) {
	var targets []*copyTarget
	var answer []byte
	types, err := s.binaryTypes(ctx, asked)
	if err == nil {
		err = s.answeringAll(ctx, homeFirst(m))
	}
	if err != nil {
		return nil, nil, err
	}
	for _, node := range homeFirst(m) {
		p, err := s.participant(ctx, node)
		if err == nil {
			err = s.flushPreamble(p)
		}
		if err != nil {
			return nil, nil, errors.Join(err, failCopies(targets, "another node failed"))
		}
		p.conn.SendQuery(text)
		begin, err := beginCopy(p)
		if err != nil {
			_ = failCopies(targets, "another node failed")
			return nil, nil, err
		}
		if node == m.Home {
			answer = begin
		}
		targets = append(targets, &copyTarget{part: p, columns: p.copyColumns(types)})
	}
	return targets, answer, nil
}

// beginCopy reads up to the node's CopyInResponse.
func beginCopy(p *participant) ([]byte, error) {
	if err := p.conn.Stream.Flush(); err != nil {
		p.conn.Broken = true
		return nil, lostNode(p.node)
	}
	var failure *pgwire.Error
	for {
		typ, msg, err := p.conn.Stream.Next()
		if err != nil {
			p.conn.Broken = true
			return nil, lostNode(p.node)
		}
		switch typ {
		case 'G':
			return append([]byte(nil), msg...), nil
		case 'E':
			failure = pgwire.ParseError(msg)
		case 'Z':
			p.conn.TxStatus = pgwire.ReadyStatus(msg)
			if failure == nil {
				failure = pgwire.Errorf(pgwire.CodeProtocolViolation, "node %q did not begin the COPY", p.node)
			}
			return nil, failure
		}
	}
}

// failCopies ends the COPY on all targets without effect.
func failCopies(targets []*copyTarget, reason string) error {
	for _, t := range targets {
		if t.part.conn.Broken {
			continue
		}
		out := t.part.conn.Stream.Out()
		*out = pgwire.AppendCopyFail((*out)[:0], reason)
	}
	return endCopies(targets)
}

// endCopies sends what is pending and reads the end of every COPY.
func endCopies(targets []*copyTarget) error {
	var g errgroup.Group
	for _, t := range targets {
		g.Go(func() error {
			t.finish()
			return t.err
		})
	}
	return g.Wait()
}

// counted is the number of rows that the node has taken.
func (t *copyTarget) counted() int64 {
	n, _ := strconv.ParseInt(strings.TrimPrefix(t.tag, "COPY "), 10, 64)
	return n
}

func (t *copyTarget) finish() {
	conn := t.part.conn
	if conn.Broken {
		t.err = lostNode(t.part.node)
		return
	}
	err := conn.Stream.Flush()
	for err == nil {
		var typ byte
		var msg []byte
		if typ, msg, err = conn.Stream.Next(); err != nil {
			break
		}
		switch typ {
		case 'C':
			tag, _ := pgwire.CommandTag(msg)
			t.tag = string(tag)
		case 'E':
			if t.err == nil {
				t.err = copyError(t.part.node, pgwire.ParseError(msg))
			}
		case 'Z':
			conn.TxStatus = pgwire.ReadyStatus(msg)
			return
		}
	}
	conn.Broken = true
	if t.err == nil {
		t.err = lostNode(t.part.node)
	}
}

var lineNumber = regexp.MustCompile(`, line \d+`)

// copyError takes the line number out of a node's error: it counts that node's rows only.
func copyError(node string, e *pgwire.Error) error {
	e.Where = lineNumber.ReplaceAllString(e.Where, "")
	return onNode(node, e)
}

// rowSender sends each row of the client's data to its node.
type rowSender struct {
	session      *session
	splitter     *copyrows.Splitter
	data         copyData
	pending      []byte // not converted yet
	copy         *plan.Copy
	distribution *keyspace.Distribution
	binary       bool
	values       []exec.Value
	scratch      []byte
	targets      []*copyTarget
	byNode       map[string]*copyTarget
}

// run reads the client's data to its end.
func (r *rowSender) run(ctx context.Context) (int64, error) {
	for _, t := range r.targets {
		r.append(t, r.splitter.Prologue())
	}
	s := r.session
	var failure error
	for {
		typ, msg, err := s.client.Next()
		if err != nil {
			_ = failCopies(r.targets, "the client is gone")
			return 0, errClientGone
		}
		switch typ {
		case 'd':
			if failure == nil {
				failure = r.write(msg[5:])
			}
			continue
		case 'H', 'S':
			continue
		case 'c':
			if failure == nil {
				failure = r.close()
			}
		case 'f':
			if failure == nil {
				reason := strings.TrimRight(string(msg[5:]), "\x00")
				failure = pgwire.Errorf("57014", "COPY from stdin failed: %s", reason)
			}
		default:
			_ = failCopies(r.targets, "the client has lost the protocol")
			return 0, s.lostSync(typ)
		}
		return r.end(failure)
	}
}

func (r *rowSender) end(failure error) (int64, error) {
	if failure != nil {
		_ = failCopies(r.targets, "the data is not valid")
		return 0, dataError(failure)
	}
	for _, t := range r.targets {
		r.append(t, r.splitter.Epilogue())
		out := t.part.conn.Stream.Out()
		*out = pgwire.AppendCopyDone(*out)
	}
	if err := endCopies(r.targets); err != nil {
		return 0, err
	}
	var total int64
	for _, t := range r.targets {
		n := t.counted()
		t.part.wrote = t.part.wrote || n > 0
		if r.distribution == nil {
			return n, r.markAll()
		}
		total += n
	}
	return total, nil
}

// markAll notes that every node has written the rows of a reference table.
func (r *rowSender) markAll() error {
	for _, t := range r.targets {
		t.part.wrote = true
	}
	return nil
}

func dataError(err error) error {
	var e *copyrows.Error
	if !errors.As(err, &e) {
		return err
	}
	out := pgwire.Errorf(e.Code, "%s", e.Message)
	out.Hint, out.Where = e.Hint, e.Where
	return out
}

// row sends one row where its key leads.
func (r *rowSender) row(data []byte, key [][]byte) error {
	if r.distribution == nil {
		for _, t := range r.targets {
			if err := r.add(t, data); err != nil {
				return err
			}
		}
		return nil
	}
	r.values = r.values[:0]
	for _, v := range key {
		r.values = append(r.values, exec.Value{Data: v, Null: v == nil, Binary: r.binary})
	}
	shard, err := exec.Row(r.distribution, &r.copy.Pin, r.values, r)
	if err != nil {
		return r.keyError(err)
	}
	return r.add(r.byNode[shard.Node], data)
}

// Canonical asks the home node over a connection of its own: those of the transaction are busy.
func (r *rowSender) Canonical(key keyspace.Type, as string, text []byte) ([]byte, error) {
	s := r.session
	if s.txn.setLocal { // it may decide how a date is read
		return nil, pgwire.Errorf(pgwire.CodeFeatureNotSupported, "a key that only PostgreSQL can read, in COPY after SET LOCAL, is not supported").
			WithHint("Write keys in ISO format.")
	}
	conn, err := s.acquire(context.Background(), s.router.view.Load().m.Home)
	if err != nil {
		return nil, err
	}
	defer s.router.pool.Release(conn)
	if err := s.sync(context.Background(), conn); err != nil {
		return nil, err
	}
	return canonicalOn(conn, key, as, text)
}

// keyError says in which line a key is wrong.
func (r *rowSender) keyError(err error) error {
	var e *pgwire.Error
	var null *exec.NullKey
	var homeless *exec.Homeless
	switch {
	case errors.As(err, &e):
	case errors.As(err, &null):
		e = nullKeyError(null)
	case errors.As(err, &homeless):
		e = homelessError(homeless)
	case errors.Is(err, keyspace.ErrInvalid), errors.Is(err, keyspace.ErrNotProven):
		e = pgwire.Errorf("22P03", "incorrect binary data for the key column %s", r.copy.Pin.Columns())
	default:
		return err
	}
	e.Where = r.splitter.Where()
	return e
}

// add appends a row to the node's open CopyData message and sends it when it is large enough.
func (r *rowSender) add(t *copyTarget, row []byte) error {
	t.rows++
	if t.columns != nil {
		r.scratch = copiedToNode(t.part.oids, t.columns, r.scratch, row)
		row = r.scratch
	}
	r.append(t, row)
	stream := t.part.conn.Stream
	if stream.Pending() < copyChunk {
		return nil
	}
	if err := stream.Flush(); err != nil {
		t.part.conn.Broken = true
		return lostNode(t.part.node)
	}
	return nil
}

func (r *rowSender) append(t *copyTarget, data []byte) {
	if len(data) == 0 {
		return
	}
	out := t.part.conn.Stream.Out()
	*out = pgwire.AppendCopyData(*out, data)
}

// splitter translates COPY's options.
func (s *session) splitter(c *plan.Copy) (*copyrows.Splitter, copyData, error) {
	opts := copyrows.Options{Table: c.Table, Columns: c.Columns, Encoding: s.reported["client_encoding"]}
	opts.KeyColumns = c.Keys
	if major, _, ok := strings.Cut(s.reported["server_version"], "."); ok {
		opts.ServerVersion = int(atoi([]byte(major)))
	}
	for _, o := range c.Options {
		if err := copyOption(&opts, o); err != nil {
			return nil, copyData{}, err
		}
	}
	var data copyData
	if s.encodings.serverForeign || opts.Encoding != utf8Encoding {
		var err error
		if data, err = s.copyEncoding(&opts); err != nil {
			return nil, copyData{}, err
		}
	}
	sp, err := copyrows.New(opts)
	if err != nil {
		return nil, copyData{}, dataError(err)
	}
	return sp, data, nil
}

func copyOption(opts *copyrows.Options, o plan.CopyOption) error {
	first := func() byte {
		if o.Value == "" {
			return 0
		}
		return o.Value[0]
	}
	switch o.Name {
	case "format":
		switch strings.ToLower(o.Value) {
		case "csv":
			opts.Format = copyrows.CSV
		case "binary":
			opts.Format = copyrows.Binary
		}
	case "delimiter":
		opts.Delimiter = first()
	case "null":
		opts.Null = &o.Value
	case "default":
		opts.Default = &o.Value
	case "quote":
		opts.Quote = first()
	case "escape":
		opts.Escape = first()
	case "header":
		switch strings.ToLower(o.Value) {
		case "true", "on", "1":
			opts.Header = copyrows.SkipHeader
		case "match":
			opts.Header = copyrows.MatchHeader
		}
	case "encoding":
		opts.Encoding = o.Value
	case "force_not_null":
		opts.ForceNotNull = copyColumns(o, len(opts.Columns))
	case "force_null":
		opts.ForceNull = copyColumns(o, len(opts.Columns))
	case "freeze", "force_quote":
	default:
		return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "COPY option %q is not supported for distributed and reference tables", o.Name)
	}
	return nil
}

func isBinary(c *plan.Copy) bool {
	return slices.ContainsFunc(c.Options, func(o plan.CopyOption) bool {
		return o.Name == "format" && strings.EqualFold(o.Value, "binary")
	})
}

func copyColumns(o plan.CopyOption, n int) []int {
	if o.Value != "*" {
		return o.Columns
	}
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
