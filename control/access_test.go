package control

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func discard() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func TestParseDSN(t *testing.T) {
	access := NodeAccess{User: "admin", Password: "it's \\ secret", Database: "main", SSLMode: "disable"}
	tests := []struct {
		dsn                      string
		addresses                []string
		user, password, database string
	}{
		{"postgres://db1:5433/app", []string{"db1:5433"}, "admin", access.Password, "app"},
		{"postgres://db1", []string{"db1:5432"}, "admin", access.Password, "main"},
		{"postgres://u:p@db1,db2:5433/", []string{"db1:5432", "db2:5433"}, "u", "p", "main"},
		{"postgresql://u@[::1]:7/x", []string{"[::1]:7"}, "u", "", "x"},
		{"host=/run/pg port=5440", []string{"/run/pg:5440"}, "admin", access.Password, "main"},
		{"host=a,b port=1,2 user=u password='p q' dbname=d", []string{"a:1", "b:2"}, "u", "p q", "d"},
		{"postgres:///x?host=/run/pg&port=9", []string{"/run/pg:9"}, "admin", access.Password, "x"},
	}
	for _, tt := range tests {
		cfg, addresses, err := access.parseDSN(tt.dsn)
		if err != nil {
			t.Errorf("%s: %v", tt.dsn, err)
			continue
		}
		if !slices.Equal(addresses, tt.addresses) || cfg.User != tt.user || cfg.Password != tt.password || cfg.Database != tt.database {
			t.Errorf("%s: %v as %s/%s to %s", tt.dsn, addresses, cfg.User, cfg.Password, cfg.Database)
		}
		if cfg.TLSConfig != nil {
			t.Errorf("%s: TLS in spite of sslmode disable", tt.dsn)
		}
	}
}

func TestParseDSNKeepsSecrets(t *testing.T) {
	for _, dsn := range []string{"postgres://u:hunter2@[bad/", "postgres://u:hunter2@h:port/", "host=x port=hunter user=u password=hunter2"} {
		_, _, err := NodeAccess{}.parseDSN(dsn)
		if err == nil {
			t.Errorf("%s was accepted", dsn)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the password is in %q", err)
		}
	}
}

func TestAddressesRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		hosts := rapid.SampledFrom([]string{"db", "10.0.0.1", "::1", "/run/a b", "/tmp/x"})
		access := NodeAccess{
			User:     rapid.StringN(1, 10, 20).Filter(func(s string) bool { return !strings.Contains(s, "\x00") }).Draw(rt, "user"),
			Password: rapid.StringN(1, 10, 20).Filter(func(s string) bool { return !strings.Contains(s, "\x00") }).Draw(rt, "password"),
			Database: "d", SSLMode: "disable",
		}
		var addresses []string
		for range rapid.IntRange(1, 3).Draw(rt, "n") {
			addresses = append(addresses, joinAddress(hosts.Draw(rt, "host"), uint16(rapid.IntRange(1, 65535).Draw(rt, "port"))))
		}
		cfg, err := access.config(addresses, "", "any")
		if err != nil {
			rt.Fatal(err)
		}
		got := []string{joinAddress(cfg.Host, cfg.Port)}
		for _, f := range cfg.Fallbacks {
			got = append(got, joinAddress(f.Host, f.Port))
		}
		if !slices.Equal(got, addresses) || cfg.User != access.User || cfg.Password != access.Password {
			rt.Fatalf("%v as %q/%q, want %v as %q/%q", got, cfg.User, cfg.Password, addresses, access.User, access.Password)
		}
	})
}
