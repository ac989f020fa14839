package router

import (
	"context"

	"github.com/pgshoal/pgshoal/pgwire"
)

// prepareTransaction handles PREPARE TRANSACTION by a client. A transaction of the home node alone
// is the home node's business; one over several nodes would need a decider that only COMMIT has.
func (s *session) prepareTransaction(ctx context.Context, st *plannedStatement) error {
	home := s.router.view.Load().m.Home
	for _, p := range s.txn.parts {
		if p.began && p.node != home {
			return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "PREPARE TRANSACTION over several nodes is not supported").
				WithHint("Use COMMIT: pgshoal commits on several nodes atomically by itself.")
		}
	}
	if s.txn.mode != modeExplicit {
		return s.toHome(ctx, st, "")
	}
	p, err := s.participant(ctx, home)
	if err == nil {
		err = s.flushPreamble(p)
	}
	if err != nil {
		return err
	}
	p.conn.SendQuery(st.text)
	answer, err := s.collect(ctx, p.conn)
	if err != nil {
		s.restore()
	}
	s.closeTransaction(ctx) // it has left the session, prepared or rolled back
	s.client.Append(answer)
	return err
}
