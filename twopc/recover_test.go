package twopc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

// leaveInDoubt crashes the coordinator at the point.
func (c *testNodes) leaveInDoubt(t *testing.T, database, point string, names ...string) *transaction {
	t.Helper()
	x := c.begin(t, database, "", names...)
	_ = Driver{Hook: on(point, x.crash)}.Commit(t.Context(), x.id, x.list)
	x.awaitOver()
	return x
}

func testRecover(t *testing.T, c *testNodes) {
	before := c.leaveInDoubt(t, "app", "before commit n1", "n1", "n2", "n3")
	after := c.leaveInDoubt(t, "app", "after commit n1", "n1", "n2", "n3")
	before.wantState("-pp")
	after.wantState("cpp")

	report, err := Recover(t.Context(), c, testCluster, c.names, time.Hour)
	if err != nil || len(report.Transactions) != 0 {
		t.Errorf("within the grace: %+v, %v", report, err)
	}
	before.wantState("-pp")

	report = c.recoverAll()
	got := make(map[string]string)
	for _, x := range report.Transactions {
		got[x.GID] = x.Outcome + " " + x.Decider + " " + strings.Join(x.Nodes, ",") + " " + x.Database
	}
	if len(got) != 2 || got[before.gid] != "rolled back n1 n2,n3 app" || got[after.gid] != "committed n1 n2,n3 app" {
		t.Errorf("report: %v", got)
	}
	before.wantState("---")
	after.wantState("ccc")
	if again := c.recoverAll(); len(again.Transactions) != 0 {
		t.Errorf("nothing was left, but %+v", again)
	}
}

func testForeign(t *testing.T, c *testNodes) {
	foreign := []string{
		"somebody", "pgshoal", "pgshoal:" + testCluster + ":n1", NewID("other", "n1").GID, NewID(testCluster+"2", "n1").GID,
		strings.ToUpper(NewID(testCluster, "n1").GID),
	}
	for _, gid := range foreign {
		c.must(pgxExec(t.Context(), c.servers["n2"].DSN("", "app"), "BEGIN; INSERT INTO ledger VALUES ("+quote(gid)+"); PREPARE TRANSACTION "+quote(gid)))
	}
	if report := c.recoverAll(); len(report.Transactions) != 0 {
		t.Errorf("%+v", report)
	}
	got := c.ask("n2", "", "SELECT gid FROM pg_prepared_xacts")
	slices.Sort(got)
	slices.Sort(foreign)
	if !slices.Equal(got, foreign) {
		t.Errorf("prepared are %q, want %q", got, foreign)
	}
	for _, gid := range foreign {
		c.ask("n2", "app", "ROLLBACK PREPARED "+quote(gid))
	}

	// One that is ours by its name, but whose decider nobody knows, is left.
	gid := NewID(testCluster, "gone").GID
	c.must(pgxExec(t.Context(), c.servers["n2"].DSN("", "app"), "BEGIN; PREPARE TRANSACTION "+quote(gid)))
	report, err := Recover(t.Context(), c, testCluster, c.names, 0)
	if err == nil || !strings.Contains(err.Error(), "node gone: the decider is not in the cluster") ||
		len(report.Transactions) != 1 || report.Transactions[0].Outcome != Left {
		t.Errorf("%+v, %v", report, err)
	}
	c.ask("n2", "app", "ROLLBACK PREPARED "+quote(gid))
}

func testDatabases(t *testing.T, c *testNodes) {
	a := c.leaveInDoubt(t, "app", "after commit n2", "n2", "n1")
	b := c.leaveInDoubt(t, "postgres", "after commit n1", "n1", "n3")
	d := c.leaveInDoubt(t, "postgres", "before commit n3", "n3", "n2")
	if report := c.recoverAll(); report.Settled() != 3 {
		t.Errorf("%+v", report)
	}
	a.wantState("cc")
	b.wantState("cc")
	d.wantState("--")
}

// testSlowPrepare has a deferred trigger that takes longer than any grace; that is no crash.
func testSlowPrepare(t *testing.T, c *testNodes) {
	c.ask("n3", "app", "SELECT pg_advisory_lock(42)")
	x := c.begin(t, "app", "", "n1", "n2", "n3")
	x.exec("n3", "INSERT INTO slow VALUES ('x')")
	result := make(chan error)
	go func() { result <- Commit(t.Context(), x.id, x.list) }()
	c.eventually("n2 has prepared and n3 waits", func() bool {
		return len(c.ask("n3", "", "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory'")) > 0 &&
			len(c.ask("n2", "", "SELECT 1 FROM pg_prepared_xacts")) > 0
	})
	if report := c.recoverAll(); len(report.Transactions) != 0 {
		t.Errorf("a transaction that was still preparing: %+v", report)
	}
	c.ask("n3", "app", "SELECT pg_advisory_unlock(42)")
	if err := <-result; err != nil {
		t.Error(err)
	}
	x.wantState("ccc")
}

func testConcurrentRecoveries(t *testing.T, c *testNodes) {
	var xs []*transaction
	for range 5 {
		xs = append(xs, c.leaveInDoubt(t, "app", "before commit n1", "n1", "n2", "n3"), c.leaveInDoubt(t, "app", "after commit n1", "n1", "n2", "n3"))
	}
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			own := &connections{connect: c.open, timeout: 20 * time.Second, lanes: make(map[lane]*connection)}
			defer own.drop(context.Background(), func(lane) bool { return true })
			own.use(t.Context(), c.m)
			if _, err := Recover(t.Context(), own, testCluster, c.names, 0); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	c.recoverAll() // one that was busy with another recovery may have been left by all
	for i, x := range xs {
		x.wantState([]string{"---", "ccc"}[i%2])
	}
}

func (c *testNodes) decisions(node, gid string) string {
	c.tb.Helper()
	return strings.Join(c.ask(node, "app", "SELECT outcome FROM pg_shoal.decisions WHERE gid = "+quote(gid)), " ")
}

func testForget(t *testing.T, c *testNodes) {
	committed := c.begin(t, "app", "", "n1", "n2")
	c.must(Commit(t.Context(), committed.id, committed.list))
	aborted := c.leaveInDoubt(t, "app", "before commit n1", "n1", "n2")
	c.recoverAll()
	needed := c.leaveInDoubt(t, "app", "after commit n1", "n1", "n2")
	// The coordinator of this one sleeps, and its decider is open.
	sleeping := c.begin(t, "app", "", "n1", "n2")
	sleeping.exec("n2", "PREPARE TRANSACTION "+quote(sleeping.gid))
	c.ask("n1", "app", recoveryStatement(recordAbort, sleeping.gid))
	// This one began early and decides after the mark: a young decision with an old time.
	late := c.begin(t, "app", "", "n1", "n2")

	m := newMemory(SettlerConfig{})
	seen := func(gid string) int {
		return len(c.ask("n1", "app", "SELECT FROM pg_shoal.seen WHERE gid = "+quote(gid)))
	}
	forget := func() int {
		t.Helper()
		n, err := m.forget(t.Context(), c, testCluster, c.names)
		c.must(err)
		return n
	}
	if n := forget(); n != 0 {
		t.Errorf("%d decisions were removed at first sight", n)
	}
	c.must(Commit(t.Context(), late.id, late.list))
	forget()
	if seen(committed.gid) != 0 || seen(needed.gid) != 1 {
		t.Errorf("records: %d of one that has committed everywhere, %d of one that has not", seen(committed.gid), seen(needed.gid))
	}
	for _, want := range []struct{ gid, row string }{
		{needed.gid, "commit"}, {sleeping.gid, "abort"}, {late.gid, "commit"},
	} {
		if got := c.decisions("n1", want.gid); got != want.row {
			t.Errorf("decision is %q, want %q", got, want.row)
		}
	}
	// An open transaction keeps the ids of the server back: only what is older was surely seen.
	late.crash()
	sleeping.crash()
	sleeping.awaitOver()
	c.recoverAll()
	forget()
	forget()
	for _, gid := range []string{committed.gid, aborted.gid, needed.gid, sleeping.gid, late.gid} {
		if got := c.decisions("n1", gid); got != "" {
			t.Errorf("decision %q is still there", got)
		}
	}
	needed.wantState("cc")

	// A decider without a transaction id of its own does not keep the ids back, but it is open.
	idle := c.begin(t, "app", "", "n1", "n2")
	idle.exec("n2", "ROLLBACK")
	idle.exec("n1", "ROLLBACK; BEGIN; SELECT 1")
	c.ask("n1", "app", recoveryStatement(recordAbort, idle.gid))
	forget()
	forget()
	if got := c.decisions("n1", idle.gid); got != "abort" {
		t.Errorf("decision is %q while its decider is open", got)
	}
	idle.crash()
	idle.awaitOver()
	forget()
	if got := c.decisions("n1", idle.gid); got != "" {
		t.Errorf("decision %q is still there", got)
	}

	// No removal while a node cannot be listed.
	x := c.begin(t, "app", "", "n1", "n2")
	c.must(Commit(t.Context(), x.id, x.list))
	forget()
	if _, err := m.forget(t.Context(), c, testCluster, append(slices.Clone(c.names), "n9")); err == nil {
		t.Error("n9 was listed")
	}
	if got := c.decisions("n1", x.gid); got != "commit" {
		t.Errorf("decision is %q", got)
	}
}

func testSettler(t *testing.T, c *testNodes) {
	opened := 0
	var mu sync.Mutex
	connect := func(ctx context.Context, node keyspace.Node, database string) (*pgx.Conn, error) {
		mu.Lock()
		opened++
		mu.Unlock()
		return c.open(ctx, node, database)
	}
	s, err := NewSettler(SettlerConfig{Grace: time.Nanosecond, ForgetEvery: time.Hour}, connect)
	c.must(err)
	defer s.Close(context.Background())
	x := c.leaveInDoubt(t, "app", "after commit n1", "n1", "n2", "n3")
	if r, err := s.Settle(t.Context(), c.m); r.Settled() != 1 || err != nil {
		t.Errorf("settled %+v, %v", r, err)
	}
	x.wantState("ccc")
	opened = 0
	if r, err := s.Settle(t.Context(), c.m); r.Settled() != 0 || err != nil {
		t.Errorf("settled %+v, %v", r, err)
	}
	if opened != 0 {
		t.Errorf("%d connections were opened again", opened)
	}
	for _, bad := range []SettlerConfig{{Grace: -1}, {QueryTimeout: time.Millisecond}} {
		if _, err := NewSettler(bad, connect); err == nil {
			t.Errorf("%+v was accepted", bad)
		}
	}
}

// testNodeCrashes is kill -9 of servers; it comes last because it breaks everybody's connections.
func testNodeCrashes(t *testing.T, c *testNodes) {
	s, err := NewSettler(SettlerConfig{Grace: time.Nanosecond}, c.open)
	c.must(err)
	defer s.Close(context.Background())
	settle := func() (Report, error) { return s.Settle(t.Context(), c.m) }
	_, err = settle()
	c.must(err)

	for _, test := range []struct {
		point, victim string
		want          string
	}{
		{"before commit n1", "n2", "ccc"},
		{"after commit n1", "n3", "ccc"},
		{"before commit n1", "n1", "---"}, // without a doubt: nothing could be sent
		{"after commit n1", "n1", "ccc"},
		{"after prepare n2", "n2", "ccc"}, // it keeps its promise
		{"before prepare n3", "n3", "---"},
	} {
		x := c.begin(t, "app", "", "n1", "n2", "n3")
		hook := on(test.point, func() {
			if test.point == "after prepare n2" {
				c.eventually("n2 has prepared", func() bool { return len(c.ask("n2", "", "SELECT 1 FROM pg_prepared_xacts")) > 0 })
			}
			c.servers[test.victim].Kill()
		})
		err := Driver{Hook: hook}.Commit(t.Context(), x.id, x.list)
		if (err == nil) != (test.want == "ccc") || errors.Is(err, ErrInDoubt) {
			t.Errorf("%s killed %s: %v", test.victim, test.point, err)
		}
		report, err := settle()
		if err == nil || report.Unreachable[test.victim] == nil {
			t.Errorf("%s is down, but %+v, %v", test.victim, report, err)
		}
		for _, f := range report.Transactions {
			if test.victim == "n1" && f.Outcome != Left {
				t.Errorf("settled without the decider: %+v", f)
			}
		}
		c.servers[test.victim].Start()
		c.drop(t.Context(), func(l lane) bool { return l.node == test.victim })
		_, err = settle()
		c.must(err)
		x.wantState(test.want)
	}
}
