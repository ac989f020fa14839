package cluster_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

func ask(t *testing.T, dsn, sql string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	var answer string
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

func TestClusterServesAndRestarts(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 2, Routers: 2, Etcd: true})
	for i := range 2 {
		if got := ask(t, c.DSN(i), "SELECT 'via ' || current_user"); got != "via postgres" {
			t.Errorf("router %d answered %q", i, got)
		}
	}
	for _, name := range c.NodeNames() {
		if got := ask(t, c.NodeDSN(name), "SELECT name FROM pg_shoal.node"); got != name {
			t.Errorf("node %s calls itself %q", name, got)
		}
	}
	c.StopRouter(1)
	c.StopEtcd()
	if got := ask(t, c.DSN(0), "SELECT 'without etcd'"); got != "without etcd" {
		t.Errorf("router answered %q", got)
	}
	c.StartEtcd()
	c.StartRouter(1)
	c.KillNode("node2")
	c.StartNode("node2")
	if got := ask(t, c.DSN(1), "SELECT 'again'"); got != "again" {
		t.Errorf("router answered %q", got)
	}
	if m := c.Map(); len(m.Nodes) != 2 || m.Home != "node1" {
		t.Errorf("the map is %+v", m)
	}
}
