package router

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/twopc"
)

// Deadlocks over several nodes are found by routers, without the controller or the topology store. A router
// whose transactions over several nodes have waited for a while notes on the nodes which backends work for which of them,
// and asks all nodes who waits for whom. Notes of all routers are in the same place, so each of them sees the whole
// graph, and each ends only its own sessions.

const (
	// deadlockEvery is how often a router looks, if anything of it waits.
	deadlockEvery = 400 * time.Millisecond
	// deadlockPatience is how long a statement runs before it is worth a look.
	deadlockPatience = 400 * time.Millisecond
	// lookTimeout bounds a look: a node that does not answer must not hide what others know for long.
	lookTimeout = 2 * time.Second
)

// span is a session's transaction that has reached a second node. Guarded by the session's mutex.
type span struct {
	number uint64    // counts the session's spans
	began  time.Time // zero between spans
	gid    string    // once it commits
}

func (s *session) beginSpan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.span.began.IsZero() {
		s.span = span{number: s.span.number + 1, began: time.Now()}
	}
}

func (s *session) endSpan() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.span = span{number: s.span.number}
}

// spanning is a span that has waited long enough to be looked at.
type spanning struct {
	session     *session
	since       int64 // when the statement that waits began
	transaction string
	began       int64
	gid         string
	pids        map[string]uint32 // by node
}

// waiting returns the session's span if its statement runs for long already.
func (s *session) waiting(age time.Duration) (spanning, bool) {
	since := s.since.Load()
	if since == 0 || age-time.Duration(since) < deadlockPatience {
		return spanning{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running) < 2 || s.span.began.IsZero() {
		return spanning{}, false
	}
	w := spanning{session: s, since: since, transaction: s.spanName(), began: s.span.began.UnixNano(), gid: s.span.gid, pids: map[string]uint32{}}
	for _, c := range s.running {
		if !c.Key.Replica {
			w.pids[c.Key.Node] = c.PID
		}
	}
	return w, true
}

// spanName is unique in the cluster: the process number has the router's number in it.
func (s *session) spanName() string {
	return strconv.FormatUint(uint64(s.pid), 10) + "/" + strconv.FormatUint(s.span.number, 10)
}

// watchDeadlocks looks until the context ends.
func (r *Router) watchDeadlocks(ctx context.Context) {
	ticker := time.NewTicker(deadlockEvery)
	defer ticker.Stop()
	var before map[string]*twopc.Deadlock
	noted := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var list []spanning
		age := r.age()
		for _, s := range r.clients.all() {
			if w, waits := s.waiting(age); waits {
				list = append(list, w)
			}
		}
		if len(list) == 0 && !noted {
			continue
		}
		// With nothing to note any more the last notes are taken back.
		noted = len(list) > 0
		before = r.breakDeadlocks(ctx, list, before)
	}
}

// breakDeadlocks looks once, cancels the victims among this router's sessions that the look before has seen too,
// and returns the others.
func (r *Router) breakDeadlocks(ctx context.Context, list []spanning, before map[string]*twopc.Deadlock) map[string]*twopc.Deadlock {
	graph := r.lookAtLocks(ctx, list)
	seen := map[string]*twopc.Deadlock{}
	for _, w := range list {
		found := graph.Victim(w.transaction)
		switch {
		case found == nil:
		case found.Same(before[w.transaction]):
			r.log.Info("deadlock over several nodes", "victim", w.transaction, "user", w.session.user, "detail", found.Detail(w.session.user))
			w.session.cancelVictim(ctx, w, found)
		default:
			seen[w.transaction] = found
		}
	}
	return seen
}

// lookAtLocks leaves the notes on all nodes and joins what they answer. A node that does not answer is left
// out: rings through it are not seen.
func (r *Router) lookAtLocks(ctx context.Context, list []spanning) *twopc.LockGraph {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var mu sync.Mutex
	var spans []twopc.Span
	var waits []twopc.Wait
	var group sync.WaitGroup
	for _, n := range r.view.Load().m.Nodes {
		if n.State == keyspace.NodeJoining {
			continue
		}
		group.Go(func() {
			rows, err := r.locksOn(ctx, n.Name, list)
			if err != nil {
				r.log.Debug("cannot see the locks of a node", "node", n.Name, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, row := range rows {
				if string(row[0]) == "span" {
					spans = append(spans, readSpan(n.Name, row))
				} else {
					waits = append(waits, readWait(n.Name, row))
				}
			}
		})
	}
	group.Wait()
	return twopc.NewLockGraph(spans, waits)
}

func (r *Router) locksOn(ctx context.Context, node string, list []spanning) ([][][]byte, error) {
	notes := [][]any{}
	for _, w := range list {
		if pid, there := w.pids[node]; there {
			notes = append(notes, []any{pid, w.transaction, w.began, w.gid})
		}
	}
	data, err := json.Marshal(notes)
	if err != nil {
		return nil, err
	}
	conn, err := r.service(ctx, node, serviceDatabase)
	if err != nil {
		return nil, err
	}
	defer r.pool.Release(conn)
	return conn.Query(ctx, "SELECT kind, pid, transaction, began, gid, since, blockers, lock, role, statement FROM pg_shoal.lock_waits("+
		plan.QuoteLiteral(r.cfg.Name)+", "+plan.QuoteLiteral(string(data))+")")
}

func readSpan(node string, row [][]byte) twopc.Span {
	began, _ := strconv.ParseInt(string(row[3]), 10, 64)
	return twopc.Span{Node: node, PID: atoi(row[1]), Transaction: string(row[2]), Began: began, GID: string(row[4])}
}

func readWait(node string, row [][]byte) twopc.Wait {
	w := twopc.Wait{
		Node: node, PID: atoi(row[1]), Transaction: string(row[2]), Prepared: string(row[4]), Since: string(row[5]),
		Lock: string(row[7]), Role: string(row[8]), Statement: strings.Join(strings.Fields(string(row[9])), " "),
	}
	for pid := range strings.SplitSeq(string(row[6]), ",") {
		if n := atoi([]byte(pid)); n != 0 {
			w.Blockers = append(w.Blockers, n)
		}
	}
	slices.Sort(w.Blockers)
	return w
}

// cancelVictim ends the statement of a span that is still waiting; the client gets PostgreSQL's error for a deadlock.
func (s *session) cancelVictim(ctx context.Context, w spanning, d *twopc.Deadlock) {
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spanName() != w.transaction || s.since.Load() != w.since {
		return
	}
	s.victim.Store(pgwire.Errorf("40P01", "deadlock detected").WithDetail("%s", d.Detail(s.user)).
		WithHint("The transactions waited for each other on several nodes; this one was ended. Run it again."))
	for _, c := range s.running {
		if err := c.Cancel(ctx); err != nil {
			s.log.Debug("cancel failed", "error", err)
		}
	}
}

// giveWay gives up the locks that the victim of a deadlock holds on other nodes, as PostgreSQL does when a transaction
// fails: all of them, or those since the last savepoint.
func (s *session) giveWay() {
	s.victim.Store(nil)
	if !s.txn.failed {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelTimeout)
	defer cancel()
	sql := "ROLLBACK"
	if n := len(s.txn.savepoints); n > 0 {
		sql = "ROLLBACK TO SAVEPOINT " + plan.QuoteIdent(s.txn.savepoints[n-1].name)
	}
	for _, p := range s.txn.parts {
		if p.began && !p.conn.Broken && !p.resync && s.flushPreamble(p) == nil {
			_ = p.conn.Exec(ctx, sql) // a connection that breaks gives up its locks as well
		}
	}
}
