package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// keyValues are values of every key type, among them the ones that are easy to get wrong.
var keyValues = []struct {
	name, sql string
	values    []string
}{
	{"int2", "smallint", []string{"0", "1", "-1", "32767", "-32768", "77"}},
	{"int4", "int", []string{"0", "1", "-1", "2147483647", "-2147483648", "1000000"}},
	{"int8", "bigint", []string{"0", "1", "-1", "9223372036854775807", "-9223372036854775808", "4294967296", "281474976710656"}},
	{"text", "text", []string{"", "a", "ä", "日本語", "with ' quote", `back\slash`, "tab\there", "new\nline", "trailing  ", `\N`, "a,b", `"q"`}},
	{"varchar", "varchar(40)", []string{"", "x", "straße", "trailing ", `\.`}},
	{"char", "char(8)", []string{"a", "ab", "äöü", "a b"}},
	{"uuid", "uuid", []string{"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}},
	{"bytea", "bytea", []string{`\x`, `\x00`, `\xdeadbeef`, `\x5c`, `\x27`, `\x0a0d09`}},
	{"numeric", "numeric", []string{"0", "1", "-1", "1.5", "0.001", "123456789012345678901234567890.123456789", "-0.5", "NaN", "1e20", "Infinity", "-Infinity", "10000"}},
	{"date", "date", []string{"2000-01-01", "1999-12-31", "2026-11-15", "infinity", "-infinity", "0044-03-15 BC", "5874897-12-31"}},
	{"timestamp", "timestamp", []string{"2000-01-01 00:00:00", "1999-12-31 23:59:59.999999", "infinity", "0044-03-15 12:00:00 BC", "2026-11-15 01:02:03.5"}},
	{"timestamptz", "timestamptz", []string{"2000-01-01 00:00:00+00", "1970-01-01 05:30:00+05:30", "infinity", "-infinity", "2026-11-15 01:02:03.5-08"}},
	{"bool", "bool", []string{"t", "f"}},
}

// TestKeyTypes stores every value by literal, by parameter in text and by parameter in binary, and
// finds it again in the same three ways: the router must come to the node's own hash each time.
func TestKeyTypes(t *testing.T) {
	conn := client(t)
	for _, kt := range keyValues {
		t.Run(kt.name, func(t *testing.T) {
			table := "key_" + kt.name
			run(t, conn, "CREATE TABLE "+table+" (k "+kt.sql+", how text, v text)", "SELECT create_distributed_table('"+table+"', 'k')")
			for _, v := range kt.values {
				keyByLiteral(t, conn, table, kt.sql, v)
				keyByParameter(t, conn.PgConn(), table, v, pgx.TextFormatCode, []byte(v))
				keyByParameter(t, conn.PgConn(), table, v, pgx.BinaryFormatCode, binaryOf(t, conn, kt.sql, v))
			}
			checkPlaced(t, shared(), table, "k", 3*len(kt.values))
		})
	}
}

// literal quotes a value as a string constant with escapes.
func literal(v string) string {
	var out strings.Builder
	out.WriteString("E'")
	for _, r := range v {
		switch r {
		case '\'', '\\':
			out.WriteString("\\")
		}
		out.WriteString(string(r))
	}
	return out.String() + "'"
}

func keyByLiteral(t *testing.T, conn *pgx.Conn, table, kind, v string) {
	t.Helper()
	run(t, conn, fmt.Sprintf("INSERT INTO %s VALUES (%s, 'literal', %[2]s)", table, literal(v)))
	for _, key := range []string{literal(v), literal(v) + "::" + kind, "CAST(" + literal(v) + " AS " + kind + ")"} {
		sql := fmt.Sprintf("SELECT v FROM %s WHERE k = %s AND how = 'literal'", table, key)
		expect(t, conn, v, sql)
		expect(t, conn, v, sql, pgx.QueryExecModeSimpleProtocol)
	}
}

func keyByParameter(t *testing.T, conn *pgconn.PgConn, table, v string, format int16, data []byte) {
	t.Helper()
	how := map[int16]string{pgx.TextFormatCode: "text", pgx.BinaryFormatCode: "binary"}[format]
	insert := conn.ExecParams(t.Context(), "INSERT INTO "+table+" VALUES ($1, $2, $3) RETURNING k",
		[][]byte{data, []byte(how), []byte(v)}, nil, []int16{format, 0, 0}, []int16{format}).Read()
	if insert.Err != nil {
		t.Fatalf("inserting %q as %s: %s", v, how, describe(insert.Err))
	}
	if format == pgx.BinaryFormatCode && string(insert.Rows[0][0]) != string(data) {
		t.Errorf("%q went in as %x and came back as %x", v, data, insert.Rows[0][0])
	}
	found := conn.ExecParams(t.Context(), "SELECT v, k FROM "+table+" WHERE k = $1 AND how = $2",
		[][]byte{data, []byte(how)}, nil, []int16{format, 0}, []int16{0, format}).Read()
	if found.Err != nil {
		t.Fatalf("finding %q as %s: %s", v, how, describe(found.Err))
	}
	if len(found.Rows) != 1 || string(found.Rows[0][0]) != v || string(found.Rows[0][1]) != string(insert.Rows[0][0]) {
		t.Errorf("%q as %s: found %q", v, how, found.Rows)
	}
}

// binaryOf asks PostgreSQL for a value's binary form.
func binaryOf(t *testing.T, conn *pgx.Conn, kind, v string) []byte {
	t.Helper()
	r := conn.PgConn().ExecParams(t.Context(), "SELECT $1::"+kind, [][]byte{[]byte(v)}, []uint32{25}, []int16{0}, []int16{1}).Read()
	if r.Err != nil {
		// The parameter's type is the cast's own when text has no cast to it.
		r = conn.PgConn().ExecParams(t.Context(), "SELECT $1::"+kind, [][]byte{[]byte(v)}, nil, []int16{0}, []int16{1}).Read()
	}
	if r.Err != nil {
		t.Fatal(describe(r.Err))
	}
	return r.Rows[0][0]
}

// TestKeysOfOtherTypes compares a key with values of the types that PostgreSQL compares it with.
func TestKeysOfOtherTypes(t *testing.T) {
	conn := client(t)
	run(t, conn,
		"CREATE TABLE okey_int (k bigint, v text)", "SELECT create_distributed_table('okey_int', 'k')",
		"CREATE TABLE okey_num (k numeric, v text)", "SELECT create_distributed_table('okey_num', 'k')",
		"CREATE TABLE okey_text (k text, v text)", "SELECT create_distributed_table('okey_text', 'k')",
		"CREATE DOMAIN okey_domain AS bigint CHECK (VALUE > 0)",
		"CREATE TABLE okey_dom (k okey_domain, v text)", "SELECT create_distributed_table('okey_dom', 'k')",
		"CREATE TABLE okey_char (k char(5), v text)", "SELECT create_distributed_table('okey_char', 'k')")
	for i := range 40 {
		run(t, conn, fmt.Sprintf("INSERT INTO okey_int VALUES (%d, 'i%[1]d')", i), fmt.Sprintf("INSERT INTO okey_num VALUES (%d.50, 'n%[1]d')", i),
			fmt.Sprintf("INSERT INTO okey_text VALUES ('%d', 't%[1]d')", i), fmt.Sprintf("INSERT INTO okey_dom VALUES (%d, 'd%[1]d')", i+1),
			fmt.Sprintf("INSERT INTO okey_char VALUES ('c%d', 'c%[1]d')", i))
	}
	checkPlaced(t, shared(), "okey_dom", "k", 40)
	checkPlaced(t, shared(), "okey_num", "k", 40)
	checkPlaced(t, shared(), "okey_char", "k", 40)
	for _, tt := range []struct {
		sql, want string
		args      []any
	}{
		{"SELECT v FROM okey_int WHERE k = $1::int4", "i7", []any{int32(7)}},
		{"SELECT v FROM okey_int WHERE k = $1::int2", "i7", []any{int16(7)}},
		{"SELECT v FROM okey_num WHERE k = 7.5", "n7", nil},
		{"SELECT v FROM okey_num WHERE k = 7.50000", "n7", nil},
		{"SELECT v FROM okey_num WHERE k = $1", "n7", []any{7.5}},
		{"SELECT v FROM okey_text WHERE k = $1::varchar", "t7", []any{"7"}},
		{"SELECT v FROM okey_text WHERE k = '7'::varchar(3)", "t7", nil},
		{"SELECT v FROM okey_dom WHERE k = 7", "d7", nil},
		{"SELECT v FROM okey_char WHERE k = 'c7'", "c7", nil},
		{"SELECT v FROM okey_char WHERE k = 'c7   '", "c7", nil},
		{"SELECT v FROM okey_char WHERE k = $1", "c7", []any{"c7"}},
	} {
		expect(t, conn, tt.want, tt.sql, tt.args...)
	}
	// Comparisons in another type than the key's: right or refused.
	for _, tt := range []struct{ sql, want string }{
		{"SELECT v FROM okey_int WHERE k = 7.0", "i7"},
		{"SELECT v FROM okey_int WHERE k = 7.5", ""},
		{"SELECT v FROM okey_int WHERE k = 7::float8", "i7"},
		{"SELECT v FROM okey_num WHERE k = 7.5::float8", "n7"},
		{"SELECT v FROM okey_text WHERE k = '7'::char(5)", "t7"},
		{"SELECT v FROM okey_text WHERE k = '7'::name", "t7"},
		{"SELECT v FROM okey_char WHERE k = 'c7'::text", "c7"},
		{"SELECT v FROM okey_char WHERE k::text = 'c7'", "c7"},
	} {
		if got, ok := answers(t, conn, tt.sql); ok && got != tt.want {
			t.Errorf("%s\nanswered %q, not %q", tt.sql, got, tt.want)
		}
	}
	fails(t, conn, "23514", "INSERT INTO okey_dom VALUES (-1)", "okey_domain")
	fails(t, conn, "22P02", "SELECT v FROM okey_int WHERE k = 'x'")
	fails(t, conn, "22P02", "INSERT INTO okey_int VALUES ('x')")
	fails(t, conn, "22003", "INSERT INTO okey_int VALUES (99999999999999999999)")
}
