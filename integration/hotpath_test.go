package integration

import (
	"context"
	"math"
	"net"
	"testing"

	"github.com/pgshoal/pgshoal/pgwire"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// TestStatementsAllocateNothing sends statements that were seen before, in the forms that drivers use, with a
// client that allocates nothing itself: the router runs in this process, so whatever is counted is its own.
func TestStatementsAllocateNothing(t *testing.T) {
	conn := client(t)
	run(t, conn, "CREATE TABLE hot (k bigint PRIMARY KEY, v bigint)", "SELECT create_distributed_table('hot', 'k')",
		"INSERT INTO hot SELECT 7, 0")
	host, port := shared().Address(0)
	raw, err := pgwire.Dial(context.Background(), pgwire.DialConfig{
		Address: net.JoinHostPort(host, port), SSLMode: "disable", User: cluster.Superuser, Database: cluster.Superuser, Password: cluster.Password,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Stream.Conn.Close()
	const read, write = "SELECT v FROM hot WHERE k = $1", "UPDATE hot SET v = v + 1 WHERE k = $1"
	key := [][]byte{[]byte("7")}
	exchange(t, raw.Stream, pgwire.AppendSync(pgwire.AppendParse(pgwire.AppendParse(nil, "r", read, nil), "w", write, nil)))
	executed := func(buf []byte, statement string) []byte {
		buf = pgwire.AppendBind(buf, "", statement, nil, key, nil)
		buf = pgwire.AppendDescribe(buf, pgwire.Portal, "")
		return pgwire.AppendSync(pgwire.AppendExecute(buf, "", 0))
	}
	for name, msg := range map[string][]byte{
		"simple read":    pgwire.AppendQuery(nil, "SELECT v FROM hot WHERE k = 7"),
		"simple write":   pgwire.AppendQuery(nil, "UPDATE hot SET v = v + 1 WHERE k = 7"),
		"extended read":  executed(pgwire.AppendParse(nil, "", read, nil), ""),
		"extended write": executed(pgwire.AppendParse(nil, "", write, nil), ""),
		"prepared read":  executed(nil, "r"),
		"prepared write": executed(nil, "w"),
	} {
		// All goroutines count, and some of them allocate now and then: the least of several measurements is the statement's own.
		n := math.Inf(1)
		for range 10 {
			n = min(n, testing.AllocsPerRun(50, func() { exchange(t, raw.Stream, msg) }))
		}
		if n >= 1 {
			t.Errorf("%s: %v allocations per statement", name, n)
		}
	}
}

// exchange sends messages and reads up to ReadyForQuery.
func exchange(t *testing.T, s *pgwire.Stream, msg []byte) {
	if _, err := s.Write(msg); err != nil {
		t.Fatal(err)
	}
	for {
		typ, answer, err := s.Next()
		switch {
		case err != nil:
			t.Fatal(err)
		case typ == 'E':
			t.Fatal(pgwire.ParseError(answer))
		case typ == 'Z':
			return
		}
	}
}
