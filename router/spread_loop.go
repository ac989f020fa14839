package router

import (
	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/plan"
)

// staysOnLoop reports a statement whose nodes are waited for as the one node of a Route is: the loop goes on with the session when
// they answer, and no goroutine is woken for it. Whatever else it may wait for (a connection, a description, a cancel request)
// detaches on its own.
func (s *session) staysOnLoop(st *plannedStatement) bool {
	return st != nil && st.plan != nil && st.plan.Kind == plan.Spread && st.class == analyze.Query && st.plan.Exchange.OneRead() && !s.readsAtomically()
}

// parked does work whose waits for nodes, and for the client meanwhile, are a task's. Only the session's own code may use the nodes'
// connections in it: another goroutine that waited there would stop in the task's place.
func (s *session) parked(r *spreadRun, work func() error) error {
	if s.capture != nil || !s.staysOnLoop(r.st) {
		return work()
	}
	r.parks = true
	defer func() {
		r.parks = false
		for _, p := range s.txn.parts {
			s.park(p, nil)
		}
	}()
	return work()
}

// parkAsked lets the session wait for a node as its task where that is how it waits.
func (s *session) parkAsked(r *spreadRun, p *participant) {
	if r.parks {
		s.park(p, s.task)
	}
}
