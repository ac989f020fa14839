package twopc

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// LostPart is a node's part of a committed transaction that the node does not have any more: it failed over to a server that lacked what
// the old one had acknowledged, as asynchronous replication allows. Nothing can bring it back; somebody must know.
type LostPart struct {
	GID, Database string
	Node          string // that lost its part
	Found         string // a node that has its own
}

// failovers notices nodes that continue on another timeline, and looks for what they have lost.
//
// The proof is the record that every part leaves in pg_shoal.seen. Who sees a transaction there knows that it was decided, and so that it is
// prepared or recorded on every other participant from then on. It looks at younger records only than those that are removed, and none
// are removed while a node is away: a record that is missing was not removed.
type failovers struct {
	known  map[string]answered // by node
	looked time.Time           // when the last look was over
}

// lookedLongAgo is when another controller may have led, and removed records, since the last look.
const lookedLongAgo = 10 * time.Second

// answered is when a node was listed last, and on which timeline.
type answered struct {
	timeline string
	at       time.Time
}

// look compares the timelines of a listing with those before, and looks for lost parts where one is new. A node whose timeline was not known
// before, because this controller has just begun to lead, counts as new.
func (f *failovers) look(ctx context.Context, nodes Nodes, l *listing, names []string, keepSeen time.Duration) ([]LostPart, error) {
	if time.Since(f.looked) > lookedLongAgo {
		f.known = make(map[string]answered)
	}
	defer func() { f.looked = time.Now() }()
	if len(l.away) > 0 {
		return nil, nil // all must be asked; records stay meanwhile
	}
	var lost []LostPart
	failed := make(map[string]error)
	for _, name := range slices.Sorted(maps.Keys(l.timelines)) {
		timeline, before := l.timelines[name], f.known[name]
		if before.timeline != timeline {
			reach := keepSeen * 3 / 4
			if !before.at.IsZero() {
				reach += time.Since(before.at)
			}
			parts, err := lostParts(ctx, nodes, name, names, reach)
			lost = append(lost, parts...)
			if err != nil {
				failed[name] = fmt.Errorf("look for what the failover has lost: %w", err)
				continue // and look again in the next round
			}
		}
		f.known[name] = answered{timeline, time.Now()}
	}
	return lost, nodeErrors(failed)
}

// lostParts looks on all other nodes for transactions of the last while that a node took part in and does not have.
func lostParts(ctx context.Context, nodes Nodes, node string, names []string, reach time.Duration) ([]LostPart, error) {
	places, failed := databases(ctx, nodes, []string{node})
	var lost []LostPart
	for _, at := range places {
		// The order of the three questions is what makes the answer certain.
		found, err := takingPart(ctx, nodes, node, names, at.database, reach)
		if err == nil {
			err = strike(ctx, nodes, at, found, "SELECT gid FROM pg_catalog.pg_prepared_xacts")
		}
		if err == nil && len(found) > 0 {
			quoted := make([]string, 0, len(found))
			for gid := range found {
				quoted = append(quoted, quote(gid))
			}
			err = strike(ctx, nodes, at, found, "SELECT gid FROM pg_shoal.seen WHERE gid = ANY (ARRAY["+strings.Join(quoted, ", ")+"])")
		}
		if err != nil {
			return lost, err
		}
		for _, gid := range slices.Sorted(maps.Keys(found)) {
			lost = append(lost, LostPart{GID: gid, Database: at.database, Node: node, Found: found[gid]})
		}
	}
	return lost, nodeErrors(failed)
}

// takingPart returns the recent transactions of other nodes in which a node took part, each with one that has it.
func takingPart(ctx context.Context, nodes Nodes, node string, names []string, database string, reach time.Duration) (map[string]string, error) {
	found := make(map[string]string)
	for _, other := range names {
		if other == node {
			continue
		}
		rows, err := nodes.Query(ctx, other, database, fmt.Sprintf(
			"SELECT gid FROM pg_shoal.seen WHERE %s = ANY (nodes) AND at > now() - interval '%d milliseconds'", quote(node), reach.Milliseconds()))
		if code := sqlState(err); code == codeNoDatabase || code == codeNoTable {
			continue // it has nothing there that could be missing here
		}
		if err != nil {
			return nil, fmt.Errorf("node %s: %w", other, err)
		}
		for _, row := range rows {
			found[row[0]] = other
		}
	}
	return found, nil
}

// strike takes out the transactions that a node has.
func strike(ctx context.Context, nodes Nodes, at decisions, found map[string]string, sql string) error {
	rows, err := nodes.Query(ctx, at.node, at.database, sql)
	for _, row := range rows {
		delete(found, row[0])
	}
	return err
}
