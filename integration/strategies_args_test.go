package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

func TestStrategyArguments(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE SCHEMA stargs", "SET search_path = stargs", "SET timezone = 'UTC'",
		"CREATE TABLE t (region text, tenant bigint, at timestamptz, day date, v numeric, c text COLLATE \"C\", g int GENERATED ALWAYS AS (1) STORED, p point)",
		"INSERT INTO t SELECT 'de', i, now(), '2026-01-01'::date + i, i, 'x' FROM generate_series(1, 10) i",
		"CREATE TABLE other (tenant bigint, region text)", "CREATE TABLE ranged (day date, n int)",
		"SELECT create_distributed_table('ranged', 'day', strategy => 'range', split_at => ARRAY['2026-01-03', '2026-01-06'])")
	const regions = `regions => '{"eu": ["de"], "us": ["us"]}'`
	for _, tt := range []struct {
		name, args, code string
		says             []string
	}{
		{"unknown strategy", "'tenant', strategy => 'modulo'", "22023", []string{"modulo", "hash"}},
		{"directory of two", "'tenant, at', strategy => 'directory'", "22023", []string{"directory", "one column"}},
		{"directory in a sequence", "NULL, strategy => 'directory(tenant), hash(at)'", "22023", []string{"directory"}},
		{"assign_by luck", "'tenant', strategy => 'directory', assign_by => 'luck'", "22023", []string{"luck", "HINT: "}},
		{"schema", "'tenant', strategy => 'schema'", "22023", []string{"schema", "create_distributed_schema"}},
		{"no such column", "'tenant, nope'", "42703", []string{"nope"}},
		{"a column twice", "'tenant, TENANT'", "42701", []string{"twice"}},
		{"a generated column", "'tenant, g'", "0A000", []string{`"g"`, "generated"}},
		{"a type that cannot be a key", "'p', strategy => 'range'", "0A000", []string{"point"}},
		{"no columns", "NULL", "22023", []string{"columns"}},
		{"unknown argument", "'tenant', buckets => 3", "42883", []string{"buckets", "split_at"}},
		{"too many arguments", "'tenant', 'hash', 'none', 4, 'range'", "42883", []string{"5"}},
		{"hash_columns", "'tenant', hash_columns => 2", "22023", []string{"hash_columns"}},
		{"split_at of a hash", "'tenant', split_at => ARRAY[1]", "22023", []string{"split_at"}},
		{"not sorted", "'tenant', strategy => 'range', split_at => ARRAY[10, 9]", "22023", []string{"ascending", "9 follows 10"}},
		{"text is not sorted by its bytes", "'c', strategy => 'range', split_at => ARRAY['a', 'B']", "22023", []string{"ascending", `COLLATE "C"`}},
		{"twice", "'v', strategy => 'range', split_at => ARRAY[1.0, 1]", "22023", []string{"twice"}},
		{"of another type", "'tenant', strategy => 'range', split_at => ARRAY['x']", "22P02", []string{"bigint", "split_at"}},
		{"no date", "'day', strategy => 'range', split_at => ARRAY['2026-02-30']", "22008", []string{"2026-02-30"}},
		{"null", "'tenant', strategy => 'range', split_at => ARRAY[1, NULL]", "22004", []string{"null"}},
		{"too many columns", "'tenant', strategy => 'range', split_at => ARRAY[ARRAY[1, 2]]", "22023", []string{"2 values", "1 column"}},
		{"no array", "'tenant', strategy => 'range', split_at => 'x'", "22P02", []string{"array"}},
		{"shards of a range", "'tenant', strategy => 'range', shard_count => 4", "22023", []string{"shard_count", "split_at"}},
		{"list without regions", "'region', strategy => 'list'", "22023", []string{"regions"}},
		{"regions of a hash", "'region', " + regions, "22023", []string{"list"}},
		{"a region without nodes", `'region', strategy => 'list', regions => '{"eu": ["de"], "mars": ["m"]}'`, "22023", []string{"mars", "eu, us"}},
		{"a default region without nodes", `'region', strategy => 'list', regions => '{"eu": ["de"]}', default_region => 'mars'`, "22023", []string{"mars"}},
		{"a value in two regions", `'region', strategy => 'list', regions => '{"eu": ["de", "x"], "us": ["x"]}'`, "22023", []string{`"x"`, "eu", "us"}},
		{"equal values in two regions", `'v', strategy => 'list', regions => '{"eu": [1.0], "us": ["1"]}'`, "22023", []string{"eu", "us"}},
		{"a value of another type", `'tenant', strategy => 'list', regions => '{"eu": ["x"], "us": ["1"]}'`, "22P02", []string{"bigint"}},
		{"a region without values", `'region', strategy => 'list', regions => '{"eu": ["de"], "us": []}'`, "22023", []string{"us"}},
		{"no JSON", `'region', strategy => 'list', regions => 'eu'`, "22023", []string{"JSON"}},
		{"list is not first", `NULL, strategy => 'hash(tenant), list(region)', ` + regions, "22023", []string{"first"}},
		{"rows without a region", `'region', strategy => 'list', regions => '{"us": ["us"]}'`, "23514", []string{`"de"`, `"region"`}},
		{"other columns than the strategy's", "'region', strategy => 'hash(tenant)'", "22023", []string{"region", "tenant"}},
		{"assign_by", "'tenant', assign_by => 'rows'", "22023", []string{"directory"}},
		{"volatile", "'tenant', strategy => 'range', split_at => ARRAY[random()]", "0A000", []string{"HINT: "}},
		{"co-located with another strategy", "'day', strategy => 'hash', colocate_with => 'ranged'", "42804", []string{"range(day)"}},
		{"co-located with another type", "'tenant', colocate_with => 'ranged'", "42804", []string{"date"}},
		{"co-located with fewer columns", "'day, tenant', colocate_with => 'ranged'", "42804", []string{"date"}},
		{"co-located with shards of its own", "'day', colocate_with => 'ranged', split_at => ARRAY['2026-01-01']", "22023", []string{"split_at"}},
		{"co-located with a local table", "'tenant', colocate_with => 'other'", "55000", []string{"other"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fails(t, conn, tt.code, "SELECT create_distributed_table('t', "+tt.args+")", tt.says...)
			fails(t, conn, tt.code, "EXPLAIN SELECT create_distributed_table('t', "+tt.args+")", tt.says...)
		})
	}
	checkLocal(t, shared(), "stargs.t", 10)
	t.Run("null keys", func(t *testing.T) {
		run(t, conn, "CREATE TABLE nulls (a int, b int)", "INSERT INTO nulls VALUES (1, NULL)")
		fails(t, conn, "23502", "SELECT create_distributed_table('nulls', 'a, b')", `"b"`)
	})
	t.Run("only hashes are co-located by themselves", func(t *testing.T) {
		run(t, conn, "CREATE TABLE r1 (k bigint)", "CREATE TABLE r2 (k bigint)", "CREATE TABLE h1 (a int, b text)", "CREATE TABLE h2 (x bigint, y varchar)",
			"SELECT create_distributed_table('r1', 'k', strategy => 'range')", "SELECT create_distributed_table('r2', 'k', strategy => 'range')",
			"SELECT create_distributed_table('h1', 'a, b')", "SELECT create_distributed_table('h2', 'x, y')")
		expect(t, conn, "false|true", `SELECT r1.distribution = r2.distribution, h1.distribution = h2.distribution FROM pg_shoal.tables r1, pg_shoal.tables r2, pg_shoal.tables h1, pg_shoal.tables h2
			WHERE r1.relid = 'r1'::regclass AND r2.relid = 'r2'::regclass AND h1.relid = 'h1'::regclass AND h2.relid = 'h2'::regclass`)
	})
}

// Split points mean what they mean to PostgreSQL in this session.
func TestSplitPointsAreReadByPostgres(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE SCHEMA splits", "SET search_path = splits", "SET datestyle = 'SQL, DMY'", "SET timezone = 'Asia/Tokyo'")
	bounds := func(table string) string {
		var id string
		for line := range strings.SplitSeq(ask(t, conn, "SHOW shoal.tables"), "\n") {
			if f := strings.Split(line, "|"); f[0] == "splits" && f[1] == table {
				id = f[3]
			}
		}
		var lows []string
		for line := range strings.SplitSeq(ask(t, conn, "SHOW shoal.shards"), "\n") {
			if f := strings.Split(line, "|"); f[1] == id && f[2] != "" {
				lows = append(lows, f[2])
			}
		}
		return strings.Join(lows, "; ")
	}
	for i, tt := range []struct{ kind, splitAt, want string }{
		{"date", "ARRAY['02/01/2026', '01/02/2026']", "2026-01-02; 2026-02-01"},
		{"date", "ARRAY[DATE '02/01/2026', DATE '02/01/2026' + 7]", "2026-01-02; 2026-01-09"},
		{"date", "'{-infinity,2026-01-05,infinity}'", "2026-01-05; infinity"},
		{"timestamptz", "ARRAY['02/01/2026 09:00']", "2026-01-02 00:00:00+00"},
		{"timestamp(0)", "ARRAY['02/01/2026 09:00:00.25']", "2026-01-02 09:00:00.25"},
		{"numeric(10,2)", "ARRAY[-1.5, 0, 1e3, 'NaN'::numeric]", "-1.5; 0; 1000; NaN"},
		{"smallint", "ARRAY[-5, 70000]", "-5; 70000"},
		{"text", "ARRAY['B', 'a', 'it''s \\ \"']", `B; a; it's \ "`},
		{"char(5)", "ARRAY['a  ', 'bcd']", "a; bcd"},
		{"bytea", `ARRAY['\x00'::bytea, '\x00ff']`, `\x00; \x00ff`},
		{"uuid", "ARRAY['80000000-0000-0000-0000-000000000000']", "80000000-0000-0000-0000-000000000000"},
		{"boolean", "ARRAY[true]", "true"},
	} {
		t.Run(tt.kind+" "+tt.splitAt, func(t *testing.T) {
			table := fmt.Sprintf("s%d", i)
			run(t, conn, fmt.Sprintf("CREATE TABLE %s (k %s)", table, tt.kind),
				fmt.Sprintf("SELECT create_distributed_table('%s', 'k', strategy => 'range', split_at => %s)", table, tt.splitAt))
			if got := bounds(table); got != tt.want {
				t.Errorf("the bounds are %s, not %s", got, tt.want)
			}
		})
	}
	t.Run("parameters", func(t *testing.T) {
		run(t, conn, "CREATE TABLE sp (k date)")
		if _, err := conn.Exec(t.Context(), "SELECT create_distributed_table($1, $2, strategy => 'range', split_at => ARRAY[$3, $4])", "sp", "k", "03/01/2026", "04/01/2026"); err != nil {
			t.Fatal(describe(err))
		}
		if got := bounds("sp"); got != "2026-01-03; 2026-01-04" {
			t.Errorf("the bounds are %s", got)
		}
	})
}

func TestExplainDistribute(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE exdist (k int, v text)", "INSERT INTO exdist SELECT i FROM generate_series(1, 100) i")
	epoch := ask(t, conn, "SHOW shoal.epoch")
	const call = "SELECT create_distributed_table('exdist', 'k', strategy => 'range', split_at => ARRAY[41, 71])"
	text := ask(t, conn, "EXPLAIN "+call)
	for _, want := range []string{"Distribute public.exdist  (by range(k), shards: 3, rows: 100)", "In a new distribution", "rows: 40)", "rows: 30)", "Shard from 41 to 71", "Shard from the start to 41"} {
		if !strings.Contains(text, want) {
			t.Errorf("EXPLAIN does not say %q:\n%s", want, text)
		}
	}
	rows, err := conn.Query(t.Context(), "EXPLAIN (FORMAT JSON) "+call)
	if err != nil {
		t.Fatal(describe(err))
	}
	data, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]byte])
	if err != nil {
		t.Fatal(describe(err))
	}
	var plans []struct {
		Rows  int
		Nodes []struct{ Rows, Shards int }
	}
	if err := json.Unmarshal(data, &plans); err != nil || len(plans) != 1 || plans[0].Rows != 100 || len(plans[0].Nodes) != 3 {
		t.Errorf("as JSON: %s %v", data, err)
	}
	checkLocal(t, shared(), "exdist", 100)
	if now := ask(t, conn, "SHOW shoal.epoch"); now != epoch {
		t.Errorf("EXPLAIN changed the map: epoch %s, then %s", epoch, now)
	}
	run(t, conn, call)
	checkPoints(t, shared(), "public", "exdist", 100)
}

func TestKeysOfSeveralColumnsInConstraints(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE SCHEMA keycon", "SET search_path = keycon",
		"CREATE TABLE parent (a int, b int, PRIMARY KEY (a, b))", "SELECT create_distributed_table('parent', 'a, b', colocate_with => 'none')",
		"CREATE TABLE ref (a int PRIMARY KEY)", "SELECT create_reference_table('ref')")
	for i, tt := range []struct {
		name, table, says string // no message: it can hold
	}{
		{"unique with a part of the key", "(a int, b int, UNIQUE (a))", "key column b"},
		{"unique with none of it", "(a int, b int, c int UNIQUE)", "key column a, b"},
		{"unique with all of it", "(a int, b int, c int, UNIQUE (b, c, a))", ""},
		{"an expression is no column", "(a int, b int, EXCLUDE USING btree ((a + 0) WITH =, b WITH =))", "key column a"},
		{"foreign key in order", "(a int, b int, FOREIGN KEY (a, b) REFERENCES parent)", ""},
		{"foreign key crossed", "(a int, b int, FOREIGN KEY (b, a) REFERENCES parent)", "cannot be kept"},
		{"foreign key that empties the key", "(a int, b int, FOREIGN KEY (a, b) REFERENCES parent ON DELETE SET NULL)", "would change the key column"},
		{"foreign key that changes the key", "(a int REFERENCES ref ON UPDATE CASCADE, b int)", "would change the key column a"},
		{"foreign key off the key may", "(a int, b int, c int REFERENCES ref ON UPDATE CASCADE ON DELETE SET NULL)", ""},
		{"foreign key that leaves the key alone", "(a int, b int, c int, FOREIGN KEY (a, b) REFERENCES parent ON DELETE CASCADE)", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sql := fmt.Sprintf("BEGIN; CREATE TABLE c%d %s; SELECT create_distributed_table('c%d', 'a, b', colocate_with => 'parent'); COMMIT", i, tt.table, i)
			_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
			if tt.says == "" {
				if err != nil {
					t.Error(describe(err))
				}
				return
			}
			refused(t, err, "0A000", tt.says, "HINT: ")
			run(t, conn, "ROLLBACK")
		})
	}
	run(t, conn, "CREATE TABLE later (a int, b int, c int)", "SELECT create_distributed_table('later', 'a, b')")
	fails(t, conn, "0A000", "ALTER TABLE later ADD PRIMARY KEY (a, c)", "key column b")
	fails(t, conn, "0A000", "ALTER TABLE later DROP COLUMN b", "key column")
	run(t, conn, "ALTER TABLE later ADD PRIMARY KEY (c, b, a)", "ALTER TABLE later RENAME b TO bb")
	expect(t, conn, "", "SELECT * FROM later WHERE a = 1 AND bb = 2")
}

// Rows that no region takes, and rows without a whole key, are refused as PostgreSQL refuses what a check forbids.
func TestRowsWithoutAPlace(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE SCHEMA homeless", "SET search_path = homeless", "CREATE TABLE t (country text, id bigint, v text, PRIMARY KEY (country, id))",
		`SELECT create_distributed_table('t', 'country, id', strategy => 'list', regions => '{"eu": ["de", "fr"], "us": ["us"]}')`,
		"INSERT INTO t VALUES ('de', 1), ('de', 1 + 0)  ON CONFLICT DO NOTHING")
	fails(t, conn, "23514", "INSERT INTO t VALUES ('xx', 1)", `"xx"`, `"country"`)
	fails(t, conn, "23502", "INSERT INTO t VALUES (NULL, 1)", `"country"`)
	expect(t, conn, "0", "SELECT count(*) FROM t WHERE country = 'xx'")
	for _, tt := range []struct{ data, code, says string }{
		{"de\t5\ta\nus\t6\tb\nxx\t7\tc\n", "23514", `"xx"`},
		{"de\t5\ta\nxx\t7\tc\nus\t6\tb\n", "23514", "line 2"},
		{"de\t5\ta\nus\t\\N\tb\n", "23502", `"id"`},
		{"de\t5\ta\n\\N\t4\tb\n", "23502", `"country"`},
		{"de\t5\ta\nus\tx\tb\n", "22P02", "line 2"},
	} {
		_, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(tt.data), "COPY t FROM STDIN")
		refused(t, err, tt.code, tt.says)
		checkPoints(t, shared(), "homeless", "t", 1)
	}
	tag, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader("a\t5\tde\nb\t6\tus\nc\t7\tfr\n"), "COPY t (v, id, country) FROM STDIN")
	if err != nil || tag.RowsAffected() != 3 {
		t.Errorf("COPY: %v %v", tag, err)
	}
	counts := checkPoints(t, shared(), "homeless", "t", 4)
	if counts["node2"] != 1 || counts["node1"]+counts["node3"] != 3 { // us, eu
		t.Errorf("rows are not in their regions: %v", counts)
	}
	if got := ask(t, conn, "SHOW shoal.regions"); !strings.Contains(got, "|eu|de, fr|false|node1, node3") || !strings.Contains(got, "|us|us|false|node2") {
		t.Errorf("SHOW shoal.regions:\n%s", got)
	}
}

// COPY in the extended protocol, as drivers without a COPY of their own send it.
func TestCopyExtendedProtocol(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE copyext (k int, at date, PRIMARY KEY (k, at))", "SELECT create_distributed_table('copyext', 'k, at', hash_columns => 1)",
		"CREATE TABLE copyext_ref (k int)", "SELECT create_reference_table('copyext_ref')")
	f := conn.PgConn().Frontend()
	// load returns the answers by their types; libpq sends the first Sync before it knows of the COPY.
	load := func(sql string, end ...pgproto3.FrontendMessage) (tag, code string, ready int) {
		t.Helper()
		f.Send(&pgproto3.Parse{Query: sql})
		f.Send(&pgproto3.Bind{})
		f.Send(&pgproto3.Describe{ObjectType: 'P'})
		f.Send(&pgproto3.Execute{})
		f.Send(&pgproto3.Sync{})
		if err := f.Flush(); err != nil {
			t.Fatal(err)
		}
		for {
			msg, err := f.Receive()
			if err != nil {
				t.Fatal(err)
			}
			switch m := msg.(type) {
			case *pgproto3.CopyInResponse:
				for _, e := range end {
					f.Send(e)
				}
				f.Send(&pgproto3.Sync{})
				if err := f.Flush(); err != nil {
					t.Fatal(err)
				}
			case *pgproto3.CommandComplete:
				tag = string(m.CommandTag)
			case *pgproto3.ErrorResponse:
				code = m.Code
			case *pgproto3.ReadyForQuery:
				return tag, code, int(m.TxStatus)
			}
		}
	}
	data := func(s string) pgproto3.FrontendMessage { return &pgproto3.CopyData{Data: []byte(s)} }
	if tag, code, _ := load("COPY copyext FROM STDIN", data("1\t2026-01-01\n2\t2026-"), data("01-02\n3\t2026-01-03\n"), &pgproto3.CopyDone{}); tag != "COPY 3" || code != "" {
		t.Errorf("COPY: %q %q", tag, code)
	}
	checkPoints(t, shared(), "public", "copyext", 3)
	if tag, code, ready := load("COPY copyext FROM STDIN", data("4\t2026-01-01\nx\t2026-01-01\n"), &pgproto3.CopyDone{}); tag != "" || code != "22P02" || ready != 'I' {
		t.Errorf("COPY of bad data: %q %q %c", tag, code, ready)
	}
	if tag, code, _ := load("COPY copyext FROM STDIN", data("4\t2026-01-01\n"), &pgproto3.CopyFail{Message: "no more"}); tag != "" || code != "57014" {
		t.Errorf("COPY that the client fails: %q %q", tag, code)
	}
	checkPoints(t, shared(), "public", "copyext", 3)
	if tag, code, _ := load("COPY copyext_ref FROM STDIN", data("1\n2\n"), &pgproto3.CopyDone{}); tag != "COPY 2" || code != "" {
		t.Errorf("COPY into a reference table: %q %q", tag, code)
	}
	checkReference(t, shared(), "copyext_ref", 2)
	if tag, code, _ := load("COPY copyext FROM STDIN", &pgproto3.CopyDone{}); tag != "COPY 0" || code != "" {
		t.Errorf("COPY of nothing: %q %q", tag, code)
	}
	expect(t, conn, "3", "SELECT k FROM copyext WHERE k = 3 AND at = '2026-01-03'")
}
