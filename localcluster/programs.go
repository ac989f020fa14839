package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// minimumMajor is the oldest PostgreSQL that can be a node.
const minimumMajor = 15

// programs is one installation of PostgreSQL.
type programs struct {
	dir     string
	version string // as it calls itself, e.g. 15.14
	major   int
}

func (p programs) path(name string) string { return filepath.Join(p.dir, name) }

// findPrograms chooses the installation: the named directory if there is one, else the one in PATH,
// else the newest in the usual places. A major version other than 0 must be met exactly, because
// data directories can be read by no other.
func findPrograms(ctx context.Context, binDir string, major int) (programs, error) {
	candidates := installations()
	if binDir != "" {
		candidates = []string{binDir}
	}
	var found []programs
	for i, dir := range candidates {
		p, err := examinePrograms(ctx, dir)
		if err != nil {
			if binDir != "" {
				return programs{}, &Problem{
					Sentence: fmt.Sprintf("there is no PostgreSQL server in %s", binDir),
					Way:      "name the directory that holds initdb and postgres with --pg-bin",
					Cause:    err,
				}
			}
			continue
		}
		if i == 0 && p.major >= minimumMajor && major == 0 {
			return p, nil
		}
		found = append(found, p)
	}
	return choosePrograms(found, major)
}

func choosePrograms(found []programs, major int) (programs, error) {
	if len(found) == 0 {
		return programs{}, &Problem{
			Sentence: "no PostgreSQL server was found in PATH or in the usual directories",
			Way:      "install one (Debian: apt-get install postgresql), or name its directory with --pg-bin",
		}
	}
	slices.SortStableFunc(found, func(a, b programs) int { return b.major - a.major })
	newest := found[0]
	if major != 0 {
		i := slices.IndexFunc(found, func(p programs) bool { return p.major == major })
		if i < 0 {
			return programs{}, &Problem{
				Sentence: fmt.Sprintf("the cluster was created with PostgreSQL %d, and only PostgreSQL %s was found in %s", major, newest.version, newest.dir),
				Way:      fmt.Sprintf("install PostgreSQL %d again, or name its directory with --pg-bin", major),
			}
		}
		return found[i], nil
	}
	if newest.major < minimumMajor {
		return programs{}, &Problem{
			Sentence: fmt.Sprintf("PostgreSQL %s in %s is too old: nodes need version %d or newer", newest.version, newest.dir, minimumMajor),
			Way:      "install a newer one, or name its directory with --pg-bin",
		}
	}
	return newest, nil
}

// installations lists directories that may hold PostgreSQL's programs; the one in PATH comes first.
func installations() []string {
	var dirs []string
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			path = real
		}
		dirs = append(dirs, filepath.Dir(path))
	} else {
		dirs = append(dirs, "") // the first place is PATH's
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin", "/usr/libexec/postgresql*",
		"/usr/local/pgsql/bin", "/usr/local/bin", "/opt/postgresql*/bin",
	} {
		matches, err := filepath.Glob(pattern)
		if err == nil {
			dirs = append(dirs, matches...)
		}
	}
	return dirs
}

func examinePrograms(ctx context.Context, dir string) (programs, error) {
	if dir == "" {
		return programs{}, errors.New("no directory")
	}
	p := programs{dir: dir}
	for _, name := range []string{"initdb", "pg_basebackup"} {
		if _, err := exec.LookPath(p.path(name)); err != nil {
			return programs{}, err
		}
	}
	out, err := exec.CommandContext(ctx, p.path("postgres"), "--version").Output()
	if err != nil {
		return programs{}, err
	}
	p.version, p.major, err = parseVersion(string(out))
	return p, err
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) ((\d+)[0-9A-Za-z.]*)`)

func parseVersion(text string) (version string, major int, err error) {
	match := versionPattern.FindStringSubmatch(text)
	if match == nil {
		return "", 0, fmt.Errorf("%q names no PostgreSQL version", text)
	}
	major, err = strconv.Atoi(match[2])
	return match[1], major, err
}
