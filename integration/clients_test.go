package integration

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/lib/pq"
)

// TestNodePostgres runs clients/node_postgres.mjs with the packages that its lock file names.
func TestNodePostgres(t *testing.T) {
	npm, err := exec.LookPath("npm")
	if err != nil && os.Getenv("PGSHOAL_ALL_CLIENTS") != "" {
		t.Fatal("npm is not installed; `make install-node` does it")
	}
	if err != nil {
		t.Skip("npm is not installed; `make install-node` does it, and `make test` fails without")
	}
	// A copy, so that no node_modules appear in the repository.
	dir := t.TempDir()
	for _, name := range []string{"package.json", "package-lock.json", "node_postgres.mjs"} {
		data, err := os.ReadFile(filepath.Join("clients", name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{npm, "ci", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts"},
		{"node", "node_postgres.mjs"},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PGSHOAL_DSN="+shared().DSN(0))
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, &out)
		}
	}
}

// way is how database/sql gets a statement with one row of values to the server.
type way struct {
	name   string
	option string // of lib/pq
	query  func(ctx context.Context, db *sql.DB, query string, values ...any) (*sql.Rows, error)
}

// ways are those of lib/pq: the simple protocol when there are no values, an unnamed statement with
// them, a named one, and values in binary; integers, bytea and uuid come back in binary in all but
// the first and the last but one.
func ways() []way {
	direct := func(ctx context.Context, db *sql.DB, query string, values ...any) (*sql.Rows, error) {
		return db.QueryContext(ctx, query, values...)
	}
	prepared := func(ctx context.Context, db *sql.DB, query string, values ...any) (*sql.Rows, error) {
		statement, err := db.PrepareContext(ctx, query)
		if err != nil {
			return nil, err
		}
		rows, err := statement.QueryContext(ctx, values...)
		return rows, errors.Join(err, statement.Close()) // database/sql closes it after the rows
	}
	inlined := func(ctx context.Context, db *sql.DB, query string, values ...any) (*sql.Rows, error) {
		return db.QueryContext(ctx, inline(query, values))
	}
	return []way{
		{name: "simple", query: inlined},
		{name: "extended", query: direct},
		{name: "prepared", query: prepared},
		{name: "text", option: "disable_prepared_binary_result=yes", query: prepared},
		{name: "binary", option: "binary_parameters=yes", query: direct},
	}
}

// inline puts values in the place of parameters, from the last on: $1 is also the start of $10.
func inline(query string, values []any) string {
	text := []byte(query)
	for i := len(values); i > 0; i-- {
		text = bytes.ReplaceAll(text, fmt.Appendf(nil, "$%d", i), []byte(inlinedValue(values[i-1])))
	}
	return string(text)
}

func inlinedValue(value any) string {
	switch v := value.(type) {
	case nil:
		return "NULL"
	case []byte:
		return fmt.Sprintf(`'\x%x'`, v)
	case time.Time:
		return "'" + v.Format(time.RFC3339Nano) + "'"
	case string:
		return pq.QuoteLiteral(v)
	}
	return fmt.Sprint(value)
}

func openPQ(t testing.TB, option string) *sql.DB {
	t.Helper()
	db, err := sql.Open("postgres", shared().DSN(0, option))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// eachWay runs a test for local and for distributed tables in all ways; the table is new each time.
func eachWay(t *testing.T, columns string, run func(t *testing.T, db *sql.DB, w way, table string)) {
	for _, placement := range []string{"local", "distributed"} {
		for _, w := range ways() {
			t.Run(placement+"/"+w.name, func(t *testing.T) {
				db := openPQ(t, w.option)
				table := "pq_" + placement + "_" + w.name
				mustExec(t, db, "CREATE TABLE "+table+" "+columns)
				t.Cleanup(func() { _, _ = db.ExecContext(context.Background(), "DROP TABLE "+table) })
				if placement == "distributed" {
					mustExec(t, db, "SELECT create_distributed_table('"+table+"', 'k')")
				}
				run(t, db, w, table)
			})
		}
	}
}

func mustExec(t testing.TB, db *sql.DB, query string, values ...any) {
	t.Helper()
	if _, err := db.ExecContext(t.Context(), query, values...); err != nil {
		t.Fatalf("%s\n%v", query, err)
	}
}

// read returns all rows of a query.
func (w way) read(t testing.TB, db *sql.DB, query string, values ...any) (all [][]any, err error) {
	t.Helper()
	rows, err := w.query(t.Context(), db, query, values...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		row, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		all = append(all, row)
	}
	return all, rows.Err()
}

func (w way) mustRead(t testing.TB, db *sql.DB, query string, values ...any) [][]any {
	t.Helper()
	rows, err := w.read(t, db, query, values...)
	if err != nil {
		t.Fatalf("%s %v\n%v", query, values, err)
	}
	return rows
}

func TestPQTypes(t *testing.T) {
	const columns = `(k bigint PRIMARY KEY, i2 smallint, i4 int, f float8, bo bool, t text, b bytea, ts timestamptz,
		d date, n numeric(12,3), u uuid, j jsonb, a text[], c char(4), v varchar(9))`
	at := time.Date(2024, 2, 29, 23, 59, 58, 123456000, time.UTC)
	eachWay(t, columns, func(t *testing.T, db *sql.DB, w way, table string) {
		for _, row := range [][]any{
			{
				int64(1), int64(-32768), int64(1 << 30), 0.1, true, "it's \\ é漢",
				[]byte{0, 1, 255},
				at, at.Truncate(24 * time.Hour),
				"-1.250", "00000000-0000-4000-8000-00000000002a", `{"a": [1, null]}`, `{x,"y,z",NULL}`, "ab  ", "",
			},
			{int64(-9223372036854775808), nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil},
			{
				int64(9007199254740993), int64(0), int64(-1), -2.5e300, false, "",
				[]byte{},
				at.Add(time.Microsecond), at.Truncate(24 * time.Hour),
				"0.000", "ffffffff-ffff-ffff-ffff-ffffffffffff", `"x"`, `{}`, "abcd", "nine char",
			},
		} {
			w.mustRead(t, db, "INSERT INTO "+table+" VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15)", row...)
			rows := w.mustRead(t, db, "SELECT * FROM "+table+" WHERE k = $1", row[0])
			if len(rows) != 1 {
				t.Fatalf("%d rows of key %v", len(rows), row[0])
			}
			for i, want := range row {
				if !sameValue(rows[0][i], want) {
					t.Errorf("key %v, column %d: %#v came back as %#v", row[0], i+1, want, rows[0][i])
				}
			}
		}
	})
}

// sameValue compares what was sent with what came back: drivers give bytes for types they do not know.
func sameValue(got, want any) bool {
	if at, ok := want.(time.Time); ok {
		gotAt, ok := got.(time.Time)
		return ok && gotAt.Equal(at)
	}
	if text, ok := want.(string); ok {
		return fmt.Sprintf("%s", got) == text
	}
	return reflect.DeepEqual(got, want)
}

func TestPQErrors(t *testing.T) {
	eachWay(t, "(k bigint, id int, t text NOT NULL DEFAULT '', PRIMARY KEY (k, id), CHECK (id > 0))", func(t *testing.T, db *sql.DB, w way, table string) {
		w.mustRead(t, db, "INSERT INTO "+table+" (k, id) VALUES ($1, $2)", 1, 1)
		for _, c := range []struct {
			code   string
			query  string
			values []any
		}{
			{"23505", "INSERT INTO " + table + " (k, id) VALUES ($1, $2)", []any{1, 1}},
			{"23514", "INSERT INTO " + table + " (k, id) VALUES ($1, $2)", []any{1, -1}},
			{"23502", "INSERT INTO " + table + " (k, id, t) VALUES ($1, $2, $3)", []any{1, 2, nil}},
			{"22012", "SELECT 1 / (id - id) FROM " + table + " WHERE k = $1", []any{1}},
			{"42703", "SELECT nosuch FROM " + table + " WHERE k = $1", []any{1}},
			{"42P01", "SELECT * FROM nosuch WHERE k = $1", []any{1}},
			{"42601", "SELEC $1", []any{1}},
		} {
			_, err := w.read(t, db, c.query, c.values...)
			var e *pq.Error
			if !errors.As(err, &e) || string(e.Code) != c.code {
				t.Errorf("%s\nanswered %v, not %s", c.query, err, c.code)
			}
		}
		if rows := w.mustRead(t, db, "SELECT id FROM "+table+" WHERE k = $1", 1); len(rows) != 1 {
			t.Errorf("%d rows after the errors", len(rows))
		}
	})
}

func TestPQCancel(t *testing.T) {
	eachWay(t, "(k bigint PRIMARY KEY)", func(t *testing.T, db *sql.DB, w way, table string) {
		w.mustRead(t, db, "INSERT INTO "+table+" VALUES ($1)", 1)
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		started := time.Now()
		rows, err := w.query(ctx, db, "SELECT pg_sleep(60) FROM "+table+" WHERE k = $1", 1)
		if err == nil {
			for rows.Next() {
				t.Error("the statement was not cancelled")
			}
			err = rows.Err()
			_ = rows.Close()
		}
		var e *pq.Error
		if !errors.Is(err, context.DeadlineExceeded) && (!errors.As(err, &e) || e.Code != "57014") {
			t.Errorf("the cancelled statement answered %v", err)
		}
		if took := time.Since(started); took > 20*time.Second {
			t.Errorf("cancelling took %v", took)
		}
		if rows := w.mustRead(t, db, "SELECT k FROM "+table+" WHERE k = $1", 1); len(rows) != 1 {
			t.Errorf("%d rows after cancelling", len(rows))
		}
	})
}

func TestPQCopy(t *testing.T) {
	eachWay(t, "(k bigint, id int, t text, b bytea, PRIMARY KEY (k, id))", func(t *testing.T, db *sql.DB, w way, table string) {
		const keys, rows = 17, 5000
		if err := copyRows(t, db, table, keys, rows, 0); err != nil {
			t.Fatal(err)
		}
		for k := range keys {
			want := (rows - k + keys - 1) / keys
			if got := w.mustRead(t, db, "SELECT id FROM "+table+" WHERE k = $1 AND t = $2 AND b = $3", k, "tab\tline\nback\\", []byte{0, '\\', 9}); len(got) != want {
				t.Errorf("key %d has %d rows, not %d", k, len(got), want)
			}
		}
		// The same rows again after new ones: nothing of it may stay.
		var e *pq.Error
		if err := copyRows(t, db, table, keys, rows+1, rows-1); !errors.As(err, &e) || e.Code != "23505" {
			t.Errorf("copying a row twice answered %v", err)
		}
		if got := w.mustRead(t, db, "SELECT id FROM "+table+" WHERE k = $1 AND id = $2", rows%keys, rows); len(got) != 0 {
			t.Error("a row of a failed COPY stays")
		}
	})
}

// copyRows copies the rows first, first+1 ... last-1, then commits. The last is sent first.
func copyRows(t testing.TB, db *sql.DB, table string, keys, last, first int) error {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	statement, err := tx.PrepareContext(t.Context(), "COPY "+table+" (k, id, t, b) FROM STDIN")
	if err != nil {
		return err
	}
	for id := last - 1; id >= first; id-- {
		if _, err := statement.ExecContext(t.Context(), id%keys, id, "tab\tline\nback\\", []byte{0, '\\', 9}); err != nil {
			return err
		}
	}
	if _, err := statement.ExecContext(t.Context()); err != nil {
		return err
	}
	if err := statement.Close(); err != nil {
		return err
	}
	return tx.Commit()
}
