package pgwire_test

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/shardtest"
)

// startupPacket makes an untyped packet: length, code, body.
func startupPacket(code uint32, body string) []byte {
	packet := binary.BigEndian.AppendUint32(nil, uint32(8+len(body)))
	packet = binary.BigEndian.AppendUint32(packet, code)
	return append(packet, body...)
}

func pairs(words ...string) string { return strings.Join(words, "\x00") + "\x00\x00" }

const (
	version3   = 3 << 16
	sslRequest = 1234<<16 | 5679
	gssRequest = 1234<<16 | 5680
)

// converse sends packets one by one, each after the answer to the one before, and describes all
// answers up to the first error, ReadyForQuery or the end.
func converse(t *testing.T, address string, packets ...[]byte) string {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var said []string
	for i, packet := range packets {
		if _, err := conn.Write(packet); err != nil {
			t.Fatal(err)
		}
		if i < len(packets)-1 {
			answer := make([]byte, 1)
			if _, err := io.ReadFull(conn, answer); err != nil {
				return strings.Join(append(said, "closed"), " ")
			}
			said = append(said, string(answer))
		}
	}
	s := pgwire.NewStream(conn)
	for {
		typ, msg, err := s.Next()
		switch {
		case err != nil:
			return strings.Join(append(said, "closed"), " ")
		case typ == 'E':
			e := pgwire.ParseError(msg)
			said = append(said, fmt.Sprintf("%s %s %s [%s] [%s]", e.SeverityRaw, e.Code, e.Message, e.Detail, e.Hint))
			return strings.Join(said, " ")
		case typ == 'Z':
			return strings.Join(append(said, "ready"), " ")
		case typ == 'v':
			said = append(said, fmt.Sprintf("%q", msg))
		}
	}
}

// testStartup is a part of TestAsPostgreSQL.
func testStartup(t *testing.T, pg *shardtest.Postgres) {
	if pg.Version >= 18 {
		t.Skip("newer servers also know newer minor versions of the protocol")
	}
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, trust)
	user := pairs("user", "postgres")
	cases := []struct {
		name    string
		packets [][]byte
	}{
		{"plain", [][]byte{startupPacket(version3, user)}},
		{"all parameters", [][]byte{startupPacket(version3, pairs("user", "postgres", "database", "postgres", "application_name", "x", "replication", "off"))}},
		{"empty database", [][]byte{startupPacket(version3, pairs("user", "postgres", "database", ""))}},
		{"version 4.7", [][]byte{startupPacket(4<<16|7, user)}},
		{"unknown request code", [][]byte{startupPacket(1234<<16|5677, user)}},
		{"newer minor version", [][]byte{startupPacket(version3|2, user)}},
		{"newest minor version", [][]byte{startupPacket(version3|9999, user)}},
		{"protocol options", [][]byte{startupPacket(version3, pairs("_pq_.one", "1", "user", "postgres", "_pq_.two", "2"))}},
		{"both", [][]byte{startupPacket(version3|1, pairs("_pq_.one", "1", "user", "postgres"))}},
		{"no user", [][]byte{startupPacket(version3, pairs("database", "postgres"))}},
		{"no parameters", [][]byte{startupPacket(version3, "\x00")}},
		{"no user and a protocol option", [][]byte{startupPacket(version3, pairs("_pq_.one", "1"))}},
		{"empty user", [][]byte{startupPacket(version3, pairs("user", ""))}},
		{"no body", [][]byte{startupPacket(version3, "")}},
		{"no terminator", [][]byte{startupPacket(version3, "user\x00postgres\x00")}},
		{"value without end", [][]byte{startupPacket(version3, "user\x00postgres")}},
		{"name without value", [][]byte{startupPacket(version3, "user\x00postgres\x00database\x00")}},
		{"name without end", [][]byte{startupPacket(version3, "user\x00postgres\x00database")}},
		{"bytes after the terminator", [][]byte{startupPacket(version3, user+"x")}},
		{"second user wins", [][]byte{startupPacket(version3, pairs("user", "nobody", "user", "postgres"))}},
		{"replication unclear", [][]byte{startupPacket(version3, pairs("user", "postgres", "replication", "o"))}},
		{"replication nonsense", [][]byte{startupPacket(version3, pairs("user", "postgres", "replication", "database2"))}},
		{"replication f", [][]byte{startupPacket(version3, pairs("user", "postgres", "replication", "F"))}},
		{"asked twice", [][]byte{startupPacket(sslRequest, ""), startupPacket(sslRequest, "")}},
		{"no encryption", [][]byte{startupPacket(sslRequest, ""), startupPacket(version3, user)}},
		{"cancel of wrong size", [][]byte{startupPacket(1234<<16|5678, "\x00\x00\x00\x01\x00\x00\x00\x02x")}},
		{"options without value", [][]byte{startupPacket(version3, pairs("user", "postgres", "options", "-c work_mem"))}},
		{"too large", [][]byte{startupPacket(version3, pairs("user", strings.Repeat("x", 10001)))}},
		{"largest", [][]byte{startupPacket(version3, pairs("user", "postgres", "application_name", strings.Repeat("x", 9963)))}},
		{"length 7", [][]byte{{0, 0, 0, 7, 0, 3, 0}}},
		{"HTTP", [][]byte{[]byte("GET / HTTP/1.1\r\n\r\n")}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			theirs := converse(t, pg.Address(), c.packets...)
			ours := converse(t, g.listener.Addr().String(), c.packets...)
			// Where PostgreSQL hangs up without a word, a client here is told why.
			if theirs == "closed" && strings.HasPrefix(ours, "FATAL 08P01 invalid length of startup packet") {
				return
			}
			if ours != theirs {
				t.Errorf("\n     ours: %s\nPostgreSQL: %s", ours, theirs)
			}
		})
	}
}

// testOptions is a part of TestAsPostgreSQL.
func testOptions(t *testing.T, pg *shardtest.Postgres) {
	cases := []string{
		"", "   ", "-c work_mem=3MB", "-cwork_mem=3MB", "--work_mem=3MB", "--work-mem=3MB", "-c  work-mem=3MB",
		"-c work_mem=1MB --work_mem=2MB -c work_mem=3MB", "\t-c\n search_path=a,b\v",
		`-c application_name=a\ b`, `-c application_name=a\\b`, `-c application_name=a\\\ b\`, `\-c work_mem=3MB`,
		`-c application_name='a\ b'`, `--application_name=`, `-c application_name=a=b`, `-c DateStyle=ISO,DMY`,
		"-e", "-S 4096", "-S4096", "-eS 4096", "-s", "-tpa", "-tpl", "-t e", "-t px", "-tx", "-fs", "-f i -fo -fb -ft -fn -fm -fh", "-fx",
		"-d 0", "-d 1", "-d3", "-d 5", "-d 5x", "-n", "-T", "-E", "-j", "-b", "-C x", "-D /nowhere", "-r /nowhere", "-v 2",
		"-F", "-B 100", "-i", "-h x", "-k /x", "-l", "-N 5", "-p 1", "-O", "-P", "-W 0",
		"-c", "-c work_mem", "--work_mem", "-c =1", "--=1", "--", "-- x", "-", "x", "x -c work_mem=3MB", "-c work_mem=3MB y z",
		"-x", "-:", "-?", "-S", "-c work_mem=3MB --", "-c no_such_setting=1", "-c a.b=1",
	}
	for _, options := range cases {
		t.Run(options, func(t *testing.T) {
			theirs := effectOf(t, pg, options)
			ours := ""
			settings, err := pgwire.ParseOptions(options)
			if e, ok := errors.AsType[*pgwire.Error](err); ok {
				ours = e.Code + " " + e.Message
			} else {
				ours = effectOf(t, pg, canonicalOptions(settings))
			}
			if ours != theirs {
				t.Errorf("\n     ours: %s (%q)\nPostgreSQL: %s", ours, settings, theirs)
			}
		})
	}
}

// effectOf is what a session with these options has set, or how it was refused.
func effectOf(t *testing.T, pg *shardtest.Postgres, options string) string {
	t.Helper()
	conn, err := connectWithOptions(t.Context(), pg, options)
	if err != nil {
		return refusal(err)
	}
	defer conn.Close(t.Context())
	results, err := conn.Exec(t.Context(), `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name)
		FROM pg_settings WHERE source = 'client' OR (name LIKE 'log%' OR name LIKE 'debug%') AND source <> 'default' AND source <> 'command line'`).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return string(results[0].Rows[0][0])
}

// canonicalOptions writes settings in the one form that leaves no doubt.
func canonicalOptions(settings []pgwire.Setting) string {
	escape := strings.NewReplacer(`\`, `\\`, " ", `\ `, "\t", "\\\t", "\n", "\\\n", "\v", "\\\v")
	var words []string
	for _, s := range settings {
		words = append(words, "-c "+escape.Replace(s.Name+"="+s.Value))
	}
	return strings.Join(words, " ")
}

// TestStartupAlone has what a PostgreSQL with GSS, or one that still answers protocol 2 in its own
// form, does otherwise.
func TestStartupAlone(t *testing.T) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, trust)
	user := pairs("user", "postgres")
	ssl, gss, start := startupPacket(sslRequest, ""), startupPacket(gssRequest, ""), startupPacket(version3, user)
	cases := []struct {
		packets [][]byte
		want    string
	}{
		{[][]byte{gss, ssl, start}, "N N ready"},
		{[][]byte{ssl, gss, start}, "N N ready"},
		{[][]byte{gss, gss}, "N FATAL 0A000 unsupported frontend protocol 1234.5680: server supports 3.0 to 3.0 [] []"},
		{[][]byte{startupPacket(2<<16, user)}, "FATAL 0A000 unsupported frontend protocol 2.0: server supports 3.0 to 3.0 [] []"},
	}
	for _, c := range cases {
		if got := converse(t, g.listener.Addr().String(), c.packets...); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestReplicationIsRefused(t *testing.T) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, trust)
	for _, value := range []string{"true", "database", "1", "on", "YES"} {
		got := converse(t, g.listener.Addr().String(), startupPacket(version3, pairs("user", "x", "replication", value)))
		if !strings.HasPrefix(got, "FATAL 0A000 replication connections") || !strings.Contains(got, "Connect to a node directly.") {
			t.Errorf("%s: %s", value, got)
		}
	}
}

func TestPlaintextAfterSSLRequestIsRefused(t *testing.T) {
	a := newAuthority(t)
	config := &pgwire.ServerConfig{TLS: &tls.Config{Certificates: []tls.Certificate{a.issue(t, "router")}}}
	g := greet(t, listenTCP(t), config, trust)
	injected := append(startupPacket(sslRequest, ""), startupPacket(version3, pairs("user", "x"))...)
	got := converse(t, g.listener.Addr().String(), injected)
	if !strings.HasPrefix(got, "FATAL 08P01 received unencrypted data after SSL request [This could be") {
		t.Error(got)
	}
}

func TestDirectTLSNeedsALPN(t *testing.T) {
	a := newAuthority(t)
	config := &pgwire.ServerConfig{TLS: &tls.Config{Certificates: []tls.Certificate{a.issue(t, "router")}}}
	g := greet(t, listenTCP(t), config, trust)
	conn, err := tls.Dial("tcp", g.listener.Addr().String(), &tls.Config{RootCAs: a.pool, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, msg, err := pgwire.NewStream(conn).Next()
	if err != nil {
		t.Fatal(err)
	}
	if e := pgwire.ParseError(msg); e.Code != "08P01" || !strings.Contains(e.Message, "without ALPN") {
		t.Error(e)
	}
}

func TestLongNamesAreTruncatedAsPostgreSQL(t *testing.T) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, trust)
	got, err := ask(t, g.dsn(strings.Repeat("u", 70), "", "sslmode=disable"))
	if want := strings.Repeat("u", 63) + "@app tls=false"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSlowClients uses a fake clock: nobody waits for real.
func TestSlowClients(t *testing.T) {
	cases := []struct {
		name   string
		sent   []byte
		answer string
	}{
		{"says nothing", nil, ""},
		{"half a startup packet", startupPacket(version3, pairs("user", "app"))[:9], ""},
		{"no proof", startupPacket(version3, pairs("user", "app")), "canceling authentication due to timeout"},
	}
	verifier := verifierFor(t, "x")
	for _, c := range cases {
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close()
			defer server.Close()
			heard := make(chan string)
			go func() {
				_, _ = client.Write(c.sent)
				all, _ := io.ReadAll(client)
				heard <- string(all)
			}()
			began := time.Now()
			conn, err := pgwire.Accept(t.Context(), server, &pgwire.ServerConfig{StartupTimeout: 5 * time.Second})
			if err == nil {
				_, err = pgwire.AuthenticateSCRAM(t.Context(), conn, verifier)
			}
			if err == nil || time.Since(began) != 5*time.Second {
				t.Errorf("%s: %v after %v", c.name, err, time.Since(began))
			}
			server.Close()
			if got := <-heard; !strings.Contains(got, c.answer) || c.answer == "" && got != "" {
				t.Errorf("%s: was told %q", c.name, got)
			}
		})
	}
}

func TestAcceptEndsWithItsContext(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	cause := errors.New("router stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(0, func() { cancel(cause) })
	if _, err := pgwire.Accept(ctx, server, &pgwire.ServerConfig{}); !errors.Is(err, cause) {
		t.Error(err)
	}
}

func TestAcceptOfAClientThatLeaves(t *testing.T) {
	for _, sent := range []string{"", "\x00", "\x00\x00\x00\x20\x00\x03"} {
		client, server := net.Pipe()
		go func() {
			_, _ = client.Write([]byte(sent))
			client.Close()
		}()
		_, err := pgwire.Accept(t.Context(), server, &pgwire.ServerConfig{})
		if want := map[bool]error{true: io.EOF, false: io.ErrUnexpectedEOF}[sent == ""]; !errors.Is(err, want) {
			t.Errorf("after %q: %v", sent, err)
		}
		server.Close()
	}
}

func TestFailTellsOnce(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		_, _ = client.Write(startupPacket(version3, pairs("user", "app")))
	}()
	c, err := pgwire.Accept(t.Context(), server, &pgwire.ServerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(client)
		heard <- all
	}()
	c.Fail(pgwire.Errorf("53300", "sorry, too many clients already"))
	c.Fail(errors.New("again"))
	server.Close()
	msg := <-heard
	if e := pgwire.ParseError(msg); e.Code != "53300" || e.Severity != "FATAL" {
		t.Errorf("%q", msg)
	}
}
