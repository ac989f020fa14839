package copyrows

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func show(got split) string {
	var out []string
	for _, key := range got.keys {
		var values []string
		for _, v := range key {
			if v == nil {
				values = append(values, "NULL")
			} else {
				values = append(values, fmt.Sprintf("%q", v))
			}
		}
		out = append(out, strings.Join(values, " "))
	}
	return strings.Join(out, "; ")
}

func TestSplitter(t *testing.T) {
	two := []string{"a", "b"}
	for _, c := range []struct {
		name string
		o    Options
		data string
		want string // keys, or the error with its context
	}{
		{"text", Options{KeyColumns: []int{1, 0}}, "1\t2\n\\N\t\n", `"2" "1"; "" NULL`},
		{"text escapes", Options{KeyColumns: []int{0}}, `\x41\102\q\t\\` + "\t2\n", `"ABq\t\\"`},
		{"escaped newline", Options{KeyColumns: []int{0}}, "a\\\nb\tc\n", `"a\nb"`},
		{"no last newline", Options{KeyColumns: []int{1}}, "1\t2\n3\t4", `"2"; "4"`},
		{"end marker", Options{KeyColumns: []int{1}}, "1\t2\n\\.\nrubbish", `"2"`},
		{"marker after data", Options{KeyColumns: []int{1}}, "1\t2\\.\n", "end-of-copy marker is not alone on its line (COPY t, line 1)"},
		{"missing", Options{}, "1\t2\n3\n", `missing data for column "b" (COPY t, line 2: "3")`},
		{"extra", Options{KeyColumns: []int{0}}, "1\t2\t3\n", `extra data after last expected column (COPY t, line 1: "1	2	3")`},
		{"mixed newlines", Options{}, "1\t2\r\n3\t4\n", "literal newline found in data (COPY t, line 2)"},
		{"csv", Options{Format: CSV, KeyColumns: []int{0}}, "\"a\"\"b\nc\",2\n,\n\"\",3\n", `"a\"b\nc"; NULL; ""`},
		{"csv escape", Options{Format: CSV, Escape: '\\', KeyColumns: []int{0}}, "\"a\\\"b\\\\\",2\n", `"a\"b\\"`},
		{"csv force", Options{Format: CSV, Null: new("x"), ForceNull: []int{1}, ForceNotNull: []int{0}, KeyColumns: []int{0, 1}}, "x,\"x\"\n", `"x" NULL`},
		{"csv header", Options{Format: CSV, Header: MatchHeader, KeyColumns: []int{0}}, "a,\"b\"\n1,2\n", `"1"`},
		{"csv wrong header", Options{Format: CSV, Header: MatchHeader}, "a,c\n1,2\n", `column name mismatch in header line field 2: got "c", expected "b" (COPY t, line 1: "a,c")`},
		{"csv header not UTF8", Options{Format: CSV, Header: SkipHeader}, "a,\xe9 \n1,2\n", `invalid byte sequence for encoding "UTF8": 0xe9 0x20 (COPY t, line 1)`},
		{"csv header in bytes", Options{Format: CSV, Header: SkipHeader, Encoding: "sql_ascii", KeyColumns: []int{0}}, "a,\xe9\n1,2\n", `"1"`},
		{"csv unterminated", Options{Format: CSV}, "1,2\n3,\"4\n5,6\n", "unterminated CSV quoted field (COPY t, line 4: \"3,\"4\n5,6\n\")"},
		{"default of a key", Options{Default: new(`\D`), KeyColumns: []int{0}}, "\\D\t1\n", `COPY into a distributed table cannot use the default of key column "a" (COPY t, line 1: "\D	1")`},
		{"default of another", Options{Default: new(`\D`), KeyColumns: []int{0}}, "1\t\\D\n", `"1"`},
		{"nothing", Options{KeyColumns: []int{0}}, "", ""},
		{"binary nothing", Options{Format: Binary}, "", "COPY file signature not recognized ()"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Table, c.o.Columns = "t", two
			for size := 1; size <= len(c.data)+1; size++ {
				got, err := splitAll(c.o, slices.Collect(slices.Chunk([]byte(c.data), size)), 1)
				have := show(got)
				var e *Error
				if errors.As(err, &e) {
					have = fmt.Sprintf("%s (%s)", e.Message, e.Where)
				} else if err != nil {
					t.Fatal(err)
				}
				if have != c.want {
					t.Fatalf("in pieces of %d: %s\nwant %s", size, have, c.want)
				}
			}
		})
	}
}

func TestMarkerIsDataInCSVFrom18(t *testing.T) {
	o := Options{Format: CSV, Columns: []string{"a"}, KeyColumns: []int{0}}
	data := [][]byte{[]byte("1\n\\"), []byte(".\n2\n")}
	before, err := splitAll(o, data, 1)
	if err != nil || show(before) != `"1"` {
		t.Errorf("17: %s %v", show(before), err)
	}
	o.ServerVersion = 18
	after, err := splitAll(o, data, 1)
	if err != nil || show(after) != `"1"; "\\."; "2"` {
		t.Errorf("18: %s %v", show(after), err)
	}
}

func TestOptions(t *testing.T) {
	columns := []string{"a", "b"}
	for _, c := range []struct {
		o    Options
		code string
	}{
		{Options{}, codeNotSupported},
		{Options{Columns: columns, Delimiter: 'a'}, codeInvalidParameter},
		{Options{Columns: columns, Delimiter: '\\'}, codeInvalidParameter},
		{Options{Columns: columns, Delimiter: '\n'}, codeInvalidParameter},
		{Options{Columns: columns, Delimiter: 0xe9}, codeNotSupported},
		{Options{Columns: columns, Null: new("a\tb")}, codeNotSupported},
		{Options{Columns: columns, Null: new("\n")}, codeInvalidParameter},
		{Options{Columns: columns, Quote: '"'}, codeNotSupported},
		{Options{Columns: columns, ForceNull: []int{0}}, codeNotSupported},
		{Options{Columns: columns, Default: new(`\N`)}, codeInvalidParameter},
		{Options{Columns: columns, Encoding: "latin1"}, codeNotSupported},
		{Options{Columns: columns, Format: CSV, Delimiter: '"'}, codeInvalidParameter},
		{Options{Columns: columns, Format: CSV, Null: new(`"`)}, codeNotSupported},
		{Options{Columns: columns, Format: Binary, Delimiter: ','}, codeSyntax},
		{Options{Columns: columns, Format: Binary, Header: SkipHeader}, codeNotSupported},
		{Options{Columns: columns, KeyColumns: []int{2}}, ""},
		{Options{Columns: columns, KeyColumns: []int{1, 1}}, ""},
		{Options{Columns: columns, Format: CSV, ForceNotNull: []int{-1}}, ""},
	} {
		_, err := New(c.o)
		var e *Error
		if code := ""; err == nil {
			t.Errorf("%+v is accepted", c.o)
		} else if errors.As(err, &e) {
			if code = e.SQLState(); code != c.code {
				t.Errorf("%+v: %s %s, want %s", c.o, code, err, c.code)
			}
		} else if c.code != "" {
			t.Errorf("%+v: %v, want %s", c.o, err, c.code)
		}
	}
	for _, encoding := range []string{"", "utf8", "UTF-8", "unicode", "SQL_ASCII"} {
		if _, err := New(Options{Columns: columns, Encoding: encoding}); err != nil {
			t.Errorf("%q: %v", encoding, err)
		}
	}
}

// TestErrorsStay shows that nothing is read after an error, of the data or of the receiver.
func TestErrorsStay(t *testing.T) {
	s, err := New(Options{Columns: []string{"a"}, KeyColumns: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	full := errors.New("full")
	calls := 0
	emit := func([]byte, [][]byte) error { calls++; return full }
	for range 3 {
		if err := s.Write([]byte("1\n2\n"), emit); !errors.Is(err, full) {
			t.Fatal(err)
		}
	}
	if err := s.Close(emit); !errors.Is(err, full) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

// TestLongRowInSmallPieces would take minutes if each piece made the row be searched again.
func TestLongRowInSmallPieces(t *testing.T) {
	for _, o := range []Options{{}, {Format: CSV}, {Format: CSV, Escape: '\\'}, {Format: Binary}} {
		o.Columns, o.KeyColumns = []string{"a", "b"}, []int{0}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		const size = 64 << 20
		head, tail := "k\t", "\n"
		switch o.Format {
		case CSV:
			head, tail = "k,\"", "\"\n"
		case Binary:
			head = string(s.Prologue()) + "\x00\x02\x00\x00\x00\x01k\x04\x00\x00\x00"
			tail = string(s.Epilogue())
		}
		var keys []string
		emit := func(row []byte, key [][]byte) error {
			keys = append(keys, fmt.Sprintf("%s %v", key[0], len(row) > size))
			return nil
		}
		piece := bytes.Repeat([]byte("x"), 8<<10)
		err = s.Write([]byte(head), emit)
		for n := 0; n < size && err == nil; n += len(piece) {
			err = s.Write(piece, emit)
		}
		if err == nil {
			err = s.Write([]byte(tail), emit)
		}
		if err == nil {
			err = s.Close(emit)
		}
		if err != nil || !slices.Equal(keys, []string{"k true"}) {
			t.Errorf("format %d: %q %v", o.Format, keys, err)
		}
	}
}

// FuzzSplitter checks that the pieces in which data comes do not matter, that rows are the data,
// and that nothing panics.
func FuzzSplitter(f *testing.F) {
	f.Add([]byte("a\tb\n\\N\tc\\\n\n"), uint8(0), uint8('\t'), uint8('"'), uint8('"'), 3)
	f.Add([]byte("\"a\",b\r\n\\.\r\n"), uint8(1), uint8(','), uint8('"'), uint8('\\'), 1)
	f.Add([]byte(signature+"\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x01k\xff\xff\xff\xff\xff\xff"), uint8(2), uint8(0), uint8(0), uint8(0), 2)
	f.Fuzz(func(t *testing.T, data []byte, mode, delimiter, quote, escape uint8, size int) {
		o := Options{Columns: []string{"a", "b"}, KeyColumns: []int{1, 0}, Format: Format(mode % 3), Header: Header(mode / 3 % 3)}
		if o.Format != Binary {
			o.Delimiter = delimiter
		}
		if o.Format == CSV {
			o.Quote, o.Escape = quote, escape
		}
		if _, err := New(o); err != nil || size < 1 {
			return
		}
		whole, wholeErr := splitAll(o, [][]byte{data}, 1)
		pieces, err := splitAll(o, slices.Collect(slices.Chunk(data, size)), 1)
		if fmt.Sprint(wholeErr) != fmt.Sprint(err) || show(whole) != show(pieces) {
			t.Fatalf("whole: %s %v\npieces: %s %v", show(whole), wholeErr, show(pieces), err)
		}
		if o.Format != Binary && !bytes.Contains(data, whole.streams[0]) {
			t.Fatalf("%q is not in the data", whole.streams[0])
		}
	})
}
