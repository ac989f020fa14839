package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo/memtopo"
	"github.com/pgshoal/pgshoal/twopc"
)

// leavingSettler has prepared transactions and says what resolving them does.
type leavingSettler struct {
	Settler
	prepared []twopc.Prepared
	away     map[string]error
	outcome  string
	resolved []string
}

func (s *leavingSettler) List(context.Context, *keyspace.Map) ([]twopc.Prepared, map[string]error) {
	return s.prepared, s.away
}

func (s *leavingSettler) Resolve(_ context.Context, _ *keyspace.Map, gid, _ string) (twopc.Transaction, error) {
	s.resolved = append(s.resolved, gid)
	if s.outcome == "" {
		return twopc.Transaction{}, twopc.ErrNotPrepared
	}
	return twopc.Transaction{GID: gid, Outcome: s.outcome, Reason: "n9 is busy"}, nil
}

// TestSettlesBeforeANodeLeaves wants everything that the node decides or takes part in to be settled, and nothing else.
func TestSettlesBeforeANodeLeaves(t *testing.T) {
	prepared := []twopc.Prepared{
		{GID: "decides", Decider: "n2", Nodes: []string{"n1"}},
		{GID: "takes part", Decider: "n1", Nodes: []string{"n2", "n3"}},
		{GID: "elsewhere", Decider: "n1", Nodes: []string{"n3"}},
	}
	for _, test := range []struct {
		outcome  string
		away     map[string]error
		resolved string
		message  string
	}{
		{outcome: twopc.Committed, resolved: "decides, takes part"},
		{outcome: "", resolved: "decides, takes part"}, // they ended by themselves
		{outcome: twopc.Left, resolved: "decides", message: "cannot be settled: n9 is busy"},
		{away: map[string]error{"n3": errors.New("gone")}, message: `node "n3" does not answer (gone)`},
	} {
		s := &leavingSettler{prepared: prepared, away: test.away, outcome: test.outcome}
		c := &Controller{cfg: Config{Settler: s}}
		err := c.settleNode(t.Context(), nil, "n2")
		if (err != nil) != (test.message != "") || err != nil && !strings.Contains(err.Error(), test.message) {
			t.Errorf("outcome %q: %v, want %q", test.outcome, err, test.message)
		}
		if got := strings.Join(s.resolved, ", "); got != test.resolved {
			t.Errorf("outcome %q: resolved %q, want %q", test.outcome, got, test.resolved)
		}
	}
}

// TestLeavingNodeSettles removes a node of real servers that has decided one transaction, whose other part is not told yet, and has prepared its part of another one.
func TestLeavingNodeSettles(t *testing.T) {
	servers := startServers(t, 3)
	access := NodeAccess{User: "postgres", Database: "postgres", SSLMode: "disable"}
	settler, err := twopc.NewSettler(twopc.SettlerConfig{Grace: time.Hour}, access.Connect) // only leaving settles
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { settler.Close(context.Background()) })
	c := startController(t, memtopo.NewServer(), "c1", func(cfg *Config) {
		cfg.Settler, cfg.Access = settler, access
		for i, p := range servers {
			cfg.Bootstrap = append(cfg.Bootstrap, JoinRequest{Name: fmt.Sprintf("n%d", i+1), DSN: p.DSN("", "")})
		}
	})
	c.awaitLeading()
	for _, p := range servers {
		query(t, p, "", "CREATE TABLE t (a text)")
	}
	cluster := c.loadMap().Cluster
	decided, undecided := twopc.NewID(cluster, "n3").GID, twopc.NewID(cluster, "n1").GID
	query(t, servers[1], "", "BEGIN; INSERT INTO t VALUES ('decided'); PREPARE TRANSACTION '"+decided+"'")
	query(t, servers[2], "", "BEGIN; INSERT INTO t VALUES ('decided'); INSERT INTO pg_shoal.decisions (gid, outcome) VALUES ('"+decided+"', 'commit'); COMMIT")
	query(t, servers[2], "", "BEGIN; INSERT INTO t VALUES ('undecided'); PREPARE TRANSACTION '"+undecided+"'")

	remove := func() answer { return c.request(http.MethodDelete, "/api/v1/nodes/n3", testToken, nil) }
	servers[1].Stop()
	remove().refused(t, http.StatusConflict, `node "n2" does not answer`, "Start it first")
	servers[1].Start()
	if a := remove(); a.status != http.StatusOK {
		t.Fatalf("removing the node: %d %s", a.status, a.body)
	}
	for i, want := range []string{"", "decided", "decided"} {
		if got := strings.Join(query(t, servers[i], "", "SELECT a FROM t"), ", "); got != want {
			t.Errorf("n%d has %q, want %q", i+1, got, want)
		}
		if left := query(t, servers[i], "", "SELECT gid FROM pg_prepared_xacts"); len(left) > 0 {
			t.Errorf("n%d still has %v prepared", i+1, left)
		}
	}
	if got := query(t, servers[0], "", "SELECT outcome FROM pg_shoal.decisions WHERE gid = '"+undecided+"'"); len(got) != 1 || got[0] != "abort" {
		t.Errorf("the decider that stays says %v", got)
	}
}
