package integration

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// TestExecuteExtended: an EXECUTE in the extended protocol is described as what it executes, and its rows come in the formats that the
// client asks for.
func TestExecuteExtended(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE sqlx (id bigint PRIMARY KEY, v text, at int)", "SELECT create_distributed_table('sqlx', 'id')",
		"CREATE TABLE sqlx_local (id bigint, n bool)", "INSERT INTO sqlx_local VALUES (1, false), (2, true)",
		"INSERT INTO sqlx SELECT i, 'v' || i, i * 10 FROM generate_series(1, 20) i",
		"PREPARE one (bigint) AS SELECT id, at, v FROM sqlx WHERE id = $1",
		"PREPARE few (bigint) AS SELECT id, at FROM sqlx WHERE id < $1 ORDER BY id DESC LIMIT 2",
		"PREPARE number (bigint) AS SELECT count(*), min(at) FROM sqlx WHERE id IN ($1, $1 + 1, abs($1))",
		"PREPARE here (bigint) AS SELECT n FROM sqlx_local WHERE id = $1",
		"PREPARE change (text, bigint) AS UPDATE sqlx SET v = $1 WHERE id = $2")
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		for range 2 {
			expect(t, conn, "7|70|v7", "EXECUTE one(7)", mode)
			expect(t, conn, "7|70|v7", "EXECUTE one(3 + 4)", mode)
			expect(t, conn, "", "EXECUTE one(NULL)", mode)
			expect(t, conn, "8|80\n7|70", "EXECUTE few('9')", mode)
			expect(t, conn, "2|70", "EXECUTE number(7)", mode)
			expect(t, conn, "true", "EXECUTE here(2)", mode)
			tag, err := conn.Exec(t.Context(), "EXECUTE change('v7', 7)", mode)
			if err != nil || tag.String() != "UPDATE 1" {
				t.Errorf("%v, %v", tag, err)
			}
		}
		for _, sql := range []string{"EXECUTE one", "EXECUTE one(1, 2)"} {
			_, err := conn.Exec(t.Context(), sql, mode)
			refused(t, err, "42601", "wrong number of parameters")
		}
		_, err := conn.Exec(t.Context(), "EXECUTE nobody(1)", mode)
		refused(t, err, "26000")
	}
	// The name means another statement from now on.
	run(t, conn, "DEALLOCATE one", "PREPARE one (bigint) AS SELECT v FROM sqlx WHERE id = $1 + 1")
	expect(t, conn, "v8", "EXECUTE one(7)", pgx.QueryExecModeDescribeExec)
}
