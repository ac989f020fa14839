package router

import (
	"context"
	"errors"
	"strings"
	"time"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// The session's settings that are the router's own. They are ordinary settings with a dot in their name, so SET,
// SET LOCAL, RESET, SHOW and ALTER ROLE ... SET treat them as PostgreSQL does.
const (
	readPreference = "shoal.read_preference"
	maxStaleness   = "shoal.max_staleness"
	maxExchange    = "shoal.max_exchange_bytes"

	readConsistency = "shoal.read_consistency"
)

// preferences are the values of shoal.read_preference.
const (
	preferPrimary  = "primary"        // all statements go to primaries: the default
	preferReplica  = "prefer_replica" // reads go to a replica that is fresh enough, else to the primary
	requireReplica = "replica"        // reads fail when no replica is fresh enough
)

// checkShoal checks a value of pgshoal's own settings before a node stores it.
func checkShoal(name, value string) error {
	switch name {
	case readPreference:
		switch value {
		case preferPrimary, preferReplica, requireReplica:
			return nil
		}
		return pgwire.Errorf("22023", "invalid value for parameter %q: %q", name, value).
			WithHint("Available values: %s, %s, %s.", preferPrimary, preferReplica, requireReplica)
	case readConsistency:
		if value == consistencyNode || value == consistencyAtomic {
			return nil
		}
		return pgwire.Errorf("22023", "invalid value for parameter %q: %q", name, value).
			WithHint("Available values: %s, %s.", consistencyNode, consistencyAtomic)
	case maxStaleness:
		if d, err := time.ParseDuration(value); err == nil && d > 0 {
			return nil
		}
		return pgwire.Errorf("22023", "invalid value for parameter %q: %q", name, value).WithHint("Write a duration such as 500ms, 5s or 1m.")
	}
	if name == maxExchange {
		if _, ok := parseBytes(value); ok {
			return nil
		}
		return pgwire.Errorf("22023", "invalid value for parameter %q: %q", name, value).WithHint("Write a size such as 64MB, 1GB, or a number of bytes.")
	}
	return pgwire.Errorf("42704", "unrecognized configuration parameter %q", name)
}

// shoalValue is the value that SET gives to one of these settings; "" when it is reset.
func shoalValue(v *pg.VariableSetStmt) (string, error) {
	if len(v.Args) != 1 {
		return "", pgwire.Errorf("22023", "SET %s takes only one argument", v.Name)
	}
	if text := v.Args[0].GetAConst().GetSval(); text != nil {
		return strings.ToLower(text.Sval), nil
	}
	if n := v.Args[0].GetAConst().GetIval(); n != nil && strings.ToLower(v.Name) == maxExchange {
		return itoa(int(n.Ival)), nil
	}
	return "", pgwire.Errorf("22023", "parameter %q requires a string", v.Name)
}

// readsReplica reports whether a statement may be answered by a replica: the session wants it, and
// nothing in its transaction can write.
func (s *session) readsReplica(p *plan.Plan) bool {
	preference := s.settings.values[readPreference]
	if preference == "" || preference == preferPrimary || p.Writes || p.Hold != "" || s.hold != "" {
		return false
	}
	if s.txn.mode != modeIdle || s.extended.busy() || p.MayWrite {
		if !s.readOnly() {
			return false
		}
	}
	if !s.router.member.Load().Listed() {
		return false
	}
	return s.freshness() > 0
}

// freshness is how far behind a replica may be now. Right after a change of the map it may lack rows or columns that the
// new map counts on, so it must have what happened since, whatever the session would put up with.
func (s *session) freshness() time.Duration {
	return min(s.staleness(), time.Since(s.router.view.Load().since)-settleTime)
}

// checkReplicas ends the work on replicas of a router that is cut off from the topology store. When a
// table's placement changes, the nodes end the connections of such a router; replicas cannot.
func (s *session) checkReplicas() error {
	for _, p := range s.txn.parts {
		if p.conn.Key.Replica && !s.router.member.Load().Listed() {
			p.conn.Broken = true
			return pgwire.Errorf("57P03", "a replica of node %q cannot be read: the router does not reach the topology store", p.node).
				WithHint("Run the transaction again; the primaries answer meanwhile.")
		}
	}
	return nil
}

// settleTime is how long the measurement of a replica's lag may itself be behind.
const settleTime = 3 * time.Second

// staleness is how far behind a replica may be for this session.
func (s *session) staleness() time.Duration {
	if d, err := time.ParseDuration(s.settings.values[maxStaleness]); err == nil {
		return d
	}
	return defaultStaleness
}

const defaultStaleness = 10 * time.Second

// readOnly reports a transaction, or a session, that the client declared so.
func (s *session) readOnly() bool {
	if s.txn.mode == modeExplicit && strings.Contains(strings.ToUpper(s.txn.begin), "READ ONLY") {
		return true
	}
	switch strings.ToLower(s.settings.values["default_transaction_read_only"]) {
	case "on", "true", "yes", "1":
		return s.txn.mode != modeExplicit || !strings.Contains(strings.ToUpper(s.txn.begin), "READ WRITE")
	}
	return false
}

// acquireReplica gets a connection to a replica of the node, or nil when the primary must do.
func (s *session) acquireReplica(ctx context.Context, node string) (*pool.Conn, error) {
	key := s.poolKey(node)
	key.Replica = true
	limit := s.freshness()
	conn, err := s.router.pool.AcquireReplica(ctx, key, s.creds, max(limit, time.Nanosecond))
	if !errors.Is(err, pool.ErrNoReplica) {
		return conn, err
	}
	// Right after a change of the map the primary answers in any case.
	if s.settings.values[readPreference] == requireReplica && limit == s.staleness() {
		return nil, pgwire.Errorf("57P03", "node %q has no replica that is fresh enough", node).
			WithHint("SET %s = '%s' lets the primary answer then.", readPreference, preferReplica)
	}
	return nil, nil
}
