package router

import (
	"context"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// settingSet is what a session has set, apart from what its role and database start with. Sets
// are immutable and equal sets are one object, so that a server connection which last served a
// session with the same settings needs nothing done.
type settingSet struct {
	names  []string // sorted
	values map[string]string
}

// settingSets makes equal sets one object.
type settingSets struct {
	mu   sync.Mutex
	sets map[string]*settingSet
}

// maxSettingSets bounds the table; sets beyond it work, they are only never shared.
const maxSettingSets = 10000

var emptySettings = &settingSet{values: map[string]string{}}

func (t *settingSets) init() { t.sets = map[string]*settingSet{"": emptySettings} }

func (t *settingSets) intern(values map[string]string) *settingSet {
	names := make([]string, 0, len(values))
	for n := range values {
		names = append(names, n)
	}
	sort.Strings(names)
	var key strings.Builder
	for _, n := range names {
		key.WriteString(n)
		key.WriteByte(0)
		key.WriteString(values[n])
		key.WriteByte(0)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.sets[key.String()]; s != nil {
		return s
	}
	s := &settingSet{names: names, values: values}
	if len(t.sets) < maxSettingSets {
		t.sets[key.String()] = s
	}
	return s
}

// with returns the set with one value changed, or removed when value is nil.
func (t *settingSets) with(s *settingSet, name string, value *string) *settingSet {
	values := make(map[string]string, len(s.values)+1)
	maps.Copy(values, s.values)
	if value == nil {
		delete(values, name)
	} else {
		values[name] = *value
	}
	return t.intern(values)
}

// unknownSettings marks a connection whose settings a rollback may have changed.
var unknownSettings = &settingSet{}

// leavesTrace reports a connection that has had custom settings which the session never set. They
// cannot be taken back: RESET leaves them empty, where a new session has none at all.
func leavesTrace(c *pool.Conn, want *settingSet) bool {
	have, _ := c.Settings.(*settingSet)
	if have == nil || have == want {
		return false
	}
	for _, n := range have.names {
		if _, wanted := want.values[n]; !wanted && strings.Contains(n, ".") {
			return true
		}
	}
	return false
}

// acquire gets a server connection that serves the session as a fresh one would.
func (s *session) acquire(ctx context.Context, node string) (*pool.Conn, error) {
	if s.replica {
		s.task.Detach()
		if conn, err := s.acquireReplica(ctx, node); conn != nil || err != nil {
			return conn, err
		}
	}
	if conn := s.router.pool.TryAcquire(s.poolKey(node)); conn != nil {
		if !leavesTrace(conn, s.settings) {
			return conn, nil
		}
		conn.Broken = true
		s.router.pool.Release(conn)
	}
	return s.acquireBy(ctx, node, s.router.pool.Acquire)
}

// acquireBy is acquire by a way of the pool that may wait.
func (s *session) acquireBy(ctx context.Context, node string, acquire func(context.Context, pool.Key, pool.Credentials) (*pool.Conn, error)) (*pool.Conn, error) {
	s.task.Detach()
	ctx, cancel := context.WithCancelCause(ctx)
	s.awaitConnection(cancel)
	defer cancel(nil)
	defer s.awaitConnection(nil)
	for {
		conn, err := acquire(ctx, s.poolKey(node), s.creds)
		if err != nil || !leavesTrace(conn, s.settings) {
			return conn, err
		}
		conn.Broken = true
		s.router.pool.Release(conn)
	}
}

// sync brings a server connection to the session's settings.
func (s *session) sync(ctx context.Context, c *pool.Conn) error {
	have, _ := c.Settings.(*settingSet)
	if have == s.settings || have == nil && s.settings == emptySettings {
		return nil
	}
	sql := settingsSQL(have, s.settings)
	if sql != "" {
		s.task.Detach()
		if err := c.Exec(ctx, sql); err != nil {
			c.Settings = unknownSettings
			return err
		}
	}
	c.Settings = s.settings
	return nil
}

// settingsSQL is what leads from one set to another. The role comes first when it is given up and
// last when it is taken, because it decides what may be set.
func settingsSQL(have, want *settingSet) string {
	var b strings.Builder
	if have == unknownSettings {
		b.WriteString("RESET SESSION AUTHORIZATION; RESET ALL; ")
		have = nil
	}
	if have != nil {
		for _, n := range have.names {
			if _, keep := want.values[n]; !keep {
				b.WriteString("RESET " + quoteSetting(n) + "; ")
			}
		}
	}
	first := true
	for _, n := range orderedNames(want) {
		if have != nil && have.values[n] == want.values[n] && slices.Contains(have.names, n) {
			continue
		}
		if first {
			b.WriteString("SELECT ")
			first = false
		} else {
			b.WriteString(", ")
		}
		b.WriteString("pg_catalog.set_config(" + plan.QuoteLiteral(n) + ", " + plan.QuoteLiteral(want.values[n]) + ", false)")
	}
	return b.String()
}

func orderedNames(s *settingSet) []string {
	names := make([]string, 0, len(s.names))
	var last []string
	for _, n := range s.names {
		if n == "role" || n == "session_authorization" {
			last = append(last, n)
		} else {
			names = append(names, n)
		}
	}
	slices.Reverse(last) // session_authorization before role
	return append(names, last...)
}

func quoteSetting(name string) string {
	parts := strings.Split(name, ".")
	for i, p := range parts {
		parts[i] = plan.QuoteIdent(p)
	}
	return strings.Join(parts, ".")
}

func quoteBody(s string) string { return strings.ReplaceAll(s, "'", "''") }
