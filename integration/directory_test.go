package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest"
)

// nodesOfKeys asks the nodes directly which keys they have rows of; a key on two nodes is an error.
func nodesOfKeys(t testing.TB, table, column string) map[string]string {
	t.Helper()
	at := map[string]string{}
	onNodes(t, shared(), "postgres", func(node string, conn *pgx.Conn) {
		for key := range strings.SplitSeq(ask(t, conn, "SELECT DISTINCT "+column+" FROM "+table), "\n") {
			if other := at[key]; other != "" && key != "" {
				t.Errorf("%s and %s both have rows of key %s", other, node, key)
			}
			if key != "" {
				at[key] = node
			}
		}
	})
	return at
}

func TestDirectory(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	direct, routed, other := connect(t, plain.DSN("", "")), connect(t, shared().DSN(0)), connect(t, shared().DSN(1))
	const tables = `
		CREATE TABLE dir_accounts (tenant text PRIMARY KEY, plan text);
		CREATE TABLE dir_orders (tenant text REFERENCES dir_accounts, id bigint, amount int, PRIMARY KEY (tenant, id));
		INSERT INTO dir_accounts SELECT 'old' || n, 'free' FROM generate_series(1, 12) n;
		INSERT INTO dir_orders SELECT 'old' || n, i, n * i FROM generate_series(1, 12) n, generate_series(1, 50) i`
	run(t, direct, tables)
	run(t, routed, tables, "BEGIN", "SELECT create_distributed_table('dir_accounts', 'tenant', strategy => 'directory')",
		"SELECT create_distributed_table('dir_orders', 'tenant', colocate_with => 'dir_accounts')", "COMMIT")
	if n := nodeCount(nodesOfKeys(t, "dir_orders", "tenant")); n != 3 {
		t.Errorf("the keys are on %d nodes", n)
	}
	both := func(sql string) {
		t.Helper()
		want := ask(t, direct, sql)
		for _, conn := range []*pgx.Conn{routed, other} {
			if !strings.HasPrefix(sql, "SELECT") && conn == other {
				continue
			}
			if got := ask(t, conn, sql); got != want {
				t.Errorf("%s\nanswered\n%s\nnot\n%s", sql, got, want)
			}
		}
	}
	both("SELECT count(*), sum(amount) FROM dir_orders WHERE tenant = 'old7'")
	both("SELECT count(*) FROM dir_orders WHERE tenant = 'nobody'")
	both("SELECT a.plan, count(*) FROM dir_accounts a JOIN dir_orders o USING (tenant) WHERE tenant = 'old3' GROUP BY 1")
	both("INSERT INTO dir_accounts VALUES ('new1', 'paid') RETURNING *")
	both("INSERT INTO dir_orders VALUES ('new1', 1, 10), ('new1', 2, 20)")
	both("UPDATE dir_orders SET amount = amount + 1 WHERE tenant = 'new1' RETURNING amount")
	both("DELETE FROM dir_orders WHERE tenant = 'nobody'")
	both("INSERT INTO dir_accounts VALUES ('new2', 'a'), ('new3', 'b'), ('new4', 'c'), ('new5', 'd')")
	both("INSERT INTO dir_orders SELECT 'new2', n, n FROM generate_series(1, 30) n")
	both("SELECT count(*), sum(amount) FROM dir_orders")
	both("UPDATE dir_accounts SET plan = 'x' WHERE tenant IN ('new2', 'new3', 'nobody')")
	both("SELECT tenant, plan FROM dir_accounts ORDER BY tenant")
	data := "copy1\ta\ncopy2\tb\ncopy3\tc\nnew9\td\n"
	for _, conn := range []*pgx.Conn{direct, routed} {
		if _, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(data), "COPY dir_accounts FROM STDIN"); err != nil {
			t.Fatal(describe(err))
		}
	}
	both("SELECT tenant, plan FROM dir_accounts ORDER BY tenant COLLATE \"C\"")
	nodesOfKeys(t, "dir_accounts", "tenant")
	// A key of a transaction that is rolled back keeps its entry, and that does no harm.
	run(t, routed, "BEGIN", "INSERT INTO dir_accounts VALUES ('undone', 'x')", "ROLLBACK")
	both("SELECT count(*) FROM dir_accounts WHERE tenant = 'undone'")
	both("INSERT INTO dir_accounts VALUES ('undone', 'y') RETURNING plan")
	if got := ask(t, routed, "SHOW shoal.tables"); !strings.Contains(got, "|dir_orders|distributed|") || !strings.Contains(got, "directory(tenant)") {
		t.Errorf("SHOW shoal.tables:\n%s", got)
	}
	setEntries(t, direct, routed, other)
	run(t, routed, "BEGIN", "SELECT undistribute_table('dir_accounts')", "SELECT undistribute_table('dir_orders')", "COMMIT")
	both("SELECT count(*), sum(amount) FROM dir_orders")
}

func nodeCount(at map[string]string) int {
	nodes := map[string]bool{}
	for _, n := range at {
		nodes[n] = true
	}
	return len(nodes)
}

// setEntries moves a key by hand, while another router remembers where it was.
func setEntries(t *testing.T, direct, routed, other *pgx.Conn) {
	t.Helper()
	const sum = "SELECT count(*), sum(amount) FROM dir_orders WHERE tenant = 'old5'"
	want := ask(t, direct, sum)
	for _, node := range []string{"node1", "node2", "node3", "node1"} {
		expect(t, other, want, sum)
		got := ask(t, routed, "SELECT directory_set('dir_orders', 'old5', node => '"+node+"')", pgx.QueryExecModeSimpleProtocol)
		if !strings.HasSuffix(got, "|"+node) {
			t.Errorf("directory_set: %s", got)
		}
		if at := nodesOfKeys(t, "dir_orders", "tenant")["old5"]; at != node {
			t.Errorf("the rows are on %s, not %s", at, node)
		}
		expect(t, other, want, sum)
		expect(t, routed, want, sum)
		if got := ask(t, other, "SELECT directory_get('dir_orders', 'old5')"); !strings.HasSuffix(got, "|"+node) {
			t.Errorf("directory_get: %s", got)
		}
	}
	expect(t, routed, "2|1", `SELECT directory_import('dir_orders', '[["imp1", "node2"], ["imp2"], ["old1", "node3"]]')`)
	if got := ask(t, other, "SELECT directory_get('dir_orders', 'imp1')"); !strings.HasSuffix(got, "|node2") {
		t.Errorf("directory_get: %s", got)
	}
	if got := ask(t, other, "SELECT directory_list('dir_orders', after => 'i', \"limit\" => 2)"); !strings.HasPrefix(got, "imp1|") || !strings.Contains(got, "\nimp2|") {
		t.Errorf("directory_list: %s", got)
	}
	fails(t, routed, "22023", "SELECT directory_set('dir_orders', 'old5', node => 'nowhere')")
	expect(t, routed, "", "SELECT directory_get('dir_orders', 'unheard of')")
}

// TestDirectoryRace lets many sessions of two routers use the same new keys at once.
func TestDirectoryRace(t *testing.T) {
	routed := connect(t, shared().DSN(0))
	run(t, routed, "BEGIN", "CREATE TABLE dir_race (tenant bigint, id bigint, PRIMARY KEY (tenant, id))",
		"SELECT create_distributed_table('dir_race', 'tenant', strategy => 'directory', assign_by => 'weight')",
		"INSERT INTO dir_race VALUES (-1, 1), (-2, 1), (-3, 1)", "DELETE FROM dir_race WHERE tenant = -2", "DELETE FROM dir_race", "COMMIT")
	const sessions, keys = 100, 20
	var wg sync.WaitGroup
	errs := make([]error, sessions)
	for i := range sessions {
		wg.Go(func() {
			conn, err := pgx.Connect(t.Context(), shared().DSN(i%2))
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close(t.Context())
			for k := range keys {
				if _, err := conn.Exec(t.Context(), "INSERT INTO dir_race VALUES ($1, $2)", k, i); err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			t.Fatal(describe(err))
		}
	}
	at := nodesOfKeys(t, "dir_race", "tenant")
	if len(at) != keys || nodeCount(at) != 3 {
		t.Errorf("%d keys on %d nodes", len(at), nodeCount(at))
	}
	for k := range keys {
		expect(t, routed, fmt.Sprint(sessions), fmt.Sprintf("SELECT count(*) FROM dir_race WHERE tenant = %d", k))
	}
}

// TestDirectoryKeys has keys of types that are written in several ways, and that only PostgreSQL can read.
func TestDirectoryKeys(t *testing.T) {
	routed, other := connect(t, shared().DSN(0)), connect(t, shared().DSN(1))
	for _, k := range []struct{ typ, a, same string }{
		{"numeric", "1.50", "1.5"},
		{"char(8)", "ab", "ab    "},
		{"timestamptz", "2026-01-01 00:00+00", "2026-01-01 02:00+02"},
		{"uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "{A0EEBC999C0B4EF8BB6D6BB9BD380A11}"},
		{"bytea", "\\x6162", "ab"},
		{"varchar(5)", `it's "x"`[:5], `it's "x"`[:5]},
		{"date", "2026-02-03", "February 3 2026"},
	} {
		run(t, routed, "DROP TABLE IF EXISTS dir_keys", "CREATE TABLE dir_keys (k "+k.typ+", n int)")
		quoted := func(v string) string { return "'" + strings.ReplaceAll(v, "'", "''") + "'" }
		run(t, routed, "INSERT INTO dir_keys VALUES ("+quoted(k.a)+", 1)", "SELECT create_distributed_table('dir_keys', 'k', strategy => 'directory', colocate_with => 'none', shard_count => 5)",
			"INSERT INTO dir_keys VALUES ("+quoted(k.same)+", 2)")
		expect(t, other, "2", "SELECT count(*) FROM dir_keys WHERE k = "+quoted(k.same))
		if at := nodesOfKeys(t, "dir_keys", "1"); len(at) != 1 {
			t.Errorf("%s: %v", k.typ, at)
		}
		for _, node := range []string{"node1", "node2", "node3"} {
			run(t, routed, "SELECT directory_set('dir_keys', "+quoted(k.same)+", node => '"+node+"')")
			expect(t, other, "2", "SELECT count(*) FROM dir_keys WHERE k = "+quoted(k.a))
		}
		if got := ask(t, other, "SELECT directory_list('dir_keys')"); strings.Count(got, "\n") != 0 || !strings.HasSuffix(got, "|node3") {
			t.Errorf("%s: directory_list: %s", k.typ, got)
		}
	}
	fails(t, routed, "23502", "INSERT INTO dir_keys VALUES (NULL, 1)")
}

// TestDirectoryWrites are writes that find their keys in other ways than by VALUES.
func TestDirectoryWrites(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	direct, routed := connect(t, plain.DSN("", "")), connect(t, shared().DSN(0))
	const tables = `CREATE TABLE dir_w (tenant int, id int, v text, PRIMARY KEY (tenant, id)); CREATE TABLE dir_src (a int, b int);
		INSERT INTO dir_src SELECT n % 9, n FROM generate_series(1, 90) n`
	run(t, direct, tables)
	run(t, routed, tables, "SELECT create_distributed_table('dir_w', 'tenant', strategy => 'directory', assign_by => 'bytes')",
		"SELECT create_distributed_table('dir_src', 'b')")
	for _, sql := range []string{
		"INSERT INTO dir_w SELECT a, b, 'from select' FROM dir_src",
		"INSERT INTO dir_w VALUES (1, 1, 'x'), (100, 1, 'y') ON CONFLICT (tenant, id) DO UPDATE SET v = 'again' RETURNING v",
		"UPDATE dir_w SET tenant = 200 WHERE tenant = 3",
		"UPDATE dir_w SET tenant = tenant + 300 WHERE id % 10 = 5",
		"UPDATE dir_w SET v = 'all' WHERE id > 40",
		"DELETE FROM dir_w WHERE tenant IN (4, 200, 9999)",
		"WITH moved AS (DELETE FROM dir_w WHERE tenant = 7 RETURNING *) SELECT count(*) FROM moved",
	} {
		if got, want := ask(t, routed, sql), ask(t, direct, sql); got != want {
			t.Errorf("%s\nanswered\n%s\nnot\n%s", sql, got, want)
		}
		const all = "SELECT tenant, id, v FROM dir_w ORDER BY 1, 2"
		expect(t, routed, ask(t, direct, all), all)
		nodesOfKeys(t, "dir_w", "tenant")
	}
}

// TestDirectorySetUnderWrites moves a key from node to node while sessions of another router store rows under it.
func TestDirectorySetUnderWrites(t *testing.T) {
	routed := connect(t, shared().DSN(0))
	run(t, routed, "CREATE TABLE dir_moving (tenant text, id bigint, PRIMARY KEY (tenant, id))",
		"SELECT create_distributed_table('dir_moving', 'tenant', strategy => 'directory')")
	const writers = 4
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var stored [writers]int
	var errs [writers]error
	for w := range writers {
		wg.Go(func() {
			conn, err := pgx.Connect(t.Context(), shared().DSN(w%2))
			if err != nil {
				errs[w] = err
				return
			}
			defer conn.Close(t.Context())
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := conn.Exec(t.Context(), "INSERT INTO dir_moving VALUES ('hot', $1)", w*1000000+stored[w]); err != nil {
					errs[w] = err
					return
				}
				stored[w]++
			}
		})
	}
	for i := range 9 {
		run(t, routed, fmt.Sprintf("SELECT directory_set('dir_moving', 'hot', node => 'node%d')", 1+i%3))
	}
	close(stop)
	wg.Wait()
	total := 0
	for w := range writers {
		if errs[w] != nil {
			t.Fatal(describe(errs[w]))
		}
		total += stored[w]
	}
	if at := nodesOfKeys(t, "dir_moving", "tenant"); at["hot"] != "node3" {
		t.Errorf("the rows are on %v", at)
	}
	expect(t, connect(t, shared().DSN(1)), fmt.Sprint(total), "SELECT count(*) FROM dir_moving WHERE tenant = 'hot'")
	t.Logf("%d rows were stored while the key moved 9 times", total)
}
