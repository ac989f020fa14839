package pgwire

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/shardtest"
)

func TestNodeAddress(t *testing.T) {
	for address, want := range map[string][2]string{
		"127.0.0.1:5432":    {"tcp", "127.0.0.1:5432"},
		"[::1]:5432":        {"tcp", "[::1]:5432"},
		"db.example:6000":   {"tcp", "db.example:6000"},
		"/run/pg:5432":      {"unix", "/run/pg/.s.PGSQL.5432"},
		"/odd:dir/x:6543":   {"unix", "/odd:dir/x/.s.PGSQL.6543"},
		"@abstract:5432":    {"unix", "@abstract/.s.PGSQL.5432"},
		"/run/socket/plain": {"unix", "/run/socket/plain"},
	} {
		if network, addr := NodeAddress(address); network != want[0] || addr != want[1] {
			t.Errorf("NodeAddress(%q) = %q, %q", address, network, addr)
		}
	}
}

// authServer is a server with one role per authentication method, and TLS.
type authServer struct {
	*shardtest.Postgres
	roots    *x509.CertPool
	verifier Verifier // of role scram
}

const hba = `
local   all  postgres              trust
local   all  scram                 scram-sha-256
host    all  postgres  0.0.0.0/0   trust
host    all  scram     0.0.0.0/0   scram-sha-256
host    all  md5       0.0.0.0/0   md5
host    all  clear     0.0.0.0/0   password
hostssl all  onlytls   0.0.0.0/0   scram-sha-256
hostnossl all onlyplain 0.0.0.0/0  scram-sha-256
`

func startAuthServer(t *testing.T) *authServer {
	t.Helper()
	certFile, keyFile, roots := makeCertificate(t, "localhost")
	s := &authServer{Postgres: shardtest.StartPostgres(t, "ssl=on", "ssl_cert_file="+certFile, "ssl_key_file="+keyFile), roots: roots}
	b, err := Dial(t.Context(), DialConfig{Address: s.Address(), User: "postgres", SSLMode: "disable"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stream.Conn.Close()
	for _, role := range []string{"scram", "clear", "onlytls", "onlyplain"} {
		run(t, b, "CREATE ROLE "+role+" LOGIN PASSWORD 'geheim "+role+" ½'")
	}
	run(t, b, "SET password_encryption = md5; CREATE ROLE md5 LOGIN PASSWORD 'geheim md5 ½'")
	if s.verifier, err = ParseVerifier(run(t, b, "SELECT rolpassword FROM pg_authid WHERE rolname = 'scram'")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.DataDir, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
		t.Fatal(err)
	}
	s.Stop()
	s.Start()
	return s
}

// run runs one statement and returns the first value of its first row.
func run(t *testing.T, b *Backend, sql string) (value string) {
	t.Helper()
	if _, err := b.Stream.Write(AppendQuery(nil, sql)); err != nil {
		t.Fatal(err)
	}
	for {
		typ, msg, err := b.Stream.Next()
		if err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
		switch typ {
		case 'D':
			row, err := DataRow(msg, nil)
			if err != nil {
				t.Fatal(err)
			}
			value = string(row[0])
		case 'E':
			t.Fatalf("%s: %v", sql, ParseError(msg))
		case 'Z':
			return value
		}
	}
}

// makeCertificate writes a self-signed certificate for host that PostgreSQL can read.
func makeCertificate(t *testing.T, host string) (certFile, keyFile string, roots *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: the server's user must reach it.
	dir, err := os.MkdirTemp("", "pgshoal-tls-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := errors.Join(
		os.WriteFile(certFile, certPEM, 0o600),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		giveToPostgres(t, dir, certFile, keyFile)
	}
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	return certFile, keyFile, roots
}

func giveToPostgres(t *testing.T, paths ...string) {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	for _, path := range paths {
		if err := os.Chown(path, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDialAuthenticates has one server for all methods and all kinds of encryption.
func TestDialAuthenticates(t *testing.T) {
	s := startAuthServer(t)
	keys, err := DeriveKeys("geheim scram ½", s.verifier.Salt, s.verifier.Iterations)
	if err != nil {
		t.Fatal(err)
	}
	wrongKeys, err := DeriveKeys("wrong", s.verifier.Salt, s.verifier.Iterations)
	if err != nil {
		t.Fatal(err)
	}
	impostor, otherSalt := *keys, *keys
	impostor.ServerKey[0] ^= 1
	otherSalt.Salt = []byte("another salt ...")
	unix := s.SocketDir + ":" + strconv.Itoa(s.Port)
	local := net.JoinHostPort("localhost", strconv.Itoa(s.Port))

	const failed = `password authentication failed for user "`
	for name, tc := range map[string]struct {
		cfg  DialConfig
		want string // in the error; empty: success
		tls  bool
	}{
		"trust":                  {cfg: DialConfig{User: "postgres", SSLMode: "disable"}},
		"unix":                   {cfg: DialConfig{User: "postgres", Address: unix, SSLMode: "verify-full"}},
		"scram over unix":        {cfg: DialConfig{User: "scram", Password: "geheim scram ½", Address: unix}},
		"scram, password":        {cfg: DialConfig{User: "scram", Password: "geheim scram ½", SSLMode: "disable"}},
		"scram, password, TLS":   {cfg: DialConfig{User: "scram", Password: "geheim scram ½", SSLMode: "require"}, tls: true},
		"scram, keys":            {cfg: DialConfig{User: "scram", Keys: keys, SSLMode: "disable"}},
		"scram, keys, TLS":       {cfg: DialConfig{User: "scram", Keys: keys, SSLMode: "require"}, tls: true},
		"scram, wrong password":  {cfg: DialConfig{User: "scram", Password: "wrong"}, want: failed + "scram"},
		"scram, wrong keys":      {cfg: DialConfig{User: "scram", Keys: wrongKeys}, want: failed + "scram"},
		"scram, other salt":      {cfg: DialConfig{User: "scram", Keys: &otherSalt}, want: "another SCRAM verifier"},
		"scram, impostor server": {cfg: DialConfig{User: "scram", Keys: &impostor}, want: "signature is wrong"},
		"scram, nothing":         {cfg: DialConfig{User: "scram"}, want: "no password is known"},
		"md5":                    {cfg: DialConfig{User: "md5", Password: "geheim md5 ½"}, tls: true},
		"md5, wrong password":    {cfg: DialConfig{User: "md5", Password: "wrong"}, want: failed + "md5"},
		"md5, keys":              {cfg: DialConfig{User: "md5", Keys: keys}, want: "only SCRAM works"},
		"clear":                  {cfg: DialConfig{User: "clear", Password: "geheim clear ½", SSLMode: "disable"}},
		"clear, wrong password":  {cfg: DialConfig{User: "clear", Password: "wrong"}, want: failed + "clear"},
		"no such role":           {cfg: DialConfig{User: "nobody", Password: "x", SSLMode: "disable"}, want: "no pg_hba.conf entry"},
		"no such database":       {cfg: DialConfig{User: "postgres", Database: "nowhere"}, want: `database "nowhere" does not exist`},

		"prefer":                        {cfg: DialConfig{User: "postgres", SSLMode: "prefer"}, tls: true},
		"prefer is the default":         {cfg: DialConfig{User: "postgres"}, tls: true},
		"prefer, plain by pg_hba":       {cfg: DialConfig{User: "onlyplain", Password: "geheim onlyplain ½", SSLMode: "prefer"}},
		"allow":                         {cfg: DialConfig{User: "postgres", SSLMode: "allow"}},
		"allow, TLS by pg_hba":          {cfg: DialConfig{User: "onlytls", Password: "geheim onlytls ½", SSLMode: "allow"}, tls: true},
		"disable, TLS by pg_hba":        {cfg: DialConfig{User: "onlytls", Password: "geheim onlytls ½", SSLMode: "disable"}, want: "no encryption"},
		"require, plain by pg_hba":      {cfg: DialConfig{User: "onlyplain", SSLMode: "require"}, want: "SSL encryption"},
		"require with other roots":      {cfg: DialConfig{User: "postgres", SSLMode: "require", TLS: &tls.Config{RootCAs: x509.NewCertPool()}}, want: "unknown authority"},
		"verify-ca":                     {cfg: DialConfig{User: "postgres", SSLMode: "verify-ca", TLS: &tls.Config{RootCAs: s.roots}}, tls: true},
		"verify-ca, unknown authority":  {cfg: DialConfig{User: "postgres", SSLMode: "verify-ca"}, want: "unknown authority"},
		"verify-full":                   {cfg: DialConfig{User: "postgres", Address: local, SSLMode: "verify-full", TLS: &tls.Config{RootCAs: s.roots}}, tls: true},
		"verify-full, other name":       {cfg: DialConfig{User: "postgres", SSLMode: "verify-full", TLS: &tls.Config{RootCAs: s.roots}}, want: "127.0.0.1"},
		"verify-full never gives way":   {cfg: DialConfig{User: "postgres", SSLMode: "verify-full", TLS: &tls.Config{InsecureSkipVerify: true}}, want: "127.0.0.1"},
		"no such sslmode":               {cfg: DialConfig{User: "postgres", SSLMode: "sometimes"}, want: "invalid sslmode"},
		"startup parameters":            {cfg: DialConfig{User: "postgres", Params: map[string]string{"application_name": "shoal", "user": "ignored"}}, tls: true},
		"startup parameter without use": {cfg: DialConfig{User: "postgres", Params: map[string]string{"no_such_thing": "1"}}, want: "unrecognized configuration parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := tc.cfg
			if cfg.Address == "" {
				cfg.Address = s.Address()
			}
			if cfg.Database == "" {
				cfg.Database = "postgres"
			}
			cfg.Timeout = 20 * time.Second
			checkDial(t, cfg, tc.want, tc.tls)
		})
	}
}

func checkDial(t *testing.T, cfg DialConfig, want string, encrypted bool) {
	t.Helper()
	b, err := Dial(t.Context(), cfg)
	if want != "" {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Fatalf("error %v, want %q", err, want)
		}
		// What the server says about the login comes as it is, so that clients get it unchanged.
		if strings.HasPrefix(want, "password auth") {
			if e, ok := err.(*Error); !ok || e.Code != "28P01" || e.Routine == "" {
				t.Errorf("error %#v is not the server's own", err)
			}
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer b.Stream.Conn.Close()
	if _, ok := b.Stream.Conn.(*tls.Conn); ok != encrypted {
		t.Errorf("TLS: %v, want %v", ok, encrypted)
	}
	if got := run(t, b, "SELECT current_user || pg_backend_pid()"); got != cfg.User+strconv.Itoa(int(b.PID)) {
		t.Errorf("the server sees %s", got)
	}
	if b.Secret == 0 || b.Params["in_hot_standby"] != "off" || b.Params["server_version"] == "" {
		t.Errorf("secret %d, parameters %v", b.Secret, b.Params)
	}
	if want := cfg.Params["application_name"]; b.Params["application_name"] != want {
		t.Errorf("application_name %q, want %q", b.Params["application_name"], want)
	}
}

func TestDialWithoutTLSOnTheServer(t *testing.T) {
	pg := shardtest.StartPostgres(t)
	cfg := DialConfig{Address: pg.Address(), User: "postgres", Database: "postgres"}
	for mode, want := range map[string]string{
		"prefer": "", "allow": "", "disable": "",
		"require": "does not support TLS", "verify-ca": "does not support TLS", "verify-full": "does not support TLS",
	} {
		t.Run(mode, func(t *testing.T) {
			cfg.SSLMode = mode
			checkDial(t, cfg, want, false)
		})
	}
}

func TestCancelBackend(t *testing.T) {
	s := startAuthServer(t)
	for _, mode := range []string{"disable", "require"} {
		t.Run(mode, func(t *testing.T) {
			b, err := Dial(t.Context(), DialConfig{Address: s.Address(), User: "postgres", Database: "postgres", SSLMode: mode})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Stream.Conn.Close()
			// The first row shows that the statement runs.
			if _, err := b.Stream.Write(AppendQuery(nil, "SELECT repeat('x', 20000) FROM generate_series(1, 2) i WHERE i = 1 OR pg_sleep(60) IS NULL")); err != nil {
				t.Fatal(err)
			}
			if typ, _, err := b.Stream.Next(); typ != 'T' || err != nil {
				t.Fatalf("%c, %v", typ, err)
			}
			if err := CancelBackend(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			for {
				typ, msg, err := b.Stream.Next()
				if err != nil {
					t.Fatal(err)
				}
				if typ == 'E' {
					if e := ParseError(msg); e.Code != CodeQueryCanceled {
						t.Errorf("error %v", e)
					}
					break
				}
				if typ == 'Z' {
					t.Fatal("the statement ended by itself")
				}
			}
		})
	}
}

// TestDialObeysItsContext talks to a server that accepts and then says nothing.
func TestDialObeysItsContext(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, mode := range []string{"disable", "require"} {
		t.Run(mode, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			why := errors.New("the client left")
			go func() {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				defer conn.Close()
				_, _ = io.ReadFull(conn, make([]byte, 8)) // now the other side waits for an answer
				cancel(why)
				_, _ = io.Copy(io.Discard, conn)
			}()
			if _, err := Dial(ctx, DialConfig{Address: l.Addr().String(), User: "u", SSLMode: mode}); !errors.Is(err, why) {
				t.Errorf("error %v, want the cause", err)
			}
		})
	}
	_, err = Dial(t.Context(), DialConfig{Address: l.Addr().String(), User: "u", SSLMode: "disable", Timeout: 50 * time.Millisecond})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v, want a timeout", err)
	}
}

// TestPasswordStaysHome: over a connection that others may listen to, passwords in clear and in md5
// are not sent.
func TestPasswordStaysHome(t *testing.T) {
	for name, request := range map[string][]byte{
		"clear": {'R', 0, 0, 0, 8, 0, 0, 0, authCleartextPassword},
		"md5":   {'R', 0, 0, 0, 12, 0, 0, 0, authMD5Password, 1, 2, 3, 4},
	} {
		t.Run(name, func(t *testing.T) {
			b := &Backend{Stream: NewStream(&scriptedServer{says: request})}
			cfg := DialConfig{User: "u", Password: "secret"}
			if err := cfg.authenticate(b); err == nil || !strings.Contains(err.Error(), "without TLS") {
				t.Errorf("error %v", err)
			}
			if heard := b.Stream.Conn.(*scriptedServer).heard; len(heard) > 0 {
				t.Errorf("the server got %q", heard)
			}
		})
	}
}

// scriptedServer is a far server that says what it has to say whatever it hears.
type scriptedServer struct {
	net.Conn
	says, heard []byte
}

func (s *scriptedServer) Read(p []byte) (int, error) {
	if len(s.says) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.says)
	s.says = s.says[n:]
	return n, nil
}

func (s *scriptedServer) Write(p []byte) (int, error) {
	s.heard = append(s.heard, p...)
	return len(p), nil
}

func (s *scriptedServer) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5432}
}

// FuzzDial lets a server say anything during the startup: nothing panics, and nobody is let in who
// was asked for SCRAM and did not prove to know the verifier.
func FuzzDial(f *testing.F) {
	ready := AppendReadyForQuery(AppendBackendKeyData(AppendParameterStatus(AppendAuthOK(nil), "a", "b"), 1, 2), 'I')
	f.Add(ready)
	f.Add(append([]byte{'R', 0, 0, 0, 12, 0, 0, 0, 5, 1, 2, 3, 4}, ready...))
	sasl := append([]byte{'R', 0, 0, 0, 23, 0, 0, 0, 10}, "SCRAM-SHA-256\x00\x00"...)
	f.Add(append(sasl, ready...))
	f.Add(Fatalf("28P01", "no").AppendTo(nil))
	f.Fuzz(func(t *testing.T, says []byte) {
		cfg := DialConfig{User: "u", Password: "p"}
		b, err := cfg.startup(t.Context(), &scriptedServer{says: says}, plain)
		if err == nil && strings.Contains(string(b.Stream.Conn.(*scriptedServer).heard), "SCRAM-SHA-256") {
			t.Error("the server was believed without its signature")
		}
	})
}
