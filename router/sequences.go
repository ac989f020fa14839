package router

import (
	"sync"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// sequenceUsers are the applications, by role and database, that have asked for currval or lastval
// outside a transaction. Their sessions keep the home node's connection once they have written.
type sequenceUsers struct{ known sync.Map }

type sequenceUser struct{ user, database string }

// lastHome is the connection on which the session last worked on the home node, and how many
// sessions it had served by then.
type lastHome struct {
	conn any
	uses uint64
}

// needsSequence reports a statement that only the server session of an earlier one can answer.
func (s *session) needsSequence(p *plan.Plan) bool {
	return p != nil && p.Sequence && s.txn.mode == modeIdle && s.hold == ""
}

// checkSequence makes sure that currval and lastval ask the server session that gave the value, and
// that nobody else has used it since: another's value would be a wrong answer.
func (s *session) checkSequence(p *participant) error {
	if s.last.conn == p.conn && s.last.uses+1 == p.conn.Uses {
		return nil
	}
	s.router.sequenceUsers.known.Store(sequenceUser{s.user, s.database}, true)
	s.giveBackPart(p)
	return pgwire.Errorf("55000", "the value of the sequence is known only to the server session that gave it").
		WithHint("Use INSERT ... RETURNING, or ask in the same transaction. From now on sessions of this role keep theirs.")
}

// keepsSequence holds the connection of a session whose application uses currval or lastval.
func (s *session) keepsSequence(p *participant) {
	if !p.wrote || s.hold != "" || p.node != s.router.view.Load().m.Home {
		return
	}
	if _, known := s.router.sequenceUsers.known.Load(sequenceUser{s.user, s.database}); known {
		s.keep("sequence values")
	}
}
