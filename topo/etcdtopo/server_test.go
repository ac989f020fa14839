package etcdtopo_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/etcdtopo"
)

func put(t *testing.T, s topo.Store, key, value string) {
	t.Helper()
	if _, err := s.Txn(t.Context(), nil, []topo.Op{topo.Put(key, []byte(value))}); err != nil {
		t.Fatal(err)
	}
}

func TestServerKeepsData(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there", "yet")
	for round, value := range []string{"", "1", "2"} {
		srv := startServer(t, dir, "127.0.0.1:0")
		s := open(t, "c", srv.Endpoint())
		e, err := s.Get(t.Context(), "a")
		if round == 0 && !errors.Is(err, topo.ErrNotFound) || round > 0 && (err != nil || string(e.Value) != value) {
			t.Fatalf("round %d: %q, %v", round, e.Value, err)
		}
		put(t, s, "a", string(rune('1'+round)))
		srv.Close()
	}
}

func TestServerWithPeerAddress(t *testing.T) {
	srv, err := etcdtopo.StartServer(t.Context(), etcdtopo.ServerConfig{
		Dir: t.TempDir(), ClientListen: "127.0.0.1:0", PeerListen: "127.0.0.1:0", Log: testLog(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	put(t, open(t, "c", srv.Endpoint()), "a", "1")
	srv.Close()
}

func TestServerRefuses(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	inUse := t.TempDir()
	srv := startServer(t, inUse, "127.0.0.1:0")
	defer srv.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, dir, listen, want string
	}{
		{"port taken", t.TempDir(), taken.Addr().String(), "a port is taken"},
		{"directory in use", inUse, "127.0.0.1:0", "is in use by another process"},
		{"a file", file, "127.0.0.1:0", "not a directory"},
		{"no directory", "", "127.0.0.1:0", "no directory"},
		{"no port", t.TempDir(), "127.0.0.1", "is not host:port"},
	}
	for _, tt := range tests {
		srv, err := etcdtopo.StartServer(t.Context(), etcdtopo.ServerConfig{Dir: tt.dir, ClientListen: tt.listen, Log: testLog(t)})
		if err == nil {
			srv.Close()
			t.Fatalf("%s: started", tt.name)
		}
		if !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

func TestServerDamagedDirectory(t *testing.T) {
	overwrite := func(pattern string, data func(old []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			paths, err := filepath.Glob(filepath.Join(dir, pattern))
			if err != nil || len(paths) == 0 {
				t.Fatalf("no file %s: %v", pattern, err)
			}
			for _, path := range paths {
				old, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, data(old), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	garbage := func(old []byte) []byte {
		for i := range old[:min(len(old), 1<<16)] {
			old[i] = byte(i * 7)
		}
		return old
	}
	cut := func(old []byte) []byte { return old[:3*os.Getpagesize()] }
	removed := func(path string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := []struct {
		name   string
		damage func(*testing.T, string)
	}{
		{"database is garbage", overwrite("member/snap/db", garbage)},
		{"database is cut", overwrite("member/snap/db", cut)},
		{"database is empty", overwrite("member/snap/db", func([]byte) []byte { return []byte("x") })},
		{"database is missing", removed("member/snap/db")},
		{"log is garbage", overwrite("member/wal/*-*.wal", garbage)},
		{"log is missing", removed("member/wal")},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			srv := startServer(t, dir, "127.0.0.1:0")
			put(t, open(t, "c", srv.Endpoint()), "a", "1")
			srv.Close()
			tt.damage(t, dir)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			srv, err := etcdtopo.StartServer(ctx, etcdtopo.ServerConfig{Dir: dir, ClientListen: "127.0.0.1:0", Log: testLog(t)})
			if err == nil {
				srv.Close()
				t.Fatal("started")
			}
			if !strings.Contains(err.Error(), "is damaged") {
				t.Fatal(err)
			}
		})
	}
}
