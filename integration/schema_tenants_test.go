package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest"
)

// schemaNode asks the nodes directly which of them has rows of a table: exactly one.
func schemaNode(t testing.TB, table string) string {
	t.Helper()
	var nodes []string
	onNodes(t, shared(), "postgres", func(node string, conn *pgx.Conn) {
		if ask(t, conn, "SELECT count(*) FROM "+table) != "0" {
			nodes = append(nodes, node)
		}
	})
	return strings.Join(nodes, ",")
}

func TestDistributedSchemas(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	direct, routed, other := connect(t, plain.DSN("", "")), connect(t, shared().DSN(0)), connect(t, shared().DSN(1))
	run(t, direct, "CREATE TABLE ten_plans (name text PRIMARY KEY); INSERT INTO ten_plans VALUES ('free'), ('paid')")
	run(t, routed, "CREATE TABLE ten_plans (name text PRIMARY KEY); INSERT INTO ten_plans VALUES ('free'), ('paid')",
		"SELECT create_reference_table('ten_plans')")
	const tenants = 6
	for i := range tenants {
		tables := fmt.Sprintf(`CREATE SCHEMA ten%[1]d;
			CREATE TABLE ten%[1]d.users (id bigserial PRIMARY KEY, email text UNIQUE, plan text REFERENCES ten_plans);
			CREATE TABLE ten%[1]d.posts (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, author bigint REFERENCES ten%[1]d.users, body text);
			INSERT INTO ten%[1]d.users (email, plan) SELECT 'u' || n, 'free' FROM generate_series(1, 20) n;
			INSERT INTO ten%[1]d.posts (author, body) SELECT 1 + n %% 20, 'post ' || n FROM generate_series(1, 100) n`, i)
		run(t, direct, tables)
		run(t, routed, tables, fmt.Sprintf("SELECT create_distributed_schema('ten%d')", i))
	}
	at := map[string]string{}
	for i := range tenants {
		name := fmt.Sprintf("ten%d", i)
		at[name] = schemaNode(t, name+".posts")
		if users := schemaNode(t, name+".users"); users != at[name] || strings.Contains(users, ",") {
			t.Errorf("%s: users on %s, posts on %s", name, users, at[name])
		}
	}
	if nodeCount(at) != 3 {
		t.Errorf("the schemas are on %v", at)
	}
	both := func(sql string) {
		t.Helper()
		want := ask(t, direct, sql)
		got := ask(t, routed, sql)
		if got != want {
			t.Errorf("%s\nanswered\n%s\nnot\n%s", sql, got, want)
		}
		if strings.HasPrefix(sql, "SELECT") {
			expect(t, other, want, sql)
		}
	}
	for i := range tenants {
		both(fmt.Sprintf("SELECT u.email, count(*) FROM ten%[1]d.users u JOIN ten%[1]d.posts p ON p.author = u.id JOIN ten_plans ON name = plan GROUP BY 1 ORDER BY 2, 1 LIMIT 3", i))
		for _, conn := range []*pgx.Conn{direct, routed} {
			run(t, conn, fmt.Sprintf("SET search_path = ten%d, public", i), "INSERT INTO users (email) VALUES ('new')", "UPDATE posts SET body = 'changed' WHERE author = 3",
				"DELETE FROM posts WHERE author = 4", "CREATE TABLE tags (post bigint REFERENCES posts, tag text)",
				"INSERT INTO tags SELECT id, 'x' FROM posts WHERE author = 5")
			if _, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("a\nb\n"), "COPY tags (tag) FROM STDIN"); err != nil {
				t.Fatal(describe(err))
			}
		}
		if node := schemaNode(t, fmt.Sprintf("ten%d.tags", i)); node != at[fmt.Sprintf("ten%d", i)] {
			t.Errorf("ten%d.tags is on %s", i, node)
		}
		expect(t, routed, ask(t, direct, "SELECT count(*) FROM tags"), "SELECT count(*) FROM tags")
		expect(t, routed, ask(t, direct, "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE body = 'changed') FROM posts"), "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE body = 'changed') FROM posts")
		run(t, direct, "RESET search_path")
		run(t, routed, "RESET search_path")
	}
	for _, conn := range []*pgx.Conn{direct, routed} {
		run(t, conn, "CREATE VIEW ten4.authors AS SELECT u.email, count(*) AS n FROM ten4.users u JOIN ten4.posts p ON p.author = u.id GROUP BY 1")
	}
	both("SELECT * FROM ten4.authors ORDER BY 1")
	both("INSERT INTO ten4.users (email) SELECT email || '@ten5' FROM ten5.users")
	both("SELECT count(*) FROM ten4.users")
	both("UPDATE ten4.posts p SET body = 'from ten5: ' || u.email FROM ten5.users u WHERE u.id = p.author AND u.email LIKE 'u1%'")
	both("DELETE FROM ten4.posts USING ten3.users u WHERE u.id = author AND u.email = 'u2'")
	both("DELETE FROM ten3.tags WHERE post IN (SELECT id FROM ten5.posts WHERE author = 5)")
	both("SELECT body, count(*) FROM ten4.posts GROUP BY 1 ORDER BY 2, body COLLATE \"C\" LIMIT 5")
	both("SELECT count(*) FROM ten3.tags")
	both("SELECT a.email FROM ten0.users a JOIN ten1.users b USING (email) JOIN ten2.users c USING (email) JOIN ten3.users USING (email) ORDER BY 1")
	both("SELECT count(*) FROM (SELECT id FROM ten0.posts UNION ALL SELECT id FROM ten1.posts UNION ALL SELECT id FROM ten5.posts) x")
	schemaChanges(t, direct, routed, other, both)
}

// schemaChanges are DDL around distributed schemas.
func schemaChanges(t *testing.T, direct, routed, other *pgx.Conn, both func(string)) {
	t.Helper()
	run(t, routed, "CREATE TABLE ten_local (id bigint PRIMARY KEY)")
	fails(t, routed, "0A000", "ALTER TABLE ten_local SET SCHEMA ten0")
	fails(t, routed, "0A000", "ALTER TABLE ten0.tags SET SCHEMA public")
	fails(t, routed, "0A000", "CREATE TABLE ten0.copied AS SELECT 1 AS a")
	fails(t, routed, "0A000", "SELECT 1 AS a INTO ten0.copied")
	fails(t, routed, "0A000", "CREATE TABLE ten0.bad (u bigint REFERENCES ten1.users)")
	fails(t, routed, "0A000", "CREATE TABLE ten0.bad (u bigint REFERENCES ten_local)")
	fails(t, routed, "0A000", "CREATE TABLE ten_bad (u bigint REFERENCES ten0.users)")
	fails(t, routed, "0A000", "CREATE TABLE ten0.bad (u serial PRIMARY KEY)")
	fails(t, routed, "42P01", "SELECT * FROM ten0.nothing")
	fails(t, routed, "55000", "SELECT undistribute_table('ten0.users')")
	fails(t, routed, "55000", "SELECT create_distributed_table('ten0.users', 'id')")
	fails(t, routed, "55000", "SELECT create_distributed_schema('ten0')")
	fails(t, routed, "3F000", "SELECT create_distributed_schema('no_such_schema')")
	if got := ask(t, routed, "SHOW shoal.tables"); !strings.Contains(got, "ten0|users|distributed|") || !strings.Contains(got, "|schema") {
		t.Errorf("SHOW shoal.tables:\n%s", got)
	}
	for _, conn := range []*pgx.Conn{direct, routed} {
		run(t, conn, "ALTER SCHEMA ten0 RENAME TO ten_zero", "INSERT INTO ten_zero.users (email) VALUES ('after')", "TRUNCATE ten_zero.tags",
			"BEGIN", "CREATE TABLE ten_zero.more (a int)", "INSERT INTO ten_zero.more VALUES (1)", "ROLLBACK",
			"BEGIN", "CREATE TABLE ten_zero.more (a int)", "INSERT INTO ten_zero.more VALUES (2)", "COMMIT")
	}
	both("SELECT count(*) FROM ten_zero.users")
	both("SELECT * FROM ten_zero.more")
	both("SELECT count(*) FROM ten_zero.tags")
	if a, b := schemaNode(t, "ten_zero.more"), schemaNode(t, "ten_zero.users"); a != b {
		t.Errorf("a table made later is on %s, the others on %s", a, b)
	}
	run(t, routed, "BEGIN", "SELECT undistribute_schema('ten_zero')", "ROLLBACK")
	both("SELECT count(*), sum(length(body)) FROM ten_zero.posts")
	run(t, routed, "SELECT citus_schema_undistribute('ten_zero')")
	if n := schemaNode(t, "ten_zero.posts"); n != "node1" {
		t.Errorf("after undistribute_schema the rows are on %s", n)
	}
	both("SELECT count(*), sum(length(body)) FROM ten_zero.posts")
	for _, conn := range []*pgx.Conn{direct, routed} {
		run(t, conn, "DROP SCHEMA ten1 CASCADE", "CREATE SCHEMA ten1", "CREATE TABLE ten1.users (id bigint)", "INSERT INTO ten1.users VALUES (1)")
	}
	both("SELECT * FROM ten1.users")
	if n := schemaNode(t, "ten1.users"); n != "node1" {
		t.Errorf("a schema of the same name as one that was dropped is on %s", n)
	}
	onNodes(t, shared(), "postgres", func(node string, conn *pgx.Conn) {
		expect(t, conn, "0", "SELECT count(*) FROM pg_shoal.schemas s WHERE NOT EXISTS (SELECT FROM pg_namespace n WHERE n.oid = s.nspid)")
	})
	expect(t, other, "1", "SELECT count(*) FROM ten1.users")
}
