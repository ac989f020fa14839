package router

import (
	"context"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"
	"google.golang.org/protobuf/proto"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/pool"
)

// planPrepared plans a statement of the extended protocol. The home node says what its parameters
// and its result are, once for all sessions; that also makes its errors PostgreSQL's own.
func (s *session) planPrepared(ctx context.Context, p *prepared) (*planned, error) {
	if err := s.learnNames(ctx); err != nil {
		return nil, err
	}
	v := s.router.view.Load()
	if hit := s.findPrepared(p, v.m.Epoch); hit != nil {
		return hit, nil
	}
	s.task.Detach()
	s.router.plans.misses.Add(1)
	stmts, err := analyze.Parse(p.text)
	if err == nil {
		err = s.knowsNames(ctx, p.text)
	}
	if err != nil {
		return nil, err
	}
	if len(stmts) > 1 {
		return nil, pgwire.Errorf("42601", "cannot insert multiple commands into a prepared statement")
	}
	described, params, err := s.describeAtHome(ctx, p, stmts)
	if err != nil {
		return nil, err
	}
	entry, _, err := s.planStatements(ctx, v, stmts, params, false)
	if err != nil {
		return nil, err
	}
	entry.described = described
	entry.oidParams, entry.oidRows = anyUserType(params), anyUserColumn(rowsOf(described))
	if !s.schemaChanged && (len(stmts) == 0 || !isCursor(stmts[0].Class) && stmts[0].Class != analyze.Execute) && !ofThisSession(stmts) && !entry.unsettled {
		s.space.store(nil, p.key, entry, true)
	}
	return entry, nil
}

// findPrepared looks a statement up in the plan cache.
func (s *session) findPrepared(p *prepared, epoch uint64) *planned {
	if p.key == nil {
		p.key = preparedKey(p)
	}
	if s.schemaChanged {
		return nil
	}
	hit := s.space.find(nil, p.key, epoch)
	if hit != nil {
		s.router.plans.hits.Add(1)
	}
	return hit
}

// preparedKey is the text and the parameter types that the client gave.
func preparedKey(p *prepared) []byte {
	key := make([]byte, 0, len(p.text)+1+4*len(p.oids))
	key = append(key, p.text...)
	key = append(key, 0)
	for _, o := range p.oids {
		key = append(key, byte(o>>24), byte(o>>16), byte(o>>8), byte(o))
	}
	return key
}

// describeAtHome asks the home node for the statement's parameters and result.
func (s *session) describeAtHome(ctx context.Context, p *prepared, stmts []*analyze.Statement) (described []byte, params []uint32, err error) {
	if len(stmts) == 0 || ownDescription(stmts[0]) {
		return s.ownDescribed(stmts)
	}
	if placing(stmts[0]) {
		return s.placingDescribed(stmts[0])
	}
	if p := s.extended.statements[stmts[0].Tree.GetExecuteStmt().GetName()]; p != nil && stmts[0].Class == analyze.Execute {
		if err := s.replanned(ctx, p); err != nil {
			return nil, nil, err
		}
		return append(pgwire.AppendParameterDescription(nil, nil), rowsOf(p.entry.described)...), nil, nil
	}
	conn, done, err := s.describingConnection(ctx, stmts[0])
	if err != nil {
		return nil, nil, err
	}
	defer done()
	part := s.txn.part(conn.Key.Node)
	if part == nil || part.conn != conn || part.oids == nil {
		return describeOn(conn, p.onWire(conn), p.oids)
	}
	described, params, err = describeOn(conn, p.onWire(conn), part.typesAt(p.oids))
	s.describedRows(part, rowsOf(described))
	return described, params, err
}

// describeOn asks a node for a text's ParameterDescription and its RowDescription or NoData, and for the types in the former.
func describeOn(conn *pool.Conn, text string, types []uint32) (described []byte, params []uint32, err error) {
	out := conn.Stream.Out()
	buf := pgwire.AppendParse(*out, "", text, types)
	buf = pgwire.AppendDescribe(buf, pgwire.Statement, "")
	*out = pgwire.AppendSync(buf)
	if err := conn.Stream.Flush(); err != nil {
		conn.Broken = true
		return nil, nil, lostNode(conn.Key.Node)
	}
	var failure *pgwire.Error
	for {
		typ, msg, err := conn.Stream.Next()
		if err != nil {
			conn.Broken = true
			return nil, nil, lostNode(conn.Key.Node)
		}
		switch typ {
		case 't':
			described = append(described, msg...)
			params = parameterTypes(msg)
		case 'T', 'n':
			described = append(described, msg...)
		case 'E':
			failure = pgwire.ParseError(msg)
		case 'S':
			conn.ParameterStatus(msg)
		case 'Z':
			conn.TxStatus = pgwire.ReadyStatus(msg)
			if failure != nil {
				return nil, nil, failure
			}
			return described, params, nil
		}
	}
}

// describingConnection is one that can describe the statement: for a cursor's only the one that has it.
func (s *session) describingConnection(ctx context.Context, st *analyze.Statement) (*pool.Conn, func(), error) {
	if !isCursor(st.Class) {
		return s.homeConnection(ctx)
	}
	if s.txn.failed {
		return nil, nil, errAborted()
	}
	if err := s.finishSegment(ctx); err != nil {
		return nil, nil, err
	}
	if err := s.protectBatch(ctx); err != nil {
		return nil, nil, err
	}
	p, err := s.answering(ctx, s.cursorNode(cursorName(st.Tree)))
	if err == nil {
		err = s.flushPreamble(p)
	}
	if err != nil {
		return nil, nil, err
	}
	return p.conn, func() {}, nil
}

func parameterTypes(msg []byte) []uint32 {
	var oids []uint32
	for b := msg[7:]; len(b) >= 4; b = b[4:] {
		oids = append(oids, uint32(b[0])<<24|uint32(b[1])<<16|uint32(b[2])<<8|uint32(b[3]))
	}
	return oids
}

// ownDescription reports statements that the home node cannot or need not describe.
func ownDescription(st *analyze.Statement) bool {
	switch st.Class {
	case analyze.Begin, analyze.Commit, analyze.Rollback, analyze.Savepoint, analyze.Release, analyze.RollbackTo,
		analyze.Set, analyze.Discard, analyze.SetConstraints, analyze.PrepareTransaction, analyze.FinishPrepared,
		analyze.Deallocate, analyze.Prepare:
		return true
	case analyze.Show:
		return ownStatement(st)
	}
	return false
}

func (s *session) ownDescribed(stmts []*analyze.Statement) ([]byte, []uint32, error) {
	described := pgwire.AppendParameterDescription(nil, nil)
	if len(stmts) == 1 && stmts[0].Class == analyze.Show {
		if columns, ok := shoalColumns[strings.ToLower(stmts[0].Tree.GetVariableShowStmt().GetName())]; ok {
			return pgwire.AppendRowDescription(described, textColumns(columns)), nil, nil
		}
	}
	return pgwire.AppendNoData(described), nil, nil
}

// placing reports a call of a function that only routers know.
func placing(st *analyze.Statement) bool {
	for _, c := range analyze.Calls(st.Tree) {
		if _, name := analyze.Name(c.Funcname); placingParameters[name] != nil {
			return true
		}
	}
	return false
}

func (s *session) placingDescribed(st *analyze.Statement) ([]byte, []uint32, error) {
	name, n := "", 0
	for _, c := range analyze.Calls(st.Tree) {
		if _, f := analyze.Name(c.Funcname); placingParameters[f] != nil {
			name = f
		}
	}
	analyze.Walk(st.Tree, func(m proto.Message) bool {
		if r, ok := m.(*pg.ParamRef); ok {
			n = max(n, int(r.Number))
		}
		return true
	})
	oids := make([]uint32, n)
	for i := range oids {
		oids[i] = 25 // text
	}
	columns := placingColumns(name)
	if e := st.Tree.GetExplainStmt(); e != nil {
		columns = []pgwire.Column{explainColumn(explainFormat(e))}
	}
	described := pgwire.AppendParameterDescription(nil, oids)
	return pgwire.AppendRowDescription(described, columns), oids, nil
}

func explainFormat(e *pg.ExplainStmt) string {
	for _, o := range e.Options {
		if d := o.GetDefElem(); d.GetDefname() == "format" {
			return strings.ToLower(d.GetArg().GetString_().GetSval())
		}
	}
	return "text"
}

// describeMessage describes a statement from what the home node said, or a portal on its node.
func (s *session) describeMessage(ctx context.Context, msg []byte) error {
	e := &s.extended
	if err := e.describe.Decode(msg); err != nil {
		return err
	}
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	name := string(e.describe.Name)
	if e.describe.Object == pgwire.Statement {
		st := e.statements[name]
		if st == nil {
			return pgwire.Errorf("26000", "prepared statement %q does not exist", name)
		}
		if err := s.replanned(ctx, st); err != nil {
			return err
		}
		if s.txn.failed && hasRows(st.entry.described) {
			return errAborted()
		}
		return s.synthesize(ctx, st.entry.described)
	}
	po := s.portal(name)
	if po == nil {
		return pgwire.Errorf("34000", "portal %q does not exist", name)
	}
	if po.part == nil {
		return s.synthesize(ctx, withFormats(rowsOf(po.stmt.entry.described), po.args.results))
	}
	p, err := s.segmentOn(ctx, po.part.node)
	if err != nil {
		return err
	}
	p.conn.Stream.Append(msg)
	e.awaited++
	return nil
}

// hasRows reports a statement that PostgreSQL does not describe in a failed transaction.
func hasRows(described []byte) bool {
	rows := rowsOf(described)
	return len(rows) > 0 && rows[0] == 'T'
}

// endsTransaction refuses a statement that cannot be parsed in a failed transaction: all but those that end it.
func endsTransaction(text string) error {
	stmts, err := analyze.Parse(text)
	if err != nil {
		return err
	}
	for _, st := range stmts {
		switch st.Class {
		case analyze.Commit, analyze.Rollback, analyze.RollbackTo, analyze.PrepareTransaction:
		default:
			return errAborted()
		}
	}
	return nil
}

// withFormats is a row description with the formats that a portal was bound with.
func withFormats(rows []byte, formats []int16) []byte {
	if len(formats) == 0 || len(rows) == 0 || rows[0] != 'T' {
		return rows
	}
	columns, err := pgwire.RowDescription(rows)
	if err != nil {
		return rows
	}
	for i := range columns {
		columns[i].Format = formats[min(i, len(formats)-1)]
	}
	return pgwire.AppendRowDescription(nil, columns)
}

// portal finds a portal: one that was bound, or a cursor that SQL declared in this transaction.
func (s *session) portal(name string) *portal {
	if po := s.extended.bound(name); po != nil || name == "" {
		return po
	}
	if node, ok := s.cursors[name]; ok {
		if p := s.txn.part(node); p != nil {
			return &portal{part: p}
		}
	}
	return nil
}

// rowsOf is the part of a statement's description that a portal has: the row description.
func rowsOf(described []byte) []byte {
	if len(described) < 5 || described[0] != 't' {
		return described
	}
	size := int(described[1])<<24 | int(described[2])<<16 | int(described[3])<<8 | int(described[4])
	return described[1+size:]
}
