package control

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
)

// TestPrimaryOfThePast promotes a replica while the primary goes on, and asks which of the two is used.
func TestPrimaryOfThePast(t *testing.T) {
	old := shardtest.StartPostgres(t)
	promoted := old.StartReplica()
	n := keyspace.Node{Name: "n1", Addresses: []string{old.Address(), promoted.Address()}}
	store := memtopo.NewServer().Connect()
	t.Cleanup(func() { _ = store.Close() })
	timelines := topo.Timelines{Store: store}
	access := NodeAccess{User: "postgres", Database: "postgres", SSLMode: "disable", Timelines: timelines}
	leadsTo := func(access NodeAccess) (string, error) {
		t.Helper()
		cfg, err := access.Config(n, "")
		if err != nil {
			t.Fatal(err)
		}
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		if err != nil {
			return "", err
		}
		defer conn.Close(t.Context())
		var port int
		err = conn.QueryRow(t.Context(), "SELECT pg_catalog.inet_server_port()").Scan(&port)
		return joinAddress("127.0.0.1", uint16(port)), err
	}
	if got, err := leadsTo(access); got != old.Address() || err != nil {
		t.Fatalf("before the failover it leads to %q, %v", got, err)
	}
	promoted.Promote()
	for _, a := range []NodeAccess{access, {User: "postgres", Database: "postgres", SSLMode: "disable"}} {
		if got, err := leadsTo(a); got != promoted.Address() || err != nil {
			t.Errorf("with two primaries it leads to %q, %v", got, err)
		}
		if dsn, err := a.primary(t.Context(), n); dsn != a.dsn([]string{promoted.Address()}, "", "primary") || err != nil {
			t.Errorf("with two primaries programs are sent to %q, %v", dsn, err)
		}
	}
	if highest, err := timelines.Highest(t.Context(), n); highest != 2 || err != nil {
		t.Errorf("timeline %d is stored, %v", highest, err)
	}
	promoted.Stop()
	if got, err := leadsTo(access); !errors.Is(err, errPast) {
		t.Errorf("a primary of the past alone: it leads to %q, %v", got, err)
	}
}
