package pgwire_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/lib/pq"

	"github.com/pgshoal/pgshoal/pgwire"
)

// greeter is the least that a real client takes for a PostgreSQL server: it does the startup with
// the code under test and answers every query with one row that says who is asking.
type greeter struct {
	listener net.Listener
	config   *pgwire.ServerConfig
	auth     func(context.Context, *pgwire.Client) error
	failures chan error
}

func greet(t *testing.T, listener net.Listener, config *pgwire.ServerConfig, auth func(context.Context, *pgwire.Client) error) *greeter {
	t.Helper()
	g := &greeter{listener: listener, config: config, auth: auth, failures: make(chan error, 100)}
	ctx, cancel := context.WithCancel(t.Context())
	var sessions sync.WaitGroup
	sessions.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() {
				defer conn.Close()
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				defer stop()
				if err := g.session(ctx, conn); err != nil {
					g.failures <- err
				}
			})
		}
	})
	t.Cleanup(func() {
		cancel()
		listener.Close()
		sessions.Wait()
	})
	return g
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func (g *greeter) session(ctx context.Context, conn net.Conn) error {
	c, err := pgwire.Accept(ctx, conn, g.config)
	if err != nil {
		return err
	}
	if c.Cancel != nil {
		return fmt.Errorf("cancel %d %d", c.Cancel.PID, c.Cancel.Secret)
	}
	if err := g.auth(ctx, c); err != nil {
		return err
	}
	out := c.Stream.Out()
	*out = pgwire.AppendAuthOK(*out)
	*out = pgwire.AppendParameterStatus(*out, "server_version", "15.0")
	*out = pgwire.AppendParameterStatus(*out, "client_encoding", "UTF8")
	*out = pgwire.AppendBackendKeyData(*out, 41, 42)
	*out = pgwire.AppendReadyForQuery(*out, pgwire.TxIdle)
	for {
		if err := c.Stream.Flush(); err != nil {
			return err
		}
		typ, _, err := c.Stream.Next()
		if err != nil || typ == 'X' {
			return nil
		}
		if typ != 'Q' {
			return fmt.Errorf("message %q", typ)
		}
		*out = pgwire.AppendRowDescription(*out, []pgwire.Column{pgwire.TextColumn("who")})
		*out = pgwire.AppendDataRow(*out, [][]byte{[]byte(describe(c))})
		*out = pgwire.AppendCommandComplete(*out, "SELECT 1")
		*out = pgwire.AppendReadyForQuery(*out, pgwire.TxIdle)
	}
}

// describe is everything that Accept found out, on one line.
func describe(c *pgwire.Client) string {
	words := []string{fmt.Sprintf("%s@%s tls=%v", c.User, c.Database, c.TLS != nil)}
	for _, s := range c.Settings {
		if s.Name == "work_mem" || s.Name == "application_name" {
			words = append(words, s.Name+"="+s.Value)
		}
	}
	return strings.Join(words, " ")
}

func (g *greeter) dsn(user, password, rest string) string {
	host, port, _ := net.SplitHostPort(g.listener.Addr().String())
	return fmt.Sprintf("host=%s port=%s user=%s password='%s' dbname=app %s", host, port, user, password, rest)
}

// ask connects with pgconn, asks once and returns the answer.
func ask(t *testing.T, dsn string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	results, err := conn.Exec(ctx, "SELECT who").ReadAll()
	if err != nil {
		return "", err
	}
	return string(results[0].Rows[0][0]), nil
}

// scramFor authenticates the role app with its verifier; every other role is unknown.
func scramFor(verifier string) func(context.Context, *pgwire.Client) error {
	return func(ctx context.Context, c *pgwire.Client) error {
		stored := ""
		if c.User == "app" {
			stored = verifier
		}
		_, err := pgwire.AuthenticateSCRAM(ctx, c, stored)
		return err
	}
}

func trust(_ context.Context, c *pgwire.Client) error { return pgwire.AuthenticateTrust(c) }

func verifierFor(t *testing.T, password string) string {
	t.Helper()
	verifier, err := pgwire.BuildVerifier(password)
	if err != nil {
		t.Fatal(err)
	}
	return verifier
}

func TestPasswords(t *testing.T) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, scramFor(verifierFor(t, "correct horse")))
	got, err := ask(t, g.dsn("app", "correct horse", "sslmode=disable application_name=test options='-c work_mem=1MB'"))
	if err != nil || got != "app@app tls=false work_mem=1MB application_name=test" {
		t.Fatalf("%q, %v", got, err)
	}
	for user, password := range map[string]string{"app": "wrong", "nobody": "correct horse"} {
		_, err := ask(t, g.dsn(user, password, "sslmode=disable"))
		pgErr, ok := errors.AsType[*pgconn.PgError](err)
		want := fmt.Sprintf("password authentication failed for user %q", user)
		if !ok || pgErr.Code != "28P01" || pgErr.Severity != "FATAL" || pgErr.Message != want {
			t.Errorf("%s: %v", user, err)
		}
	}
}

func TestRecoveredKeysAreTheDerivedOnes(t *testing.T) {
	const password = "pässwörd"
	verifier := verifierFor(t, password)
	found := make(chan *pgwire.Keys, 1)
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, func(ctx context.Context, c *pgwire.Client) error {
		keys, err := pgwire.AuthenticateSCRAM(ctx, c, verifier)
		found <- keys
		return err
	})
	if _, err := ask(t, g.dsn("app", password, "sslmode=disable")); err != nil {
		t.Fatal(err)
	}
	got := <-found
	want, err := pgwire.DeriveKeys(password, got.Salt, got.Iterations)
	if err != nil {
		t.Fatal(err)
	}
	if got.ClientKey != want.ClientKey || got.ServerKey != want.ServerKey || got.StoredKey != want.StoredKey {
		t.Error("the proof gave other keys than the password")
	}
}

// authority issues certificates for one test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{pool: x509.NewCertPool()}
	a.cert, a.key = a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	})
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) sign(t *testing.T, template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

func (a *authority) issue(t *testing.T, name string) tls.Certificate {
	t.Helper()
	cert, key := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// files writes a certificate, its key and the authority's own certificate as clients want them.
func (a *authority) files(t *testing.T, cert tls.Certificate) (certFile, keyFile, rootFile string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return write("cert.pem", "CERTIFICATE", cert.Certificate[0]), write("key.pem", "PRIVATE KEY", key),
		write("root.pem", "CERTIFICATE", a.cert.Raw)
}

func TestTLSModes(t *testing.T) {
	a := newAuthority(t)
	server := a.issue(t, "router")
	_, _, root := a.files(t, server)
	auth := scramFor(verifierFor(t, "secret"))
	plain := greet(t, listenTCP(t), &pgwire.ServerConfig{}, auth)
	both := greet(t, listenTCP(t), &pgwire.ServerConfig{TLS: &tls.Config{Certificates: []tls.Certificate{server}}}, auth)
	strict := greet(t, listenTCP(t), &pgwire.ServerConfig{TLS: &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &server, nil },
	}, RequireTLS: true}, auth)
	cases := []struct {
		server    *greeter
		options   string
		encrypted bool
		fails     string
	}{
		{plain, "sslmode=disable", false, ""},
		{plain, "sslmode=prefer", false, ""},
		{plain, "sslmode=require", false, "refused TLS"},
		{plain, "sslmode=require sslnegotiation=direct", false, "handshake failure"},
		{both, "sslmode=disable", false, ""},
		{both, "sslmode=prefer", true, ""},
		{both, "sslmode=require channel_binding=require", true, ""},
		{both, "sslmode=require channel_binding=disable", true, ""},
		{both, "sslmode=verify-full sslrootcert=" + root, true, ""},
		{both, "sslmode=require sslnegotiation=direct", true, ""},
		{strict, "sslmode=disable", false, "28000"},
		{strict, "sslmode=require channel_binding=require", true, ""},
		{strict, "sslmode=verify-full sslrootcert=" + root, true, ""},
	}
	for i, c := range cases {
		t.Run(fmt.Sprint(i, " ", c.options), func(t *testing.T) {
			got, err := ask(t, c.server.dsn("app", "secret", c.options))
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Fatalf("got %q, %v; want a failure with %q", got, err, c.fails)
				}
				return
			}
			if want := fmt.Sprintf("app@app tls=%v", c.encrypted); err != nil || got != want {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
		})
	}
}

func TestCertificates(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	server := a.issue(t, "router")
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{TLS: &tls.Config{
		Certificates: []tls.Certificate{server}, ClientCAs: a.pool, ClientAuth: tls.VerifyClientCertIfGiven,
	}}, func(_ context.Context, c *pgwire.Client) error { return pgwire.AuthenticateCert(c) })
	certFile, keyFile, _ := a.files(t, a.issue(t, "app"))
	foreignCert, foreignKey, _ := stranger.files(t, stranger.issue(t, "app"))
	cases := []struct{ name, user, cert, key, fails string }{
		{"its own", "app", certFile, keyFile, ""},
		{"somebody else's", "admin", certFile, keyFile, `certificate authentication failed for user "admin" (SQLSTATE 28000)`},
		{"none", "app", "", "", "connection requires a valid client certificate (SQLSTATE 28000)"},
		{"of another authority", "app", foreignCert, foreignKey, "tls: "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			options := "sslmode=require"
			if c.cert != "" {
				options += " sslcert=" + c.cert + " sslkey=" + c.key
			}
			_, err := ask(t, g.dsn(c.user, "", options))
			if c.fails == "" && err != nil || c.fails != "" && (err == nil || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("%v, want %q", err, c.fails)
			}
		})
	}
}

func TestPsql(t *testing.T) {
	psql, err := exec.LookPath("psql")
	if err != nil {
		t.Skip("psql is not installed")
	}
	a := newAuthority(t)
	server := a.issue(t, "router")
	_, _, root := a.files(t, server)
	tlsConfig := &tls.Config{Certificates: []tls.Certificate{server}}
	auth := scramFor(verifierFor(t, "secret"))
	tcp := greet(t, listenTCP(t), &pgwire.ServerConfig{TLS: tlsConfig, RequireTLS: true}, auth)
	dir := t.TempDir()
	socket, err := net.Listen("unix", filepath.Join(dir, ".s.PGSQL.5432"))
	if err != nil {
		t.Fatal(err)
	}
	greet(t, socket, &pgwire.ServerConfig{TLS: tlsConfig, RequireTLS: true}, auth)
	cases := []struct{ name, dsn, want string }{
		{"verified and bound", tcp.dsn("app", "secret", "channel_binding=require sslmode=verify-full sslrootcert="+root), "app@app tls=true"},
		{"not bound", tcp.dsn("app", "secret", "channel_binding=disable sslmode=require"), "app@app tls=true"},
		{"plain", tcp.dsn("app", "secret", "sslmode=disable"), "connections without encryption are not allowed"},
		{"wrong password", tcp.dsn("app", "wrong", "sslmode=require"), `FATAL:  password authentication failed for user "app"`},
		{"unknown role", tcp.dsn("who", "wrong", "sslmode=require"), `FATAL:  password authentication failed for user "who"`},
		{"socket", "host=" + dir + " user=app password=secret dbname=db options='-c work_mem=2MB'", "app@db tls=false work_mem=2MB"},
		{"socket, encryption asked for", "host=" + dir + " user=app password=secret dbname=app", "app@app tls=false"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), psql, "-X", "-A", "-t", "-c", "SELECT who", c.dsn)
			cmd.Env = append(os.Environ(), "PGCONNECT_TIMEOUT=20", "PGAPPNAME=", "HOME="+dir)
			out, _ := cmd.CombinedOutput()
			if !strings.Contains(string(out), c.want) {
				t.Errorf("%s, want %s", out, c.want)
			}
		})
	}
}

func TestLibPQ(t *testing.T) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{}, scramFor(verifierFor(t, "secret")))
	db, err := sql.Open("postgres", g.dsn("app", "secret", "sslmode=disable"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var who string
	if err := db.QueryRowContext(t.Context(), "SELECT who").Scan(&who); err != nil || who != "app@app tls=false" {
		t.Errorf("%q, %v", who, err)
	}
}

func TestCancelRequestArrives(t *testing.T) {
	g := greet(t, listenTCP(t), &pgwire.ServerConfig{RequireTLS: true}, trust)
	g2 := greet(t, listenTCP(t), &pgwire.ServerConfig{}, trust)
	conn, err := pgconn.Connect(t.Context(), g2.dsn("app", "", "sslmode=disable"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	// The key of one server is sent to the other, as when a load balancer is in between. It comes
	// without encryption although that is required: libpq has always sent it so.
	raw, err := net.Dial("tcp", g.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write(startupPacket(1234<<16|5678, "\x00\x00\x00\x29\x00\x00\x00\x2a")); err != nil {
		t.Fatal(err)
	}
	if err := <-g.failures; err.Error() != "cancel 41 42" {
		t.Error(err)
	}
	if err := conn.CancelRequest(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-g2.failures; err.Error() != "cancel 41 42" {
		t.Error(err)
	}
}
