package sqldiff

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// Target is what statements run on: one PostgreSQL with all rows, or a database of a cluster.
type Target struct {
	Name   string
	client *session
	nodes  []*node
	placed map[string]Placement
}

// errUnavailable means that the cluster does not know the layout's strategy yet.
var errUnavailable = errors.New("not available")

// newPlain fills a database of one server. With shuffled set its rows are in another order and its planner
// prefers other plans.
func newPlain(ctx context.Context, server *shardtest.Postgres, name string, rows Rows, shuffled bool) (*Target, error) {
	admin, err := connect(ctx, server.DSN("", ""), "")
	if err != nil {
		return nil, err
	}
	defer admin.close()
	if err := admin.must(ctx, "CREATE DATABASE "+name); err != nil {
		return nil, err
	}
	if shuffled {
		for _, setting := range []string{"enable_hashagg", "enable_hashjoin", "enable_indexscan", "enable_bitmapscan", "enable_memoize"} {
			if err := admin.must(ctx, "ALTER DATABASE "+name+" SET "+setting+" = off"); err != nil {
				return nil, err
			}
		}
		rows = rows.shuffled()
	}
	t := &Target{Name: name, nodes: []*node{{name: name}}}
	if t.client, err = connect(ctx, server.DSN("", ""), name); err != nil {
		return nil, err
	}
	if t.nodes[0].direct, err = connect(ctx, server.DSN("", ""), name); err != nil {
		return nil, err
	}
	return t, t.fill(ctx, nil, rows)
}

func (r Rows) shuffled() Rows {
	d := newDice(99)
	out := Rows{}
	for _, table := range tableNames() {
		lines := slices.Clone(r[table])
		d.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
		out[table] = lines
	}
	return out
}

// newLayout makes a database of a cluster in which the tables are placed by a layout.
func newLayout(ctx context.Context, c *cluster.Cluster, l Layout, rows Rows) (*Target, error) {
	database := "sqldiff_" + l.Name
	admin, err := connect(ctx, c.DSN(0), "")
	if err != nil {
		return nil, err
	}
	defer admin.close()
	if err := admin.must(ctx, "CREATE DATABASE "+database); err != nil {
		return nil, err
	}
	t := &Target{Name: fmt.Sprintf("%d nodes, %s", len(c.NodeNames()), l.Name), placed: l.Placed}
	if t.client, err = connect(ctx, c.DSN(0), database); err != nil {
		return nil, err
	}
	for _, name := range c.NodeNames() {
		direct, err := connect(ctx, c.NodeDSN(name), database)
		if err != nil {
			return nil, err
		}
		t.nodes = append(t.nodes, &node{name: name, direct: direct})
	}
	if err := t.fill(ctx, l.statements(), rows); err != nil {
		return nil, err
	}
	return t, t.findMisplaced(ctx, c.Map())
}

// fill makes the tables, places them, and copies the rows in through the front door.
func (t *Target) fill(ctx context.Context, place []string, rows Rows) error {
	ddl, err := schema()
	if err != nil {
		return err
	}
	if err := t.client.must(ctx, ddl); err != nil {
		return fmt.Errorf("%s: create the schema: %w", t.Name, err)
	}
	for _, sql := range slices.Concat([]string{"BEGIN"}, place, []string{"COMMIT"}) {
		if err := t.client.must(ctx, sql); err != nil {
			return unavailable(sql, err)
		}
	}
	for _, table := range tableNames() {
		if len(rows[table]) == 0 {
			continue
		}
		data := strings.NewReader(strings.Join(rows[table], "\n") + "\n")
		if _, err := t.client.conn.CopyFrom(ctx, data, "COPY "+table+" FROM STDIN"); err != nil {
			return fmt.Errorf("%s: fill %s: %w", t.Name, table, err)
		}
	}
	for _, n := range t.nodes {
		if err := n.direct.must(ctx, "ANALYZE"); err != nil {
			return err
		}
		if err := n.save(ctx); err != nil {
			return err
		}
	}
	return resetSequences(ctx, t.nodes[0].direct.conn)
}

// unavailable tells a strategy that is still missing from a failure.
func unavailable(sql string, err error) error {
	var pgErr *pgconn.PgError
	if strings.Contains(sql, "strategy =>") && errors.As(err, &pgErr) && (pgErr.Code == featureNotSupported || pgErr.Code == "42883") {
		return fmt.Errorf("%w: %s", errUnavailable, pgErr.Message)
	}
	return fmt.Errorf("%s: %w", sql, err)
}

// findMisplaced notes for every node which rows it must not have.
func (t *Target) findMisplaced(ctx context.Context, m *keyspace.Map) error {
	rows, err := t.nodes[0].direct.rows(ctx, "SELECT relid::regclass::text, distribution FROM pg_shoal.tables WHERE kind = 'distributed'")
	if err != nil {
		return err
	}
	for _, n := range t.nodes {
		n.misplaced = map[string]string{}
	}
	for _, r := range rows {
		var id uint32
		if _, err := fmt.Sscan(string(r[1]), &id); err != nil {
			return err
		}
		d, table := m.Distribution(id), string(r[0])
		if d == nil {
			return fmt.Errorf("the map has no distribution %d of table %s", id, table)
		}
		column := keyspace.FilterColumn{SQL: "x." + t.placed[table].Key, Type: d.Types[0]}
		for _, n := range t.nodes {
			own := []string{"false"}
			for i, shard := range d.Shards {
				if shard.Node != n.name {
					continue
				}
				f, err := d.Filter(d.Interval(i))
				if err != nil {
					return err
				}
				own = append(own, f.SQL([]keyspace.FilterColumn{column}))
			}
			n.misplaced[table] = "NOT (" + strings.Join(own, " OR ") + ")"
		}
	}
	return nil
}

// contents is what the target has in these tables, and what each of its nodes has.
func (t *Target) contents(ctx context.Context, tables []string) (all Contents, each []Contents, wrong string, err error) {
	for _, n := range t.nodes {
		c, err := n.contents(ctx, tables)
		var misplaced misplacedError
		if errors.As(err, &misplaced) {
			wrong = misplaced.message
			unchecked := *n
			unchecked.misplaced = nil
			c, err = unchecked.contents(ctx, tables)
		}
		if err != nil {
			return nil, nil, "", err
		}
		each = append(each, c)
	}
	all, apart := together(t.placed, each)
	if wrong == "" {
		wrong = apart
	}
	return all, each, wrong, nil
}

// restore brings everything back to the beginning.
func (t *Target) restore(ctx context.Context, now []Contents) error {
	for i, n := range t.nodes {
		if err := n.restore(ctx, now[i]); err != nil {
			return err
		}
	}
	return resetSequences(ctx, t.nodes[0].direct.conn)
}

func (t *Target) close() {
	t.client.close()
	for _, n := range t.nodes {
		n.direct.close()
	}
}
