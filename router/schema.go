package router

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/topo"
)

// schemaTimeout bounds the waits for other routers in a change of the schema.
const schemaTimeout = time.Minute

// schemaTable stands for the schema as a whole among the tables of a fence: every statement that
// changes the schema touches it, so that a node can join between two of them.
const schemaTable = 0

// raiseFence holds statements on these tables back in all routers until the transaction ends, and
// waits until none is under way.
func (s *session) raiseFence(ctx context.Context, tables []uint32) error {
	if len(tables) == 0 || s.fenceID != "" && s.fenceCovers(tables) {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, schemaTimeout,
		pgwire.Errorf("55P03", "could not hold back the statements of all routers in time").
			WithHint("A transaction that uses the table is still open, or a router does not answer."))
	defer cancel()
	id := s.fenceID
	if id == "" {
		var random [8]byte
		_, _ = rand.Read(random[:])
		id = hex.EncodeToString(random[:])
	}
	s.fenceID = id
	s.fence.Store(id)
	m, err := topo.UpdateMap(ctx, s.router.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		all := slices.Clone(tables)
		i := slices.IndexFunc(m.Fences, func(f keyspace.Fence) bool { return f.ID == id })
		if i >= 0 {
			all = append(all, m.Fences[i].Tables...)
			next, err := m.RemoveFence(id)
			if err != nil {
				return nil, err
			}
			m = next
		}
		for _, f := range m.Fences {
			if f.Database == s.database && slices.ContainsFunc(f.Tables, func(t uint32) bool { return slices.Contains(all, t) }) {
				return nil, pgwire.Errorf("55P03", "another change of the table is under way")
			}
		}
		slices.Sort(all)
		return m.AddFence(keyspace.Fence{ID: id, Database: s.database, Tables: slices.Compact(all), Router: s.router.cfg.Name})
	})
	if err != nil {
		return schemaError(ctx, "fencing the table", err)
	}
	if err := topo.WaitQuiet(ctx, s.router.store, m.Epoch, id); err != nil {
		return schemaError(ctx, "waiting for the routers", err)
	}
	return s.router.shutOut(ctx, m)
}

// shutOut ends the server connections of routers that are no longer members of the cluster. One
// that lives and is only cut off from the topology store would go on with a map from before the
// fence; the nodes admit it again when it has a newer one.
func (r *Router) shutOut(ctx context.Context, m *keyspace.Map) error {
	members, err := topo.Members(ctx, r.store, topo.RoleRouter)
	if err != nil {
		return schemaError(ctx, "listing the routers", err)
	}
	names := make([]string, 0, len(members))
	for _, member := range members {
		names = append(names, plan.QuoteLiteral(member.Name))
	}
	sql := fmt.Sprintf("SELECT pg_shoal.admit_only(ARRAY[%s]::text[], %d)", strings.Join(names, ", "), m.Epoch)
	g, ctx := errgroup.WithContext(ctx)
	for _, node := range homeFirst(m) {
		g.Go(func() error {
			conn, err := r.service(ctx, node, serviceDatabase)
			if err != nil {
				return err
			}
			defer r.pool.Release(conn)
			return conn.Exec(ctx, sql)
		})
	}
	return g.Wait()
}

func schemaError(ctx context.Context, doing string, err error) error {
	var e *pgwire.Error
	if errors.As(err, &e) {
		return e
	}
	if cause := context.Cause(ctx); cause != nil && errors.As(cause, &e) {
		return e
	}
	if errors.Is(err, topo.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return pgwire.Errorf("55000", "%s: the topology store is not reachable", doing).
			WithHint("Changes of the schema need it; other statements go on.")
	}
	return fmt.Errorf("%s: %w", doing, err)
}

func (s *session) fenceCovers(tables []uint32) bool {
	for _, f := range s.router.view.Load().m.Fences {
		if f.ID == s.fenceID {
			return !slices.ContainsFunc(tables, func(t uint32) bool { return !slices.Contains(f.Tables, t) })
		}
	}
	return false
}

// dropFence lets the other routers go on.
func (s *session) dropFence(ctx context.Context) {
	if s.fenceID == "" {
		return
	}
	s.task.Detach()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), schemaTimeout)
	defer cancel()
	id := s.fenceID
	_, err := topo.UpdateMap(ctx, s.router.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		if !slices.ContainsFunc(m.Fences, func(f keyspace.Fence) bool { return f.ID == id }) {
			return m, nil
		}
		return m.RemoveFence(id)
	})
	if err != nil {
		s.log.Error("a fence stays up until the controller removes it", "fence", id, "error", err)
	}
	s.fenceID = ""
	s.fence.Store("")
}

// commitSchema commits a transaction that changed the schema: what the nodes cannot check for
// themselves is checked first, and when it is durable all routers read the schema again before
// the client hears of it.
func (s *session) commitSchema(ctx context.Context) error {
	v := s.router.view.Load()
	home, err := s.participant(ctx, v.m.Home)
	if err == nil {
		err = s.flushPreamble(home)
	}
	if err == nil {
		err = s.router.storeReachable(ctx)
	}
	if err == nil {
		err = home.conn.Exec(ctx, "SELECT pg_shoal.forget_dropped(); SELECT pg_shoal.check_tables()")
	}
	if err == nil {
		err = s.checkHidden(ctx, home.conn)
	}
	if err != nil {
		return s.abort(ctx, withoutContext(err))
	}
	if err := s.commitParts(ctx); err != nil {
		return err
	}
	s.publishSchema(ctx)
	return nil
}

// hiddenCode asks for casts, operators, types and event triggers of users whose functions are neither C nor SQL's own.
const hiddenCode = `SELECT FROM pg_catalog.pg_depend d
JOIN pg_catalog.pg_proc f ON f.oid = d.refobjid AND d.refclassid = 'pg_catalog.pg_proc'::pg_catalog.regclass
JOIN pg_catalog.pg_language l ON l.oid = f.prolang AND l.lanname NOT IN ('c', 'internal')
WHERE d.classid IN ('pg_catalog.pg_cast'::pg_catalog.regclass, 'pg_catalog.pg_operator'::pg_catalog.regclass, 'pg_catalog.pg_type'::pg_catalog.regclass,
        'pg_catalog.pg_opclass'::pg_catalog.regclass, 'pg_catalog.pg_opfamily'::pg_catalog.regclass, 'pg_catalog.pg_amproc'::pg_catalog.regclass,
        'pg_catalog.pg_event_trigger'::pg_catalog.regclass)
    OR d.classid = 'pg_catalog.pg_constraint'::pg_catalog.regclass AND d.objid IN (SELECT k.oid FROM pg_catalog.pg_constraint k WHERE k.contypid <> 0)
UNION ALL SELECT FROM pg_catalog.pg_constraint k WHERE k.contypid <> 0 AND k.conbin::pg_catalog.text LIKE '%:funcid%'
LIMIT 1`

// checkHidden refuses code that reads tables where no statement shows that it runs. The catalog is read for it only if
// there is such code at all.
func (s *session) checkHidden(ctx context.Context, home *pool.Conn) error {
	rows, err := home.Query(ctx, hiddenCode)
	if err != nil || len(rows) == 0 {
		return err
	}
	cat, err := s.catalog(ctx, s.router.view.Load())
	if err != nil {
		return err
	}
	if err := plan.CheckHidden(cat); err != nil {
		return clientError(err) // it is about the schema: no node has a better word on the statement
	}
	return nil
}

// storeReachable makes sure that a change of the schema can be told to all routers before it is made.
func (r *Router) storeReachable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := r.store.Healthy(ctx); err != nil {
		return pgwire.Errorf("55000", "the topology store is not reachable").
			WithHint("Changes of the schema need it; other statements go on.")
	}
	return nil
}

const storeTimeout = 3 * time.Second

// withoutContext takes the inside of pg_shoal's functions out of an error.
func withoutContext(err error) error {
	var e *pgwire.Error
	if !errors.As(err, &e) {
		return err
	}
	out := *e
	out.Where = ""
	return &out
}

// publishSchema makes all routers read the schema again. The change is durable: when the topology
// store fails just now the client gets a warning, and the router goes on trying.
func (s *session) publishSchema(ctx context.Context) {
	id := s.fenceID
	s.fenceID = ""
	s.published(s.database, id, s.router.publish(context.WithoutCancel(ctx), s.database, id))
	s.fence.Store("")
}

// publishDatabase does the same for a database that was dropped or made.
func (s *session) publishDatabase(ctx context.Context, database string) {
	s.published(database, "", s.router.publish(context.WithoutCancel(ctx), database, ""))
}

func (s *session) published(database, id string, err error) {
	if err == nil {
		return
	}
	s.log.Error("the schema has changed, but not all routers know it yet", "database", database, "error", err)
	warning := pgwire.Noticef("01000", "the change is committed, but not all routers know it yet: %v", err)
	warning.Severity, warning.SeverityRaw = "WARNING", "WARNING"
	out := s.client.Out()
	*out = warning.AppendNoticeTo(*out)
	s.router.work.Go(func() { s.router.publishLater(database, id) })
}

// publish raises the schema's version, takes the fence down, and waits for all routers.
func (r *Router) publish(ctx context.Context, database, fence string) error {
	ctx, cancel := context.WithTimeout(ctx, schemaTimeout)
	defer cancel()
	m, err := topo.UpdateMap(ctx, r.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		if slices.ContainsFunc(m.Fences, func(f keyspace.Fence) bool { return f.ID == fence }) {
			next, err := m.RemoveFence(fence)
			if err != nil {
				return nil, err
			}
			m = next
		}
		return m.BumpSchema(database)
	})
	if err != nil {
		return err
	}
	if _, err := r.follower.Wait(ctx, m.Epoch); err != nil {
		return err
	}
	return topo.WaitAcked(ctx, r.store, m.Epoch, "")
}

// publishLater tries until it succeeds or the router ends.
func (r *Router) publishLater(database, fence string) {
	tick := time.NewTicker(storeTimeout)
	defer tick.Stop()
	for {
		select {
		case <-r.ending:
			return
		case <-tick.C:
		}
		if err := r.publish(context.Background(), database, fence); err == nil {
			r.log.Info("all routers know the new schema", "database", database)
			return
		}
	}
}
