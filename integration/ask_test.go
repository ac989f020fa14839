package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// connect opens a connection that closes with the test.
func connect(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hangUp(conn) })
	return conn
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// client is a connection to the shared cluster's first router as the superuser.
func client(t testing.TB) *pgx.Conn {
	t.Helper()
	return connect(t, shared().DSN(0))
}

// querier is what pgx.Conn and pgx.Tx have in common.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// run executes statements one by one; each must succeed.
func run(t testing.TB, q querier, statements ...string) {
	t.Helper()
	for _, sql := range statements {
		if _, err := q.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s\n%s", sql, describe(err))
		}
	}
}

// describe prints all of an error that a client can see.
func describe(err error) string {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return err.Error()
	}
	return fmt.Sprintf("%s %s: %s\nCONTEXT: %s\nDETAIL: %s\nHINT: %s", e.Severity, e.Code, e.Message, e.Where, e.Detail, e.Hint)
}

// ask returns the rows of a query as text, one line a row and columns separated by |.
func ask(t testing.TB, q querier, sql string, args ...any) string {
	t.Helper()
	rows, err := q.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s\n%s", sql, describe(err))
	}
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		var fields []string
		for _, v := range values {
			fields = append(fields, fmt.Sprint(v))
		}
		return strings.Join(fields, "|"), err
	})
	if err != nil {
		t.Fatalf("%s\n%s", sql, describe(err))
	}
	return strings.Join(lines, "\n")
}

// expect compares the answer of a query.
func expect(t testing.TB, q querier, want, sql string, args ...any) {
	t.Helper()
	if got := ask(t, q, sql, args...); got != want {
		t.Errorf("%s\nanswered\n%s\nnot\n%s", sql, got, want)
	}
}

// refused checks the SQLSTATE of an error, and that its text or hint contains what is given.
func refused(t testing.TB, err error, code string, contains ...string) {
	t.Helper()
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		t.Errorf("the error is %v, not one with SQLSTATE %s", err, code)
		return
	}
	if e.Code != code {
		t.Errorf("the error is not %s but %s", code, describe(err))
	}
	for _, c := range contains {
		if !strings.Contains(describe(err), c) {
			t.Errorf("the error does not say %q: %s", c, describe(err))
		}
	}
}

// fails runs a statement that must be refused.
func fails(t testing.TB, q querier, code, sql string, contains ...string) {
	t.Helper()
	_, err := q.Exec(t.Context(), sql)
	if err == nil {
		t.Errorf("%s\nwas not refused with %s", sql, code)
		return
	}
	refused(t, err, code, contains...)
	if t.Failed() {
		t.Logf("the statement was: %s", sql)
	}
}

// answers returns the rows of a query, or false when the router refuses it as not supported yet: with
// a hint, and without having done anything.
func answers(t testing.TB, q querier, sql string, args ...any) (string, bool) {
	t.Helper()
	rows, err := q.Query(t.Context(), sql, args...)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		refused(t, err, "0A000", "HINT: ")
		if strings.HasSuffix(describe(err), "HINT: ") {
			t.Errorf("%s\nis refused without a way out: %s", sql, describe(err))
		}
		return "", false
	}
	return ask(t, q, sql, args...), true
}

// onNodes calls f with a connection to each node, behind the routers' back.
func onNodes(t testing.TB, c *cluster.Cluster, database string, f func(node string, conn *pgx.Conn)) {
	t.Helper()
	for _, name := range c.NodeNames() {
		conn, done := nodeConnection(t, c, name, database)
		f(name, conn)
		done()
	}
}

// toNodes keeps connections to the nodes of the shared cluster: its tests ask them hundreds of times.
var toNodes = map[string]*pgx.Conn{}

func nodeConnection(t testing.TB, c *cluster.Cluster, node, database string) (conn *pgx.Conn, done func()) {
	t.Helper()
	keep := database == cluster.Superuser && c == sharedNow
	if conn := toNodes[node]; keep && conn != nil {
		delete(toNodes, node) // so that nobody else uses it meanwhile
		return conn, func() { toNodes[node] = conn }
	}
	cfg, err := pgx.ParseConfig(c.NodeDSN(node))
	if err != nil {
		t.Fatal(err)
	}
	cfg.Database = database
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // plans of statements kept longer may be stale
	conn, err = pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !keep {
		return conn, func() { hangUp(conn) }
	}
	suite.Cleanup(func() { hangUp(conn) })
	return conn, func() { toNodes[node] = conn }
}

// sameOnNodes checks that a query has the same answer on every node.
func sameOnNodes(t testing.TB, c *cluster.Cluster, want, sql string) {
	t.Helper()
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		if got := ask(t, conn, sql); got != want {
			t.Errorf("on %s: %s\nanswered\n%s\nnot\n%s", node, sql, got, want)
		}
	})
}

// messages is a connection whose messages the test sends and receives itself.
func messages(t testing.TB, dsn string) *pgconn.HijackedConn {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	h, err := conn.Hijack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Conn.Close() })
	return h
}
