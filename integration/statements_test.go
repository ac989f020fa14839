package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// TestNodesGetNoMoreStatements reads in the nodes' logs what they were told to run: of a transaction that stays on one node exactly the
// client's own statements, so that what transactions over several nodes need costs it nothing; of one over two nodes three
// messages more, of which the decider's is in the place of COMMIT.
func TestNodesGetNoMoreStatements(t *testing.T) {
	setup := client(t)
	left, right := accounts(t, setup, "counted", 100)
	node, other := nodeWith(t, "counted", left), nodeWith(t, "counted", right)
	if other == "node1" { // the home node decides
		left, right, node, other = right, left, other, node
	}
	run(t, setup, "CREATE ROLE counter LOGIN PASSWORD 'secret'", "GRANT ALL ON counted TO counter", "ALTER ROLE counter SET log_statement = 'all'")
	const update = "UPDATE counted SET balance = balance + $1 WHERE id = $2"
	own := []string{"begin", "UPDATE", "UPDATE", "COMMIT"}
	for name, mode := range map[string]pgx.QueryExecMode{
		"simple": pgx.QueryExecModeSimpleProtocol, "extended": pgx.QueryExecModeExec, "prepared": pgx.QueryExecModeCacheStatement,
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, shared().RoleDSN(0, "counter", "secret", "postgres"))
			transfer := func(from, to int) {
				t.Helper()
				err := pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
					for i, id := range []int{from, to} {
						if _, err := tx.Exec(t.Context(), update, mode, 2*i-1, id); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Fatal(describe(err))
				}
			}
			transfer(left, right) // what a session needs once
			got := statementsOf(t, node, func() { transfer(left, left) })
			if fmt.Sprint(got) != fmt.Sprint(own) {
				t.Errorf("a transaction on one node is %q there, want %q", got, own)
			}
			got = statementsOf(t, node, func() { transfer(left, right) })
			if want := []string{"begin", "UPDATE", "EXECUTE; COMMIT"}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("a transaction on two nodes is %q on the decider, want %q", got, want)
			}
			got = statementsOf(t, other, func() { transfer(left, right) })
			if want := []string{"begin", "UPDATE", "EXECUTE; PREPARE", "COMMIT PREPARED"}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("a transaction on two nodes is %q on the other one, want %q", got, want)
			}
		})
	}
}

var (
	loggedStatement = regexp.MustCompile(`LOG:  (?:statement|execute [^:]*): (.*)`)
	longStatement   = regexp.MustCompile(`^(UPDATE|EXECUTE) .*?(; (COMMIT|PREPARE).*)?$`)
)

// statementsOf is what a node logs of statements while do runs, shortened to their words.
func statementsOf(t *testing.T, node string, do func()) []string {
	t.Helper()
	watch := connect(t, shared().NodeDSN(node))
	run(t, watch, "SET log_statement = 'all'")
	stamp := fmt.Sprint(time.Now().UnixNano())
	run(t, watch, "SELECT 'from "+stamp+"'")
	do()
	run(t, watch, "SELECT 'to "+stamp+"'")
	log := ""
	for deadline := time.Now().Add(10 * time.Second); !strings.Contains(log, "'to "+stamp+"'"); log = shared().Node(node).Log() {
		if time.Now().After(deadline) {
			t.Fatal("the statements are not in the node's log")
		}
	}
	_, log, found := strings.Cut(log, "'from "+stamp+"'")
	if !found {
		t.Fatal("the node has logged more than the test can see")
	}
	log, _, _ = strings.Cut(log, "SELECT 'to "+stamp)
	var list []string
	for line := range strings.Lines(log) {
		m := loggedStatement.FindStringSubmatch(line)
		if m == nil || m[1] == "" {
			continue
		}
		text := longStatement.ReplaceAllString(strings.TrimSpace(m[1]), "$1$2")
		if before, _, long := strings.Cut(text, " TRANSACTION '"); long {
			text = before
		}
		if strings.HasPrefix(text, "COMMIT PREPARED") {
			text = "COMMIT PREPARED"
		}
		list = append(list, text)
	}
	return list
}
