package integration

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// TestCommitAtEveryPoint does something bad at every point of a commit: the router sleeps until recovery has settled everything, or it loses
// its connections to a node. Afterwards the transaction is whole, and the client was told the truth.
func TestCommitAtEveryPoint(t *testing.T) {
	c := startHooked(t, cluster.Options{Nodes: 2})
	value := 0
	for _, point := range []string{
		"before prepare node2", "after prepare node2",
		"before commit node1", "after commit node1", "before commit prepared node2", "after commit prepared node2",
	} {
		for name, bad := range map[string]func(){
			"the router sleeps":          func() { c.settle(t) },
			"the decider is cut off":     func() { c.cut(t, "node1") },
			"the participant is cut off": func() { c.cut(t, "node2") },
		} {
			t.Run(point+", "+name, func(t *testing.T) {
				value++
				c.at(point, bad)
				err := c.commitBoth(t, value, "node1", "node2")
				c.hook.Store(nil)
				if lost := c.settle(t); len(lost) > 0 {
					t.Errorf("lost: %+v", lost)
				}
				first, second := c.value(t, "node1"), c.value(t, "node2")
				if first != second {
					t.Fatalf("half a transaction: node1 has %s, node2 has %s", first, second)
				}
				there := first == fmt.Sprint(value)
				if err == nil && !there {
					t.Error("the client was told COMMIT, and nothing is there")
				}
				if err != nil && there && !inDoubt(err) {
					t.Errorf("the client was told that it failed, and it is there: %s", describe(err))
				}
				if name == "the router sleeps" && (point == "before commit node1" && there || point == "after commit node1" && !there) {
					t.Errorf("committed %v: recovery decided in another way than it must", there)
				}
			})
		}
	}
}

func inDoubt(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == "08007"
}

// cut ends the connections of routers to a node.
func (c *hooked) cut(t *testing.T, node string) {
	t.Helper()
	conn := connect(t, c.NodeDSN(node))
	defer hangUp(conn)
	ask(t, conn, "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> $1", cluster.TestName)
}

// value asks the node behind the routers' back.
func (c *hooked) value(t *testing.T, node string) string {
	t.Helper()
	conn := connect(t, c.NodeDSN(node))
	defer hangUp(conn)
	return ask(t, conn, "SELECT v FROM hooked WHERE id = $1", c.keys[node])
}
