package integration

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// strategies are the ways to spread the same tables. Each has a schema of its own.
var strategies = []struct {
	name    string
	args    string // of create_distributed_table after the table's name
	with    string // arguments for the table of lines, which joins the distribution of orders
	oneNode string // the numbers of the scenario's reads that one node has all rows for
	by      string // what SHOW shoal.tables says
}{
	{"hash_one", `'tenant_id'`, `'tenant_id', colocate_with => 'orders'`, "1 2 3 4 5 13 14 16", "hash(tenant_id)"},
	{"hash_two", `ARRAY['region', 'tenant_id'], strategy => 'hash', shard_count => 7`, `'region, tenant_id', colocate_with => 'orders'`, "1 2 3 13", "hash(region, tenant_id)"},
	{"hash_range", `'tenant_id, created_at', hash_columns => 1`, `'tenant_id, created_at', colocate_with => 'orders'`, "1 2 3 4 5 13 14 16", "hash(tenant_id), range(created_at)"},
	{
		"range_time", `'created_at', 'range', split_at => ARRAY['2026-01-11', '2026-01-21', '2026-02-01'::timestamptz]`,
		`'created_at', strategy => 'range', colocate_with => 'orders'`, "1 2 5 6 7 13", "range(created_at)",
	},
	{
		"range_two", `'tenant_id, created_at', strategy => 'range', split_at => ARRAY[ARRAY['6', '2026-01-16'], ARRAY['11', '2026-01-01'], ARRAY['16', '-infinity']]`,
		`'tenant_id, created_at', colocate_with => 'orders'`, "1 2 3 4 5 11 12 13 14 16", "range(tenant_id, created_at)",
	},
	{
		"list_one", `'region', strategy => 'list', regions => '{"eu": ["de", "fr"], "us": ["us"]}', default_region => 'us', shard_count => 4`,
		`'region', colocate_with => 'orders'`, "1 2 3 8 9 13", "list(region), hash(region)",
	},
	{
		"list_hash", `'region, tenant_id', strategy => 'list', regions => '{"eu": ["de", "fr"], "us": ["us", "jp"]}', shard_count => 3`,
		`'region, tenant_id', colocate_with => 'orders'`, "1 2 3 8 9 13", "list(region), hash(tenant_id)",
	},
	{
		"composite", `NULL, strategy => 'list(region), hash(tenant_id), range(created_at)', regions => '{"eu": ["de", "fr"], "us": ["us"]}', default_region => 'us'`,
		`'region, tenant_id, created_at', colocate_with => 'orders'`, "1 2 3 8 9 13", "list(region), hash(tenant_id), range(created_at)",
	},
}

const scenarioTables = `
CREATE TABLE orders (region text, tenant_id bigint, created_at timestamptz, id bigint, amount numeric(12,2), note text,
	PRIMARY KEY (region, tenant_id, created_at, id));
CREATE TABLE lines (region text, tenant_id bigint, created_at timestamptz, order_id bigint, n int, sku text,
	PRIMARY KEY (region, tenant_id, created_at, order_id, n),
	FOREIGN KEY (region, tenant_id, created_at, order_id) REFERENCES orders ON DELETE CASCADE);
INSERT INTO orders SELECT (ARRAY['de','fr','us','jp'])[1 + t % 4], t, timestamptz '2026-01-01 00:00+00' + make_interval(days => d), t * 1000 + d, t + d * 0.25, 'note ' || d
	FROM generate_series(1, 20) t, generate_series(0, 40) d;
INSERT INTO lines SELECT region, tenant_id, created_at, id, n, 'sku' || n FROM orders, generate_series(1, 2) n;
`

const scenarioOrders, scenarioLines = 20 * 41, 20 * 41 * 2

// scenarioReads are the application's questions; whether one node has the rows depends on the strategy.
var scenarioReads = []string{
	"SELECT * FROM orders WHERE region = 'us' AND tenant_id = 2 AND created_at = '2026-01-05 00:00+00' AND id = 2004",
	"SELECT count(*), sum(amount), min(note) FROM orders WHERE region = 'fr' AND tenant_id = 5 AND created_at >= '2026-01-02 00:00+00' AND created_at < '2026-01-09 00:00+00'",
	"SELECT count(*), sum(amount) FROM orders WHERE region = 'fr' AND tenant_id = 5",
	"SELECT count(*), sum(amount) FROM orders WHERE tenant_id = 7",
	"SELECT count(*), max(amount) FROM orders WHERE tenant_id = 3 AND created_at BETWEEN '2026-01-12 00:00+00' AND '2026-01-19 00:00+00'",
	"SELECT count(*), max(amount) FROM orders WHERE created_at >= '2026-01-12 00:00+00' AND created_at < '2026-01-20 00:00+00'",
	"SELECT count(*) FROM orders WHERE created_at > '2026-02-05 00:00+00'",
	"SELECT count(*), sum(tenant_id) FROM orders WHERE region = 'us'",
	"SELECT count(*), sum(tenant_id) FROM orders WHERE region = 'jp' AND created_at >= '2026-01-12 00:00+00'",
	"SELECT count(*) FROM orders WHERE region IN ('de', 'fr')",
	"SELECT count(*) FROM orders WHERE tenant_id < 4",
	"SELECT id FROM orders WHERE (tenant_id, created_at) > (18, '2026-02-08 00:00+00') AND tenant_id < 19 ORDER BY id",
	`SELECT o.id, l.sku FROM orders o JOIN lines l ON l.region = o.region AND l.tenant_id = o.tenant_id AND l.created_at = o.created_at AND l.order_id = o.id
		WHERE o.region = 'us' AND o.tenant_id = 6 AND o.created_at = '2026-01-21 00:00+00' ORDER BY 1, 2`,
	`SELECT count(*) FROM orders o JOIN lines l USING (region, tenant_id, created_at) WHERE o.tenant_id = 9`,
	"SELECT count(*) FROM orders",
	"SELECT count(*) FROM orders WHERE tenant_id = 5 AND tenant_id = 6",
	"SELECT count(*) FROM orders WHERE region IS NULL",
}

// scenarioWrites change rows by their whole key, which every strategy must do on one node.
var scenarioWrites = []string{
	"INSERT INTO orders VALUES ('de', 40, '2026-01-11 00:00+00', 1, 5.5, 'new')",
	"INSERT INTO orders VALUES ('us', 41, 'infinity', 1, 5.5, 'never'), ('us', 41, 'infinity', 2, 5.5, 'never') RETURNING id, note",
	"INSERT INTO orders (id, created_at, tenant_id, region) VALUES (9, DATE '2026-03-01', 7, 'jp') RETURNING *",
	"INSERT INTO orders VALUES ('de', 40, '2026-01-11 00:00+00', 1, 6, 'again') ON CONFLICT (region, tenant_id, created_at, id) DO UPDATE SET note = excluded.note RETURNING note",
	"UPDATE orders SET amount = amount * 2 WHERE region = 'de' AND tenant_id = 4 AND created_at = '2026-01-03 00:00+00' RETURNING amount",
	"DELETE FROM orders WHERE region = 'fr' AND tenant_id = 1 AND created_at = '2026-01-06 00:00+00'",
	"INSERT INTO lines VALUES ('de', 40, '2026-01-11 00:00+00', 1, 1, 'sku')",
}

// TestStrategies tells the same story under every strategy, and on one PostgreSQL that has all rows.
func TestStrategies(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	for _, st := range strategies {
		t.Run(st.name, func(t *testing.T) {
			direct, routed := connect(t, plain.DSN("", "")), connect(t, shared().DSN(0))
			for _, conn := range []*pgx.Conn{direct, routed} {
				run(t, conn, "SET timezone = 'UTC'", "CREATE SCHEMA "+st.name, "SET search_path = "+st.name, scenarioTables)
			}
			run(t, routed, "BEGIN", "SELECT create_distributed_table('orders', "+st.args+")",
				"SELECT create_distributed_table('lines', "+st.with+")", "COMMIT")
			checkPoints(t, shared(), st.name, "orders", scenarioOrders)
			checkPoints(t, shared(), st.name, "lines", scenarioLines)
			if tables := ask(t, routed, "SHOW shoal.tables"); !strings.Contains(tables, st.name+"|orders|distributed|") || !strings.Contains(tables, "|"+st.by) {
				t.Errorf("SHOW shoal.tables:\n%s", tables)
			}
			compareReads(t, direct, routed, st.name, st.oneNode)
			for _, sql := range scenarioWrites {
				if got, want := ask(t, routed, sql), ask(t, direct, sql); got != want {
					t.Errorf("%s\nanswered\n%s\nnot\n%s", sql, got, want)
				}
			}
			copyScenario(t, direct, routed)
			rows := 0
			if _, err := fmt.Sscan(ask(t, direct, "SELECT count(*) FROM orders"), &rows); err != nil {
				t.Fatal(err)
			}
			checkPoints(t, shared(), st.name, "orders", rows)
			compareReads(t, direct, routed, st.name, st.oneNode)
			run(t, routed, "BEGIN", "SELECT undistribute_table('orders')", "SELECT undistribute_table('lines')", "COMMIT")
			checkLocal(t, shared(), st.name+".orders", rows)
			expect(t, routed, ask(t, direct, "SELECT count(*), sum(hashtextextended(o::text, 0)) FROM orders o"),
				"SELECT count(*), sum(hashtextextended(o::text, 0)) FROM orders o")
		})
	}
}

// compareReads asks both, and finds out which reads the router sends to one node as they are.
func compareReads(t *testing.T, direct, routed *pgx.Conn, schema, onOneNode string) {
	t.Helper()
	var got []string
	for i, sql := range scenarioReads {
		rows, ok := answers(t, routed, sql)
		if !ok {
			continue
		}
		if want := ask(t, direct, sql); rows != want {
			t.Errorf("%s\nanswered\n%s\nnot\n%s", sql, rows, want)
		}
		if line := routeLine.FindStringSubmatch(ask(t, routed, "EXPLAIN "+sql, pgx.QueryExecModeSimpleProtocol)); line != nil {
			got = append(got, strconv.Itoa(i+1))
			checkPruned(t, schema, sql, line[1])
		}
	}
	if numbers := strings.Join(got, " "); numbers != onOneNode {
		t.Errorf("EXPLAIN shows one node for the reads %s, not %s", numbers, onOneNode)
	}
}

// checkPruned asks the nodes: none but the one that EXPLAIN names has rows for the statement.
func checkPruned(t *testing.T, schema, sql, named string) {
	t.Helper()
	_, where, plain := strings.Cut(sql, " FROM orders WHERE ")
	if !plain {
		return
	}
	where, _, _ = strings.Cut(where, " ORDER BY ")
	onNodes(t, shared(), "postgres", func(node string, conn *pgx.Conn) {
		if n := ask(t, conn, "SELECT count(*) FROM "+schema+".orders WHERE "+where); node != named && n != "0" {
			t.Errorf("%s\nruns on %s, and %s has %s rows for it", sql, named, node, n)
		}
	})
}

// copyScenario loads rows with COPY in each format.
func copyScenario(t *testing.T, direct, routed *pgx.Conn) {
	t.Helper()
	for _, c := range []struct{ options, data string }{
		{"(region, tenant_id, created_at, id) FROM STDIN", "de\t50\t2026-01-01 00:00:00+00\t1\nus\t51\t2026-01-15 00:00:00+00\t1\njp\t52\t2026-02-15 00:00:00+00\t1\nfr\t53\t-infinity\t1\n"},
		{"(id, note, created_at, tenant_id, region) FROM STDIN (FORMAT csv)", "2,\"a, b\",January 8 2026,50,de\n2,,\"2026-01-25 12:00+02\",51,us\n2,,2026-01-31,19,\"jp\"\n"},
	} {
		for _, conn := range []*pgx.Conn{direct, routed} {
			tag, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(c.data), "COPY orders "+c.options)
			if err != nil {
				t.Fatal(describe(err))
			}
			if want := int64(strings.Count(c.data, "\n")); tag.RowsAffected() != want {
				t.Errorf("COPY counted %d rows, not %d", tag.RowsAffected(), want)
			}
		}
	}
	rows := make([][]any, 300)
	for i := range rows {
		rows[i] = []any{[]string{"de", "fr", "us", "jp"}[i%4], int64(60 + i%7), time.Date(2026, 1, 1+i%45, 3, 0, 0, i*1000, time.UTC), int64(i)}
	}
	for _, conn := range []*pgx.Conn{direct, routed} {
		n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"orders"}, []string{"region", "tenant_id", "created_at", "id"}, pgx.CopyFromRows(rows))
		if err != nil || n != int64(len(rows)) {
			t.Fatalf("binary COPY: %d rows, %v", n, err)
		}
	}
}

// checkPoints asks every node directly for the keys of its rows and computes where they belong: a table has exactly
// want rows, each on the node that the map names for its point. It returns how many rows each node has.
func checkPoints(t testing.TB, c *cluster.Cluster, schema, table string, want int) map[string]int {
	t.Helper()
	m := c.Map()
	counts, total := map[string]int{}, 0
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		var id uint32
		var columns []string
		var oids []uint32
		err := conn.QueryRow(t.Context(), `SELECT s.distribution, array_agg(a.attname::text ORDER BY k.n), array_agg(a.atttypid ORDER BY k.n)
			FROM pg_shoal.tables s, unnest(s.key_columns) WITH ORDINALITY k(num, n), pg_attribute a
			WHERE s.relid = $1::text::regclass AND a.attrelid = s.relid AND a.attnum = k.num GROUP BY 1`, schema+"."+table).Scan(&id, &columns, &oids)
		if err != nil {
			t.Fatalf("%s does not know table %s as distributed: %v", node, table, err)
		}
		d := m.Distribution(id)
		rows, err := conn.Query(t.Context(), fmt.Sprintf("SELECT %s FROM %s.%s", strings.Join(columns, ", "), schema, table), pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			if at := d.Shards[d.Find(pointOf(t, d, oids, rows.RawValues()))].Node; at != node {
				t.Errorf("%s has a row of %s with key %q, which belongs on %s", node, table, rows.RawValues(), at)
			}
			counts[node]++
			total++
		}
		if rows.Err() != nil {
			t.Fatal(rows.Err())
		}
	})
	if total != want {
		t.Errorf("the nodes have %d rows of %s, not %d: %v", total, table, want, counts)
	}
	return counts
}

// pointOf computes the point of a key in text.
func pointOf(t testing.TB, d *keyspace.Distribution, oids []uint32, key [][]byte) []byte {
	t.Helper()
	var point []byte
	for _, c := range d.Components() {
		var types []keyspace.Type
		var values []keyspace.Value
		for _, at := range c.Columns {
			kt, _ := keyspace.TypeByOID(oids[at])
			types, values = append(types, kt), append(values, keyspace.Value{Data: key[at], From: kt})
		}
		var err error
		if point, err = d.AppendComponent(point, &c, types, values); err != nil {
			t.Fatalf("the point of %q: %v", key, err)
		}
	}
	return point
}

var routeLine = regexp.MustCompile(`Route +\(node: (\w+)`)
