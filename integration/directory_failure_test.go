package integration

import (
	"fmt"
	"testing"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// TestDirectoryNodeDown has a node that does not answer: it gets no new keys, and the keys whose entries it holds fail until it is back.
func TestDirectoryNodeDown(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 3, Routers: 1})
	conn := connect(t, c.DSN(0))
	run(t, conn, "CREATE TABLE d (tenant text PRIMARY KEY)", "SELECT create_distributed_table('d', 'tenant', strategy => 'directory')")
	c.KillNode("node3")
	const keys = 30
	var failed []string
	for i := range keys {
		key := fmt.Sprintf("tenant %d", i)
		if _, err := conn.Exec(t.Context(), "INSERT INTO d VALUES ($1)", key); err != nil {
			failed = append(failed, key)
		}
	}
	if len(failed) == 0 || len(failed) == keys {
		t.Errorf("%d of %d keys have their entries on a node that is down", len(failed), keys)
	}
	c.StartNode("node3")
	expect(t, connect(t, c.NodeDSN("node3")), "0", "SELECT count(*) FROM d")
	conn = connect(t, c.DSN(0))
	for _, key := range failed {
		run(t, conn, "INSERT INTO d VALUES ('"+key+"')")
	}
	expect(t, conn, fmt.Sprint(keys), "SELECT count(*) FROM d")
	expect(t, conn, "1", "SELECT count(*) FROM d WHERE tenant = 'tenant 7'")
}
