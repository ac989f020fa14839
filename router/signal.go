package router

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/topo"
)

// A driver knows its session by the process number that the router gave it. These numbers are above
// those of all processes of a node, so that pg_cancel_backend and pg_terminate_backend can take both:
// a node's own pid goes to the home node, a client's is the router's business.

// signalCall is SELECT pg_cancel_backend(pid) or pg_terminate_backend(pid, timeout), and nothing else.
type signalCall struct {
	terminate    bool
	column       string
	pid, timeout signalArgument
}

// signalArgument is a number: a constant, or a parameter.
type signalArgument struct {
	value int64
	param int
}

// signalled is a call for one client. Timeout is how many milliseconds to wait for its end.
type signalled struct {
	pid     uint32
	timeout int64
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
	if call == nil || len(call.Args) < 1 || len(call.Args) > 2 {
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
	if len(call.Args) == 2 && !sig.terminate {
		return nil
	}
	for i, to := range []*signalArgument{&sig.pid, &sig.timeout} {
		if i < len(call.Args) && !to.read(call.Args[i]) {
			return nil
		}
	}
	return sig
}

// read reports an argument whose value needs no node.
func (a *signalArgument) read(arg *pg.Node) bool {
	for arg.GetTypeCast() != nil {
		arg = arg.GetTypeCast().Arg
	}
	switch {
	case arg.GetParamRef() != nil:
		a.param = int(arg.GetParamRef().Number)
	case arg.GetAConst().GetIval() != nil:
		a.value = int64(arg.GetAConst().GetIval().Ival)
	case arg.GetAConst().GetSval() != nil:
		n, err := strconv.ParseInt(strings.TrimSpace(arg.GetAConst().GetSval().Sval), 10, 32)
		a.value = n
		return err == nil
	default:
		return false
	}
	return true
}

// bound is the argument's value in a Bind message.
func (a *signalArgument) bound(b *pgwire.Bind) int64 {
	i := a.param - 1
	if i < 0 || i >= b.NumParams() {
		return a.value
	}
	data, _ := b.Param(i)
	switch {
	case b.ParamFormat(i) != 1:
		n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
		return n
	case len(data) == 4:
		return int64(int32(binary.BigEndian.Uint32(data)))
	case len(data) == 8:
		return int64(binary.BigEndian.Uint64(data))
	}
	return 0
}

// ofClient is the call when its number is a client's; the nodes' own processes have lower ones.
func ofClient(pid, timeout int64) signalled {
	if pid < firstClientPID || pid > math.MaxInt32 {
		return signalled{}
	}
	return signalled{uint32(pid), timeout}
}

// signalled is the client that a statement of the simple protocol names, none when its number is 0.
func (st *plannedStatement) signalled() signalled {
	if st.signal == nil || st.signal.pid.param != 0 || st.signal.timeout.param != 0 {
		return signalled{}
	}
	return ofClient(st.signal.pid.value, st.signal.timeout.value)
}

// bindSignal is the client that a bound statement names, none when its number is 0.
func bindSignal(entry *planned, b *pgwire.Bind) signalled {
	if len(entry.statements) != 1 || entry.statements[0].signal == nil {
		return signalled{}
	}
	sig := entry.statements[0].signal
	return ofClient(sig.pid.bound(b), sig.timeout.bound(b))
}

// signal executes the call for a client of the cluster.
func (s *session) signal(ctx context.Context, sig *signalCall, to signalled, describe, binaryResult bool) error {
	if s.txn.failed {
		return errAborted()
	}
	if to.timeout < 0 {
		return pgwire.Errorf("22003", "\"timeout\" must not be negative")
	}
	done, err := s.signalClient(ctx, sig, to)
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

func (s *session) signalClient(ctx context.Context, sig *signalCall, to signalled) (bool, error) {
	r, pid := s.router, to.pid
	if number := routerOf(pid); number != r.member.Load().Member().Number {
		return s.signalElsewhere(ctx, sig, to, number)
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
	cancelling, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	target.cancelRunning(cancelling)
	return s.awaitEnd(ctx, target, to)
}

// awaitEnd waits for the end of a session as long as the caller wants to.
func (s *session) awaitEnd(ctx context.Context, target *session, to signalled) (bool, error) {
	if to.timeout == 0 {
		return true, nil
	}
	over := time.NewTimer(time.Duration(min(to.timeout, math.MaxInt32)) * time.Millisecond)
	defer over.Stop()
	select {
	case <-target.gone:
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-over.C:
		s.warn("backend with PID %d did not terminate within %d milliseconds", to.pid, to.timeout)
		return false, nil
	}
}

// notClient warns as PostgreSQL does.
func (s *session) notClient(pid uint32) { s.warn("PID %d is not a PostgreSQL backend process", pid) }

func (s *session) warn(format string, args ...any) {
	warning := pgwire.Noticef("01000", format, args...)
	warning.Severity, warning.SeverityRaw = "WARNING", "WARNING"
	out := s.client.Out()
	*out = warning.AppendNoticeTo(*out)
}

// signalElsewhere asks the client's router, in a session of the same role: it decides with the same rights.
func (s *session) signalElsewhere(ctx context.Context, sig *signalCall, to signalled, number int) (bool, error) {
	routers, err := topo.Members(ctx, s.router.store, topo.RoleRouter)
	if err != nil {
		return false, schemaError(ctx, "looking for the client's router", err)
	}
	i := slices.IndexFunc(routers, func(m topo.Member) bool { return m.Number == number })
	if i < 0 {
		s.notClient(to.pid)
		return false, nil
	}
	b, err := pgwire.Dial(ctx, pgwire.DialConfig{
		Address: routers[i].Address, User: s.user, Database: s.database, Password: s.creds.Password, Keys: s.creds.Keys, Timeout: cancelTimeout,
	})
	if err != nil {
		return false, pgwire.Errorf(pgwire.CodeFeatureNotSupported, "client %d is connected to another router, which cannot be asked: %v", to.pid, err).
			WithHint("Call the function on router %s at %s.", routers[i].Name, routers[i].Address)
	}
	defer b.Stream.Conn.Close()
	conn := &pool.Conn{Backend: b, Key: pool.Key{Node: routers[i].Name}, TxStatus: 'I'}
	call := fmt.Sprintf("SELECT pg_catalog.pg_cancel_backend(%d)", to.pid)
	if sig.terminate {
		call = fmt.Sprintf("SELECT pg_catalog.pg_terminate_backend(%d, %d)", to.pid, to.timeout)
	}
	if role := s.currentRole(); role != s.user {
		if err := conn.Exec(ctx, "SET ROLE "+plan.QuoteIdent(role)); err != nil {
			return false, err
		}
	}
	rows, err := conn.Query(ctx, call)
	if err != nil {
		return false, err
	}
	done := string(rows[0][0]) == "t"
	switch {
	case !done && to.timeout > 0:
		s.warn("backend with PID %d did not terminate within %d milliseconds", to.pid, to.timeout)
	case !done:
		s.notClient(to.pid)
	}
	return done, nil
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
