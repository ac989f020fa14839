package keyspace_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

// filtered is a table with the key columns of a strategy, and the points of its rows.
type filtered struct {
	strategy
	table   string
	columns []keyspace.FilterColumn
	rows    [][]string
	points  [][]byte
}

func fillTable(t *testing.T, conn *pgx.Conn, s strategy, r *rand.Rand) *filtered {
	t.Helper()
	f := &filtered{strategy: s, table: pgx.Identifier{"rows of " + s.name}.Sanitize()}
	var definitions, values, sources []string
	texts := make([][]string, len(s.types))
	for i, typ := range s.types {
		name := pgx.Identifier{fmt.Sprintf("the key %d", i)}.Sanitize()
		f.columns = append(f.columns, keyspace.FilterColumn{SQL: name, Type: typ})
		definitions = append(definitions, name+" "+sqlName(typ)+" NOT NULL")
		values = append(values, fmt.Sprintf("c%d::%s", i, sqlName(typ)))
		sources = append(sources, fmt.Sprintf("$%d::text[]", i+1))
	}
	for range 1500 {
		row := s.row(r)
		f.rows = append(f.rows, row)
		f.points = append(f.points, slices.Concat(s.point(t, r, row)...))
		for i := range row {
			texts[i] = append(texts[i], row[i])
		}
	}
	var names []string
	var args []any
	for i := range s.types {
		names = append(names, fmt.Sprintf("c%d", i))
		args = append(args, texts[i])
	}
	execSQL(t, conn, "CREATE TABLE "+f.table+" (n int, "+strings.Join(definitions, ", ")+")")
	execSQL(t, conn, fmt.Sprintf("INSERT INTO %s SELECT n - 1, %s FROM unnest(%s) WITH ORDINALITY AS u(%s, n)",
		f.table, strings.Join(values, ", "), strings.Join(sources, ", "), strings.Join(names, ", ")), args...)
	execSQL(t, conn, "ALTER TABLE "+f.table+" REPLICA IDENTITY FULL")
	return f
}

// check compares what the filter of an interval selects with the points in it.
func (f *filtered) check(t *testing.T, conn *pgx.Conn, low, high []byte) string {
	t.Helper()
	filter, err := f.key.Filter(low, high)
	if err != nil {
		t.Fatal(err)
	}
	sql := filter.SQL(f.columns)
	text, err := json.Marshal(filter)
	if err != nil {
		t.Fatal(err)
	}
	var again keyspace.Filter
	if err := json.Unmarshal(text, &again); err != nil || again.SQL(f.columns) != sql {
		t.Fatalf("JSON changed the filter from %s to %s, error %v", sql, again.SQL(f.columns), err)
	}
	rows, err := conn.Query(t.Context(), "SELECT n FROM "+f.table+" WHERE "+sql)
	if err != nil {
		t.Fatal(err)
	}
	selected, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	slices.Sort(selected)
	for i, p := range f.points {
		_, got := slices.BinarySearch(selected, i)
		want := bytes.Compare(p, low) >= 0 && (high == nil || bytes.Compare(p, high) < 0)
		if got != want {
			t.Fatalf("row %q with point %x is selected: %v; the interval from %x to %x: %s", f.rows[i], p, got, low, high, sql)
		}
	}
	return sql
}

// The filter of an interval selects exactly the rows whose points are in it, and triggers and publications take it.
func TestFilterEqualsPoints(t *testing.T) {
	conn := connect(t)
	execSQL(t, conn, "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''fenced''; END'")
	for _, s := range strategies() {
		if len(s.types) == 0 || s.key.Dimensions[0].Method == keyspace.Directory {
			if _, err := s.key.Filter(nil, nil); err == nil {
				t.Errorf("%s has a filter", s.name)
			}
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			r := newRandom(t)
			f := fillTable(t, conn, s, r)
			for i := range 60 {
				low, high := s.someBound(t, r), s.someBound(t, r)
				if r.IntN(3) == 0 { // through the keys that there are
					low = pick(r, f.points...)
				}
				if high != nil && bytes.Compare(low, high) > 0 {
					low, high = high, low
				}
				if low == nil {
					continue
				}
				sql := f.check(t, conn, low, high)
				if i >= 10 {
					continue
				}
				execSQL(t, conn, fmt.Sprintf(`CREATE PUBLICATION "p %s %d" FOR TABLE %s WHERE (%s)`, s.name, i, f.table, sql))
				fenced := slices.Clone(f.columns)
				for c := range fenced {
					fenced[c].SQL = "NEW." + fenced[c].SQL
				}
				filter, err := s.key.Filter(low, high)
				if err != nil {
					t.Fatal(err)
				}
				execSQL(t, conn, fmt.Sprintf("CREATE TRIGGER fence%d BEFORE INSERT ON %s FOR EACH ROW WHEN (%s) EXECUTE FUNCTION refuse()",
					i, f.table, filter.SQL(fenced)))
			}
			_ = f.check(t, conn, nil, nil)
		})
	}
}

func TestFilterOfShardsIsEveryRowOnce(t *testing.T) {
	conn := connect(t)
	for _, s := range strategies() {
		if len(s.types) == 0 || s.key.Dimensions[0].Method == keyspace.Directory {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			r := newRandom(t)
			f := fillTable(t, conn, s, r)
			e := startEditing(t, s, r.Uint64())
			for range 60 {
				e.step(t)
			}
			for i := range e.d.Shards {
				low, high := e.d.Interval(i)
				f.check(t, conn, low, high)
			}
		})
	}
}

func TestKeysFilter(t *testing.T) {
	conn := connect(t)
	for _, typ := range allTypes {
		t.Run(typ.String(), func(t *testing.T) {
			r := newRandom(t)
			s := newStrategy("directory of "+typ.String(), 4, []keyspace.Type{typ}, dimension(keyspace.Directory, 0))
			f := fillTable(t, conn, s, r)
			var keys []string
			wanted := map[string]bool{}
			for _, row := range f.rows[:40] {
				keys = append(keys, row[0])
				wanted[f.lookup(t, row[0])] = true
			}
			rows, err := conn.Query(t.Context(), "SELECT n FROM "+f.table+" WHERE "+s.key.KeysFilter(keys).SQL(f.columns))
			if err != nil {
				t.Fatal(err)
			}
			selected, err := pgx.CollectRows(rows, pgx.RowTo[int])
			if err != nil {
				t.Fatal(err)
			}
			for i, row := range f.rows {
				if got := slices.Contains(selected, i); got != wanted[f.lookup(t, row[0])] {
					t.Fatalf("row %q is selected: %v", row, got)
				}
			}
			if got := s.key.KeysFilter(nil).SQL(f.columns); got != "false" {
				t.Errorf("no keys: %s", got)
			}
		})
	}
}

// lookup is the key by which a directory finds an entry.
func (s *strategy) lookup(t *testing.T, text string) string {
	t.Helper()
	c := s.key.Components()[0]
	b, err := s.key.AppendComponent(nil, &c, s.types, []keyspace.Value{{Data: []byte(text), From: s.types[0]}})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
