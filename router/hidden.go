package router

import (
	"context"
	"maps"
	"slices"

	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// Functions and DO blocks run on the home node and may change settings there, which other nodes must follow: a tenant that
// a function sets is often what policies on all nodes read. The planner knows most names; their values are asked for
// after the statement, and again when the transaction is over, because nobody says whether a change was LOCAL.

// noteHidden remembers settings that code may have changed.
func (s *session) noteHidden(names []string) {
	for _, name := range names {
		if s.hidden == nil {
			s.hidden = map[string]bool{}
		}
		s.hidden[name] = true
		s.namesUnknown = true
	}
}

// learnHidden asks the home node for the settings that code may have changed there.
func (s *session) learnHidden(ctx context.Context, conn *pool.Conn) error {
	names, err := s.hiddenNames(ctx, conn)
	if err != nil {
		return err
	}
	for _, name := range names {
		rows, err := conn.Query(ctx, "SELECT pg_catalog.current_setting("+plan.QuoteLiteral(name)+", true)")
		if err != nil {
			return err
		}
		if rows[0][0] == nil {
			continue // nobody has set it
		}
		value, err := s.settingValue(ctx, conn, rows[0][0])
		if err != nil {
			return err
		}
		if known, ok := s.settings.values[name]; ok && known == value {
			continue
		}
		if err := s.followHidden(ctx, conn, name, value); err != nil {
			return err
		}
	}
	return nil
}

// hiddenNames are the settings that code may have changed. Where it has computed a name, these are all that the node's session has of its own.
func (s *session) hiddenNames(ctx context.Context, conn *pool.Conn) ([]string, error) {
	names := maps.Clone(s.hidden)
	if names[plan.AnySetting] {
		delete(names, plan.AnySetting)
		rows, err := conn.Query(ctx, `SELECT name FROM pg_catalog.pg_settings WHERE source = 'session' AND name NOT LIKE 'transaction\_%'
			UNION ALL SELECT 'role' WHERE pg_catalog.current_setting('role') <> 'none'`)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			names[string(row[0])] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

// followHidden makes other nodes follow: for the rest of the transaction, or from now on when there is none.
func (s *session) followHidden(ctx context.Context, home *pool.Conn, name, value string) error {
	if s.txn.mode == modeIdle {
		s.changeSettings(s.router.settings.with(s.settings, name, &value))
		home.Settings = s.settings
		return nil
	}
	local := "SELECT pg_catalog.set_config(" + plan.QuoteLiteral(name) + ", " + plan.QuoteLiteral(value) + ", true)"
	s.txn.replay, s.txn.setLocal = append(s.txn.replay, local), true
	for _, p := range s.txn.parts {
		if p.conn == home || !p.began {
			continue
		}
		if err := s.flushPreamble(p); err != nil {
			return err
		}
		if err := p.conn.Exec(ctx, local); err != nil {
			return err
		}
	}
	return nil
}
