package twopc

import (
	"maps"
	"slices"
)

// View is what one node's snapshot shows of transactions over several nodes.
type View struct {
	Node  string
	Round int // in which the snapshot was taken; those of one round are taken in any order
	// Prepared are the gids that were prepared on the node right before the snapshot.
	Prepared map[string]bool
	// Seen are the participants of the transactions that the snapshot sees, of those that were asked for.
	Seen map[string][]string
}

// Lagging returns the nodes whose snapshots lack a transaction that another node's snapshot has, whether it is still being
// committed there, so that it makes sense to wait a little, and the gids that belong to no transaction.
//
// Who sees a transaction sees that it was decided, and from then on it is prepared or committed on every other participant.
// So a later snapshot that does not see it, where it was not prepared, tells that there is no such transaction: somebody has
// only written its name.
func Lagging(views []View) (nodes []string, wait bool, void []string) {
	at := map[string]*View{}
	for i := range views {
		at[views[i].Node] = &views[i]
	}
	again := map[string]bool{}
	for _, a := range views {
		for gid, participants := range a.Seen {
			for _, name := range participants {
				b := at[name]
				if b == nil || b.Seen[gid] != nil {
					continue
				}
				later := b.Round > a.Round
				if later && !b.Prepared[gid] {
					void = append(void, gid)
					continue
				}
				again[name] = true
				wait = wait || later
			}
		}
	}
	return slices.Sorted(maps.Keys(again)), wait, void
}
