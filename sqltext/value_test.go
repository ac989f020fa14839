package sqltext

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/shardtest"
)

func TestValue(t *testing.T) {
	for sql, want := range map[string]string{
		"42": "42", "1_000": "1000", "1_0.5e1_0": "10.5e10", "0x1F": "31", "0b_101": "5", "0O17": "15", "0xffffffffffffffff": "18446744073709551615", ".5": ".5",
		"'a'": "a", "''": "", "''''": "'", "'a''b'": "a'b", "'a'\n'b'": "ab", "'a'' '\n -- x ' \n 'b'''": "a' b'", `'a\n'`: `a\n`,
		"E'a'": "a", `E'a\nb'`: "a\nb", `e'\'\\\101\x41\x4a\t\q'`: "'\\AAJ\tq", `E'\u00e9\U0001F600'`: "é😀", `E'\xz'`: "xz", "E'a'\n'\\t'": "a\t",
		"$$a'b$$": "a'b", "$x$ $y$ $x$": " $y$ ", "$$$$": "",
	} {
		var n Normalized
		if !Normalize(&n, sql, true) || len(n.Literals) != 1 {
			t.Errorf("%q: no literal", sql)
			continue
		}
		got, ok := n.Literals[0].Value([]byte(sql), nil)
		if !ok || string(got) != want {
			t.Errorf("%q: %q %v, want %q", sql, got, ok, want)
		}
	}
}

func TestValueRefuses(t *testing.T) {
	for _, l := range []struct {
		sql  string
		kind Kind
	}{
		{"U&'a'", UnicodeString},
		{"B'1'", BitString},
		{"0x10000000000000000", Decimal},
		{`E'\377'`, EscapeString},
		{`E'\ud83d\ude00'`, EscapeString},
	} {
		if v, ok := (Literal{End: len(l.sql), Kind: l.kind}).Value([]byte(l.sql), nil); ok {
			t.Errorf("%q: %q", l.sql, v)
		}
	}
	if _, ok := (Literal{Start: 3, End: 9, Kind: String}).Value([]byte("'a'"), nil); ok {
		t.Error("a literal of another text has a value")
	}
}

// TestValueIsPostgreSQLs lets a server read random strings in both settings.
func TestValueIsPostgreSQLs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a PostgreSQL server")
	}
	ctx := context.Background()
	conn, err := pgconn.Connect(ctx, shardtest.StartPostgres(t).DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	fragments := []string{
		"a", "é", "'", "''", `\`, `\\`, `\'`, `\n`, `\x41`, `\x4`, `\101`, `\7`, `\u00e9`, `\U00000041`, `\q`, "$", "$$", "$a$",
		"\n", "'\n'", "' -- c\n '", "'\r\t'", "--", "/*", " ", `"`,
	}
	rapid.Check(t, func(t *rapid.T) {
		standard := rapid.Bool().Draw(t, "standard")
		open := rapid.SampledFrom([]string{"'", "E'", "e'", "$$", "$a$"}).Draw(t, "open")
		end := strings.TrimLeft(open, "eE")
		sql := "select " + open + strings.Join(rapid.SliceOfN(rapid.SampledFrom(fragments), 0, 8).Draw(t, "body"), "") + end
		setting := "off"
		if standard {
			setting = "on"
		}
		conn.Exec(ctx, "set escape_string_warning = off; set standard_conforming_strings = "+setting).Close()
		results, err := conn.Exec(ctx, sql).ReadAll()
		var n Normalized
		if !Normalize(&n, sql, standard) {
			if err == nil {
				t.Fatalf("%q (standard %v): refused, PostgreSQL reads %q", sql, standard, results[0].Rows)
			}
			return
		}
		if string(n.Text) != "select \x01s" {
			return
		}
		if err != nil {
			t.Fatalf("%q (standard %v): accepted, but %v", sql, standard, err)
		}
		got, ok := n.Literals[0].Value([]byte(sql), nil)
		if want := results[0].Rows[0][0]; !ok || string(got) != string(want) {
			t.Fatalf("%q (standard %v): %q %v, want %q", sql, standard, got, ok, want)
		}
	})
}
