package twopc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
)

// States of a Prepared.
const (
	StatePreparing = "preparing" // a node still runs PREPARE TRANSACTION
	StateUndecided = "undecided" // the decider has no decision: it is coming, or never will
	StateCommit    = "commit"    // decided; nodes are about to be told
	StateAbort     = "abort"
	StateUnknown   = "unknown" // the decider does not answer
)

// Prepared is a transaction of the cluster that is prepared on at least one node.
type Prepared struct {
	GID      string
	Database string
	Decider  string
	Nodes    []string
	Age      time.Duration // since the first of them prepared
	State    string
}

// List returns what is prepared now, oldest first, and the nodes that could not be asked. Transactions that are just being
// committed are among them.
func List(ctx context.Context, nodes Nodes, cluster string, names []string) ([]Prepared, map[string]error) {
	l := list(ctx, nodes, cluster, names)
	young := l.preparing
	l.preparing = nil
	found := l.settleable(0)
	out := make([]Prepared, len(found))
	var group sync.WaitGroup
	for i, f := range found {
		out[i] = Prepared{GID: f.gid, Database: f.database, Decider: f.decider, Nodes: f.nodes, Age: f.age, State: StatePreparing}
		if young[f.gid] {
			continue
		}
		group.Go(func() { out[i].State = decision(ctx, nodes, names, f) })
	}
	group.Wait()
	return out, l.away
}

// decision asks the decider.
func decision(ctx context.Context, nodes Nodes, names []string, f *found) string {
	if !slices.Contains(names, f.decider) {
		return StateUnknown
	}
	rows, err := nodes.Query(ctx, f.decider, f.database, recoveryStatement(ask, f.gid))
	switch {
	case err != nil:
		return StateUnknown
	case len(rows) == 0:
		return StateUndecided
	case rows[0][0] == StateCommit:
		return StateCommit
	}
	return StateAbort
}

// ErrNotPrepared is a gid that no node has prepared.
var ErrNotPrepared = errors.New("no node has this transaction prepared")

// List is List over the nodes of the map.
func (s *Settler) List(ctx context.Context, m *keyspace.Map) ([]Prepared, map[string]error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.nodes.use(ctx, m)
	defer s.nodes.drop(ctx, func(l lane) bool { return l.database != "" })
	return List(ctx, s.nodes, m.Cluster, names)
}

// Resolve settles one transaction now, whatever its age. The outcome is the decider's to say: one that wants another outcome
// gets a Conflict.
func (s *Settler) Resolve(ctx context.Context, m *keyspace.Map, gid, want string) (Transaction, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.nodes.use(ctx, m)
	defer s.nodes.drop(ctx, func(l lane) bool { return l.database != "" })
	l := list(ctx, s.nodes, m.Cluster, names)
	f := l.prepared[gid]
	if f == nil {
		return Transaction{}, errors.Join(ErrNotPrepared, nodeErrors(l.away))
	}
	slices.Sort(f.nodes)
	if want != "" {
		state := decision(ctx, s.nodes, names, f)
		if want == Committed && state != StateCommit || want == RolledBack && state != StateAbort && state != StateUndecided {
			return Transaction{}, &Conflict{GID: gid, Decider: f.decider, State: state}
		}
	}
	one := settlement{nodes: s.nodes, decider: f.decider, database: f.database, away: l.away, failed: map[string]error{}, hook: s.cfg.Hook}
	if !slices.Contains(names, f.decider) {
		one.away[f.decider] = errDeciderGone
	}
	return one.settle(ctx, []*found{f})[0], nil
}

// Conflict is a wish that the decider does not allow.
type Conflict struct{ GID, Decider, State string }

func (c *Conflict) Error() string {
	switch c.State {
	case StateUnknown:
		return fmt.Sprintf("node %s decides about transaction %s and does not answer", c.Decider, c.GID)
	case StateUndecided:
		return fmt.Sprintf("transaction %s was never decided, so it can only be rolled back", c.GID)
	}
	return fmt.Sprintf("node %s has decided transaction %s: %s", c.Decider, c.GID, strings.ToLower(c.State))
}
