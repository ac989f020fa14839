package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// keyedTables are two co-located tables, one that is not, a reference and a local table; a key's node is found out by where().
func keyedTables(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	run(t, conn, `
CREATE TABLE customers (id bigint PRIMARY KEY, name text);
CREATE TABLE orders (customer bigint, id bigint, total numeric NOT NULL, PRIMARY KEY (customer, id));
CREATE TABLE apart (id bigint PRIMARY KEY);
CREATE TABLE rates (code text PRIMARY KEY, rate numeric);
CREATE TABLE log (n bigint)`,
		"SELECT create_distributed_table('customers', 'id')",
		"SELECT create_distributed_table('orders', 'customer', colocate_with => 'customers')",
		"SELECT create_distributed_table('apart', 'id', colocate_with => 'none')",
		"SELECT create_reference_table('rates')",
		"INSERT INTO rates VALUES ('x', 2)",
		"INSERT INTO customers SELECT g, 'c' || g FROM generate_series(1, 60) g",
		"INSERT INTO orders SELECT g % 60 + 1, g, g FROM generate_series(1, 600) g")
	run(t, conn, `
CREATE FUNCTION total(customer_id bigint, code text DEFAULT 'x') RETURNS numeric LANGUAGE sql STABLE AS
	'SELECT sum(total) * (SELECT rate FROM rates WHERE rates.code = total.code) FROM orders WHERE customer = customer_id';
CREATE FUNCTION list(bigint) RETURNS SETOF orders LANGUAGE sql STABLE AS 'SELECT * FROM orders WHERE customer = $1';
CREATE FUNCTION whose(text, bigint) RETURNS text LANGUAGE plpgsql AS
	$$ DECLARE n text; BEGIN EXECUTE format('SELECT name || %L FROM customers WHERE id = %s', $1, $2) INTO n; RETURN n; END $$;
CREATE PROCEDURE buy(customer_id bigint, INOUT order_id bigint, amount numeric) LANGUAGE plpgsql AS
	$$ BEGIN INSERT INTO customers VALUES (customer_id, 'new') ON CONFLICT DO NOTHING; INSERT INTO orders VALUES (customer_id, order_id, amount); END $$;
CREATE FUNCTION count_of(int) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders WHERE customer = $1';
CREATE FUNCTION uses_apart(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM apart WHERE id = $1';
CREATE FUNCTION uses_log(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM log WHERE n = $1';
CREATE FUNCTION writes_rates(bigint) RETURNS void LANGUAGE sql AS 'UPDATE rates SET rate = $1';
CREATE FUNCTION twice(bigint) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders WHERE customer = $1';
CREATE FUNCTION twice(int) RETURNS bigint LANGUAGE sql AS 'SELECT count(*) FROM orders WHERE customer = $1'`)
}

// A call of a function with a key runs on the node of the key.
func TestKeyedFunctions(t *testing.T) {
	t.Parallel()
	conn := hiddenDatabase(t, "keyed_functions")
	keyedTables(t, conn)
	fails(t, conn, "0A000", "SELECT total(5)", "create_distributed_function()")
	fails(t, conn, "22023", "SELECT create_distributed_function('total(bigint, text)', '$1')", "colocate_with")
	for _, f := range []string{"'total(bigint, text)', 'customer_id'", "'list', '$1'", "'whose(text, bigint)', '$2'", "'buy', 'customer_id'", "'count_of', '$1'", "'uses_apart', '$1'", "'uses_log', '$1'", "'writes_rates', '$1'"} {
		run(t, conn, fmt.Sprintf("SELECT create_distributed_function(%s, colocate_with => 'orders')", f))
	}
	listed := ask(t, conn, "SHOW shoal.functions")
	for _, line := range []string{"public|total|int8, text|customer_id|", "public|list|int8|$1|", "public|whose|text, int8|$2|", "public|buy|int8, int8, numeric|customer_id|"} {
		if !strings.Contains(listed, line) {
			t.Errorf("SHOW shoal.functions has no %s:\n%s", line, listed)
		}
	}
	for k := int64(1); k <= 60; k++ {
		want := ask(t, conn, fmt.Sprintf("SELECT (2 * sum(total))::text FROM orders WHERE customer = %d", k))
		expect(t, conn, want, fmt.Sprintf("SELECT total(%d)::text", k))
		expect(t, conn, want, "SELECT total($1)::text", k)
		expect(t, conn, want, "SELECT (total(code => 'x', customer_id => $1))::text", k)
		expect(t, conn, "10", "SELECT count(*) FROM list($1)", k)
		expect(t, conn, "10|10", fmt.Sprintf("SELECT count_of($1), count_of('%d')", k), int32(k))
		expect(t, conn, fmt.Sprintf("c%d!", k), "SELECT whose('!', $1)", k)
		expect(t, conn, fmt.Sprintf("c%d|%s", k, want), "SELECT name, total($1)::text FROM customers WHERE id = $1", k)
	}
	for k := int64(101); k <= 120; k++ {
		expect(t, conn, fmt.Sprint(k+1000), "CALL buy($1, $2, 7)", k, k+1000)
	}
	run(t, conn, "BEGIN", "CALL buy(201, 1, 1)", "CALL buy(202, 1, 1)", "CALL buy(203, 1, 1)", "ROLLBACK")
	run(t, conn, "BEGIN", "CALL buy(301, 1, 1)", "CALL buy(302, 1, 1)", "CALL buy(303, 1, 1)", "COMMIT")
	expect(t, conn, "83|83|623", "SELECT (SELECT count(*) FROM customers), (SELECT count(DISTINCT customer) FROM orders), (SELECT count(*) FROM orders)")
	expect(t, conn, "new|14", "SELECT name, total(107)::text FROM customers WHERE id = 107")
	run(t, conn, "PREPARE k (bigint) AS SELECT total($1)::text")
	expect(t, conn, "14", "EXECUTE k(108)")
	run(t, conn, "CREATE VIEW seven AS SELECT total(7)::text AS t", "BEGIN", "DECLARE c CURSOR FOR SELECT total(109)::text")
	expect(t, conn, "14", "FETCH c")
	run(t, conn, "COMMIT")
	expect(t, conn, ask(t, conn, "SELECT total(7)::text"), "SELECT t FROM seven")
}

// What does not lead a call to one node is refused, and so is a function that its key's node cannot run.
func TestKeyedFunctionsThatAreRefused(t *testing.T) {
	t.Parallel()
	conn := hiddenDatabase(t, "keyed_refused")
	keyedTables(t, conn)
	for _, f := range []string{"total(bigint, text)", "buy", "uses_apart", "uses_log", "writes_rates", "twice(bigint)"} {
		run(t, conn, fmt.Sprintf("SELECT create_distributed_function('%s', '$1', colocate_with => 'orders')", f))
	}
	for sql, says := range map[string]string{
		"SELECT total(2 + 3)":                                           "not given as a value",
		"SELECT total(id) FROM customers":                               "not given as a value",
		"SELECT total(5), count(*) FROM customers":                      "over several nodes",
		"SELECT total(5) FROM log":                                      "local or temporary tables",
		"INSERT INTO log SELECT total(5)":                               "local or temporary tables",
		"INSERT INTO rates SELECT 'y', total(5)":                        "reference table",
		"INSERT INTO customers VALUES (total(5)::bigint, 'x')":          "computed beforehand",
		"CREATE TABLE made AS SELECT total(5)":                          "does not run on its node",
		"UPDATE orders SET total = total(5)":                            "over several nodes",
		"SELECT total(1), total(2), total(3), total(4), total(5)":       "",
		"SELECT uses_apart(5)":                                          "not co-located",
		"SELECT uses_log(5)":                                            "local table",
		"SELECT writes_rates(5)":                                        "reference table",
		"SELECT twice(5)":                                               "create_distributed_function",
		"DO $$ BEGIN CALL buy(1, 2, 3); END $$":                         "the DO block",
		"ALTER TABLE log ADD COLUMN t numeric DEFAULT total(5)":         "does not run on its node",
		"CREATE MATERIALIZED VIEW made AS SELECT total(5)":              "",
		"WITH w AS (SELECT total(5) AS t) SELECT t FROM w, customers":   "over several nodes",
		"SELECT (SELECT total(5)) FROM orders ORDER BY total DESC":      "over several nodes",
		"SELECT total(5) FROM orders WHERE customer IN (1, 2, 3, 4, 9)": "",
	} {
		fails(t, conn, "0A000", sql, says, "HINT: ")
	}
	expect(t, conn, "60|600", "SELECT (SELECT count(*) FROM customers), (SELECT count(*) FROM orders)")
	fails(t, conn, "23502", "SELECT total(NULL)")
}

// The key of a function is a fact about the function: it follows renames and ends with it.
func TestKeyedFunctionsAndDDL(t *testing.T) {
	t.Parallel()
	conn := hiddenDatabase(t, "keyed_ddl")
	keyedTables(t, conn)
	declare := "SELECT create_distributed_function('total(bigint, text)', '$1', 'customers')"
	run(t, conn, declare, "ALTER FUNCTION total(bigint, text) RENAME TO sum_of")
	want := ask(t, conn, "SELECT (2 * sum(total))::text FROM orders WHERE customer = 7")
	run(t, conn, `CREATE OR REPLACE FUNCTION sum_of(customer_id bigint, code text DEFAULT 'x') RETURNS numeric LANGUAGE sql STABLE AS 'SELECT 2 * sum(total) FROM orders WHERE customer = customer_id'`)
	expect(t, conn, want, "SELECT sum_of(7)::text")
	run(t, conn, "SELECT undistribute_function('sum_of')")
	fails(t, conn, "0A000", "SELECT sum_of(7)", "create_distributed_function()")
	run(t, conn, "BEGIN", "SELECT create_distributed_function('sum_of', 'customer_id', 'customers')")
	expect(t, conn, want, "SELECT sum_of(7)::text")
	run(t, conn, "ROLLBACK")
	fails(t, conn, "0A000", "SELECT sum_of(7)", "create_distributed_function()")
	run(t, conn, "SELECT create_distributed_function('sum_of', 'customer_id', 'customers')", "DROP FUNCTION sum_of")
	onNodes(t, shared(), "keyed_ddl", func(node string, conn *pgx.Conn) {
		expect(t, conn, "0", "SELECT count(*) FROM pg_shoal.functions")
	})
	run(t, conn, "SELECT create_distributed_function('list')") // functions are everywhere
	fails(t, conn, "22023", "SELECT create_distributed_function('list', 'nonsense')", "no argument nonsense")
	fails(t, conn, "42804", "SELECT create_distributed_function('whose', '$1', 'orders')", "not one column of the argument's type")
	fails(t, conn, "42883", "SELECT create_distributed_function('nonsense', '$1')", "does not exist")
	run(t, conn, "CREATE ROLE keyed_stranger LOGIN PASSWORD 'x'", "GRANT ALL ON SCHEMA public TO keyed_stranger")
	stranger := connect(t, shared().RoleDSN(0, "keyed_stranger", "x", "keyed_ddl"))
	fails(t, stranger, "42501", "SELECT create_distributed_function('list', '$1', 'orders')", "must be owner of function")
}
