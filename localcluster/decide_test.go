package localcluster

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestDecideServer(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		facts serverFacts
		want  serverAction
	}{
		{"first start", serverFacts{}, actionStart},
		{"first start after a crash of the machine", serverFacts{Crashed: true}, actionStart},
		{"crashed", serverFacts{Last: exitCrash}, actionStart},
		{"shut down", serverFacts{Last: exitClean}, actionLeaveStopped},
		{"shut down, started by people, crashed", serverFacts{Last: exitClean, Crashed: true}, actionStart},
		{"started by people", serverFacts{Running: true, Last: exitClean}, actionWatch},
		{"crashed and already started again", serverFacts{Running: true, Last: exitCrash}, actionWatch},
		{"crashed, replica promoted", serverFacts{Replaced: true, Last: exitCrash}, actionLeaveReplaced},
		{"first start, replica promoted before", serverFacts{Replaced: true}, actionLeaveReplaced},
		{"second primary", serverFacts{Running: true, Replaced: true}, actionFence},
	} {
		if got := decideServer(test.facts); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

func TestReplacedBy(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name           string
		first, replica []string // files in the two data directories
		firstReplaced  bool
		secondReplaced bool
	}{
		{name: "a primary and its replica", replica: []string{"standby.signal"}},
		{name: "promotion under way", replica: []string{"standby.signal", "promote"}, firstReplaced: true},
		{name: "promoted", replica: []string{"pg_wal/00000002.history"}, firstReplaced: true},
		{
			name: "promoted, and the old primary has become its replica", first: []string{"standby.signal", "pg_wal/00000002.history"},
			replica: []string{"pg_wal/00000002.history"},
		},
		{
			name: "promoted back", first: []string{"pg_wal/00000002.history", "pg_wal/00000003.history"},
			replica: []string{"pg_wal/00000002.history"}, secondReplaced: true,
		},
	} {
		l := Layout{Dir: t.TempDir()}
		node := newState(1, 1).Nodes[0]
		for i, files := range [][]string{test.first, test.replica} {
			for _, name := range append([]string{"pg_wal/0"}, files...) {
				path := filepath.Join(l.dataDir(node.Servers[i]), name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if by := replacedBy(l, node, node.Servers[0]); (by != "") != test.firstReplaced {
			t.Errorf("%s: the first is replaced by %q", test.name, by)
		}
		if by := replacedBy(l, node, node.Servers[1]); (by != "") != test.secondReplaced {
			t.Errorf("%s: the second is replaced by %q", test.name, by)
		}
	}
}

func TestBackOff(t *testing.T) {
	t.Parallel()
	b := backOff{first: time.Second, most: 5 * time.Second}
	for i, want := range []time.Duration{1, 2, 4, 5, 5} {
		if got := b.after(time.Millisecond); got != want*time.Second {
			t.Errorf("failure %d: %v, want %ds", i, got, want)
		}
	}
	if got := b.after(time.Hour); got != time.Second {
		t.Errorf("after a long life: %v", got)
	}
}

func TestComplaint(t *testing.T) {
	t.Parallel()
	cause := errors.New("exit status 1")
	for output, want := range map[string]string{
		"":             "exit status 1",
		"one\ntwo\n\n": "two",
		"LOG: x\n2026 [1] FATAL:  could not create lock file\nLOG: y\n": "could not create lock file",
		"initdb: error: directory exists\ninitdb: hint: remove it\n":    "directory exists",
	} {
		if got := complaint([]byte(output), cause); got != want {
			t.Errorf("%q: %q, want %q", output, got, want)
		}
	}
}

func TestServerSettings(t *testing.T) {
	t.Parallel()
	s := newState(1, 1)
	s.SocketDir = "/it's here"
	node := s.Nodes[0]
	node.Servers[0].Port, node.Servers[1].Port = 1111, 2222
	primary := serverSettings(s, node, node.Servers[0], "secret")
	replica := serverSettings(s, node, node.Servers[1], "secret")
	for _, want := range []string{
		"port = '1111'\n", "unix_socket_directories = '/it''s here'\n", "wal_level = 'logical'\n",
		"max_prepared_transactions = '300'\n", "listen_addresses = '127.0.0.1'\n",
	} {
		if !strings.Contains(primary, want) {
			t.Errorf("the primary lacks %q:\n%s", want, primary)
		}
	}
	if strings.Contains(primary, "fsync") || strings.Contains(primary, "secret") {
		t.Errorf("the primary has too much:\n%s", primary)
	}
	for _, want := range []string{"port = '2222'\n", "port=1111 ", "primary_slot_name = 'node1_replica1'\n"} {
		if !strings.Contains(replica, want) {
			t.Errorf("the replica lacks %q:\n%s", want, replica)
		}
	}
}
