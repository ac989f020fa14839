package catalog

import (
	"context"
	"slices"
	"strings"
	"testing"
)

func TestServerEnvironment(t *testing.T) {
	for _, dsn := range []string{
		"postgres://bob:p%20w@db.example:6000/x?sslmode=require&sslrootcert=/ca",
		"host=db.example port=6000 user=bob password='p w' dbname=x sslmode=require sslrootcert='/ca'",
	} {
		// pgx would read the file; the environment is made from the text.
		s, err := parseServer(strings.NewReplacer("&sslrootcert=/ca", "", " sslrootcert='/ca'", "").Replace(dsn))
		if err != nil {
			t.Fatal(err)
		}
		env := s.environment("other")
		for _, want := range []string{"PGHOST=db.example", "PGPORT=6000", "PGUSER=bob", "PGPASSWORD=p w", "PGDATABASE=other", "PGSSLMODE=require"} {
			if !slices.Contains(env, want) {
				t.Errorf("%s: no %s", dsn, want)
			}
		}
		if got := parameter(dsn, "sslrootcert"); got != "/ca" {
			t.Errorf("%s: sslrootcert %q", dsn, got)
		}
	}
}

func TestFindPrograms(t *testing.T) {
	found, err := findPrograms(context.Background(), 15)
	if err != nil || found.dir == "" {
		t.Fatal(found, err)
	}
	if _, err := findPrograms(context.Background(), 99); err == nil || !strings.Contains(err.Error(), "install the client programs of PostgreSQL 99") {
		t.Errorf("for a server from the future: %v", err)
	}
}

func TestSteps(t *testing.T) {
	list, err := steps(`odd "role"`)
	if err != nil || len(list) == 0 {
		t.Fatal(list, err)
	}
	for i, s := range list {
		if s.number != i+1 || strings.Contains(s.sql, "{router") || !strings.Contains(s.sql, `"odd ""role"""`) && i == 0 {
			t.Errorf("step %d: %s", s.number, s.sql)
		}
	}
}
