package integration

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

var allModes = map[string]pgx.QueryExecMode{
	"simple": pgx.QueryExecModeSimpleProtocol, "exec": pgx.QueryExecModeExec, "describe": pgx.QueryExecModeDescribeExec,
	"cached describe": pgx.QueryExecModeCacheDescribe, "prepared": pgx.QueryExecModeCacheStatement,
}

func TestAllQueryModes(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE mode_t (id bigint PRIMARY KEY, v text, n numeric, at timestamptz, tags text[], j jsonb)",
		"SELECT create_distributed_table('mode_t', 'id')")
	id := 0
	for name, mode := range allModes {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				id++
				at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
				_, err := conn.Exec(t.Context(), "INSERT INTO mode_t VALUES ($1, $2, $3, $4, $5, $6)",
					mode, id, fmt.Sprint("it's ", id), "12.340", at, []string{"a", "b,c"}, `{"k": [1, 2]}`)
				if err != nil {
					t.Fatal(describe(err))
				}
				var v, n, j string
				var back time.Time
				var tags []string
				err = conn.QueryRow(t.Context(), "SELECT v, n::text, at, tags, j::text FROM mode_t WHERE id = $1", mode, id).Scan(&v, &n, &back, &tags, &j)
				if err != nil || v != fmt.Sprint("it's ", id) || n != "12.340" || !back.Equal(at) || len(tags) != 2 || tags[1] != "b,c" || j != `{"k": [1, 2]}` {
					t.Fatalf("row %d came back as %q %q %v %q %q, error %v", id, v, n, back, tags, j, err)
				}
				tag, err := conn.Exec(t.Context(), "UPDATE mode_t SET v = 'u' WHERE id = $1", mode, id)
				if err != nil || tag.String() != "UPDATE 1" {
					t.Fatalf("%q %v", tag, err)
				}
			}
			_, err := conn.Exec(t.Context(), "INSERT INTO mode_t (id) VALUES ($1)", mode, id)
			refused(t, err, "23505", "mode_t_pkey")
			_, err = conn.Exec(t.Context(), "SELECT nothing FROM mode_t WHERE id = $1", mode, id)
			refused(t, err, "42703", "nothing")
			_, err = conn.Exec(t.Context(), "SELEC 1", mode)
			refused(t, err, "42601", "SELEC")
		})
	}
	checkPlaced(t, shared(), "mode_t", "id", id)
}

func TestBatchesOverSeveralNodes(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE batch_t (id bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('batch_t', 'id')")
	t.Run("inserts and reads", func(t *testing.T) {
		b := &pgx.Batch{}
		for i := range 300 {
			b.Queue("INSERT INTO batch_t VALUES ($1, $2)", i, fmt.Sprint("v", i))
		}
		for i := range 300 {
			b.Queue("SELECT v FROM batch_t WHERE id = $1", i)
		}
		results := conn.SendBatch(t.Context(), b)
		for range 300 {
			if _, err := results.Exec(); err != nil {
				t.Fatal(describe(err))
			}
		}
		for i := range 300 {
			var v string
			if err := results.QueryRow().Scan(&v); err != nil || v != fmt.Sprint("v", i) {
				t.Fatalf("row %d: %q %v", i, v, err)
			}
		}
		if err := results.Close(); err != nil {
			t.Fatal(err)
		}
		checkPlaced(t, shared(), "batch_t", "id", 300)
	})
	t.Run("one bad statement undoes all", func(t *testing.T) {
		b := &pgx.Batch{}
		for i := 1000; i < 1030; i++ {
			b.Queue("INSERT INTO batch_t VALUES ($1, 'x')", i)
		}
		b.Queue("INSERT INTO batch_t VALUES ($1, 'twice')", 5)
		b.Queue("INSERT INTO batch_t VALUES ($1, 'never')", 2000)
		refused(t, conn.SendBatch(t.Context(), b).Close(), "23505")
		checkPlaced(t, shared(), "batch_t", "id", 300)
		expect(t, conn, "v7", "SELECT v FROM batch_t WHERE id = 7")
	})
	t.Run("pipelines with a Sync after each", func(t *testing.T) {
		p := conn.PgConn().StartPipeline(t.Context())
		const n = 100
		for i := range n {
			p.SendQueryParams("UPDATE batch_t SET v = v || '!' WHERE id = $1 RETURNING v", [][]byte{fmt.Append(nil, i)}, nil, nil, nil)
			if i%10 == 3 {
				p.SendQueryParams("SELECT 1/$1::int", [][]byte{[]byte("0")}, nil, nil, nil)
			}
			if err := p.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		updated, failed, syncs := 0, 0, 0
		for syncs < n {
			r, err := p.GetResults()
			var e *pgconn.PgError
			switch {
			case errors.As(err, &e):
				failed++
				continue
			case err != nil:
				t.Fatal(err)
			}
			switch r := r.(type) {
			case *pgconn.ResultReader:
				res := r.Read()
				if errors.As(res.Err, &e) {
					failed++
				} else if res.Err == nil {
					updated++
				}
			case *pgconn.PipelineSync:
				syncs++
			}
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		if updated != n || failed != n/10 {
			t.Errorf("%d updates answered and %d errors", updated, failed)
		}
		// The Sync is the end of an implicit transaction: an error undoes the update before it.
		expect(t, conn, "v3", "SELECT v FROM batch_t WHERE id = 3")
		expect(t, conn, "v4!", "SELECT v FROM batch_t WHERE id = 4")
	})
}

func TestPreparedStatements(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE prep_t (id bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('prep_t', 'id')")
	if _, err := conn.Prepare(t.Context(), "ins", "INSERT INTO prep_t VALUES ($1, $2)"); err != nil {
		t.Fatal(describe(err))
	}
	sel, err := conn.Prepare(t.Context(), "sel", "SELECT * FROM prep_t WHERE id = $1")
	if err != nil {
		t.Fatal(describe(err))
	}
	if len(sel.Fields) != 2 || sel.Fields[0].Name != "id" || len(sel.ParamOIDs) != 1 || sel.ParamOIDs[0] != 20 {
		t.Errorf("the description is %+v", sel)
	}
	for i := range 100 {
		if _, err := conn.Exec(t.Context(), "ins", i, "v"); err != nil {
			t.Fatal(describe(err))
		}
	}
	checkPlaced(t, shared(), "prep_t", "id", 100)
	t.Run("in SQL", func(t *testing.T) {
		run(t, conn, "CREATE TABLE prep_local (id bigint, v text)", "INSERT INTO prep_local VALUES (5, 'five')",
			"PREPARE l (bigint) AS SELECT v FROM prep_local WHERE id = $1")
		expect(t, conn, "five", "EXECUTE l (5)", pgx.QueryExecModeSimpleProtocol)
		expect(t, conn, "l", "SELECT name FROM pg_prepared_statements WHERE from_sql", pgx.QueryExecModeSimpleProtocol)
		run(t, conn, "DEALLOCATE l")
		fails(t, conn, "26000", "EXECUTE l (5)", `prepared statement "l" does not exist`)
		if _, err := conn.Exec(t.Context(), "PREPARE q (bigint) AS SELECT v FROM prep_t WHERE id = $1"); err != nil {
			refused(t, err, "0A000", "extended protocol")
		} else {
			expect(t, conn, "v", "EXECUTE q (5)", pgx.QueryExecModeSimpleProtocol)
			expect(t, conn, "v", "EXECUTE q (77)", pgx.QueryExecModeSimpleProtocol)
		}
	})
	t.Run("survive a change of the schema", func(t *testing.T) {
		other := connect(t, shared().DSN(1))
		st, err := conn.Prepare(t.Context(), "vonly", "SELECT v FROM prep_t WHERE id = $1")
		if err != nil {
			t.Fatal(describe(err))
		}
		run(t, other, "ALTER TABLE prep_t ADD COLUMN extra int DEFAULT 3", "CREATE INDEX ON prep_t (v)")
		for i := range 10 {
			expect(t, conn, "v", st.Name, i)
		}
		if _, err := conn.Exec(t.Context(), "ins", 500, "after"); err != nil {
			t.Error(describe(err))
		}
		expect(t, conn, "500|after|3", "SELECT * FROM prep_t WHERE id = 500")
		run(t, other, "ALTER TABLE prep_t ALTER v TYPE varchar(20)", "ALTER TABLE prep_t RENAME extra TO more")
		expect(t, conn, "500|after|3", "SELECT id, v, more FROM prep_t WHERE id = 500")
	})
	t.Run("a table that is distributed under a prepared statement", func(t *testing.T) {
		run(t, conn, "CREATE TABLE prep_later (id int PRIMARY KEY, v text)", "INSERT INTO prep_later SELECT i, 'v' || i FROM generate_series(1, 50) i")
		if _, err := conn.Prepare(t.Context(), "later", "SELECT v FROM prep_later WHERE id = $1"); err != nil {
			t.Fatal(describe(err))
		}
		expect(t, conn, "v9", "later", 9)
		run(t, connect(t, shared().DSN(1)), "SELECT create_distributed_table('prep_later', 'id')")
		for i := 1; i <= 50; i++ {
			expect(t, conn, fmt.Sprint("v", i), "later", i)
		}
	})
	t.Run("of the same name in many sessions", func(t *testing.T) {
		for i := range 30 {
			c := connect(t, shared().DSN(0))
			if _, err := c.Prepare(t.Context(), "same", fmt.Sprintf("SELECT %d + $1::int", i)); err != nil {
				t.Fatal(describe(err))
			}
			expect(t, c, fmt.Sprint(i+1), "same", 1)
			defer func() { expect(t, c, fmt.Sprint(i+2), "same", 2) }()
		}
	})
}

func TestBigValuesAndResults(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE big_t (id bigint PRIMARY KEY, v bytea, w text)", "SELECT create_distributed_table('big_t', 'id')")
	const size = 5 << 20
	big := make([]byte, size)
	for i := range big {
		big[i] = byte(i * 7)
	}
	for id := range 4 {
		mode := []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol}[id%2]
		if _, err := conn.Exec(t.Context(), "INSERT INTO big_t VALUES ($1, $2, $3)", mode, id, big, strings.Repeat("x", size)); err != nil {
			t.Fatal(describe(err))
		}
		var back []byte
		var w string
		if err := conn.QueryRow(t.Context(), "SELECT v, w FROM big_t WHERE id = $1", mode, id).Scan(&back, &w); err != nil {
			t.Fatal(describe(err))
		}
		if string(back) != string(big) || len(w) != size {
			t.Errorf("row %d: %d and %d bytes came back", id, len(back), len(w))
		}
	}
	run(t, conn, "CREATE TABLE big_rows (tenant int, n int, pad text)", "SELECT create_distributed_table('big_rows', 'tenant')",
		"INSERT INTO big_rows SELECT 7, i, repeat('p', 200) FROM generate_series(1, 100000) i")
	checkPlaced(t, shared(), "big_rows", "tenant", 100000)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	rows, err := conn.Query(t.Context(), "SELECT n, pad FROM big_rows WHERE tenant = 7 ORDER BY n")
	if err != nil {
		t.Fatal(describe(err))
	}
	n := 0
	for rows.Next() {
		n++
		if n == 50000 {
			runtime.ReadMemStats(&after) // client and router are both in this process
		}
	}
	if rows.Err() != nil || n != 100000 {
		t.Errorf("%d rows, %v", n, rows.Err())
	}
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 16<<20 {
		t.Errorf("reading 20 MB of rows made the heap grow by %d MB", grown>>20)
	}
}

// TestPortals reads a portal in pieces and closes it in the middle.
func TestPortals(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE portal_t (tenant int, n int)", "SELECT create_distributed_table('portal_t', 'tenant')",
		"INSERT INTO portal_t SELECT 3, i FROM generate_series(1, 100) i")
	f := conn.PgConn().Frontend()
	f.Send(&pgproto3.Parse{Query: "BEGIN"})
	f.Send(&pgproto3.Bind{})
	f.Send(&pgproto3.Execute{})
	f.Send(&pgproto3.Parse{Name: "p", Query: "SELECT n FROM portal_t WHERE tenant = $1 ORDER BY n"})
	f.Send(&pgproto3.Describe{ObjectType: 'S', Name: "p"})
	f.Send(&pgproto3.Bind{DestinationPortal: "c", PreparedStatement: "p", Parameters: [][]byte{[]byte("3")}})
	f.Send(&pgproto3.Execute{Portal: "c", MaxRows: 30})
	f.Send(&pgproto3.Execute{Portal: "c", MaxRows: 30})
	f.Send(&pgproto3.Sync{})
	f.Send(&pgproto3.Execute{Portal: "c"})
	f.Send(&pgproto3.Close{ObjectType: 'P', Name: "c"})
	f.Send(&pgproto3.Execute{Portal: "c"})
	f.Send(&pgproto3.Sync{})
	if err := f.Flush(); err != nil {
		t.Fatal(err)
	}
	var seen []string
	rows := 0
	for syncs := 0; syncs < 2; {
		msg, err := f.Receive()
		if err != nil {
			t.Fatal(err)
		}
		switch m := msg.(type) {
		case *pgproto3.DataRow:
			rows++
			continue
		case *pgproto3.ErrorResponse:
			seen = append(seen, m.Code)
		case *pgproto3.CommandComplete:
			seen = append(seen, string(m.CommandTag))
		case *pgproto3.ReadyForQuery:
			syncs++
			seen = append(seen, "ready "+string(m.TxStatus))
		default:
			seen = append(seen, strings.TrimPrefix(fmt.Sprintf("%T", m), "*pgproto3."))
		}
	}
	want := "ParseComplete BindComplete BEGIN ParseComplete ParameterDescription RowDescription BindComplete PortalSuspended PortalSuspended ready T " +
		"SELECT 40 CloseComplete 34000 ready E"
	if got := strings.Join(seen, " "); got != want || rows != 100 {
		t.Errorf("%d rows and\n%s\nnot\n%s", rows, got, want)
	}
	hangUp(conn)
}

func TestCursors(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE cursor_t (tenant int, n int)", "SELECT create_distributed_table('cursor_t', 'tenant')",
		"INSERT INTO cursor_t SELECT 3, i FROM generate_series(1, 100) i", "BEGIN",
		"DECLARE c CURSOR FOR SELECT n FROM cursor_t WHERE tenant = 3 ORDER BY n")
	expect(t, conn, "1\n2", "FETCH 2 FROM c")
	run(t, conn, "MOVE 50 FROM c")
	expect(t, conn, "53", "FETCH NEXT FROM c")
	run(t, conn, "CLOSE c")
	fails(t, conn, "34000", "FETCH NEXT FROM c")
	run(t, conn, "ROLLBACK", "DECLARE h SCROLL CURSOR WITH HOLD FOR SELECT n FROM cursor_t WHERE tenant = 3 ORDER BY n")
	expect(t, conn, "100", "FETCH LAST FROM h")
	expect(t, conn, "99", "FETCH PRIOR FROM h")
	run(t, conn, "CLOSE h")
}

func TestCancel(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE cancel_t (id bigint PRIMARY KEY)", "SELECT create_distributed_table('cancel_t', 'id')")
	for _, sql := range []string{
		"SELECT pg_sleep(60)", "SELECT pg_sleep(60) FROM cancel_t WHERE id = 1 UNION ALL SELECT pg_sleep(60)",
	} {
		started := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			close(started)
			_, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
			done <- err
		}()
		<-started
		waitFor(t, "the statement to run", func() bool {
			running := 0
			onNodes(t, shared(), "postgres", func(_ string, c *pgx.Conn) {
				var n int
				_ = c.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'").Scan(&n)
				running += n
			})
			return running > 0
		})
		if err := conn.PgConn().CancelRequest(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-done:
			refused(t, err, "57014", "canceling statement due to user request")
		case <-time.After(10 * time.Second):
			t.Fatal("the statement goes on")
		}
		expect(t, conn, "still here", "SELECT 'still here'")
	}
	t.Run("through another router", func(t *testing.T) { cancelElsewhere(t, conn) })
	// Another session's key cancels nothing.
	other := client(t)
	if err := other.PgConn().CancelRequest(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, conn, "1", "SELECT 1")
	run(t, conn, "SET statement_timeout = '50ms'")
	fails(t, conn, "57014", "SELECT pg_sleep(10)", "statement timeout")
}

// cancelElsewhere sends the request to a router that does not serve the client, as a load balancer may.
func cancelElsewhere(t *testing.T, conn *pgx.Conn) {
	done := make(chan error, 1)
	go func() {
		_, err := conn.PgConn().Exec(context.Background(), "SELECT pg_sleep(60)").ReadAll()
		done <- err
	}()
	waitFor(t, "the statement to run", func() bool {
		home, release := nodeConnection(t, shared(), "node1", "postgres")
		defer release()
		return ask(t, home, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") == "1"
	})
	host, port := shared().Address(1)
	request, err := (&pgproto3.CancelRequest{ProcessID: conn.PgConn().PID(), SecretKey: conn.PgConn().SecretKey()}).Encode(nil)
	if err != nil {
		t.Fatal(err)
	}
	link, err := net.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	if _, err := link.Write(request); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-done:
		refused(t, err, "57014", "canceling statement due to user request")
	case <-time.After(10 * time.Second):
		t.Error("the statement goes on")
		if err := conn.PgConn().CancelRequest(t.Context()); err != nil {
			t.Fatal(err)
		}
		<-done
	}
}

// TestClientDies drops a client's connection in a transaction on several nodes: its locks go.
func TestClientDies(t *testing.T) {
	conn := client(t)
	a, b := accounts(t, conn, "dies_t", 20)
	dying := client(t)
	run(t, dying, "BEGIN", fmt.Sprintf("UPDATE dies_t SET balance = 0 WHERE id = %d", a), fmt.Sprintf("UPDATE dies_t SET balance = 0 WHERE id = %d", b))
	if err := dying.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}
	run(t, conn, "SET lock_timeout = '10s'", fmt.Sprintf("UPDATE dies_t SET balance = balance + 1 WHERE id = %d", a),
		fmt.Sprintf("UPDATE dies_t SET balance = balance + 1 WHERE id = %d", b))
	if got := totals(t, shared(), "dies_t", "balance"); got != 2002 {
		t.Errorf("the balances are %d together, not 2002", got)
	}
}

// waitFor asks again and again, because what a server process does cannot be waited on.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long for %s", what)
		}
		<-tick.C
	}
}

func TestErrorsKeepAllFields(t *testing.T) {
	conn := client(t)
	plain := connect(t, shared().NodeDSN("node1"))
	run(t, conn, "CREATE TABLE err_t (id bigint PRIMARY KEY, n int CONSTRAINT positive CHECK (n > 0), u text NOT NULL)",
		`CREATE FUNCTION err_raise() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'mine' USING ERRCODE = 'SH001',
			DETAIL = 'd', HINT = 'h', COLUMN = 'c', CONSTRAINT = 'k', DATATYPE = 't', TABLE = 'x', SCHEMA = 's'; END $$`)
	for _, sql := range []string{
		"SELECT 1/0", "SELECT nope", "SELECT * FROM nope", "SELEC 1", "SELECT 'x'::int", "INSERT INTO err_t VALUES (1, -1, 'u')",
		"INSERT INTO err_t VALUES (1, 1)", "SELECT err_raise()", "SELECT nope(1)", "SELECT '2020-99-99'::date", "CREATE TABLE err_t (a int)",
		"SELECT 1 FROM err_t GROUP BY id HAVING n > 1", "SELECT count(*) OVER w", "DROP TABLE nope", "SELECT ''''", "SELECT 'unterminated",
		"INSERT INTO err_t (id, id) VALUES (1, 2)", "SELECT 1; SELECT nope;", "SELECT $1", "BEGIN; SELECT nope", "ROLLBACK",
		"EXECUTE nothing", "DEALLOCATE nothing", "FETCH 1 FROM nothing", "SAVEPOINT x", "ALTER TABLE err_t ADD COLUMN n int",
		"SET nonsense = 1", "SHOW nonsense", "SET client_encoding = 'nope'", "SET TIME ZONE 'Nowhere/Land'", "VACUUM nope", "CREATE INDEX ON err_t (nope)",
		"GRANT SELECT ON err_t TO nobody_there", "SET ROLE nobody_there", "COPY err_t TO '/nope/file'", "LOCK TABLE err_t",
	} {
		_, got := conn.PgConn().Exec(t.Context(), sql).ReadAll()
		_, want := plain.PgConn().Exec(t.Context(), sql).ReadAll()
		if !samePgError(got, want) {
			t.Errorf("%s\n%+v\nis not\n%+v", sql, flat(got), flat(want))
		}
	}
	// A query is parsed in place of a COPY with a name that the router does not know, so the error is of another line of PostgreSQL.
	_, err := conn.PgConn().Exec(t.Context(), "COPY nope FROM STDIN").ReadAll()
	refused(t, err, "42P01", `relation "nope" does not exist`)
}

func flat(err error) any {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return *e
	}
	return err
}

func samePgError(a, b error) bool {
	var x, y *pgconn.PgError
	if !errors.As(a, &x) || !errors.As(b, &y) {
		return (a == nil) == (b == nil)
	}
	if strings.HasSuffix(x.File, ".go") { // the router's own words come from no line of PostgreSQL's source
		y.File, y.Line, y.Routine = x.File, x.Line, x.Routine
	}
	return *x == *y
}
