package catalog_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

// TestRemoveRowsAgreesWithFilters: what remove_rows keeps for a filter's JSON is what the filter's SQL selects, for the
// shards of every strategy, and the shards have each row once.
func TestRemoveRowsAgreesWithFilters(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	conn := connect(t, p, "", "")
	run(t, conn, `CREATE DOMAIN money_like AS numeric(12,2); CREATE DOMAIN nested AS money_like;
		CREATE TABLE t (region varchar(5) COLLATE "en-x-icu", tenant int, at timestamptz, amount nested, code char(4), raw bytea, day date, flag bool, id uuid);
		INSERT INTO t SELECT (ARRAY['de','DE','fr','us','jp','', 'é'])[1 + i % 7], i % 23, '2026-01-01'::timestamptz + make_interval(hours => i),
			(i % 50) - 25.5, 'c' || i % 9, decode(lpad(to_hex(i % 70), 2, '0'), 'hex'), '2026-01-01'::date + i % 40, i % 2 = 0, md5(i::text)::uuid
		FROM generate_series(1, 400) i; SET datestyle = 'SQL, DMY'; SET timezone = 'Asia/Tokyo'`)
	types := map[string]keyspace.Type{
		"region": keyspace.Varchar, "tenant": keyspace.Int4, "at": keyspace.Timestamptz, "amount": keyspace.Numeric, "code": keyspace.Bpchar,
		"raw": keyspace.Bytea, "day": keyspace.Date, "flag": keyspace.Bool, "id": keyspace.UUID,
	}
	eu, us := keyspace.Region{Name: "eu", ID: 1, Values: []string{"de", "é", ""}}, keyspace.Region{Name: "us", ID: 2, Values: []string{"us", "it's"}}
	list := keyspace.Dimension{Method: keyspace.List, Columns: []int{0}, Regions: []keyspace.Region{eu, us}, Default: "us"}
	hash := func(columns ...int) keyspace.Dimension {
		return keyspace.Dimension{Method: keyspace.Hash, Columns: columns}
	}
	ranged := func(columns ...int) keyspace.Dimension {
		return keyspace.Dimension{Method: keyspace.Range, Columns: columns}
	}
	for _, tt := range []struct {
		columns    string
		dimensions []keyspace.Dimension
		split      []string // values of a bound, separated by |
		shards     int
	}{
		{"tenant", []keyspace.Dimension{hash(0)}, nil, 5},
		{"region tenant day raw", []keyspace.Dimension{hash(0, 1, 2, 3)}, nil, 4},
		{"amount flag id code at", []keyspace.Dimension{hash(0, 1, 2, 3, 4)}, nil, 3},
		{"tenant at", []keyspace.Dimension{hash(0), ranged(1)}, nil, 3},
		{"region", []keyspace.Dimension{ranged(0)}, []string{"DE", "de", "z"}, 0},
		{"code", []keyspace.Dimension{ranged(0)}, []string{"c3", "c7"}, 0},
		{"amount", []keyspace.Dimension{ranged(0)}, []string{"-3.25", "0", "7"}, 0},
		{"raw", []keyspace.Dimension{ranged(0)}, []string{`\x05`, `\x20`}, 0},
		{"day flag", []keyspace.Dimension{ranged(0, 1)}, []string{"2026-01-05", "2026-01-20|true"}, 0},
		{"id", []keyspace.Dimension{ranged(0)}, []string{"80000000-0000-0000-0000-000000000000"}, 0},
		{"tenant at", []keyspace.Dimension{ranged(0, 1)}, []string{"5|2026-01-05 03:00:00+00", "5|2026-01-09 00:00:00+00", "20"}, 0},
		{"region tenant at", []keyspace.Dimension{list, hash(1), ranged(2)}, nil, 3},
		{"region", []keyspace.Dimension{list, hash(0)}, nil, 2},
	} {
		columns := strings.Fields(tt.columns)
		key := keyspace.Key{Dimensions: tt.dimensions}
		var named []keyspace.FilterColumn
		for _, c := range columns {
			key.Types = append(key.Types, types[c].Canonical())
			named = append(named, keyspace.FilterColumn{SQL: c, Type: types[c]})
		}
		t.Run(tt.columns+" "+key.Strategy(), func(t *testing.T) {
			layout := keyspace.Layout{Shards: tt.shards}
			for _, at := range tt.split {
				b, err := key.ParseBound(strings.Split(at, "|"))
				if err != nil {
					t.Fatal(err)
				}
				layout.SplitAt = append(layout.SplitAt, b)
			}
			d := distributionOf(t, key, layout)
			run(t, conn, fmt.Sprintf("SELECT pg_shoal.set_table('t', 'distributed', 1, '{%s}')", strings.Join(columns, ",")))
			total := 0
			for i := range d.Shards {
				f, err := d.Filter(d.Interval(i))
				if err != nil {
					t.Fatal(err)
				}
				total += keptRows(t, conn, f, named)
			}
			if total != 400 {
				t.Errorf("the shards have %d rows together, not 400", total)
			}
		})
	}
}

func distributionOf(t *testing.T, key keyspace.Key, layout keyspace.Layout) *keyspace.Distribution {
	t.Helper()
	m := keyspace.NewMap("test")
	for name, region := range map[string]string{"a": "eu", "b": "us"} {
		var err error
		if m, err = m.AddNode(keyspace.Node{Name: name, Addresses: []string{"h:1"}, Region: region, State: keyspace.NodeActive}); err != nil {
			t.Fatal(err)
		}
	}
	_, d, err := m.CreateDistribution("postgres", key, layout)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// keptRows removes all rows but the filter's, compares, and takes it back.
func keptRows(t *testing.T, conn *pgx.Conn, f keyspace.Filter, columns []keyspace.FilterColumn) int {
	t.Helper()
	data, err := json.Marshal([]keyspace.Filter{f})
	if err != nil {
		t.Fatal(err)
	}
	const rows = "SELECT count(*)::text || ' ' || coalesce(sum(hashtextextended(t::text, 0)), 0)::text FROM t"
	want := one[string](t, conn, rows+" WHERE "+f.SQL(columns))
	run(t, conn, "BEGIN")
	defer run(t, conn, "ROLLBACK")
	if _, err := conn.Exec(testContext(t), "SELECT pg_shoal.remove_rows('t', $1::text::jsonb)", string(data)); err != nil {
		t.Fatalf("%s\n%v", data, err)
	}
	if got := one[string](t, conn, rows); got != want {
		t.Errorf("%s\nkeeps %s, and %s\nselects %s", data, got, f.SQL(columns), want)
	}
	return one[int](t, conn, "SELECT count(*)::int FROM t")
}

// TestRemoveRowsRunsNoSQLOfTheCaller: the function has its owner's rights, so nothing in a filter may become SQL, and no
// function of the table's owner may run.
func TestRemoveRowsRunsNoSQLOfTheCaller(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	bootstrap(t, p, 0)
	admin := connect(t, p, "", "")
	run(t, admin, `CREATE ROLE owner LOGIN; GRANT CREATE ON SCHEMA public TO owner; CREATE TABLE prey (a int)`)
	conn := connect(t, p, "owner", "")
	run(t, conn, `CREATE TYPE odd AS (x int);
		CREATE FUNCTION odd_to_bigint(odd) RETURNS bigint LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN DROP TABLE prey; RETURN 1; END $$;
		CREATE CAST (odd AS bigint) WITH FUNCTION odd_to_bigint(odd) AS IMPLICIT;
		CREATE TABLE t ("k""; DROP TABLE prey; --" text, o odd); INSERT INTO t VALUES ('a', ROW(1)), ('b', ROW(2))`)
	run(t, conn, `SELECT pg_shoal.set_table('t', 'distributed', 1, ARRAY['k"; DROP TABLE prey; --', 'o'])`)
	filter := func(method, columns, types, op, value string) string {
		return fmt.Sprintf(`[{"terms": [{"method": %q, "columns": [%s], "types": [%q]}], "low": {"op": %q, "values": [%q]}}]`, method, columns, types, op, value)
	}
	for _, tt := range []struct{ keep, state string }{
		{filter("range", "0", "text", ">=", "'; DROP TABLE prey; --"), ""},
		{filter("range", "0", "text", ">=", `\'; DROP TABLE prey; --`), ""},
		{filter("range", "0", "text; DROP TABLE prey", ">=", "a"), "22023"},
		{filter("range", "0", "regclass", ">=", "a"), "22023"},
		{filter("range", "0", "text", "; DROP TABLE prey; --", "a"), "22023"},
		{filter("drop", "0", "text", ">=", "a"), "22023"},
		{filter("hash", "5", "text", ">=", "1"), "22023"},
		{filter("hash", "", "text", ">=", "1"), "22023"},
		{filter("hash", "1", "bigint", ">=", "1"), "22023"},
		{filter("range", "1", "bigint", ">=", "1"), "22023"},
		{filter("range", "1", "text", ">=", "1"), "22023"},
		{`[{"terms": [], "low": {"op": ">=", "values": ["1"]}}]`, "22023"},
		{`[{"terms": [{"method": "list", "columns": [0], "types": ["text"], "regions": [{"value": "'); DROP TABLE prey; --", "id": 1}], "default": 2}], "low": {"op": ">=", "values": ["1"]}}]`, ""},
		{`[{"terms": [{"method": "list", "columns": [0], "types": ["text"], "regions": [{"value": "a", "id": "1; DROP TABLE prey"}]}], "low": {"op": ">=", "values": ["1"]}}]`, "22P02"},
		{`[{"terms": [{"method": "directory", "columns": [0], "types": ["text"]}], "keys": ["'); DROP TABLE prey; --", "a"]}]`, ""},
		{`{"terms": 1}`, "22023"},
	} {
		run(t, conn, "BEGIN")
		_, err := conn.Exec(testContext(t), "SELECT pg_shoal.remove_rows('t', $1::text::jsonb)", tt.keep)
		if state := sqlState(err); state != tt.state {
			t.Errorf("%s: SQLSTATE %q, not %q: %v", tt.keep, state, tt.state, err)
		}
		run(t, conn, "ROLLBACK")
		if !one[bool](t, admin, "SELECT to_regclass('prey') IS NOT NULL") {
			t.Fatalf("%s dropped a table", tt.keep)
		}
	}
}
