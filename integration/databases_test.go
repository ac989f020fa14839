package integration

import (
	"testing"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// TestDatabaseMadeAgain drops and makes a database of one name, as test runners do: what routers
// know and keep of the old one must not meet the new one.
func TestDatabaseMadeAgain(t *testing.T) {
	admin := client(t)
	inside := func() string { return shared().RoleDSN(0, cluster.Superuser, cluster.Password, "made_again") }
	for _, distributed := range []bool{true, false, true} {
		run(t, admin, "DROP DATABASE IF EXISTS made_again", "CREATE DATABASE made_again")
		conn := connect(t, inside())
		run(t, conn, "CREATE TABLE again (k bigint PRIMARY KEY, v text)")
		if distributed {
			run(t, conn, "SELECT create_distributed_table('again', 'k')")
			fails(t, admin, "0A000", "ALTER DATABASE made_again RENAME TO made_other", "distributed")
			fails(t, admin, "0A000", "CREATE DATABASE made_copy TEMPLATE made_again", "distributed")
		}
		run(t, conn, "INSERT INTO again VALUES (1, 'one')")
		expect(t, conn, "one", "SELECT v FROM again WHERE k = 1")
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	run(t, admin, "DROP DATABASE made_again")
	for _, d := range shared().Map().Distributions {
		if d.Database == "made_again" {
			t.Errorf("distribution %d of the dropped database is still in the map", d.ID)
		}
	}
}
