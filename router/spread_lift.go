package router

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/sqltext"
)

// Texts over several nodes that differ in literals share a plan: see plan.Lift. Nodes plan such a statement each time, as they would
// the client's own text; what is saved is the router's parsing, planning and asking the home node for descriptions.

// liftedText is what is known of the texts with one normalised form. All but the plans is immutable; those are guarded by the space's lock.
type liftedText struct {
	literals []plan.Lifted // nil: the form was seen once, or cannot be lifted
	never    bool
	kept     []int               // literals that stay in the text, and so belong to the plan
	plans    map[string]*planned // by the kept literals
}

// maxLifted is how many plans one normalised form has.
const maxLifted = 100

// key is the part of a text that a plan belongs to, besides the normalised form.
func (t *liftedText) key(out []byte, literals []sqltext.Literal, text []byte) []byte {
	for _, i := range t.kept {
		out = append(out, text[literals[i].Start:literals[i].End]...)
		out = append(out, 0) // no text has it
	}
	return out
}

// lifts reports that this session's literals mean the same as parameters do.
func (s *session) lifts() bool {
	return !s.schemaChanged && len(s.temporary) == 0 && !s.encodings.foreign && !s.encodings.serverForeign && len(s.norm.Literals) > 0
}

// findLifted is the plan of a text with other literals than it was made for. After it, s.lifted are the values of this text's.
func (s *session) findLifted(text []byte, epoch uint64) *planned {
	if !s.lifts() {
		return nil
	}
	var room [64]byte
	s.space.mu.RLock()
	defer s.space.mu.RUnlock()
	t := s.space.lifted[string(s.norm.Text)]
	if t == nil || t.literals == nil {
		return nil
	}
	hit := t.plans[string(t.key(room[:0], s.norm.Literals, text))]
	if hit == nil || hit.epoch != epoch || !s.liftValues(t.literals, hit.params, text) {
		return nil
	}
	return hit
}

// liftValues takes the values of lifted literals out of a text.
func (s *session) liftValues(literals []plan.Lifted, types []uint32, text []byte) bool {
	values := make([][]byte, len(literals))
	for i, l := range literals {
		v, ok := s.norm.Literals[l.Literal].Value(text, nil)
		if !ok {
			return false
		}
		if l.Negate {
			v = append([]byte{'-'}, v...)
		}
		values[i] = v
	}
	s.lifted = arguments{types: types, formats: make([]int16, len(values)), values: values}
	return true
}

// severalLiterals is severalNodes for a statement of the simple protocol.
func (s *session) severalLiterals(ctx context.Context, st *plannedStatement, cause error) (*plannedStatement, error) {
	v := s.router.view.Load()
	if hit := s.findLifted(s.text, v.m.Epoch); hit != nil {
		return &hit.statements[0], nil
	}
	instead, err := s.severalNodes(ctx, st, string(s.text), nil, cause)
	if err == nil {
		s.lift(ctx, v, s.text, instead)
	}
	return instead, err
}

// lift makes a plan for texts with other literals, when it is the second text of its form. What is in its way is no error: the
// statement has a plan.
func (s *session) lift(ctx context.Context, v *view, text []byte, st *plannedStatement) {
	// Not inside a transaction: a form that PostgreSQL refuses would fail it.
	if !s.lifts() || s.txn.mode != modeIdle || st.class != analyze.Query || len(text) > maxPlanText || st.plan.Epoch != v.m.Epoch || !s.space.seenBefore(s.norm.Text) {
		return
	}
	t := &liftedText{never: true}
	entry, err := s.planLifted(ctx, v, text, st, t)
	if err != nil {
		return // a node that is away, for example
	}
	s.space.storeLifted(s.norm.Text, t, entry, s.norm.Literals, text)
}

// planLifted plans a text's form; nil without an error if that cannot be done.
func (s *session) planLifted(ctx context.Context, v *view, text []byte, st *plannedStatement, t *liftedText) (*planned, error) {
	stmts, err := analyze.Parse(string(text))
	if err != nil || len(stmts) != 1 {
		return nil, err
	}
	form, literals, err := plan.Lift(stmts[0], s.literalAt)
	if err != nil || len(literals) == 0 {
		return nil, nil
	}
	params, same, err := s.describesAlike(ctx, string(text), form, literals)
	if err != nil || !same {
		return nil, err
	}
	if stmts, err = analyze.Parse(form); err != nil || len(stmts) != 1 {
		return nil, nil
	}
	cat, err := s.catalog(ctx, v)
	if err != nil {
		return nil, err
	}
	e, err := plan.MakeExchange(s.planInput(cat, v, stmts[0], params), form)
	if err != nil {
		return nil, nil
	}
	t.literals, t.never = literals, false
	for i := range s.norm.Literals {
		if !containsLiteral(literals, i) {
			t.kept = append(t.kept, i)
		}
	}
	return &planned{epoch: v.m.Epoch, params: params, statements: []plannedStatement{{
		class: st.class, text: form, spread: &shapeCache{}, plan: plan.SpreadOf(st.plan, e, v.m.Epoch), lifted: true,
	}}}, nil
}

func containsLiteral(literals []plan.Lifted, index int) bool {
	for _, l := range literals {
		if l.Literal == index {
			return true
		}
	}
	return false
}

// describesAlike asks the home node for the types of a form's parameters, and whether it answers with the columns of the text itself.
func (s *session) describesAlike(ctx context.Context, text, form string, literals []plan.Lifted) (params []uint32, same bool, err error) {
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return nil, false, err
	}
	defer done()
	own, err := describeRows(conn, text, nil)
	if err != nil {
		return nil, false, err
	}
	types := make([]uint32, len(literals))
	for i, l := range literals {
		types[i] = l.Type
	}
	described, params, err := describeOn(conn, conn.Wire(form), types)
	if err != nil {
		return nil, false, nil // PostgreSQL does not find out the type of a parameter there
	}
	for i, l := range literals {
		if l.Type != 0 && params[i] != l.Type || params[i] >= firstUserOID {
			return nil, false, nil
		}
	}
	return params, bytes.Equal(own, rowsOf(described)), nil
}

// seenBefore notes a normalised form, and reports one that was noted and may be lifted.
func (p *planSpace) seenBefore(norm []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if t := p.lifted[string(norm)]; t != nil {
		return !t.never
	}
	if len(p.lifted) >= maxNormalised {
		clear(p.lifted)
	}
	p.lifted[string(norm)] = &liftedText{}
	return false
}

func (p *planSpace) storeLifted(norm []byte, t *liftedText, entry *planned, literals []sqltext.Literal, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.lifted[string(norm)]; old != nil && old.literals != nil {
		t.plans = old.plans // the same form has the same literals to lift
	}
	if t.plans == nil || len(t.plans) >= maxLifted {
		t.plans = map[string]*planned{}
	}
	if entry != nil {
		t.plans[string(t.key(nil, literals, text))] = entry
	}
	p.lifted[string(norm)] = t
}

// literalError is an error as PostgreSQL has it for the client's own text: what is wrong with a literal is found there when the text is
// read, and has a place in it.
func (s *session) literalError(ctx context.Context, err error) error {
	var e *pgwire.Error
	if !errors.As(err, &e) || !strings.HasPrefix(e.Code, "22") {
		return err
	}
	var own *pgwire.Error
	if s.txn.mode == modeIdle && errors.As(s.askHome(ctx, s.text), &own) && own.Code == e.Code {
		return own
	}
	return err
}
