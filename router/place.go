package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/topo"
)

// defaultShards is how many shards a distribution begins with.
const defaultShards = 32

// place executes create_distributed_table and its relatives in the session's transaction. Values
// are those of the parameters in the extended protocol.
func (s *session) place(ctx context.Context, p *plan.Placing, values [][]byte) error {
	args, err := placingArgs(p, values)
	if err != nil {
		return err
	}
	if err := s.inTransaction(ctx, func() error { return s.placeTable(ctx, p.Function, args) }); err != nil {
		return err
	}
	out := s.client.Out()
	if values == nil {
		*out = pgwire.AppendRowDescription(*out, []pgwire.Column{voidColumn(p.Function)})
	}
	*out = pgwire.AppendDataRow(*out, [][]byte{{}})
	s.complete("SELECT 1")
	return nil
}

func voidColumn(name string) pgwire.Column {
	c := pgwire.TextColumn(name)
	c.TypeOID, c.TypeSize, c.TypeModifier = 2278, 4, -1
	return c
}

// parameters of the placing functions, with the names that Citus gave them.
var placingParameters = map[string][]string{
	"create_distributed_table":          {"table_name", "distribution_column", "distribution_type", "colocate_with", "shard_count"},
	"create_reference_table":            {"table_name"},
	"undistribute_table":                {"table_name"},
	"citus_add_local_table_to_metadata": {"table_name", "cascade_via_foreign_keys"},
}

// mentionsPlacing reports a text that names one of these functions.
func mentionsPlacing(text []byte) bool {
	lower := bytes.ToLower(text)
	for name := range placingParameters {
		if bytes.Contains(lower, []byte(name)) {
			return true
		}
	}
	return bytes.Contains(lower, []byte("create_distributed_function"))
}

func placingArgs(p *plan.Placing, values [][]byte) (map[string]string, error) {
	names := placingParameters[p.Function]
	args := map[string]string{}
	for i, a := range p.Args {
		name := a.Name
		if name == "" {
			if i >= len(names) {
				return nil, pgwire.Errorf("42883", "function %s has at most %d arguments", p.Function, len(names))
			}
			name = names[i]
		}
		if !slices.Contains(names, name) {
			return nil, pgwire.Errorf("42883", "function %s has no argument %q", p.Function, name).
				WithHint("Its arguments are %s.", strings.Join(names, ", "))
		}
		if _, twice := args[name]; twice {
			return nil, pgwire.Errorf("42601", "argument name %q used more than once", name)
		}
		switch {
		case a.Null:
		case a.Param > 0 && a.Param <= len(values):
			if values[a.Param-1] != nil {
				args[name] = string(values[a.Param-1])
			}
		default:
			args[name] = a.Value
		}
	}
	if args["table_name"] == "" {
		return nil, pgwire.Errorf("22023", "%s needs the name of a table", p.Function)
	}
	return args, nil
}

// placement is one change of a table's placement under way.
type placement struct {
	s     *session
	m     *keyspace.Map
	home  *pool.Conn
	table *catalog.Table
	name  string // qualified and quoted
}

func (s *session) placeTable(ctx context.Context, function string, args map[string]string) error {
	if function == "citus_add_local_table_to_metadata" {
		return nil // every local table is known to every router
	}
	home, done, err := s.homeInTransaction(ctx)
	if err != nil {
		return err
	}
	defer done()
	oid, err := home.Query(ctx, "SELECT "+plan.QuoteLiteral(args["table_name"])+"::pg_catalog.regclass::pg_catalog.oid")
	if err != nil {
		return err
	}
	table := atoi(oid[0][0])
	if err := s.raiseFence(ctx, []uint32{table}); err != nil {
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
	switch function {
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

// lock keeps everybody else off the table on all nodes, and reads what it looks like.
func (p *placement) lock(ctx context.Context, oid uint32) error {
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
	p.table = t
	p.name = plan.QuoteIdent(t.Schema) + "." + plan.QuoteIdent(t.Name)
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
	if how := args["distribution_type"]; how != "" && how != "hash" {
		return pgwire.Errorf("0A000", "distribution type %q is not supported yet", how).WithHint(`Use "hash".`)
	}
	column, err := p.home.Query(ctx, "SELECT "+plan.QuoteLiteral(args["distribution_column"]))
	if err != nil {
		return err
	}
	key := p.table.Column(string(column[0][0]))
	if key < 0 {
		return pgwire.Errorf("42703", "column %q of relation %q does not exist", args["distribution_column"], p.table.Name)
	}
	kt, err := p.keyType(key)
	if err != nil {
		return err
	}
	d, err := p.distribution(ctx, kt, args)
	if err != nil {
		return err
	}
	sql := fmt.Sprintf("SELECT pg_shoal.set_table(%s, 'distributed', %d, ARRAY[%s])",
		plan.QuoteLiteral(p.name), d.ID, plan.QuoteLiteral(p.table.Columns[key].Name))
	if err := p.everywhere(ctx, sql); err != nil {
		return err
	}
	if err := p.boundSequences(ctx); err != nil {
		return err
	}
	return p.spread(ctx, d, key, kt)
}

func (p *placement) mustBeLocal() error {
	if p.table.Placement != catalog.Local {
		return pgwire.Errorf("55000", "table %q is already a %s table", p.table.Name, p.table.Placement).
			WithHint("Call undistribute_table() first.")
	}
	return nil
}

func (p *placement) keyType(key int) (keyspace.Type, error) {
	c := p.table.Columns[key]
	cat, err := p.s.catalog(context.Background(), p.s.router.view.Load())
	if err != nil {
		return 0, err
	}
	kt, ok := keyspace.TypeByOID(cat.BaseType(c.TypeOID))
	if !ok {
		return 0, pgwire.Errorf("0A000", "column %q of type %s cannot be a key", c.Name, c.TypeName).
			WithHint("Keys are integers, text, uuid, bytea, numeric, date, timestamps and boolean.")
	}
	return kt, nil
}

// distribution finds or makes the distribution that the table joins.
func (p *placement) distribution(ctx context.Context, kt keyspace.Type, args map[string]string) (*keyspace.Distribution, error) {
	count := 0
	if text := args["shard_count"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > keyspace.MaxShards {
			return nil, pgwire.Errorf("22023", "%q is not a number of shards", text).WithHint("It is from 1 to %d.", keyspace.MaxShards)
		}
		count = n
	}
	with := args["colocate_with"]
	if with == "" {
		with = "default"
	}
	if with != "default" && with != "none" {
		return p.colocated(ctx, kt, with, count)
	}
	var found *keyspace.Distribution
	m, err := topo.UpdateMap(ctx, p.s.router.store, func(m *keyspace.Map) (*keyspace.Map, error) {
		for _, d := range m.Distributions {
			if with == "default" && d.Database == p.s.database && d.SingleHash() &&
				d.Types[0] == kt.Canonical() && (count == 0 || count == len(d.Shards)) {
				found = d
				return m, nil
			}
		}
		n := count
		if n == 0 {
			n = defaultShards
		}
		next, d, err := m.CreateDistribution(p.s.database, keyspace.HashKey(kt), keyspace.Layout{Shards: n})
		found = d
		return next, err
	})
	if err != nil {
		return nil, schemaError(ctx, "making the distribution", err)
	}
	p.m = m
	return found, nil
}

func (p *placement) colocated(ctx context.Context, kt keyspace.Type, with string, count int) (*keyspace.Distribution, error) {
	oid, err := p.home.Query(ctx, "SELECT "+plan.QuoteLiteral(with)+"::pg_catalog.regclass::pg_catalog.oid")
	if err != nil {
		return nil, err
	}
	cat, err := p.s.catalog(ctx, p.s.router.view.Load())
	if err != nil {
		return nil, err
	}
	t := cat.Table(atoi(oid[0][0]))
	if t == nil || t.Placement != catalog.Distributed {
		return nil, pgwire.Errorf("55000", "table %s is not distributed", with).WithHint("Distribute it first.")
	}
	d := p.s.router.view.Load().m.Distribution(t.Distribution)
	switch {
	case d == nil:
		return nil, fmt.Errorf("distribution %d is not in the map", t.Distribution)
	case d.Types[0] != kt.Canonical():
		return nil, pgwire.Errorf("42804", "cannot co-locate with %s: its key is of type %s", with, d.Types[0])
	case count != 0 && count != len(d.Shards):
		return nil, pgwire.Errorf("22023", "cannot co-locate with %s: it has %d shards", with, len(d.Shards)).
			WithHint("Leave shard_count out.")
	}
	return d, nil
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

// spread moves the rows that the home node does not own.
func (p *placement) spread(ctx context.Context, d *keyspace.Distribution, key int, kt keyspace.Type) error {
	column := plan.QuoteIdent(p.table.Columns[key].Name)
	nulls, err := p.home.Query(ctx, "SELECT EXISTS (SELECT FROM "+p.name+" WHERE "+column+" IS NULL)")
	if err != nil {
		return err
	}
	if string(nulls[0][0]) == "t" {
		return pgwire.Errorf("23502", "column %q of relation %q contains null values", p.table.Columns[key].Name, p.table.Name).
			WithHint("A key is never null: give these rows a key first.")
	}
	if err := p.emptyOthers(ctx); err != nil {
		return err
	}
	for _, node := range homeFirst(p.m)[1:] {
		var filters []string
		for i := range d.Shards {
			if d.Shards[i].Node == node {
				low, high := d.Interval(i)
				filters = append(filters, kt.RowFilter(column, low, high))
			}
		}
		if len(filters) == 0 {
			continue
		}
		if err := p.copyRows(ctx, p.home, p.s.txn.part(node).conn, strings.Join(filters, " OR ")); err != nil {
			return onNode(node, err)
		}
	}
	low, high := keepIntervals(d, p.m.Home)
	return p.home.Exec(ctx, fmt.Sprintf("SELECT pg_shoal.remove_rows(%s, %s, %s)", plan.QuoteLiteral(p.name), low, high))
}

// keepIntervals are the intervals of a node as arrays of signed hashes.
func keepIntervals(d *keyspace.Distribution, node string) (low, high string) {
	var lows, highs []string
	for i := range d.Shards {
		if d.Shards[i].Node != node {
			continue
		}
		l, h := d.Interval(i)
		from := hashBound(l)
		if len(l) == 0 {
			from = strconv.FormatInt(-1<<63, 10)
		}
		lows = append(lows, from)
		if h == nil {
			highs = append(highs, "NULL")
		} else {
			highs = append(highs, hashBound(h))
		}
	}
	return "'{" + strings.Join(lows, ",") + "}'::bigint[]", "'{" + strings.Join(highs, ",") + "}'::bigint[]"
}

// emptyOthers removes what a routine may have left in a local table on other nodes than home.
func (p *placement) emptyOthers(ctx context.Context) error {
	return p.onOthers(ctx, func(c *pool.Conn) error {
		return c.Exec(ctx, "SELECT pg_shoal.remove_rows("+plan.QuoteLiteral(p.name)+", '{}', '{}')")
	})
}

// copyRows streams rows from one node to another, in both nodes' transactions.
func (p *placement) copyRows(ctx context.Context, from, to *pool.Conn, where string) error {
	var columns []string
	for i := range p.table.Columns {
		if p.table.Columns[i].Generated == 0 {
			columns = append(columns, plan.QuoteIdent(p.table.Columns[i].Name))
		}
	}
	list := strings.Join(columns, ", ")
	restore, err := p.quietTriggers(ctx, to)
	if err != nil {
		return err
	}
	from.SendQuery("COPY (SELECT " + list + " FROM " + p.name + " WHERE " + where + ") TO STDOUT (FORMAT binary)")
	to.SendQuery("COPY " + p.name + " (" + list + ") FROM STDIN (FORMAT binary)")
	if err := pipe(from, to); err != nil {
		return err
	}
	return restore()
}

// quietTriggers switches the table's own triggers off while rows only change their place.
func (p *placement) quietTriggers(ctx context.Context, c *pool.Conn) (restore func() error, err error) {
	how := map[byte]string{'O': "ENABLE TRIGGER ", 'R': "ENABLE REPLICA TRIGGER ", 'A': "ENABLE ALWAYS TRIGGER "}
	for _, t := range p.table.Triggers {
		if how[t.Enabled] == "" {
			continue
		}
		if err := c.Exec(ctx, "ALTER TABLE "+p.name+" DISABLE TRIGGER "+plan.QuoteIdent(t.Name)); err != nil {
			return nil, err
		}
	}
	return func() error {
		for _, t := range p.table.Triggers {
			if how[t.Enabled] == "" {
				continue
			}
			if err := c.Exec(ctx, "ALTER TABLE "+p.name+" "+how[t.Enabled]+plan.QuoteIdent(t.Name)); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// pipe passes COPY data from one connection to another and reads both answers.
func pipe(from, to *pool.Conn) error {
	target := &copyTarget{part: &participant{node: to.Key.Node, conn: to}}
	if _, err := beginCopy(target.part); err != nil {
		from.Broken = true // its COPY was queued and not read
		return err
	}
	if err := from.Stream.Flush(); err != nil {
		from.Broken = true
		return lostNode(from.Key.Node)
	}
	var failure error
	for {
		typ, msg, err := from.Stream.Next()
		if err != nil {
			from.Broken = true
			_ = failCopies([]*copyTarget{target}, "the source is gone")
			return lostNode(from.Key.Node)
		}
		switch typ {
		case 'd':
			to.Stream.Append(msg)
			if to.Stream.Pending() >= copyChunk {
				if err := to.Stream.Flush(); err != nil && !errors.Is(err, io.EOF) {
					to.Broken = true
				}
			}
		case 'E':
			failure = pgwire.ParseError(msg)
		case 'Z':
			from.TxStatus = pgwire.ReadyStatus(msg)
			if failure != nil {
				_ = failCopies([]*copyTarget{target}, "the source failed")
				return failure
			}
			out := to.Stream.Out()
			*out = pgwire.AppendCopyDone(*out)
			return endCopies([]*copyTarget{target})
		}
	}
}

// reference makes the table's rows the same on all nodes.
func (p *placement) reference(ctx context.Context) error {
	if err := p.mustBeLocal(); err != nil {
		return err
	}
	if err := p.emptyOthers(ctx); err != nil {
		return err
	}
	if err := p.everywhere(ctx, "SELECT pg_shoal.set_table("+plan.QuoteLiteral(p.name)+", 'reference', NULL, '{}')"); err != nil {
		return err
	}
	for _, node := range homeFirst(p.m)[1:] {
		if err := p.copyRows(ctx, p.home, p.s.txn.part(node).conn, "true"); err != nil {
			return onNode(node, err)
		}
	}
	return nil
}

// undistribute brings all rows back to the home node.
func (p *placement) undistribute(ctx context.Context) error {
	if p.table.Placement == catalog.Local {
		return pgwire.Errorf("55000", "table %q is not distributed", p.table.Name)
	}
	if p.table.Placement == catalog.Distributed {
		for _, node := range homeFirst(p.m)[1:] {
			if err := p.copyRows(ctx, p.s.txn.part(node).conn, p.home, "true"); err != nil {
				return onNode(node, err)
			}
		}
	}
	if err := p.emptyOthers(ctx); err != nil {
		return err
	}
	return p.everywhere(ctx, "SELECT pg_shoal.unset_table("+plan.QuoteLiteral(p.name)+")")
}
