package integration

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// program finds one of PostgreSQL's programs; Debian keeps some of them out of PATH.
func program(t testing.TB, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		t.Fatalf("%s is not installed", name)
	}
	return found[len(found)-1]
}

// tool runs one of PostgreSQL's programs and returns what it wrote.
func tool(t testing.TB, dsn, database, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, name), args...)
	cmd.Env = libpqEnvironment(t, dsn, database)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// libpqEnvironment is how libpq's programs learn where to connect.
func libpqEnvironment(t testing.TB, dsn, database string) []string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	return append(os.Environ(), "PGHOST="+u.Hostname(), "PGPORT="+u.Port(), "PGUSER="+u.User.Username(), "PGPASSWORD="+password,
		"PGDATABASE="+database, "PGSSLMODE=disable", "PGTZ=UTC", "LC_ALL=C.UTF-8", "PSQLRC=/dev/null", "PGAPPNAME=")
}

func mustTool(t testing.TB, dsn, database, name string, args ...string) string {
	t.Helper()
	out, err := tool(t, dsn, database, name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func TestPgbench(t *testing.T) {
	dsn := shared().DSN(0)
	conn := client(t)
	for _, how := range []string{"local", "distributed"} {
		t.Run(how, func(t *testing.T) {
			mustTool(t, dsn, "postgres", "pgbench", "-i", "-s", "1", "-q")
			if how == "distributed" {
				run(t, conn, "SELECT create_distributed_table('pgbench_accounts', 'aid')", "SELECT create_distributed_table('pgbench_tellers', 'tid')",
					"SELECT create_reference_table('pgbench_branches')", "SELECT create_distributed_table('pgbench_history', 'aid')")
				checkPlaced(t, shared(), "pgbench_accounts", "aid", 100000)
			}
			for _, mode := range []string{"simple", "extended", "prepared"} {
				out := mustTool(t, dsn, "postgres", "pgbench", "-n", "-M", mode, "-c", "4", "-j", "2", "-t", "40")
				if !strings.Contains(out, "number of transactions actually processed: 160/160") || !strings.Contains(out, "number of failed transactions: 0") {
					t.Errorf("%s: %s", mode, out)
				}
				mustTool(t, dsn, "postgres", "pgbench", "-n", "-S", "-M", mode, "-c", "4", "-j", "2", "-t", "200")
			}
			mustTool(t, dsn, "postgres", "pgbench", "-n", "-S", "-C", "-c", "2", "-t", "20")
			// Each transaction adds the same delta to all four tables.
			sum := totals(t, shared(), "pgbench_accounts", "abalance")
			expect(t, conn, fmt.Sprint(sum), "SELECT sum(bbalance) FROM pgbench_branches")
			for table, column := range map[string]string{"pgbench_tellers": "tbalance", "pgbench_history": "delta"} {
				if got := totals(t, shared(), table, column); got != sum {
					t.Errorf("the sum of %s is %d, of accounts %d", column, got, sum)
				}
			}
			if how == "distributed" {
				checkPlaced(t, shared(), "pgbench_accounts", "aid", 100000)
				checkPlaced(t, shared(), "pgbench_history", "aid", 480)
				checkReference(t, shared(), "pgbench_branches", 1)
			}
			run(t, conn, "DROP TABLE pgbench_accounts, pgbench_tellers, pgbench_branches, pgbench_history")
		})
	}
}

func TestDumpAndRestore(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE DATABASE dump_src", "CREATE DATABASE dump_dst")
	dsn := shared().DSN(0)
	mustTool(t, dsn, "dump_src", "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", "testdata/dump.sql")
	through := mask(mustTool(t, dsn, "dump_src", "pg_dump", "--no-sync"))
	direct := mask(mustTool(t, shared().NodeDSN("node1"), "dump_src", "pg_dump", "--no-sync"))
	if through != direct {
		t.Errorf("pg_dump through the router differs:\n%s", difference(direct, through))
	}
	for _, hidden := range []string{"pg_shoal"} {
		if strings.Contains(through, hidden) {
			t.Errorf("the dump has %s in it", hidden)
		}
	}
	for _, format := range []string{"plain", "custom", "tar", "directory"} {
		file := filepath.Join(t.TempDir(), "dump")
		mustTool(t, dsn, "dump_src", "pg_dump", "--no-sync", "-F", format, "-f", file)
		run(t, conn, "DROP DATABASE dump_dst", "CREATE DATABASE dump_dst")
		if format == "plain" {
			mustTool(t, dsn, "dump_dst", "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file)
		} else {
			jobs := "1"
			if format != "tar" {
				jobs = "3"
			}
			mustTool(t, dsn, "dump_dst", "pg_restore", "-d", "dump_dst", "--exit-on-error", "-j", jobs, file)
		}
		if restored := mask(mustTool(t, dsn, "dump_dst", "pg_dump", "--no-sync")); restored != through {
			t.Errorf("the restored database (%s) is another one:\n%s", format, difference(through, restored))
		}
	}
	checkNoDrift(t, shared())
	run(t, conn, "DROP DATABASE dump_dst", "DROP DATABASE dump_src")
}

// TestRestoreIntoDistributedTables restores the schema, distributes tables, then restores the data.
func TestRestoreIntoDistributedTables(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE DATABASE spread_src", "CREATE DATABASE spread_dst")
	dsn := shared().DSN(0)
	mustTool(t, dsn, "spread_src", "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-c", `CREATE TABLE country (code text PRIMARY KEY, name text)`,
		"-c", "CREATE TABLE item (owner bigint, id int, country text REFERENCES country, PRIMARY KEY (owner, id))",
		"-c", "INSERT INTO country VALUES ('de', 'Germany'), ('jp', 'Japan')",
		"-c", "INSERT INTO item SELECT i % 100, i, 'jp' FROM generate_series(1, 3000) i",
		"-c", "SELECT lo_from_bytea(990011, 'abc')", "-c", "COMMENT ON LARGE OBJECT 990011 IS 'three letters'")
	file := filepath.Join(t.TempDir(), "dump")
	mustTool(t, dsn, "spread_src", "pg_dump", "--no-sync", "-F", "custom", "-f", file)
	mustTool(t, dsn, "spread_dst", "pg_restore", "-d", "spread_dst", "--exit-on-error", "--section=pre-data", file)
	mustTool(t, dsn, "spread_dst", "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1",
		"-c", "SELECT create_reference_table('country')", "-c", "SELECT create_distributed_table('item', 'owner')")
	mustTool(t, dsn, "spread_dst", "pg_restore", "-d", "spread_dst", "--exit-on-error", "--section=data", "--section=post-data", file)
	total := 0
	onNodes(t, shared(), "spread_dst", func(node string, conn *pgx.Conn) {
		expect(t, conn, "2", "SELECT count(*) FROM country")
		n, _ := strconv.Atoi(ask(t, conn, "SELECT count(*) FROM item"))
		if n == 0 || n == 3000 {
			t.Errorf("%s has %d rows", node, n)
		}
		total += n
		if node == "node1" {
			expect(t, conn, `[97 98 99]|three letters`, "SELECT lo_get(990011), obj_description(990011, 'pg_largeobject')")
		} else {
			expect(t, conn, "0", "SELECT count(*) FROM pg_largeobject_metadata")
		}
	})
	if total != 3000 {
		t.Errorf("%d rows", total)
	}
	run(t, conn, "DROP DATABASE spread_dst", "DROP DATABASE spread_src")
}

// TestPsqlSeesDistributedTables has psql's commands on tables that are not local.
func TestPsqlSeesDistributedTables(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE psql_t (id bigserial PRIMARY KEY, v text NOT NULL DEFAULT 'x')", "CREATE INDEX ON psql_t (v)",
		"SELECT create_distributed_table('psql_t', 'id')")
	out := mustTool(t, shared().DSN(0), cluster.Superuser, "psql", "-X", "-c", `\d psql_t`, "-c", `\dt psql_t`, "-c", `\di psql*`, "-c", `\ds psql*`,
		"-c", "INSERT INTO psql_t VALUES (5)", "-c", "SELECT * FROM psql_t WHERE id = 5", "-c", `\dn`, "-c", `\dx`)
	for _, want := range []string{
		`Table "public.psql_t"`, `"psql_t_pkey" PRIMARY KEY, btree (id)`, "nextval('psql_t_id_seq'::regclass)", " public | psql_t | table | postgres",
		"psql_t_v_idx", "psql_t_id_seq", "INSERT 0 1", "  5 | x",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("psql does not say %q:\n%s", want, out)
		}
	}
	if strings.Contains(out, "pg_shoal") {
		t.Errorf("psql shows pg_shoal:\n%s", out)
	}
}
