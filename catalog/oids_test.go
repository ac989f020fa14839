package catalog_test

import (
	"bytes"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/catalog"
)

const oidSchema = `
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE DOMAIN feeling AS mood;
CREATE TYPE pair AS (m mood, ms mood[], f feeling[]);
CREATE TYPE span AS RANGE (subtype = pair, multirange_type_name = spans);
CREATE TABLE t (a int, b mood, c pair);`

// TestOIDMap pairs the OIDs of two databases that have come to the same schema in different ways.
func TestOIDMap(t *testing.T) {
	t.Parallel()
	p := startServer(t)
	home := connect(t, p, "", "")
	run(t, home, "CREATE DATABASE other")
	node := connect(t, p, "", "other")
	run(t, home, oidSchema)
	// The array of mood gets another name here, and the columns other numbers.
	run(t, node, "CREATE TYPE _mood AS (a int);"+oidSchema+"DROP TYPE _mood; ALTER TABLE t RENAME TO old; CREATE TABLE t (gone int, a int, b mood, c pair); ALTER TABLE t DROP COLUMN gone; DROP TABLE old")
	lists := map[*pgx.Conn]*catalog.OIDList{}
	for _, conn := range []*pgx.Conn{home, node} {
		list, err := catalog.LoadOIDs(testContext(t), querier{conn.PgConn()})
		if err != nil {
			t.Fatal(err)
		}
		lists[conn] = list
	}
	m := catalog.MapOIDs(lists[node], lists[home])
	for _, name := range []string{"mood", "mood[]", "feeling", "feeling[]", "pair", "pair[]", "span", "span[]", "spans", "spans[]", "t", "t[]", "int[]", "record"} {
		there, here := oidOf(t, node, name, "regtype"), oidOf(t, home, name, "regtype")
		if there == here && here >= catalog.FirstUserOID {
			t.Errorf("%s has OID %d in both databases: the test shows nothing", name, here)
		}
		if got, ok := m.HomeType(there); got != here || !ok {
			t.Errorf("%s: %d became %d, not %d", name, there, got, here)
		}
		if got, ok := m.NodeType(here); got != there || !ok {
			t.Errorf("%s: %d went back to %d, not %d", name, here, got, there)
		}
	}
	table, column, ok := m.HomeColumn(oidOf(t, node, "t", "regclass"), 3)
	if table != oidOf(t, home, "t", "regclass") || column != 2 || !ok {
		t.Errorf("column 3 became column %d of table %d, %v", column, table, ok)
	}
	if _, ok := m.HomeType(4_000_000_000); ok {
		t.Error("a type that does not exist was found")
	}
	checkOIDValues(t, m, home, node)
}

func oidOf(t *testing.T, conn *pgx.Conn, name, as string) (oid uint32) {
	t.Helper()
	if err := conn.QueryRow(testContext(t), "SELECT $1::text::"+as+"::oid", name).Scan(&oid); err != nil {
		t.Fatal(err)
	}
	return oid
}

// checkOIDValues takes values in binary from one database to the other and back.
func checkOIDValues(t *testing.T, m *catalog.OIDMap, home, node *pgx.Conn) {
	t.Helper()
	value := func(conn *pgx.Conn, expr string) []byte {
		r := conn.PgConn().ExecParams(testContext(t), "SELECT "+expr, nil, nil, nil, []int16{1}).Read()
		if r.Err != nil {
			t.Fatalf("%s: %v", expr, r.Err)
		}
		return bytes.Clone(r.Rows[0][0])
	}
	for expr, typ := range map[string]string{
		"ARRAY['ok', NULL, 'sad']::mood[]":                                  "mood[]",
		"ARRAY['ok']::feeling[]":                                            "feeling[]",
		"'{}'::mood[]":                                                      "mood[]",
		"ROW('ok', '{sad,NULL}', '{ok}')::pair":                             "pair",
		"ROW(NULL, NULL, NULL)::pair":                                       "pair",
		"ARRAY[ROW('ok', '{sad}', NULL)::pair]":                             "pair[]",
		"ROW(1, 'x'::text, 'ok'::mood, '{sad}'::mood[])":                    "record",
		"span(ROW('sad', '{sad}', NULL), ROW('ok', '{ok}', '{ok}'))":        "span",
		"'empty'::span":                                                     "span",
		"spans(span(ROW('sad', '{sad}', NULL), ROW('ok', '{ok}', '{ok}')))": "spans",
		"ROW(1, 'ok', ROW('ok', '{sad,NULL}', '{ok}')::pair)::t":            "t",
		"'{1,2}'::int[]":                                                    "int[]",
	} {
		oid := oidOf(t, home, typ, "regtype")
		there, here := value(node, expr), value(home, expr)
		got := bytes.Clone(there)
		if err := m.ValueToHome(oid, got); err != nil || !bytes.Equal(got, here) {
			t.Errorf("%s became %q, not %q; %v", expr, got, here, err)
		}
		if err := m.ValueToNode(oid, got); err != nil || !bytes.Equal(got, there) {
			t.Errorf("%s went back to %q, not %q; %v", expr, got, there, err)
		}
		for cut := range len(there) { // whatever is cut off, nothing else is read
			_ = m.ValueToHome(oid, bytes.Clone(there[:cut:cut]))
		}
		for i := range there {
			broken := bytes.Clone(there)
			broken[i] ^= 0xff
			_ = m.ValueToHome(oid, broken)
		}
	}
}
