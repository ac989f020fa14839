package localcluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// servers asks all nodes side by side.
func (e *examiner) servers(ctx context.Context) {
	nodes := make([]NodeStatus, len(e.state.Nodes))
	var wg sync.WaitGroup
	for i, n := range e.state.Nodes {
		wg.Go(func() { nodes[i] = e.node(ctx, n) })
	}
	wg.Wait()
	e.status.Nodes = nodes
}

func (e *examiner) node(ctx context.Context, n Node) NodeStatus {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	primary := primaryOf(e.layout, n)
	status := NodeStatus{ServerStatus: e.server(n, primary, statePrimary), Replicas: []ServerStatus{}}
	for _, s := range n.Servers {
		if s.Name != primary.Name {
			status.Replicas = append(status.Replicas, e.server(n, s, stateReplica))
		}
	}
	// A node keeps its name when another of its servers is the primary.
	status.Name = n.Name
	if status.State == stateRunning {
		e.askPrimary(ctx, primary, &status)
	}
	return status
}

// server tells what files and processes tell.
func (e *examiner) server(n Node, s Server, role string) ServerStatus {
	dir := e.layout.dataDir(s)
	status := ServerStatus{
		Name: s.Name, Role: role, State: stateRunning, Address: fmt.Sprintf("127.0.0.1:%d", s.Port),
		DSN: serverDSN(s, e.password),
	}
	pm, ok := findPostmaster(dir)
	switch by := replacedBy(e.layout, n, s); {
	case by != "":
		status.State, status.Why = stateReplaced, by+" was promoted in its place; it must not run as a second primary"
	case !ok && leftPidFile(dir):
		status.State = stateDown
	case !ok:
		status.State, status.Why = stateStopped, "it was shut down; pg_ctl or the next pgshoal up starts it"
	case !pm.ready():
		status.State = stateStarting
	case role == stateReplica:
		status.State = "connecting" // until the primary says otherwise
	}
	if ok {
		status.PID = pm.PID
	}
	return status
}

const replicationQuery = `SELECT application_name, state, pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)::bigint FROM pg_stat_replication`

// askPrimary makes sure that the server answers, and learns how far its replicas are.
func (e *examiner) askPrimary(ctx context.Context, primary Server, status *NodeStatus) {
	conn, err := pgx.Connect(ctx, serverDSN(primary, e.password))
	if err != nil {
		e.unanswered(status, err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, replicationQuery)
	if err != nil {
		e.unanswered(status, err)
		return
	}
	var name, state string
	var lag *int64
	_, err = pgx.ForEachRow(rows, []any{&name, &state, &lag}, func() error {
		for i := range status.Replicas {
			r := &status.Replicas[i]
			if r.Name == name && r.State == "connecting" {
				r.State, r.LagBytes = state, copyOf(lag)
			}
		}
		return nil
	})
	if err != nil {
		e.unanswered(status, err)
	}
}

func copyOf(n *int64) *int64 {
	if n == nil {
		return nil
	}
	c := *n
	return &c
}

// unanswered tells a server that refuses the password, which works, from one that does not.
func (e *examiner) unanswered(status *NodeStatus, err error) {
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "28P01" {
		status.Why = "somebody has changed the superuser's password"
		return
	}
	status.State = stateDown
	status.Why, _, _ = strings.Cut(err.Error(), "\n")
}
