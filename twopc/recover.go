package twopc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Outcomes of a Transaction in a Report.
const (
	Committed  = "committed"
	RolledBack = "rolled back"
	Left       = "left"
)

// Transaction is a distributed transaction that recovery found prepared.
type Transaction struct {
	GID, Database, Decider string
	Nodes                  []string // that had it prepared
	Age                    time.Duration
	Outcome                string // Committed, RolledBack or Left
	Reason                 string // why it was left
}

// Report is what recovery found that was older than the grace, oldest first within each decider.
type Report struct {
	Transactions []Transaction
	// Unreachable are the nodes that could not be listed; what they have prepared is not known.
	Unreachable map[string]error
	// Lost are parts of committed transactions that a failover has lost. Each is reported once.
	Lost []LostPart
}

// Left returns how many transactions are still in doubt, and the age of the oldest.
func (r Report) Left() (n int, oldest time.Duration) {
	for _, t := range r.Transactions {
		if t.Outcome == Left {
			n, oldest = n+1, max(oldest, t.Age)
		}
	}
	return n, oldest
}

// Settled returns how many transactions have come to their end.
func (r Report) Settled() int {
	n := 0
	for _, t := range r.Transactions {
		if t.Outcome != Left {
			n++
		}
	}
	return n
}

// lockTimeout is how long recovery waits for a decision that is written and not committed. It is
// long for a commit, and short for the others in the queue.
const lockTimeout = time.Second

// Recover settles the transactions of the cluster that are prepared on the given nodes for longer
// than the grace. It may run at any time, any number of times at once, and while coordinators are
// at work: the grace only spares transactions that would come to their end by themselves.
//
// What cannot be settled now is left and reported; the error says which nodes are the reason.
func Recover(ctx context.Context, nodes Nodes, cluster string, names []string, grace time.Duration) (Report, error) {
	return recoverListed(ctx, nodes, list(ctx, nodes, cluster, names), names, grace, nil)
}

func recoverListed(ctx context.Context, nodes Nodes, l *listing, names []string, grace time.Duration, hook func(string)) (Report, error) {
	type place struct{ decider, database string }
	groups := make(map[place][]*found)
	for _, f := range l.settleable(grace) {
		at := place{f.decider, f.database}
		groups[at] = append(groups[at], f)
	}
	var mu sync.Mutex
	report := Report{Unreachable: l.away}
	failed := maps.Clone(l.away)
	var group sync.WaitGroup
	for at, fs := range groups {
		group.Go(func() {
			s := &settlement{nodes: nodes, decider: at.decider, database: at.database, away: maps.Clone(l.away), failed: make(map[string]error), hook: hook}
			if !slices.Contains(names, at.decider) {
				s.away[at.decider] = errDeciderGone
			}
			done := s.settle(ctx, fs)
			mu.Lock()
			defer mu.Unlock()
			report.Transactions = append(report.Transactions, done...)
			maps.Copy(failed, s.failed)
		})
	}
	group.Wait()
	return report, nodeErrors(failed)
}

var errDeciderGone = errors.New("the decider is not in the cluster any more; its decisions went with it")

// nodeErrors makes one error whose text is the same when the errors are.
func nodeErrors(failed map[string]error) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		errs = append(errs, fmt.Errorf("node %s: %w", name, failed[name]))
	}
	return errors.Join(errs...)
}

// settlement settles what one decider has to say about one database.
type settlement struct {
	nodes             Nodes
	decider, database string
	away              map[string]error // nodes that are not asked again in this round
	failed            map[string]error // the last error of each node
	hook              func(point string)
}

func (s *settlement) settle(ctx context.Context, fs []*found) []Transaction {
	done := make([]Transaction, 0, len(fs))
	for _, f := range fs {
		t := Transaction{GID: f.gid, Database: f.database, Decider: f.decider, Nodes: f.nodes, Age: f.age}
		switch state, reason := s.run(ctx, f); state {
		case settledCommit:
			t.Outcome = Committed
		case settledRollback:
			t.Outcome = RolledBack
		default:
			t.Outcome, t.Reason = Left, reason
		}
		done = append(done, t)
	}
	return done
}

// run drives one recovery to its end.
func (s *settlement) run(ctx context.Context, f *found) (recoveryState, string) {
	all := append([]string{f.decider}, f.nodes...)
	prepared := make([]int, len(f.nodes))
	for i := range prepared {
		prepared[i] = i + 1
	}
	r, actions := newRecovery(len(all), prepared)
	reason := ""
	for len(actions) > 0 {
		var next []action
		for _, a := range actions {
			got, err := s.perform(ctx, f.gid, all[a.part], a.step)
			if err != nil {
				reason = fmt.Sprintf("node %s: %v", all[a.part], err)
			}
			next = append(next, r.answer(a.part, got)...)
		}
		actions = next
	}
	if r.state != leftUnreachable {
		reason = r.state.String()
	}
	return r.state, reason
}

// perform does one action. An error comes with lost only.
func (s *settlement) perform(ctx context.Context, gid, node string, what step) (answer, error) {
	if err := s.away[node]; err != nil {
		s.failed[node] = err
		return lost, err
	}
	if s.hook != nil {
		s.hook("before " + what.String() + " " + node)
		defer func() { s.hook("after " + what.String() + " " + node) }()
	}
	rows, err := s.nodes.Query(ctx, node, s.database, recoveryStatement(what, gid))
	switch code := sqlState(err); {
	case err == nil:
		return read(what, rows), nil
	case what == recordAbort && code == codeLockNotGot:
		return held, nil
	case (what == commitPrepared || what == rollbackPrepared) && (code == codeUnknownGID || code == codeBusyGID):
		return no, nil
	case classify(err) == lost || node == s.decider:
		s.away[node] = err
	}
	s.failed[node] = err
	return lost, err
}

// read turns what a node said into an answer.
func read(what step, rows [][]string) answer {
	switch {
	case what == commitPrepared || what == rollbackPrepared:
		return yes
	case what == ask && len(rows) == 0:
		return saysNothing
	case what == ask && rows[0][0] == "commit":
		return saysCommit
	case what == ask:
		return saysAbort
	case len(rows) == 0:
		return no
	}
	return yes
}

func recoveryStatement(s step, gid string) string {
	switch s {
	case ask:
		return "SELECT outcome FROM pg_shoal.decisions WHERE gid = " + quote(gid)
	case recordAbort:
		// The settings hold for this statement; the insert waits for whoever has written the row.
		return fmt.Sprintf(`WITH settings AS MATERIALIZED (SELECT
set_config('lock_timeout', '%d', true), set_config('synchronous_commit', 'on', true))
INSERT INTO pg_shoal.decisions (gid, outcome, xid) SELECT %s, 'abort', NULL FROM settings
ON CONFLICT (gid) DO NOTHING RETURNING outcome`, lockTimeout.Milliseconds(), quote(gid))
	}
	return statement(s, ID{GID: gid}, "")
}
