package etcdtopo_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/etcdtopo"
)

func TestUserAndPassword(t *testing.T) {
	dir := t.TempDir()
	srv := startServer(t, dir, "127.0.0.1:0")
	defer func() { srv.Close() }()
	c := client(t, srv.Endpoint())
	ctx := waitContext(t)
	_, err := c.UserAdd(ctx, "root", "secret")
	if err == nil {
		_, err = c.UserGrantRole(ctx, "root", "root")
	}
	if err == nil {
		_, err = c.AuthEnable(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	// A login costs etcd a bcrypt, which the race detector makes very slow.
	config := etcdtopo.Config{
		Endpoints: []string{srv.Endpoint()}, Cluster: "c", User: "root", Password: "secret",
		RequestTimeout: 30 * time.Second, Heartbeat: 5 * time.Second,
	}
	s, err := etcdtopo.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "a", "1")

	// etcd forgets its tokens with a restart; everything must log in again.
	events := s.Watch(t.Context(), "w/")
	reg, err := topo.Register(ctx, s, topo.Member{Name: "r", Role: topo.RoleRouter}, 20*time.Second, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	defer reg.Close()
	srv.Close()
	srv = startServer(t, dir, srv.Endpoint())
	put(t, s, "w/a", "1")
	for e := range events {
		if len(e.Puts) == 1 {
			break
		}
	}
	if err := reg.Update(ctx, func(m *topo.Member) { m.AckedEpoch = 1 }); err != nil {
		t.Fatal(err)
	}
	if err := topo.WaitAcked(ctx, s, 1, ""); err != nil {
		t.Fatal(err)
	}

	config.Password = "wrong"
	if s, err := etcdtopo.Open(config); err == nil || errors.Is(err, topo.ErrUnavailable) || !strings.Contains(err.Error(), "invalid user ID or password") {
		if err == nil {
			s.Close()
		}
		t.Fatalf("wrong password: %v", err)
	}
	anonymous := open(t, "c", srv.Endpoint())
	if _, err := anonymous.Get(ctx, "a"); err == nil || errors.Is(err, topo.ErrUnavailable) {
		t.Fatalf("without a password: %v", err)
	}
	config.Password, config.Endpoints, config.RequestTimeout = "secret", []string{"127.0.0.1:1"}, 300*time.Millisecond
	if _, err := etcdtopo.Open(config); !errors.Is(err, topo.ErrUnavailable) {
		t.Fatalf("nobody there: %v", err)
	}
}

func TestTLS(t *testing.T) {
	srv := startServer(t, t.TempDir(), "127.0.0.1:0")
	defer srv.Close()
	// httptest brings a certificate for 127.0.0.1; a link with TLS in front stands for an etcd with TLS.
	web := httptest.NewTLSServer(nil)
	certs := web.TLS.Certificates
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	web.Close()
	k := newTLSLink(t, srv.Endpoint(), &tls.Config{Certificates: certs, NextProtos: []string{"h2"}})
	for _, endpoint := range []string{k.address(), "https://" + k.address()} {
		s, err := etcdtopo.Open(etcdtopo.Config{Endpoints: []string{endpoint}, Cluster: "c", TLS: &tls.Config{RootCAs: roots}})
		if err != nil {
			t.Fatal(err)
		}
		put(t, s, "a", "1")
		s.Close()
	}
	s, err := etcdtopo.Open(etcdtopo.Config{
		Endpoints: []string{k.address()}, Cluster: "c", TLS: &tls.Config{RootCAs: x509.NewCertPool()}, RequestTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Healthy(t.Context()); !errors.Is(err, topo.ErrUnavailable) {
		t.Fatalf("unknown authority: %v", err)
	}
}

func TestConfigRefused(t *testing.T) {
	some := []string{"10.0.0.1:2379"}
	for want, c := range map[string]etcdtopo.Config{
		"no endpoints":      {Cluster: "c"},
		"is empty":          {Cluster: "c", Endpoints: []string{""}},
		"cluster name":      {Cluster: "a/b", Endpoints: some},
		"given together":    {Cluster: "c", Endpoints: some, User: "u"},
		"clear text":        {Cluster: "c", Endpoints: some, User: "u", Password: "p"},
		"use https":         {Cluster: "c", Endpoints: []string{"http://h:1"}, TLS: &tls.Config{}},
		"not be negative":   {Cluster: "c", Endpoints: some, Heartbeat: -1},
		`"" is empty or`:    {Endpoints: some},
		"in clear text: co": {Cluster: "c", Endpoints: []string{"127.0.0.1:1", "h:1"}, User: "u", Password: "p"},
	} {
		if s, err := etcdtopo.Open(c); err == nil || !strings.Contains(err.Error(), want) {
			if err == nil {
				s.Close()
			}
			t.Errorf("%s: %v", want, err)
		}
	}
}
