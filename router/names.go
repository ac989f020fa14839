package router

import (
	"context"
	"slices"
	"strings"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/plan"
)

// What a name in a statement means depends on the session: on its search path, on its role, and on its temporary tables, which
// hide others. A wrong guess would be a wrong answer, so whatever may have changed it makes the router ask the home
// node before it plans the next statement. Plans are kept in a space for each such meaning.

// namesDependOn reports the settings that names depend on.
func namesDependOn(setting string) bool {
	return setting == "search_path" || setting == "role" || setting == "session_authorization"
}

// changesNames reports a SET LOCAL of such a setting.
func changesNames(st *plannedStatement) bool {
	return namesDependOn(strings.ToLower(st.tree.Tree.GetVariableSetStmt().GetName()))
}

// learnNames asks for what names depend on, if that may have changed.
func (s *session) learnNames(ctx context.Context) error {
	if !s.namesUnknown || s.txn.failed {
		return nil
	}
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return err
	}
	defer done()
	rows, err := conn.Query(ctx, `SELECT pg_catalog.current_setting('search_path'), CURRENT_USER, NULL UNION ALL
		SELECT NULL, NULL, relname FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.pg_my_temp_schema() ORDER BY 1 NULLS LAST, 3`)
	if err != nil {
		return err
	}
	names := make([]string, 0, len(rows)+1)
	for i, row := range rows {
		for _, value := range row[min(i, 1)*2:] {
			text, err := s.readText(ctx, value)
			if err != nil {
				return err
			}
			names = append(names, string(text))
		}
	}
	s.namesUnknown = false
	s.acting = names[1]
	if temporary := names[3:]; !slices.Equal(temporary, s.temporary) {
		s.temporary, s.ownSpace = temporary, nil
	}
	s.setSearchPath(names[0])
	return s.learnHidden(ctx, conn)
}

// setSearchPath notes the search path and chooses the space of plans. A session with temporary tables has one of its own.
func (s *session) setSearchPath(path string) {
	s.searchPath = path
	key := spaceKey{s.database, s.currentRole(), path, s.encodings.client}
	if len(s.temporary)+len(s.temporaryCode) == 0 {
		s.space, s.ownSpace = s.router.plans.get(key), nil
		return
	}
	if s.ownSpace == nil || s.ownKey != key {
		s.ownSpace, s.ownKey = newPlanSpace(), key
	}
	s.space = s.ownSpace
}

// changeSettings makes a set the session's; connections follow when they are next used.
func (s *session) changeSettings(set *settingSet) {
	before := s.settings
	s.settings = set
	s.namesUnknown = s.namesUnknown || s.txn.setLocal // which of the two holds now, PostgreSQL knows
	for _, name := range []string{"role", "session_authorization"} {
		if before.values[name] != set.values[name] {
			s.acting = ""
		}
	}
	path, ok := set.values["search_path"]
	switch {
	case ok:
		s.setSearchPath(path)
	case before.values["search_path"] != "" || slices.Contains(before.names, "search_path"):
		s.namesUnknown = true
	default:
		s.setSearchPath(s.searchPath) // the role may have changed
	}
}

// currentRole is whose rights statements run with.
func (s *session) currentRole() string {
	if s.acting != "" {
		return s.acting
	}
	if role, ok := s.settings.values["role"]; ok && role != "none" {
		return role
	}
	if role, ok := s.settings.values["session_authorization"]; ok {
		return role
	}
	return s.user
}

func (s *session) isTemporary(name string) bool { return slices.Contains(s.temporary, name) }

// noteTemporaryCode remembers DDL of temporary objects that makes code run with a use of them. It stays when the transaction
// rolls back, which only makes the planner more careful.
func (s *session) noteTemporaryCode(st *plannedStatement) {
	stmts, err := analyze.Parse(st.text)
	if err != nil {
		return
	}
	for _, parsed := range stmts {
		if name := plan.HidesIn(parsed.Tree); name != "" {
			s.temporaryCode = append(s.temporaryCode, plan.TemporaryDDL{
				Name: name, Text: st.text, Path: catalog.ParseSearchPath(s.searchPath, s.currentRole()),
			})
			s.ownSpace = nil
		}
		if d := parsed.Tree.GetDropStmt(); d != nil && s.txn.mode != modeExplicit {
			for _, o := range d.Objects {
				_, name := analyze.Name(o.GetList().GetItems())
				s.temporaryCode = slices.DeleteFunc(s.temporaryCode, func(c plan.TemporaryDDL) bool { return c.Name == name })
				s.ownSpace = nil
			}
		}
	}
}
