package twopc

import "slices"

// coordinator decides what a router does to commit one transaction. It has no clock and does no
// I/O: answers go in, actions come out. Participants answer in any order; a phase begins when all
// of the one before have answered.
//
// The decision row is written together with the decider's COMMIT, in one message. So what is written is about
// to be committed, and nobody who wants to make the decision impossible waits for a coordinator that sleeps.
type coordinator struct {
	phase   phase
	answers []answer // of the current phase, by participant; 0 where nothing was asked
}

type phase uint8

const (
	preparing phase = iota + 1
	deciding
	completing
	aborting
	doneCommitted
	doneRolledBack
	doneInDoubt
)

// newCoordinator begins the commit of n participants, of which the first is the decider.
func newCoordinator(n int) (*coordinator, []action) {
	c := &coordinator{answers: make([]answer, n)}
	if n == 1 {
		return c, c.begin(deciding, []action{{commit, 0}})
	}
	var actions []action
	for i := 1; i < n; i++ {
		actions = append(actions, action{prepare, i})
	}
	return c, c.begin(preparing, actions)
}

// begin enters a phase whose actions all have to be answered.
func (c *coordinator) begin(p phase, actions []action) []action {
	c.phase = p
	clear(c.answers)
	for _, a := range actions {
		c.answers[a.part] = pending
	}
	return actions
}

// answer takes a participant's answer to the action it was given and returns what comes next.
func (c *coordinator) answer(part int, a answer) []action {
	if c.answers[part] != pending {
		return nil // a repeated answer is no news
	}
	c.answers[part] = a
	if slices.Contains(c.answers, pending) {
		return nil
	}
	switch c.phase {
	case preparing:
		return c.prepared()
	case deciding:
		return c.decided(a)
	}
	c.finish()
	return nil
}

// finish ends the last phase.
func (c *coordinator) finish() {
	switch c.phase {
	case completing:
		c.phase = doneCommitted
	case aborting:
		c.phase = doneRolledBack
	}
}

func (c *coordinator) prepared() []action {
	if !slices.ContainsFunc(c.answers[1:], func(a answer) bool { return a != yes }) {
		return c.begin(deciding, []action{{commit, 0}})
	}
	// Nobody was told to commit, so nobody will be, whatever the lost ones did: when they have
	// prepared after all, recovery finds no decision and rolls back.
	actions := []action{{rollback, 0}}
	for i, a := range c.answers[1:] {
		s := rollback
		if a == yes {
			s = rollbackPrepared
		}
		actions = append(actions, action{s, i + 1})
	}
	return c.begin(aborting, actions)
}

func (c *coordinator) decided(a answer) []action {
	next, s := completing, commitPrepared
	var actions []action
	switch a {
	case lost:
		c.phase = doneInDoubt // only recovery can tell, and whoever guesses may be wrong
		return nil
	case no:
		next, s = aborting, rollbackPrepared
		actions = append(actions, action{rollback, 0}) // a row that was refused leaves a failed transaction behind
	}
	for i := 1; i < len(c.answers); i++ {
		actions = append(actions, action{s, i})
	}
	c.begin(next, actions)
	if len(actions) == 0 {
		c.finish() // the decider was alone
	}
	return actions
}

// outcome is what may be told to the client now. What is left to do then, does not change it.
func (c *coordinator) outcome() outcome {
	switch c.phase {
	case completing, doneCommitted:
		return committed
	case aborting, doneRolledBack:
		return rolledBack
	case doneInDoubt:
		return inDoubt
	}
	return undecided
}
