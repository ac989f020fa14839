package integration

import (
	"testing"

	"github.com/pgshoal/pgshoal/shardtest"
)

// stateScripts are the Query messages of one session each, over a table whose rows are on all nodes: what the session has set must hold there.
var stateScripts = map[string][]string{
	"formats": {
		"SET TimeZone = 'Asia/Tokyo'; SET DateStyle = 'SQL, DMY'; SET IntervalStyle = 'iso_8601'; SET bytea_output = 'escape'; SET extra_float_digits = 0",
		"SELECT * FROM st_t WHERE id IN (1, 2, 3) ORDER BY id", "SELECT id, ts FROM st_t ORDER BY ts DESC, id LIMIT 3", "SELECT max(ts), min(d), max(f), max(iv) FROM st_t",
		"SELECT d, count(*) FROM st_t WHERE d < '05/02/2024' GROUP BY d ORDER BY d", "SELECT array_agg(ts::text ORDER BY id) FROM st_t WHERE id < 4",
		"SELECT ts::date, count(*) FROM st_t GROUP BY 1 ORDER BY 1 LIMIT 3", "SELECT string_agg(f::text, ' ' ORDER BY id) FROM st_t",
		"INSERT INTO st_t (id, ts, d) VALUES (1001, '01/02/2024 03:04', '01/02/2024'), (1002, '01/03/2024 03:04', '01/03/2024') RETURNING id, ts, d",
		"RESET ALL; SELECT id, ts, d FROM st_t WHERE id > 1000 ORDER BY id", "DELETE FROM st_t WHERE id > 1000",
	},
	"formats for a transaction": {
		"BEGIN", "SELECT count(*) FROM st_t", "SET LOCAL TimeZone = 'America/New_York'", "SELECT ts FROM st_t ORDER BY id LIMIT 2", "SAVEPOINT s", "SET LOCAL DateStyle = 'German'",
		"SELECT ts FROM st_t ORDER BY id LIMIT 2", "ROLLBACK TO s", "SELECT ts FROM st_t ORDER BY id LIMIT 2", "SELECT min(ts), max(ts) FROM st_t", "COMMIT", "SELECT ts FROM st_t ORDER BY id LIMIT 2",
	},
	"read only": {
		"BEGIN READ ONLY", "SELECT count(*) FROM st_t", "UPDATE st_t SET f = 0", "ROLLBACK", "SET default_transaction_read_only = on", "DELETE FROM st_t", "DELETE FROM st_t WHERE id = 3",
		"BEGIN READ WRITE; UPDATE st_t SET f = f WHERE id IN (1, 2, 3); COMMIT", "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE", "UPDATE st_t SET f = f WHERE id < 5",
		"BEGIN", "SET TRANSACTION READ ONLY", "UPDATE st_t SET f = f WHERE id < 5", "ROLLBACK", "BEGIN; SET transaction_read_only = on; DELETE FROM st_t WHERE id = 9", "ROLLBACK",
		"SELECT count(*) FROM st_t",
	},
	"isolation": {
		"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM st_t; SHOW transaction_isolation", "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE", "ROLLBACK",
		"SET default_transaction_isolation = 'serializable'; BEGIN; SELECT count(*) FROM st_t; SHOW transaction_isolation; COMMIT",
		"SELECT current_setting('transaction_isolation'), count(*) FROM st_t GROUP BY 1",
	},
	"roles and policies": {
		"SELECT count(*) FROM st_p", "SET ROLE st_a", "SELECT count(*) FROM st_p", "SELECT current_user, count(*) FROM st_p GROUP BY 1", "UPDATE st_p SET v = 1", "SELECT sum(v) FROM st_p",
		"RESET ROLE; SELECT sum(v) FROM st_p", "BEGIN; SET LOCAL ROLE st_b; SELECT count(*) FROM st_p; UPDATE st_p SET v = 2; COMMIT", "SELECT sum(v) FROM st_p",
		"SET SESSION AUTHORIZATION st_a; SELECT count(*), session_user FROM st_p; RESET SESSION AUTHORIZATION; SELECT count(*) FROM st_p", "SET row_security = off; SELECT count(*) FROM st_p",
		"SET ROLE st_a; SELECT count(*) FROM st_p", "SET row_security = on; SELECT count(*) FROM st_p", "INSERT INTO st_p VALUES (901, 'st_b', 1), (902, 'st_b', 1)",
		"RESET ROLE; UPDATE st_p SET v = 0",
	},
	"settings of one's own": {
		"SET my.x = 'a'; SELECT count(*) FROM st_t WHERE current_setting('my.x') = 'a'", "BEGIN; SET LOCAL my.x = 'b'; SELECT count(*) FROM st_t WHERE current_setting('my.x') = 'b'; COMMIT",
		"SELECT count(*) FROM st_t WHERE current_setting('my.x') = 'a'", "RESET my.x; SELECT count(*) FROM st_t WHERE current_setting('my.x') = ''",
		"SELECT set_config('my.y', '1', true); SELECT count(*) FROM st_t WHERE current_setting('my.y', true) = '1'", "SELECT count(*) FROM st_t WHERE current_setting('my.y', true) = '1'",
		"SELECT count(set_config('my.z', 'v', false)) FROM st_t", "SELECT count(*) FROM st_t WHERE current_setting('my.z', true) = 'v'",
		"SELECT set_config('my.w', id::text, false) FROM st_t WHERE id = 7", "SELECT count(*) FROM st_t WHERE current_setting('my.w', true) = '7'",
	},
	"timeouts": {
		"SET statement_timeout = '100ms'", "SELECT count(*) FROM st_t WHERE pg_sleep(1) IS NOT NULL", "SELECT pg_sleep(5) FROM st_t WHERE id = 3", "RESET statement_timeout",
		"BEGIN; SET LOCAL statement_timeout = '100ms'; UPDATE st_t SET f = f WHERE pg_sleep(1) IS NOT NULL", "SELECT 1", "ROLLBACK", "SELECT count(*) FROM st_t",
	},
	"temporary tables beside": {
		"CREATE TEMP TABLE st_x AS SELECT id, f FROM st_t", "SELECT count(*) FROM st_x JOIN st_t USING (id)", "SELECT count(*) FROM st_t WHERE id IN (SELECT id FROM st_x WHERE id < 10)",
		"UPDATE st_t SET f = st_t.f FROM st_x WHERE st_x.id = st_t.id AND st_x.id < 10", "INSERT INTO st_x SELECT id + 100, f FROM st_t", "SELECT count(*) FROM st_x",
		"DELETE FROM st_x USING st_t WHERE st_t.id = st_x.id", "SELECT count(*) FROM st_x", "BEGIN; UPDATE st_t SET f = f; INSERT INTO st_x VALUES (1, 1); COMMIT", "SELECT count(*) FROM st_x",
		"BEGIN; INSERT INTO st_x VALUES (1, 1); UPDATE st_t SET f = f WHERE id < 20; ROLLBACK", "SELECT count(*) FROM st_x", "CREATE TEMP VIEW st_v AS SELECT * FROM st_x; SELECT count(*) FROM st_v, st_t",
	},
	"cursors": {
		"BEGIN; DECLARE c CURSOR WITH HOLD FOR SELECT id FROM st_t ORDER BY id; FETCH 2 FROM c; COMMIT", "FETCH 2 FROM c", "DELETE FROM st_t WHERE id = 6; FETCH 2 FROM c; INSERT INTO st_t (id) VALUES (6)",
		"MOVE 10 IN c; FETCH c", "CLOSE c", "FETCH c", "BEGIN; DECLARE d SCROLL CURSOR FOR SELECT id FROM st_t ORDER BY id; FETCH LAST FROM d; FETCH FIRST FROM d; SAVEPOINT s; FETCH NEXT FROM d; ROLLBACK TO s; FETCH NEXT FROM d; COMMIT",
		"BEGIN; DECLARE e CURSOR FOR SELECT id FROM st_t ORDER BY id; UPDATE st_t SET f = 1 WHERE id = 1; FETCH ALL FROM e; ROLLBACK",
	},
	"constraints": {
		"BEGIN; SET CONSTRAINTS ALL DEFERRED; INSERT INTO st_c VALUES (1, 77); INSERT INTO st_c VALUES (2, 77); COMMIT", "SELECT count(*) FROM st_c",
		"BEGIN; INSERT INTO st_c VALUES (1, 1), (2, 2), (3, 3); UPDATE st_c SET u = 4 - u; SET CONSTRAINTS ALL IMMEDIATE; COMMIT", "SELECT * FROM st_c ORDER BY id", "DELETE FROM st_c",
	},
	"prepared": {
		"PREPARE p(int) AS SELECT count(*), max(ts) FROM st_t WHERE id > $1", "EXECUTE p(10)", "SET TimeZone = 'Asia/Tokyo'; EXECUTE p(10)", "BEGIN; SET LOCAL TimeZone = 'UTC'; EXECUTE p(10); ROLLBACK; EXECUTE p(10)",
		"DEALLOCATE p; EXECUTE p(1)", "PREPARE q AS UPDATE st_t SET f = f WHERE id = ANY($1::int[]) RETURNING id", "EXECUTE q('{3}')", "EXPLAIN (COSTS OFF) EXECUTE r", "DISCARD PLANS", "EXECUTE q('{4}')",
		"DISCARD ALL", "EXECUTE q('{4}')",
	},
}

// refusedStates are those that are refused at some point.
var refusedStates = map[string]bool{"settings of one's own": true}

// TestSessionStateHoldsOnAllNodes compares sessions over a distributed table with those of a plain PostgreSQL.
func TestSessionStateHoldsOnAllNodes(t *testing.T) {
	plain := shardtest.StartPostgres(t)
	setup := []string{
		"CREATE TABLE st_t (id int PRIMARY KEY, ts timestamptz, d date, f float8, b bytea, iv interval)", "CREATE TABLE st_p (id int PRIMARY KEY, owner text, v int)", "CREATE TABLE st_c (id int, u int, UNIQUE (id, u) DEFERRABLE)",
		"INSERT INTO st_t SELECT g, '2024-01-01 12:34:56.789+00'::timestamptz + g * interval '7 hours', '2024-01-01'::date + g, g / 7.0, ('\\x00ff' || lpad(to_hex(g), 4, '0'))::bytea, g * interval '90 minutes' FROM generate_series(1, 40) g",
		"CREATE ROLE st_a", "CREATE ROLE st_b", "GRANT ALL ON st_p, st_t TO st_a, st_b", "INSERT INTO st_p SELECT g, CASE WHEN g % 3 = 0 THEN 'st_a' ELSE 'st_b' END, 0 FROM generate_series(1, 60) g",
		"ALTER TABLE st_p ENABLE ROW LEVEL SECURITY", "CREATE POLICY st_own ON st_p USING (owner = current_user)",
	}
	run(t, connect(t, plain.DSN("", "")), setup...)
	run(t, client(t), append(setup, "SELECT create_distributed_table('st_t', 'id')", "SELECT create_distributed_table('st_p', 'id')", "SELECT create_distributed_table('st_c', 'id')")...)
	for name, script := range stateScripts {
		t.Run(name, func(t *testing.T) { sameOutcomes(t, plain.DSN("", ""), script, refusedStates[name]) })
	}
}
