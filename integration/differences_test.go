package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// sameError checks that two errors are one for a client, whatever it looks at.
func sameError(t *testing.T, what string, want, got error) {
	t.Helper()
	var a, b *pgconn.PgError
	if !errors.As(want, &a) || !errors.As(got, &b) {
		t.Errorf("%s: PostgreSQL says %v, pgshoal %v", what, want, got)
		return
	}
	if *a != *b {
		t.Errorf("%s:\nPostgreSQL says %+v\npgshoal %+v", what, *a, *b)
	}
}

// TestNullKeyIsTheNodesError gives rows without a key to a distributed table.
func TestNullKeyIsTheNodesError(t *testing.T) {
	plain := connect(t, shardtest.StartPostgres(t).DSN("", ""))
	conn := client(t)
	for _, c := range []*pgx.Conn{plain, conn} {
		run(t, c, "CREATE TABLE null_key (k bigint PRIMARY KEY, v text)", "CREATE TABLE null_may (k bigint, v text)")
	}
	run(t, conn, "SELECT create_distributed_table('null_key', 'k')", "SELECT create_distributed_table('null_may', 'k')",
		"INSERT INTO null_key VALUES (7, 'seven')")
	run(t, plain, "INSERT INTO null_key VALUES (7, 'seven')")
	for _, sql := range []string{
		"INSERT INTO null_key VALUES (NULL, 'x')",
		"INSERT INTO null_key (v) VALUES ('x')",
		"INSERT INTO null_key VALUES (NULL::bigint, 'x'), (NULL, 'y')",
		"UPDATE null_key SET k = NULL WHERE k = 7",
	} {
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeExec} {
			_, want := plain.Exec(t.Context(), sql, mode)
			_, got := conn.Exec(t.Context(), sql, mode)
			sameError(t, sql, want, got)
		}
	}
	_, want := plain.Exec(t.Context(), "INSERT INTO null_key VALUES ($1, $2)", nil, "x")
	_, got := conn.Exec(t.Context(), "INSERT INTO null_key VALUES ($1, $2)", nil, "x")
	sameError(t, "with a parameter", want, got)
	// The column may be null in PostgreSQL, but a row without a key belongs nowhere.
	_, err := conn.Exec(t.Context(), "INSERT INTO null_may VALUES (NULL, 'x')")
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "23502" || e.SchemaName != "public" || e.TableName != "null_may" || e.ColumnName != "k" || e.File == "" || e.Line == 0 || e.Routine == "" {
		t.Errorf("%+v", e)
	}
	expect(t, conn, "7|seven", "SELECT * FROM null_key WHERE k = 7")
}

// recorder keeps what routers trace.
type recorder struct {
	mu         sync.Mutex
	statements []string
}

func (r *recorder) Statement(ctx context.Context, st router.TracedStatement) (context.Context, router.EndSpan) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.statements = append(r.statements, fmt.Sprintf("%s %v", st.Text, st.Prepared))
	return ctx, func(router.SpanOutcome) {}
}

func (r *recorder) Step(ctx context.Context, _, _ string) (context.Context, router.EndSpan) {
	return ctx, nil
}

// TestTracesHaveTexts traces statements of both protocols.
func TestTracesHaveTexts(t *testing.T) {
	r := &recorder{}
	c := cluster.Start(t, cluster.Options{Nodes: 1, Configure: func(_ int, cfg *router.Config) { cfg.Tracer = r }})
	conn := connect(t, c.DSN(0))
	simple := func(sql string) { run(t, conn, sql) }
	simple("SELECT 'simple'")
	if _, err := conn.Exec(t.Context(), "SELECT $1::int /*a*/", pgx.QueryExecModeExec, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Prepare(t.Context(), "p", "SELECT $1::text /*b*/"); err != nil {
		t.Fatal(err)
	}
	expect(t, conn, "x", "p", "x")
	r.mu.Lock()
	defer r.mu.Unlock()
	want := []string{"SELECT 'simple' false", "SELECT $1::int /*a*/ false", "SELECT $1::text /*b*/ false", "SELECT $1::text /*b*/ true"}
	if !slices.Equal(r.statements, want) {
		t.Errorf("%q", r.statements)
	}
}

// TestNothingIsLeftForTheNext has sessions that leave what DISCARD ALL cannot take away, one after another on
// the same few connections.
func TestNothingIsLeftForTheNext(t *testing.T) {
	dsn := narrow().DSN(0, "default_query_exec_mode=exec")
	for _, sql := range []string{
		"CREATE TEMP TABLE left_temp (a int)", "LOAD 'auto_explain'", "SELECT setseed(0.5)",
		"DO $$ BEGIN EXECUTE 'CREATE TEMP TABLE left_inside (a int)'; PERFORM set_config('left.over', 'x', false); END $$",
	} {
		for _, end := range []string{"DISCARD ALL", "SELECT 1"} {
			conn := connect(t, dsn)
			run(t, conn, sql, end)
			if end == "SELECT 1" {
				hangUp(conn)
				conn = connect(t, dsn)
			}
			expect(t, conn, "{pg_catalog,public}|0|<nil>|<nil>",
				"SELECT current_schemas(true)::text, pg_my_temp_schema()::text, current_setting('auto_explain.log_min_duration', true), current_setting('left.over', true)")
			hangUp(conn)
		}
	}
}
