package pool

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
)

var aliceReads = Key{Node: "n1", Role: "alice", Database: "app", Replica: true}

// troupe plays the servers of a node, each by its address.
type troupe struct {
	mu      sync.Mutex
	servers map[string]*player
	checks  int
}

type player struct {
	report
	down   error            // of every login and check
	refuse map[string]error // of a role's login
	// promoted servers say so to new connections; their report is still the old one.
	promoted bool
}

func (tr *troupe) change(address string, change func(*player)) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	change(tr.servers[address])
}

func (tr *troupe) checked() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.checks
}

func (tr *troupe) dial(_ context.Context, address string, key Key, _ Credentials) (*pgwire.Backend, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	s := tr.servers[address]
	if s.down != nil {
		return nil, s.down
	}
	if err := s.refuse[key.Role]; err != nil {
		return nil, err
	}
	standby := "on"
	if s.primary || s.promoted {
		standby = "off"
	}
	return &pgwire.Backend{
		Stream: pgwire.NewStream(&silentConn{}), Params: map[string]string{inHotStandby: standby}, Address: address,
	}, nil
}

func (tr *troupe) examine(_ context.Context, c *Conn) (report, error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.checks++
	s := tr.servers[c.Address]
	return s.report, s.down
}

func nodeAt(addresses ...string) []keyspace.Node {
	return []keyspace.Node{{Name: "n1", Addresses: addresses}}
}

// newTroupe makes a pool with a primary "p" and replicas "a" and "b" that have everything.
func newTroupe(tb testing.TB, cfg Config) (*Pool, *troupe) {
	tb.Helper()
	fresh := report{timeline: 1, end: 100, replayed: 100, streaming: true, behind: time.Hour}
	tr := &troupe{servers: map[string]*player{
		"p": {report: report{primary: true, timeline: 1, end: 100}}, "a": {report: fresh}, "b": {report: fresh},
	}}
	p, err := New(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	p.dial, p.examine = tr.dial, tr.examine
	p.SetNodes(nodeAt("p", "a", "b"))
	return p, tr
}

func hasNoReplica(p *Pool, staleness time.Duration) bool {
	c, err := p.AcquireReplica(context.Background(), alice, Credentials{}, staleness)
	if err == nil {
		p.Release(c)
	}
	return errors.Is(err, ErrNoReplica)
}

func count(conns []*Conn, address string) (n int) {
	for _, c := range conns {
		if c.Address == address {
			n++
		}
	}
	return n
}

func TestFewestActive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTroupe(t, Config{})
		defer p.Close()
		p.Release(mustAcquire(t, p, aliceReads))
		synctest.Wait() // until both are checked
		var conns []*Conn
		for range 10 {
			conns = append(conns, mustAcquire(t, p, aliceReads))
		}
		if a, b := count(conns, "a"), count(conns, "b"); a != 5 || b != 5 {
			t.Errorf("%d and %d connections", a, b)
		}
		// All of one replica go, and come again, though the other has none idle.
		var kept []*Conn
		for _, c := range conns {
			if c.Address == "a" {
				p.Release(c)
				continue
			}
			kept = append(kept, c)
		}
		for range 5 {
			c := mustAcquire(t, p, Key{Node: "n1", Role: "bob", Replica: true})
			if c.Address != "a" {
				t.Errorf("connected to %s, which has more to do", c.Address)
			}
			kept = append(kept, c)
		}
		for _, c := range kept {
			p.Release(c)
		}
		if s := p.Stats(); len(s) != 2 || s[0].Key != aliceReads || s[0].Idle != 10 || s[1].Idle != 5 || s[0].Active != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestFullPoolOfOneReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{MaxPerPool: 1})
		defer p.Close()
		first := mustAcquire(t, p, aliceReads)
		synctest.Wait()
		var spare []*Conn
		for role := range strings.SplitSeq("abcdefgh", "") {
			c := mustAcquire(t, p, Key{Node: "n1", Role: role, Replica: true})
			if c.Address == first.Address {
				spare = append(spare, c)
				continue
			}
			defer p.Release(c)
		}
		for _, c := range spare {
			p.Release(c)
		}
		second := mustAcquire(t, p, aliceReads)
		if first.Address == second.Address {
			t.Error("waiting was preferred to a busier replica, or the limit exceeded")
		}
		// Both are full: a third session waits at one of them, which dies.
		got := make(chan *Conn)
		go func() { got <- mustAcquire(t, p, aliceReads) }()
		synctest.Wait()
		members := p.nodes["n1"].replicas.members
		waiting := members[slices.IndexFunc(members, func(r *replica) bool { return len(r.server.waiting) > 0 })]
		tr.change(waiting.address, func(s *player) { s.down = io.EOF })
		time.Sleep(checkEvery)
		synctest.Wait()
		for _, c := range []*Conn{first, second} {
			p.Release(c)
			if isClosed(c) != (c.Address == waiting.address) {
				t.Errorf("connection to %s closed: %v", c.Address, isClosed(c))
			}
		}
		c := <-got
		if c.Address == waiting.address {
			t.Error("connected to a dead replica")
		}
		p.Release(c)
	})
}

func TestTooStaleAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{MaxPerPool: 1, MaxStaleness: time.Second})
		defer p.Close()
		p.SetNodes(nodeAt("p", "a"))
		held := mustAcquire(t, p, aliceReads)
		none := make(chan bool)
		go func() { none <- hasNoReplica(p, 0) }()
		synctest.Wait()
		tr.change("a", func(s *player) { s.end = 200 })
		time.Sleep(5 * time.Second)
		p.Release(held)
		if !<-none || isClosed(held) {
			t.Error("a stale replica was used, or its connection given up")
		}
	})
}

func TestWatchEndsWithUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{})
		defer p.Close()
		p.nodes["n1"].primary.known = "p"
		p.Release(mustAcquire(t, p, alice))
		time.Sleep(time.Minute)
		if n := tr.checked(); n != 0 {
			t.Errorf("%d checks without need", n)
		}
		c := mustAcquire(t, p, aliceReads)
		time.Sleep(10 * time.Minute)
		if n := tr.checked(); n < 3*599 || n > 3*602 {
			t.Errorf("%d checks of three servers in ten minutes", n)
		}
		p.Release(c)
		time.Sleep(time.Minute)
		before := tr.checked()
		time.Sleep(time.Hour)
		if n := tr.checked(); n != before {
			t.Errorf("%d checks while nobody reads", n-before)
		}
		// What was known is not believed any more.
		for _, address := range []string{"a", "b"} {
			tr.change(address, func(s *player) { s.report = report{primary: true, timeline: 2} })
		}
		if !hasNoReplica(p, time.Hour) {
			t.Error("a primary was taken for a replica")
		}
	})
}

// TestOutrankedPrimary: another server is promoted while the primary goes on as if nothing had happened.
func TestOutrankedPrimary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{Monitor: Monitor{Role: "service"}})
		defer p.Close()
		synctest.Wait() // until all were checked: nobody reads from replicas here
		held, idle := mustAcquire(t, p, alice), mustAcquire(t, p, alice)
		p.Release(idle)
		if held.Address != "p" {
			t.Fatalf("connected to %s", held.Address)
		}
		tr.change("a", func(s *player) { s.report = report{primary: true, timeline: 2} })
		time.Sleep(2 * checkEvery)
		if !isClosed(held) || !isClosed(idle) {
			t.Errorf("connections to a primary of the past go on: held %v, idle %v", !isClosed(held), !isClosed(idle))
		}
		held.Broken = true
		p.Release(held)
		c := mustAcquire(t, p, alice)
		if c.Address != "a" {
			t.Errorf("connected to %s, a primary of the past", c.Address)
		}
		p.Release(c)
	})
}

func TestStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{MaxStaleness: 5 * time.Second})
		defer p.Close()
		p.SetNodes(nodeAt("p", "a"))
		set := func(change func(*player)) {
			tr.change("a", change)
			time.Sleep(checkEvery + time.Millisecond)
			synctest.Wait()
		}
		p.Release(mustAcquire(t, p, aliceReads))
		time.Sleep(time.Minute)
		p.Release(mustAcquire(t, p, aliceReads))

		// It does not apply what it received. The last commit was an hour ago, but a second ago it
		// had everything.
		set(func(s *player) { s.end = 200 })
		if hasNoReplica(p, 3*time.Second) || !hasNoReplica(p, time.Millisecond) {
			t.Error("lag is not what passed since it had everything")
		}
		time.Sleep(5 * time.Second)
		if !hasNoReplica(p, 0) || hasNoReplica(p, time.Minute) {
			t.Error("six seconds are within five, or not within a minute")
		}
		set(func(s *player) { s.behind = 100 * time.Millisecond })
		if hasNoReplica(p, 0) {
			t.Error("it catches up, and is not used")
		}
		set(func(s *player) { s.end, s.streaming, s.behind = 100, false, time.Hour })
		time.Sleep(10 * time.Second)
		if !hasNoReplica(p, 0) {
			t.Error("it has all it received, but receives no more")
		}
		set(func(s *player) { s.streaming = true })
		if hasNoReplica(p, time.Nanosecond) {
			t.Error("it has everything, and is not used")
		}
		tr.change("p", func(s *player) { s.end = 300 })
		set(func(s *player) {})
		time.Sleep(10 * time.Second)
		if !hasNoReplica(p, 0) {
			t.Error("the primary wrote more than it knows of")
		}
		tr.change("p", func(s *player) { s.report = report{primary: true, timeline: 2, end: 100} })
		set(func(s *player) { s.timeline = 2 })
		set(func(s *player) {})
		if hasNoReplica(p, 0) {
			t.Error("the new timeline is shorter, and that is all there is")
		}
		set(func(s *player) { s.timeline = 1 })
		if !hasNoReplica(p, time.Hour) {
			t.Error("it follows a primary of the past")
		}
		set(func(s *player) { s.timeline = 0 })
		if hasNoReplica(p, 0) {
			t.Error("a role that does not see the timeline sees no replica")
		}
		tr.change("b", func(s *player) { s.timeline = 2 }) // p is still the primary, and has not forgotten its timeline
		p.SetNodes(nodeAt("p", "b"))
		if c := mustAcquire(t, p, aliceReads); c.Address != "b" {
			t.Errorf("connected to %s", c.Address)
		} else {
			p.Release(c)
		}
	})
}

func TestLoginsRefused(t *testing.T) {
	denied := pgwire.Errorf("28P01", "no")
	for _, tc := range []struct {
		name    string
		monitor string
		refuse  map[string]string // role by address
		want    []string
	}{
		{"none", "", nil, []string{"a", "b"}},
		{"client at one", "pgshoal", map[string]string{"a": "alice"}, []string{"b"}},
		{"client at both", "pgshoal", map[string]string{"a": "alice", "b": "alice"}, nil},
		{"monitor at one", "pgshoal", map[string]string{"b": "pgshoal"}, []string{"a"}},
		{"client that checks", "", map[string]string{"a": "alice", "b": "alice"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, tr := newTroupe(t, Config{Monitor: Monitor{Role: tc.monitor}})
				defer p.Close()
				for address, role := range tc.refuse {
					tr.change(address, func(s *player) { s.refuse = map[string]error{role: denied} })
				}
				var got []string
				for range 4 {
					c, err := p.AcquireReplica(t.Context(), alice, Credentials{}, 0)
					synctest.Wait()
					if err == nil {
						defer p.Release(c)
						got = append(got, c.Address)
						continue
					}
					if !errors.Is(err, ErrNoReplica) || tc.monitor != "" && !hasCode(err, "28P01") {
						t.Errorf("error %v", err)
					}
				}
				slices.Sort(got)
				if got = slices.Compact(got); !slices.Equal(got, tc.want) {
					t.Errorf("connected to %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// TestNextClientLendsItsLogin: one whose role was dropped must not shut out the others.
func TestNextClientLendsItsLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{})
		defer p.Close()
		for _, address := range []string{"p", "a", "b"} {
			tr.change(address, func(s *player) {
				s.refuse = map[string]error{"alice": pgwire.Errorf("28000", "no such role")}
			})
		}
		if !hasNoReplica(p, 0) {
			t.Error("a role that may not log in got a connection")
		}
		c, err := p.AcquireReplica(t.Context(), bob, Credentials{}, 0)
		for start := time.Now(); errors.Is(err, ErrNoReplica) && time.Since(start) < 2*checkEvery; {
			time.Sleep(checkEvery / 2)
			c, err = p.AcquireReplica(t.Context(), bob, Credentials{}, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Release(c)
	})
}

func TestPromotionIsSeenOnRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{Admit: func(context.Context, string, uint32) error {
			return errors.New("a standby cannot write down whom it admits")
		}})
		defer p.Close()
		p.SetNodes(nodeAt("p", "a"))
		idle, c := mustAcquire(t, p, aliceReads), mustAcquire(t, p, aliceReads)
		p.Release(idle)
		tr.change("a", func(s *player) { s.report = report{primary: true, timeline: 2} })
		c.Params[inHotStandby] = "off"
		p.Release(c)
		if !isClosed(c) || !isClosed(idle) {
			t.Errorf("closed: %v, %v", isClosed(c), isClosed(idle))
		}
		if !hasNoReplica(p, time.Hour) {
			t.Error("a primary was taken for a replica")
		}
	})
}

func TestPromotionIsSeenAtLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{})
		defer p.Close()
		p.SetNodes(nodeAt("p", "a"))
		tr.change("a", func(s *player) { s.promoted = true })
		if _, err := p.Acquire(t.Context(), aliceReads, Credentials{}); !errors.Is(err, ErrNoReplica) || !errors.Is(err, errPrimary) {
			t.Errorf("error %v", err)
		}
	})
}

func TestReplicasAndTheMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, tr := newTroupe(t, Config{})
		defer p.Close()
		tr.servers["b"].down = &net.OpError{Op: "dial", Err: io.EOF}
		idle, held := mustAcquire(t, p, aliceReads), mustAcquire(t, p, aliceReads)
		p.Release(idle)
		p.SetNodes(nodeAt("b", "p"))
		if !isClosed(idle) || isClosed(held) || !hasNoReplica(p, 0) {
			t.Errorf("closed: idle %v, held %v; want only the idle one", isClosed(idle), isClosed(held))
		}
		p.Release(held)
		if !isClosed(held) {
			t.Error("a connection to an old address was kept")
		}
		p.SetNodes(nodeAt("p"))
		if !hasNoReplica(p, 0) {
			t.Error("one address, but a replica")
		}
		p.SetNodes(nil)
		if _, err := p.Acquire(t.Context(), aliceReads, Credentials{}); !hasCode(err, "08001") {
			t.Errorf("error %v, want 08001", err)
		}
	})
}

func TestCloseWhileReplicasAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTroupe(t, Config{})
		p.examine = func(ctx context.Context, _ *Conn) (report, error) {
			<-ctx.Done()
			return report{}, ctx.Err()
		}
		failed := make(chan error)
		go func() {
			_, err := p.Acquire(t.Context(), aliceReads, Credentials{})
			failed <- err
		}()
		synctest.Wait()
		start := time.Now()
		p.Close()
		if err := <-failed; !errors.Is(err, ErrClosed) || time.Since(start) != 0 {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
		if _, err := p.Acquire(t.Context(), aliceReads, Credentials{}); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	})
}

func TestSilentServersAreNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newTroupe(t, Config{})
		defer p.Close()
		p.examine = func(ctx context.Context, _ *Conn) (report, error) {
			<-ctx.Done()
			return report{}, ctx.Err()
		}
		start := time.Now()
		if !hasNoReplica(p, 0) || time.Since(start) != checkTimeout {
			t.Errorf("took %v", time.Since(start))
		}
	})
}

func TestAcquireReplicaAllocatesNothing(t *testing.T) {
	p, _ := newTroupe(t, Config{})
	defer p.Close()
	p.Release(mustAcquire(t, p, aliceReads))
	p.Release(mustAcquire(t, p, aliceReads))
	if n := testing.AllocsPerRun(1000, func() {
		c, err := p.AcquireReplica(t.Context(), alice, Credentials{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		p.Release(c)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestParseReport(t *testing.T) {
	for _, tc := range []struct {
		row  string // NULL is -
		want report
		bad  bool
	}{
		{"f 0000001A 1/10 - - - - 5.5 -", report{primary: true, timeline: 26, end: 1<<32 + 16, behind: math.MaxInt64}, false},
		{"t 10 0/10 0/20 0/18 77 streaming 5.5 4.25", report{timeline: 10, end: 0x20, replayed: 0x18, streaming: true, behind: 1250 * time.Millisecond}, false},
		{"t 1 0/10 0/0 0/18 77 waiting 5 9", report{timeline: 1, end: 0x10, replayed: 0x18}, false},
		{"t - 0/10 - 0/10 77 - 5 5", report{end: 0x10, replayed: 0x10, streaming: true}, false},
		{"t - - - 0/10 - - 5 -", report{replayed: 0x10, behind: math.MaxInt64}, false},
		{"t - - - 0/10 77 - 5 -", report{replayed: 0x10, behind: math.MaxInt64}, false},
		{"t x 0/10 - 0/10 77 - 5 5", report{}, true},
		{"t - 010 - 0/10 77 - 5 5", report{}, true},
		{"t - 0/10 - g/10 77 - 5 5", report{}, true},
		{"t - 0/10 - 0/100000000 77 - 5 5", report{}, true},
		{"t - 0/10 - 0/10 77 - 5 now", report{}, true},
	} {
		var row [][]byte
		for field := range strings.FieldsSeq(tc.row) {
			if field == "-" {
				row = append(row, nil)
				continue
			}
			row = append(row, []byte(field))
		}
		if got, err := parseReport(row); got != tc.want || (err != nil) != tc.bad {
			t.Errorf("%s: %+v, %v", tc.row, got, err)
		}
	}
}
