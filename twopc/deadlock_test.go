package twopc

import (
	"strings"
	"testing"
)

// spansOf makes transactions: 1/1 with process 11 on node a and 12 on b, 2/1 with 21 and 22, and so on.
func spansOf(names ...string) []Span {
	var spans []Span
	for i, name := range names {
		pid := uint32(name[0]-'0') * 10
		spans = append(
			spans, Span{"a", pid + 1, name, int64(i), "gid" + name}, Span{"b", pid + 2, name, int64(i), "gid" + name},
		)
	}
	return spans
}

func TestDeadlockVictim(t *testing.T) {
	t.Parallel()
	wait := func(node string, pid uint32, transaction string, blockers ...uint32) Wait {
		return Wait{Node: node, PID: pid, Transaction: transaction, Since: "now", Blockers: blockers, Lock: "ShareLock", Role: "r", Statement: "S" + transaction}
	}
	prepared := wait("a", 21, "2/1", 0)
	prepared.Prepared = "gid1/1"
	for _, test := range []struct {
		name   string
		waits  []Wait
		victim string
	}{
		{"two", []Wait{wait("a", 11, "1/1", 21), wait("b", 22, "2/1", 12)}, "2/1"},
		{"no ring", []Wait{wait("a", 11, "1/1", 21), wait("b", 12, "1/1", 22)}, ""},
		{"one node sees it itself", []Wait{wait("a", 11, "1/1", 21), wait("a", 21, "2/1", 11)}, ""},
		{"a holder that does not wait", []Wait{wait("a", 11, "1/1", 21)}, ""},
		{"three", []Wait{wait("a", 11, "1/1", 21), wait("b", 22, "2/1", 32), wait("a", 31, "3/1", 11)}, "3/1"},
		{"through one of a single node", []Wait{wait("a", 11, "1/1", 99), wait("a", 99, "", 21), wait("b", 22, "2/1", 12)}, "2/1"},
		{"a wait that may be another transaction's", []Wait{wait("a", 11, "1/1", 21), wait("b", 22, "", 12)}, ""},
		{"prepared", []Wait{prepared, wait("b", 12, "1/1", 22)}, "2/1"},
		{"several blockers", []Wait{wait("a", 11, "1/1", 77, 21), wait("b", 22, "2/1", 88, 12)}, "2/1"},
	} {
		g := NewLockGraph(spansOf("1/1", "2/1", "3/1"), test.waits)
		var found []string
		for _, name := range []string{"1/1", "2/1", "3/1"} {
			if g.Victim(name) != nil {
				found = append(found, name)
			}
		}
		if got := strings.Join(found, " "); got != test.victim {
			t.Errorf("%s: victim %q, want %q", test.name, got, test.victim)
		}
	}
}

func TestDeadlockIsSeenTwice(t *testing.T) {
	t.Parallel()
	look := func(since, role string) *Deadlock {
		return NewLockGraph(spansOf("1/1", "2/1"), []Wait{
			{Node: "a", PID: 11, Transaction: "1/1", Since: "s", Blockers: []uint32{21}, Lock: "ShareLock on transaction 7", Role: role, Statement: "UPDATE x"},
			{Node: "b", PID: 22, Transaction: "2/1", Since: since, Blockers: []uint32{12}, Lock: "ShareLock on transaction 8", Role: "me", Statement: "UPDATE y"},
		}).Victim("2/1")
	}
	first := look("s", "me")
	if !first.Same(look("s", "me")) {
		t.Error("the same waits are not the same")
	}
	if first.Same(look("later", "me")) || first.Same(nil) {
		t.Error("a new wait passes for the old one")
	}
	want := "Process 2 waits for ShareLock on transaction 8 on node b: UPDATE y; blocked by process 1.\n" +
		"Process 1 waits for ShareLock on transaction 7 on node a: UPDATE x; blocked by process 2."
	if got := first.Detail("me"); got != want {
		t.Errorf("detail:\n%s\nwant:\n%s", got, want)
	}
	if got := look("s", "other").Detail("me"); strings.Contains(got, "UPDATE x") || !strings.Contains(got, "a statement of role other") {
		t.Errorf("the detail shows a statement of another role: %s", got)
	}
}
