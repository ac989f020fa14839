package pool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// report is what one server says about itself.
type report struct {
	primary bool
	// timeline is that of a primary, or of what a standby receives; 0 when the role may not see it.
	timeline uint32
	// end is what a standby knows to exist, or where a primary's WAL ends.
	end lsn
	// What follows is of standbys only: what they applied, whether more comes by itself, and how
	// long ago the last transaction that they applied was committed.
	replayed  lsn
	streaming bool
	behind    time.Duration
}

// lsn is a place in the WAL.
type lsn uint64

// history is what the primaries among a node's servers said: the highest timeline, and how far its
// WAL goes.
type history struct {
	timeline uint32
	end      lsn
}

var (
	errNoLogin = errors.New("no login to check it with")
	errPast    = errors.New("it follows a primary of the past")
)

// compare puts a report of r beside those of the other servers: fresh says that r has applied
// everything that is known to exist.
func (s *replicas) compare(r *replica, said report) (fresh bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.life.Err() != nil {
		return false, errVacated // what it says is not of this node any more
	}
	h, seen := &s.history, s.node.place().timeline
	if said.primary {
		seen = max(seen, said.timeline)
	}
	if seen > h.timeline {
		*h = history{timeline: seen}
	}
	switch {
	case said.primary:
		if said.timeline == h.timeline {
			h.end = max(h.end, said.end)
		}
		return false, errPrimary
	case said.timeline != 0 && said.timeline < h.timeline:
		return false, fmt.Errorf("%w: its timeline is %d, but %d was seen", errPast, said.timeline, h.timeline)
	}
	// The standby alone cannot tell: one that is cut off believes for long that nothing new comes.
	return said.streaming && said.replayed >= said.end && said.replayed >= h.end, nil
}

// reportSQL reads what exists before what is applied, so that a standby that is up to date shows it
// while more comes in. A role that may not see the details of the receiver sees its pid.
const reportSQL = `SELECT pg_catalog.pg_is_in_recovery(),
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN r.received_tli::pg_catalog.text
		ELSE pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 1, 8) END,
	CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_receive_lsn()
		ELSE pg_catalog.pg_current_wal_flush_lsn() END,
	r.latest_end_lsn, pg_catalog.pg_last_wal_replay_lsn(), r.pid, r.status,
	pg_catalog.date_part('epoch', pg_catalog.clock_timestamp()),
	pg_catalog.date_part('epoch', pg_catalog.pg_last_xact_replay_timestamp())
FROM (VALUES (1)) AS one LEFT JOIN pg_catalog.pg_stat_wal_receiver AS r ON true`

// examine is the check of production. It does not cancel: a server that does not answer in time has
// lost the connection.
func examine(ctx context.Context, c *Conn) (report, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.Stream.Conn.SetDeadline(time.Unix(1, 0)) })
	rows, err := c.Query(context.WithoutCancel(ctx), reportSQL)
	if !stop() {
		return report{}, cmp.Or(err, context.Cause(ctx))
	}
	if err != nil {
		return report{}, err
	}
	if len(rows) != 1 || len(rows[0]) != 9 {
		return report{}, errMalformed
	}
	return parseReport(rows[0])
}

func parseReport(row [][]byte) (report, error) {
	var f [9]string
	for i := range f {
		f[i] = string(row[i])
	}
	said := report{primary: f[0] == "f", behind: math.MaxInt64}
	base := 10
	if said.primary {
		base = 16
	}
	timeline, err0 := parseOr(f[1], 0, func(s string) (uint64, error) { return strconv.ParseUint(s, base, 32) })
	end, err1 := parseOr(f[2], 0, parseLSN)
	announced, err2 := parseOr(f[3], 0, parseLSN)
	replayed, err3 := parseOr(f[4], 0, parseLSN)
	now, err4 := parseOr(f[7], 0, parseSeconds)
	last, err5 := parseOr(f[8], 0, parseSeconds)
	if err := errors.Join(err0, err1, err2, err3, err4, err5); err != nil {
		return report{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	said.timeline = uint32(timeline)
	said.end, said.replayed = max(end, announced), replayed
	said.streaming = f[2] != "" && f[5] != "" && (f[6] == "streaming" || f[6] == "")
	if f[8] != "" {
		// Clocks differ: what was committed in the future is fresh.
		said.behind = time.Duration(max(0, now-last) * float64(time.Second))
	}
	return said, nil
}

// parseOr takes NULL for a default.
func parseOr[T any](text string, null T, parse func(string) (T, error)) (T, error) {
	if text == "" {
		return null, nil
	}
	return parse(text)
}

func parseSeconds(text string) (float64, error) { return strconv.ParseFloat(text, 64) }

// parseLSN reads the form 16/B374D848.
func parseLSN(text string) (lsn, error) {
	high, low, ok := strings.Cut(text, "/")
	if !ok {
		return 0, fmt.Errorf("%q is no place in the WAL", text)
	}
	h, err := strconv.ParseUint(high, 16, 32)
	if err != nil {
		return 0, err
	}
	l, err := strconv.ParseUint(low, 16, 32)
	return lsn(h<<32 | l), err
}
