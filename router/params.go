package router

import (
	"context"
	"slices"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// everyWithParams runs a statement with parameters on all nodes: a write to a reference table.
func (s *session) everyWithParams(ctx context.Context, st *plannedStatement, po *portal) error {
	if st.plan.Kind != plan.Every {
		return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "parameters are not supported for this statement")
	}
	var answer []byte
	if err := s.inTransaction(ctx, func() (err error) {
		answer, err = s.everyNodeParams(ctx, st, po)
		return err
	}); err != nil {
		return err
	}
	mark := len(*s.client.Out())
	s.client.Append(answer)
	s.stripDescription(mark)
	return nil
}

func (s *session) everyNodeParams(ctx context.Context, st *plannedStatement, po *portal) ([]byte, error) {
	m, err := s.enterAny(ctx, st.plan.Tables)
	if err != nil {
		return nil, err
	}
	text, args := po.stmt.text, po.args
	if rw := st.plan.Rewrite; rw != nil {
		computed, computedTypes, err := s.evaluate(ctx, rw.Eval)
		if err != nil {
			return nil, err
		}
		text = rw.Text
		args.values = append(slices.Clone(args.values[:rw.Params]), computed...)
		args.types = append(slices.Clone(args.types[:min(rw.Params, len(args.types))]), computedTypes...)
		args.formats = append(slices.Clone(args.formats[:min(rw.Params, len(args.formats))]), make([]int16, len(args.values))...)[:len(args.values)]
	}
	other := text
	if st.plan.OtherText != "" {
		other = st.plan.OtherText
	}
	var answer []byte
	err = s.withLent(ctx, m, st.plan.Lent, func() (err error) {
		answer, err = s.onHome(ctx, m, text, &args)
		return err
	})
	if err != nil {
		return nil, err
	}
	return answer, s.onOthers(ctx, m, st, other, &args)
}

// bindRewritten binds a statement whose key is computed first: the rewritten text with one more
// parameter for each computed value.
func (s *session) bindRewritten(ctx context.Context, st *prepared, name string) error {
	e := &s.extended
	pl := st.entry.statements[0].plan
	if err := s.finishSegment(ctx); err != nil {
		return err
	}
	values, types, err := s.evaluate(ctx, pl.Rewrite.Eval)
	if err != nil {
		return err
	}
	node, fresh, err := s.route(ctx, pl, &computed{&bound{&e.bind, s}, s, values})
	if err != nil {
		instead, err := s.severalNodes(ctx, &st.entry.statements[0], st.text, st.entry.params, err)
		if err != nil {
			return err
		}
		return s.bindSpread(ctx, st, instead, name, &computedValues{pl.Rewrite.Eval, values, types})
	}
	if fresh {
		return s.bindAgain(ctx, st, name)
	}
	p, err := s.segmentOn(ctx, node)
	if err != nil {
		return err
	}
	p.wrote = p.wrote || pl.Writes
	var formats, results []int16
	var params [][]byte
	for i := range e.bind.NumParams() {
		formats = append(formats, e.bind.ParamFormat(i))
		v, null := e.bind.Param(i)
		if null {
			v = nil
		} else if v == nil {
			v = []byte{}
		}
		params = append(params, v)
	}
	for _, v := range values {
		formats = append(formats, 0)
		params = append(params, v)
	}
	for i := range e.bind.NumResultFormats() {
		results = append(results, e.bind.ResultFormat(i))
	}
	types = append(slices.Clone(st.entry.params), types...)
	out := p.conn.Stream.Out()
	buf := pgwire.AppendParse(*out, "", p.conn.Wire(pl.Rewrite.Text), p.typesAt(types))
	*out = pgwire.AppendBind(buf, name, "", formats, p.valuesAt(types, formats, params), results)
	s.relay.swallow = append(s.relay.swallow, e.owed != st)
	s.relay.Watch['1'] = true
	e.owed = nil
	e.awaited++
	e.setPortal(name, portal{stmt: st, part: p, columns: s.boundColumns(p, st)})
	return nil
}
