package twopc

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Span says that a backend, or what was prepared under a gid, works for a transaction over several nodes.
type Span struct {
	Node        string
	PID         uint32
	Transaction string
	Began       int64 // the greater, the younger
	GID         string
}

// Wait is a backend that waits for a lock.
type Wait struct {
	Node        string
	PID         uint32
	Transaction string // that it works for; "" when it is none over several nodes
	Since       string // tells this wait from the backend's next one
	Blockers    []uint32
	Prepared    string // gid of the prepared transaction that holds the lock, if one does
	Lock        string
	Role        string
	Statement   string
}

// LockGraph is who waits for whom, over all nodes. A transaction over several nodes is one vertex, whatever
// backends it has; every other backend is a vertex of its own.
type LockGraph struct {
	began map[string]int64
	edges map[string][]lockEdge
}

// lockEdge is a wait for one of those that are in its way.
type lockEdge struct {
	wait *Wait
	to   string
}

// NewLockGraph joins what the nodes said.
func NewLockGraph(spans []Span, waits []Wait) *LockGraph {
	g := &LockGraph{began: map[string]int64{}, edges: map[string][]lockEdge{}}
	owner := map[string]string{}
	for _, s := range spans {
		g.began[s.Transaction] = s.Began
		owner[backend(s.Node, s.PID)] = s.Transaction
		if s.GID != "" {
			owner[preparedAs(s.GID)] = s.Transaction
		}
	}
	vertex := func(name string) string {
		if t, known := owner[name]; known {
			return t
		}
		return name
	}
	for i := range waits {
		w := &waits[i]
		from := cmp.Or(w.Transaction, backend(w.Node, w.PID))
		for _, pid := range w.Blockers {
			if pid != 0 { // 0 is a prepared transaction
				g.edges[from] = append(g.edges[from], lockEdge{w, vertex(backend(w.Node, pid))})
			}
		}
		if w.Prepared != "" {
			g.edges[from] = append(g.edges[from], lockEdge{w, vertex(preparedAs(w.Prepared))})
		}
	}
	return g
}

// Names of vertices that are no transactions over several nodes; those begin with a number.
func backend(node string, pid uint32) string { return fmt.Sprintf("process %d on node %s", pid, node) }
func preparedAs(gid string) string           { return "prepared transaction " + gid }

// Deadlock is a ring of waits that no single node can see.
type Deadlock struct {
	waits []lockEdge
}

// Victim returns the deadlock whose victim the transaction is, or nil. The victim is the youngest of the
// transactions in the ring, so whoever looks finds the same one.
//
// A ring on one node is the business of that node.
func (g *LockGraph) Victim(transaction string) *Deadlock {
	ring := g.ring(transaction)
	nodes := map[string]bool{}
	for _, e := range ring {
		nodes[e.wait.Node] = true
		began, spans := g.began[e.to]
		if spans && (began > g.began[transaction] || began == g.began[transaction] && e.to > transaction) {
			return nil
		}
	}
	if len(nodes) < 2 {
		return nil
	}
	return &Deadlock{ring}
}

// ring is a shortest way from a transaction back to itself, or nil.
func (g *LockGraph) ring(transaction string) []lockEdge {
	came := map[string][]lockEdge{} // the way to each vertex
	next := []string{transaction}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		for _, e := range g.edges[at] {
			way := append(slices.Clone(came[at]), e)
			if e.to == transaction {
				return way
			}
			if _, seen := came[e.to]; !seen {
				came[e.to] = way
				next = append(next, e.to)
			}
		}
	}
	return nil
}

// Same reports whether two looks saw the same waits for the same owners. Each of them then lasted from one look to
// the other, all at once, and who waits gives up no lock: the ring is real, although no look is of one moment.
func (d *Deadlock) Same(other *Deadlock) bool {
	return other != nil && slices.EqualFunc(d.waits, other.waits, func(a, b lockEdge) bool {
		return a.to == b.to && a.wait.Node == b.wait.Node && a.wait.PID == b.wait.PID &&
			a.wait.Transaction == b.wait.Transaction && a.wait.Since == b.wait.Since
	})
}

// Detail describes the ring as PostgreSQL does, with the nodes and the statements. The statements of other
// roles are not for this one to read.
func (d *Deadlock) Detail(role string) string {
	lines := make([]string, len(d.waits))
	for i, e := range d.waits {
		what := e.wait.Statement
		if e.wait.Role != role {
			what = "a statement of role " + e.wait.Role
		}
		waiter := process(cmp.Or(e.wait.Transaction, backend(e.wait.Node, e.wait.PID)))
		lines[i] = fmt.Sprintf("P%s waits for %s on node %s: %s; blocked by %s.", waiter[1:], e.wait.Lock, e.wait.Node, what, process(e.to))
	}
	return strings.Join(lines, "\n")
}

// process names a vertex: a transaction by the process number that its client knows.
func process(vertex string) string {
	if number, _, ok := strings.Cut(vertex, "/"); ok && vertex[0] >= '0' && vertex[0] <= '9' {
		return "process " + number
	}
	return vertex
}
