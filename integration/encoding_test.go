package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// encodings are client encodings with words that they can write. In the last five a character's second
// byte can be a backslash or another character of SQL.
var encodings = []struct{ name, words string }{
	{"LATIN1", "Été Über ñandú"},
	{"WIN1252", "€uro “quoted” Žiž"},
	{"KOI8R", "Привет мир Ёж"},
	{"EUC_JP", "日本語 表示 ソース"},
	{"SJIS", "表示 ソース 能力"},
	{"BIG5", "功能 許可 蓋子"},
	{"GBK", "誠實 乗法 縗布"},
	{"GB18030", "中文 漢字 乗法"},
	{"UHC", "똠방 한국 뷁어"},
}

// encoded is a script in another encoding, as PostgreSQL converts it.
func encoded(t *testing.T, conn *pgx.Conn, text, encoding string) []byte {
	t.Helper()
	var out []byte
	if err := conn.QueryRow(t.Context(), "SELECT convert_to($1, $2)", text, encoding).Scan(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestClientEncodings runs a script in other encodings against a plain PostgreSQL and through a router.
func TestClientEncodings(t *testing.T) {
	template, err := os.ReadFile("testdata/encoding.sql")
	if err != nil {
		t.Fatal(err)
	}
	plain := shardtest.StartPostgres(t)
	direct := connect(t, plain.DSN("", ""))
	routed := connect(t, narrow().DSN(0))
	for _, e := range encodings {
		t.Run(e.name, func(t *testing.T) {
			words := strings.Fields(e.words)
			text := strings.NewReplacer("ENCODING", e.name, "WORD1", words[0], "WORD2", words[1], "WORD3", words[len(words)-1]).Replace(string(template))
			script := filepath.Join(t.TempDir(), "script.sql")
			if err := os.WriteFile(script, encoded(t, direct, text, e.name), 0o600); err != nil {
				t.Fatal(err)
			}
			database := "enc_" + strings.ToLower(e.name)
			run(t, direct, "CREATE DATABASE "+database)
			run(t, routed, "CREATE DATABASE "+database)
			wantOut, wantErr := psqlScript(t, plain.DSN("", ""), database, script)
			gotOut, gotErr := psqlScript(t, narrow().DSN(0), database, script)
			if gotOut != wantOut || strings.Count(wantOut, "\n") < 20 {
				t.Errorf("the output differs (- PostgreSQL, + pgshoal):\n%s", difference(wantOut, gotOut))
			}
			if gotErr != wantErr {
				t.Errorf("the messages differ (- PostgreSQL, + pgshoal):\n%s", difference(wantErr, gotErr))
			}
		})
	}
	checkNoDrift(t, narrow())
}

// foreignClient is a connection in another encoding, without a driver that knows only UTF-8.
func foreignClient(t *testing.T, dsn, encoding string) *pgconn.PgConn {
	t.Helper()
	cfg, err := pgconn.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["client_encoding"] = encoding
	conn, err := pgconn.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// TestKeysInOtherEncodings checks that a key leads to the same node in whatever encoding it is written.
func TestKeysInOtherEncodings(t *testing.T) {
	conn := client(t)
	for _, e := range encodings {
		t.Run(e.name, func(t *testing.T) {
			table := "enc_" + strings.ToLower(e.name)
			run(t, conn, "CREATE TABLE "+table+" (k text PRIMARY KEY, n int, v text)", "SELECT create_distributed_table('"+table+"', 'k')")
			foreign := foreignClient(t, shared().DSN(0), e.name)
			for i, word := range strings.Fields(e.words) {
				raw := encoded(t, conn, word, e.name)
				writeForeign(t, foreign, table, raw, i)
				expect(t, conn, "6", "SELECT n FROM "+table+" WHERE k = $1", word+"0")
				expect(t, conn, "1", "SELECT count(*) FROM "+table+" WHERE k IN ('"+word+"0')")
				for _, suffix := range []string{"1", "2", "3"} {
					expect(t, conn, word+suffix, "SELECT v FROM "+table+" WHERE k = $1", word+suffix)
				}
				run(t, conn, "INSERT INTO "+table+" VALUES ('"+word+"u', 1, '"+word+"')")
				for _, way := range []struct {
					where, before, after string
					format               int16
				}{{"= $1", "", "u", 0}, {"= $1", "", "u", 1}, {"= ANY($1)", `{"`, `u"}`, 0}} {
					value := []byte(way.before + string(raw) + way.after)
					rows := foreign.ExecParams(t.Context(), "SELECT v FROM "+table+" WHERE k "+way.where, [][]byte{value}, nil, []int16{way.format}, []int16{way.format}).Read()
					if rows.Err != nil || len(rows.Rows) != 1 || !bytes.Equal(rows.Rows[0][0], raw) {
						t.Errorf("%s: %q, %v, not %q", word, rows.Rows, rows.Err, raw)
					}
				}
			}
			spreadForeign(t, conn, foreign, table, e.name, strings.Fields(e.words))
			copied := copyForeign(t, conn, foreign, table, e.name, strings.Fields(e.words))
			checkPlaced(t, shared(), table, "k", 8*len(strings.Fields(e.words))+copied)
		})
	}
}

// spreadForeign has statements over several nodes: their answers are PostgreSQL's, or they are refused with a way out.
func spreadForeign(t *testing.T, conn *pgx.Conn, c *pgconn.PgConn, table, encoding string, words []string) {
	t.Helper()
	var rows []string
	for _, word := range words {
		for _, n := range []string{"x", "y", "z"} {
			rows = append(rows, "('"+word+n+"', 9, '"+word+"')")
		}
	}
	insert := encoded(t, conn, "INSERT INTO "+table+" VALUES "+strings.Join(rows, ", ")+" RETURNING v", encoding)
	if got, err := c.Exec(t.Context(), string(insert)).ReadAll(); err != nil || len(got) != 1 || len(got[0].Rows) != len(rows) {
		t.Fatalf("%v, %v", got, err)
	}
	// The key of each new row is computed where the old one is.
	feed := encoded(t, conn, "INSERT INTO "+table+" SELECT k || '"+words[0]+"', 10, v FROM "+table+" WHERE n = 9", encoding)
	if _, err := c.Exec(t.Context(), string(feed)).ReadAll(); err != nil {
		refused(t, err, "0A000", "HINT: ")
	} else {
		for _, word := range words {
			expect(t, conn, word, "SELECT v FROM "+table+" WHERE k = $1", word+"x"+words[0])
		}
	}
	run(t, conn, "DELETE FROM "+table+" WHERE n = 10")
	for _, sql := range []string{
		"SELECT count(*) FROM " + table + " WHERE n = 9 AND v = '" + words[0] + "'",
		"SELECT v FROM " + table + " WHERE n = 9 ORDER BY k",
		"SELECT v, count(*), min(k) FROM " + table + " WHERE n = 9 GROUP BY v ORDER BY 2, 1",
		"SELECT k FROM " + table + " WHERE k IN ('" + words[0] + "x', '" + words[1] + "y') ORDER BY 1",
		"SELECT a.k, b.v FROM " + table + " a JOIN " + table + " b ON a.v = b.v WHERE a.n = 9 AND b.n = 9 AND a.k LIKE '" + words[0] + "%' ORDER BY 1, 2",
	} {
		want := ask(t, conn, sql)
		got, err := c.Exec(t.Context(), string(encoded(t, conn, sql, encoding))).ReadAll()
		if err != nil {
			refused(t, err, "0A000", "client encoding "+encoding, "HINT: ")
			continue
		}
		var lines [][]byte
		for _, row := range got[0].Rows {
			lines = append(lines, bytes.Join(row, []byte("|")))
		}
		if answer := bytes.Join(lines, []byte("\n")); !bytes.Equal(answer, encoded(t, conn, want, encoding)) {
			t.Errorf("%s: %q is not %q", sql, answer, want)
		}
	}
}

// copyForeign copies rows in the session's encoding and in UTF-8. In some encodings a character's second byte can be a backslash or a
// delimiter.
func copyForeign(t *testing.T, conn *pgx.Conn, c *pgconn.PgConn, table, encoding string, words []string) int {
	t.Helper()
	var rows []string
	for _, word := range words {
		rows = append(rows, word+"c\t1\t"+word+"\n")
	}
	text := strings.Join(rows, "")
	if _, err := c.CopyFrom(t.Context(), bytes.NewReader(encoded(t, conn, text, encoding)), "COPY "+table+" FROM STDIN"); err != nil {
		t.Error(describe(err))
	}
	for _, word := range words {
		expect(t, conn, word, "SELECT v FROM "+table+" WHERE k = $1", word+"c")
	}
	copied := len(words) + copyManyForeign(t, conn, c, table, encoding, words)
	utf8 := strings.ReplaceAll(text, "c\t", "d\t")
	if _, err := c.CopyFrom(t.Context(), strings.NewReader(utf8), "COPY "+table+" FROM STDIN (ENCODING 'utf-8')"); err != nil {
		t.Error(describe(err))
	}
	for _, word := range words {
		expect(t, conn, word, "SELECT v FROM "+table+" WHERE k = $1", word+"d")
	}
	return copied + len(words)
}

// copyManyForeign copies more than is converted at once, with a delimiter and a quote that are bytes of characters in some encodings.
func copyManyForeign(t *testing.T, conn *pgx.Conn, c *pgconn.PgConn, table, encoding string, words []string) int {
	t.Helper()
	const each = 300
	var rows strings.Builder
	for i := range each {
		for _, word := range words {
			fmt.Fprintf(&rows, "^%se%d^|%d|^%s^^%s^\n", word, i, i, word, strings.Repeat(word, 20))
		}
	}
	data := encoded(t, conn, rows.String(), encoding)
	sql := "COPY " + table + " FROM STDIN (FORMAT csv, DELIMITER '|', QUOTE '^', ENCODING '" + encoding + "')"
	tag, err := c.CopyFrom(t.Context(), bytes.NewReader(data), sql)
	if err != nil {
		t.Error(describe(err))
		return 0
	}
	if tag.RowsAffected() != int64(each*len(words)) {
		t.Errorf("%s: %s", encoding, tag)
	}
	for _, word := range words {
		for _, i := range []int{0, each / 2, each - 1} {
			expect(t, conn, fmt.Sprintf("%d|%s^%s", i, word, strings.Repeat(word, 20)), "SELECT n, v FROM "+table+" WHERE k = $1", fmt.Sprintf("%se%d", word, i))
		}
	}
	return each * len(words)
}

// writeForeign writes rows in all ways that reach a node: passed on, rewritten, prepared, in parts.
func writeForeign(t *testing.T, c *pgconn.PgConn, table string, word []byte, i int) {
	t.Helper()
	for _, sql := range []string{
		"INSERT INTO " + table + " VALUES ('@0', 5, NULL)",
		"UPDATE " + table + " SET n = n + 1 WHERE k = '@0' AND v IS NULL",
		"INSERT INTO " + table + " VALUES ('@' || '1', 0, '@1')", // the key is computed first
		"BEGIN; INSERT INTO " + table + " VALUES ('@2', 0, '@2'); COMMIT",
		"PREPARE p AS INSERT INTO " + table + " VALUES ($1, 0, $2); EXECUTE p('@3', '@3'); DEALLOCATE p",
	} {
		text := bytes.ReplaceAll([]byte(sql), []byte("@"), word)
		if _, err := c.Exec(t.Context(), string(text)).ReadAll(); err != nil {
			t.Fatalf("%s (%d): %s", sql, i, describe(err))
		}
	}
}

// installShoal does what the controller does for a database that was made from template0.
func installShoal(t *testing.T, c *cluster.Cluster, database string) {
	t.Helper()
	ids := map[string]catalog.Identity{}
	onNodes(t, c, "postgres", func(node string, conn *pgx.Conn) {
		id, ok, err := catalog.ReadIdentity(t.Context(), conn)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		ids[node] = id
	})
	onNodes(t, c, database, func(node string, conn *pgx.Conn) {
		if err := catalog.Bootstrap(t.Context(), conn, ids[node], catalog.RouterRole{}); err != nil {
			t.Fatal(err)
		}
	})
}

// TestServerEncoding has a database in LATIN1: keys are hashed as its servers store them, and rows that the
// nodes place themselves are found again.
func TestServerEncoding(t *testing.T) {
	run(t, client(t), "CREATE DATABASE enc_server ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
	installShoal(t, shared(), "enc_server")
	dsn := shared().RoleDSN(0, cluster.Superuser, cluster.Password, "enc_server")
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.RuntimeParams["client_encoding"] = "UTF8"
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer hangUp(conn)
	// In another locale such a name would be folded, and refused.
	run(t, conn, "CREATE TABLE Ärger (k int)", "INSERT INTO Ärger VALUES (1)", `DROP TABLE "Ärger"`)
	latin := foreignClient(t, dsn, "LATIN1")
	run(t, conn, "CREATE TABLE größe (k text PRIMARY KEY, v text)", "SELECT create_distributed_table('größe', 'k')")
	keys := []string{"é", "Übér", "ñ", "ß", "plain", "çà"}
	for _, k := range keys {
		run(t, conn, "INSERT INTO größe VALUES ('"+k+"1', '"+k+"')")
		if _, err := conn.Exec(t.Context(), "INSERT INTO größe VALUES ($1, $2)", k+"2", k); err != nil {
			t.Fatal(describe(err))
		}
		raw := encoded(t, client(t), "INSERT INTO größe VALUES ('"+k+"3', '"+k+"')", "LATIN1")
		if _, err := latin.Exec(t.Context(), string(raw)).ReadAll(); err != nil {
			t.Fatal(describe(err))
		}
	}
	look := func() {
		t.Helper()
		for _, k := range keys {
			for _, n := range []string{"1", "2", "3"} {
				expect(t, conn, k, "SELECT v FROM größe WHERE k = $1", k+n)
				expect(t, conn, k, "SELECT v FROM größe WHERE k = '"+k+n+"'")
				raw := encoded(t, client(t), k+n, "LATIN1")
				sql := encoded(t, client(t), "SELECT k FROM größe WHERE k = $1", "LATIN1")
				r := latin.ExecParams(t.Context(), string(sql), [][]byte{raw}, nil, nil, nil).Read()
				if r.Err != nil || len(r.Rows) != 1 || !bytes.Equal(r.Rows[0][0], raw) {
					t.Errorf("%s: %q, %v", k+n, r.Rows, r.Err)
				}
			}
		}
	}
	look()
	run(t, conn, "SELECT undistribute_table('größe')", "SELECT create_distributed_table('größe', 'k')")
	look()
	hangUp(conn)
	_ = latin.Close(t.Context())
	run(t, client(t), "DROP DATABASE enc_server")
}

// TestNamesThatTheLocaleFolds has a database whose locale folds letters beyond ASCII: there names without quotes are refused, with one in quotes
// in the hint, because the router's parser would take them for others.
func TestNamesThatTheLocaleFolds(t *testing.T) {
	localedef, err := exec.LookPath("localedef")
	if err != nil {
		t.Skip("there is no localedef to make a locale with")
	}
	dir, err := os.MkdirTemp("", "pgshoal-locale-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // the servers run as another user
		t.Fatal(err)
	}
	if out, err := exec.Command(localedef, "-i", "de_DE", "-f", "ISO-8859-1", filepath.Join(dir, "de_DE.ISO-8859-1")).CombinedOutput(); err != nil {
		t.Skipf("no locale can be made: %v\n%s", err, out)
	}
	t.Setenv("LOCPATH", dir)
	c := cluster.Start(t, cluster.Options{Nodes: 2})
	run(t, connect(t, c.DSN(0)), "CREATE DATABASE folds ENCODING 'LATIN1' LOCALE 'de_DE.ISO-8859-1' TEMPLATE template0")
	installShoal(t, c, "folds")
	conn := connect(t, c.RoleDSN(0, cluster.Superuser, cluster.Password, "folds", "default_query_exec_mode=simple_protocol", "client_encoding=UTF8"))
	run(t, conn, `CREATE TABLE "größe" (k text PRIMARY KEY, "Ärger" int)`, `SELECT create_distributed_table('größe', 'k')`,
		`INSERT INTO größe VALUES ('Ä', 1), ('Ö', 2), ('x', 3)`, `CREATE TABLE "ärger" (a int)`, `INSERT INTO "ärger" VALUES (7)`)
	for _, sql := range []string{"SELECT * FROM GRÖSSE, GRÖßE", "SELECT a FROM Ärger", "INSERT INTO GRÖßE VALUES ('y', 4)", "CREATE TABLE Öl (a int)", "SELECT 1 AS Über"} {
		fails(t, conn, "0A000", sql, "folds by its locale", "HINT: Write it in double quotes")
	}
	expect(t, conn, "3|1\n2|2\n1|3", `SELECT 4 - "Ärger", "Ärger" FROM größe ORDER BY "Ärger"`)
	expect(t, conn, "7", `SELECT a FROM "ärger"`)
	expect(t, conn, "Ö", `SELECT k FROM größe WHERE k = 'Ö' /* Ü */`)
}
