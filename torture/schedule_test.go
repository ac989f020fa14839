package torture

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// points are where routers and controllers are made to end or to stop, as package fault names them.
var points = map[string][]string{
	"router": {
		"before-prepare", "after-prepare", "before-commit", "after-commit",
		"before-commit-prepared", "after-commit-prepared", "before-rollback-prepared",
	},
	"controller": {
		"before-ask", "after-ask", "before-record-abort", "after-record-abort",
		"before-commit-prepared", "after-commit-prepared", "after-rollback-prepared", "before-forget",
	},
}

// schedule gives each process fault points in turn, so that all of them have theirs.
type schedule struct {
	random *rand.Rand
	next   map[string]int // of points, by kind
}

// rules are the next fault points of a process of this kind: it stops at some, and ends at the last.
func (s *schedule) rules(kind string) string {
	list := points[kind]
	step := map[string]int{"router": 30, "controller": 2}[kind]
	var rules []string
	for i := range 3 {
		action := "stop"
		if i == 2 {
			action = "kill"
		}
		rules = append(rules, fmt.Sprintf("%s=%s@%d", list[s.next[kind]%len(list)], action, 1+i*step+s.random.IntN(step)))
		s.next[kind]++
	}
	return strings.Join(rules, ",")
}
