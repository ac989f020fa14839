package integration

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// oidPair is a composite type with an enum and an array of them.
type oidPair struct {
	Mood  string
	Moods []string
}

// oidsSetUp makes types whose OIDs differ between nodes, and a table with rows on all of them. The local table has the
// same rows on the home node, whose answers are what clients must see.
func oidsSetUp(t *testing.T, conn *pgx.Conn, prefix string) {
	t.Helper()
	home, done := nodeConnection(t, shared(), "node1", "postgres")
	defer done()
	run(t, home, "CREATE TEMP TABLE "+prefix+"_burn (a int)", "DROP TABLE "+prefix+"_burn")
	for sql := range strings.SplitSeq(`CREATE TYPE #_mood AS ENUM ('sad', 'ok', 'happy');
		CREATE TYPE #_pair AS (mood #_mood, moods #_mood[]);
		CREATE TYPE #_pairs AS RANGE (subtype = #_pair);
		CREATE TABLE #_t (k bigint PRIMARY KEY, gone int, mood #_mood, moods #_mood[], pair #_pair, pairs #_pair[], span #_pairs);
		ALTER TABLE #_t DROP COLUMN gone;
		CREATE TABLE #_local (LIKE #_t);
		INSERT INTO #_t SELECT g, 'ok', '{sad,happy}', '(sad,{ok})', ARRAY['(ok,)', '(sad,"{sad,NULL}")']::#_pair[],
			'["(sad,)","(ok,)")' FROM generate_series(1, 30) g;
		INSERT INTO #_local SELECT * FROM #_t;
		SELECT create_distributed_table('#_t', 'k')`, ";") {
		run(t, conn, strings.ReplaceAll(sql, "#", prefix))
	}
}

// TestOIDsOfHome compares all that has OIDs in it between a table on the home node and one on all nodes.
func TestOIDsOfHome(t *testing.T) {
	conn := client(t)
	oidsSetUp(t, conn, "oids")
	for _, query := range []string{
		"SELECT * FROM oids_t WHERE k = $1",
		"SELECT ROW(t.mood, t.moods), (t.pair).moods, ARRAY[ROW(1, t.pairs)] FROM oids_t t WHERE k = $1",
		"SELECT * FROM oids_t WHERE k IN ($1, $1 + 1, $1 + 2, $1 + 3) ORDER BY k LIMIT 1",
		"SELECT min(k), array_agg(moods), max(mood) FROM oids_t WHERE k BETWEEN $1 AND $1",
		"UPDATE oids_t SET moods = moods WHERE k = $1 RETURNING *",
		"UPDATE oids_t SET moods = moods WHERE k IN ($1, $1) RETURNING *",
	} {
		local := strings.ReplaceAll(query, "oids_t", "oids_local")
		for key := 1; key <= 20; key++ {
			for _, format := range []int16{0, 1} {
				value := [][]byte{binaryInt8(int64(key))}
				got := conn.PgConn().ExecParams(t.Context(), query, value, []uint32{20}, []int16{1}, []int16{format}).Read()
				want := conn.PgConn().ExecParams(t.Context(), local, value, []uint32{20}, []int16{1}, []int16{format}).Read()
				sameResult(t, fmt.Sprintf("%s, key %d, format %d", query, key, format), got, want)
			}
		}
	}
	oidsOfTable(t, conn)
}

// sameResult compares rows and types.
func sameResult(t *testing.T, what string, got, want *pgconn.Result) {
	t.Helper()
	if got.Err != nil || want.Err != nil {
		t.Errorf("%s: %v, %v", what, got.Err, want.Err)
		return
	}
	for i, f := range want.FieldDescriptions {
		if g := got.FieldDescriptions[i]; g.DataTypeOID != f.DataTypeOID {
			t.Errorf("%s: column %s is described as %+v, not %+v", what, f.Name, g, f)
		}
	}
	if len(got.Rows) != len(want.Rows) {
		t.Errorf("%s: %d rows, not %d", what, len(got.Rows), len(want.Rows))
		return
	}
	for i := range want.Rows {
		for j, v := range want.Rows[i] {
			if !bytes.Equal(got.Rows[i][j], v) {
				t.Errorf("%s: column %s is %q, not %q", what, want.FieldDescriptions[j].Name, got.Rows[i][j], v)
			}
		}
	}
}

// oidsOfTable compares table OIDs and column numbers with the catalog, which the home node answers.
func oidsOfTable(t *testing.T, conn *pgx.Conn) {
	oid, row := ask(t, conn, "SELECT 'oids_t'::regclass::oid"), ask(t, conn, "SELECT 'oids_t'::regtype::oid")
	for key := 1; key <= 20; key++ {
		whole := conn.PgConn().ExecParams(t.Context(), fmt.Sprintf("SELECT t FROM oids_t t WHERE k = %d", key), nil, nil, nil, nil).Read()
		if whole.Err != nil || fmt.Sprint(whole.FieldDescriptions[0].DataTypeOID) != row {
			t.Errorf("key %d: a row is described as %+v, not type %s; %v", key, whole.FieldDescriptions, row, whole.Err)
		}
		for _, sql := range []string{"SELECT span FROM oids_t WHERE k = %d", "BEGIN; DECLARE c CURSOR FOR SELECT span FROM oids_t WHERE k = %d; FETCH c; COMMIT"} {
			results, err := conn.PgConn().Exec(t.Context(), fmt.Sprintf(sql, key)).ReadAll()
			if err != nil {
				t.Fatal(describe(err))
			}
			for _, r := range results {
				for _, f := range r.FieldDescriptions {
					if fmt.Sprint(f.TableOID) != oid || f.TableAttributeNumber != 7 {
						t.Errorf("key %d: %+v is not of table %s", key, f, oid)
					}
				}
			}
		}
	}
}

// TestOIDsInPgx lets pgx ask the catalog for the types once, and use them for rows of all nodes.
func TestOIDsInPgx(t *testing.T) {
	conn := client(t)
	oidsSetUp(t, conn, "oidspgx")
	run(t, conn, "CREATE TABLE oidspgx_ref (k bigint, at timestamptz, pairs oidspgx_pair[])", "SELECT create_reference_table('oidspgx_ref')")
	for name, mode := range allModes {
		conn := client(t)
		for _, typ := range []string{"oidspgx_mood", "oidspgx_mood[]", "oidspgx_pair", "oidspgx_pair[]"} {
			loaded, err := conn.LoadType(t.Context(), typ)
			if err != nil {
				t.Fatal(err)
			}
			conn.TypeMap().RegisterType(loaded)
		}
		moods, pair := []string{"happy", "sad"}, oidPair{"ok", []string{"sad", "ok"}}
		for key := 101; key <= 112; key++ {
			const insert = "INSERT INTO oidspgx_t (k, mood, moods, pair, pairs) VALUES ($1, $3, $4, $5, $6), ($2, $3, $4, $5, $6)"
			if mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol { // these know no types of arguments
				run1(t, conn, insert, mode, key, key+100, "ok", "{happy,sad}", `(ok,"{sad,ok}")`, `{"(ok,\"{sad,ok}\")","(ok,\"{sad,ok}\")"}`)
			} else {
				run1(t, conn, insert, mode, key, key+100, "ok", moods, pair, []oidPair{pair, pair})
				run1(t, conn, "INSERT INTO oidspgx_t (k, moods) VALUES ($1::bigint + 1000, $2), ($1::bigint + 2000, $2)", mode, key, moods)
				run1(t, conn, "INSERT INTO oidspgx_ref VALUES ($1, now(), $2)", mode, key, []oidPair{pair})
			}
			rows, err := conn.Query(t.Context(), "SELECT mood, moods, pair, pairs FROM oidspgx_t WHERE k IN ($1, $2)", mode, key, key+100)
			if err != nil {
				t.Fatal(describe(err))
			}
			n := 0
			for rows.Next() {
				n++
				var mood string
				var gotMoods []string
				var got oidPair
				var pairs []oidPair
				if err := rows.Scan(&mood, &gotMoods, &got, &pairs); err != nil {
					t.Fatalf("%s, key %d: %v", name, key, err)
				}
				if mood != "ok" || !slices.Equal(gotMoods, moods) || fmt.Sprint(got, pairs) != fmt.Sprint(pair, []oidPair{pair, pair}) {
					t.Errorf("%s, key %d: %v %v %v %v", name, key, mood, gotMoods, got, pairs)
				}
			}
			if rows.Err() != nil || n != 2 {
				t.Fatalf("%s, key %d: %d rows, %v", name, key, n, rows.Err())
			}
			run1(t, conn, "DELETE FROM oidspgx_t WHERE k IN ($1, $2) OR k > 1000", mode, key, key+100)
		}
	}
	onNodes(t, shared(), "postgres", func(node string, conn *pgx.Conn) {
		if got := ask(t, conn, "SELECT count(*), count(DISTINCT (at, pairs::text)) > 1 FROM oidspgx_ref WHERE pairs = '{\"(ok,\\\"{sad,ok}\\\")\"}'"); got != "36|true" {
			t.Errorf("%s has %s", node, got)
		}
	})
}

func run1(t *testing.T, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s\n%s", sql, describe(err))
	}
}

// TestOIDsInTransaction uses types that nobody else can see yet.
func TestOIDsInTransaction(t *testing.T) {
	conn := client(t)
	oidsSetUp(t, conn, "oidstx")
	run(t, conn, "BEGIN", "CREATE TYPE oidstx_new AS ENUM ('a', 'b')", "ALTER TABLE oidstx_t ADD COLUMN new oidstx_new[] DEFAULT '{b,a}'")
	array := ask(t, conn, "SELECT typarray FROM pg_type WHERE typname = 'oidstx_new'")
	element := ask(t, conn, "SELECT oid FROM pg_type WHERE typname = 'oidstx_new'")
	for key := 1; key <= 10; key++ {
		got := conn.PgConn().ExecParams(t.Context(), "SELECT new FROM oidstx_t WHERE k = $1", [][]byte{fmt.Append(nil, key)}, []uint32{20}, nil, []int16{1}).Read()
		if got.Err != nil {
			t.Fatal(describe(got.Err))
		}
		if oid := fmt.Sprint(got.FieldDescriptions[0].DataTypeOID); oid != array {
			t.Errorf("key %d: the type is %s, not %s", key, oid, array)
		}
		var inside uint32
		for _, b := range got.Rows[0][0][8:12] {
			inside = inside<<8 | uint32(b)
		}
		if fmt.Sprint(inside) != element {
			t.Errorf("key %d: the elements' type is %d, not %s", key, inside, element)
		}
	}
	run(t, conn, "ROLLBACK")
}

// TestOIDsInCopy passes binary COPY data out and in again, and through cursors.
func TestOIDsInCopy(t *testing.T) {
	t.Run("pooled", func(t *testing.T) { oidsInCopy(t, "SELECT 1") })
	t.Run("kept connections", func(t *testing.T) { oidsInCopy(t, "SELECT pg_advisory_lock(4711)") })
	t.Run("changed schema", func(t *testing.T) { oidsInCopy(t, "BEGIN", "CREATE TABLE oidscopy_more (a int)") })
}

func oidsInCopy(t *testing.T, first ...string) {
	conn := client(t)
	oidsSetUp(t, conn, "oidscopy")
	defer run(t, conn, "ROLLBACK", "DROP TABLE oidscopy_t, oidscopy_local", "DROP TYPE oidscopy_pairs, oidscopy_pair, oidscopy_mood")
	run(t, conn, first...)
	want := copied(t, conn, "COPY (SELECT * FROM oidscopy_local ORDER BY k) TO STDOUT (FORMAT binary)")
	all := copied(t, conn, "COPY oidscopy_t TO STDOUT (FORMAT binary)")
	if len(all) != len(want) {
		t.Errorf("%d bytes, not %d", len(all), len(want))
	}
	run(t, conn, "DELETE FROM oidscopy_t")
	for _, data := range [][]byte{all, want} {
		if _, err := conn.PgConn().CopyFrom(t.Context(), bytes.NewReader(data), "COPY oidscopy_t FROM STDIN (FORMAT binary)"); err != nil {
			t.Fatal(describe(err))
		}
		if got := copied(t, conn, "COPY (SELECT * FROM oidscopy_t ORDER BY k) TO STDOUT (FORMAT binary)"); !bytes.Equal(got, want) {
			t.Errorf("other data came back:\n%q\n%q", got, want)
		}
		for key := 1; key <= 10; key++ {
			one := fmt.Sprintf("COPY (SELECT * FROM oidscopy_t WHERE k = %d) TO STDOUT (FORMAT binary)", key)
			if got, want := copied(t, conn, one), copied(t, conn, strings.Replace(one, "_t", "_local", 1)); !bytes.Equal(got, want) {
				t.Errorf("%s gave other data:\n%q\n%q", one, got, want)
			}
		}
		run(t, conn, "DELETE FROM oidscopy_t")
	}
	run(t, conn, "INSERT INTO oidscopy_t SELECT * FROM oidscopy_local")
	for key := 1; key <= 10; key++ {
		binaryCursor(t, conn, key)
	}
}

func copied(t *testing.T, conn *pgx.Conn, sql string) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := conn.PgConn().CopyTo(t.Context(), &out, sql); err != nil {
		t.Fatalf("%s\n%s", sql, describe(err))
	}
	return out.Bytes()
}

// binaryCursor reads a row through a binary cursor.
func binaryCursor(t *testing.T, conn *pgx.Conn, key int) {
	t.Helper()
	ctx := t.Context()
	want := conn.PgConn().ExecParams(ctx, fmt.Sprintf("SELECT pairs FROM oidscopy_local WHERE k = %d", key), nil, nil, nil, []int16{1}).Read()
	if conn.PgConn().TxStatus() == 'I' {
		run(t, conn, "BEGIN")
		defer run(t, conn, "COMMIT")
	}
	defer run(t, conn, "CLOSE c")
	if _, err := conn.PgConn().Exec(ctx, fmt.Sprintf("DECLARE c BINARY CURSOR FOR SELECT pairs FROM oidscopy_t WHERE k = %d", key)).ReadAll(); err != nil {
		t.Fatal(describe(err))
	}
	results, err := conn.PgConn().Exec(ctx, "FETCH c").ReadAll()
	if err != nil {
		t.Fatal(describe(err))
	}
	sameResult(t, fmt.Sprint("cursor, key ", key), results[0], want)
}

// TestOIDsInCopyOfASchema passes binary COPY data into a table of a distributed schema on another node than home, in pieces of all sizes.
// It goes there with the home node's OIDs in it: PostgreSQL does not compare those of types that users made.
func TestOIDsInCopyOfASchema(t *testing.T) {
	conn := client(t)
	oidsSetUp(t, conn, "oidsten")
	want := copied(t, conn, "COPY (SELECT * FROM oidsten_local ORDER BY k) TO STDOUT (FORMAT binary)")
	for i := range 6 { // some of them are not on the home node
		table := fmt.Sprintf("oidsten%d.t", i)
		run(t, conn, fmt.Sprintf("CREATE SCHEMA oidsten%d", i), "CREATE TABLE "+table+" (LIKE oidsten_local)", fmt.Sprintf("SELECT create_distributed_schema('oidsten%d')", i))
		into := "COPY " + table + " FROM STDIN (FORMAT binary)"
		for _, size := range []int{1, 7, 100, 1 << 20} {
			if _, err := conn.PgConn().CopyFrom(t.Context(), &pieces{want, size}, into); err != nil {
				t.Fatal(describe(err))
			}
			if got := copied(t, conn, "COPY (SELECT * FROM "+table+" ORDER BY k) TO STDOUT (FORMAT binary)"); !bytes.Equal(got, want) {
				t.Errorf("%s: other data came back:\n%q\n%q", table, got, want)
			}
			_, err := conn.PgConn().CopyFrom(t.Context(), &pieces{want[:len(want)-9], size}, into)
			if err == nil {
				t.Error("cut off data was taken")
			}
			expect(t, conn, "30|sad", "SELECT count(*), min((pair).mood)::text FROM "+table)
			run(t, conn, "TRUNCATE "+table)
		}
	}
}

// pieces reads data in pieces of a size.
type pieces struct {
	data []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.data)
	p.data = p.data[n:]
	return n, nil
}
