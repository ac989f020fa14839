package integration

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgshoal/pgshoal/shardtest"
)

// TestReplayedStatements runs statements as ORMs and queues write them, on distributed and reference tables.
func TestReplayedStatements(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE replay_ref (code text PRIMARY KEY, name text)", "CREATE TABLE replay_auto (id bigserial PRIMARY KEY, n numeric, name text)",
		"CREATE TABLE replay_key (id bigint PRIMARY KEY, n numeric, name text)",
		"SELECT create_reference_table('replay_ref')", "SELECT create_distributed_table('replay_auto', 'id')", "SELECT create_distributed_table('replay_key', 'id')")
	for _, c := range []struct {
		tag, sql string
		args     []any
	}{
		// Rows as arrays: bulk inserts of job queues and of slonik.
		{"INSERT 0 3", "INSERT INTO replay_auto (name, n) SELECT * FROM unnest($1::text[], $2::numeric[])", []any{[]string{"a", "b", "c"}, []string{"1", "2", "3"}}},
		{"INSERT 0 3", "INSERT INTO replay_key (id, name) SELECT * FROM unnest($1::bigint[], $2::text[]) ON CONFLICT (id) DO UPDATE SET name = excluded.name", []any{[]int64{1, 2, 3}, []string{"a", "b", "c"}}},
		{"INSERT 0 1", "INSERT INTO replay_key (id, name) SELECT * FROM unnest($1::bigint[], $2::text[]) ON CONFLICT DO NOTHING", []any{[]int64{1, 2, 4}, []string{"x", "x", "x"}}},
		{"INSERT 0 2", "INSERT INTO replay_ref (code, name) SELECT * FROM unnest($1::text[], $2::text[])", []any{[]string{"de", "jp"}, []string{"Germany", "Japan"}}},
		{"INSERT 0 2", `INSERT INTO replay_key (id, n) SELECT * FROM jsonb_to_recordset($1::jsonb) AS x (id bigint, n numeric)`, []any{`[{"id": 7, "n": 1}, {"id": 8}]`}},
		{"UPDATE 2", "UPDATE replay_key k SET n = d.n FROM unnest($1::bigint[], $2::numeric[]) AS d (id, n) WHERE k.id = d.id", []any{[]int64{1, 2}, []string{"5", "6"}}},
		{"DELETE 2", "DELETE FROM replay_key WHERE id = ANY($1)", []any{[]int64{7, 8}}},
	} {
		tag, err := conn.Exec(t.Context(), c.sql, c.args...)
		if err != nil || tag.String() != c.tag {
			t.Errorf("%s: %s, not %s; %v", c.sql, tag, c.tag, err)
		}
	}
	expect(t, conn, "1|5|a\n2|6|b\n3|-|c\n4|-|x", "SELECT id, coalesce(n::text, '-'), name FROM replay_key ORDER BY id")
	expect(t, conn, "a|1\nb|2\nc|3", "SELECT name, n::text FROM replay_auto ORDER BY name")
	checkReference(t, shared(), "replay_ref", 2)
	fails(t, conn, "42601", "INSERT INTO replay_key (id, n) SELECT * FROM unnest(ARRAY[1], ARRAY[2], ARRAY[3])")
	fails(t, conn, "42601", "INSERT INTO replay_key (id, n, name) SELECT * FROM unnest(ARRAY[1], ARRAY[2])")
}

// TestExplainIsDescribedOnce: the answer to Execute has no row description of its own, or libpq gives up the connection.
func TestExplainIsDescribedOnce(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	run(t, connect(t, plain.DSN("", "")), "CREATE TABLE explain_once (k bigint PRIMARY KEY, v text)")
	run(t, client(t), "CREATE TABLE explain_once (k bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('explain_once', 'k')")
	for _, sql := range []string{
		"EXPLAIN SELECT * FROM explain_once WHERE v = 'a'", "EXPLAIN (FORMAT JSON) SELECT count(*) FROM explain_once", "EXPLAIN ANALYZE UPDATE explain_once SET v = 'b'",
		"EXPLAIN INSERT INTO explain_once VALUES (1, 'a'), (2, 'b'), (3, 'c')", "EXPLAIN SELECT * FROM explain_once WHERE k = 1", "SHOW work_mem",
	} {
		var said [2]string
		for side, dsn := range []string{plain.DSN("", ""), shared().DSN(0)} {
			said[side] = withoutRows(oneStatement(t, dsn, sql))
		}
		if said[0] != said[1] {
			t.Errorf("%s\nPostgreSQL: %s\npgshoal:    %s", sql, said[0], said[1])
		}
	}
}

// oneStatement sends a statement in the extended protocol, as libpq does.
func oneStatement(t *testing.T, dsn, sql string) string {
	t.Helper()
	f := messages(t, dsn).Frontend
	sendStatement(f, sql)
	f.Send(&pgproto3.Sync{})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	return until(t, f, "ReadyForQuery")
}

// sendStatement sends the messages of one statement.
func sendStatement(f *pgproto3.Frontend, sql string) {
	f.Send(&pgproto3.Parse{Query: sql})
	f.Send(&pgproto3.Bind{})
	f.Send(&pgproto3.Describe{ObjectType: 'P'})
	f.Send(&pgproto3.Execute{})
}

// withoutRows leaves out rows, of which plans have different numbers.
func withoutRows(said string) string { return strings.ReplaceAll(said, "DataRow ", "") }
