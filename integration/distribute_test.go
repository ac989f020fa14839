package integration

import (
	"fmt"
	"strings"
	"testing"
)

func TestDistributeEmptyTable(t *testing.T) {
	conn := client(t)
	run(t, conn,
		"CREATE TABLE dist_empty (id bigint PRIMARY KEY, note text)",
		"SELECT create_distributed_table('dist_empty', 'id')")
	for i := range 200 {
		if _, err := conn.Exec(t.Context(), "INSERT INTO dist_empty VALUES ($1, $2)", i, fmt.Sprint("note ", i)); err != nil {
			t.Fatal(describe(err))
		}
	}
	counts := checkPlaced(t, shared(), "dist_empty", "id", 200)
	for node, n := range counts {
		if n < 20 {
			t.Errorf("%s has only %d of 200 rows", node, n)
		}
	}
	for i := range 200 {
		expect(t, conn, fmt.Sprintf("%d|note %d", i, i), "SELECT * FROM dist_empty WHERE id = $1", i)
	}
	expect(t, conn, "", "SELECT * FROM dist_empty WHERE id = $1", 777)
}

func TestDistributeTableWithRows(t *testing.T) {
	conn := client(t)
	run(t, conn,
		"CREATE TABLE dist_rows (id int PRIMARY KEY, big text, gen int GENERATED ALWAYS AS (id * 2) STORED, gone text)",
		"ALTER TABLE dist_rows DROP COLUMN gone",
		"INSERT INTO dist_rows SELECT i, repeat(i::text, 10) FROM generate_series(1, 5000) i",
		"SELECT create_distributed_table('dist_rows', 'id')")
	checkPlaced(t, shared(), "dist_rows", "id", 5000)
	expect(t, conn, "4321|4321432143214321432143214321432143214321|8642", "SELECT * FROM dist_rows WHERE id = 4321")

	// Back: all rows are at home again, and nothing is lost.
	run(t, conn, "SELECT undistribute_table('dist_rows')")
	checkLocal(t, shared(), "dist_rows", 5000)
	expect(t, conn, "5000|25005000", "SELECT count(*), sum(gen) FROM dist_rows")
	// And forth again, by another column, after it was made part of the key.
	run(t, conn,
		"ALTER TABLE dist_rows DROP CONSTRAINT dist_rows_pkey",
		"SELECT create_distributed_table('dist_rows', 'big')")
	checkPlaced(t, shared(), "dist_rows", "big", 5000)
}

func TestDistributeArguments(t *testing.T) {
	conn := client(t)
	run(t, conn,
		"CREATE TABLE arg_a (id bigint PRIMARY KEY)", "CREATE TABLE arg_b (a_id int, x int)",
		"CREATE TABLE arg_c (k text)", "CREATE TABLE arg_d (k bigint)",
		"SELECT create_distributed_table(table_name => 'arg_a', distribution_column => 'id', colocate_with => 'none', shard_count => 7)",
		"SELECT create_distributed_table('public.arg_b', 'a_id', colocate_with => 'arg_a')")
	expect(t, conn, "true|7", `SELECT a.distribution = b.distribution, 7 FROM pg_shoal.tables a, pg_shoal.tables b
		WHERE a.relid = 'arg_a'::regclass AND b.relid = 'arg_b'::regclass`)
	d := shared().Map()
	found := 0
	for _, dist := range d.Distributions {
		if len(dist.Shards) == 7 {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%d distributions have 7 shards, not one", found)
	}
	// With parameters, as drivers send it.
	if _, err := conn.Exec(t.Context(), "SELECT create_distributed_table($1, $2)", "arg_d", "k"); err != nil {
		t.Error(describe(err))
	}
	fails(t, conn, "42804", "SELECT create_distributed_table('arg_c', 'k', colocate_with => 'arg_a')", "type")
	fails(t, conn, "42703", "SELECT create_distributed_table('arg_c', 'nope')", "nope")
	fails(t, conn, "42P01", "SELECT create_distributed_table('arg_none', 'k')", "arg_none")
	fails(t, conn, "55000", "SELECT create_distributed_table('arg_a', 'id')", "already", "undistribute_table")
	fails(t, conn, "22023", "SELECT create_distributed_table('arg_c', 'k', shard_count => 0)", "shards")
	fails(t, conn, "55000", "SELECT undistribute_table('arg_c')", "not distributed")
	fails(t, conn, "42809", "SELECT create_distributed_table('pg_class', 'relname')")
}

func TestConstraintsThatCannotHold(t *testing.T) {
	conn := client(t)
	run(t, conn,
		"CREATE TABLE con_local (id bigint PRIMARY KEY)",
		"CREATE TABLE con_parent (id bigint PRIMARY KEY)",
		"SELECT create_distributed_table('con_parent', 'id')",
		"CREATE TABLE con_countries (code text PRIMARY KEY)",
		"SELECT create_reference_table('con_countries')",
	)
	tests := []struct {
		name, table, key, code string
		says                   []string
	}{
		{"primary key without the key", "(id bigint PRIMARY KEY, c int)", "c", "0A000", []string{"HINT: ", "c"}},
		{"unique without the key", "(id bigint, c int, u text UNIQUE)", "c", "0A000", []string{"u", "unique"}},
		{"foreign key to a local table", "(id bigint REFERENCES con_local)", "id", "0A000", []string{"con_local"}},
		{"foreign key off the key", "(id bigint, p bigint REFERENCES con_parent)", "id", "0A000", []string{"con_parent"}},
		{"exclusion without the key", "(id bigint, r int4range, EXCLUDE USING gist (r WITH &&))", "id", "0A000", nil},
		{"a type that cannot be a key", "(id point)", "id", "0A000", []string{"point"}},
		{"a small sequence", "(id bigint, n serial)", "id", "0A000", []string{"n", "bigint"}},
		{"a nondeterministic key", `(id text COLLATE con_ci)`, "id", "0A000", []string{"collation"}},
	}
	run(t, conn, "CREATE COLLATION con_ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			name := fmt.Sprintf("con_%d", i)
			// In one transaction, because some of these tables cannot even stay local.
			sql := fmt.Sprintf("BEGIN; CREATE TABLE %s %s; SELECT create_distributed_table('%s', '%s'); COMMIT", name, tt.table, name, tt.key)
			_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
			refused(t, err, tt.code, tt.says...)
			if err != nil && strings.HasSuffix(describe(err), "HINT: ") {
				t.Errorf("no way out in the hint: %s", describe(err))
			}
			run(t, conn, "ROLLBACK")
			sameOnNodes(t, shared(), "0", "SELECT count(*) FROM pg_class WHERE relname = '"+name+"'")
		})
	}
	t.Run("a foreign key to a local table from a reference table", func(t *testing.T) {
		run(t, conn, "CREATE TABLE con_ref (id bigint REFERENCES con_local)")
		fails(t, conn, "0A000", "SELECT create_reference_table('con_ref')", "con_local")
	})
	t.Run("a foreign key from a reference table to a distributed one", func(t *testing.T) {
		_, err := conn.PgConn().Exec(t.Context(), `BEGIN; CREATE TABLE con_ref2 (id bigint REFERENCES con_parent);
			SELECT create_reference_table('con_ref2'); COMMIT`).ReadAll()
		refused(t, err, "0A000", "con_parent")
		run(t, conn, "ROLLBACK")
	})
	t.Run("a referenced table cannot be distributed away", func(t *testing.T) {
		run(t, conn, "CREATE TABLE con_base (id bigint PRIMARY KEY)", "CREATE TABLE con_child (b bigint REFERENCES con_base)")
		fails(t, conn, "0A000", "SELECT create_distributed_table('con_base', 'id')", "con_child")
	})
	t.Run("constraints added later", func(t *testing.T) {
		run(t, conn, "CREATE TABLE con_later (id bigint, c int, u text)", "SELECT create_distributed_table('con_later', 'c')")
		fails(t, conn, "0A000", "ALTER TABLE con_later ADD PRIMARY KEY (id)")
		fails(t, conn, "0A000", "CREATE UNIQUE INDEX ON con_later (u)")
		fails(t, conn, "0A000", "ALTER TABLE con_later ADD FOREIGN KEY (id) REFERENCES con_local")
		fails(t, conn, "0A000", "ALTER TABLE con_later DROP COLUMN c")
		run(t, conn, "ALTER TABLE con_later ADD PRIMARY KEY (id, c)", "CREATE UNIQUE INDEX ON con_later (u, c)")
	})
	t.Run("what can hold", func(t *testing.T) {
		run(t, conn,
			"BEGIN",
			"CREATE TABLE con_good (id bigint REFERENCES con_parent ON DELETE CASCADE, n bigserial, country text REFERENCES con_countries, PRIMARY KEY (id, n))",
			"SELECT create_distributed_table('con_good', 'id')",
			"COMMIT",
			"INSERT INTO con_countries VALUES ('de')", "INSERT INTO con_parent VALUES (5)",
			"INSERT INTO con_good VALUES (5, 1, 'de')")
		fails(t, conn, "23503", "INSERT INTO con_good VALUES (6, 1, 'de')", "con_parent")
		fails(t, conn, "23503", "INSERT INTO con_good VALUES (5, 2, 'xx')", "con_countries")
		run(t, conn, "DELETE FROM con_parent WHERE id = 5")
		checkPlaced(t, shared(), "con_good", "id", 0)
	})
}

func TestDistributeRelatedTablesInOneTransaction(t *testing.T) {
	conn := client(t)
	run(t, conn,
		"CREATE TABLE rel_customers (id bigint PRIMARY KEY, name text)",
		"CREATE TABLE rel_orders (customer_id bigint REFERENCES rel_customers, id bigint, PRIMARY KEY (customer_id, id))",
		"CREATE TABLE rel_lines (customer_id bigint, order_id bigint, n int, FOREIGN KEY (customer_id, order_id) REFERENCES rel_orders)",
		"INSERT INTO rel_customers SELECT i, 'c' || i FROM generate_series(1, 300) i",
		"INSERT INTO rel_orders SELECT i, i * 10 FROM generate_series(1, 300) i",
		"INSERT INTO rel_lines SELECT i, i * 10, n FROM generate_series(1, 300) i, generate_series(1, 3) n",
	)
	t.Run("rolled back", func(t *testing.T) {
		run(t, conn, "BEGIN", "SELECT create_distributed_table('rel_customers', 'id')", "SELECT create_distributed_table('rel_orders', 'customer_id')",
			"SELECT create_distributed_table('rel_lines', 'customer_id')", "ROLLBACK")
		checkLocal(t, shared(), "rel_customers", 300)
		checkLocal(t, shared(), "rel_lines", 900)
	})
	t.Run("committed", func(t *testing.T) {
		run(t, conn, "BEGIN", "SELECT create_distributed_table('rel_customers', 'id')", "SELECT create_distributed_table('rel_orders', 'customer_id')",
			"SELECT create_distributed_table('rel_lines', 'customer_id')", "COMMIT")
		checkPlaced(t, shared(), "rel_customers", "id", 300)
		checkPlaced(t, shared(), "rel_orders", "customer_id", 300)
		checkPlaced(t, shared(), "rel_lines", "customer_id", 900)
		expect(t, conn, "c77|3", `SELECT c.name, count(*) FROM rel_customers c JOIN rel_orders o ON o.customer_id = c.id
			JOIN rel_lines l ON l.customer_id = o.customer_id AND l.order_id = o.id WHERE c.id = 77 GROUP BY 1`)
	})
	t.Run("half of it is refused at commit", func(t *testing.T) {
		run(t, conn, "CREATE TABLE rel_a (id bigint PRIMARY KEY)", "CREATE TABLE rel_b (id bigint REFERENCES rel_a)", "BEGIN")
		_, err := conn.Exec(t.Context(), "SELECT create_distributed_table('rel_a', 'id')")
		if err == nil {
			_, err = conn.Exec(t.Context(), "COMMIT")
		}
		refused(t, err, "0A000", "rel_b")
		run(t, conn, "ROLLBACK")
		checkLocal(t, shared(), "rel_a", 0)
	})
}

func TestReferenceTables(t *testing.T) {
	conn := client(t)
	run(t, conn,
		"CREATE TABLE ref_t (id int PRIMARY KEY, name text, at timestamptz DEFAULT clock_timestamp(), r float8 DEFAULT random(), n bigserial)",
		"INSERT INTO ref_t (id, name) SELECT i, 'n' || i FROM generate_series(1, 50) i",
		"SELECT create_reference_table('ref_t')")
	checkReference(t, shared(), "ref_t", 50)
	run(t, conn, "UPDATE ref_t SET name = upper(name) WHERE id < 10", "DELETE FROM ref_t WHERE id > 40")
	checkReference(t, shared(), "ref_t", 40)
	// Defaults that differ from node to node are either evaluated once or refused, never different.
	if _, err := conn.Exec(t.Context(), "INSERT INTO ref_t (id, name) VALUES (60, 'sixty'), (61, 'sixty-one')"); err != nil {
		refused(t, err, "0A000")
		run(t, conn, "INSERT INTO ref_t VALUES (60, 'sixty', now(), 0.5, 1000), (61, 'sixty-one', now(), 0.5, 1001)")
	}
	checkReference(t, shared(), "ref_t", 42)
	if _, err := conn.Exec(t.Context(), "UPDATE ref_t SET r = random()"); err != nil {
		refused(t, err, "0A000", "HINT: ")
	}
	checkReference(t, shared(), "ref_t", 42)
	run(t, conn, "BEGIN", "INSERT INTO ref_t VALUES (70, 'x', now(), 0, 70)", "SAVEPOINT a", "INSERT INTO ref_t VALUES (71, 'x', now(), 0, 71)",
		"ROLLBACK TO a", "COMMIT")
	checkReference(t, shared(), "ref_t", 43)
	fails(t, conn, "23505", "INSERT INTO ref_t VALUES (70, 'x', now(), 0, 70)", "ref_t_pkey")
	checkReference(t, shared(), "ref_t", 43)
	expect(t, conn, "sixty", "UPDATE ref_t SET id = 600 WHERE id = 60 RETURNING name")
	tag, err := conn.Exec(t.Context(), "UPDATE ref_t SET name = 'y' WHERE id > 0")
	if err != nil || tag.RowsAffected() != 43 {
		t.Errorf("UPDATE of a reference table counted %d, error %v", tag.RowsAffected(), err)
	}
	run(t, conn, "SELECT undistribute_table('ref_t')")
	checkLocal(t, shared(), "ref_t", 43)
}

func TestShowViews(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE show_t (k uuid)", "CREATE TABLE show_r (k int)", "CREATE TABLE show_l (k int)",
		"SELECT create_distributed_table('show_t', 'k')", "SELECT create_reference_table('show_r')")
	if got := ask(t, conn, "SHOW shoal.nodes"); strings.Count(got, "\n") != 2 || !strings.Contains(got, "node1|0|active|true") {
		t.Errorf("SHOW shoal.nodes:\n%s", got)
	}
	tables := ask(t, conn, "SHOW shoal.tables")
	for _, want := range []string{"public|show_t|distributed|", "public|show_r|reference|", "public|show_l|local|"} {
		if !strings.Contains(tables, want) {
			t.Errorf("SHOW shoal.tables has no %q:\n%s", want, tables)
		}
	}
	if got, want := ask(t, conn, "SHOW shoal.epoch"), fmt.Sprint(shared().Map().Epoch); got != want {
		t.Errorf("SHOW shoal.epoch: %s, the map has %s", got, want)
	}
	shards := 0
	for _, d := range shared().Map().Distributions {
		if d.Database == conn.Config().Database { // the view shows those of its own database
			shards += len(d.Shards)
		}
	}
	if got := strings.Count(ask(t, conn, "SHOW shoal.shards"), "\n") + 1; got != shards {
		t.Errorf("SHOW shoal.shards has %d lines, the map %d shards", got, shards)
	}
	fails(t, conn, "42704", "SHOW shoal.nothing", "shoal.nodes")
}
