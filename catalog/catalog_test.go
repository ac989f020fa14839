package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/shardtest"
)

// verifier is a SCRAM verifier of the password "secret".
const verifier = "SCRAM-SHA-256$4096:MTIzNDU2Nzg5MDEyMzQ1Ng==$" +
	"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="

func testContext(tb testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	tb.Cleanup(cancel)
	return ctx
}

func startServer(tb testing.TB) *shardtest.Postgres {
	return shardtest.StartPostgres(tb, "max_prepared_transactions=10", "wal_level=logical")
}

func config(tb testing.TB, p *shardtest.Postgres, role, database string) *pgx.ConnConfig {
	tb.Helper()
	c, err := pgx.ParseConfig(p.DSN(role, database))
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

func connect(tb testing.TB, p *shardtest.Postgres, role, database string) *pgx.Conn {
	tb.Helper()
	conn, err := pgx.ConnectConfig(testContext(tb), config(tb, p, role, database))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// run runs a script and fails the test when it fails.
func run(tb testing.TB, conn *pgx.Conn, script string) {
	tb.Helper()
	if _, err := conn.PgConn().Exec(testContext(tb), script).ReadAll(); err != nil {
		tb.Fatalf("%v\nin: %s", err, script)
	}
}

// one returns the only value of a query.
func one[T any](tb testing.TB, conn *pgx.Conn, sql string) T {
	tb.Helper()
	var v T
	if err := conn.QueryRow(testContext(tb), sql).Scan(&v); err != nil {
		tb.Fatalf("%v\nin: %s", err, sql)
	}
	return v
}

// column returns the only column of a query.
func column(tb testing.TB, conn *pgx.Conn, sql string) []string {
	tb.Helper()
	rows, err := conn.Query(testContext(tb), sql)
	if err != nil {
		tb.Fatalf("%v\nin: %s", err, sql)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		tb.Fatalf("%v\nin: %s", err, sql)
	}
	return list
}

func identity(id int) catalog.Identity {
	names := []string{"home", "one", "two"}
	return catalog.Identity{Cluster: "c1", Name: names[id], ID: id, Home: id == 0}
}

func bootstrap(tb testing.TB, p *shardtest.Postgres, id int) {
	tb.Helper()
	_, err := catalog.BootstrapNode(testContext(tb), config(tb, p, "", ""), identity(id), catalog.RouterRole{Verifier: verifier}, nil)
	if err != nil {
		tb.Fatal(err)
	}
}

// querier is what the pool's connection is to the router.
type querier struct{ conn *pgconn.PgConn }

func (q querier) Query(ctx context.Context, sql string) ([][][]byte, error) {
	results, err := q.conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	var rows [][][]byte
	for _, r := range results {
		rows = append(rows, r.Rows...)
	}
	return rows, nil
}
