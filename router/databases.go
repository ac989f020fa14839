package router

import (
	"context"
	"errors"
	"slices"
	"time"

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
		if _, err := s.disconnectFrom(ctx, node, database); err != nil {
			return err
		}
	}
	return nil
}

// disconnectFrom ends the idle connections of all routers to a node's database, and reports whether there were any.
func (s *session) disconnectFrom(ctx context.Context, node, database string) (some bool, err error) {
	conn, err := s.router.service(ctx, node, serviceDatabase)
	if err != nil {
		return false, err
	}
	defer s.router.pool.Release(conn)
	rows, err := conn.Query(ctx, "SELECT pg_shoal.disconnect("+plan.QuoteLiteral(database)+")")
	return err == nil && string(rows[0][0]) != "0", err
}

// inUseByRouters reports a database that a node refuses to give up because of connections which routers had not done with when they
// were looked for, or have opened since. They are ended now.
func (s *session) inUseByRouters(ctx context.Context, node, text string, err error) bool {
	var e *pgwire.Error
	database, _ := neededDatabase(text)
	if !errors.As(err, &e) || e.Code != "55006" || database == "" {
		return false
	}
	some, err := s.disconnectFrom(ctx, node, database)
	return some && err == nil
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
	if !dropped {
		s.awaitShoal(ctx, database)
	}
}

// shoalTimeout bounds the wait for the controller, shoalPause is how often the nodes are asked.
const (
	shoalTimeout = 15 * time.Second
	shoalPause   = 50 * time.Millisecond
)

// awaitShoal waits until a new database has pg_shoal on all nodes. One that was made from template1 has
// it at once; to one from template0 the controller brings it.
func (s *session) awaitShoal(ctx context.Context, database string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shoalTimeout)
	defer cancel()
	tick := time.NewTicker(shoalPause)
	defer tick.Stop()
	for !s.router.hasShoal(ctx, database) {
		controllers, err := topo.Members(ctx, s.router.store, topo.RoleController)
		if err != nil || len(controllers) == 0 || ctx.Err() != nil {
			warning := pgwire.Noticef("01000", "the schema of database %q cannot be changed before a controller has prepared it", database)
			warning.Severity, warning.SeverityRaw = "WARNING", "WARNING"
			out := s.client.Out()
			*out = warning.AppendNoticeTo(*out)
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// hasShoal reports that a database can be worked on, on all nodes; one that nobody may connect to is left alone.
func (r *Router) hasShoal(ctx context.Context, database string) bool {
	for _, node := range homeFirst(r.view.Load().m) {
		conn, err := r.service(ctx, node, database)
		if err != nil {
			return true
		}
		rows, err := conn.Query(ctx, "SELECT pg_catalog.to_regclass('pg_shoal.node') IS NOT NULL")
		r.pool.Release(conn)
		if err != nil || string(rows[0][0]) != "t" {
			return err != nil
		}
	}
	return true
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
