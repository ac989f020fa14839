package router

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
)

// publishTimeout bounds how long a statement with the name of something that was made just now waits for the map that tells all
// routers of it. Beyond it the catalog is read without: its maker died in between, or this router is cut off from the topology store.
const publishTimeout = time.Second

// maxRenewals bounds how often a statement is planned again because of names.
const maxRenewals = 5

// unknown reports a plan with names that the catalog does not have.
func (st *plannedStatement) unknown() bool { return st.plan != nil && st.plan.Unknown != nil }

// planUnknown settles a statement with names that the catalog does not have. Under that catalog it never runs: the home node
// only parses it. Either that fails, and the client gets the error; or the names are of something that is newer than
// the catalog, and the statement is planned again with a catalog that has it.
func (s *session) planUnknown(ctx context.Context, v *view, cat *catalog.Catalog, ps *plannedStatement, params []uint32, literals bool) (*planned, bool, error) {
	for range maxRenewals {
		entry := &planned{epoch: v.m.Epoch, space: s.space, params: params, id: s.router.plans.lastID.Add(1), unsettled: true, statements: []plannedStatement{*ps}}
		if !ps.unknown() || s.txn.failed || ps.class == analyze.Lock && s.txn.mode == modeIdle { // such a LOCK has no effect
			return entry, true, nil
		}
		newer, err := s.newerNames(ctx, cat, ps, params)
		if err != nil {
			entry.statements[0].plan, entry.statements[0].err = nil, err
			return entry, true, nil
		}
		if !newer { // what catalogs do not list: temporary things of a function, types and columns written like functions
			return entry, true, nil
		}
		if v, err = s.newerView(ctx, v, cat); err != nil {
			return nil, false, err
		}
		if cat, err = s.catalog(ctx, v); err != nil {
			return nil, false, err
		}
		stmts, err := analyze.Parse(ps.text)
		if err != nil {
			return nil, false, err
		}
		ps.plan, ps.err, _ = s.planOne(cat, v, stmts[0], params, false, true)
	}
	return nil, false, errStale()
}

// newerNames asks the home node about a statement: its error, or whether the names are of something that it has and the catalog
// could have.
func (s *session) newerNames(ctx context.Context, cat *catalog.Catalog, ps *plannedStatement, params []uint32) (bool, error) {
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	text, moved := ps.parsable()
	out := conn.Stream.Out()
	*out = pgwire.AppendParse(*out, "", s.onWire(conn, text), params)
	*out = pgwire.AppendSync(*out)
	if _, err := s.collect(ctx, conn); err != nil {
		var e *pgwire.Error
		if moved && errors.As(err, &e) {
			e.Position = ""
		}
		return false, err
	}
	rows, err := conn.Query(ctx, namesQuery(ps.plan.Unknown))
	if err != nil {
		return false, err
	}
	for _, r := range rows {
		oid := atoi(r[1])
		if string(r[0]) == "r" && cat.Table(oid) == nil || string(r[0]) == "f" && cat.Function(oid) == nil {
			return true, nil
		}
	}
	return false, nil
}

// namesQuery finds what names mean now, of what catalogs have.
func namesQuery(n *plan.Names) string {
	array := func(names []string) string {
		quoted := make([]string, len(names))
		for i, name := range names {
			quoted[i] = plan.QuoteLiteral(name)
		}
		return "ARRAY[" + strings.Join(quoted, ", ") + "]::pg_catalog.text[]"
	}
	return `SELECT 'r', c.oid FROM pg_catalog.unnest(` + array(n.Relations) + `) name
JOIN pg_catalog.pg_class c ON c.oid OPERATOR(pg_catalog.=) pg_catalog.to_regclass(name)
WHERE c.relpersistence OPERATOR(pg_catalog.<>) 't' AND c.relkind OPERATOR(pg_catalog.<>) ALL ('{t,i,I,c}')
UNION ALL SELECT 'f', f.oid FROM pg_catalog.pg_proc f JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) f.pronamespace
WHERE f.proname OPERATOR(pg_catalog.=) ANY (` + array(n.Functions) + `) AND n.nspname OPERATOR(pg_catalog.!~) '^pg_'`
}

// newerView waits until all routers are told of a schema that is newer than the catalog. A transaction that changed the
// schema reads it again for itself.
func (s *session) newerView(ctx context.Context, v *view, cat *catalog.Catalog) (*view, error) {
	if s.schemaChanged {
		s.ownCatalog = nil
		return v, nil
	}
	over := time.NewTimer(publishTimeout)
	defer over.Stop()
	for v.m.Schemas[s.database] <= cat.Version {
		select {
		case <-v.changed:
			v = s.router.view.Load()
		case <-over.C:
			return v, s.router.catalogs.renew(ctx, v, s.database, cat)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return v, nil
}

// parsable is a text whose names PostgreSQL looks up when it parses it, which it does not for all statements. Positions in it are
// not those of the statement when it is moved.
func (ps *plannedStatement) parsable() (text string, moved bool) {
	switch ps.class {
	case analyze.Copy, analyze.Lock, analyze.Truncate:
		if query, ok := analyze.CopyQuery(ps.text); ok {
			return query, false
		}
		if names := ps.plan.Unknown.Relations; len(names) > 0 {
			return "SELECT FROM " + strings.Join(names, " UNION ALL SELECT FROM "), true
		}
	}
	return ps.text, false
}
