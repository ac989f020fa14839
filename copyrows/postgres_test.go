package copyrows

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/shardtest"
)

// A server is a PostgreSQL with two tables t and u of the same columns.
type server struct {
	tb   testing.TB
	conn *pgconn.PgConn
}

func startServer(t *testing.T, columns string) *server {
	if testing.Short() {
		t.Skip("starts a PostgreSQL server")
	}
	conn, err := pgconn.Connect(context.Background(), shardtest.StartPostgres(t).DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	s := &server{t, conn}
	s.query("create table t (" + columns + "); create table u (" + columns + ")")
	return s
}

func (s *server) query(sql string) [][][]byte {
	results, err := s.conn.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		s.tb.Fatalf("%s: %v", sql, err)
	}
	return results[len(results)-1].Rows
}

func (s *server) copyIn(table string, o Options, data []byte) error {
	_, err := s.conn.CopyFrom(context.Background(), bytes.NewReader(data), copySQL(table, "FROM STDIN", o))
	return err
}

func (s *server) copyOut(table string, o Options) []byte {
	var out bytes.Buffer
	if _, err := s.conn.CopyTo(context.Background(), &out, copySQL(table, "TO STDOUT", o)); err != nil {
		s.tb.Fatal(err)
	}
	return out.Bytes()
}

func literal(s string) string {
	return " E'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}

func copySQL(table, direction string, o Options) string {
	words := []string{"FORMAT " + [...]string{"text", "csv", "binary"}[o.Format]}
	for name, c := range map[string]byte{"DELIMITER": o.Delimiter, "QUOTE": o.Quote, "ESCAPE": o.Escape} {
		if c != 0 {
			words = append(words, name+literal(string(rune(c))))
		}
	}
	if o.Null != nil {
		words = append(words, "NULL"+literal(*o.Null))
	}
	switch o.Header {
	case SkipHeader:
		words = append(words, "HEADER true")
	case MatchHeader:
		words = append(words, "HEADER match")
		if strings.HasPrefix(direction, "TO") {
			words[len(words)-1] = "HEADER true"
		}
	}
	for name, columns := range map[string][]int{"FORCE_NOT_NULL": o.ForceNotNull, "FORCE_NULL": o.ForceNull} {
		if len(columns) > 0 && strings.HasPrefix(direction, "FROM") {
			names := make([]string, 0, len(columns))
			for _, c := range columns {
				names = append(names, o.Columns[c])
			}
			words = append(words, name+" ("+strings.Join(names, ",")+")")
		}
	}
	return fmt.Sprintf("COPY %s (%s) %s (%s)", table, strings.Join(o.Columns, ","), direction, strings.Join(words, ", "))
}

// target options of a stream: the header is not passed on.
func (o Options) target() Options {
	o.Header = NoHeader
	return o
}

type split struct {
	keys    [][][]byte
	streams [][]byte
}

// splitAll reads data in pieces and spreads the rows over streams by their keys.
func splitAll(o Options, pieces [][]byte, streams int) (split, error) {
	out := split{streams: make([][]byte, streams)}
	s, err := New(o)
	if err != nil {
		return out, err
	}
	for i := range out.streams {
		out.streams[i] = s.Prologue()
	}
	emit := func(row []byte, key [][]byte) error {
		hash := fnv.New32a()
		var kept [][]byte
		for _, k := range key {
			fmt.Fprintf(hash, "%v %q", k == nil, k)
			kept = append(kept, bytes.Clone(k))
		}
		n := int(hash.Sum32() % uint32(streams))
		out.keys = append(out.keys, kept)
		out.streams[n] = append(out.streams[n], row...)
		return nil
	}
	for _, piece := range pieces {
		scribbled := bytes.Clone(piece) // a caller may use its buffer again
		if err := s.Write(scribbled, emit); err != nil {
			return out, err
		}
		for i := range scribbled {
			scribbled[i] = 'X'
		}
	}
	if err := s.Close(emit); err != nil {
		return out, err
	}
	for i := range out.streams {
		out.streams[i] = append(out.streams[i], s.Epilogue()...)
	}
	if s.Rows() != int64(len(out.keys)) {
		return out, fmt.Errorf("%d rows counted, %d emitted", s.Rows(), len(out.keys))
	}
	return out, nil
}

func cut(t *rapid.T, data []byte) (pieces [][]byte) {
	if rapid.IntRange(0, 3).Draw(t, "whole") == 0 {
		return [][]byte{data}
	}
	most := rapid.SampledFrom([]int{1, 2, 5, 50}).Draw(t, "most")
	for len(data) > 0 {
		n := min(len(data), rapid.IntRange(0, most).Draw(t, "piece"))
		pieces = append(pieces, data[:n])
		data = data[n:]
	}
	return pieces
}

func someColumns(t *rapid.T, o Options, name string) []int {
	all := make([]int, len(o.Columns))
	for i := range all {
		all[i] = i
	}
	return rapid.Permutation(all).Draw(t, name)[:rapid.IntRange(0, len(all)).Draw(t, name+" count")]
}

func drawOptions(t *rapid.T, columns ...string) Options {
	o := Options{Table: "t", Columns: columns, Format: rapid.SampledFrom([]Format{Text, CSV}).Draw(t, "format")}
	o.KeyColumns = someColumns(t, o, "key")
	o.Header = rapid.SampledFrom([]Header{NoHeader, NoHeader, SkipHeader, MatchHeader}).Draw(t, "header")
	o.Delimiter = rapid.SampledFrom([]byte{0, '|', ',', ';', 'A', '\'', 1}).Draw(t, "delimiter")
	if rapid.Bool().Draw(t, "null") {
		null := rapid.SampledFrom([]string{"", `\N`, "NULL", "a", `\\`, `\n`, "\\\\N"}).Draw(t, "null text")
		o.Null = &null
	}
	if o.Format == CSV {
		o.Quote = rapid.SampledFrom([]byte{0, 0, '"', '\'', '\\', 'q'}).Draw(t, "quote")
		o.Escape = rapid.SampledFrom([]byte{0, 0, '"', '\\', '\'', 'e'}).Draw(t, "escape")
		o.ForceNotNull = someColumns(t, o, "force not null")
		o.ForceNull = someColumns(t, o, "force null")
	}
	return o
}

// drawData makes data that is often right and seldom plain.
func drawData(t *rapid.T, o Options) []byte {
	o = o.withDefaults()
	newline := rapid.SampledFrom([]string{"\n", "\n", "\r\n", "\r"}).Draw(t, "newline")
	d, q, e := string(rune(o.Delimiter)), string(rune(o.Quote)), string(rune(o.Escape))
	piece := rapid.SampledFrom([]string{"", "a", "b", "é", "N", ".", `\`, `\\`, `\N`, `\.`, `\n`, `\t`, `\x4`, `\x41`, `\101`, `\7`, `\q`, "\\\n", "\\\r", `\` + d, *o.Null, " ", "x", "q", "e", strings.Repeat("xé", 40)})
	if o.Format == CSV {
		piece = rapid.SampledFrom([]string{
			"", "a", "é", `\`, `\.`, " ", *o.Null, q + "a" + q, q + q, q + *o.Null + q, q + "a" + d + "b" + q, q + "a" + newline + "b" + q, q + "\n" + q, q + "\r" + q,
			q + e + q + q, q + e + e + q, q + e + "a" + q, e, q + "a" + q + "b" + q + "c" + q, "e", "q", strings.Repeat("éx", 40),
		})
	}
	wild := rapid.SampledFrom([]string{"\n", "\r", "\r\n", d, q, e, `\.`, "\\.\n", "\\.\r\n", "\\.\r", "\\.x\n", `\`})
	rare := func() string {
		if rapid.IntRange(0, 25).Draw(t, "rare") == 0 {
			return wild.Draw(t, "wild")
		}
		return ""
	}
	var out strings.Builder
	if o.Header != NoHeader {
		out.WriteString(rapid.SampledFrom([]string{strings.Join(o.Columns, d), strings.Join(o.Columns, d), q + o.Columns[0] + q + d + o.Columns[1], o.Columns[0], "x" + d + "y", `\N` + d}).Draw(t, "header line") + newline)
	}
	rows := rapid.IntRange(0, 5).Draw(t, "rows")
	for i := range rows {
		for c := range o.Columns {
			if c > 0 {
				out.WriteString(d)
			}
			out.WriteString(strings.Join(rapid.SliceOfN(piece, 0, 3).Draw(t, "field"), "") + rare())
		}
		if i < rows-1 || rapid.Bool().Draw(t, "last newline") {
			out.WriteString(newline)
		}
	}
	out.WriteString(rare())
	return []byte(out.String())
}

// TestAsPostgreSQLReads gives the same data to a server and to a splitter: both must fail with the
// same error, or find the same keys; and the split streams must make the same table.
func TestAsPostgreSQLReads(t *testing.T) {
	pg := startServer(t, "c1 text, c2 text")
	var good, bad int
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t, "c1", "c2")
		data := drawData(t, o)
		pg.query("truncate t, u")
		pgErr := pg.copyIn("t", o, data)
		got, err := splitAll(o, cut(t, data), 3)
		if pgErr != nil || err != nil {
			bad++
			compareErrors(t, o, data, got, err, pgErr, pg)
			return
		}
		good++
		checkKeys(t, o, data, got, pg)
		for _, stream := range got.streams {
			if err := pg.copyIn("u", o.target(), stream); err != nil {
				t.Fatalf("%s\n%q: stream %q: %v", copySQL("t", "FROM STDIN", o), data, stream, err)
			}
		}
		if diff := pg.query("select count(*) from (table t except all table u) x union all select count(*) from (table u except all table t) y"); string(diff[0][0])+string(diff[1][0]) != "00" {
			t.Fatalf("%s\n%q: streams %q make another table", copySQL("t", "FROM STDIN", o), data, got.streams)
		}
	})
	t.Logf("%d good, %d bad", good, bad)
	if good == 0 || bad == 0 {
		t.Error("the generator is one-sided")
	}
}

func checkKeys(t *rapid.T, o Options, data []byte, got split, pg *server) {
	rows := pg.query("select c1, c2 from t order by ctid")
	if len(rows) != len(got.keys) {
		t.Fatalf("%s\n%q: %d rows, want %d", copySQL("t", "FROM STDIN", o), data, len(got.keys), len(rows))
	}
	for i, row := range rows {
		for j, column := range o.KeyColumns {
			if have, want := got.keys[i][j], row[column]; !bytes.Equal(have, want) || (have == nil) != (want == nil) {
				t.Fatalf("%s\n%q: row %d column %d: %q, want %q", copySQL("t", "FROM STDIN", o), data, i, column, have, want)
			}
		}
	}
}

// compareErrors accepts errors that only the server finds, if it finds them in the streams too.
func compareErrors(t *rapid.T, o Options, data []byte, got split, err, pgErr error, pg *server) {
	var mine *Error
	var theirs *pgconn.PgError
	sql := copySQL("t", "FROM STDIN", o)
	errors.As(pgErr, &theirs)
	if err == nil {
		for _, stream := range got.streams {
			if pg.copyIn("u", o.target(), stream) != nil {
				return
			}
		}
		t.Fatalf("%s\n%q: accepted, PostgreSQL says %v %s", sql, data, pgErr, theirs.Where)
	}
	if !errors.As(err, &mine) {
		t.Fatalf("%s\n%q: %v", sql, data, err)
	}
	if mine.Message == "end-of-copy marker is not alone on its line" {
		return // refused on purpose
	}
	if theirs == nil {
		t.Fatalf("%s\n%q: %v, PostgreSQL accepts", sql, data, err)
	}
	if theirs.Code == codeEncoding {
		return // the server checks escapes of all columns
	}
	want := Error{theirs.Code, theirs.Message, theirs.Hint, theirs.Where}
	if *mine != want {
		t.Fatalf("%s\n%q:\n got %+v\nwant %+v", sql, data, *mine, want)
	}
}

// TestRoundTrip splits what a server writes, in all formats.
func TestRoundTrip(t *testing.T) {
	pg := startServer(t, "id int8, name text, raw bytea, big numeric, at timestamptz")
	pg.query(`insert into t select i, case when i % 7 = 0 then null else
		array_to_string(array(select substr(E'ab,"\\\t\n\r|;é''N. ', (random()*16)::int + 1, 1) from generate_series(1, (i + random() * 0)::int % 9)), '') end,
		decode(md5(i::text), 'hex'), random() * i, now() + i * interval '1 hour' from generate_series(1, 500) i`)
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t, "id", "name", "raw", "big", "at")
		if rapid.IntRange(0, 2).Draw(t, "binary") == 0 {
			o = Options{Format: Binary, Table: o.Table, Columns: o.Columns, KeyColumns: o.KeyColumns}
		}
		o.ForceNull, o.ForceNotNull = nil, nil
		if _, err := New(o); err != nil {
			return
		}
		if o.Null != nil && *o.Null != `\N` && *o.Null != "" {
			o.Null = nil // others could be values, which COPY TO does not tell apart in text
		}
		if o.Null != nil && o.Format == Text {
			o.Null = nil
		}
		if o.Format == CSV && o.Quote == 'q' || o.Escape == 'e' || o.Delimiter == 'A' {
			return
		}
		data := pg.copyOut("t", o)
		pg.query("truncate u")
		got, err := splitAll(o, cut(t, data), 4)
		if err != nil {
			t.Fatalf("%s: %v", copySQL("t", "TO STDOUT", o), err)
		}
		for _, stream := range got.streams {
			if err := pg.copyIn("u", o.target(), stream); err != nil {
				t.Fatalf("%s: %v", copySQL("t", "TO STDOUT", o), err)
			}
		}
		if diff := pg.query("select count(*) from (table t except all table u) x union all select count(*) from (table u except all table t) y"); string(diff[0][0])+string(diff[1][0]) != "00" {
			t.Fatalf("%s: %s rows are missing, %s are new", copySQL("t", "TO STDOUT", o), diff[0][0], diff[1][0])
		}
	})
}

// TestBinaryAsPostgreSQLReads damages binary data and compares the errors.
func TestBinaryAsPostgreSQLReads(t *testing.T) {
	pg := startServer(t, "c1 text, c2 text")
	pg.query("insert into t values ('a', 'b'), (null, ''), ('long', 'longer')")
	o := Options{Format: Binary, Table: "t", Columns: []string{"c1", "c2"}, KeyColumns: []int{1}}
	whole := pg.copyOut("t", o)
	rapid.Check(t, func(t *rapid.T) {
		data := slices.Clone(whole)
		if rapid.Bool().Draw(t, "extend") { // an extension of 3 bytes
			data[18] = 3
			data = slices.Concat(data[:19], []byte("ext"), data[19:])
		}
		for range rapid.IntRange(0, 2).Draw(t, "damages") {
			i := rapid.IntRange(0, len(data)-1).Draw(t, "at")
			switch rapid.IntRange(0, 2).Draw(t, "how") {
			case 0:
				data[i] = rapid.SampledFrom([]byte{0, 1, 2, 3, 4, 0x7f, 0x80, 0xfe, 0xff}).Draw(t, "byte")
			case 1:
				data = data[:i+1]
			case 2:
				data = append(data, 0)
			}
		}
		pg.query("truncate t, u")
		pgErr := pg.copyIn("t", o, data)
		got, err := splitAll(o, cut(t, data), 3)
		if err == nil && pgErr == nil {
			checkKeys(t, o, data, got, pg)
			return
		}
		var mine *Error
		if errors.As(err, &mine) && mine.Code == codeLimit {
			return // PostgreSQL runs out of memory or waits for the data
		}
		compareErrors(t, o, data, got, err, pgErr, pg)
	})
}
