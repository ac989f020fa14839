package control

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
	"github.com/pgshoal/pgshoal/twopc"
)

func TestConfigRefusals(t *testing.T) {
	for _, cfg := range []Config{
		{},
		{Name: "c"},
		{Name: "c", ServiceUser: "pgshoal"},
		{Name: "c", ServiceUser: "pgshoal", ServicePassword: "x", HealthEvery: -1},
	} {
		if _, err := New(cfg, nil, nil); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestFailover(t *testing.T) {
	server := memtopo.NewServer()
	mapWithNode(t, server)
	first := startController(t, server, "c1", nil)
	first.awaitLeading()
	second := startController(t, server, "c2", nil)
	eventually(t, "both controllers are registered", func() bool {
		members, err := topo.Members(context.Background(), second.store, topo.RoleController)
		return err == nil && len(members) == 2
	})

	// A standby answers with what the leader says, and guards changes itself.
	var status Status
	second.get("/api/v1/status").decode(t, &status)
	if status.Leader != "c1" || len(status.Controllers) != 2 {
		t.Errorf("status of the standby: %+v", status)
	}
	second.request(http.MethodDelete, "/api/v1/nodes/n1", "", nil).refused(t, http.StatusUnauthorized, "needs the admin token", "token_file")
	second.request(http.MethodDelete, "/api/v1/nodes/n1", testToken, nil).refused(t, http.StatusConflict, "is the home node", "")

	first.store.Cut()
	first.store.ExpireLeases()
	second.awaitLeading()
	second.get("/api/v1/status").decode(t, &status)
	if status.Leader != "c2" {
		t.Errorf("leader is %s after the first one was cut off", status.Leader)
	}
	eventually(t, "the first controller knows that it does not lead", func() bool { return first.leading() == nil })

	first.store.Restore()
	eventually(t, "the first controller stands by", func() bool {
		a := first.get("/api/v1/status")
		if a.status != http.StatusOK {
			return false
		}
		a.decode(t, &status)
		return status.Leader == "c2"
	})
	second.stop()
	first.awaitLeading()
}

func TestNoMapYet(t *testing.T) {
	server := memtopo.NewServer()
	c := startController(t, server, "c1", nil)
	eventually(t, "the controller says what it waits for", func() bool { return errors.Is(c.Ready(context.Background()), errNoMap) })
	c.get("/readyz").refused(t, http.StatusServiceUnavailable, "no map yet", "")
	c.get("/api/v1/status").refused(t, http.StatusServiceUnavailable, "no map yet", "moment")
	mapWithNode(t, server)
	c.awaitLeading()
	if a := c.get("/readyz"); a.status != http.StatusOK {
		t.Errorf("readyz: %d %s", a.status, a.body)
	}
}

type settler struct{ calls atomic.Int64 }

func (s *settler) Settle(_ context.Context, m *keyspace.Map) (twopc.Report, error) {
	switch s.calls.Add(1) {
	case 1:
		return twopc.Report{Transactions: []twopc.Transaction{{Outcome: twopc.Committed}, {Outcome: twopc.RolledBack}}}, nil
	case 2:
		return twopc.Report{}, errors.New("node n1 is away")
	}
	return twopc.Report{Transactions: []twopc.Transaction{{Outcome: twopc.Left, Age: time.Minute}, {Outcome: twopc.Left, Age: time.Second}}}, nil
}

func (s *settler) List(context.Context, *keyspace.Map) ([]twopc.Prepared, map[string]error) {
	return []twopc.Prepared{{GID: "g", Database: "app", Decider: "n1", Nodes: []string{"n2"}, Age: time.Minute, State: twopc.StateUndecided}},
		map[string]error{"n3": errors.New("away")}
}

func (s *settler) Resolve(_ context.Context, _ *keyspace.Map, gid, want string) (twopc.Transaction, error) {
	switch {
	case gid != "g":
		return twopc.Transaction{}, twopc.ErrNotPrepared
	case want == twopc.Committed:
		return twopc.Transaction{}, &twopc.Conflict{GID: gid, Decider: "n1", State: twopc.StateUndecided}
	}
	return twopc.Transaction{GID: gid, Outcome: twopc.RolledBack, Nodes: []string{"n2"}}, nil
}

func TestSettles(t *testing.T) {
	server := memtopo.NewServer()
	mapWithNode(t, server)
	s := &settler{}
	c := startController(t, server, "c1", func(cfg *Config) { cfg.Settler = s })
	eventually(t, "the settler ran three times", func() bool { return s.calls.Load() >= 3 })
	if stats := c.Stats(); stats.Settled != 2 {
		t.Errorf("settled %d, want 2", stats.Settled)
	}
	eventually(t, "two are left", func() bool { s := c.Stats(); return s.InDoubt == 2 && s.OldestInDoubt == time.Minute })
	var listed TransactionList
	c.get("/api/v1/transactions").decode(t, &listed)
	if len(listed.Transactions) != 1 || listed.Transactions[0].State != "undecided" || listed.Unreachable["n3"] != "away" {
		t.Errorf("listed: %+v", listed)
	}
	resolve := func(token, gid, outcome string) answer {
		return c.request(http.MethodPost, "/api/v1/transactions/resolve", token, ResolveRequest{GID: gid, Outcome: outcome})
	}
	resolve("", "g", "").refused(t, http.StatusUnauthorized, "token", "")
	resolve(testToken, "other", "").refused(t, http.StatusNotFound, "no node has this transaction prepared", "pgshoal tx list")
	resolve(testToken, "g", "commit").refused(t, http.StatusConflict, "can only be rolled back", "")
	resolve(testToken, "g", "maybe").refused(t, http.StatusBadRequest, "maybe", "")
	var resolved ResolvedTransaction
	resolve(testToken, "g", "rollback").decode(t, &resolved)
	if resolved.Outcome != "rolled back" {
		t.Errorf("resolved: %+v", resolved)
	}
}

func TestUnfinishedJoinIsDropped(t *testing.T) {
	server := memtopo.NewServer()
	mapWithNode(t, server)
	store := server.Connect()
	defer store.Close()
	_, err := topo.UpdateMap(context.Background(), store, func(m *keyspace.Map) (*keyspace.Map, error) {
		return m.AddNode(keyspace.Node{Name: "n2", Addresses: []string{"127.0.0.1:2"}})
	})
	if err != nil {
		t.Fatal(err)
	}
	c := startController(t, server, "c1", nil)
	c.awaitLeading()
	m := c.loadMap()
	if len(m.Nodes) != 1 || m.LastNode != 1 || m.Epoch != 3 {
		t.Errorf("map after takeover: %+v", m)
	}
}

func TestFencesOfTheDeadAreRemoved(t *testing.T) {
	server := memtopo.NewServer()
	mapWithNode(t, server)
	routers := server.Connect()
	defer routers.Close()
	log := discard()
	alive, err := topo.Register(context.Background(), routers, topo.Member{Name: "alive", Role: topo.RoleRouter}, time.Second, log)
	if err != nil {
		t.Fatal(err)
	}
	defer alive.Close()
	_, err = topo.UpdateMap(context.Background(), routers, func(m *keyspace.Map) (*keyspace.Map, error) {
		for _, router := range []string{"alive", "dead"} {
			for _, id := range []string{"1", "2"} {
				var err error
				if m, err = m.AddFence(keyspace.Fence{ID: router + id, Database: "postgres", Tables: []uint32{16384}, Router: router}); err != nil {
					return nil, err
				}
			}
		}
		return m, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	c := startController(t, server, "c1", func(cfg *Config) { cfg.MemberTTL = 100 * time.Millisecond })
	eventually(t, "the dead router's fences are gone", func() bool { return len(c.loadMap().Fences) == 2 })
	for _, f := range c.loadMap().Fences {
		if f.Router != "alive" {
			t.Errorf("fence %+v is still there", f)
		}
	}
	eventually(t, "the removal is counted", func() bool { return c.Stats().FencesRemoved == 2 })
}

func TestAbsences(t *testing.T) {
	start := time.Unix(1000, 0)
	a := absences{}
	dead := func(string) bool { return false }
	check := func(at time.Duration, owners []string, alive func(string) bool, want ...string) {
		t.Helper()
		if got := a.update(owners, alive, start.Add(at), 10*time.Second); !slices.Equal(got, want) {
			t.Errorf("after %v: %v, want %v", at, got, want)
		}
	}
	check(0, []string{"r1"}, dead)
	check(10*time.Second, []string{"r1"}, dead)
	check(11*time.Second, []string{"r1", "r1", "r2"}, dead, "r1")
	check(12*time.Second, []string{"r1"}, func(string) bool { return true }) // back again
	check(13*time.Second, []string{"r1"}, dead)
	check(22*time.Second, []string{"r1"}, dead)
	check(23*time.Second+1, []string{"r1"}, dead, "r1")
	check(30*time.Second, nil, dead)
	if len(a) != 0 {
		t.Errorf("owners without fences are remembered: %v", a)
	}
}

func TestWhoMayAsk(t *testing.T) {
	server := memtopo.NewServer()
	mapWithNode(t, server)
	c := startController(t, server, "c1", nil)
	c.awaitLeading()
	handler := c.Handler(http.NotFoundHandler())
	tests := []struct {
		name, method, path, remote, host, auth string
		want                                   int
	}{
		{"loopback reads", "GET", "/api/v1/map", "127.0.0.1:1", "127.0.0.1:8432", "", 200},
		{"loopback by name", "GET", "/api/v1/map", "[::1]:1", "localhost:8432", "", 200},
		{"a web page's name", "GET", "/api/v1/map", "127.0.0.1:1", "evil.example:8432", "", 401},
		{"elsewhere", "GET", "/api/v1/map", "10.1.1.1:1", "10.0.0.1", "", 401},
		{"elsewhere with token", "GET", "/api/v1/map", "10.1.1.1:1", "10.0.0.1", "Bearer " + testToken, 200},
		{"wrong token", "GET", "/api/v1/map", "10.1.1.1:1", "10.0.0.1", "Bearer x", 401},
		{"not a bearer", "GET", "/api/v1/map", "10.1.1.1:1", "10.0.0.1", testToken, 401},
		{"health is open", "GET", "/healthz", "10.1.1.1:1", "x", "", 200},
		{"changes need it on loopback too", "POST", "/api/v1/nodes", "127.0.0.1:1", "127.0.0.1", "", 401},
		{"removal too", "DELETE", "/api/v1/nodes/n1", "127.0.0.1:1", "127.0.0.1", "Bearer ", 401},
		{"body is needed", "POST", "/api/v1/nodes", "127.0.0.1:1", "127.0.0.1", "Bearer " + testToken, 400},
		{"no such thing", "GET", "/api/v1/nothing", "127.0.0.1:1", "127.0.0.1", "", 404},
		{"no such method", "PUT", "/api/v1/nodes", "127.0.0.1:1", "127.0.0.1", "", 404},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := httptest.NewRequest(tt.method, tt.path, nil)
			r.RemoteAddr, r.Host = tt.remote, tt.host
			if tt.auth != "" {
				r.Header.Set("Authorization", tt.auth)
			}
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("got %d %s, want %d", w.Code, w.Body, tt.want)
			}
		})
	}
}

func TestNoTokenMeansNoChanges(t *testing.T) {
	c := &Controller{}
	r := httptest.NewRequest(http.MethodPost, "/api/v1/nodes", nil)
	r.Header.Set("Authorization", "Bearer ")
	if c.authorised(r) {
		t.Error("an empty token opens a controller without one")
	}
}
