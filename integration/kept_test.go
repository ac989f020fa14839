package integration

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// TestKeptStatements: a statement without a name that comes often is kept on server connections, and means what it would
// mean if it were parsed each time.
func TestKeptStatements(t *testing.T) {
	conn, other := client(t), client(t)
	run(t, conn, "CREATE TABLE kept_one (k bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('kept_one', 'k')",
		"INSERT INTO kept_one SELECT i, 'v' || i FROM generate_series(1, 9) i")
	again := func(want string) {
		t.Helper()
		for range 12 {
			if got := ask(t, conn, "SELECT * FROM kept_one WHERE k = $1", pgx.QueryExecModeExec, 7); got != want {
				t.Fatalf("got %s, want %s", got, want)
			}
		}
	}
	again("7|v7")
	// The next statement for the same key gets the same connection.
	expect(t, conn, "1", "SELECT (SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT * FROM kept_one%') FROM kept_one WHERE k = 7")

	run(t, other, "ALTER TABLE kept_one ADD COLUMN w int DEFAULT 5")
	again("7|v7|5")
	run(t, conn, "BEGIN", "ALTER TABLE kept_one DROP COLUMN w")
	again("7|v7")
	run(t, conn, "ROLLBACK")
	again("7|v7|5")
	run(t, conn, "DISCARD ALL")
	again("7|v7|5")
	run(t, conn, "CREATE TEMP TABLE kept_one (k bigint PRIMARY KEY, v text)", "INSERT INTO kept_one VALUES (7, 'mine')")
	again("7|mine")
	run(t, conn, "DROP TABLE kept_one")
	again("7|v7|5")

	for range 8 {
		_, err := conn.Exec(t.Context(), "INSERT INTO kept_one VALUES ($1, $2)", pgx.QueryExecModeExec, 7, "twice")
		refused(t, err, "23505")
	}
	again("7|v7|5")
}

// TestPipelineOfKeptStatements: answers come in the order of the messages, also when a connection has statements already.
func TestPipelineOfKeptStatements(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE kept_pipe (k bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('kept_pipe', 'k')",
		"INSERT INTO kept_pipe VALUES (7, 'v7')")
	f := messages(t, shared().DSN(0)).Frontend
	const one = "ParseComplete BindComplete DataRow CommandComplete SELECT 1 "
	for round := range 10 {
		for i, names := range [][]string{{"", "", ""}, {"a", "b", "c"}, {"d", "", "e"}} {
			for _, name := range names {
				if name != "" {
					f.Send(&pgproto3.Close{ObjectType: 'S', Name: name})
				}
			}
			for _, name := range names {
				f.Send(&pgproto3.Parse{Name: name, Query: "SELECT v FROM kept_pipe WHERE k = $1"})
				f.Send(&pgproto3.Bind{PreparedStatement: name, Parameters: [][]byte{[]byte("7")}})
				f.Send(&pgproto3.Execute{})
			}
			f.Send(&pgproto3.Sync{})
			if err := f.Flush(); err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(until(t, f, "ReadyForQuery"), "CloseComplete ", "")
			if !strings.HasPrefix(got, one+one+one) {
				t.Fatalf("round %d, batch %d: %s", round, i, got)
			}
		}
	}
	f.Send(&pgproto3.Parse{Query: "SELECT v FROM kept_pipe WHERE k = $1"})
	f.Send(&pgproto3.Bind{})
	f.Send(&pgproto3.Sync{})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	if got := until(t, f, "ReadyForQuery"); got != "ParseComplete ErrorResponse 08P01 ReadyForQuery I" {
		t.Error(got)
	}
}
