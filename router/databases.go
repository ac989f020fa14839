package router

import (
	"context"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// disconnect ends the idle connections of all routers to a database that a statement needs for
// itself: one that is dropped, renamed or copied.
func (s *session) disconnect(ctx context.Context, m *keyspace.Map, text string) error {
	database := neededDatabase(text)
	if database == "" {
		return nil
	}
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

// neededDatabase names the database that must have no other connections.
func neededDatabase(text string) string {
	stmts, err := analyze.Parse(text)
	if err != nil || len(stmts) != 1 {
		return ""
	}
	switch e := stmts[0].Tree.Node.(type) {
	case *pg.Node_DropdbStmt:
		return e.DropdbStmt.Dbname
	case *pg.Node_RenameStmt:
		if e.RenameStmt.RenameType == pg.ObjectType_OBJECT_DATABASE {
			return e.RenameStmt.Subname
		}
	case *pg.Node_CreatedbStmt:
		for _, o := range e.CreatedbStmt.Options {
			if d := o.GetDefElem(); d.GetDefname() == "template" {
				return d.GetArg().GetString_().GetSval()
			}
		}
		return "template1"
	case *pg.Node_AlterDatabaseStmt:
		return e.AlterDatabaseStmt.Dbname
	}
	return ""
}
