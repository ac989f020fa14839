package integration

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/sync/errgroup"
)

// The parts of a statement that writes in WITH are one statement: all of them happen or none, also with more rows than one portion.
func TestWritesInWithAreAtomic(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sp_with")
	run(t, conn, "CREATE TABLE sp_with_log (id bigint CHECK (id < 25000), name text)")
	move := "WITH d AS (DELETE FROM sp_with_a WHERE id > $1 RETURNING id, name) INSERT INTO sp_with_log SELECT id, name FROM d"
	var e *pgconn.PgError
	if _, err := conn.Exec(t.Context(), move, 10000); !errors.As(err, &e) || e.Code != "23514" {
		t.Fatalf("the second part fails with %v", err)
	}
	expect(t, conn, "30000", "SELECT count(*) FROM sp_with_a")
	expect(t, conn, "0", "SELECT count(*) FROM sp_with_log")
	run(t, conn, "BEGIN", "DELETE FROM sp_with_a WHERE id >= 25000", "SAVEPOINT s")
	tag, err := conn.Exec(t.Context(), move, 10000)
	if err != nil || tag.String() != "INSERT 0 14999" {
		t.Fatalf("%s, %v", tag, err)
	}
	run(t, conn, "ROLLBACK TO s")
	expect(t, conn, "24999", "SELECT count(*) FROM sp_with_a")
	if _, err := conn.Exec(t.Context(), move, 10000); err != nil {
		t.Fatal(err)
	}
	run(t, conn, "COMMIT")
	expect(t, conn, "10000", "SELECT count(*) FROM sp_with_a")
	expect(t, conn, "14999", "SELECT count(*) FROM sp_with_log")
	expect(t, conn, "name 12345", "SELECT name FROM sp_with_log WHERE id = 12345")
	expect(t, conn, "5000|10000|10000", `WITH u AS (UPDATE sp_with_a SET grp = -1 WHERE id % 2 = 0 RETURNING id)
		SELECT (SELECT count(*) FROM u), (SELECT count(*) FROM sp_with_a WHERE grp >= 0), (SELECT count(*) FROM sp_with_a)`)
}

// MERGE minds rows that are matched twice however far apart they come.
func TestMergeOfManyRows(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sp_merge")
	source := "(SELECT g AS id, g FROM generate_series(1, 12000) g UNION ALL SELECT 1, %s)"
	merge := "MERGE INTO sp_merge_a a USING " + source + " s ON s.%s = a.%s WHEN MATCHED THEN UPDATE SET grp = 100 WHEN NOT MATCHED THEN INSERT (id, grp) VALUES (s.g, 0)"
	fails(t, conn, "21000", fmt.Sprintf(merge, "1", "id", "id"), "cannot affect row a second time")
	fails(t, conn, "23505", fmt.Sprintf(merge, "1", "g + 40000", "id"), "duplicate key")
	expect(t, conn, "0", "SELECT count(*) FROM sp_merge_a WHERE grp = 100")
	// The name is not the key: what to do is decided before anything is done.
	other := "MERGE INTO sp_merge_a a USING (SELECT id + 100000 AS id, a_name FROM sp_merge_b) s ON s.a_name = a.name" +
		" WHEN MATCHED AND a.id %% %d = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET grp = 100 WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.a_name)"
	tag, err := conn.Exec(t.Context(), fmt.Sprintf(other, 4))
	if err != nil || tag.String() != "MERGE 20000" {
		t.Fatalf("%s, %v", tag, err)
	}
	expect(t, conn, "27500|7500|5000", "SELECT count(*), count(*) FILTER (WHERE grp = 100), count(*) FILTER (WHERE id > 100000) FROM sp_merge_a")
	run(t, conn, "INSERT INTO sp_merge_b VALUES (99999, 'name 2')")
	fails(t, conn, "21000", fmt.Sprintf(other, 3), "cannot affect row a second time")
}

// The copies of a reference table stay the same under writers of all kinds, which may only fail as a whole.
func TestCopiesUnderWriters(t *testing.T) {
	t.Parallel()
	conn := client(t)
	run(t, conn,
		"CREATE TABLE rw_ref (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, note text)",
		"CREATE TABLE rw_a (id bigint PRIMARY KEY, ref int)",
		"SELECT create_reference_table('rw_ref')", "SELECT create_distributed_table('rw_a', 'id')",
		"INSERT INTO rw_ref SELECT g FROM generate_series(1, 20) g", "INSERT INTO rw_a SELECT g, g % 20 + 1 FROM generate_series(1, 200) g")
	writes := []string{
		"UPDATE rw_ref SET n = n + 1 WHERE id IN (SELECT ref FROM rw_a)",
		"UPDATE rw_ref SET n = n + 1",
		"MERGE INTO rw_ref r USING (SELECT DISTINCT ref FROM rw_a) a ON a.ref = r.id WHEN MATCHED THEN UPDATE SET n = r.n + 1, note = 'merged' WHEN NOT MATCHED THEN INSERT (id) VALUES (a.ref)",
		"INSERT INTO rw_ref (id, n) SELECT DISTINCT ref, 1 FROM rw_a ON CONFLICT (id) DO UPDATE SET n = rw_ref.n + 1",
	}
	conns := []*pgx.Conn{client(t), client(t), client(t), client(t)}
	done := make([]int, len(writes))
	var g errgroup.Group
	for i, sql := range writes {
		g.Go(func() error {
			for range 12 {
				_, err := conns[i].Exec(t.Context(), sql)
				var e *pgconn.PgError
				switch {
				case err == nil:
					done[i]++
				case !errors.As(err, &e) || !slices.Contains([]string{"40001", "40P01"}, e.Code):
					return fmt.Errorf("%s: %w", sql, err)
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range done {
		total += n
	}
	t.Logf("writes that were done: %v", done)
	onNodes(t, shared(), "", func(node string, conn *pgx.Conn) {
		expect(t, conn, fmt.Sprintf("20|%d|%d", total, total), "SELECT count(*), min(n), max(n) FROM rw_ref")
	})
}

// Rows of two partitions may have the same place in them; only the one that is meant is written.
func TestWritesToPartitions(t *testing.T) {
	t.Parallel()
	conn := client(t)
	run(t, conn,
		"CREATE TABLE pw_a (id bigint, part int, v int, PRIMARY KEY (id, part)) PARTITION BY LIST (part)",
		"CREATE TABLE pw_a1 PARTITION OF pw_a FOR VALUES IN (1)", "CREATE TABLE pw_a2 PARTITION OF pw_a FOR VALUES IN (2)",
		"CREATE TABLE pw_b (id bigint PRIMARY KEY, x bigint)",
		"SELECT create_distributed_table('pw_a', 'id')", "SELECT create_distributed_table('pw_b', 'id', colocate_with => 'none')",
		"INSERT INTO pw_a SELECT g, p, 0 FROM generate_series(1, 60) g, generate_series(1, 2) p ORDER BY p, g",
		"INSERT INTO pw_b SELECT g + 1000, g FROM generate_series(1, 60) g")
	run(t, conn, "UPDATE pw_a SET v = 1 FROM pw_b b WHERE b.x = pw_a.id AND pw_a.part = 1")
	expect(t, conn, "1|60\n2|0", "SELECT part, sum(v) FROM pw_a GROUP BY part ORDER BY part")
	run(t, conn, "DELETE FROM pw_a USING pw_b b WHERE b.x = pw_a.id AND pw_a.part = 2 AND b.x <= 20")
	expect(t, conn, "1|60\n2|40", "SELECT part, count(*) FROM pw_a GROUP BY part ORDER BY part")
	run(t, conn, "MERGE INTO pw_a a USING pw_b b ON b.x + 1 = a.id + 1 WHEN MATCHED AND a.part = 2 THEN UPDATE SET v = 2")
	expect(t, conn, "1|60\n2|80", "SELECT part, sum(v) FROM pw_a GROUP BY part ORDER BY part")
	run(t, conn, "UPDATE pw_a SET id = id + 5000 WHERE part = 1")
	expect(t, conn, "1|60|60\n2|40|0", "SELECT part, count(*), count(*) FILTER (WHERE id > 5000) FROM pw_a GROUP BY part ORDER BY part")
}
