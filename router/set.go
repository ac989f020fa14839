package router

import (
	"context"
	"maps"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/sqltext"
)

// set executes SET and RESET. The home node checks them and knows the resulting value; the session
// keeps it and brings every server connection to it.
func (s *session) set(ctx context.Context, st *plannedStatement) error {
	v := st.tree.Tree.GetVariableSetStmt()
	if s.txn.failed {
		return errAborted()
	}
	if name := strings.ToLower(v.Name); strings.HasPrefix(name, "shoal.") && v.Kind == pg.VariableSetKind_VAR_SET_VALUE {
		value, err := shoalValue(v)
		if err == nil {
			err = checkShoal(name, value)
		}
		if err != nil {
			return err
		}
		if name == readConsistency && v.IsLocal {
			return s.setLocalConsistency(st, value)
		}
	}
	switch {
	case v.Kind == pg.VariableSetKind_VAR_SET_MULTI && v.Name == "TRANSACTION":
		return s.setTransaction(ctx, st)
	case v.Kind == pg.VariableSetKind_VAR_RESET_ALL:
		return s.resetAll(ctx, st)
	case v.IsLocal || ofTransaction(v.Name):
		return s.everywhere(ctx, st)
	}
	names := []string{strings.ToLower(v.Name)}
	if v.Kind == pg.VariableSetKind_VAR_SET_MULTI { // SESSION CHARACTERISTICS
		names = []string{"default_transaction_isolation", "default_transaction_read_only", "default_transaction_deferrable"}
	}
	conn, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return err
	}
	defer done()
	s.sendText(conn, st.text)
	answer, err := s.collect(ctx, conn)
	if err != nil {
		return err
	}
	settings := s.settings
	for _, name := range names {
		value, err := conn.Query(ctx, "SELECT pg_catalog.current_setting("+plan.QuoteLiteral(name)+")")
		if err != nil {
			return err
		}
		text, err := s.settingValue(ctx, conn, value[0][0])
		if err != nil {
			return err
		}
		set := &text
		if resets(v) {
			set = nil
			if start, ok := s.startup.values[name]; ok {
				set = &start
			}
		}
		settings = s.router.settings.with(settings, name, set)
	}
	s.txn.setAny = true
	s.changeSettings(settings)
	conn.Settings = settings
	if resets(v) {
		conn.Settings = unknownSettings // a RESET went to the server's own default
	}
	if err := s.syncParts(ctx); err != nil {
		return err
	}
	s.client.Append(answer)
	s.reportParameters(conn.Params)
	return nil
}

// ofTransaction reports settings that are the transaction's, whoever sets them.
func ofTransaction(name string) bool {
	switch strings.ToLower(name) {
	case "transaction_read_only", "transaction_isolation", "transaction_deferrable":
		return true
	}
	return false
}

// settingValue is a value that a connection told, in UTF-8: it is written to connections of any encoding.
func (s *session) settingValue(ctx context.Context, c *pool.Conn, value []byte) (string, error) {
	from := c.Params["client_encoding"]
	if from == utf8Encoding || from == asciiEncoding || s.encodings.server == asciiEncoding || sqltext.IsASCII(value) {
		return string(value), nil
	}
	text, err := s.recode(ctx, value, from, utf8Encoding)
	return string(text), err
}

func resets(v *pg.VariableSetStmt) bool {
	return v.Kind == pg.VariableSetKind_VAR_RESET || v.Kind == pg.VariableSetKind_VAR_SET_DEFAULT
}

// syncParts brings all connections of the transaction to the session's settings.
func (s *session) syncParts(ctx context.Context) error {
	for _, p := range s.txn.parts {
		if err := s.flushPreamble(p); err != nil {
			return err
		}
		if err := s.sync(ctx, p.conn); err != nil {
			return err
		}
	}
	return nil
}

// reportParameters tells the client which reported parameters have changed.
func (s *session) reportParameters(params map[string]string) {
	out := s.client.Out()
	for name, value := range params {
		if known, ok := s.reported[name]; ok && known != value {
			if !s.withholds(name) {
				*out = pgwire.AppendParameterStatus(*out, name, value)
			}
			s.reported[name] = value
			s.encodingChanged()
		}
	}
}

// withholds reports that a change waits for the end of a text of several statements, where PostgreSQL tells what has become of it. The
// parameter still has its old value.
func (s *session) withholds(name string) bool {
	if s.withheld == nil {
		return false
	}
	if _, ok := s.withheld[name]; !ok {
		s.withheld[name] = s.reported[name]
	}
	return true
}

// tellWithheld tells what was withheld.
func (s *session) tellWithheld() {
	out := s.client.Out()
	for name, before := range s.withheld {
		if value := s.reported[name]; value != before {
			*out = pgwire.AppendParameterStatus(*out, name, value)
		}
	}
	s.withheld = nil
}

// setTransaction keeps SET TRANSACTION for nodes that join later.
func (s *session) setTransaction(ctx context.Context, st *plannedStatement) error {
	if s.txn.mode != modeExplicit {
		notice := pgwire.Noticef("25P01", "SET TRANSACTION can only be used in transaction blocks")
		notice.Severity, notice.SeverityRaw = "WARNING", "WARNING"
		out := s.client.Out()
		*out = notice.AppendNoticeTo(*out)
		s.complete("SET")
		return nil
	}
	if err := s.onBegun(ctx, st.text); err != nil {
		return err
	}
	s.txn.replay = append(s.txn.replay, st.text)
	s.complete("SET")
	return nil
}

func (s *session) resetAll(ctx context.Context, st *plannedStatement) error {
	conn, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := conn.Exec(ctx, st.text); err != nil {
		return err
	}
	conn.Settings = unknownSettings
	keep := map[string]string{}
	maps.Copy(keep, s.startup.values)
	for _, n := range []string{"role", "session_authorization"} { // RESET ALL leaves these
		if v, ok := s.settings.values[n]; ok {
			keep[n] = v
		}
	}
	s.txn.setAny = true
	s.changeSettings(s.router.settings.intern(keep))
	if err := s.syncParts(ctx); err != nil {
		return err
	}
	s.complete("RESET")
	s.reportParameters(conn.Params)
	return nil
}

// settingChanged notes a change that a statement made through set_config().
func (s *session) settingChanged(ctx context.Context, p *participant, name string, local bool) {
	s.task.Detach()
	rows, err := p.conn.Query(ctx, "SELECT pg_catalog.current_setting("+plan.QuoteLiteral(name)+", true)")
	if err != nil || rows[0][0] == nil {
		s.keep("set_config")
		return
	}
	value, err := s.settingValue(ctx, p.conn, rows[0][0])
	if err != nil {
		s.keep("set_config")
		return
	}
	if local {
		if s.txn.mode != modeIdle {
			sql := "SELECT pg_catalog.set_config(" + plan.QuoteLiteral(name) + ", " + plan.QuoteLiteral(value) + ", true)"
			s.txn.replay = append(s.txn.replay, sql)
			s.txn.setLocal = true
			s.onOtherParts(ctx, p, func(c *pool.Conn) error { return c.Exec(ctx, sql) })
		}
		s.namesUnknown = s.namesUnknown || namesDependOn(name)
		return
	}
	s.txn.setAny = true
	s.changeSettings(s.router.settings.with(s.settings, name, &value))
	p.conn.Settings = s.settings
	s.onOtherParts(ctx, p, func(c *pool.Conn) error { return s.sync(ctx, c) })
}

// onOtherParts does something on the other nodes that the transaction has begun on. One that fails is given up: its next statement says so.
func (s *session) onOtherParts(ctx context.Context, p *participant, do func(*pool.Conn) error) {
	for _, other := range s.txn.parts {
		if other == p || !other.began {
			continue
		}
		err := s.flushPreamble(other)
		if err == nil {
			err = do(other.conn)
		}
		if err != nil {
			other.conn.Broken = true
		}
	}
}
