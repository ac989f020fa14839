package router

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/sqltext"
)

// planned is a text that was parsed and planned once. It is immutable but for its uses.
type planned struct {
	epoch      uint64
	space      *planSpace // that its names were resolved for
	statements []plannedStatement
	params     []uint32 // parameter types, for the extended protocol
	// described are the ParameterDescription and the RowDescription or NoData that the home node
	// answered, for the extended protocol.
	described []byte
	// oidParams and oidRows are set when parameters or columns can have OIDs in the binary format of their values.
	oidParams, oidRows bool
	id                 uint64        // names the text among the prepared statements of server connections
	uses               atomic.Uint32 // as a statement without a name, until it is kept
	// unsettled is set when names had to be asked for that the catalog does not have; see planUnknown.
	unsettled bool
}

// plannedStatement is one statement of a text.
type plannedStatement struct {
	class analyze.Class
	text  string
	tree  *analyze.Statement // for classes that the router executes itself
	plan  *plan.Plan         // nil when err is set or the router executes the class itself
	err   error              // a refusal
	// lifted is set when literals of the client's text are parameters of this one.
	lifted bool
	// spread describes a query over several nodes once it has run.
	spread *shapeCache
	// signal is set for a call that may be about another client.
	signal *signalCall
}

// planSpace holds the plans of sessions that resolve names alike.
type planSpace struct {
	mu         sync.RWMutex
	normalised map[string]*planned
	exact      map[string]*planned
	lifted     map[string]*liftedText // by normalised text
}

type spaceKey struct{ database, user, path, encoding string }

// planSpaces holds all plan spaces of a router.
type planSpaces struct {
	mu           sync.Mutex
	spaces       map[spaceKey]*planSpace
	lastID       atomic.Uint64
	hits, misses atomic.Uint64
}

const (
	maxNormalised = 5000 // plans of one space, by normalised text
	maxExact      = 5000 // plans that are good for one text only
	maxPlanText   = 64 << 10
)

func newPlanSpace() *planSpace {
	return &planSpace{normalised: map[string]*planned{}, exact: map[string]*planned{}, lifted: map[string]*liftedText{}}
}

func (p *planSpaces) init() { p.spaces = map[spaceKey]*planSpace{} }

func (p *planSpaces) get(k spaceKey) *planSpace {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.spaces[k]
	if s == nil {
		if len(p.spaces) > 1000 {
			clear(p.spaces)
		}
		s = newPlanSpace()
		p.spaces[k] = s
	}
	return s
}

// find looks a text up: by its normalised form first, which serves any literals.
func (p *planSpace) find(norm, text []byte, epoch uint64) *planned {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if norm != nil {
		if hit := p.normalised[string(norm)]; hit != nil && hit.epoch == epoch {
			return hit
		}
	}
	if hit := p.exact[string(text)]; hit != nil && hit.epoch == epoch {
		return hit
	}
	return nil
}

func (p *planSpace) store(norm, text []byte, entry *planned, fixed bool) {
	if len(text) > maxPlanText {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if fixed || norm == nil {
		if len(p.exact) >= maxExact {
			clear(p.exact)
		}
		p.exact[string(text)] = entry
		return
	}
	if len(p.normalised) >= maxNormalised {
		clear(p.normalised)
	}
	p.normalised[string(norm)] = entry
}

// planText returns the plans of a text, made now if it was not seen before. After it,
// s.norm.Literals are the literals of text.
func (s *session) planText(ctx context.Context, text []byte) (*planned, error) {
	if err := s.learnNames(ctx); err != nil {
		return nil, err
	}
	v := s.router.view.Load()
	var norm []byte
	if sqltext.Normalize(&s.norm, text, s.standardStrings()) {
		norm = s.norm.Text
	}
	if !s.schemaChanged {
		hit := s.space.find(norm, text, v.m.Epoch)
		if hit == nil && norm != nil {
			hit = s.findLifted(text, v.m.Epoch)
		}
		if hit != nil {
			s.router.plans.hits.Add(1)
			return hit, nil
		}
	}
	s.task.Detach()
	s.router.plans.misses.Add(1)
	stmts, err := analyze.Parse(string(text))
	if err == nil {
		err = s.knowsNames(ctx, string(text))
	}
	if err != nil {
		return nil, err
	}
	keepPositions(text, stmts)
	entry, fixed, err := s.planStatements(ctx, v, stmts, nil, norm != nil)
	if err != nil {
		return nil, err
	}
	if !s.schemaChanged && !ofThisSession(stmts) && !entry.unsettled {
		s.space.store(norm, text, entry, fixed)
		if norm != nil && spreads(entry) {
			s.lift(ctx, v, text, &entry.statements[0])
		}
	}
	return entry, nil
}

// ofThisSession reports statements whose plans depend on what this session has prepared.
func ofThisSession(stmts []*analyze.Statement) bool {
	return slices.ContainsFunc(stmts, func(st *analyze.Statement) bool { return st.Class == analyze.CreateAs })
}

// keepPositions makes the statements of a text that is sent in pieces begin where they do in the
// whole, so that positions in errors are those of the client's text.
func keepPositions(text []byte, stmts []*analyze.Statement) {
	if len(stmts) < 2 {
		return
	}
	for _, st := range stmts {
		blank := strings.Map(func(r rune) rune {
			if r == '\n' {
				return r
			}
			return ' '
		}, string(text[:st.Offset]))
		st.Text = blank + st.Text
	}
}

// planStatements plans all statements of a text.
func (s *session) planStatements(ctx context.Context, v *view, stmts []*analyze.Statement, params []uint32, literals bool) (_ *planned, fixed bool, err error) {
	entry := &planned{epoch: v.m.Epoch, space: s.space, params: params, id: s.router.plans.lastID.Add(1)}
	for _, st := range stmts {
		if err := s.expandExecute(st); err != nil {
			return nil, false, err
		}
		ps := plannedStatement{class: st.Class, text: st.Text, spread: &shapeCache{}, signal: signalOf(st)}
		fixed = fixed || ps.signal != nil
		switch {
		case ownStatement(st):
			ps.tree = st
			fixed = true
		case s.txn.failed && s.schemaChanged: // the schema it would see cannot be read any more
			ps.err, fixed = errAborted(), true
		default:
			cat, err := s.catalog(ctx, v)
			if err != nil {
				return nil, false, err
			}
			ps.plan, ps.err, fixed = s.planOne(cat, v, st, params, literals, fixed)
			if len(stmts) == 1 && ps.unknown() {
				return s.planUnknown(ctx, v, cat, &ps, params, literals)
			}
		}
		entry.statements = append(entry.statements, ps)
	}
	// Only a text that is passed on as it came can stand for texts with other literals.
	if len(stmts) != 1 || entry.statements[0].plan == nil || entry.statements[0].plan.Kind != plan.Route {
		fixed = true
	}
	return entry, fixed, nil
}

func (s *session) planInput(cat *catalog.Catalog, v *view, st *analyze.Statement, params []uint32) plan.Input {
	return plan.Input{
		Statement: st, Catalog: cat, Map: v.m, Params: params,
		Path:      cat.UsablePath(catalog.ParseSearchPath(s.searchPath, s.currentRole()), s.currentRole()),
		Temporary: s.isTemporary, TemporaryCode: s.temporaryCode, Sizes: s.router.sizes.lookup(s.database),
	}
}

func (s *session) planOne(cat *catalog.Catalog, v *view, st *analyze.Statement, params []uint32, literals, fixed bool) (*plan.Plan, error, bool) {
	in := s.planInput(cat, v, st, params)
	if literals {
		in.Literal = s.literalAt
	}
	res, err := plan.Make(in)
	if err != nil {
		return nil, err, true
	}
	if rel := st.Tree.GetUpdateStmt().GetRelation(); rel.GetRelname() == "pg_settings" {
		res.Plan.Hold = "UPDATE of pg_settings"
	}
	return res.Plan, nil, fixed || res.Fixed
}

// literalAt finds the literal that begins at a byte of the current text, or follows a minus there.
func (s *session) literalAt(location int) (index int, negate, ok bool) {
	lits := s.norm.Literals
	lo, hi := 0, len(lits)
	for lo < hi {
		mid := (lo + hi) / 2
		if lits[mid].Start < location {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(lits) {
		return 0, false, false
	}
	if lits[lo].Start == location {
		return lo, false, true
	}
	if s.text[location] != '-' {
		return 0, false, false
	}
	for i := location + 1; i < lits[lo].Start; i++ {
		if c := s.text[i]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return 0, false, false
		}
	}
	return lo, true, true
}

// ownStatement reports statements that the router executes itself instead of planning them.
func ownStatement(st *analyze.Statement) bool {
	switch st.Class {
	case analyze.Show:
		name := strings.ToLower(st.Tree.GetVariableShowStmt().GetName())
		return strings.HasPrefix(name, "shoal.") && name != readPreference && name != maxStaleness && name != maxExchange
	case analyze.Begin, analyze.Commit, analyze.Rollback, analyze.Savepoint, analyze.Release, analyze.RollbackTo,
		analyze.PrepareTransaction, analyze.FinishPrepared, analyze.Set, analyze.Discard,
		analyze.Prepare, analyze.Execute, analyze.Deallocate, analyze.Fetch, analyze.CloseCursor, analyze.SetConstraints:
		return true
	}
	return false
}
