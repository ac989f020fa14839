package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Texts that differ in literals share a plan. In the extended protocol each text has its own, so both must answer alike.
func TestLiteralsOverNodes(t *testing.T) {
	t.Parallel()
	conn := client(t)
	run(t, conn, "CREATE TABLE lit (id bigint PRIMARY KEY, n int, s smallint, name text, code char(3), day date, big bigint)",
		"SELECT create_distributed_table('lit', 'id')",
		`INSERT INTO lit SELECT g, g % 50, g % 7, 'it''s ' || g % 11, g % 13, date '2024-01-01' + g % 90, 9000000000000000000 + g % 3
			FROM generate_series(1, 500) g`)
	for form, values := range map[string][]any{
		"SELECT count(*), sum(n), sum(big), min(id), max(day) FROM lit WHERE id BETWEEN %v AND 7 + 40": {1, 5, -3, 40, 100},
		"SELECT id FROM lit WHERE n = %v AND s > 2 ORDER BY id LIMIT 3":                                {1, 2, 3, 4, -5},
		"SELECT id, %v FROM lit WHERE n < 3 ORDER BY id":                                               {1, 2, "'x'", "'y'", 3000000000},
		"SELECT id FROM lit WHERE n < 20 ORDER BY id LIMIT %v":                                         {1, 2, 3, 0},
		"SELECT id FROM lit WHERE id IN (1, %v, 500) ORDER BY id":                                      {2, 3, 4, -1, 3000000000},
		"SELECT count(*) FROM lit WHERE name = %v":                                                     {"'it''s 1'", "'it''s 2'", `E'it\'s 3'`, "$$it's 4$$", "'none'"},
		"SELECT count(*) FROM lit WHERE code = %v":                                                     {"'1'", "'2  '", "'12'", "'1234'"},
		"SELECT count(*) FROM lit WHERE day > %v":                                                      {"'2024-01-05'", "'2024-02-05'", "'01/03/2024'", "'infinity'", "'never'", "'2024-03-05'"},
		"SELECT count(*) FROM lit WHERE n = %v":                                                        {"'1'", "'2'", "' 3 '", "'4x'", "5", "6", "7"},
		"SELECT n + %v, count(*) FROM lit WHERE id > 5 GROUP BY n + 1 ORDER BY 1 LIMIT 2":              {1, 2, 1, 1},
		"SELECT count(*) FROM lit a JOIN lit b ON b.id = a.id AND b.n > %v WHERE a.s = 3":              {1, 2, 30, 60},
		"SELECT count(*) FROM lit WHERE n / (s - %v) > 5 OR n = 7":                                     {7, 8, 9, 3},
		"SELECT count(*) FROM lit WHERE 2147483647 + %v > n":                                           {0, 1, 2},
		"SELECT name FROM lit WHERE name > %v AND n = (SELECT max(n) FROM lit WHERE n < 9) ORDER BY 1": {"'it''s 5'", "'it''s 6'", "''"},
	} {
		for range 2 {
			for _, v := range values {
				sql := fmt.Sprintf(form, v)
				simple, extended := answered(conn, sql, true), answered(conn, sql, false)
				if simple != extended {
					t.Errorf("%s\nanswered %s\nand as a prepared statement %s", sql, simple, extended)
				}
			}
		}
	}
}

// answered is the whole answer to a statement as text.
func answered(conn *pgx.Conn, sql string, simple bool) string {
	var result *pgconn.Result
	if simple {
		list, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
		if len(list) == 0 {
			return failure(err)
		}
		result = list[0]
		result.Err = errors.Join(err)
	} else {
		result = conn.PgConn().ExecParams(context.Background(), sql, nil, nil, nil, nil).Read()
	}
	if result.Err != nil {
		return failure(result.Err)
	}
	var out strings.Builder
	out.WriteString(result.CommandTag.String())
	for _, f := range result.FieldDescriptions {
		fmt.Fprint(&out, " ", f.Name, " ", f.DataTypeOID, " ", f.TypeModifier)
	}
	for _, row := range result.Rows {
		fmt.Fprintf(&out, "\n%q", row)
	}
	return out.String()
}

func failure(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return fmt.Sprint(e.Code, " ", e.Message, " at ", e.Position)
	}
	return fmt.Sprint(err)
}
