package twopc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// forgetBatch bounds one DELETE, so that it neither takes long nor writes much at once.
const forgetBatch = 10_000

// decisions says where rows of one outcome are.
type decisions struct{ node, database, outcome string }

// mark is a moment in the life of a server: what is older than the transaction id was committed by then.
type mark struct {
	xid, started string // of the server; a restart or a failover makes the mark void
	at           time.Time
	// prepared are the gids that were prepared on any node after the mark was made; not for aborts.
	prepared []string
}

// Which rows are meant: those of pg_shoal.decisions by their outcome, and the records of pg_shoal.parts.
const (
	outcomeCommit = "commit"
	outcomeAbort  = "abort"
	outcomePart   = "part"
)

// memory removes decision rows when nobody can need them any more, and not before.
//
// A commit row is needed while a participant is prepared. All were before the row became visible,
// so when it was seen first and then no node had the transaction prepared, none will again. An
// abort row is needed while its coordinator may still decide, which is as long as the decider's
// transaction is open; it began before the row was written.
//
// A record for atomic reads, which a commit row is too, is needed while a reader may have a snapshot from before the transaction committed on another
// node. It was prepared on all when the record was marked, and committed on all when it was not prepared any more at
// the listing after that; readers align their snapshots within seconds, and it stays for a minute. Commit rows stay longer.
//
// The age that rows must have besides is for a failover that lost what was acknowledged last: a
// participant may be prepared again, and must still find the decision.
type memory struct {
	keepCommit, keepAbort, keepSeen time.Duration
	marks                           map[decisions]mark
	hook                            func(point string)
}

func newMemory(cfg SettlerConfig) *memory {
	return &memory{keepCommit: cfg.KeepCommit, keepAbort: cfg.KeepAbort, keepSeen: cfg.KeepSeen, marks: make(map[decisions]mark), hook: cfg.Hook}
}

// forget removes what was marked long enough ago, marks what is there now, and returns the number
// of rows removed. It removes nothing when a node cannot be listed.
func (m *memory) forget(ctx context.Context, nodes Nodes, cluster string, names []string) (int, error) {
	places, failed := databases(ctx, nodes, names)
	for at := range m.marks {
		if !slices.Contains(places, decisions{at.node, at.database, ""}) {
			delete(m.marks, at)
		}
	}
	// Marked before, listed after: the order is what makes it safe.
	l := list(ctx, nodes, cluster, names)
	if len(l.away) > 0 {
		return 0, nodeErrors(l.away)
	}
	prepared := slices.Sorted(maps.Keys(l.prepared))
	total := 0
	began := time.Now()
	for _, at := range places {
		for _, at.outcome = range []string{outcomeCommit, outcomeAbort, outcomePart} {
			n, err := m.forgetAt(ctx, nodes, at, prepared)
			total += n
			if err != nil {
				failed[at.node] = err
			}
		}
	}
	m.listAfter(ctx, nodes, cluster, names, began)
	return total, nodeErrors(failed)
}

// listAfter completes the marks of records that this round made: what is not prepared now has committed everywhere.
func (m *memory) listAfter(ctx context.Context, nodes Nodes, cluster string, names []string, began time.Time) {
	l := list(ctx, nodes, cluster, names)
	for at, made := range m.marks {
		switch {
		case at.outcome == outcomeAbort || made.at.Before(began):
		case len(l.away) > 0:
			delete(m.marks, at)
		default:
			made.at, made.prepared = time.Now(), slices.Sorted(maps.Keys(l.prepared))
			m.marks[at] = made
		}
	}
}

func (m *memory) forgetAt(ctx context.Context, nodes Nodes, at decisions, prepared []string) (int, error) {
	old, marked := m.marks[at]
	keep := m.keepSeen
	switch at.outcome {
	case outcomeAbort:
		keep = m.keepAbort
	case outcomeCommit:
		keep = max(keep, m.keepCommit)
	}
	prepared = slices.Concat(prepared, old.prepared)
	if marked && time.Since(old.at) < keep {
		return 0, nil
	}
	total := 0
	if marked && m.hook != nil {
		m.hook("before forget " + at.node)
	}
	for marked {
		n, err := remove(ctx, nodes, at, old, prepared)
		if err != nil {
			return total, err
		}
		total += n
		if n < forgetBatch {
			break
		}
	}
	fresh, err := newMark(ctx, nodes, at)
	if err == nil {
		m.marks[at] = fresh
	}
	return total, err
}

func newMark(ctx context.Context, nodes Nodes, at decisions) (mark, error) {
	rows, err := nodes.Query(ctx, at.node, at.database,
		"SELECT pg_snapshot_xmin(pg_current_snapshot())::xid, pg_postmaster_start_time()")
	if err != nil {
		return mark{}, err
	}
	if len(rows) != 1 || len(rows[0]) != 2 {
		return mark{}, errors.New("no transaction id")
	}
	return mark{xid: rows[0][0], started: rows[0][1], at: time.Now()}, nil
}

// databases lists where decisions are.
func databases(ctx context.Context, nodes Nodes, names []string) ([]decisions, map[string]error) {
	var places []decisions
	failed := make(map[string]error)
	for _, node := range names {
		rows, err := nodes.Query(ctx, node, "",
			"SELECT datname FROM pg_catalog.pg_database WHERE datallowconn AND NOT datistemplate ORDER BY datname")
		if err != nil {
			failed[node] = err
		}
		for _, row := range rows {
			known, err := nodes.Query(ctx, node, row[0], "SELECT WHERE to_regclass('pg_shoal.parts') IS NOT NULL")
			if err != nil {
				failed[node] = err
			}
			if len(known) > 0 {
				places = append(places, decisions{node: node, database: row[0]})
			}
		}
	}
	return places, failed
}

func remove(ctx context.Context, nodes Nodes, at decisions, old mark, prepared []string) (int, error) {
	quoted := make([]string, len(prepared))
	for i, gid := range prepared {
		quoted[i] = quote(gid)
	}
	table, condition := "decisions", " AND outcome = "+quote(at.outcome)
	switch at.outcome {
	case outcomePart:
		table, condition = "parts", ""
	case outcomeAbort:
		condition += ` AND NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity a
    WHERE a.datname = current_database() AND a.pid <> pg_backend_pid() AND a.xact_start <= d.decided_at)`
	}
	rows, err := nodes.Query(ctx, at.node, at.database, fmt.Sprintf(`WITH gone AS (
  DELETE FROM pg_shoal.%[1]s WHERE gid IN (
    SELECT gid FROM pg_shoal.%[1]s d
    WHERE age(d.xmin) > age('%[2]s'::xid) AND pg_postmaster_start_time() = %[3]s
      AND gid <> ALL (ARRAY[%[4]s]::text[])%[5]s
    LIMIT %[6]d)
  RETURNING 1)
SELECT count(*) FROM gone`, table, old.xid, quote(old.started), strings.Join(quoted, ", "), condition, forgetBatch))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(rows[0][0])
}
