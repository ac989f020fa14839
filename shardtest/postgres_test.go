package shardtest_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pgshoal/pgshoal/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	return conn
}

func TestPostgresSurvivesKillAndStop(t *testing.T) {
	pg := shardtest.StartPostgres(t, "wal_level=logical")
	conn := connect(t, pg.DSN("", ""))
	var level string
	if err := conn.QueryRow(t.Context(), "SHOW wal_level").Scan(&level); err != nil || level != "logical" {
		t.Fatalf("wal_level is %q, error %v", level, err)
	}
	if _, err := conn.Exec(t.Context(), "CREATE ROLE ann LOGIN; CREATE TABLE kept AS SELECT 7 AS n"); err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(){"kill": pg.Kill, "stop": pg.Stop} {
		end()
		if err := conn.Ping(t.Context()); err == nil {
			t.Fatalf("%s: the old connection still works", name)
		}
		pg.Start()
		conn = connect(t, pg.DSN("", ""))
		var n int
		if err := conn.QueryRow(t.Context(), "SELECT n FROM kept").Scan(&n); err != nil || n != 7 {
			t.Fatalf("%s: kept row is %d, error %v", name, n, err)
		}
	}
	ann := connect(t, pg.DSN("ann", "postgres"))
	var who string
	if err := ann.QueryRow(t.Context(), "SELECT current_user").Scan(&who); err != nil || who != "ann" {
		t.Fatalf("current_user is %q, error %v", who, err)
	}
	if _, err := os.Stat(filepath.Join(pg.DataDir, "PG_VERSION")); err != nil {
		t.Fatal(err)
	}
}

func TestPostgresLeavesNothing(t *testing.T) {
	var dir, socket string
	t.Run("server", func(t *testing.T) {
		pg := shardtest.StartPostgres(t)
		dir, socket = pg.DataDir, pg.SocketDir
	})
	for _, path := range []string{dir, socket} {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
}
