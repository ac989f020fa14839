package router

import (
	"context"
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// disconnect ends the idle connections of all routers to a database that a statement needs for
// itself: one that is dropped, renamed or copied.
func (s *session) disconnect(ctx context.Context, m *keyspace.Map, text string) error {
	database, stays := neededDatabase(text)
	if database == "" {
		return nil
	}
	if stays && slices.ContainsFunc(m.Distributions, func(d *keyspace.Distribution) bool { return d.Database == database }) {
		return pgwire.Errorf(pgwire.CodeFeatureNotSupported, "database %q has distributed tables, so it can be neither renamed nor used as a template", database).
			WithHint("Call undistribute_table() for them first; their distributions go within a minute.")
	}
	s.router.pool.LetGo(database)
	for _, node := range homeFirst(m) {
		conn, err := s.router.service(ctx, node, serviceDatabase)
		if err != nil {
			return err
		}
		err = conn.Exec(ctx, "SELECT pg_shoal.disconnect("+plan.QuoteLiteral(database)+")")
		s.router.pool.Release(conn)
		if err != nil {
			return err
		}
	}
	return nil
}

// neededDatabase names the database that must have no other connections. Stays reports that its
// tables live on, under another name or in a copy.
func neededDatabase(text string) (name string, stays bool) {
	stmts, err := analyze.Parse(text)
	if err != nil || len(stmts) != 1 {
		return "", false
	}
	switch e := stmts[0].Tree.Node.(type) {
	case *pg.Node_DropdbStmt:
		return e.DropdbStmt.Dbname, false
	case *pg.Node_RenameStmt:
		if e.RenameStmt.RenameType == pg.ObjectType_OBJECT_DATABASE {
			return e.RenameStmt.Subname, true
		}
	case *pg.Node_CreatedbStmt:
		for _, o := range e.CreatedbStmt.Options {
			if d := o.GetDefElem(); d.GetDefname() == "template" {
				return d.GetArg().GetString_().GetSval(), true
			}
		}
		return "template1", true
	case *pg.Node_AlterDatabaseStmt:
		return e.AlterDatabaseStmt.Dbname, false
	}
	return "", false
}

// changedDatabase is the database that a statement made, or made another one under this name.
func changedDatabase(text string) string {
	stmts, err := analyze.Parse(text)
	if err != nil || len(stmts) != 1 {
		return ""
	}
	switch e := stmts[0].Tree.Node.(type) {
	case *pg.Node_DropdbStmt:
		return e.DropdbStmt.Dbname
	case *pg.Node_CreatedbStmt:
		return e.CreatedbStmt.Dbname
	}
	return ""
}
