package twopc

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// testInquire lists and resolves what a crash left, as people ask for it.
func testInquire(t *testing.T, c *testNodes) {
	s, err := NewSettler(SettlerConfig{Grace: time.Hour}, c.open)
	c.must(err)
	defer s.Close(context.Background())
	decided := c.leaveInDoubt(t, "app", "after commit n1", "n1", "n2", "n3")
	undecided := c.leaveInDoubt(t, "app", "before commit n1", "n1", "n2", "n3")
	// Its decider waits for nobody any more: the coordinator is dead.
	undecided.kill("n1")
	foreign := NewID("other", "n1").GID
	c.must(pgxExec(t.Context(), c.servers["n2"].DSN("", "app"), "BEGIN; INSERT INTO ledger VALUES ('foreign'); PREPARE TRANSACTION "+quote(foreign)))
	defer c.ask("n2", "app", "ROLLBACK PREPARED "+quote(foreign))

	listed, away := s.List(t.Context(), c.m)
	states := map[string]string{}
	for _, p := range listed {
		states[p.GID] = p.State
		if p.Decider != "n1" || p.Database != "app" || !slices.Equal(p.Nodes, []string{"n2", "n3"}) {
			t.Errorf("listed: %+v", p)
		}
	}
	if len(away) > 0 || len(states) != 2 || states[decided.gid] != StateCommit || states[undecided.gid] != StateUndecided {
		t.Errorf("listed %v, away %v", states, away)
	}
	for gid, want := range map[string]string{decided.gid: RolledBack, undecided.gid: Committed} {
		var conflict *Conflict
		if _, err := s.Resolve(t.Context(), c.m, gid, want); !errors.As(err, &conflict) {
			t.Errorf("%s against the decider: %v", want, err)
		}
	}
	for _, gid := range []string{foreign, NewID(testCluster, "n1").GID} {
		if _, err := s.Resolve(t.Context(), c.m, gid, ""); !errors.Is(err, ErrNotPrepared) {
			t.Errorf("resolved %s: %v", gid, err)
		}
	}
	for _, x := range []struct {
		tx            *transaction
		want, outcome string
		state         string
	}{{decided, "", Committed, "ccc"}, {undecided, RolledBack, RolledBack, "---"}} {
		done, err := s.Resolve(t.Context(), c.m, x.tx.gid, x.want)
		if err != nil || done.Outcome != x.outcome {
			t.Errorf("resolved: %+v, %v", done, err)
		}
		x.tx.wantState(x.state)
	}
}
