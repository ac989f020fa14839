package router

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
)

// place executes create_distributed_table and its relatives in the session's transaction. Values
// are those of the parameters in the extended protocol.
func (s *session) place(ctx context.Context, p *plan.Placing, values [][]byte) error {
	if p.Explain != "" {
		return s.explainPlacing(ctx, p, values)
	}
	if p.Function == "directory_set" && s.txn.mode != modeIdle {
		return errInBlock(p)
	}
	rows := [][][]byte{{{}}}
	err := s.inTransaction(ctx, func() (err error) {
		switch {
		case isDirectoryCall(p.Function):
			rows, err = s.directoryFunction(ctx, p, values)
		case placesSchema(p.Function):
			err = s.placeSchema(ctx, p, values)
		case placingParameters[p.Function][0] == "function_name":
			err = s.placeFunction(ctx, p, values)
		default:
			err = s.placeTable(ctx, p, values)
		}
		return err
	})
	if err != nil {
		return err
	}
	out := s.client.Out()
	if values == nil {
		*out = pgwire.AppendRowDescription(*out, placingColumns(p.Function))
	}
	for _, r := range rows {
		*out = pgwire.AppendDataRow(*out, r)
	}
	s.complete("SELECT " + itoa(len(rows)))
	return nil
}

// placingColumns are the columns of a call's result.
func placingColumns(function string) []pgwire.Column {
	if isDirectoryCall(function) {
		return textColumns(directoryColumns(function))
	}
	return []pgwire.Column{voidColumn(function)}
}

func voidColumn(name string) pgwire.Column {
	c := pgwire.TextColumn(name)
	c.TypeOID, c.TypeSize, c.TypeModifier = 2278, 4, -1
	return c
}

// placement is one change of a table's placement under way.
type placement struct {
	s     *session
	m     *keyspace.Map
	home  *pool.Conn
	cat   *catalog.Catalog
	table *catalog.Table
	name  string // qualified and quoted
}

func (s *session) placeTable(ctx context.Context, call *plan.Placing, values [][]byte) error {
	home, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return err
	}
	defer done()
	args, err := placingArgs(ctx, call, values, home)
	if err != nil {
		return err
	}
	if call.Function == "citus_add_local_table_to_metadata" {
		return nil // every local table is known to every router
	}
	table, err := tableOID(ctx, home, args["table_name"])
	if err != nil {
		return err
	}
	cat, err := s.catalog(ctx, s.router.view.Load())
	if err != nil {
		return err
	}
	// Statements that come to the table through views and triggers do not name it.
	if err := s.raiseFence(ctx, plan.Reaching(cat, []uint32{table})); err != nil {
		return err
	}
	m, err := s.enterAny(ctx, []uint32{schemaTable, table})
	if err != nil {
		return err
	}
	s.schemaChanged, s.ownCatalog = true, nil
	pl := &placement{s: s, m: m, home: home}
	if err := pl.lock(ctx, table); err != nil {
		return err
	}
	switch call.Function {
	case "create_distributed_table":
		err = pl.distribute(ctx, args)
	case "create_reference_table":
		err = pl.reference(ctx)
	default:
		err = pl.undistribute(ctx)
	}
	s.ownCatalog = nil // it was read before the placement changed
	return err
}

// tableOID finds a table by its name, as the session's search path does.
func tableOID(ctx context.Context, home *pool.Conn, name string) (uint32, error) {
	rows, err := home.Query(ctx, "SELECT "+plan.QuoteLiteral(name)+"::pg_catalog.regclass::pg_catalog.oid")
	if err != nil {
		return 0, err
	}
	return atoi(rows[0][0]), nil
}

// look reads what the table looks like.
func (p *placement) look(ctx context.Context, oid uint32) error {
	cat, err := p.s.catalog(ctx, p.s.router.view.Load())
	if err != nil {
		return err
	}
	t := cat.Table(oid)
	switch {
	case t == nil || t.Kind != catalog.KindTable && t.Kind != catalog.KindPartitioned || oid < firstUserOID:
		return pgwire.Errorf("42809", "only ordinary and partitioned tables can be distributed").
			WithHint("Views, foreign, temporary and system tables stay where they are.")
	case t.IsPartition:
		return pgwire.Errorf("42809", "table %q is a partition", t.Name).WithHint("Distribute the partitioned table.")
	}
	p.cat, p.table = cat, t
	p.name = plan.QuoteIdent(t.Schema) + "." + plan.QuoteIdent(t.Name)
	return nil
}

// lock keeps everybody else off the table on all nodes, and reads what it looks like.
func (p *placement) lock(ctx context.Context, oid uint32) error {
	if err := p.look(ctx, oid); err != nil {
		return err
	}
	if err := p.home.Exec(ctx, "LOCK TABLE "+p.name+" IN ACCESS EXCLUSIVE MODE"); err != nil {
		return err
	}
	return p.onOthers(ctx, func(conn *pool.Conn) error { return conn.Exec(ctx, "LOCK TABLE "+p.name+" IN ACCESS EXCLUSIVE MODE") })
}

// onOthers does something on all nodes but home, in parallel.
func (p *placement) onOthers(ctx context.Context, do func(*pool.Conn) error) error {
	var g errgroup.Group
	for _, name := range homeFirst(p.m)[1:] {
		part, err := p.s.participant(ctx, name)
		if err != nil {
			return errors.Join(err, g.Wait())
		}
		part.wrote = true
		g.Go(func() error {
			if err := p.s.flushPreamble(part); err != nil {
				return err
			}
			return onNode(name, do(part.conn))
		})
	}
	return g.Wait()
}

// everywhere runs a statement on all nodes.
func (p *placement) everywhere(ctx context.Context, sql string) error {
	if err := p.home.Exec(ctx, sql); err != nil {
		return err
	}
	p.s.txn.part(p.m.Home).wrote = true
	return p.onOthers(ctx, func(c *pool.Conn) error { return c.Exec(ctx, sql) })
}

func (p *placement) distribute(ctx context.Context, args map[string]string) error {
	if err := p.mustBeLocal(); err != nil {
		return err
	}
	spec, err := readSpec(args)
	if err != nil {
		return err
	}
	key, d, err := p.resolve(ctx, spec)
	if err != nil {
		return err
	}
	if d == nil {
		if d, err = p.distribution(ctx, spec, key); err != nil {
			return err
		}
	}
	names := make([]string, len(key.columns))
	for i, c := range key.columns {
		names[i] = plan.QuoteLiteral(p.table.Columns[c].Name)
	}
	sql := fmt.Sprintf("SELECT pg_shoal.set_table(%s, 'distributed', %d, ARRAY[%s]::pg_catalog.name[])",
		plan.QuoteLiteral(p.name), d.ID, strings.Join(names, ", "))
	if err := p.everywhere(ctx, sql); err != nil {
		return err
	}
	if err := p.boundSequences(ctx); err != nil {
		return err
	}
	if err := p.checkKeys(ctx, key); err != nil {
		return err
	}
	if err := p.assignKeys(ctx, d, key, true); err != nil {
		return err
	}
	return p.spread(ctx, d, key)
}

func (p *placement) mustBeLocal() error {
	if p.inSchema() {
		return pgwire.Errorf("55000", "table %q is where its schema %q is", p.table.Name, p.table.Schema).
			WithHint("Create it in a schema that is not distributed.")
	}
	if p.table.Placement != catalog.Local {
		return pgwire.Errorf("55000", "table %q is already a %s table", p.table.Name, p.table.Placement).
			WithHint("Call undistribute_table() first.")
	}
	return nil
}

// inSchema reports a table that is placed by its schema.
func (p *placement) inSchema() bool {
	return p.table.Placement == catalog.Distributed && len(p.table.Key) == 0
}

// boundSequences keeps the home node's sequences inside the home node's block.
func (p *placement) boundSequences(ctx context.Context) error {
	for i := range p.table.Columns {
		c := &p.table.Columns[i]
		if c.SequenceOID == 0 || c.SequenceType != "bigint" || !c.SequencePlaced {
			continue
		}
		rows, err := p.home.Query(ctx, fmt.Sprintf("SELECT %d::pg_catalog.regclass::pg_catalog.text", c.SequenceOID))
		if err != nil {
			return err
		}
		if err := p.home.Exec(ctx, fmt.Sprintf("ALTER SEQUENCE %s MAXVALUE %d", rows[0][0], int64(1)<<48-1)); err != nil {
			return err
		}
	}
	return nil
}
