package pgwire_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/shardtest"
)

func connectWithOptions(ctx context.Context, pg *shardtest.Postgres, options string) (*pgconn.PgConn, error) {
	config, err := pgconn.ParseConfig(pg.DSN("", ""))
	if err != nil {
		return nil, err
	}
	config.RuntimeParams = map[string]string{"options": options}
	return pgconn.ConnectConfig(ctx, config)
}

func refusal(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code + " " + e.Message
	}
	return err.Error()
}

// scramScript is a client's side of SCRAM with a place to break every part of it.
type scramScript struct {
	mechanism string
	noInitial bool
	first     string // client-first-message; the nonce in it must be the one below
	bare      string // the part of first that is signed
	nonce     string
	binding   string                           // c= attribute's value
	typ       byte                             // of the messages
	withNonce func(string) string              // what to answer for the server's nonce
	extra     string                           // between nonce and proof
	proof     func(proof []byte) string        // p= attribute's value
	raw       func(initial []byte) []byte      // the whole first message's body
	final     func(withoutProof string) string // replaces the last message
}

func goodScript() *scramScript {
	return &scramScript{
		mechanism: "SCRAM-SHA-256", first: "n,,n=,r=abcdefgh", bare: "n=,r=abcdefgh", nonce: "abcdefgh",
		binding: "biws", typ: 'p',
		withNonce: func(nonce string) string { return nonce },
		proof:     func(proof []byte) string { return base64.StdEncoding.EncodeToString(proof) },
	}
}

func typed(typ byte, body []byte) []byte {
	msg := binary.BigEndian.AppendUint32([]byte{typ}, uint32(len(body)+4))
	return append(msg, body...)
}

func (s *scramScript) initial() []byte {
	body := append([]byte(s.mechanism), 0)
	if s.noInitial {
		body = append(body, 0xff, 0xff, 0xff, 0xff)
	} else {
		body = binary.BigEndian.AppendUint32(body, uint32(len(s.first)))
		body = append(body, s.first...)
	}
	if s.raw != nil {
		body = s.raw(body)
	}
	return body
}

// play runs the script against a server and describes how it ended.
func (s *scramScript) play(t *testing.T, address, user, password string) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	stream := pgwire.NewStream(conn)
	send := func(msg []byte) {
		if _, err := stream.Write(msg); err != nil {
			t.Fatal(err)
		}
	}
	send(startupPacket(version3, pairs("user", user, "database", "postgres")))
	for {
		typ, msg, err := stream.Next()
		if err != nil {
			return "closed"
		}
		if typ == 'E' {
			e := pgwire.ParseError(msg)
			return fmt.Sprintf("%s %s %s [%s]", e.SeverityRaw, e.Code, e.Message, e.Detail)
		}
		if typ != 'R' {
			t.Fatalf("message %q", typ)
		}
		body := msg[9:]
		switch binary.BigEndian.Uint32(msg[5:]) {
		case 0:
			return "ok"
		case 10:
			send(typed(s.typ, s.initial()))
		case 11:
			if len(body) == 0 {
				send(typed(s.typ, []byte(s.first)))
				continue
			}
			send(typed(s.typ, s.answer(t, string(body), password)))
		}
	}
}

// answer is the client-final-message.
func (s *scramScript) answer(t *testing.T, serverFirst, password string) []byte {
	t.Helper()
	parts := strings.Split(serverFirst, ",")
	salt, err := base64.StdEncoding.DecodeString(parts[1][2:])
	if err != nil {
		t.Fatal(err)
	}
	iterations, err := strconv.Atoi(parts[2][2:])
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pgwire.DeriveKeys(password, salt, iterations)
	if err != nil {
		t.Fatal(err)
	}
	withoutProof := "c=" + s.binding + ",r=" + s.withNonce(parts[0][2:]) + s.extra
	mac := hmac.New(sha256.New, keys.StoredKey[:])
	mac.Write([]byte(s.bare + "," + serverFirst + "," + withoutProof))
	proof := make([]byte, 32)
	subtle.XORBytes(proof, keys.ClientKey[:], mac.Sum(nil))
	if s.final != nil {
		return []byte(s.final(withoutProof))
	}
	return []byte(withoutProof + ",p=" + s.proof(proof))
}

// scramPostgres is a server where the role app must use SCRAM and has the given verifier.
func scramPostgres(t *testing.T, verifier string) *shardtest.Postgres {
	t.Helper()
	pg := shardtest.StartPostgres(t)
	run(t, pg, "CREATE ROLE app LOGIN PASSWORD '"+verifier+"'; CREATE ROLE bare LOGIN")
	path := filepath.Join(pg.DataDir, "pg_hba.conf")
	rules, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rules = append([]byte("host all app,bare,nobody 127.0.0.1/32 scram-sha-256\n"), rules...)
	if err := os.WriteFile(path, rules, 0o600); err != nil {
		t.Fatal(err)
	}
	pg.Stop()
	pg.Start()
	return pg
}

func run(t *testing.T, pg *shardtest.Postgres, sql string) [][][]byte {
	t.Helper()
	conn, err := pgconn.Connect(t.Context(), pg.DSN("", ""))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	results, err := conn.Exec(t.Context(), sql).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return results[len(results)-1].Rows
}

// TestAsPostgreSQL compares with a live server, one for all of it.
func TestAsPostgreSQL(t *testing.T) {
	verifier := verifierFor(t, "secret")
	pg := scramPostgres(t, verifier)
	t.Run("startup", func(t *testing.T) { testStartup(t, pg) })
	t.Run("options", func(t *testing.T) { testOptions(t, pg) })
	t.Run("passwords", func(t *testing.T) { testPasswords(t, pg) })
	t.Run("SCRAM", func(t *testing.T) { testSCRAM(t, pg, verifier) })
}

func testSCRAM(t *testing.T, pg *shardtest.Postgres, verifier string) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, scramFor(verifier))
	first := func(gs2, bare string) func(*scramScript) {
		return func(s *scramScript) { s.first, s.bare = gs2+bare, bare }
	}
	cases := []struct {
		name           string
		user, password string
		change         func(*scramScript)
	}{
		{"right", "app", "secret", func(*scramScript) {}},
		{"wrong password", "app", "Secret", func(*scramScript) {}},
		{"role without password", "bare", "secret", func(*scramScript) {}},
		{"unknown role", "nobody", "secret", func(*scramScript) {}},
		{"asks to be asked", "app", "secret", func(s *scramScript) { s.noInitial = true }},
		{"thinks we cannot bind", "app", "secret", func(s *scramScript) { s.first, s.binding = "y,,"+s.bare, "eSws" }},
		{"name given", "app", "secret", first("n,,", "n=somebody,r=abcdefgh")},
		{"extension at the end", "app", "secret", first("n,,", "n=,r=abcdefgh,x=y")},
		{"extension in the final", "app", "secret", func(s *scramScript) { s.extra = ",x=y" }},
		{"authorization identity", "app", "secret", first("n,a=admin,", "n=,r=abcdefgh")},
		{"mandatory extension", "app", "secret", first("n,,", "m=x,n=,r=abcdefgh")},
		{"odd flag", "app", "secret", first("q,,", "n=,r=abcdefgh")},
		{"no commas", "app", "secret", first("", "n")},
		{"nothing", "app", "secret", first("", "")},
		{"one comma", "app", "secret", first("n,", "n=,r=abcdefgh")},
		{"no equals sign", "app", "secret", first("n,,", "nx,r=abcdefgh")},
		{"empty nonce", "app", "secret", func(s *scramScript) { s.first, s.bare = "n,,n=,r=", "n=,r=" }},
		{"end after the name", "app", "secret", first("n,,", "n=")},
		{"binding without the mechanism", "app", "secret", first("p=tls-server-end-point,,", "n=,r=abcdefgh")},
		{"binding mechanism without TLS", "app", "secret", func(s *scramScript) { s.mechanism += "-PLUS" }},
		{"mechanism unknown", "app", "secret", func(s *scramScript) { s.mechanism = "PLAIN" }},
		{"no name", "app", "secret", first("n,,", "r=abcdefgh")},
		{"no nonce", "app", "secret", first("n,,", "n=,x=abcdefgh")},
		{"control character in nonce", "app", "secret", first("n,,", "n=,r=abc\x01")},
		{"zero byte", "app", "secret", first("n,,", "n=,r=abc\x00def")},
		{"wrong final nonce", "app", "secret", func(s *scramScript) { s.withNonce = func(n string) string { return n + "x" } }},
		{"client nonce only", "app", "secret", func(s *scramScript) { s.withNonce = func(string) string { return "abcdefgh" } }},
		{"wrong binding", "app", "secret", func(s *scramScript) { s.binding = "eSws" }},
		{"proof too short", "app", "secret", func(s *scramScript) {
			s.proof = func(p []byte) string { return base64.StdEncoding.EncodeToString(p[:31]) }
		}},
		{"proof not base64", "app", "secret", func(s *scramScript) { s.proof = func([]byte) string { return "!!" } }},
		{"message of another type", "app", "secret", func(s *scramScript) { s.typ = 'Q' }},
		{"length beyond the message", "app", "secret", func(s *scramScript) {
			s.raw = func(b []byte) []byte { return b[:len(b)-1] }
		}},
		{"bytes behind the response", "app", "secret", func(s *scramScript) {
			s.raw = func(b []byte) []byte { return append(b, 'x') }
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			script := goodScript()
			c.change(script)
			theirs := script.play(t, pg.Address(), c.user, c.password)
			ours := script.play(t, g.listener.Addr().String(), c.user, c.password)
			if ours != theirs {
				t.Errorf("\n     ours: %s\nPostgreSQL: %s", ours, theirs)
			}
		})
	}
}

func TestSCRAMWithoutAProof(t *testing.T) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, scramFor(verifierFor(t, "secret")))
	for _, final := range []func(string) string{
		func(w string) string { return w },
		func(string) string { return ",p=" },
		func(string) string { return "" },
		func(w string) string { return w + ",p=AAAA" },
		func(w string) string { return strings.Repeat("x", 2000) },
	} {
		script := goodScript()
		script.final = final
		if got := script.play(t, g.listener.Addr().String(), "app", "secret"); !strings.HasPrefix(got, "FATAL 08P01 ") {
			t.Error(got)
		}
	}
}

// TestUnknownRolesLookKnown compares what an attacker sees before the password is checked.
func TestUnknownRolesLookKnown(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	saltOf := func(g *greeter, user string) string {
		conn, err := net.Dial("tcp", g.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		stream := pgwire.NewStream(conn)
		_, _ = stream.Write(startupPacket(version3, pairs("user", user)))
		if _, _, err := stream.Next(); err != nil {
			t.Fatal(err)
		}
		_, _ = stream.Write(typed('p', goodScript().initial()))
		_, msg, err := stream.Next()
		if err != nil {
			t.Fatal(err)
		}
		parts := strings.Split(string(msg[9:]), ",")
		if len(parts) != 3 || parts[2] != "i=4096" {
			t.Fatalf("%q", msg)
		}
		return parts[1]
	}
	verifier := verifierFor(t, "x")
	one := greet(t, listenTCP(t), &pgwire.ServerConfig{MockSecret: secret}, scramFor(verifier))
	two := greet(t, listenTCP(t), &pgwire.ServerConfig{MockSecret: secret}, scramFor(verifier))
	random := greet(t, listenTCP(t), &pgwire.ServerConfig{}, scramFor(verifier))
	salt := saltOf(one, "ghost")
	if salt != saltOf(one, "ghost") || salt != saltOf(two, "ghost") {
		t.Error("an unknown role has another salt each time")
	}
	if salt == saltOf(one, "spirit") || len(salt) != len(saltOf(one, "app")) {
		t.Error("unknown roles can be told by their salts")
	}
	if again := saltOf(random, "ghost"); again != saltOf(random, "ghost") || again == salt {
		t.Error("a random secret must be one per configuration")
	}
}

func TestMD5SecretIsNoVerifier(t *testing.T) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, scramFor("md5"+strings.Repeat("0", 32)))
	if got := goodScript().play(t, g.listener.Addr().String(), "app", "secret"); got != `FATAL 28P01 password authentication failed for user "app" []` {
		t.Error(got)
	}
}
