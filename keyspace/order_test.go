package keyspace_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

// extremes are the values of a type where an encoding goes wrong first.
func extremes(t keyspace.Type) []string {
	switch t {
	case keyspace.Int2:
		return []string{"-32768", "-1", "0", "1", "32767"}
	case keyspace.Int4:
		return []string{"-2147483648", "-1", "0", "1", "2147483647"}
	case keyspace.Int8:
		return []string{"-9223372036854775808", "-1", "0", "1", "9223372036854775807"}
	case keyspace.Text, keyspace.Varchar, keyspace.Bpchar:
		return []string{"", " ", "  ", "a", "a ", "a\t", "a\x01", "a\x01b", "a b", "ab", "aa", "A", "Z", "z", "\u00e9", "\U0010ffff", "\x7f"}
	case keyspace.Bytea:
		return []string{`\x`, `\x00`, `\x0000`, `\x0001`, `\x00ff`, `\x01`, `\xff`, `\xff00`, `\xffff`, `\xfe`, `\x6100`, `\x61`, `\x6101`, `\x61ff`}
	case keyspace.UUID:
		return []string{"00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "7fffffff-ffff-ffff-ffff-ffffffffffff", "80000000-0000-0000-0000-000000000000"}
	case keyspace.Numeric:
		return []string{
			"NaN", "Infinity", "-Infinity", "0", "-0.00", "0e5", "1", "1.0", "1.00000000", "-1", "-1.000", "1.00000001", "1.0001", "0.9999", "9999", "10000", "9999.9999",
			"99999999", "100000000", "1e131071", "-1e131071", "1e-16383", "-1e-16383", "9.99e131071", "-9999", "-10000", "-10000.0001", "-9999.9999", "0.0001", "0.00010", "0.00001",
			"-0.0001", "-0.00001", "10", "100", "1000", "1e4", "1e8", "1e16", "12340000", "1234", "1e32766", "10001", "10000.0001", "1.0000000000000001",
		}
	case keyspace.Date:
		return []string{"-infinity", "infinity", "0001-01-01", "0001-12-31 BC", "4711-01-01 BC", "5874896-12-31", "2000-01-01", "1999-12-31", "1970-01-01", "2000-02-29"}
	case keyspace.Timestamp:
		return []string{"-infinity", "infinity", "0001-01-01 00:00:00", "0001-12-31 23:59:59.999999 BC", "294275-12-31 23:59:59.999999", "2000-01-01 00:00:00", "1999-12-31 23:59:59.999999"}
	case keyspace.Timestamptz:
		return []string{"-infinity", "infinity", "2000-01-01 00:00:00+00", "1999-12-31 23:59:59.999999+00", "2000-01-01 02:00:00+02", "1999-12-31 20:00:00-05"}
	}
	return []string{"true", "false"}
}

func someText(r *rand.Rand, t keyspace.Type) string {
	if r.IntN(3) == 0 {
		return pick(r, extremes(t)...)
	}
	return randomText(r, t)
}

// inOrder is the SQL by which PostgreSQL orders a value of the type as a range does.
func inOrder(t keyspace.Type, value string) string {
	if isString(t) {
		return value + ` COLLATE "C"`
	}
	return value
}

func rangeKey(types ...keyspace.Type) keyspace.Key {
	k := keyspace.HashKey(types...)
	k.Dimensions[0].Method = keyspace.Range
	return k
}

// ranked is a tuple of values with its place in PostgreSQL's order; equal tuples have one place.
type ranked struct {
	texts  []string
	binary [][]byte
	rank   int64
}

// rank asks the server for the order of tuples. Row n of columns is a tuple.
func rank(t *testing.T, conn *pgx.Conn, types []keyspace.Type, columns [][]string) []ranked {
	t.Helper()
	var values, order, from, names []string
	var args []any
	for i, typ := range types {
		value := fmt.Sprintf("(c%d::%s)", i, sqlName(typ))
		values = append(values, sendFunction(typ)+"("+value+")")
		order = append(order, inOrder(typ, value))
		from = append(from, fmt.Sprintf("$%d::text[]", i+1))
		names = append(names, fmt.Sprintf("c%d", i))
		args = append(args, columns[i])
	}
	sql := fmt.Sprintf("SELECT ARRAY[%s], ARRAY[%s], dense_rank() OVER (ORDER BY %s) FROM unnest(%s) AS u(%s)",
		strings.Join(names, ", "), strings.Join(values, ", "), strings.Join(order, ", "), strings.Join(from, ", "), strings.Join(names, ", "))
	rows, err := conn.Query(t.Context(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r ranked, err error) {
		return r, row.Scan(&r.texts, &r.binary, &r.rank)
	})
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return all
}

// encode makes the point of a tuple of a range, from text or binary values.
func encode(t *testing.T, types []keyspace.Type, data func(i int) []byte, binary bool) []byte {
	t.Helper()
	var point []byte
	var err error
	for i, typ := range types {
		if point, err = keyspace.AppendOrdered(point, typ, keyspace.Value{Data: data(i), From: typ, Binary: binary}); err != nil {
			t.Fatalf("%s %q: %v", typ, data(i), err)
		}
	}
	return point
}

// checkOrder holds the encodings of tuples against PostgreSQL's order of them.
func checkOrder(t *testing.T, conn *pgx.Conn, types []keyspace.Type, columns [][]string) {
	t.Helper()
	type encoded struct {
		ranked
		point []byte
	}
	var all []encoded
	k := rangeKey(types...)
	bounds := make([][]string, len(types))
	for _, r := range rank(t, conn, types, columns) {
		point := encode(t, types, func(i int) []byte { return []byte(r.texts[i]) }, false)
		if b := encode(t, types, func(i int) []byte { return r.binary[i] }, true); !bytes.Equal(point, b) {
			t.Fatalf("%q is %x as text and %x as binary", r.texts, point, b)
		}
		if after := keyspace.After(point); len(after) != len(point) {
			t.Fatalf("%q: %x is followed by %x", r.texts, point, after)
		}
		all = append(all, encoded{r, point})
		if len(types) == 1 {
			bounds[0] = append(bounds[0], k.FormatBound(point))
		}
	}
	if len(types) == 1 {
		again := rank(t, conn, append(types, types...), [][]string{bounds[0], textsOf(all, func(e encoded) string { return e.texts[0] })})
		for _, r := range again {
			if !bytes.Equal(encode(t, types, func(int) []byte { return r.binary[0] }, true), encode(t, types, func(int) []byte { return r.binary[1] }, true)) {
				t.Errorf("the bound at %q is written %q", r.texts[1], r.texts[0])
			}
		}
	}
	slices.SortFunc(all, func(a, b encoded) int { return bytes.Compare(a.point, b.point) })
	for i := range all[1:] {
		a, b := all[i], all[i+1]
		if equal := bytes.Equal(a.point, b.point); equal != (a.rank == b.rank) || a.rank > b.rank {
			t.Fatalf("%q is %x and has rank %d; %q is %x and has rank %d", a.texts, a.point, a.rank, b.texts, b.point, b.rank)
		} else if !equal && bytes.HasPrefix(b.point, a.point) {
			t.Fatalf("%q is %x, a prefix of %q", a.texts, a.point, b.texts)
		}
	}
}

func textsOf[T any](all []T, text func(T) string) []string {
	var texts []string
	for _, e := range all {
		texts = append(texts, text(e))
	}
	return texts
}

func TestOrderEqualsServer(t *testing.T) {
	conn := connect(t)
	for _, typ := range allTypes {
		t.Run(typ.String(), func(t *testing.T) {
			r := newRandom(t)
			texts := extremes(typ)
			for range 5000 {
				texts = append(texts, someText(r, typ))
			}
			checkOrder(t, conn, []keyspace.Type{typ}, [][]string{texts})
		})
	}
	t.Run("tuples", func(t *testing.T) {
		r := newRandom(t)
		for range 25 {
			types := make([]keyspace.Type, 2+r.IntN(3))
			columns := make([][]string, len(types))
			for i := range types {
				types[i] = pick(r, allTypes...)
				few := make([]string, 6) // so that the first columns are often equal
				for j := range few {
					few[j] = someText(r, types[i])
				}
				for range 400 {
					columns[i] = append(columns[i], pick(r, few...))
				}
			}
			checkOrder(t, conn, types, columns)
		}
	})
}

// Each column's hash is the seed of the next one's, with PostgreSQL's functions.
func TestHashOfSeveralColumnsEqualsServer(t *testing.T) {
	conn := connect(t)
	r := newRandom(t)
	for _, first := range allTypes {
		types := []keyspace.Type{first, pick(r, allTypes...), pick(r, allTypes...)}
		for _, last := range allTypes {
			types[2] = last
			t.Run(fmt.Sprint(types), func(t *testing.T) {
				columns := make([][]string, len(types))
				for range 60 {
					for i, typ := range types {
						columns[i] = append(columns[i], someText(r, typ))
					}
				}
				checkChainedHash(t, conn, types, columns)
			})
		}
	}
}

func checkChainedHash(t *testing.T, conn *pgx.Conn, types []keyspace.Type, columns [][]string) {
	hash, k := "0", keyspace.HashKey(types...)
	for i, typ := range types {
		hash = fmt.Sprintf("hash_record_extended(ROW(c%d::%s), %s)", i, sqlName(typ), hash)
	}
	rows, err := conn.Query(t.Context(), "SELECT ARRAY[c0, c1, c2], "+hash+" FROM unnest($1::text[], $2::text[], $3::text[]) AS u(c0, c1, c2)",
		columns[0], columns[1], columns[2])
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	var want int64
	c := k.Components()[0]
	_, err = pgx.ForEachRow(rows, []any{&texts, &want}, func() error {
		values := make([]keyspace.Value, len(types))
		for i := range values {
			values[i] = keyspace.Value{Data: []byte(texts[i]), From: types[i]}
		}
		point, err := k.AppendComponent(nil, &c, types, values)
		if got := pointOf(point); err != nil || got != keyspace.Point(uint64(want)) {
			t.Fatalf("%q: point %x, error %v; the server says %d", texts, point, err, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
