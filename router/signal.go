package router

import (
	"context"
	"encoding/binary"
	"strconv"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/topo"
)

// A driver knows its session by the process number that the router gave it. These numbers are above
// those of all processes of a node, so that pg_cancel_backend and pg_terminate_backend can take both:
// a node's own pid goes to the home node, a client's is the router's business.

// signalCall is SELECT pg_cancel_backend(pid) or pg_terminate_backend(pid), and nothing else.
type signalCall struct {
	terminate bool
	column    string
	pid       uint32 // when it is a constant
	param     int    // else
}

// signalOf finds such a call; nil for other statements.
func signalOf(st *analyze.Statement) *signalCall {
	sel := st.Tree.GetSelectStmt()
	if sel == nil || len(sel.TargetList) != 1 || len(sel.FromClause) > 0 || sel.WhereClause != nil ||
		sel.LimitCount != nil || sel.LimitOffset != nil || sel.WithClause != nil || sel.GroupClause != nil || sel.IntoClause != nil {
		return nil
	}
	target := sel.TargetList[0].GetResTarget()
	call := target.GetVal().GetFuncCall()
	if call == nil || len(call.Args) != 1 {
		return nil
	}
	schema, name := analyze.Name(call.Funcname)
	if schema != "" && schema != "pg_catalog" || name != "pg_cancel_backend" && name != "pg_terminate_backend" {
		return nil
	}
	sig := &signalCall{terminate: name == "pg_terminate_backend", column: name}
	if target.Name != "" {
		sig.column = target.Name
	}
	arg := call.Args[0]
	for arg.GetTypeCast() != nil {
		arg = arg.GetTypeCast().Arg
	}
	switch {
	case arg.GetParamRef() != nil:
		sig.param = int(arg.GetParamRef().Number)
	case arg.GetAConst().GetIval() != nil:
		sig.pid = uint32(arg.GetAConst().GetIval().Ival)
	case arg.GetAConst().GetSval() != nil:
		n, err := strconv.ParseUint(strings.TrimSpace(arg.GetAConst().GetSval().Sval), 10, 31)
		if err != nil {
			return nil
		}
		sig.pid = uint32(n)
	default:
		return nil
	}
	return sig
}

// signalled is the client that a statement of the simple protocol names, 0 when it names none.
func (st *plannedStatement) signalled() uint32 {
	if st.signal == nil || st.signal.pid < firstClientPID {
		return 0
	}
	return st.signal.pid
}

// bindSignal is the client that a bound statement names, 0 when it names none.
func bindSignal(entry *planned, b *pgwire.Bind) uint32 {
	if len(entry.statements) != 1 || entry.statements[0].signal == nil {
		return 0
	}
	sig := entry.statements[0].signal
	pid := sig.pid
	if i := sig.param - 1; i >= 0 && i < b.NumParams() {
		data, _ := b.Param(i)
		if b.ParamFormat(i) == 1 && len(data) == 4 {
			pid = binary.BigEndian.Uint32(data)
		} else if n, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 31); err == nil {
			pid = uint32(n)
		}
	}
	if pid < firstClientPID {
		return 0
	}
	return pid
}

// signal executes the call for a client of the cluster.
func (s *session) signal(ctx context.Context, sig *signalCall, pid uint32, describe, binaryResult bool) error {
	if s.txn.failed {
		return errAborted()
	}
	done, err := s.signalClient(ctx, sig, pid)
	if err != nil {
		return err
	}
	out := s.client.Out()
	if describe {
		column := pgwire.TextColumn(s.forClient(sig.column))
		column.TypeOID, column.TypeSize = 16, 1
		*out = pgwire.AppendRowDescription(*out, []pgwire.Column{column})
	}
	value := []byte("f")
	if done {
		value[0] = 't'
	}
	if binaryResult {
		value[0] = byte(strings.IndexByte("ft", value[0]))
	}
	*out = pgwire.AppendDataRow(*out, [][]byte{value})
	s.complete("SELECT 1")
	return nil
}

func (s *session) signalClient(ctx context.Context, sig *signalCall, pid uint32) (bool, error) {
	r := s.router
	if number := routerOf(pid); number != r.member.Load().Member().Number {
		return false, s.elsewhereClient(ctx, pid, number)
	}
	target := r.clients.find(pid)
	if target == nil {
		s.notClient(pid)
		return false, nil
	}
	if err := s.maySignal(ctx, sig, target.user); err != nil {
		return false, err
	}
	switch {
	case target == s && sig.terminate:
		s.send(pgwire.Fatalf("57P01", "terminating connection due to administrator command"))
		return false, errClientGone
	case target == s:
		return false, pgwire.Errorf(pgwire.CodeQueryCanceled, "canceling statement due to user request")
	case sig.terminate:
		target.terminate()
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	target.cancelRunning(ctx)
	return true, nil
}

// notClient warns as PostgreSQL does.
func (s *session) notClient(pid uint32) {
	warning := pgwire.Noticef("01000", "PID %d is not a PostgreSQL backend process", pid)
	warning.Severity, warning.SeverityRaw = "WARNING", "WARNING"
	out := s.client.Out()
	*out = warning.AppendNoticeTo(*out)
}

// elsewhereClient tells where a client of another router can be reached.
func (s *session) elsewhereClient(ctx context.Context, pid uint32, number int) error {
	routers, err := topo.Members(ctx, s.router.store, topo.RoleRouter)
	if err != nil {
		return schemaError(ctx, "looking for the client's router", err)
	}
	for _, m := range routers {
		if m.Number == number {
			return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "client %d is connected to another router", pid).
				WithHint("Call the function on router %s at %s.", m.Name, m.Address)
		}
	}
	s.notClient(pid)
	return nil
}

// maySignal has PostgreSQL's rules for signalling the session of a role.
func (s *session) maySignal(ctx context.Context, sig *signalCall, role string) error {
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return err
	}
	defer done()
	name := plan.QuoteLiteral(role)
	rows, err := conn.Query(ctx, `SELECT CASE
		WHEN (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) THEN ''
		WHEN (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = `+name+`) THEN 'super'
		WHEN pg_catalog.pg_has_role(`+name+`, 'USAGE') OR pg_catalog.pg_has_role('pg_signal_backend', 'USAGE') THEN ''
		ELSE 'member' END`)
	if err != nil {
		return err
	}
	why := string(rows[0][0])
	switch {
	case why == "super" && sig.terminate:
		return pgwire.Errorf("42501", "must be a superuser to terminate superuser process")
	case why == "super":
		return pgwire.Errorf("42501", "must be a superuser to cancel superuser query")
	case why == "member" && sig.terminate:
		return pgwire.Errorf("42501", "must be a member of the role whose process is being terminated or member of pg_signal_backend")
	case why == "member":
		return pgwire.Errorf("42501", "must be a member of the role whose query is being canceled or member of pg_signal_backend")
	}
	return nil
}

// terminate ends the session as soon as it waits for its client.
func (s *session) terminate() {
	s.terminated.Store(true)
	_ = s.client.Conn.SetReadDeadline(time.Unix(1, 0))
}

// farewell tells a client that was terminated why its connection ends.
func (s *session) farewell() error {
	s.send(pgwire.Fatalf("57P01", "terminating connection due to administrator command"))
	_ = s.client.Flush()
	return errClientGone
}
