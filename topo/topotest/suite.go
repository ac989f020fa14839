// Package topotest is the suite that every implementation of topo.Store passes, so that what is
// tested on the store in memory holds on etcd too.
package topotest

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

// patience is how long a test waits for something that must happen.
const patience = 60 * time.Second

// Link is the connection of one store to its service; cutting it must leave other stores alone.
type Link interface {
	Cut()
	Restore()
}

// Service is an empty store service that the suite connects to.
type Service interface {
	// Connect returns a store that is closed when the test ends.
	Connect(t *testing.T) (topo.Store, Link)
	// Compact makes the service forget its history.
	Compact(t *testing.T)
}

// Run runs the suite, each test on a service of its own. around runs each test, so that a store
// without a network can have it in a synctest bubble, where no time passes.
func Run(t *testing.T, start func(t *testing.T) Service, around func(*testing.T, func(*testing.T))) {
	tests := []struct {
		name string
		run  func(*testing.T, Service)
	}{
		{"GetPutDelete", testGetPutDelete},
		{"TxnConditions", testTxnConditions},
		{"TxnLimits", testTxnLimits},
		{"ListIsSortedAndWithinPrefix", testList},
		{"ListIsOneSnapshot", testListSnapshot},
		{"AwayIsAnErrorInTime", testAway},
		{"ClosedStore", testClosed},
		{"WatchTellsEverythingThenChanges", testWatch},
		{"WatchShowsWholeTransactions", testWatchAtomic},
		{"WatchSurvivesCut", testWatchCut},
		{"WatchSurvivesCompaction", testWatchCompaction},
		{"WatchEnds", testWatchEnds},
		{"LeaseRevoked", testLeaseRevoked},
		{"LeaseExpires", testLeaseExpires},
		{"MapRoundTrip", testMapRoundTrip},
		{"MapUpdate", testMapUpdate},
		{"MapUpdateAway", testMapUpdateAway},
		{"MapRefusesBroken", testMapRefusesBroken},
		{"MapEditorsAreLinearizable", testEditors},
		{"MapShardEditorsAreLinearizable", testShardEditors},
		{"MapOf10000Shards", testLargeMap},
		{"FollowerConverges", testFollowerConverges},
		{"FollowerKeepsMapWhenAway", testFollowerAway},
		{"FollowerWaitsForFirstMap", testFollowerFirst},
		{"FollowerNeverGoesBack", testFollowerOrder},
		{"RegisterAndMembers", testRegister},
		{"RegisterNumbersAreUnique", testNumbers},
		{"RegisterSameName", testSameName},
		{"RegisterAgainAfterLoss", testRegisterAgain},
		{"MemberDies", testMemberDies},
		{"MemberKnowsBeforeOthers", testListed},
		{"WaitAcked", testWaitAcked},
		{"ElectionOneLeader", testElection},
		{"ElectionLeaderCutOff", testElectionCut},
		{"LockExcludes", testLock},
		{"LockAway", testLockAway},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			around(t, func(t *testing.T) { tt.run(t, start(t)) })
		})
	}
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func connect(t *testing.T, svc Service) topo.Store {
	t.Helper()
	s, _ := svc.Connect(t)
	return s
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s topo.Store, key, value string) int64 {
	t.Helper()
	rev, err := s.Txn(testContext(t), nil, []topo.Op{topo.Put(key, []byte(value))})
	check(t, err)
	return rev
}

// next returns the next event of a watch.
func next(t *testing.T, events <-chan topo.Event) topo.Event {
	t.Helper()
	select {
	case e, ok := <-events:
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-time.After(patience):
		t.Fatal("no event in time")
	}
	return topo.Event{}
}

// await reads events until one fits.
func await(t *testing.T, events <-chan topo.Event, fits func(topo.Event) bool) topo.Event {
	t.Helper()
	for {
		if e := next(t, events); fits(e) {
			return e
		}
	}
}

func keys(entries []topo.Entry) []string {
	var out []string
	for _, e := range entries {
		out = append(out, e.Key)
	}
	return out
}

func wantKeys(t *testing.T, entries []topo.Entry, want ...string) {
	t.Helper()
	got := keys(entries)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Fatalf("keys %q, want %q", got, want)
	}
}

func closed(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(patience):
		t.Fatalf("%s: not in time", what)
	}
}

// logs is a logger whose records wake tests that wait for a state, so that no test has to poll.
type logs struct {
	slog.Handler
	news chan struct{}
}

func newLogs(t *testing.T) *logs {
	return &logs{Handler: slog.NewTextHandler(t.Output(), nil), news: make(chan struct{}, 1)}
}

func (l *logs) logger() *slog.Logger { return slog.New(l) }

// Handle implements slog.Handler.
func (l *logs) Handle(ctx context.Context, r slog.Record) error {
	select {
	case l.news <- struct{}{}:
	default:
	}
	return l.Handler.Handle(ctx, r)
}

// until waits for a state whose beginning is logged.
func (l *logs) until(t *testing.T, what string, within time.Duration, state func() bool) {
	t.Helper()
	deadline := time.After(within)
	for !state() {
		select {
		case <-l.news:
		case <-deadline:
			t.Fatalf("%s: not within %v", what, within)
		}
	}
}
