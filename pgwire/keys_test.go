package pgwire_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/shardtest"
)

func TestVerifierOfRFC7677(t *testing.T) {
	// The example of RFC 7677, section 3, has these inputs; the proof in it follows from the keys.
	salt := []byte("\x5b\x6d\x99\x68\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81")
	keys, err := pgwire.DeriveKeys("pencil", salt, 4096)
	if err != nil {
		t.Fatal(err)
	}
	want := "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
	if got := keys.Verifier().String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestVerifierRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		verifier, err := pgwire.BuildVerifier(rapid.String().Draw(t, "password"))
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := pgwire.ParseVerifier(verifier)
		if err != nil || parsed.String() != verifier {
			t.Fatalf("%s: %v", verifier, err)
		}
	})
}

func TestParseVerifierRefuses(t *testing.T) {
	good := verifierFor(t, "x")
	head, keys, _ := strings.Cut(strings.TrimPrefix(good, "SCRAM-SHA-256$"), "$")
	_, salt, _ := strings.Cut(head, ":")
	stored, server, _ := strings.Cut(keys, ":")
	for _, bad := range []string{
		"", "x", "md5" + strings.Repeat("a", 32), "SCRAM-SHA-256", "SCRAM-SHA-256$", "SCRAM-SHA-1$" + head + "$" + keys,
		"SCRAM-SHA-256$" + head, "SCRAM-SHA-256$" + head + "$" + stored,
		"SCRAM-SHA-256$0:" + salt + "$" + keys, "SCRAM-SHA-256$-1:" + salt + "$" + keys, "SCRAM-SHA-256$x:" + salt + "$" + keys,
		"SCRAM-SHA-256$99999999999:" + salt + "$" + keys,
		"SCRAM-SHA-256$4096:?$" + keys, "SCRAM-SHA-256$" + head + "$" + stored[4:] + ":" + server, "SCRAM-SHA-256$" + head + "$" + stored + ":" + server + "AAAA",
		good + "x",
	} {
		if v, err := pgwire.ParseVerifier(bad); !errors.Is(err, pgwire.ErrNotVerifier) {
			t.Errorf("%q: %v, %v", bad, v, err)
		}
	}
}

// testPasswords is a part of TestAsPostgreSQL: PostgreSQL makes verifiers and we derive the same keys.
func testPasswords(t *testing.T, pg *shardtest.Postgres) {
	ctx := t.Context()
	conn, err := pgconn.Connect(ctx, pg.DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "CREATE ROLE prepared").ReadAll(); err != nil {
		t.Fatal(err)
	}
	check := func(t interface{ Fatalf(string, ...any) }, password string) {
		sql := "ALTER ROLE prepared PASSWORD '" + strings.ReplaceAll(password, "'", "''") + "'; SELECT rolpassword FROM pg_authid WHERE rolname = 'prepared'"
		results, err := conn.Exec(ctx, sql).ReadAll()
		if err != nil {
			t.Fatalf("%q: %v", password, err)
		}
		stored := string(results[1].Rows[0][0])
		v, err := pgwire.ParseVerifier(stored)
		if err != nil {
			t.Fatalf("%s: %v", stored, err)
		}
		keys, err := pgwire.DeriveKeys(password, v.Salt, v.Iterations)
		if err != nil {
			t.Fatalf("%v", err)
		}
		if got := keys.Verifier().String(); got != stored {
			t.Fatalf("%+q: other keys than PostgreSQL's", password)
		}
	}
	for _, password := range []string{
		"secret", "I\u00adX", "\u2168", "\u00aa", "\u00a0x", "x\u200by", "a\u0301", "e\u0301\u0327", "\u1100\u1161", "\ufb01", "\ufdfa",
		"\u0627\u0031", "\u0627\u0031\u0628", "\u0627a\u0628", "1\u0627", "\u05d0b", "\u00ad", "\u00ad\u200d", "\ue000", "\u0221", "\U0001f600", "\ufffd",
		"\u2028x", "\x01\x02", "\u0080", "x\u0080", "\u06dd", "\u0340", "\u200e\u00e4", "\ufeff\u00e4", "\U000e0001\u00e4", "\U0001d400", "\uf900", "\u1e9b\u0323",
	} {
		check(t, password)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.StringOfN(rapid.OneOf(
			rapid.RuneFrom([]rune("aZ9 \u00a0\u00ad\u200b\u2168\u0301\u0627\u05d0\u0661\u3000\u0221\ue000\u2028")),
			rapid.Int32Range(1, 0x2fff), rapid.Int32Range(0xf900, 0xffff), rapid.Int32Range(0x10000, 0x2ffff),
		), 1, 6, -1).Draw(t, "password"))
	})
}
