package control

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/twopc"
)

// leavingSettler has prepared transactions and says what resolving them does.
type leavingSettler struct {
	Settler
	prepared []twopc.Prepared
	away     map[string]error
	outcome  string
	resolved []string
}

func (s *leavingSettler) List(context.Context, *keyspace.Map) ([]twopc.Prepared, map[string]error) {
	return s.prepared, s.away
}

func (s *leavingSettler) Resolve(_ context.Context, _ *keyspace.Map, gid, _ string) (twopc.Transaction, error) {
	s.resolved = append(s.resolved, gid)
	if s.outcome == "" {
		return twopc.Transaction{}, twopc.ErrNotPrepared
	}
	return twopc.Transaction{GID: gid, Outcome: s.outcome, Reason: "n9 is busy"}, nil
}

// TestSettlesBeforeANodeLeaves wants everything that the node decides or takes part in to be settled, and nothing else.
func TestSettlesBeforeANodeLeaves(t *testing.T) {
	prepared := []twopc.Prepared{
		{GID: "decides", Decider: "n2", Nodes: []string{"n1"}},
		{GID: "takes part", Decider: "n1", Nodes: []string{"n2", "n3"}},
		{GID: "elsewhere", Decider: "n1", Nodes: []string{"n3"}},
	}
	for _, test := range []struct {
		outcome  string
		away     map[string]error
		resolved string
		message  string
	}{
		{outcome: twopc.Committed, resolved: "decides, takes part"},
		{outcome: "", resolved: "decides, takes part"}, // they ended by themselves
		{outcome: twopc.Left, resolved: "decides", message: "cannot be settled: n9 is busy"},
		{away: map[string]error{"n3": errors.New("gone")}, message: `node "n3" does not answer (gone)`},
	} {
		s := &leavingSettler{prepared: prepared, away: test.away, outcome: test.outcome}
		c := &Controller{cfg: Config{Settler: s}}
		err := c.settleNode(t.Context(), nil, "n2")
		if (err != nil) != (test.message != "") || err != nil && !strings.Contains(err.Error(), test.message) {
			t.Errorf("outcome %q: %v, want %q", test.outcome, err, test.message)
		}
		if got := strings.Join(s.resolved, ", "); got != test.resolved {
			t.Errorf("outcome %q: resolved %q, want %q", test.outcome, got, test.resolved)
		}
	}
}
