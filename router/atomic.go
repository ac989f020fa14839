package router

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/twopc"
)

// Atomic reads: with shoal.read_consistency = 'atomic' a read over several nodes sees of every transaction over several
// nodes all or nothing. Each part of such a transaction records its gid; the reader takes a snapshot on each
// node, compares which gids they see, and takes those again that lack one. See twopc.Lagging.

// consistencies are the values of shoal.read_consistency.
const (
	consistencyNode   = "node"   // each node's rows are of one snapshot: the default
	consistencyAtomic = "atomic" // the snapshots agree about transactions over several nodes
)

const (
	// alignTimeout bounds how long snapshots are taken again. Records are kept for longer.
	alignTimeout = 10 * time.Second
	// alignPause is how long a commit that is under way gets before the next look.
	alignPause = 2 * time.Millisecond

	repeatable = "BEGIN ISOLATION LEVEL REPEATABLE READ"
)

// readsAtomically reports what the transaction, the session or its role has chosen.
func (s *session) readsAtomically() bool {
	if s.txn.consistency != "" {
		return s.txn.consistency == consistencyAtomic
	}
	if v, set := s.settings.values[readConsistency]; set {
		return v == consistencyAtomic
	}
	return s.roleConsistency == consistencyAtomic
}

// setLocalConsistency is SET LOCAL shoal.read_consistency: it must come before the snapshots, as SET TRANSACTION must.
func (s *session) setLocalConsistency(st *plannedStatement, value string) error {
	if s.txn.mode != modeExplicit {
		return pgwire.Errorf("25P01", "SET LOCAL %s can only be used in transaction blocks", readConsistency)
	}
	if s.begun() {
		return pgwire.Errorf("25001", "SET LOCAL %s must be called before any query", readConsistency)
	}
	s.txn.consistency = value
	s.txn.replay = append(s.txn.replay, st.text)
	s.complete("SET")
	return nil
}

// begun reports whether the transaction has reached a node.
func (s *session) begun() bool {
	return slices.ContainsFunc(s.txn.parts, func(p *participant) bool { return p.began || p.inBatch })
}

// holdsSnapshot reports a transaction of the client in which all statements read one snapshot.
func (s *session) holdsSnapshot() bool {
	level := s.settings.values["default_transaction_isolation"]
	for _, text := range append([]string{s.txn.begin}, s.txn.replay...) {
		text = strings.ToUpper(strings.Join(strings.Fields(text), " "))
		if _, after, found := strings.Cut(text, "ISOLATION LEVEL "); found {
			level = after
		}
	}
	level = strings.ToUpper(level)
	return strings.HasPrefix(level, "REPEATABLE READ") || strings.HasPrefix(level, "SERIALIZABLE")
}

// alignsFirst reports a transaction whose first statement takes the snapshots on all nodes, so that the whole of it
// reads one state.
func (s *session) alignsFirst() bool {
	return s.txn.mode == modeExplicit && !s.txn.aligned && s.readsAtomically() && s.holdsSnapshot() && !s.begun()
}

// atomically runs a read over several nodes on snapshots that agree.
func (s *session) atomically(ctx context.Context, run *spreadRun, work func() error) error {
	if s.txn.aligned {
		return work()
	}
	if s.begun() || s.txn.mode == modeExplicit && !s.holdsSnapshot() {
		return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "an atomic read over several nodes cannot begin within a transaction that has taken its snapshots already").
			WithHint("Use BEGIN ISOLATION LEVEL REPEATABLE READ after SET %s, or run the query outside a transaction.", readConsistency)
	}
	nodes, err := s.readNodes(run)
	if err != nil || len(nodes) < 2 {
		return errors.Join(err, skipUnless(err == nil, work))
	}
	alone := s.txn.mode == modeIdle
	if alone {
		s.open(modeBlock, repeatable)
	} else if s.txn.mode == modeBlock {
		s.txn.begin = repeatable
	}
	err = s.align(ctx, nodes)
	if err == nil {
		err = work()
	}
	if err == nil && alone {
		return s.commit(ctx)
	}
	if err != nil && alone && s.txn.mode == modeBlock {
		_ = s.rollback(ctx)
	}
	return err
}

func skipUnless(ok bool, work func() error) error {
	if !ok {
		return nil
	}
	return work()
}

// readNodes are the nodes that a query reads from, the one of its last step included.
func (s *session) readNodes(run *spreadRun) ([]string, error) {
	var nodes []string
	for i := range run.e.Fragments {
		some, err := s.nodesOf(run, i)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, some...)
	}
	if run.e.Final != "" {
		nodes = append(nodes, run.m.Home)
	}
	slices.Sort(nodes)
	return slices.Compact(nodes), nil
}

// aligned is one node in an alignment.
type aligned struct {
	part   *participant
	before string // a snapshot from before all that count
	latest string // the snapshot of the last round
	view   twopc.View
	fresh  []string // gids that committed since
}

// alignAll takes the snapshots of a transaction on all nodes.
func (s *session) alignAll(ctx context.Context) error {
	s.task.Detach()
	var nodes []string
	for _, n := range s.router.view.Load().m.Nodes {
		if n.State != keyspace.NodeJoining {
			nodes = append(nodes, n.Name)
		}
	}
	return s.align(ctx, nodes)
}

// align begins on the nodes with snapshots that agree. Nothing else has been done in their transactions yet, so beginning
// again loses nothing.
func (s *session) align(ctx context.Context, nodes []string) error {
	s.txn.aligned, s.replica = true, false
	ctx, cancel := context.WithTimeout(ctx, alignTimeout)
	defer cancel()
	list := make([]*aligned, len(nodes))
	for i, node := range nodes {
		p, err := s.participant(ctx, node)
		if err != nil {
			return err
		}
		list[i] = &aligned{part: p, view: twopc.View{Node: node}}
	}
	if err := s.onEach(list, func(a *aligned) error { return s.baseline(ctx, a) }); err != nil {
		return err
	}
	return s.alignRounds(ctx, list, nodes)
}

// alignRounds takes snapshots until they agree.
func (s *session) alignRounds(ctx context.Context, list []*aligned, nodes []string) error {
	// A single snapshot that is taken again is later than the others, and sees what they do not see yet; all at once are more
	// likely to agree while many transactions commit. The single ones tell which names are void.
	lagging, void := nodes, map[string]bool{}
	var hold *holding
	defer func() { hold.release() }()
	for round := 1; ; round++ {
		switch {
		case hold != nil && time.Now().After(hold.until):
			hold.release()
			hold = nil
		case hold == nil && round%holdEvery == 0:
			hold = s.holdDecisions(ctx)
		}
		all := round%2 == 1
		err := s.onEach(list, func(a *aligned) error {
			if !all && !slices.Contains(lagging, a.view.Node) {
				return nil
			}
			if all {
				a.before = a.latest // from before this round, on every node
			}
			a.view.Round = round
			return s.takeSnapshot(ctx, a)
		})
		if err == nil {
			err = s.lookUp(ctx, list, void)
		}
		if err != nil {
			return alignError(ctx, err)
		}
		views := make([]twopc.View, len(list))
		for i, a := range list {
			views[i] = a.view
		}
		var wait bool
		var names []string
		if lagging, wait, names = twopc.Lagging(views); len(lagging) == 0 {
			return nil
		}
		for _, gid := range names {
			void[gid] = true
		}
		if wait {
			pauseFor(ctx, alignPause)
		}
		if ctx.Err() != nil {
			return alignError(ctx, ctx.Err())
		}
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func alignError(ctx context.Context, err error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return pgwire.Errorf("40001", "the snapshots of the nodes did not agree within %v", alignTimeout).
		WithHint("A transaction over several nodes is still being committed; see SHOW shoal.transactions. Run the query again.")
}

func (s *session) onEach(list []*aligned, work func(*aligned) error) error {
	var g errgroup.Group
	var mu sync.Mutex
	var first error
	for _, a := range list {
		g.Go(func() error {
			if err := work(a); err != nil {
				mu.Lock()
				defer mu.Unlock()
				if first == nil {
					first = onNode(a.view.Node, err)
				}
			}
			return nil
		})
	}
	_ = g.Wait()
	return first
}

// baseline notes where the node stands before any snapshot is taken that counts.
func (s *session) baseline(ctx context.Context, a *aligned) error {
	if err := s.flushPreamble(a.part); err != nil {
		return err
	}
	rows, err := a.part.conn.Query(ctx, "SELECT pg_catalog.pg_current_snapshot(), pg_catalog.current_setting('transaction_isolation')")
	if err != nil {
		return err
	}
	if level := string(rows[0][1]); level != "repeatable read" && level != "serializable" {
		return pgwire.Errorf(pgwire.CodeInternal, "an atomic read began with isolation level %s", level)
	}
	a.latest = string(rows[0][0])
	return nil
}

// takeSnapshot begins again. What is prepared is read before, what has committed since the baseline in the new snapshot:
// together these are all transactions that this snapshot may lack, or have before others.
func (s *session) takeSnapshot(ctx context.Context, a *aligned) error {
	prefix := plan.QuoteLiteral(twopc.Prefix(s.router.view.Load().m.Cluster))
	before := plan.QuoteLiteral(a.before) + "::pg_catalog.pg_snapshot"
	sql := []string{
		"SELECT 'p', gid FROM pg_catalog.pg_prepared_xacts WHERE database = pg_catalog.current_database() AND pg_catalog.starts_with(gid, " + prefix + ")",
		"ROLLBACK", s.txn.begin,
	}
	sql = append(sql, s.txn.replay...)
	sql = append(sql, "SELECT 's', gid FROM pg_shoal.seen WHERE xid OPERATOR(pg_catalog.>=) pg_catalog.pg_snapshot_xmax("+before+")"+
		" OR xid OPERATOR(pg_catalog.=) ANY (ARRAY(SELECT pg_catalog.pg_snapshot_xip("+before+")))",
		"SELECT 'x', pg_catalog.pg_current_snapshot()")
	rows, err := a.part.conn.Query(ctx, strings.Join(sql, "; "))
	if err != nil {
		return err
	}
	a.view.Prepared, a.fresh = map[string]bool{}, nil
	for _, r := range rows {
		switch {
		case len(r) != 2:
		case string(r[0]) == "p":
			a.view.Prepared[string(r[1])] = true
		case string(r[0]) == "x":
			a.latest = string(r[1])
		default:
			a.fresh = append(a.fresh, string(r[1]))
		}
	}
	return nil
}

// lookUp finds out which of all these transactions each snapshot sees.
func (s *session) lookUp(ctx context.Context, list []*aligned, void map[string]bool) error {
	wanted := map[string]bool{}
	for _, a := range list {
		for gid := range a.view.Prepared {
			wanted[gid] = true
		}
		for _, gid := range a.fresh {
			wanted[gid] = true
		}
		a.view.Seen = map[string][]string{}
	}
	gids := make([]string, 0, len(wanted))
	for gid := range wanted {
		if !void[gid] {
			gids = append(gids, plan.QuoteLiteral(gid))
		}
	}
	if len(gids) == 0 {
		return nil
	}
	sql := "SELECT s.gid, n FROM pg_shoal.seen s, pg_catalog.unnest(s.nodes) n WHERE s.gid OPERATOR(pg_catalog.=) ANY (ARRAY[" + strings.Join(gids, ", ") + "])"
	return s.onEach(list, func(a *aligned) error {
		rows, err := a.part.conn.Query(ctx, sql)
		for _, r := range rows {
			a.view.Seen[string(r[0])] = append(a.view.Seen[string(r[0])], string(r[1]))
		}
		return err
	})
}
