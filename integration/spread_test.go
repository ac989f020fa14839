package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// spreadTables makes two distributed tables with rows on all nodes, one of them large enough for temporary tables.
func spreadTables(t *testing.T, conn *pgx.Conn, prefix string) {
	t.Helper()
	run(t, conn,
		fmt.Sprintf("CREATE TABLE %s_a (id bigint PRIMARY KEY, grp int, name text)", prefix),
		fmt.Sprintf("CREATE TABLE %s_b (id bigint PRIMARY KEY, a_name text)", prefix),
		fmt.Sprintf("SELECT create_distributed_table('%s_a', 'id')", prefix),
		fmt.Sprintf("SELECT create_distributed_table('%s_b', 'id', colocate_with => 'none')", prefix),
		fmt.Sprintf("INSERT INTO %s_a SELECT g, g %% 7, 'name ' || g FROM generate_series(1, 30000) g", prefix),
		fmt.Sprintf("INSERT INTO %s_b SELECT g, 'name ' || 2 * g FROM generate_series(1, 20000) g", prefix))
}

// A portal over several nodes is read piece by piece, with other statements in between.
func TestSpreadPortals(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sp_portal")
	run(t, conn, "BEGIN")
	f := conn.PgConn().Frontend()
	for i, sql := range []string{
		"SELECT id FROM sp_portal_a ORDER BY id LIMIT 5",
		"SELECT grp, count(*) FROM sp_portal_a GROUP BY grp ORDER BY grp LIMIT 5",
		"SELECT a.id FROM sp_portal_a a JOIN sp_portal_b b ON b.a_name = a.name ORDER BY a.id LIMIT 5",
	} {
		name := fmt.Sprint("p", i)
		f.SendParse(&pgproto3.Parse{Query: sql})
		f.SendBind(&pgproto3.Bind{DestinationPortal: name})
		f.SendExecute(&pgproto3.Execute{Portal: name, MaxRows: 2})
		f.SendSync(&pgproto3.Sync{})
		f.SendQuery(&pgproto3.Query{String: "SELECT count(*) FROM sp_portal_b"})
		f.SendExecute(&pgproto3.Execute{Portal: name, MaxRows: 2})
		f.SendExecute(&pgproto3.Execute{Portal: name})
		f.SendSync(&pgproto3.Sync{})
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		var got []string
		for ready := 0; ready < 3; {
			msg, err := f.Receive()
			if err != nil {
				t.Fatal(err)
			}
			switch m := msg.(type) {
			case *pgproto3.DataRow:
				got = append(got, string(m.Values[0]))
			case *pgproto3.PortalSuspended:
				got = append(got, "-")
			case *pgproto3.ErrorResponse:
				t.Fatalf("%s: %s", sql, m.Message)
			case *pgproto3.ReadyForQuery:
				ready++
			}
		}
		want := [...]string{"1 2 - 20000 3 4 - 5", "0 1 - 20000 2 3 - 4", "2 4 - 20000 6 8 - 10"}[i]
		if strings.Join(got, " ") != want {
			t.Errorf("%s\nanswered %v, not %s", sql, got, want)
		}
	}
	run(t, conn, "COMMIT")
}

// What a statement over several nodes leaves behind: nothing, in the session and on the nodes.
func TestSpreadLeavesNothing(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sp_rest")
	join := "SELECT count(*) FROM sp_rest_a a JOIN sp_rest_b b ON b.a_name = a.name"
	for range 3 {
		expect(t, conn, "15000", join)
	}
	run(t, conn, "BEGIN")
	expect(t, conn, "15000", join)
	expect(t, conn, "15000", join)
	run(t, conn, "DECLARE c CURSOR FOR SELECT a.id FROM sp_rest_a a JOIN sp_rest_b b ON b.a_name = a.name ORDER BY 1", "SAVEPOINT s")
	expect(t, conn, "2", "FETCH 1 FROM c")
	expect(t, conn, "15000", join)
	run(t, conn, "ROLLBACK TO s")
	expect(t, conn, "4", "FETCH 1 FROM c")
	run(t, conn, "COMMIT")
	expect(t, conn, "0", "SELECT count(*) FROM pg_class WHERE relname LIKE 'shoal%'")
	fails(t, conn, "22012", "SELECT sum(1 / (a.id - 5)) FROM sp_rest_a a JOIN sp_rest_b b ON b.a_name = a.name OR a.id = 5", "division by zero")
	fails(t, conn, "22012", "SELECT 1 / (id - 5) FROM sp_rest_a", "division by zero")
	expect(t, conn, "15000", join)
}

func TestSpreadLimits(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sp_limit")
	join := "SELECT count(*) FROM sp_limit_a a JOIN sp_limit_b b ON b.a_name = a.name"
	fails(t, conn, "22023", "SET shoal.max_exchange_bytes = 'much'", "invalid value")
	run(t, conn, "SET shoal.max_exchange_bytes = '100kB'")
	fails(t, conn, "54000", join, "102400 bytes")
	expect(t, conn, "30000", "SELECT count(*) FROM sp_limit_a")
	run(t, conn, "RESET shoal.max_exchange_bytes")
	run(t, conn, "BEGIN READ ONLY")
	expect(t, conn, "15000", join)
	run(t, conn, "COMMIT")
}

// A statement over several nodes ends when it is cancelled, and when a node fails it.
func TestSpreadCancel(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sp_cancel")
	for _, sql := range []string{
		"SELECT count(pg_sleep(60)) FROM sp_cancel_a",
		"SELECT a.id, pg_sleep(60) FROM sp_cancel_a a JOIN sp_cancel_b b ON b.a_name = a.name",
	} {
		run(t, conn, "SET statement_timeout = 400")
		_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
		var e *pgconn.PgError
		if !errors.As(err, &e) || e.Code != "57014" {
			t.Fatalf("%s: %v", sql, err)
		}
		run(t, conn, "SET statement_timeout = 0")
	}
	expect(t, conn, "30000", "SELECT count(*) FROM sp_cancel_a")
}

func TestExplainSpread(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sp_explain")
	for sql, parts := range map[string][]string{
		"EXPLAIN SELECT id FROM sp_explain_a ORDER BY id LIMIT 3":           {"Scatter", "Node: ", "Merge: in order of hidden column 1, limit 3"},
		"EXPLAIN ANALYZE SELECT grp, count(*) FROM sp_explain_a GROUP BY 1": {"Exchange  (actual rows=7, bytes moved=", "Fragment \"shoal 1\": SELECT grp AS c1, count(*) AS c2", "Final on "},
		"EXPLAIN UPDATE sp_explain_a SET id = id + 1":                       {"Rows from", "Write, each node by sp_explain_a.id: "},
	} {
		text := ask(t, conn, sql)
		for _, p := range parts {
			if !strings.Contains(text, p) {
				t.Errorf("%s\nhas no %q:\n%s", sql, p, text)
			}
		}
	}
	if text := ask(t, conn, "EXPLAIN (FORMAT JSON, ANALYZE) SELECT count(*) FROM sp_explain_a"); !strings.Contains(text, "Kind:Exchange") {
		t.Errorf("as JSON: %s", text)
	}
	expect(t, conn, "30000", "SELECT count(*) FROM sp_explain_a")
}

// An UPDATE of the key moves rows between nodes, all or none.
func TestKeyUpdatesMoveRows(t *testing.T) {
	t.Parallel()
	conn := client(t)
	spreadTables(t, conn, "sp_move")
	fails(t, conn, "23505", "UPDATE sp_move_a SET id = 7 WHERE id IN (3, 4, 5)")
	expect(t, conn, "30000|450015000", "SELECT count(*), sum(id)::text FROM sp_move_a")
	run(t, conn, "UPDATE sp_move_a SET id = id + 100000 WHERE grp = 3")
	expect(t, conn, "30000|878615000", "SELECT count(*), sum(id)::text FROM sp_move_a")
	expect(t, conn, "name 3", "SELECT name FROM sp_move_a WHERE id = 100003")
	run(t, conn, "BEGIN", "UPDATE sp_move_a SET id = -id", "ROLLBACK")
	expect(t, conn, "name 3", "SELECT name FROM sp_move_a WHERE id = 100003")
	run(t, conn, "BEGIN", "CREATE TABLE sp_move_child (a_id bigint REFERENCES sp_move_a ON DELETE CASCADE, id int, PRIMARY KEY (a_id, id))",
		"SELECT create_distributed_table('sp_move_child', 'a_id', colocate_with => 'sp_move_a')", "COMMIT")
	fails(t, conn, "0A000", "UPDATE sp_move_a SET id = id + 1", "acts on changes")
}

// A simple query may follow messages of the extended protocol without Sync; after an error it is ignored.
func TestQueryWithoutSync(t *testing.T) {
	t.Parallel()
	conn := client(t)
	run(t, conn, "CREATE TABLE unsynced (id bigint PRIMARY KEY)", "SELECT create_distributed_table('unsynced', 'id')")
	f := conn.PgConn().Frontend()
	f.SendParse(&pgproto3.Parse{Query: "INSERT INTO unsynced VALUES (1)"})
	f.SendBind(&pgproto3.Bind{})
	f.SendExecute(&pgproto3.Execute{})
	f.SendQuery(&pgproto3.Query{String: "SELECT 'between'"})
	f.SendParse(&pgproto3.Parse{Query: "SELECT nonsense"})
	f.SendQuery(&pgproto3.Query{String: "SELECT 'ignored'"})
	f.SendSync(&pgproto3.Sync{})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	var got []string
	for ready := 0; ready < 2; {
		msg, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch m := msg.(type) {
		case *pgproto3.DataRow:
			got = append(got, string(m.Values[0]))
		case *pgproto3.CommandComplete:
			got = append(got, string(m.CommandTag))
		case *pgproto3.ErrorResponse:
			got = append(got, m.Code)
		case *pgproto3.ReadyForQuery:
			ready++
		}
	}
	if want := "INSERT 0 1, between, SELECT 1, 42703"; strings.Join(got, ", ") != want {
		t.Errorf("answered %v, not %s", got, want)
	}
	expect(t, conn, "1", "SELECT count(*) FROM unsynced")
}

// Statements of all kinds go on while others change the map: what has not begun is planned again.
func TestMapChangesAlongside(t *testing.T) {
	t.Parallel()
	conn, ddl := client(t), client(t)
	spreadTables(t, conn, "sp_map")
	run(t, conn, "CREATE TABLE sp_map_c (id bigint PRIMARY KEY, grp int, name text)",
		"SELECT create_distributed_table('sp_map_c', 'id')",
		"PREPARE sp_map_p (bigint) AS SELECT count(*) FROM sp_map_a WHERE id IN ($1, $1 + 1, abs($1))")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 6 {
			name := fmt.Sprint("sp_map_x", i)
			for _, sql := range []string{"CREATE TABLE " + name + " (id bigint PRIMARY KEY)", "SELECT create_distributed_table('" + name + "', 'id')", "DROP TABLE " + name} {
				if _, err := ddl.Exec(t.Context(), sql); err != nil {
					t.Errorf("%s: %v", sql, err)
				}
			}
		}
	}()
	defer func() { <-ended }()
	for going, i := true, 0; going; i++ {
		select {
		case <-ended:
			going = false
		default:
		}
		run(t, conn, "INSERT INTO sp_map_c SELECT id, grp, name FROM sp_map_a WHERE grp = "+fmt.Sprint(i%7)+" ORDER BY name LIMIT 500")
		expect(t, conn, "500", "SELECT count(*) FROM sp_map_c")
		if _, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("-1\t1\tx\n-2\t2\ty\n"), "COPY sp_map_c FROM STDIN"); err != nil {
			t.Fatal("COPY: ", err)
		}
		run(t, conn, "UPDATE sp_map_c SET grp = 0 WHERE id = -1; SELECT count(*) FROM sp_map_c WHERE id < 0")
		expect(t, conn, "2", "EXECUTE sp_map_p(7)")
		run(t, conn, "EXPLAIN (ANALYZE, COSTS OFF) SELECT a.id FROM sp_map_a a JOIN sp_map_b b ON b.a_name = a.name", "TRUNCATE sp_map_c")
	}
}
