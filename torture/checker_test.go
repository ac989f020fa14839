package torture

import (
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// TestCheckers gives the checkers histories with something wrong in them: each must be found.
func TestCheckers(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	// Transfer 0 from account 1 to 2 is told at 20, transfer 1 from 2 to 1 at 40.
	right := func() (*bank, *ledger) {
		b := &bank{transfers: []transfer{
			{sides: []side{{1, -1}, {2, 1}}, outcome: committed, began: at(10), ended: at(20)},
			{sides: []side{{2, -1}, {1, 1}}, outcome: committed, began: at(30), ended: at(40)},
		}, points: []point{{account: 1, version: 1, last: 0, began: at(21), ended: at(22)}}}
		var before, between, after picture
		between[1], between[2] = 1, 1
		after[1], after[2] = 2, 2
		b.pictures = []picture{before, between, after}
		l := &ledger{balances: map[int]int{}, versions: map[int]int{1: 2, 2: 2}, entries: map[[2]int][]entry{
			{1, 0}: {{-1, 1, at(15)}}, {2, 0}: {{1, 1, at(16)}}, {2, 1}: {{-1, 2, at(35)}}, {1, 1}: {{1, 2, at(36)}},
		}}
		for a := 1; a <= accounts; a++ {
			l.balances[a] = balance
		}
		return b, l
	}
	for _, test := range []struct {
		name   string
		spoil  func(*bank, *ledger)
		found  problems
		torn   int
		result porcupine.CheckResult
	}{
		{"nothing", func(*bank, *ledger) {}, problems{}, 0, porcupine.Ok},
		{"a lost transfer", func(_ *bank, l *ledger) {
			delete(l.entries, [2]int{2, 1})
			delete(l.entries, [2]int{1, 1})
			l.versions[1], l.versions[2] = 1, 1
			l.balances[1], l.balances[2] = balance-1, balance+1
		}, problems{lost: 1}, 0, porcupine.Ok},
		{"half a transfer", func(_ *bank, l *ledger) {
			delete(l.entries, [2]int{1, 1})
			l.versions[1]--
			l.balances[1]--
		}, problems{half: 1, sum: 0}, 0, porcupine.Ok},
		{"a doubled entry", func(_ *bank, l *ledger) {
			l.entries[[2]int{1, 1}] = append(l.entries[[2]int{1, 1}], entry{1, 3, at(36)})
			l.versions[1]++
			l.balances[1]++
		}, problems{doubled: 1}, 0, porcupine.Ok},
		{"a failed one that is there", func(b *bank, _ *ledger) { b.transfers[1].outcome = failed }, problems{revived: 1}, 0, porcupine.Ok},
		{"a wrong balance", func(_ *bank, l *ledger) { l.balances[3]++ }, problems{account: 1, sum: 1}, 0, porcupine.Ok},
		{"a late side", func(_ *bank, l *ledger) { l.entries[[2]int{2, 0}][0].at = at(25) }, problems{late: 1, latest: 5 * time.Millisecond}, 0, porcupine.Ok},
		{"a stale read", func(b *bank, _ *ledger) { b.points[0].version, b.points[0].last = 0, -1 }, problems{}, 0, porcupine.Illegal},
		{"a read of the future", func(b *bank, _ *ledger) { b.points[0].version, b.points[0].last = 2, 1 }, problems{}, 0, porcupine.Illegal},
		{"a lost update", func(_ *bank, l *ledger) { l.entries[[2]int{1, 1}][0].version = 1 }, problems{}, 0, porcupine.Illegal},
		{"a picture of one side", func(b *bank, _ *ledger) { b.pictures[1][2] = 0 }, problems{}, 1, porcupine.Ok},
		{"a picture of a later one without the earlier one", func(b *bank, _ *ledger) { b.pictures[2][1] = 0 }, problems{}, 1, porcupine.Ok},
	} {
		t.Run(test.name, func(t *testing.T) {
			b, l := right()
			test.spoil(b, l)
			torn, _ := b.halves(l)
			result := porcupine.CheckOperations(account, b.history(l))
			p := b.check(l)
			p.example = ""
			if p != test.found || torn != test.torn || result != (test.result == porcupine.Ok) {
				t.Errorf("found %+v, %d torn, linearizable %v; want %+v, %d, %s", p, torn, result, test.found, test.torn, test.result)
			}
		})
	}
}
