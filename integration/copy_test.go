package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

const million = 1_000_000

// rowStream makes the rows of a COPY as they are read, so that a million of them need no memory.
type rowStream struct {
	row  func(buf []byte, i int) []byte
	next int
	rows int
	buf  []byte
	end  []byte // after the last row
}

func (s *rowStream) Read(p []byte) (int, error) {
	for len(s.buf) < len(p) && s.next < s.rows {
		s.buf = s.row(s.buf, s.next)
		s.next++
		if s.next == s.rows {
			s.buf = append(s.buf, s.end...)
		}
	}
	if len(s.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.buf)
	s.buf = append(s.buf[:0], s.buf[n:]...)
	return n, nil
}

func textRow(buf []byte, i int) []byte {
	buf = strconv.AppendInt(buf, int64(i), 10)
	buf = append(buf, "\tline\\nof \\\\ "...)
	buf = strconv.AppendInt(buf, int64(i), 10)
	return append(buf, "\t\\N\n"...)
}

func csvRow(buf []byte, i int) []byte {
	buf = append(buf, "\"line\nof, \"\"q\"\" "...)
	buf = strconv.AppendInt(buf, int64(i), 10)
	buf = append(buf, "\","...)
	buf = strconv.AppendInt(buf, int64(i), 10)
	return append(buf, ",\r\n"...)
}

var binaryHeader = []byte("PGCOPY\n\xff\r\n\x00\x00\x00\x00\x00\x00\x00\x00\x00")

func binaryRow(buf []byte, i int) []byte {
	if i == 0 {
		buf = append(buf, binaryHeader...)
	}
	buf = binary.BigEndian.AppendUint16(buf, 3)
	buf = binary.BigEndian.AppendUint32(buf, 8)
	buf = binary.BigEndian.AppendUint64(buf, uint64(i))
	text := strconv.Itoa(i)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(text)))
	buf = append(buf, text...)
	return binary.BigEndian.AppendUint32(buf, 0xffffffff) // NULL
}

func TestCopyMillionRows(t *testing.T) {
	conn := client(t)
	for _, tt := range []struct {
		format, columns, options string
		row                      func([]byte, int) []byte
		end, want                string
	}{
		{"text", "", "", textRow, "", "line\nof \\ 777777"},
		{"csv", "(v, id, n)", "WITH (FORMAT csv)", csvRow, "", "line\nof, \"q\" 777777"},
		{"binary", "", "(FORMAT binary)", binaryRow, "\xff\xff", "777777"},
	} {
		t.Run(tt.format, func(t *testing.T) {
			table := "copy_" + tt.format
			run(t, conn, "CREATE TABLE "+table+" (id bigint, v text, n int)", "SELECT create_distributed_table('"+table+"', 'id')")
			started := time.Now()
			tag, err := conn.PgConn().CopyFrom(t.Context(), &rowStream{row: tt.row, rows: million, end: []byte(tt.end)},
				"COPY "+table+" "+tt.columns+" FROM STDIN "+tt.options)
			if err != nil || tag.RowsAffected() != million {
				t.Fatalf("COPY answered %q, %v", tag, err)
			}
			t.Logf("%s: %d rows/s", tt.format, int(million/time.Since(started).Seconds()))
			counts := checkPlaced(t, shared(), table, "id", million)
			for node, n := range counts {
				if n < million/5 {
					t.Errorf("%s has only %d rows", node, n)
				}
			}
			expect(t, conn, tt.want+"|<nil>", "SELECT v, n FROM "+table+" WHERE id = 777777")
			if got, want := totals(t, shared(), table, "id"), million*(million-1)/2; got != want {
				t.Errorf("the ids are %d together, not %d", got, want)
			}
			run(t, conn, "DROP TABLE "+table)
		})
	}
}

// TestCopyKeysOfAllTypes splits rows by keys of every type in all three formats; the key comes last.
func TestCopyKeysOfAllTypes(t *testing.T) {
	conn := client(t)
	for _, kt := range keyValues {
		t.Run(kt.name, func(t *testing.T) {
			source, table := "copykey_src_"+kt.name, "copykey_"+kt.name
			run(t, conn, "CREATE TABLE "+source+" (v text, k "+kt.sql+")", "CREATE TABLE "+table+" (v text, k "+kt.sql+")",
				"SELECT create_distributed_table('"+table+"', 'k')")
			for _, v := range kt.values {
				run(t, conn, fmt.Sprintf("INSERT INTO %s VALUES (%s, %[2]s)", source, literal(v)))
			}
			for _, format := range []string{"text", "csv", "binary"} {
				var data bytes.Buffer
				if _, err := conn.PgConn().CopyTo(t.Context(), &data, "COPY "+source+" TO STDOUT (FORMAT "+format+")"); err != nil {
					t.Fatal(describe(err))
				}
				tag, err := conn.PgConn().CopyFrom(t.Context(), &data, "COPY "+table+" FROM STDIN (FORMAT "+format+")")
				if err != nil || int(tag.RowsAffected()) != len(kt.values) {
					t.Fatalf("%s: COPY answered %q, %v", format, tag, err)
				}
			}
			checkPlaced(t, shared(), table, "k", 3*len(kt.values))
			for _, v := range kt.values {
				expect(t, conn, "3", fmt.Sprintf("SELECT count(*) FROM %s WHERE k = %s AND v = %[2]s", table, literal(v)))
			}
		})
	}
}

func TestCopyOptions(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE copyopt (id bigserial PRIMARY KEY, v text DEFAULT 'dv', n int)", "SELECT create_distributed_table('copyopt', 'id')",
		"CREATE TABLE copyopt_ref (id int PRIMARY KEY, v text)", "SELECT create_reference_table('copyopt_ref')", "CREATE TABLE copyopt_local (id int, v text)")
	rows := 0
	load := func(data, options string, n int) {
		t.Helper()
		tag, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(data), "COPY copyopt "+options)
		if err != nil || int(tag.RowsAffected()) != n {
			t.Errorf("COPY copyopt %s: %q %v", options, tag, err)
			return
		}
		rows += n
	}
	load("1001;a;1\n1002;;2\n", "FROM STDIN (DELIMITER ';', NULL '')", 2)
	load("id,v,n\n1003,'it''s',3\n", "FROM STDIN (FORMAT csv, HEADER, QUOTE '''', ESCAPE '''')", 1)
	load("7,NIL,1009\n", "(n, v, id) FROM STDIN WITH CSV NULL 'NIL'", 1)
	if tag, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("x\t5\ny\t6\n"), "COPY copyopt (v, n) FROM STDIN"); err != nil {
		refused(t, err, "0A000", "HINT: ", "id") // the key is defaulted
	} else {
		rows += int(tag.RowsAffected())
	}
	load("1010\tv\t1\n\\.\n", "FROM STDIN", 1)
	load("", "FROM STDIN", 0)
	load("1011\tcr\t1\r\n1012\tcr\t1\r\n", "FROM STDIN", 2)
	checkPlaced(t, shared(), "copyopt", "id", rows)
	expect(t, conn, "it's|3", "SELECT v, n FROM copyopt WHERE id = 1003")
	if tag, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("1\ta\n2\tb\n"), "COPY copyopt_ref FROM STDIN"); err != nil || tag.RowsAffected() != 2 {
		t.Errorf("COPY into a reference table: %q %v", tag, err)
	}
	checkReference(t, shared(), "copyopt_ref", 2)
	if tag, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("1\ta\n2\tb\n"), "COPY copyopt_local FROM STDIN"); err != nil || tag.RowsAffected() != 2 {
		t.Errorf("COPY into a local table: %q %v", tag, err)
	}
	checkLocal(t, shared(), "copyopt_local", 2)
	// pgx's own COPY.
	n, err := conn.CopyFrom(t.Context(), pgx.Identifier{"copyopt"}, []string{"id", "v"}, pgx.CopyFromSlice(500, func(i int) ([]any, error) {
		return []any{int64(5000 + i), fmt.Sprint("pgx ", i)}, nil
	}))
	if err != nil || n != 500 {
		t.Errorf("pgx CopyFrom: %d %v", n, err)
	}
	checkPlaced(t, shared(), "copyopt", "id", rows+500)
	// COPY out of one node's rows is what PostgreSQL writes.
	var out bytes.Buffer
	if _, err := conn.PgConn().CopyTo(t.Context(), &out, "COPY (SELECT id, v FROM copyopt WHERE id = 1003) TO STDOUT (FORMAT csv)"); err != nil {
		t.Errorf("COPY of a query by key: %s", describe(err))
	} else if out.String() != "1003,it's\n" {
		t.Errorf("COPY of a query by key wrote %q", out.String())
	}
}

func TestCopyIsAllOrNothing(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE copybad (id bigint PRIMARY KEY, v int CHECK (v > 0))", "SELECT create_distributed_table('copybad', 'id')",
		"INSERT INTO copybad VALUES (3, 3)")
	good := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, "%d\t%d\n", i+100, i+1)
		}
		return b.String()
	}
	for _, tt := range []struct{ name, data, code, says string }{
		{"a value of the wrong type", good(5000) + "99999\tx\n", "22P02", `column v: "x"`},
		{"a key of the wrong type", good(5000) + "x\t1\n", "22P02", "line 5001"},
		{"a null key", good(5000) + "\\N\t1\n", "23502", ""},
		{"a missing column", good(5000) + "5\n", "22P04", "line 5001"},
		{"an extra column", good(5000) + "5\t6\t7\n", "22P04", ""},
		{"a failed check", good(5000) + "77777\t-1\n", "23514", "copybad_v_check"},
		{"a key that is there", good(5000) + "3\t1\n", "23505", "copybad_pkey"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(tt.data), "COPY copybad FROM STDIN")
			refused(t, err, tt.code, tt.says)
			checkPlaced(t, shared(), "copybad", "id", 1)
			expect(t, conn, "1", "SELECT 1")
		})
	}
	t.Run("the client fails it", func(t *testing.T) {
		_, err := conn.PgConn().CopyFrom(t.Context(), io.MultiReader(strings.NewReader(good(5000)), brokenReader{}), "COPY copybad FROM STDIN")
		if err == nil {
			t.Error("a COPY that failed at the client succeeded")
		}
		checkPlaced(t, shared(), "copybad", "id", 1)
		expect(t, conn, "1", "SELECT 1")
	})
	t.Run("in a transaction", func(t *testing.T) {
		run(t, conn, "BEGIN")
		if _, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(good(100)), "COPY copybad FROM STDIN"); err != nil {
			t.Fatal(describe(err))
		}
		expect(t, conn, "1", "SELECT v FROM copybad WHERE id = 100")
		run(t, conn, "ROLLBACK")
		checkPlaced(t, shared(), "copybad", "id", 1)
	})
	t.Run("the client dies", func(t *testing.T) {
		dying := connect(t, shared().DSN(0))
		f := dying.PgConn().Frontend()
		f.Send(&pgproto3.Query{String: "COPY copybad FROM STDIN"})
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		if msg, err := f.Receive(); err != nil {
			t.Fatal(err)
		} else if _, ok := msg.(*pgproto3.CopyInResponse); !ok {
			t.Fatalf("COPY was answered with %T", msg)
		}
		f.Send(&pgproto3.CopyData{Data: []byte(good(20000))})
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := dying.PgConn().Conn().Close(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the nodes to forget the rows", func() bool {
			busy := 0
			onNodes(t, shared(), "postgres", func(_ string, c *pgx.Conn) {
				var n int
				_ = c.QueryRow(context.Background(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%copybad%' AND state <> 'idle'").Scan(&n)
				busy += n
			})
			return busy == 0
		})
		checkPlaced(t, shared(), "copybad", "id", 1)
	})
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errors.New("the file is gone") }
