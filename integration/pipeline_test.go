package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgshoal/pgshoal/shardtest"
)

// TestPipelinesOfDrivers sends several statements up to one Sync, as JDBC does for a text with several statements and for
// batches: they are one transaction in PostgreSQL, whatever session they come from and wherever their rows are.
func TestPipelinesOfDrivers(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	conn := client(t)
	tables := []string{"CREATE TABLE pipe_l (k bigint PRIMARY KEY)", "CREATE TABLE pipe_r (k bigint PRIMARY KEY)", "CREATE TABLE pipe_d (k bigint PRIMARY KEY)"}
	run(t, connect(t, plain.DSN("", "")), tables...)
	run(t, conn, append(tables, "SELECT create_reference_table('pipe_r')", "SELECT create_distributed_table('pipe_d', 'k')")...)
	key := 0
	for _, before := range []string{"SELECT 1", "LISTEN pipe", "CREATE TEMP TABLE pipe_temp (a int)", "SELECT pg_advisory_lock(4711)", "SET work_mem = '5MB'"} {
		for _, table := range []string{"pipe_l", "pipe_r", "pipe_d"} {
			for _, statements := range [][]string{
				{"SELECT 1", "UPDATE # SET k = k", "SELECT 3"},
				{"INSERT INTO # VALUES (@1)", "INSERT INTO # VALUES (@1)", "INSERT INTO # VALUES (@2)"},
				{"INSERT INTO # VALUES (@1)", "INSERT INTO # VALUES (@2)", "INSERT INTO # VALUES (@3)"},
				{"INSERT INTO # VALUES (@1), (@2), (@3)", "DELETE FROM # WHERE k = @1", "SELECT 1/0"},
				{"INSERT INTO # VALUES (@1)", "SELECT count(*) FROM #", "SELEC"},
				{"INSERT INTO # VALUES (@1), (@2), (@3)", "SELECT count(*) FROM #", "INSERT INTO pipe_l VALUES (@4)", "INSERT INTO pipe_r VALUES (@5)", "SELECT 1/0"},
				{"INSERT INTO pipe_r VALUES (@1)", "INSERT INTO # VALUES (@2), (@3), (@4)", "DELETE FROM # WHERE k = @2"},
				{"INSERT INTO pipe_l VALUES (@1)", "SELECT count(*), sum(k % 2) FROM #", "SELECT 1/0"},
				{"INSERT INTO # VALUES (@1)", "SELECT count(*) FROM pipe_d", "SELECT 1/0"},
				{"CREATE TABLE pipe_new (a int)", "INSERT INTO pipe_new SELECT k FROM #", "SELECT 1/0"},
				{"INSERT INTO # VALUES (@1)", "COMMIT", "INSERT INTO # VALUES (@2)", "SELECT 1/0"},
				{"INSERT INTO # VALUES (@1)", "ROLLBACK", "INSERT INTO # VALUES (@2)"},
				{"INSERT INTO # VALUES (@1)", "BEGIN", "INSERT INTO # VALUES (@2)", "COMMIT", "INSERT INTO # VALUES (@3)", "SELEC"},
				{"INSERT INTO # VALUES (@1)", "BEGIN", "INSERT INTO # VALUES (@2)", "SAVEPOINT s", "INSERT INTO # VALUES (@3)", "ROLLBACK TO s"},
				{"BEGIN", "INSERT INTO # VALUES (@1)", "COMMIT", "INSERT INTO # VALUES (@2)", "SELECT 1/0"},
				{"INSERT INTO # VALUES (@1)", "SHOW work_mem", "SET LOCAL work_mem = '6MB'", "SHOW work_mem", "SELECT 1/0"},
			} {
				key += 10
				var said [2]string
				for side, dsn := range []string{plain.DSN("", ""), shared().DSN(0)} {
					said[side] = pipeline(t, dsn, before, table, key, statements)
				}
				if said[0] != said[1] {
					t.Errorf("%s, %s, %q:\nPostgreSQL: %s\npgshoal:    %s", before, table, statements, said[0], said[1])
				}
			}
		}
	}
}

// pipeline sends statements and one Sync, and says what came back and which rows are there then.
func pipeline(t *testing.T, dsn, before, table string, key int, statements []string) string {
	t.Helper()
	raw, err := pgconn.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := raw.Exec(t.Context(), before).ReadAll(); err != nil {
		t.Fatal(err)
	}
	hijacked, err := raw.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	f := hijacked.Frontend
	defer hijacked.Conn.Close()
	for _, sql := range statements {
		sendStatement(f, withKeys(sql, table, key))
	}
	f.Send(&pgproto3.Sync{})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	said := until(t, f, "ReadyForQuery")
	f.Send(&pgproto3.Query{String: fmt.Sprintf("ROLLBACK; SELECT 'l', k FROM pipe_l WHERE k BETWEEN %[1]d AND %[2]d UNION ALL SELECT 'r', k FROM pipe_r WHERE k BETWEEN %[1]d AND %[2]d UNION ALL SELECT 'd', k FROM pipe_d WHERE k BETWEEN %[1]d AND %[2]d ORDER BY 1, 2", key, key+9)})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	return said + " | " + until(t, f, "ReadyForQuery")
}

// withKeys puts the table for # and keys for @1 to @9.
func withKeys(sql, table string, key int) string {
	pairs := []string{"#", table}
	for i := 1; i <= 9; i++ {
		pairs = append(pairs, fmt.Sprintf("@%d", i), fmt.Sprint(key+i))
	}
	return strings.NewReplacer(pairs...).Replace(sql)
}
