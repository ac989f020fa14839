package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pgshoal/pgshoal/shardtest"
)

// TestQueryInPlaceOfSync sends a Query after messages of the extended protocol without a Sync between them: both are
// one transaction in PostgreSQL, and so they must be here, whether the rows are on one node, on several or at home.
func TestQueryInPlaceOfSync(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	conn := client(t)
	run(t, connect(t, plain.DSN("", "")), "CREATE TABLE unsynced_d (k bigint PRIMARY KEY)", "CREATE TABLE unsynced_l (k bigint PRIMARY KEY)")
	run(t, conn, "CREATE TABLE unsynced_d (k bigint PRIMARY KEY)", "CREATE TABLE unsynced_l (k bigint PRIMARY KEY)", "SELECT create_distributed_table('unsynced_d', 'k')")
	for _, table := range []string{"unsynced_d", "unsynced_l"} {
		for i, query := range []string{
			"INSERT INTO # VALUES (NEW)", "SELECT 1/0", "SELEC", "", "SELECT count(*) FROM #", "ROLLBACK", "COMMIT",
			"BEGIN; INSERT INTO # VALUES (NEW); ROLLBACK", "INSERT INTO # VALUES (NEW); INSERT INTO # VALUES (NEW)", "INSERT INTO # VALUES (OLD)", "SAVEPOINT s", "SELECT 1; SELECT 2",
		} {
			for n := 1; n <= 3; n++ {
				var said [2]string
				for side, dsn := range []string{plain.DSN("", ""), shared().DSN(0)} {
					said[side] = queryInPlaceOfSync(t, dsn, table, 100*i+10*n, n, query)
				}
				if said[0] != said[1] {
					t.Errorf("%s, %d inserts, then %q:\nPostgreSQL: %s\npgshoal:    %s", table, n, query, said[0], said[1])
				}
			}
		}
	}
}

// queryInPlaceOfSync inserts n rows, sends a query, and says what came back and which rows are there then.
func queryInPlaceOfSync(t *testing.T, dsn, table string, key, n int, query string) string {
	t.Helper()
	f := messages(t, dsn).Frontend
	for i := range n {
		f.Send(&pgproto3.Parse{Query: fmt.Sprintf("INSERT INTO %s VALUES (%d)", table, key+i)})
		f.Send(&pgproto3.Bind{})
		f.Send(&pgproto3.Execute{})
	}
	f.Send(&pgproto3.Query{String: strings.NewReplacer("#", table, "OLD", fmt.Sprint(key), "NEW", fmt.Sprint(key+n)).Replace(query)})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	said := until(t, f, "ReadyForQuery")
	f.Send(&pgproto3.Query{String: fmt.Sprintf("ROLLBACK; SELECT k FROM %s WHERE k BETWEEN %d AND %d", table, key, key+9)})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	return said + " | " + until(t, f, "ReadyForQuery")
}
