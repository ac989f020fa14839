package pool

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/shardtest"
)

// TestManySessions shares few connections among many sessions, some of which leave them in every
// kind of disorder, while the server is restarted under them.
func TestManySessions(t *testing.T) {
	pg := shardtest.StartPostgres(t)
	p := newPool(t, Config{MaxPerPool: 4, CheckAfter: -1, QueueTimeout: time.Minute, PrimaryTimeout: time.Minute}, pg.Address())
	// Two passes, with a restart between them while nothing is held.
	for pass := range 2 {
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				for j := range 30 {
					if !useOnce(t, p, i*1000+j) {
						return
					}
				}
			})
		}
		wg.Wait()
		// Active may still be some that are being reset.
		if s := p.Stats()[0]; s.Waiting != 0 || s.Opening != 0 || s.Idle+s.Active > 4 {
			t.Errorf("stats %+v", s)
		}
		if pass == 0 {
			pg.Stop()
			pg.Start()
		}
	}
}

// useOnce runs one session's statement; what becomes of the connection depends on n.
func useOnce(t *testing.T, p *Pool, n int) bool {
	c, err := p.Acquire(t.Context(), super, Credentials{})
	if err != nil {
		t.Errorf("Acquire: %v", err)
		return false
	}
	defer p.Release(c)
	rows, err := c.QueryParams(t.Context(), "SELECT $1::int + 1", []byte(strconv.Itoa(n)))
	if err != nil || string(rows[0][0]) != strconv.Itoa(n+1) {
		t.Errorf("session %d: %q, %v", n, rows, err)
		return false
	}
	switch n % 11 {
	case 0:
		err = c.Exec(t.Context(), "BEGIN")
	case 1:
		c.Broken = true
	case 2:
		c.Dirty = true
	}
	if err != nil {
		t.Error(err)
	}
	return true
}

func TestCredentials(t *testing.T) {
	pg := shardtest.StartPostgres(t)
	p := newPool(t, Config{CheckAfter: -1, PrimaryTimeout: time.Minute}, pg.Address())
	c := acquire(t, p)
	if err := c.Exec(t.Context(), "CREATE ROLE alice LOGIN PASSWORD 'geheim'"); err != nil {
		t.Fatal(err)
	}
	v, err := pgwire.ParseVerifier(one(t, c, "SELECT rolpassword FROM pg_authid WHERE rolname = 'alice'"))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pgwire.DeriveKeys("geheim", v.Salt, v.Iterations)
	if err != nil {
		t.Fatal(err)
	}
	p.Release(c)
	rules := "host all alice 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
	if err := os.WriteFile(filepath.Join(pg.DataDir, "pg_hba.conf"), []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	pg.Stop()
	pg.Start()
	key := Key{Node: "n1", Role: "alice", Database: "postgres"}
	_, err = p.Acquire(t.Context(), key, Credentials{Password: "wrong"})
	if e, ok := err.(*pgwire.Error); !ok || e.Code != "28P01" || e.Message != `password authentication failed for user "alice"` {
		t.Errorf("wrong password: %#v", err)
	}
	for name, creds := range map[string]Credentials{"password": {Password: "geheim"}, "keys": {Keys: keys}} {
		c, err := p.Acquire(t.Context(), key, creds)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := one(t, c, "SELECT session_user"); got != "alice" {
			t.Errorf("%s: logged in as %s", name, got)
		}
		c.Broken = true // the next one logs in anew
		p.Release(c)
	}
}

func TestTerminatedWhileIdleWithTLS(t *testing.T) {
	certFile, keyFile := makeCertificate(t)
	pg := shardtest.StartPostgres(t, "ssl=on", "ssl_cert_file="+certFile, "ssl_key_file="+keyFile)
	p := newPool(t, Config{CheckAfter: -1, SSLMode: "require"}, pg.Address())
	c := acquire(t, p)
	if _, ok := c.Stream.Conn.(*tls.Conn); !ok {
		t.Fatal("the connection is not encrypted")
	}
	p.Release(c)
	killer := acquire(t, p)
	if killer != c {
		t.Error("a living connection was given up")
	}
	victim := acquire(t, p)
	p.Release(victim)
	one(t, killer, "SELECT pg_terminate_backend("+strconv.Itoa(int(victim.PID))+", 10000)")
	next := acquire(t, p)
	if next == victim || one(t, next, "SELECT 1") != "1" {
		t.Error("a terminated connection was handed out")
	}
	p.Release(next)
	p.Release(killer)
}

// makeCertificate writes a self-signed certificate where the server's user can read it.
func makeCertificate(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "pgshoal-tls-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	giveToPostgres(t, dir)
	write := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		giveToPostgres(t, path)
		return path
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", keyDER)
}
