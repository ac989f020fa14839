package router

import (
	"context"
	"errors"
	"slices"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/sqltext"
)

// prepareStatement handles SQL's PREPARE. The statement becomes one of the session's prepared
// statements, which the protocol's messages and SQL share, and needs no server session of its own.
func (s *session) prepareStatement(ctx context.Context, st *plannedStatement) error {
	if s.txn.failed {
		return errAborted()
	}
	tree := st.tree.Tree.GetPrepareStmt()
	e := &s.extended
	if e.statements[tree.Name] != nil {
		return pgwire.Errorf("42P05", "prepared statement %q already exists", tree.Name)
	}
	text, err := analyze.Deparse(tree.Query)
	if err != nil {
		return err
	}
	p := &prepared{name: tree.Name, text: text}
	if p.oids, err = s.typeOIDs(ctx, tree.Argtypes); err != nil {
		return err
	}
	if p.entry, err = s.planPrepared(ctx, p); err != nil {
		return err
	}
	if err := refused(p.entry); err != nil {
		return err
	}
	p.rows = rowsOf(p.entry.described)
	if homeOnly(p.entry) {
		if err := s.toHome(ctx, st, "prepared statement"); err != nil || s.stopped {
			return err
		}
		p.atHome = true
	}
	if e.statements == nil {
		e.statements = map[string]*prepared{}
	}
	e.statements[tree.Name] = p
	if !p.atHome {
		s.complete("PREPARE")
	}
	return nil
}

// homeOnly reports a statement that runs on the home node as on any PostgreSQL: it is prepared there
// too, in a server session that the client keeps, so that nothing about it differs.
func homeOnly(entry *planned) bool {
	return len(entry.statements) == 1 && entry.statements[0].plan != nil && entry.statements[0].plan.Kind == plan.Route &&
		len(entry.statements[0].plan.Pins) == 0 && !entry.statements[0].plan.AnyNode && entry.statements[0].plan.Rewrite == nil
}

// toHome passes a statement on to the home node as it is. Hold says why the server session must be
// kept from then on, if it must.
func (s *session) toHome(ctx context.Context, st *plannedStatement, hold string) error {
	p := &plan.Plan{Epoch: s.router.view.Load().m.Epoch, Writes: true, Hold: hold}
	text := st.text
	// A semicolon at the end stays: pg_prepared_statements shows the text.
	if whole := string(s.text); strings.TrimRight(whole, "; \t\r\n") == text {
		text = whole
	}
	return s.routeOne(ctx, &plannedStatement{class: st.class, text: text, plan: p}, nil)
}

func refused(entry *planned) error {
	if len(entry.statements) == 1 {
		return entry.statements[0].err
	}
	return nil
}

// typeOIDs asks the home node what the declared parameter types are.
func (s *session) typeOIDs(ctx context.Context, types []*pg.Node) ([]uint32, error) {
	if len(types) == 0 {
		return nil, nil
	}
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	var list []string
	for _, t := range types {
		// The grammar writes a type out in a cast, whatever form it was given in.
		text, err := analyze.Deparse(castOfNull(t))
		if err != nil {
			return nil, err
		}
		list = append(list, "pg_catalog.pg_typeof(("+strings.TrimPrefix(text, "SELECT ")+"))::pg_catalog.oid")
	}
	rows, err := conn.Query(ctx, "SELECT "+strings.Join(list, ", "))
	if err != nil {
		return nil, err
	}
	oids := make([]uint32, len(types))
	for i := range oids {
		oids[i] = atoi(rows[0][i])
	}
	return oids, nil
}

func castOfNull(t *pg.Node) *pg.Node {
	null := &pg.Node{Node: &pg.Node_AConst{AConst: &pg.A_Const{Isnull: true}}}
	cast := &pg.Node{Node: &pg.Node_TypeCast{TypeCast: &pg.TypeCast{Arg: null, TypeName: t.GetTypeName()}}}
	return &pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: &pg.SelectStmt{
		TargetList: []*pg.Node{pg.MakeResTargetNodeWithVal(cast, -1)},
	}}}
}

// executeStatement handles SQL's EXECUTE.
func (s *session) executeStatement(ctx context.Context, st *plannedStatement) error {
	if s.txn.failed {
		return errAborted()
	}
	tree := st.tree.Tree.GetExecuteStmt()
	p := s.extended.statements[tree.Name]
	if p == nil {
		return pgwire.Errorf("26000", "prepared statement %q does not exist", tree.Name)
	}
	if p.atHome && p.entry.epoch == s.router.view.Load().m.Epoch && !s.schemaChanged {
		return s.toHome(ctx, st, "prepared statement")
	}
	if err := s.replan(ctx, p); err != nil {
		var answer *pgwire.Error
		if p.atHome && errors.As(err, &answer) {
			return s.toHome(ctx, st, "prepared statement") // the node refuses it in its own words
		}
		return err
	}
	if p.atHome && homeOnly(p.entry) {
		return s.toHome(ctx, st, "prepared statement")
	}
	values, err := s.arguments(ctx, p, tree.Params)
	if err != nil {
		return err
	}
	if len(p.entry.statements) == 0 {
		return nil
	}
	inner := &p.entry.statements[0]
	if inner.plan == nil || len(values) == 0 && inner.plan.Kind != plan.Route && inner.plan.Kind != plan.Spread {
		return s.run(ctx, &plannedStatement{class: inner.class, text: p.text, tree: inner.tree, plan: inner.plan}, nil)
	}
	if inner.plan.Kind == plan.Spread {
		return s.spread(ctx, inner, arguments{types: slices.Clone(p.entry.params), values: values}, true)
	}
	if inner.plan.Kind != plan.Route {
		return s.everyWithParams(ctx, inner, &portal{stmt: p, values: values, args: arguments{types: p.entry.params, values: values}})
	}
	return s.executeRoute(ctx, p, inner, values)
}

// executed is the statement that an EXECUTE names, nil if there is none.
func (s *session) executed(entry *planned) *prepared {
	if len(entry.statements) != 1 || entry.statements[0].class != analyze.Execute {
		return nil
	}
	return s.extended.statements[entry.statements[0].tree.Tree.GetExecuteStmt().Name]
}

// bindExecuted binds the statement that an EXECUTE names, with its arguments, in place of the EXECUTE: so its rows are described
// and sent in the formats that the client has asked for.
func (s *session) bindExecuted(ctx context.Context, st, named *prepared, portal string) error {
	e := &s.extended
	if err := s.payOwed(ctx); err != nil {
		return err
	}
	if err := s.finishSegment(ctx); err != nil {
		return err
	}
	if err := s.replan(ctx, named); err != nil {
		return err
	}
	values, err := s.arguments(ctx, named, st.entry.statements[0].tree.Tree.GetExecuteStmt().Params)
	if err != nil {
		return err
	}
	results := make([]int16, e.bind.NumResultFormats())
	for i := range results {
		results[i] = e.bind.ResultFormat(i)
	}
	if err := e.bind.Decode(pgwire.AppendBind(nil, portal, named.name, nil, values, results)); err != nil {
		return err
	}
	return s.bindStatement(ctx, named, portal)
}

// arguments computes the arguments of EXECUTE; plain constants need no node.
func (s *session) arguments(ctx context.Context, p *prepared, args []*pg.Node) ([][]byte, error) {
	if len(args) != len(p.entry.params) {
		return nil, pgwire.Errorf("42601", "wrong number of parameters for prepared statement %q", p.name).
			WithDetail("Expected %d parameters but got %d.", len(p.entry.params), len(args))
	}
	values := make([][]byte, len(args))
	var exprs []string
	var at []int
	for i, a := range args {
		if c := a.GetAConst(); c != nil {
			if c.Isnull {
				continue
			}
			if str := c.GetSval(); str != nil && (!s.encodings.foreign || sqltext.IsASCII(str.Sval)) {
				values[i] = []byte(str.Sval)
				continue
			}
			if n := c.GetIval(); n != nil {
				values[i] = []byte(itoa(int(n.Ival)))
				continue
			}
		}
		text, err := analyze.Deparse(&pg.Node{Node: &pg.Node_SelectStmt{SelectStmt: &pg.SelectStmt{
			TargetList: []*pg.Node{pg.MakeResTargetNodeWithVal(a, -1)},
		}}})
		if err != nil {
			return nil, err
		}
		exprs = append(exprs, strings.TrimPrefix(text, "SELECT "))
		at = append(at, i)
	}
	if len(exprs) == 0 {
		return values, nil
	}
	computed, _, err := s.evaluate(ctx, exprs)
	for j, i := range at {
		if err == nil {
			values[i] = computed[j]
		}
	}
	return values, err
}

// textValues are parameters in text, in the client's encoding.
type textValues struct {
	session *session
	values  [][]byte
}

func (v textValues) Value(o *plan.Operand) (exec.Value, error) {
	if o.Null {
		return exec.Value{Null: true}, nil
	}
	if o.Param == 0 {
		return v.session.textKey([]byte(o.Text))
	}
	data := v.values[o.Param-1]
	return v.session.clientKey(exec.Value{Data: data, Null: data == nil}, o)
}

func (s *session) executeRoute(ctx context.Context, p *prepared, st *plannedStatement, values [][]byte) error {
	text, types := p.text, p.entry.params
	var source exec.Values = textValues{s, values}
	if rw := st.plan.Rewrite; rw != nil {
		evaluated, evaluatedTypes, err := s.evaluate(ctx, rw.Eval)
		if err != nil {
			return err
		}
		source = &computed{source, s, evaluated}
		text = rw.Text
		values = append(append([][]byte{}, values...), evaluated...)
		types = append(append([]uint32{}, types...), evaluatedTypes...)
	}
	node, fresh, err := s.route(ctx, st.plan, source)
	if fresh {
		return errOtherEpoch
	}
	if err != nil {
		if st, err = s.severalNodes(ctx, st, p.text, p.entry.params, err); err != nil {
			return err
		}
		return s.spread(ctx, st, arguments{types: slices.Clone(p.entry.params), values: values}, true)
	}
	return s.sendParams(ctx, st, node, text, types, values)
}

// expandExecute writes the prepared statement out in CREATE TABLE AS EXECUTE, which is then planned
// like any other query.
func (s *session) expandExecute(st *analyze.Statement) error {
	create := st.Tree.GetCreateTableAsStmt()
	execute := create.GetQuery().GetExecuteStmt()
	if execute == nil {
		return nil
	}
	p := s.extended.statements[execute.Name]
	if p == nil {
		return pgwire.Errorf("26000", "prepared statement %q does not exist", execute.Name)
	}
	inner, err := analyze.Parse(p.text)
	if err != nil || len(inner) != 1 {
		return err
	}
	if !analyze.ReplaceParams(inner[0].Tree, execute.Params) || len(execute.Params) != len(p.entry.params) {
		return pgwire.Errorf("42601", "wrong number of parameters for prepared statement %q", execute.Name).
			WithDetail("Expected %d parameters but got %d.", len(p.entry.params), len(execute.Params))
	}
	create.Query = inner[0].Tree
	st.Text, err = analyze.Deparse(st.Tree)
	return err
}

// deallocate forgets prepared statements.
func (s *session) deallocate(ctx context.Context, st *plannedStatement) error {
	if s.txn.failed {
		return errAborted()
	}
	tree := st.tree.Tree.GetDeallocateStmt()
	statements := s.extended.statements
	if tree.Name == "" {
		atHome := false
		for _, p := range statements {
			atHome = atHome || p.atHome
		}
		clear(statements)
		if !atHome {
			s.complete("DEALLOCATE ALL")
			return nil
		}
		err := s.toHome(ctx, st, "prepared statement")
		if p := s.txn.part(s.router.view.Load().m.Home); p != nil {
			p.conn.Statements.Clear() // the router's own are gone with the client's
		}
		return err
	}
	p := statements[tree.Name]
	if p == nil {
		return pgwire.Errorf("26000", "prepared statement %q does not exist", tree.Name)
	}
	delete(statements, tree.Name)
	if p.atHome {
		return s.toHome(ctx, st, "prepared statement")
	}
	s.complete("DEALLOCATE")
	return nil
}
