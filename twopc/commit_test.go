package twopc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

type sqlError string

func (e sqlError) Error() string    { return "error " + string(e) }
func (e sqlError) SQLState() string { return string(e) }

func TestClassify(t *testing.T) {
	for _, c := range []struct {
		err  error
		want answer
	}{
		{nil, yes},
		{errors.New("broken pipe"), lost},
		{context.DeadlineExceeded, lost},
		{sqlError("23503"), no},
		{sqlError("40001"), no},
		{sqlError("57014"), no},
		{sqlError("25P02"), no},
		{sqlError("25P03"), no},
		{sqlError("42704"), no},
		{sqlError("08006"), lost},
		{sqlError("57P01"), lost},
		{sqlError("57P02"), lost},
		{sqlError("57P03"), lost},
		{sqlError("53100"), lost}, // may be the PANIC of a commit whose record was written
		{sqlError("58030"), lost},
		{sqlError("XX000"), lost},
		{sqlError(""), lost},
		{fmt.Errorf("commit: %w", sqlError("23503")), no},
	} {
		if got := classify(c.err); got != c.want {
			t.Errorf("classify(%v) = %v, want %v", c.err, got, c.want)
		}
	}
}

// TestRealNodes is one test because starting servers takes most of the time.
func TestRealNodes(t *testing.T) {
	c := startNodes(t, 3)
	for _, test := range []struct {
		name string
		run  func(*testing.T, *testNodes)
	}{
		{"commit", testCommit},
		{"not kept", testNotKept},
		{"one participant", testAlone},
		{"deferred constraints", testDeferred},
		{"no open transaction", testNotOpen},
		{"cancel", testCancel},
		{"synchronous_commit", testSynchronousCommit},
		{"role", testRole},
		{"faults", testFaults},
		{"again", testAgain},
		{"pause", testPause},
		{"recover", testRecover},
		{"foreign", testForeign},
		{"databases", testDatabases},
		{"slow prepare", testSlowPrepare},
		{"concurrent", testConcurrentRecoveries},
		{"forget", testForget},
		{"settler", testSettler},
		{"inquire", testInquire},
		{"node crashes", testNodeCrashes},
	} {
		t.Run(test.name, func(t *testing.T) {
			c.tb = t
			test.run(t, c)
		})
		c.tb = t
	}
}

func testCommit(t *testing.T, c *testNodes) {
	x := c.begin(t, "app", "alice", "n1", "n2", "n3")
	c.must(Commit(t.Context(), x.id, x.list))
	x.wantState("ccc")
	if got := c.ask("n1", "app", "SELECT outcome, decided_by FROM pg_shoal.decisions WHERE gid = "+quote(x.gid)); len(got) != 1 || got[0] != "commit alice" {
		t.Errorf("decision is %q", got)
	}
	if err := Commit(t.Context(), x.id, nil); err == nil {
		t.Error("a transaction without participants committed")
	}
}

// testNotKept has sessions in which no statement may be kept prepared; one of them is not in a transaction.
func testNotKept(t *testing.T, c *testNodes) {
	for _, open := range []bool{true, false} {
		x := c.begin(t, "app", "alice", "n1", "n2", "n3")
		for _, p := range x.parts {
			p.none = true
		}
		want := "ccc"
		if !open {
			x.exec("n2", "ROLLBACK")
			want = "---"
		}
		if err := Commit(t.Context(), x.id, x.list); (err == nil) != open || !open && sqlState(err) != "25P01" {
			t.Errorf("with all open %v: %v", open, err)
		}
		x.wantState(want)
	}
}

func testAlone(t *testing.T, c *testNodes) {
	x := c.begin(t, "app", "", "n2")
	c.must(Commit(t.Context(), x.id, x.list))
	x.wantState("c")
}

func testDeferred(t *testing.T, c *testNodes) {
	for _, node := range []string{"n1", "n2", "n3"} {
		x := c.begin(t, "app", "", "n1", "n2", "n3")
		x.exec(node, "INSERT INTO line VALUES ('nobody')")
		err := Commit(t.Context(), x.id, x.list)
		if sqlState(err) != "23503" || errors.Is(err, ErrInDoubt) {
			t.Errorf("constraint violated on %s: %v", node, err)
		}
		x.wantState("---")
	}
}

// testNotOpen makes sure of what PostgreSQL does not: that there is a transaction to prepare.
func testNotOpen(t *testing.T, c *testNodes) {
	for _, node := range []string{"n1", "n2"} {
		x := c.begin(t, "app", "", "n1", "n2", "n3")
		_ = x.parts[node].Exec(t.Context(), "SELECT 1/0")
		if err := Commit(t.Context(), x.id, x.list); sqlState(err) != "25P02" {
			t.Errorf("failed transaction on %s: %v", node, err)
		}
		x.wantState("---")

		x = c.begin(t, "app", "", "n1", "n2", "n3")
		x.exec(node, "ROLLBACK")
		if err := Commit(t.Context(), x.id, x.list); sqlState(err) != "25P01" {
			t.Errorf("no transaction on %s: %v", node, err)
		}
		x.wantState("---")
	}
}

func testCancel(t *testing.T, c *testNodes) {
	for point, want := range map[string]string{
		"before prepare n2": "---", "before prepare n3": "---",
		"before commit n1": "ccc", "before commit prepared n2": "ccc", "before commit prepared n3": "ccc",
	} {
		x := c.begin(t, "app", "", "n1", "n2", "n3")
		ctx, cancel := context.WithCancel(t.Context())
		err := Driver{Hook: on(point, cancel)}.Commit(ctx, x.id, x.list)
		cancel()
		if (err == nil) != (want == "ccc") || errors.Is(err, ErrInDoubt) {
			t.Errorf("cancelled %s: %v", point, err)
		}
		x.awaitOver()
		c.recoverAll()
		x.wantState(want)
	}
}

// testSynchronousCommit reads the setting when the transaction ends, in a deferred trigger.
func testSynchronousCommit(t *testing.T, c *testNodes) {
	for set, want := range map[string]string{"off": "on", "local": "on", "on": "on", "remote_apply": "remote_apply"} {
		x := c.begin(t, "app", "", "n1", "n2")
		for _, node := range []string{"n1", "n2"} {
			x.exec(node, "SET synchronous_commit = "+set+"; INSERT INTO at_end DEFAULT VALUES")
		}
		c.must(Commit(t.Context(), x.id, x.list))
		for _, node := range []string{"n1", "n2"} {
			if got := c.ask(node, "app", "DELETE FROM at_end WHERE setting IS NOT NULL RETURNING setting"); len(got) != 1 || got[0] != want {
				t.Errorf("synchronous_commit %s became %s on %s, want %s", set, got, node, want)
			}
			results, err := x.parts[node].conn.Exec(t.Context(), "SHOW synchronous_commit").ReadAll()
			c.must(err)
			if after := texts(results)[0][0]; after != set {
				t.Errorf("synchronous_commit %s is %s after the transaction", set, after)
			}
		}
	}
}

// testRole has a transaction that a role owns which the session has left when it is prepared.
func testRole(t *testing.T, c *testNodes) {
	for _, fail := range []bool{false, true} {
		x := c.begin(t, "app", "alice", "n1", "n2", "n3")
		for _, p := range x.list {
			c.must(exec(t.Context(), p, "SET LOCAL ROLE bob"))
		}
		want := "ccc"
		if fail {
			x.exec("n3", "RESET ROLE")
			_ = x.parts["n3"].Exec(t.Context(), "SELECT 1/0")
			want = "---"
		}
		if err := Commit(t.Context(), x.id, x.list); (err != nil) != fail {
			t.Error(err)
		}
		x.wantState(want)
		results, err := x.parts["n2"].conn.Exec(t.Context(), "SELECT current_user, session_user").ReadAll()
		c.must(err)
		if got := fmt.Sprint(texts(results)[0]); got != "[alice alice]" {
			t.Errorf("the session is now %s", got)
		}
	}
}

// testFaults breaks something at every named point, and then recovery works.
func testFaults(t *testing.T, c *testNodes) {
	points := []string{"prepare n2", "prepare n3", "commit n1", "commit prepared n2", "commit prepared n3"}
	for _, point := range points {
		node := point[strings.LastIndexByte(point, ' ')+1:]
		for fault, at := range map[string]struct {
			point string
			do    func(*transaction)
		}{
			"backend killed before":     {"before " + point, func(x *transaction) { x.kill(node) }},
			"backend killed after":      {"after " + point, func(x *transaction) { x.kill(node) }},
			"answer lost":               {"before " + point, func(x *transaction) { x.parts[node].loseAnswer.Store(true) }},
			"coordinator killed before": {"before " + point, func(x *transaction) { x.crash() }},
			"coordinator killed after":  {"after " + point, func(x *transaction) { x.crash() }},
		} {
			x := c.begin(t, "app", "", "n1", "n2", "n3")
			err := Driver{Hook: on(at.point, func() { at.do(x) })}.Commit(t.Context(), x.id, x.list)
			x.awaitOver()
			c.recoverAll()
			got := x.state()
			switch {
			case err == nil && got != "ccc", err != nil && !errors.Is(err, ErrInDoubt) && got != "---", got != "ccc" && got != "---":
				t.Errorf("%s, %s: Commit says %v, state is %q", point, fault, err, got)
			}
			if fault == "answer lost" && point == "commit n1" && (got != "ccc" || !errors.Is(err, ErrInDoubt)) {
				t.Errorf("%s, %s: Commit says %v, state is %q", point, fault, err, got)
			}
			x.crash()
		}
	}
}

// testAgain loses a participant after the decision: who is told of the commit finds it there all the same.
func testAgain(t *testing.T, c *testNodes) {
	for fault, do := range map[string]func(*transaction){
		"backend killed": func(x *transaction) { x.kill("n2") },
		"answer lost":    func(x *transaction) { x.parts["n2"].loseAnswer.Store(true) },
	} {
		x := c.begin(t, "app", "alice", "n1", "n2", "n3")
		c.must(Driver{
			Hook: on("before commit prepared n2", func() { do(x) }),
			Again: func(ctx context.Context, node string) (Participant, func(), error) {
				conn, err := pgconn.Connect(ctx, c.servers[node].DSN("alice", "app"))
				return &testPart{name: node, conn: conn, gone: &x.crashed}, func() { _ = conn.Close(ctx) }, err
			},
		}.Commit(t.Context(), x.id, x.list))
		if got := x.state(); got != "ccc" {
			t.Errorf("%s: the state is %q right after the commit", fault, got)
		}
		x.crash()
	}
}

// awaitOver waits until no backend of the transaction is in the middle of anything.
func (x *transaction) awaitOver() {
	for name, p := range x.parts {
		x.c.eventually("the backend has ended what it did", func() bool {
			return len(x.c.ask(name, "", fmt.Sprintf("SELECT 1 FROM pg_stat_activity WHERE pid = %d AND state <> 'idle'", p.conn.PID()))) == 0
		})
	}
}

// testPause stops the coordinator at a point, lets recovery decide, and wakes it up.
func testPause(t *testing.T, c *testNodes) {
	for point, want := range map[string]string{
		"after prepare n3": "---", "before commit n1": "---",
		"after commit n1": "ccc", "before commit prepared n2": "ccc",
	} {
		x := c.begin(t, "app", "", "n1", "n2", "n3")
		paused, wake := make(chan struct{}), make(chan struct{})
		result := make(chan error)
		go func() {
			hook := on(point, func() { close(paused); <-wake })
			result <- Driver{Hook: hook}.Commit(t.Context(), x.id, x.list)
		}()
		<-paused
		c.eventually("the others have prepared", func() bool {
			return strings.HasSuffix(x.state(), "pp") || strings.HasSuffix(x.state(), "pc")
		})
		if report := c.recoverAll(); report.Settled() != 1 {
			t.Errorf("paused %s: %+v", point, report)
		}
		x.wantState(want)
		close(wake)
		err := <-result
		if (err == nil) != (want == "ccc") {
			t.Errorf("paused %s: %v", point, err)
		}
		if want == "---" && sqlState(err) != "40001" {
			t.Errorf("paused %s: %v, want a serialization failure", point, err)
		}
		x.wantState(want)
	}
}

var _ interface{ SQLState() string } = (*pgconn.PgError)(nil)
