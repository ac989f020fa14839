package plan_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/sqltext"
)

// orderedType is a key type with values that are easily ordered wrongly.
type orderedType struct {
	name, sql string
	typ       keyspace.Type
	values    []string
}

var texts = []string{"", " ", "A", "B", "Z", "a", "ab", "aB", "a b", "ab ", "abc", "b", "z", "é", "ä", "ß", "\U0001F600", "~", "a%", `a\b`, "a_"}

func orderedTypes() []orderedType {
	return []orderedType{
		{"int4", "int", keyspace.Int4, []string{"-2147483648", "-1", "0", "1", "2147483647", "9", "10"}},
		{"bool", "boolean", keyspace.Bool, []string{"f", "t", "yes", "off"}},
		{"bytes", `text COLLATE "C"`, keyspace.Text, texts},
		{"words", `text COLLATE "und-x-icu"`, keyspace.Text, texts},
		{"short", `varchar(9) COLLATE "C"`, keyspace.Varchar, texts},
		{"blanks", `char(4) COLLATE "C"`, keyspace.Bpchar, slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return len(s) > 3 })},
		{"bytea", "bytea", keyspace.Bytea, []string{`\x`, `\x00`, `\x0000`, `\x0001`, `\x01`, `\xff`, `\xff00`, `\x61`}},
		{"uuid", "uuid", keyspace.UUID, []string{"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "{a0eebc999c0b4ef8bb6d6bb9bd380a11}"}},
		{"numeric", "numeric", keyspace.Numeric, []string{"NaN", "Infinity", "-Infinity", "0", "0.00", "-1.50", "-1.5", "1e10", "1e-10", "9999.9999", "10000", "-10000.1"}},
		{"money", "numeric(6,2)", keyspace.Numeric, []string{"0", "1.05", "-1.05", "9999.99", "1.5"}},
		{"date", "date", keyspace.Date, []string{"infinity", "-infinity", "2024-01-02", "01.02.2024", "Jan 5 2023", "0044-03-15 BC", "epoch"}},
		{"stamp", "timestamp", keyspace.Timestamp, []string{"infinity", "-infinity", "2024-01-02 03:04:05.678901", "2024-01-02", "02.03.2024 10:00", "epoch"}},
		{"zoned", "timestamptz", keyspace.Timestamptz, []string{"infinity", "-infinity", "2024-01-02 03:04:05+00", "2024-01-02 03:04:05", "2024-01-02 03:04:05+05:30", "2024-01-01", "1880-01-01"}},
	}
}

// homeAsker asks PostgreSQL, as a router does.
type homeAsker struct{ db *database }

func (a homeAsker) Canonical(key keyspace.Type, as string, text []byte) ([]byte, error) {
	sql := "SELECT " + exec.CanonicalSQL(key, plan.QuoteLiteral(string(text))+"::"+as)
	rows, err := a.db.Query(context.Background(), sql)
	if err != nil {
		return nil, err
	}
	return rows[0][0], nil
}

func (homeAsker) Entry(*keyspace.Distribution, []byte, bool) (uint64, bool, error) {
	return 0, false, errors.New("no directory")
}

// TestRangePruning compares, for every key type and many conditions, the rows on the nodes that a pin
// leads to with all rows. PostgreSQL itself puts the rows on the nodes. The session's DateStyle and
// TimeZone are unusual ones.
func TestRangePruning(t *testing.T) {
	t.Parallel()
	server := shardtest.StartPostgres(t)
	for _, ot := range orderedTypes() {
		t.Run(ot.name, func(t *testing.T) {
			r := newRangeTable(t, server, ot)
			pruned := 0
			for i, v := range ot.values {
				for _, step := range []int{0, 4} {
					for _, c := range r.conditions(v, ot.values[(i+step)%len(ot.values)]) {
						if r.check(t, c) {
							pruned++
						}
					}
				}
			}
			if pruned == 0 {
				t.Error("no condition left a node out")
			}
		})
	}
}

type rangeTable struct {
	*cluster
	typ orderedType
}

func newRangeTable(t *testing.T, server *shardtest.Postgres, ot orderedType) *rangeTable {
	var schema strings.Builder
	for _, s := range []string{"whole", "n1", "n2", "n3"} {
		fmt.Fprintf(&schema, "CREATE SCHEMA %s; CREATE TABLE %[1]s.t (k %s NOT NULL, id serial);", s, ot.sql)
	}
	schema.WriteString("SELECT pg_shoal.set_table('whole.t', 'distributed', 1, '{k}'); SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Europe/Berlin';")
	for _, v := range ot.values {
		schema.WriteString("INSERT INTO whole.t (k) VALUES (" + plan.QuoteLiteral(v) + ");")
	}
	db := newDatabase(t, server, "range_"+ot.name, schema.String())
	order := "k"
	if strings.Contains(ot.sql, "COLLATE") {
		order = `k COLLATE "C"`
	}
	sorted, err := db.Query(t.Context(), "SET DateStyle = 'ISO'; SELECT DISTINCT ON ("+order+") k::text FROM whole.t ORDER BY "+order+"; SET DateStyle = 'SQL, DMY'")
	if err != nil {
		t.Fatal(err)
	}
	key := keyspace.Key{Types: []keyspace.Type{ot.typ.Canonical()}, Dimensions: []keyspace.Dimension{dimension(keyspace.Range, 0)}}
	splits := slices.Compact([]string{string(sorted[max(1, len(sorted)/3)][0]), string(sorted[len(sorted)*2/3][0])})
	s := strategy{key: key}
	for _, at := range splits {
		s.split = append(s.split, []string{at})
	}
	r := &rangeTable{&cluster{db: db, catalog: db.load(t), m: addStrategies(t, threeNodes(t), s)}, ot}
	r.d = r.m.Distribution(1)
	r.fillNodes(t, order, splits)
	return r
}

// fillNodes lets PostgreSQL decide on which side of the splits a row is.
func (r *rangeTable) fillNodes(t *testing.T, order string, splits []string) {
	typ, _, _ := strings.Cut(r.typ.sql, " COLLATE")
	for i := range r.d.Shards {
		where := "true"
		if i > 0 {
			where += fmt.Sprintf(" AND %s >= '%s'::%s", order, splits[i-1], typ)
		}
		if i < len(splits) {
			where += fmt.Sprintf(" AND %s < '%s'::%s", order, splits[i], typ)
		}
		r.db.exec(t, fmt.Sprintf("SET DateStyle = 'ISO'; INSERT INTO %s.t SELECT * FROM whole.t WHERE %s; SET DateStyle = 'SQL, DMY'", r.d.Shards[i].Node, where))
	}
}

func (r *rangeTable) conditions(v, w string) []string {
	v, w = plan.QuoteLiteral(v), plan.QuoteLiteral(w)
	typ, _, _ := strings.Cut(r.typ.sql, " COLLATE")
	all := []string{
		"k < " + v, "k <= " + v, v + " < k", v + " <= k", "k = " + v, "k BETWEEN " + v + " AND " + w, "k BETWEEN SYMMETRIC " + v + " AND " + w,
		"k IN (" + v + ", " + w + ")", "k > " + v + " AND k < " + w, "k < " + v + " OR k = " + w, "k = ANY (ARRAY[" + v + "::" + typ + ", " + w + "]) AND k <= " + v,
		"(k, id) > (" + v + ", 3)", "k OPERATOR(pg_catalog.>) " + v,
	}
	if strings.Contains(r.typ.sql, "COLLATE") {
		all = append(all, `k COLLATE "C" < `+v, "k >= "+v+` COLLATE "POSIX"`, `k COLLATE "und-x-icu" < `+v, "k LIKE "+v, "k LIKE ("+v+")::text",
			"k LIKE "+strings.TrimSuffix(v, "'")+"%'", "k ^@ "+v, "starts_with(k, "+v+")", "k LIKE "+v+" OR k > "+w, "k ILIKE "+v, "k::text < "+v)
	}
	return all
}

// check compares the rows of one condition; pruned tells that nodes were left out.
func (r *rangeTable) check(t *testing.T, condition string) (pruned bool) {
	sql := "SELECT id FROM t WHERE " + condition
	res, err := makePlan(r.catalog, r.m, sql, request{path: []string{"whole"}})
	if err != nil {
		t.Fatal(err)
	}
	if res.Plan.Kind != plan.Route {
		return false // nothing is known of the key
	}
	var norm sqltext.Normalized
	sqltext.Normalize(&norm, sql, true)
	nodes, err := exec.Nodes(r.m, &res.Plan.Pins[0], literalValues{&norm, sql}, homeAsker{r.db})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	want, _, err := r.run("whole", sql, false)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	var got []string
	for _, n := range nodes {
		rows, _, err := r.run(n, sql, false)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, rows...)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%s: on %v: %v; over all rows: %v", sql, nodes, got, want)
	}
	return len(nodes) < len(r.d.Shards)
}
