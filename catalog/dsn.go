package catalog

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// server is a PostgreSQL server reached with a superuser's connection string.
type server struct {
	config *pgx.ConnConfig
	tls    []string // libpq's environment for what pgx folded into its TLS configuration
}

func parseServer(dsn string) (*server, error) {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("connection string: %w", err)
	}
	s := &server{config: config}
	for _, name := range []string{"sslmode", "sslrootcert", "sslcert", "sslkey"} {
		if value := parameter(dsn, name); value != "" {
			s.tls = append(s.tls, "PG"+strings.ToUpper(name)+"="+value)
		}
	}
	return s, nil
}

// parameter finds a parameter in either form of connection string.
func parameter(dsn, name string) string {
	if u, err := url.Parse(dsn); err == nil && (u.Scheme == "postgres" || u.Scheme == "postgresql") {
		return u.Query().Get(name)
	}
	m := regexp.MustCompile(`(?:^|\s)` + name + `\s*=\s*(?:'((?:[^'\\]|\\.)*)'|(\S+))`).FindStringSubmatch(dsn)
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

// environment makes libpq programs connect to a database of the server. The password does not go
// into arguments, where everybody on the machine could read it.
func (s *server) environment(database string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") })
	env = append(env, "PGHOST="+s.config.Host, "PGPORT="+strconv.Itoa(int(s.config.Port)), "PGUSER="+s.config.User,
		"PGDATABASE="+database, "PGPASSWORD="+s.config.Password, "PGCONNECT_TIMEOUT=30", "PGCLIENTENCODING=UTF8", "PGAPPNAME=pgshoal")
	return append(env, s.tls...)
}

// programs are the directory of pg_dump and psql.
type programs struct{ dir string }

// findPrograms returns the newest installed client programs: pg_dump refuses servers newer than
// itself.
func findPrograms(ctx context.Context, serverMajor int) (programs, error) {
	var dirs []string
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/local/pgsql/bin", "/opt/homebrew/opt/postgresql*/bin", "/usr/local/opt/postgresql*/bin",
	} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			return programs{}, err
		}
		dirs = append(dirs, found...)
	}
	if path, err := exec.LookPath("pg_dump"); err == nil {
		dirs = append(dirs, filepath.Dir(path))
	}
	best, bestMajor := "", 0
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "psql")); err != nil {
			continue
		}
		if major := dumpMajor(ctx, dir); major > bestMajor {
			best, bestMajor = dir, major
		}
	}
	switch {
	case best == "":
		return programs{}, errors.New("pg_dump and psql were not found; install PostgreSQL's client programs " +
			"(Debian: apt-get install postgresql-client) or add their directory to PATH")
	case bestMajor < serverMajor:
		return programs{}, fmt.Errorf("the newest pg_dump found is version %d (in %s), the server is %d; install the client programs of PostgreSQL %d",
			bestMajor, best, serverMajor, serverMajor)
	}
	return programs{best}, nil
}

// dumpMajor returns the major version of the directory's pg_dump, 0 when there is none.
func dumpMajor(ctx context.Context, dir string) int {
	out, err := exec.CommandContext(ctx, filepath.Join(dir, "pg_dump"), "--version").Output()
	if err != nil {
		return 0
	}
	m := regexp.MustCompile(`\) (\d+)`).FindSubmatch(out)
	if m == nil {
		return 0
	}
	major, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return 0
	}
	return major
}
