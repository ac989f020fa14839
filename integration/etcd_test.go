package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// TestEtcdAway stops etcd under load: no statement fails, what needs the store says so, and the
// routers catch up when it is back.
func TestEtcdAway(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Nodes: 2, Routers: 2, Etcd: true})
	conn := connect(t, c.DSN(0))
	run(t, conn, "CREATE TABLE etcd_t (id bigint PRIMARY KEY, v text)", "SELECT create_distributed_table('etcd_t', 'id')")
	w := startWriters(t, c.DSN(1), "etcd_t", 4)
	w.after(t, 200)
	c.StopEtcd()
	waitFor(t, "the routers to notice", func() bool {
		return !c.Router(0).Stats().TopologyConnected && !c.Router(1).Stats().TopologyConnected
	})
	away := time.Now()
	w.after(t, 200)
	expect(t, connect(t, c.DSN(0)), "new sessions too", "SELECT 'new sessions too'")
	started := time.Now()
	fails(t, conn, "55000", "CREATE TABLE etcd_never (a int)", "topology store", "HINT: ")
	t.Logf("DDL was refused after %v", time.Since(started).Round(time.Millisecond))
	// Longer than the routers' leases live.
	waitFor(t, "the leases to end", func() bool { return time.Since(away) > 4*time.Second || w.failed() })
	w.after(t, 200)
	c.StartEtcd()
	waitFor(t, "the routers to be back", func() bool {
		return c.Router(0).Stats().TopologyConnected && c.Router(1).Stats().TopologyConnected
	})
	waitFor(t, "DDL to work again", func() bool {
		_, err := conn.Exec(t.Context(), "CREATE TABLE IF NOT EXISTS etcd_again (a int)")
		return err == nil
	})
	run(t, conn, "ALTER TABLE etcd_t ADD COLUMN extra int")
	w.after(t, 200)
	stored := w.finish(t)
	checkPlaced(t, c, "etcd_t", "id", stored)
	if stored < 800 {
		t.Errorf("only %d rows were written", stored)
	}
	checkNoDrift(t, c)
	sameOnNodes(t, c, "<nil>", "SELECT to_regclass('etcd_never')::text")
	waitFor(t, "both routers to have the map", func() bool {
		return fmt.Sprint(c.Router(0).Map().Epoch, c.Router(1).Map().Epoch) == fmt.Sprint(c.Map().Epoch, c.Map().Epoch)
	})
}
