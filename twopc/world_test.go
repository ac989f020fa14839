package twopc

import "fmt"

// parts is the number of participants of the world: the decider and two others.
const parts = 3

// world is a coordinator, three nodes, two recoveries and one remover of old decisions, with what is
// under way between them. Nobody has a clock: whoever is slow, asleep or paused simply does nothing
// while others do. It is small enough to be enumerated.
type world struct {
	crashed bool // the coordinator
	phase   phase
	answers [parts]answer

	down [parts]bool
	tx   [parts]txState
	row  answer // saysNothing, saysCommit or saysAbort: what a reader of the decision finds

	cut    [parts]bool   // the coordinator's connection is broken
	inbox  [parts]step   // a request on its way to the node
	outbox [parts]answer // an answer on its way back
	ghost  [parts]step   // a request whose sender is cut off; the node may still run it
	unsent [parts]bool   // the connection was broken before the request, and the coordinator knows

	recs [2]recoverer
	// late are the statements that recoveries ever sent. Any of them may arrive, or arrive again, at any
	// time, because a statement that was given up may still run.
	late [parts]lateness
	// forget is the remover: the commit row was seen, n2 had nothing prepared then, nor n3.
	forget [parts]bool
}

// lateness is what recoveries have sent to one node.
type lateness struct{ recordAbort, commitPrepared, rollbackPrepared bool }

// recoverer is one recovery: it lists the nodes one after the other and then settles.
type recoverer struct {
	listed  [parts]bool
	state   recoveryState // 0 while listing
	answers [parts]answer
}

// txState is a node's part of the transaction.
type txState uint8

const (
	txOpen txState = iota
	txDecided
	txPrepared
	txCommitted
	txRolledBack
)

var txNames = [...]string{"open", "committing", "prepared", "committed", "rolled back"}

func (s txState) String() string { return txNames[s] }

// bug is a way to build the protocol wrong; the model check must find each of them.
type bug string

func newWorld() world {
	var w world
	c, actions := newCoordinator(parts)
	w.row = saysNothing
	w.setCoordinator(c)
	w.send(actions)
	return w
}

func (w *world) setCoordinator(c *coordinator) {
	w.phase = c.phase
	copy(w.answers[:], c.answers)
}

func (w *world) coordinator() *coordinator {
	return &coordinator{phase: w.phase, answers: append([]answer(nil), w.answers[:]...)}
}

// send puts requests on their way; on a broken connection they get nowhere.
func (w *world) send(actions []action) {
	for _, a := range actions {
		if w.unsent[a.part] = w.cut[a.part]; !w.cut[a.part] {
			w.inbox[a.part] = a.step
		}
	}
}

// hear gives the coordinator an answer and sends what it wants next.
func (w *world) hear(part int, a answer, b bug) []action {
	c := w.coordinator()
	switch {
	case c.phase == deciding && a == lost && (b == bugLostCommitIsNo || w.unsent[part]):
		a = no
	case b == bugLostPrepareIsYes && c.phase == preparing && part > 0 && a == lost:
		a = yes
	}
	actions := c.answer(part, a)
	w.setCoordinator(c)
	w.send(actions)
	return actions
}

// run is what a node does with a request of the coordinator. fail asks for the failure that any
// statement may meet: a constraint, a serialization failure, a cancel.
func (w *world) run(part int, s step, fail bool, b bug) answer {
	tx := &w.tx[part]
	open := *tx == txOpen || *tx == txDecided
	if fail {
		*tx = txRolledBack
		return no
	}
	switch {
	case s == prepare && *tx == txOpen:
		*tx = txPrepared
	case s == commit && (*tx == txDecided || *tx == txOpen && w.mayDecide(b)):
		*tx, w.row = txCommitted, saysCommit
	case s == rollback:
		if open {
			*tx = txRolledBack
		}
	case s == commitPrepared && *tx == txPrepared:
		*tx = txCommitted
	case s == rollbackPrepared && *tx == txPrepared:
		*tx = txRolledBack
	default:
		if open {
			*tx = txRolledBack // an error in the block
		}
		return no
	}
	return yes
}

// mayDecide says whether the decision row can be written.
func (w *world) mayDecide(b bug) bool { return w.row == saysNothing || b == bugDecideOverAbort }

// mayFail says which requests have a failure of their own to meet.
func (w *world) mayFail(part int, s step) bool {
	return s == prepare && w.tx[part] == txOpen || s == commit && (w.tx[part] == txOpen || w.tx[part] == txDecided)
}

// breakLink cuts the coordinator's connection. The node may not have noticed, and may even have a
// request that it will still run.
func (w *world) breakLink(part int) {
	w.cut[part] = true
	w.ghost[part], w.inbox[part], w.outbox[part] = w.inbox[part], 0, 0
}

func (w *world) crashNode(part int) {
	w.breakLink(part)
	w.ghost[part] = 0
	w.down[part] = true
	w.abandon(part)
}

// abandon is a node that noticed that its client is gone.
func (w *world) abandon(part int) {
	if w.tx[part] == txOpen || w.tx[part] == txDecided {
		w.tx[part] = txRolledBack
	}
}

// serve is what a node does with a statement of a recovery.
func (w *world) serve(part int, s step, b bug) answer {
	switch s {
	case ask:
		return w.row
	case recordAbort:
		switch {
		case b == bugNoAbortRow, b == bugHeldIsAbsent && w.tx[0] == txDecided:
			return yes
		case w.tx[0] == txDecided:
			return held
		case w.row == saysNothing:
			w.row = saysAbort
			return yes
		}
		return no
	}
	return w.run(part, s, false, "")
}

func (r *recoverer) machine() *recovery {
	return &recovery{state: r.state, answers: append([]answer(nil), r.answers[:]...)}
}

func (r *recoverer) set(m *recovery) {
	if m.done() {
		*r = recoverer{}
		return
	}
	r.state = m.state
	copy(r.answers[:], m.answers)
}

// waiting lists the actions of a recovery that have no answer yet.
func (r *recoverer) waiting() []action {
	switch r.state {
	case 0:
		return nil
	case asking, askingAgain:
		return []action{{ask, 0}}
	case recording:
		return []action{{recordAbort, 0}}
	}
	s := commitPrepared
	if r.state == finishingRollback {
		s = rollbackPrepared
	}
	var actions []action
	for i, a := range r.answers {
		if a == pending {
			actions = append(actions, action{s, i})
		}
	}
	return actions
}

// answerTo gives a recovery an answer; it returns the state it reached, also when that is its end.
func (w *world) answerTo(k, part int, a answer) recoveryState {
	m := w.recs[k].machine()
	w.note(m.answer(part, a))
	w.recs[k].set(m)
	return m.state
}

// note remembers what was sent, because it may arrive late.
func (w *world) note(actions []action) {
	for _, a := range actions {
		switch l := &w.late[a.part]; a.step {
		case recordAbort:
			l.recordAbort = true
		case commitPrepared:
			l.commitPrepared = true
		case rollbackPrepared:
			l.rollbackPrepared = true
		}
	}
}

// violation is a promise that the world has broken, or "".
func (w *world) violation() string {
	var saw [len(txNames)]bool
	for _, tx := range w.tx {
		saw[tx] = true
	}
	o := w.coordinator().outcome()
	switch {
	case saw[txCommitted] && saw[txRolledBack]:
		return fmt.Sprintf("committed on one node and rolled back on another: %v", w.tx)
	case o == committed && (saw[txRolledBack] || w.tx[0] != txCommitted):
		return fmt.Sprintf("the client was told committed: %v", w.tx)
	case o == rolledBack && saw[txCommitted]:
		return fmt.Sprintf("the client was told rolled back: %v", w.tx)
	}
	return ""
}
