package integration

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// mustDiffer is what cannot be the same on two servers.
var mustDiffer = []struct{ pattern, mask string }{
	{`received from server process with PID \d+`, "received from server process with PID <pid>"},
	{`(?m)^LOCATION:  .*\n`, ""},      // lines of PostgreSQL's source: the router's own messages have none
	{`(?m)^\\(un)?restrict .*\n`, ""}, // pg_dump's random keys
	{`on host "127\.0\.0\.1" at port "\d+"`, `on host "127.0.0.1" at port "<port>"`},
}

// TestSameAsPostgres runs scripts with psql against a plain PostgreSQL and through a router: an
// application without distributed tables must not see any difference, down to the last byte.
func TestSameAsPostgres(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	direct := connect(t, plain.DSN("", ""))
	verifier, err := pgwire.BuildVerifier(cluster.Password)
	if err != nil {
		t.Fatal(err)
	}
	run(t, direct, "ALTER ROLE postgres PASSWORD '"+verifier+"'", "CREATE ROLE pgshoal LOGIN", "GRANT pg_read_all_stats TO pgshoal")
	routed := connect(t, narrow().DSN(0))
	scripts, err := filepath.Glob("testdata/compare/*.sql")
	if err != nil || len(scripts) < 12 {
		t.Fatalf("%d scripts, %v", len(scripts), err)
	}
	for _, script := range scripts {
		name := strings.TrimSuffix(filepath.Base(script), ".sql")
		t.Run(name, func(t *testing.T) {
			database := "cmp_" + name
			var gotOut, gotErr, wantOut, wantErr string
			var both sync.WaitGroup
			both.Go(func() {
				run(t, direct, "CREATE DATABASE "+database)
				wantOut, wantErr = psqlScript(t, plain.DSN("", ""), database, script)
			})
			both.Go(func() {
				run(t, routed, "CREATE DATABASE "+database)
				gotOut, gotErr = psqlScript(t, narrow().DSN(0), database, script)
			})
			both.Wait()
			if gotOut != wantOut {
				t.Errorf("the output differs (- PostgreSQL, + pgshoal):\n%s", difference(wantOut, gotOut))
			}
			if gotErr != wantErr {
				t.Errorf("the messages differ (- PostgreSQL, + pgshoal):\n%s", difference(wantErr, gotErr))
			}
			if strings.Count(wantOut, "\n") < 20 {
				t.Errorf("the script says almost nothing:\n%s%s", wantOut, wantErr)
			}
		})
	}
	checkNoDrift(t, narrow())
}

// psqlScript runs a script with its statements echoed and returns both outputs, masked. They are
// kept apart because psql does not write them in a fixed order.
func psqlScript(t *testing.T, dsn, database, script string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "psql"), "-X", "-e", "-f", script)
	cmd.Env = libpqEnvironment(t, dsn, database)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // how it ended is in its output
	return mask(out.String()), mask(errs.String())
}

func mask(text string) string {
	for _, m := range mustDiffer {
		text = regexp.MustCompile(m.pattern).ReplaceAllString(text, m.mask)
	}
	return text
}

// difference shows where two texts differ, as diff does.
func difference(want, got string) string {
	dir, err := os.MkdirTemp("", "pgshoal-diff-")
	if err != nil {
		return err.Error()
	}
	defer os.RemoveAll(dir)
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	if err := os.WriteFile(a, []byte(want), 0o600); err != nil {
		return err.Error()
	}
	if err := os.WriteFile(b, []byte(got), 0o600); err != nil {
		return err.Error()
	}
	out, err := exec.Command("diff", "-U", "4", a, b).CombinedOutput()
	if len(out) == 0 {
		return fmt.Sprint(err)
	}
	lines := strings.SplitAfter(string(out), "\n")
	return strings.Join(lines[min(2, len(lines)):min(len(lines), 150)], "")
}
