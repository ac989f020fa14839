package integration

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// allTypes are types and values of them, in the form in which PostgreSQL writes them.
var allTypes = []struct {
	name   string
	values []string
}{
	{"smallint", []string{"-32768", "0", "32767"}},
	{"int", []string{"-2147483648", "2147483647"}},
	{"bigint", []string{"-9223372036854775808", "9223372036854775807"}},
	{"numeric", []string{"NaN", "Infinity", "-0.000000000000000000001", "12345678901234567890123456789.987654321", "0"}},
	{"numeric(12,3)", []string{"-1.250", "0.000"}},
	{"real", []string{"NaN", "-Infinity", "1e-37", "3.4028235e+38", "0.1"}},
	{"float8", []string{"NaN", "Infinity", "0.1", "-2.5e-300", "1.7976931348623157e+308", "-0"}},
	{"bool", []string{"t", "f"}},
	{"text", []string{"", "it's \"quoted\" \\ back\\slash", "é漢🐟\ttab\nline", "NULL"}},
	{"varchar(9)", []string{"", "nine char"}},
	{"char(4)", []string{"ab  ", "abcd"}},
	{"name", []string{"a_name"}},
	{`"char"`, []string{"x"}},
	{"bytea", []string{`\x`, `\x0001ff5c27`}},
	{"date", []string{"2024-02-29", "infinity", "-infinity", "4713-01-01 BC"}},
	{"time", []string{"00:00:00", "23:59:59.999999", "24:00:00"}},
	{"timetz", []string{"12:34:56.789+05:30", "00:00:00-15:59:59"}},
	{"timestamp", []string{"2024-02-29 23:59:59.123456", "infinity", "0044-03-15 12:00:00 BC"}},
	{"timestamptz", []string{"2024-02-29 23:59:59.123456+00", "-infinity"}},
	{"interval", []string{"1 year 2 mons 3 days 04:05:06.789", "-00:00:00.000001", "00:00:00"}},
	{"uuid", []string{"00000000-0000-4000-8000-00000000002a"}},
	{"json", []string{`{"a" :  [1, null, "é"]}`, "null"}},
	{"jsonb", []string{`{"a": [1, null, 1.50], "b": {}}`, `"x"`}},
	{"xml", []string{"<a b=\"c\">d</a>"}},
	{"money", []string{"-$1,234.56"}},
	{"inet", []string{"192.168.0.1/24", "::1"}},
	{"cidr", []string{"10.0.0.0/8"}},
	{"macaddr", []string{"08:00:2b:01:02:03"}},
	{"bit(5)", []string{"10110"}},
	{"varbit", []string{"", "101"}},
	{"point", []string{"(1.5,-2)"}},
	{"line", []string{"{1,-1,0}"}},
	{"lseg", []string{"[(0,0),(1,1)]"}},
	{"box", []string{"(1,1),(0,0)"}},
	{"path", []string{"((0,0),(1,1),(2,0))", "[(0,0),(1,1)]"}},
	{"polygon", []string{"((0,0),(1,1),(2,0))"}},
	{"circle", []string{"<(1,2),3>"}},
	{"tsvector", []string{"'a':1 'b':2A"}},
	{"tsquery", []string{"'a' & !'b'"}},
	{"int4range", []string{"[1,5)", "empty", "(,)"}},
	{"tstzrange", []string{`["2024-01-01 00:00:00+00",)`}},
	{"int8multirange", []string{"{[1,3),[5,7)}"}},
	{"pg_lsn", []string{"16/B374D848"}},
	{"int[]", []string{"{}", "{1,NULL,3}", "{{1,2},{3,4}}", "[0:1]={7,8}"}},
	{"text[]", []string{`{x,"y,z",NULL,"NULL","\"q\"",""}`}},
	{"numeric[]", []string{"{1.5,NaN}"}},
	{"timestamptz[]", []string{`{"2024-02-29 00:00:00+00"}`}},
	{"types_mood", []string{"sad", "very happy"}},
	{"types_mood[]", []string{`{sad,"very happy"}`}},
	{"types_pair", []string{`(1,"a b")`, "(,)"}},
	{"types_pair[]", []string{`{"(1,x)","(2,)"}`}},
	{"types_positive", []string{"7"}},
	{"types_span", []string{"[1.5,2)"}},
	{"types_feeling", []string{"ok"}},
	{"types_feeling[]", []string{"{{ok,NULL},{sad,ok}}"}},
	{"types_deep", []string{`("very happy","{sad,NULL}","(1,x)","{""(2,\\""y z\\"")"",NULL}",{ok},"[1,2)")`, "(,,,,,)"}},
	{"types_deep[]", []string{`{"(sad,{sad},,\"{\"\"(7,)\"\"}\",,)",NULL}`}},
	{"types_pairs", []string{`["(1,a)","(2,b)")`, `(,"(5,)")`, "empty"}},
	{"types_pairs[]", []string{`{"[\"(1,a)\",\"(2,b)\")"}`}},
	{"types_pairs_multirange", []string{`{["(1,a)","(2,b)"),["(7,)",)}`, "{}"}},
	{"types_span_multirange", []string{"{[1,2),[3,4)}"}},
}

const typesSetUp = `CREATE TYPE types_mood AS ENUM ('sad', 'ok', 'very happy');
CREATE TYPE types_pair AS (n int, t text);
CREATE DOMAIN types_positive AS int CHECK (VALUE > 0);
CREATE TYPE types_span AS RANGE (subtype = float8);
CREATE DOMAIN types_feeling AS types_mood;
CREATE TYPE types_deep AS (m types_mood, ms types_mood[], p types_pair, ps types_pair[], f types_feeling[], s types_span);
CREATE TYPE types_pairs AS RANGE (subtype = types_pair)`

// typesTable has a column of each type and as many rows as the longest list of values has, plus one of NULLs.
func typesTable() (create string, rows [][]*string) {
	columns := []string{"k bigint PRIMARY KEY"}
	for i, kind := range allTypes {
		columns = append(columns, fmt.Sprintf("c%d %s", i+1, kind.name))
		for r := range kind.values {
			if r == len(rows) {
				rows = append(rows, make([]*string, len(allTypes)))
			}
			rows[r][i] = &kind.values[r]
		}
	}
	return "CREATE TABLE types_t (" + strings.Join(columns, ", ") + ")", append(rows, make([]*string, len(allTypes)))
}

// TestTypes sends values of all types to a distributed table and reads them back, in text and in binary,
// in all ways of all drivers. What the node that has the row answers without a router is the truth.
func TestTypes(t *testing.T) {
	conn := connect(t, shared().DSN(0, "timezone=UTC"))
	home, done := nodeConnection(t, shared(), "node1", "postgres")
	defer done()
	run(t, home, "CREATE TEMP TABLE types_burn (a int)", "DROP TABLE types_burn") // from now on OIDs of new types differ between nodes
	create, rows := typesTable()
	for _, sql := range append(strings.Split(typesSetUp, ";"), create, "SELECT create_distributed_table('types_t', 'k')") {
		run(t, conn, sql)
	}
	run(t, home, "SET timezone = 'UTC'")
	defer run(t, home, "RESET timezone")
	key := 0
	for r, row := range rows {
		t.Run(fmt.Sprint("values ", r+1), func(t *testing.T) {
			for _, send := range senders(conn.PgConn(), home.PgConn()) {
				key++
				if err := send.row(t.Context(), key, row); err != nil {
					t.Fatalf("%s: %s", send.name, describe(err))
				}
				checkRow(t, conn.PgConn(), home.PgConn(), key, row, send.name)
			}
		})
	}
	checkPlaced(t, shared(), "types_t", "k", key)
	t.Run("pgx", func(t *testing.T) { typesInPgx(t, key) })
	t.Run("lib/pq", func(t *testing.T) { typesInPQ(t, key) })
	t.Run("psql", func(t *testing.T) { typesInPsql(t, key) })
}

// sender is a way to insert a row.
type sender struct {
	name string
	row  func(ctx context.Context, key int, row []*string) error
}

func senders(conn, home *pgconn.PgConn) []sender {
	var places []string
	for i := range len(allTypes) + 1 {
		places = append(places, fmt.Sprintf("$%d", i+1))
	}
	insert := "INSERT INTO types_t VALUES (" + strings.Join(places, ", ") + ")"
	text := func(key int, row []*string) (values [][]byte) {
		values = append(values, fmt.Append(nil, key))
		for _, v := range row {
			values = append(values, bytesOf(v))
		}
		return values
	}
	return []sender{
		{"simple", func(ctx context.Context, key int, row []*string) error {
			literals := []string{fmt.Sprint(key)}
			for _, v := range row {
				if v == nil {
					literals = append(literals, "NULL")
					continue
				}
				literals = append(literals, "'"+strings.ReplaceAll(*v, "'", "''")+"'")
			}
			return conn.Exec(ctx, "INSERT INTO types_t VALUES ("+strings.Join(literals, ", ")+")").Close()
		}},
		{"extended text", func(ctx context.Context, key int, row []*string) error {
			return conn.ExecParams(ctx, insert, text(key, row), nil, nil, nil).Read().Err
		}},
		{"prepared binary", func(ctx context.Context, key int, row []*string) error {
			// The plain server turns text into binary.
			values, formats := [][]byte{binaryInt8(int64(key))}, []int16{1}
			for i, v := range row {
				formats = append(formats, 1)
				got := home.ExecParams(ctx, "SELECT $1::"+allTypes[i].name, [][]byte{bytesOf(v)}, nil, nil, []int16{1}).Read()
				if got.Err != nil {
					return got.Err
				}
				values = append(values, got.Rows[0][0])
			}
			if _, err := conn.Prepare(ctx, "types_insert", insert, nil); err != nil {
				return err
			}
			return errors.Join(conn.ExecPrepared(ctx, "types_insert", values, formats, nil).Read().Err, conn.Deallocate(ctx, "types_insert"))
		}},
	}
}

func bytesOf(v *string) []byte {
	if v == nil {
		return nil
	}
	return []byte(*v)
}

func binaryInt8(n int64) []byte {
	b := make([]byte, 8)
	for i := range b {
		b[i] = byte(n >> (56 - 8*i))
	}
	return b
}

// checkRow reads a row in both formats, column by column, and compares values and types.
func checkRow(t *testing.T, conn, home *pgconn.PgConn, key int, row []*string, sent string) {
	t.Helper()
	for _, format := range []int16{0, 1} {
		got := conn.ExecParams(t.Context(), "SELECT * FROM types_t WHERE k = $1", [][]byte{fmt.Append(nil, key)}, nil, nil, []int16{format}).Read()
		if got.Err != nil || len(got.Rows) != 1 {
			t.Fatalf("%s, format %d: %d rows, %v", sent, format, len(got.Rows), got.Err)
		}
		var list []string
		for i := range allTypes {
			list = append(list, fmt.Sprintf("$%d::%s", i+1, allTypes[i].name))
		}
		var values [][]byte
		for _, v := range row {
			values = append(values, bytesOf(v))
		}
		want := home.ExecParams(t.Context(), "SELECT "+strings.Join(list, ", "), values, nil, nil, []int16{format}).Read()
		if want.Err != nil {
			t.Fatal(want.Err)
		}
		for i, kind := range allTypes {
			field, plain := got.FieldDescriptions[i+1], want.FieldDescriptions[i]
			if !bytes.Equal(got.Rows[0][i+1], want.Rows[0][i]) || (got.Rows[0][i+1] == nil) != (want.Rows[0][i] == nil) {
				t.Errorf("%s, format %d, %s: %q came back as %q", sent, format, kind.name, want.Rows[0][i], got.Rows[0][i+1])
			}
			if field.Format != format || field.DataTypeOID != plain.DataTypeOID || field.TypeModifier != plain.TypeModifier {
				t.Errorf("%s, format %d, %s (key %d): described as %+v, not %+v", sent, format, kind.name, key, field, plain)
			}
		}
	}
}

// nodeOf finds the server that has a key.
func nodeOf(t testing.TB, key int) string {
	t.Helper()
	found := ""
	onNodes(t, shared(), "postgres", func(node string, conn *pgx.Conn) {
		if ask(t, conn, "SELECT count(*) FROM types_t WHERE k = $1", key) == "1" {
			found = node
		}
	})
	return found
}

// typesInPgx reads each row in each mode, through a router and from its node.
func typesInPgx(t *testing.T, keys int) {
	for name, mode := range allModes {
		router := connect(t, shared().DSN(0))
		for key := 1; key <= keys; key += 2 {
			node := connect(t, shared().NodeDSN(nodeOf(t, key)))
			got, want := pgxRow(t, router, mode, key), pgxRow(t, node, mode, key)
			hangUp(node)
			for i := range want {
				if fmt.Sprintf("%T %v", got[i], got[i]) != fmt.Sprintf("%T %v", want[i], want[i]) {
					t.Errorf("%s, key %d, column %d: %#v, not %#v", name, key, i, got[i], want[i])
				}
			}
		}
		hangUp(router)
	}
}

func pgxRow(t *testing.T, conn *pgx.Conn, mode pgx.QueryExecMode, key int) []any {
	t.Helper()
	rows, err := conn.Query(t.Context(), "SELECT * FROM types_t WHERE k = $1", mode, key)
	if err != nil {
		t.Fatal(describe(err))
	}
	values, err := pgx.CollectExactlyOneRow(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	if err != nil {
		t.Fatal(describe(err))
	}
	return values
}

// typesInPQ does the same with database/sql in all its ways.
func typesInPQ(t *testing.T, keys int) {
	for _, w := range ways() {
		db := openPQ(t, w.option)
		for key := 2; key <= keys; key += 4 {
			node, err := sql.Open("postgres", shared().NodeDSN(nodeOf(t, key))+"&"+w.option)
			if err != nil {
				t.Fatal(err)
			}
			const query = "SELECT * FROM types_t WHERE k = $1"
			got, want := w.mustRead(t, db, query, key), w.mustRead(t, node, query, key)
			_ = node.Close()
			for i := range want[0] {
				// NaN is not equal to itself.
				if !reflect.DeepEqual(got[0][i], want[0][i]) && fmt.Sprint(got[0][i]) != fmt.Sprint(want[0][i]) {
					t.Errorf("%s, key %d, column %d: %#v, not %#v", w.name, key, i, got[0][i], want[0][i])
				}
			}
		}
		_ = db.Close()
	}
}

// typesInPsql compares what psql prints, also of COPY in its formats, and what \gdesc says.
func typesInPsql(t *testing.T, keys int) {
	for _, key := range []int{1, keys - 2} {
		node := nodeOf(t, key)
		for _, script := range []string{
			fmt.Sprintf("SELECT * FROM types_t WHERE k = %d", key),
			fmt.Sprintf("COPY (SELECT * FROM types_t WHERE k = %d) TO STDOUT", key),
			fmt.Sprintf("COPY (SELECT * FROM types_t WHERE k = %d) TO STDOUT (FORMAT csv, HEADER)", key),
			fmt.Sprintf("SELECT * FROM types_t WHERE k = %d \\gdesc", key),
		} {
			args := []string{"-X", "-x", "-c", script}
			if strings.Contains(script, "gdesc") {
				args = []string{"-X", "-v", "ON_ERROR_STOP=1", "-f", scriptFile(t, script)}
			}
			got := mustTool(t, shared().DSN(0), cluster.Superuser, "psql", args...)
			want := mustTool(t, shared().NodeDSN(node), cluster.Superuser, "psql", args...)
			if got != want {
				t.Errorf("%s\n%s", script, difference(want, got))
			}
		}
	}
}

func scriptFile(t *testing.T, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.sql")
	if err := os.WriteFile(path, []byte(script+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
