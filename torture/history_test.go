package torture

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// change is a transfer at one of its accounts, or a read of it.
type change struct {
	account, number int // number is -1 for a read
}

// content is what an account tells: how many changes it has had, and which was the last.
type content struct{ version, last int }

// account is the claim: each account by itself is linearizable. Whatever a client reads or changes, it finds the account as it was left by
// the changes that had been acknowledged before, at least, through any router.
var account = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		parts := make([][]porcupine.Operation, accounts+1)
		for _, op := range history {
			a := op.Input.(change).account
			parts[a] = append(parts[a], op)
		}
		return parts
	},
	Init: func() any { return content{0, -1} },
	Step: func(state, input, output any) (bool, any) {
		before, after := state.(content), output.(content)
		if input.(change).number < 0 {
			return after == before, before
		}
		return after.version == before.version+1, content{after.version, input.(change).number}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}

// history is everything that happened to accounts. Of a transfer whose outcome the client does not know, the nodes' entries tell whether it
// happened, and not until when. A side that a node committed late, because it was away, counts from when it did.
func (b *bank) history(l *ledger) []porcupine.Operation {
	var all []porcupine.Operation
	for number, x := range b.transfers {
		for _, s := range x.sides {
			list := l.entries[[2]int{s.account, number}]
			if len(list) != 1 {
				continue
			}
			until := x.ended.UnixNano()
			switch {
			case x.outcome == unknown:
				until = math.MaxInt64
			case list[0].at.After(x.ended):
				until = list[0].at.Add(2 * time.Second).UnixNano() // its time is that of the record, before it is on disk
			}
			all = append(all, porcupine.Operation{
				Input: change{s.account, number}, Output: content{list[0].version, number}, Call: x.began.UnixNano(), Return: until,
			})
		}
	}
	for _, p := range b.points {
		all = append(all, porcupine.Operation{
			Input: change{p.account, -1}, Output: content{p.version, p.last}, Call: p.began.UnixNano(), Return: p.ended.UnixNano(),
		})
	}
	return all
}

// halves counts the pictures that show a transfer at one of its accounts and not at another.
//
// For each two accounts it keeps, by the version at the first, the greatest version at the second of the transfers so far that they
// share: a picture that shows the first at some version must show the second at least there.
func (b *bank) halves(l *ledger) (n int, example string) {
	type tie struct{ here, there int }
	ties := map[[2]int][]tie{}
	for number, x := range b.transfers {
		for _, s := range x.sides {
			for _, o := range x.sides {
				here, there := l.entries[[2]int{s.account, number}], l.entries[[2]int{o.account, number}]
				if s != o && len(here) == 1 && len(there) == 1 {
					pair := [2]int{s.account, o.account}
					ties[pair] = append(ties[pair], tie{here[0].version, there[0].version})
				}
			}
		}
	}
	for _, list := range ties {
		slices.SortFunc(list, func(a, b tie) int { return a.here - b.here })
		for i := range list[1:] {
			list[i+1].there = max(list[i+1].there, list[i].there)
		}
	}
	for _, seen := range b.pictures {
		for pair, list := range ties {
			i, found := slices.BinarySearchFunc(list, seen[pair[0]], func(t tie, v int) int { return t.here - v })
			if !found {
				i--
			}
			if i >= 0 && list[i].there > seen[pair[1]] {
				n++
				example = fmt.Sprintf("account %d at version %d needs account %d at version %d, which is at %d", pair[0], seen[pair[0]], pair[1], list[i].there, seen[pair[1]])
				break
			}
		}
	}
	return n, example
}
