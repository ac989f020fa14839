package twopc

import "slices"

// recovery decides what to do with one transaction that was found prepared. Like coordinator it is
// pure. Any number of recoveries may work on the same transaction, while its coordinator does too.
type recovery struct {
	state   recoveryState
	answers []answer // while finishing, by participant; 0 for those that were not found prepared
}

type recoveryState uint8

const (
	asking recoveryState = iota + 1
	recording
	askingAgain
	finishingCommit
	finishingRollback
	settledCommit
	settledRollback
	leftUnreachable // a node that is needed does not answer
	leftUndecided   // the decider is committing, or the decision came and went meanwhile
)

var recoveryStateNames = [...]string{
	asking: "asking", recording: "recording", askingAgain: "asking again",
	finishingCommit: "committing", finishingRollback: "rolling back",
	settledCommit: "committed", settledRollback: "rolled back",
	leftUnreachable: "left: a node is unreachable", leftUndecided: "left: the decider is busy with it",
}

func (s recoveryState) String() string { return recoveryStateNames[s] }

// newRecovery begins with the participants that were found prepared, which the decider never is.
func newRecovery(n int, prepared []int) (*recovery, []action) {
	r := &recovery{state: asking, answers: make([]answer, n)}
	for _, i := range prepared {
		r.answers[i] = pending
	}
	return r, []action{{ask, 0}}
}

// answer takes the answer to an action and returns what comes next.
func (r *recovery) answer(part int, a answer) []action {
	if a == lost && r.state < finishingCommit {
		r.state = leftUnreachable
		return nil
	}
	switch r.state {
	case asking, askingAgain:
		return r.asked(a)
	case recording:
		return r.recorded(a)
	case finishingCommit, finishingRollback:
		r.finished(part, a)
	}
	return nil
}

func (r *recovery) asked(a answer) []action {
	switch {
	case a == saysCommit:
		return r.finish(finishingCommit, commitPrepared)
	case a == saysAbort:
		return r.finish(finishingRollback, rollbackPrepared)
	case r.state == askingAgain:
		r.state = leftUndecided
		return nil
	}
	// Absent now says nothing about later: a coordinator that was asleep may still decide. It must
	// not be able to before anybody is rolled back.
	r.state = recording
	return []action{{recordAbort, 0}}
}

func (r *recovery) recorded(a answer) []action {
	switch {
	case a == yes:
		return r.finish(finishingRollback, rollbackPrepared)
	case a == held:
		// Its row and its COMMIT came in one message, so it comes to its end by itself.
		r.state = leftUndecided
		return nil
	}
	r.state = askingAgain
	return []action{{ask, 0}}
}

func (r *recovery) finish(state recoveryState, s step) []action {
	r.state = state
	var actions []action
	for i, a := range r.answers {
		if a == pending {
			actions = append(actions, action{s, i})
		}
	}
	return actions
}

// finished counts a participant that had nothing prepared any more as done: others were faster.
func (r *recovery) finished(part int, a answer) {
	r.answers[part] = a
	switch {
	case slices.Contains(r.answers, pending):
	case slices.Contains(r.answers, lost):
		r.state = leftUnreachable
	case r.state == finishingCommit:
		r.state = settledCommit
	default:
		r.state = settledRollback
	}
}

func (r *recovery) done() bool { return r.state >= settledCommit }
