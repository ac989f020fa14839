package integration

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestOwnStatementsExtended runs in the extended protocol what drivers otherwise send as simple
// queries: SHOW, cursors of SQL, PREPARE.
func TestOwnStatementsExtended(t *testing.T) {
	conn := client(t)
	ctx := context.Background()
	run(t, conn, "CREATE TABLE ext_own (k bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('ext_own', 'k')",
		"INSERT INTO ext_own VALUES (1, 'one')", "INSERT INTO ext_own VALUES (2, 'two')")
	var got string
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeCacheStatement} {
		if err := conn.QueryRow(ctx, "SHOW standard_conforming_strings", mode).Scan(&got); err != nil || got != "on" {
			t.Errorf("SHOW in mode %v: %q, %v", mode, got, err)
		}
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range []string{"1", "2"} { // most likely on two nodes
			name := "cursor_" + k
			if _, err := tx.Exec(ctx, "DECLARE "+name+" CURSOR FOR SELECT v FROM ext_own WHERE k = "+k, mode); err != nil {
				t.Fatal(err)
			}
		}
		for k, want := range map[string]string{"1": "one", "2": "two"} {
			if err := tx.QueryRow(ctx, "FETCH 1 FROM cursor_"+k, mode).Scan(&got); err != nil || got != want {
				t.Errorf("FETCH of key %s in mode %v: %q, %v", k, mode, got, err)
			}
			if _, err := tx.Exec(ctx, "CLOSE cursor_"+k, mode); err != nil {
				t.Error(err)
			}
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSequenceOfTheSession asks for currval and lastval outside a transaction: right, or an error,
// and never the value that another session got.
func TestSequenceOfTheSession(t *testing.T) {
	first, second := client(t), client(t)
	run(t, first, "CREATE TABLE seq_last (id bigserial PRIMARY KEY, v text)", "INSERT INTO seq_last (v) VALUES ('a')")
	fails(t, second, "55000", "SELECT lastval()")
	// The application is known to ask now, so its sessions keep their connection from the next write on.
	run(t, second, "INSERT INTO seq_last (v) VALUES ('b')")
	run(t, first, "INSERT INTO seq_last (v) VALUES ('c')")
	expect(t, second, "2", "SELECT lastval()")
	expect(t, first, "3", "SELECT currval('seq_last_id_seq')")
}

// TestPipelineOfAKeptSession: a batch over several nodes is one transaction also when the session keeps
// its server connections.
func TestPipelineOfAKeptSession(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE kept_t (k bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('kept_t', 'k')",
		"CREATE TEMP TABLE kept_temp (a int)")
	for k := range 20 {
		b := &pgx.Batch{}
		b.Queue("INSERT INTO kept_t VALUES ($1, 'never')", k)
		b.Queue("INSERT INTO kept_t VALUES ($1, 'never')", k+100)
		b.Queue("SELECT 1 / $1::int", 0)
		if err := conn.SendBatch(t.Context(), b).Close(); err == nil {
			t.Fatal("the batch did not fail")
		}
	}
	// A question that the router asks in the middle of a batch must not end its transaction.
	run(t, conn, "CREATE TABLE kept_local (a int)", "CREATE TABLE kept_serial (id bigserial PRIMARY KEY)",
		"SELECT create_distributed_table('kept_serial', 'id')")
	b := &pgx.Batch{}
	b.Queue("INSERT INTO kept_local VALUES (1)")
	b.Queue("INSERT INTO kept_serial DEFAULT VALUES")
	b.Queue("SELECT 2 / $1::int", 0)
	if err := conn.SendBatch(t.Context(), b).Close(); err == nil {
		t.Fatal("the batch did not fail")
	}
	expect(t, conn, "0", "SELECT count(*) FROM kept_local")
	for k := range 20 {
		expect(t, conn, "0", "SELECT count(*) FROM kept_t WHERE k = $1", k)
		expect(t, conn, "0", "SELECT count(*) FROM kept_t WHERE k = $1", k+100)
	}
}
