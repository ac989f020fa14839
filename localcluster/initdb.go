package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/pgwire"
)

const (
	superuser     = "postgres"
	adminDatabase = "postgres"
	serviceUser   = "pgshoal"
	// settingsFile is included by postgresql.conf; `up` writes it anew, so people's own settings go
	// into postgresql.conf below the include, or through ALTER SYSTEM.
	settingsFile = "pgshoal.conf"
)

// initialise makes the data directory of a node's first server. The verifier stands in for the
// password, so that it is the same on every node and routers can log in with a client's own proof.
func (c *cluster) initialise(ctx context.Context, server Server, verifier string) error {
	dir := c.layout.dataDir(server)
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := c.account.makeDir(dir, 0o700); err != nil {
		return err
	}
	secret := filepath.Join(filepath.Dir(dir), "verifier")
	if err := c.account.writeFile(secret, verifier+"\n"); err != nil {
		return err
	}
	defer func() { _ = os.Remove(secret) }()
	args := []string{
		"--pgdata=" + dir, "--username=" + superuser, "--pwfile=" + secret, "--auth=scram-sha-256",
		"--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums", "--no-instructions",
	}
	if c.state.UnsafeFast {
		args = append(args, "--no-sync")
	}
	if err := c.runProgram(ctx, "initdb", nil, args...); err != nil {
		return err
	}
	if err := c.account.writeFile(filepath.Join(dir, "pg_hba.conf"), accessRules); err != nil {
		return err
	}
	return c.includeSettings(dir)
}

const accessRules = `# Who may connect: everybody with a password, from this machine only.
# TYPE  DATABASE     USER  ADDRESS       METHOD
local   all          all                 scram-sha-256
local   replication  all                 scram-sha-256
host    all          all   127.0.0.1/32  scram-sha-256
host    replication  all   127.0.0.1/32  scram-sha-256
`

func (c *cluster) includeSettings(dir string) error {
	conf := filepath.Join(dir, "postgresql.conf")
	f, err := os.OpenFile(conf, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	text = append(text, "\n# Written by pgshoal up; settings below this line win.\ninclude_if_exists = '"+settingsFile+"'\n"...)
	return c.account.writeFile(conf, string(text))
}

// writeSettings gives a server its port and what a node needs to have.
func (c *cluster) writeSettings(node Node, server Server) error {
	text := serverSettings(c.state, node, server, c.superPassword)
	return c.account.writeFile(filepath.Join(c.layout.dataDir(server), settingsFile), text)
}

func serverSettings(s *State, node Node, server Server, password string) string {
	settings := [][2]string{
		{"listen_addresses", "127.0.0.1"},
		{"port", fmt.Sprint(server.Port)},
		{"unix_socket_directories", s.SocketDir},
		{"max_connections", "300"},
		{"max_prepared_transactions", "300"},
		{"wal_level", "logical"},
		{"max_wal_senders", "20"},
		{"max_replication_slots", "20"},
		{"shared_buffers", "128MB"},
		{"password_encryption", "scram-sha-256"},
		{"logging_collector", "off"},
		{"log_line_prefix", "%m [%p] "},
		{"lc_messages", "C"},
		{"cluster_name", server.Name},
	}
	if s.UnsafeFast {
		// Commits still survive the death of the server, only not that of the machine.
		settings = append(settings, [][2]string{{"fsync", "off"}, {"full_page_writes", "off"}}...)
	}
	if server.Name != node.Servers[0].Name {
		settings = append(settings, [][2]string{
			{"primary_conninfo", fmt.Sprintf("host=127.0.0.1 port=%d user=%s password=%s application_name=%s sslmode=disable",
				node.Servers[0].Port, superuser, password, server.Name)},
			{"primary_slot_name", slotName(server)},
		}...)
	}
	var b strings.Builder
	b.WriteString("# Written by pgshoal up each time; put your own settings into postgresql.conf.\n")
	for _, kv := range settings {
		fmt.Fprintf(&b, "%s = '%s'\n", kv[0], strings.ReplaceAll(kv[1], "'", "''"))
	}
	return b.String()
}

func slotName(server Server) string { return strings.ReplaceAll(server.Name, "-", "_") }

// cloneReplica makes a streaming replica of a running primary.
func (c *cluster) cloneReplica(ctx context.Context, node Node, replica Server) error {
	primary := node.Servers[0]
	dir := c.layout.dataDir(replica)
	if err := c.account.makeDir(dir, 0o700); err != nil {
		return err
	}
	err := c.runProgram(ctx, "pg_basebackup", []string{"PGPASSWORD=" + c.superPassword},
		"--pgdata="+dir, "--host=127.0.0.1", fmt.Sprintf("--port=%d", primary.Port), "--username="+superuser,
		"--no-password", "--wal-method=stream", "--checkpoint=fast", "--create-slot", "--slot="+slotName(replica))
	if err != nil {
		return err
	}
	// The primary's address goes into the settings file instead of where --write-recovery-conf would
	// put it, because its port can change from one start to the next.
	if err := c.account.writeFile(filepath.Join(dir, "standby.signal"), ""); err != nil {
		return err
	}
	return c.writeSettings(node, replica)
}

// runProgram runs one of PostgreSQL's programs as its user; what it complained about is the error.
func (c *cluster) runProgram(ctx context.Context, name string, env []string, args ...string) error {
	cmd := exec.CommandContext(ctx, c.programs.path(name), args...)
	cmd.Dir = "/"
	cmd.SysProcAttr = c.account.attributes()
	cmd.Env = append(serverEnvironment(os.Environ()), env...)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &Problem{
		Sentence: fmt.Sprintf("%s failed: %s", name, complaint(out, err)),
		Cause:    err,
	}
}

// serverEnvironment leaves out what would turn PostgreSQL's programs to other servers or languages.
func serverEnvironment(environ []string) []string {
	var env []string
	for _, kv := range environ {
		if strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG") {
			continue
		}
		env = append(env, kv)
	}
	return append(env, "LC_ALL=C.UTF-8")
}

// complaint is the line of a program's output that says what went wrong: the last fatal one.
func complaint(output []byte, err error) string {
	last, fatal := err.Error(), ""
	for line := range bytes.Lines(output) {
		text := strings.TrimSpace(string(line))
		for _, mark := range []string{"FATAL: ", "PANIC: ", "initdb: error: ", "pg_basebackup: error: ", "pgshoal: "} {
			if _, after, found := strings.Cut(text, mark); found {
				fatal = strings.TrimSpace(after)
			}
		}
		if text != "" {
			last = text
		}
	}
	if fatal != "" {
		return fatal
	}
	return last
}

// adminConfig connects to a server as superuser.
func adminConfig(server Server, password string) (*pgx.ConnConfig, error) {
	return pgx.ParseConfig(serverDSN(server, password))
}

func newVerifier(password string) (string, error) {
	verifier, err := pgwire.BuildVerifier(password)
	if err != nil {
		return "", fmt.Errorf("make a SCRAM verifier: %w", err)
	}
	return verifier, nil
}
