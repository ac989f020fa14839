package twopc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Nodes runs statements on nodes as a superuser, each in a transaction of its own; any number of
// goroutines may use it. An empty database is any that the node has. Values come in text. An error
// that the node answered has a SQLState method.
type Nodes interface {
	Query(ctx context.Context, node, database, sql string) ([][]string, error)
}

// found is a transaction of the cluster that is prepared on at least one node.
type found struct {
	gid, database, decider string
	nodes                  []string
	age                    time.Duration // since the first of them prepared
}

// listing is what the nodes have prepared.
type listing struct {
	prepared map[string]*found // by gid
	// preparing are the transactions of which some node still runs the PREPARE: slow, not stuck.
	preparing map[string]bool
	away      map[string]error  // by node
	timelines map[string]string // by node; each failover makes another one
}

// listSQL lists the prepared transactions of the cluster, with their age by the node's own clock.
func listSQL(cluster string) string {
	prefix := clusterPrefix(cluster)
	return `SELECT 'standby', '', '', '0' WHERE pg_catalog.pg_is_in_recovery()
UNION ALL
SELECT 'timeline', CASE WHEN pg_catalog.pg_is_in_recovery() THEN '' ELSE left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) END, '', '0'
UNION ALL
SELECT 'prepared', gid, database::text, ceil(extract(epoch FROM now() - prepared) * 1000)::text
FROM pg_catalog.pg_prepared_xacts WHERE starts_with(gid, ` + quote(prefix) + `)
UNION ALL
SELECT 'preparing', substring(query FROM 'PREPARE TRANSACTION ''([^'']*)'''), coalesce(datname::text, ''), '0'
FROM pg_catalog.pg_stat_activity
WHERE state = 'active' AND (starts_with(query, ` + quote(executes) + `) OR starts_with(query, ` + quote(inserts) + `))
  AND position(` + quote("PREPARE TRANSACTION '"+prefix) + ` IN query) > 0`
}

// list asks all nodes at once.
func list(ctx context.Context, nodes Nodes, cluster string, names []string) *listing {
	l := &listing{prepared: make(map[string]*found), preparing: make(map[string]bool), away: make(map[string]error), timelines: make(map[string]string)}
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, name := range names {
		group.Go(func() {
			rows, err := nodes.Query(ctx, name, "", listSQL(cluster))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				err = l.add(name, cluster, rows)
			}
			if err != nil {
				l.away[name] = err
			}
		})
	}
	group.Wait()
	return l
}

var errStandby = errors.New("the server is a standby, which cannot complete transactions")

func (l *listing) add(node, cluster string, rows [][]string) error {
	for _, row := range rows {
		if len(row) != 4 {
			return fmt.Errorf("a list of prepared transactions with %d columns", len(row))
		}
		kind, gid, database, age := row[0], row[1], row[2], row[3]
		decider, ours := ParseGID(gid, cluster)
		switch {
		case kind == "standby":
			return errStandby
		case kind == "timeline":
			l.timelines[node] = gid
		case !ours:
		case kind == "preparing":
			l.preparing[gid] = true
		default:
			ms, err := strconv.ParseInt(age, 10, 64)
			if err != nil {
				return fmt.Errorf("age of prepared transaction %s: %w", gid, err)
			}
			f := l.prepared[gid]
			if f == nil {
				f = &found{gid: gid, database: database, decider: decider}
				l.prepared[gid] = f
			}
			f.nodes = append(f.nodes, node)
			f.age = max(f.age, time.Duration(ms)*time.Millisecond)
		}
	}
	return nil
}

// settleable returns those that are older than grace and do not prepare any more, oldest first.
func (l *listing) settleable(grace time.Duration) []*found {
	var fs []*found
	for gid, f := range l.prepared {
		if f.age >= grace && !l.preparing[gid] {
			slices.Sort(f.nodes)
			fs = append(fs, f)
		}
	}
	slices.SortFunc(fs, func(a, b *found) int {
		return cmp.Or(cmp.Compare(b.age, a.age), strings.Compare(a.gid, b.gid))
	})
	return fs
}
