package router

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/twopc"
)

// serviceNodes asks nodes with the router's own role.
type serviceNodes struct{ r *Router }

// Query runs one statement in a database of a node.
func (n serviceNodes) Query(ctx context.Context, node, database, sql string) ([][]string, error) {
	if database == "" {
		database = serviceDatabase
	}
	conn, err := n.r.service(ctx, node, database)
	if err != nil {
		return nil, err
	}
	defer n.r.pool.Release(conn)
	rows, err := conn.Query(ctx, sql)
	out := make([][]string, len(rows))
	for i, row := range rows {
		for _, v := range row {
			out[i] = append(out[i], string(v))
		}
	}
	return out, err
}

// transactionRows shows the transactions over several nodes: this router's open ones, and what is prepared on nodes, whoever
// coordinates it.
func (s *session) transactionRows(ctx context.Context, m *keyspace.Map) [][][]byte {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var names []string
	for _, n := range m.Nodes {
		names = append(names, n.Name)
	}
	prepared, _ := twopc.List(ctx, serviceNodes{s.router}, m.Cluster, names)
	var rows [][][]byte
	own := map[string]bool{}
	for _, other := range s.router.clients.all() {
		if r, gid := other.transactionRow(m.Cluster); r != nil {
			rows = append(rows, r)
			own[gid] = true
		}
	}
	slices.SortFunc(rows, func(a, b [][]byte) int { return strings.Compare(string(a[0]), string(b[0])) })
	for _, p := range prepared {
		if !own[p.GID] {
			rows = append(rows, row(p.GID, p.Age.Round(time.Millisecond).String(), strings.Join(p.Nodes, ", "), "prepared, "+p.State, p.Decider, ""))
		}
	}
	return rows
}

// transactionRow is the session's own, nil when it is on one node.
func (s *session) transactionRow(cluster string) (values [][]byte, gid string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running) < 2 || s.span.began.IsZero() {
		return nil, ""
	}
	var nodes []string
	for _, c := range s.running {
		nodes = append(nodes, c.Key.Node)
	}
	slices.Sort(nodes)
	id, state, decider := s.spanName(), "idle", ""
	switch {
	case s.span.gid != "":
		id, state = s.span.gid, "committing"
		decider, _ = twopc.ParseGID(s.span.gid, cluster)
	case s.since.Load() != 0:
		state = "active"
	}
	return row(id, time.Since(s.span.began).Round(time.Millisecond).String(), strings.Join(nodes, ", "), state, decider, s.router.cfg.Name), s.span.gid
}
