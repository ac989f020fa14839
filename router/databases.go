package router

import (
	"context"
	"slices"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/topo"
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

// changedDatabase is the database that a statement made or dropped.
func changedDatabase(text string) (name string, dropped bool) {
	stmts, err := analyze.Parse(text)
	if err != nil || len(stmts) != 1 {
		return "", false
	}
	switch e := stmts[0].Tree.Node.(type) {
	case *pg.Node_DropdbStmt:
		return e.DropdbStmt.Dbname, true
	case *pg.Node_CreatedbStmt:
		return e.CreatedbStmt.Dbname, false
	}
	return "", false
}

// databaseChanged tells all routers that what they know of a database is of the past, and takes the
// distributions of a dropped one out of the map.
func (s *session) databaseChanged(ctx context.Context, text string) {
	database, dropped := changedDatabase(text)
	if database == "" {
		return
	}
	if dropped {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), schemaTimeout)
		defer cancel()
		if _, err := topo.UpdateMap(ctx, s.router.store, func(m *keyspace.Map) (*keyspace.Map, error) {
			return withoutDatabase(m, database)
		}); err != nil {
			s.log.Warn("distributions of a dropped database stay in the map", "database", database, "error", err)
		}
	}
	s.publishDatabase(ctx, database)
}

func withoutDatabase(m *keyspace.Map, database string) (*keyspace.Map, error) {
	next := m
	for _, d := range m.Distributions {
		if d.Database != database {
			continue
		}
		var err error
		if next, err = next.DropDistribution(d.ID); err != nil {
			return nil, err
		}
	}
	return next, nil
}
