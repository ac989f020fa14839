package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// checkPlaced asks every node directly: a distributed table has exactly want rows, each on the node
// that the map names for its key and on no other. It returns how many rows each node has.
func checkPlaced(t testing.TB, c *cluster.Cluster, table, key string, want int) map[string]int {
	t.Helper()
	m := c.Map()
	counts := map[string]int{}
	total := 0
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		own := ownRows(t, conn, m, node, table, key)
		var all, right int
		sql := fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE %s) FROM %s", own, table)
		if err := conn.QueryRow(t.Context(), sql).Scan(&all, &right); err != nil {
			t.Fatalf("%s\n%v", sql, err)
		}
		if all != right {
			t.Errorf("%s has %d rows of %s, of which only %d belong there", node, all, table, right)
		}
		counts[node] = all
		total += all
	})
	if total != want {
		t.Errorf("the nodes have %d rows of %s, not %d: %v", total, table, want, counts)
	}
	return counts
}

// ownRows is the SQL condition for the rows that belong on a node, from the map in the store and
// what the node itself says about the table.
func ownRows(t testing.TB, conn *pgx.Conn, m *keyspace.Map, node, table, key string) string {
	t.Helper()
	var id int64
	var columns string
	var oid uint32
	err := conn.QueryRow(t.Context(), `SELECT s.distribution, a.attname,
		(WITH RECURSIVE base AS (SELECT a.atttypid AS oid UNION ALL
			SELECT t.typbasetype FROM pg_type t JOIN base ON base.oid = t.oid WHERE t.typtype = 'd')
		SELECT base.oid FROM base JOIN pg_type t ON t.oid = base.oid WHERE t.typtype <> 'd')
		FROM pg_shoal.tables s JOIN pg_attribute a ON a.attrelid = s.relid AND a.attnum = s.key_columns[1]
		WHERE s.relid = $1::text::regclass`, table).Scan(&id, &columns, &oid)
	if err != nil {
		t.Fatalf("%s does not know table %s as distributed: %v", node, table, err)
	}
	if columns != key {
		t.Errorf("the key of %s on %s is %q, not %q", table, node, columns, key)
	}
	kind, ok := keyspace.TypeByOID(oid)
	d := m.Distribution(uint32(id))
	if !ok || d == nil {
		t.Fatalf("table %s on %s: key type %d, distribution %d: not in the map", table, node, oid, id)
	}
	filters := []string{"false"}
	for i := range d.Shards {
		if d.Shards[i].Node == node {
			low, high := d.Interval(i)
			filters = append(filters, kind.RowFilter(pgx.Identifier{key}.Sanitize(), low, high))
		}
	}
	return strings.Join(filters, " OR ")
}

// checkReference asks every node directly: a reference table has the same rows everywhere.
func checkReference(t testing.TB, c *cluster.Cluster, table string, want int) {
	t.Helper()
	sum := fmt.Sprintf("SELECT count(*), coalesce(sum(hashtextextended(r::text, 0)), 0) FROM %s r", table)
	first := ""
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		got := ask(t, conn, sum)
		if first == "" {
			first = got
		}
		if got != first || !strings.HasPrefix(got, fmt.Sprintf("%d|", want)) {
			t.Errorf("%s has %s in reference table %s, not %d rows like the others (%s)", node, got, table, want, first)
		}
	})
}

// checkLocal asks every node directly: all rows are on the home node.
func checkLocal(t testing.TB, c *cluster.Cluster, table string, want int) {
	t.Helper()
	home := c.Map().Home
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		expected := 0
		if node == home {
			expected = want
		}
		expect(t, conn, fmt.Sprint(expected), "SELECT count(*) FROM "+table)
		expect(t, conn, "0", "SELECT count(*) FROM pg_shoal.tables WHERE relid = $1::text::regclass", table)
	})
}
