package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// movingTables makes two distributed tables that are not co-located, and the same rows in local ones.
func movingTables(t testing.TB, conn *pgx.Conn, prefix string, rows int) {
	t.Helper()
	for _, p := range []string{prefix + "_", prefix + "_local_"} {
		run(t, conn,
			fmt.Sprintf("CREATE TABLE %sa (id bigint PRIMARY KEY, n int, word text, grp int)", p),
			fmt.Sprintf("CREATE TABLE %sb (id int PRIMARY KEY, a_id bigint, a_n smallint, word text, v numeric)", p),
			fmt.Sprintf("CREATE TABLE %sc (grp int PRIMARY KEY, title text, pad text)", p))
		if p == prefix+"_" {
			run(t, conn, fmt.Sprintf("SELECT create_distributed_table('%sa', 'id')", p),
				fmt.Sprintf("SELECT create_distributed_table('%sb', 'id', colocate_with => 'none')", p),
				fmt.Sprintf("SELECT create_distributed_table('%sc', 'grp', colocate_with => 'none')", p))
		}
		run(t, conn,
			fmt.Sprintf("INSERT INTO %sa SELECT g, nullif(g %% 5000, 7), 'word ' || g %% 9000, g %% 11 FROM generate_series(1, %d) g", p, rows),
			fmt.Sprintf("INSERT INTO %sb SELECT g, nullif(g * 3, 30), (g %% 4000), nullif('word ' || g, 'word 5'), g / 7.0 FROM generate_series(1, %d) g", p, rows/2),
			fmt.Sprintf("INSERT INTO %sc SELECT g, 'title ' || g, repeat('x', 80000) FROM generate_series(0, 20) g", p))
	}
	run(t, conn, "ANALYZE")
}

// Rows that move between nodes give the answer that one PostgreSQL gives, whichever way they go.
func TestRowsMove(t *testing.T) {
	t.Parallel()
	conn := client(t)
	movingTables(t, conn, "moving", 12000)
	for _, c := range []struct{ how, sql string }{
		{"to every node", "SELECT c.title, count(*), sum(a.n) FROM {a} a JOIN {c} c ON c.grp = a.grp GROUP BY c.title ORDER BY 1"},
		{"to every node", "SELECT count(*), count(c.grp) FROM {a} a LEFT JOIN {c} c ON c.grp = a.n"},
		{"to every node", "SELECT a.id, c.title FROM {a} a, {c} c WHERE c.grp > a.grp + 9 ORDER BY a.id DESC, c.grp LIMIT 7"},
		{"by b.a_id", "SELECT count(*), sum(b.v), min(a.word) FROM {a} a JOIN {b} b ON b.a_id = a.id"},
		{"by b.a_id", "SELECT count(*), count(a.id), sum(b.v) FROM {b} b LEFT JOIN {a} a ON a.id = b.a_id"},
		{"by b.a_id", "SELECT count(*), count(a.id), count(b.a_id), sum(b.v) FROM {b} b FULL JOIN {a} a ON a.id = b.a_id"},
		{"by b.a_id", "SELECT b.a_id IS NULL, count(*) FROM {b} b JOIN {a} a ON a.id = coalesce(b.a_id, 1) AND a.id = b.a_id GROUP BY 1"},
		{"by b.a_id", "SELECT count(*) FROM {a} a JOIN {b} b ON b.a_id = a.id WHERE now() > '2001-01-01'"},
		{"by a.word", "SELECT count(*), sum(a.id), sum(b.id) FROM {a} a FULL JOIN {b} b ON b.word = a.word"},
		{"to every node", "SELECT count(*), sum(a.id), max(length(c.pad)) FROM {a} a JOIN {c} c USING (grp) WHERE a.id % 1000 = 3"},
		{"by a.n", "SELECT count(*), count(a.n), count(b.a_n) FROM {a} a FULL JOIN {b} b ON b.a_n = a.n"},
		{"by a.n", "SELECT a.n, count(*), count(b.id) FROM {a} a LEFT JOIN {b} b ON b.a_n = a.n GROUP BY a.n ORDER BY 2 DESC, 1 LIMIT 9"},
	} {
		moving := strings.NewReplacer("{a}", "moving_a", "{b}", "moving_b", "{c}", "moving_c").Replace(c.sql)
		local := strings.NewReplacer("{a}", "moving_local_a", "{b}", "moving_local_b", "{c}", "moving_local_c").Replace(c.sql)
		if text := ask(t, conn, "EXPLAIN "+moving); !strings.Contains(text, c.how) {
			t.Errorf("%s\ndoes not move rows %s:\n%s", moving, c.how, text)
		}
		want := ask(t, conn, local)
		for _, around := range [][2]string{{"", ""}, {"", ""}, {"BEGIN", "COMMIT"}, {"BEGIN READ ONLY", "COMMIT"}, {
			"SET default_transaction_isolation = 'repeatable read'", "RESET default_transaction_isolation",
		}} {
			if around[0] != "" {
				run(t, conn, around[0])
			}
			expect(t, conn, want, moving)
			if around[1] != "" {
				run(t, conn, around[1])
			}
		}
	}
	expect(t, conn, "0", "SELECT count(*) FROM pg_class WHERE relname LIKE 'shoal%'")
	sameOnNodes(t, shared(), "0", "SELECT count(*) FROM pg_class WHERE relname LIKE 'shoal%' AND relpersistence = 't'")
	run(t, conn, "SET shoal.max_exchange_bytes = '100kB'")
	fails(t, conn, "54000", "SELECT count(*) FROM moving_a a JOIN moving_b b ON b.word = a.word", "102400 bytes")
	run(t, conn, "RESET shoal.max_exchange_bytes")
	// What the client's own transaction has written is joined too.
	run(t, conn, "BEGIN", "INSERT INTO moving_c VALUES (-1, 'own')", "UPDATE moving_a SET grp = -1 WHERE id <= 5")
	expect(t, conn, "5", "SELECT count(*) FROM moving_a a JOIN moving_c c USING (grp) WHERE c.title = 'own'")
	run(t, conn, "ROLLBACK")
}

// A node that dies while rows move gives one error, and nothing stays on the others.
func TestNodeDiesInExchange(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.Options{Nodes: 3})
	conn := connect(t, c.DSN(0))
	movingTables(t, conn, "dying", 24000)
	for _, sql := range []string{
		"SELECT count(*) FROM dying_a a JOIN dying_b b ON b.word = a.word",
		"SELECT count(*) FROM dying_a a JOIN dying_b b ON b.a_id = a.id",
		"SELECT array_length(array_agg(b.word ORDER BY b.v), 1) FROM dying_b b",
	} {
		expect(t, conn, ask(t, conn, strings.ReplaceAll(sql, "dying_", "dying_local_")), sql)
		other := connect(t, c.NodeDSN("node2"))
		run(t, other, "BEGIN", "LOCK TABLE dying_b IN ACCESS EXCLUSIVE MODE")
		failed := make(chan error, 1)
		go func() {
			_, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
			failed <- err
		}()
		waitFor(t, "the exchange to wait on node2", func() bool {
			return ask(t, other, "SELECT count(*) > 0 FROM pg_locks WHERE NOT granted AND relation = 'dying_b'::regclass") == "true"
		})
		c.KillNode("node2")
		err := <-failed
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "08006" && e.Code != "57P02" && e.Code != "57P01" {
			t.Fatalf("%s\nfailed with %v", sql, err)
		}
		if conn.IsClosed() {
			t.Fatal("the client's session ended")
		}
		for _, node := range []string{"node1", "node3"} {
			direct := connect(t, c.NodeDSN(node))
			waitFor(t, node+" to be at rest", func() bool {
				return ask(t, direct, `SELECT (SELECT count(*) FROM pg_class WHERE relname LIKE 'shoal%' AND relpersistence = 't'),
					(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND state <> 'idle' AND pid <> pg_backend_pid()),
					(SELECT count(*) FROM pg_prepared_xacts)`) == "0|0|0"
			})
			hangUp(direct)
		}
		c.StartNode("node2")
		waitFor(t, "node2 to answer", func() bool {
			_, ok := answers(t, conn, "SELECT count(*) FROM dying_a")
			return ok
		})
	}
}
