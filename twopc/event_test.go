package twopc

import (
	"fmt"
	"strings"
)

const (
	bugNone             bug = ""
	bugNoAbortRow       bug = "recovery rolls back without an abort row"
	bugHeldIsAbsent     bug = "recovery does not wait for a decision that is written and not committed"
	bugLostCommitIsNo   bug = "the coordinator takes a lost COMMIT for a refused one"
	bugLostPrepareIsYes bug = "the coordinator takes a lost PREPARE for a prepared one"
	bugDecideOverAbort  bug = "deciding does not see the abort row"
	bugForgetCommit     bug = "commit rows are removed while somebody is prepared"
	bugForgetAbort      bug = "abort rows are removed while the decider is open"
	bugNoRecovery       bug = "nobody recovers"
)

// event is something that can happen in a world.
type event struct {
	kind eventKind
	part int
	rec  int
	step step
	fail bool // the failure of that kind
}

type eventKind uint8

const (
	nodeRuns   eventKind = iota
	nodeWrites           // the decision row; the commit that came with it follows
	coordinatorHears
	coordinatorGivesUp
	linkBreaks
	ghostRuns
	ghostVanishes
	nodeNotices
	nodeCrashes
	nodeStarts
	coordinatorCrashes
	recoveryLists
	recoveryBegins
	recoveryGets
	recoveryLoses
	recoveryCrashes
	lateArrives
	forgetSees
	forgetLists
	forgetRemoves
)

func (e event) String() string {
	n, r := fmt.Sprintf("n%d", e.part+1), string(rune('a'+e.rec))
	switch e.kind {
	case nodeRuns:
		if e.fail {
			return n + " refuses " + e.step.String()
		}
		return n + " runs " + e.step.String()
	case ghostRuns:
		return n + " runs " + e.step.String() + " of the lost connection"
	case lateArrives:
		return n + " runs " + e.step.String() + " of an earlier recovery"
	case recoveryLists:
		return r + " lists " + n
	case recoveryGets:
		return r + " gets " + e.step.String() + " " + n
	case recoveryLoses:
		if e.fail {
			return r + " loses the answer to " + e.step.String() + " " + n
		}
		return r + " loses " + e.step.String() + " " + n
	case recoveryBegins:
		return r + " begins"
	case recoveryCrashes:
		return r + " crashes"
	case coordinatorCrashes:
		return "coordinator crashes"
	}
	format := map[eventKind]string{
		nodeWrites:       "%s writes the decision",
		coordinatorHears: "coordinator hears %s", coordinatorGivesUp: "coordinator loses %s",
		linkBreaks: "connection to %s breaks", ghostVanishes: "%s gets no more of the lost connection",
		nodeNotices: "%s notices the lost connection", nodeCrashes: "%s crashes", nodeStarts: "%s starts",
		forgetSees: "remover sees the decision on %s", forgetLists: "remover lists %s", forgetRemoves: "remover removes the decision on %s",
	}[e.kind]
	return fmt.Sprintf(format, n)
}

// events calls f for everything that can happen next.
func (w *world) events(b bug, f func(event)) {
	for i := range parts {
		w.nodeEvents(i, b, f)
	}
	if !w.crashed {
		f(event{kind: coordinatorCrashes})
	}
	if b == bugNoRecovery {
		return
	}
	for k := range w.recs {
		w.recoveryEvents(k, f)
	}
	w.forgetEvents(b, f)
}

func (w *world) nodeEvents(i int, b bug, f func(event)) {
	up := !w.down[i]
	if w.outbox[i] != 0 {
		f(event{kind: coordinatorHears, part: i})
	}
	if !w.cut[i] {
		f(event{kind: linkBreaks, part: i})
	} else if !w.crashed && w.answers[i] == pending {
		f(event{kind: coordinatorGivesUp, part: i})
	}
	if s := w.inbox[i]; s != 0 && up {
		f(event{kind: nodeRuns, part: i, step: s})
		if w.mayFail(i, s) {
			f(event{kind: nodeRuns, part: i, step: s, fail: true})
		}
	}
	if (w.inbox[i] == commit && up || w.ghost[i] == commit) && w.tx[i] == txOpen && w.mayDecide(b) {
		f(event{kind: nodeWrites, part: i})
	}
	if s := w.ghost[i]; s != 0 {
		f(event{kind: ghostRuns, part: i, step: s})
		f(event{kind: ghostVanishes, part: i})
	} else if w.cut[i] && (w.tx[i] == txOpen || w.tx[i] == txDecided) {
		f(event{kind: nodeNotices, part: i})
	}
	if up {
		f(event{kind: nodeCrashes, part: i})
	} else {
		f(event{kind: nodeStarts, part: i})
	}
	for _, l := range []struct {
		sent bool
		step step
	}{{w.late[i].recordAbort, recordAbort}, {w.late[i].commitPrepared, commitPrepared}, {w.late[i].rollbackPrepared, rollbackPrepared}} {
		if l.sent && up {
			f(event{kind: lateArrives, part: i, step: l.step})
		}
	}
}

func (w *world) recoveryEvents(k int, f func(event)) {
	r := &w.recs[k]
	if r.state == 0 {
		for i := 1; i < parts; i++ {
			if !r.listed[i] && !w.down[i] && w.tx[i] == txPrepared {
				f(event{kind: recoveryLists, rec: k, part: i})
			}
		}
		if r.listed != [parts]bool{} {
			f(event{kind: recoveryBegins, rec: k})
		}
	}
	for _, a := range r.waiting() {
		if !w.down[a.part] {
			f(event{kind: recoveryGets, rec: k, part: a.part, step: a.step})
			f(event{kind: recoveryLoses, rec: k, part: a.part, step: a.step, fail: true})
		}
		f(event{kind: recoveryLoses, rec: k, part: a.part, step: a.step})
	}
	if *r != (recoverer{}) {
		f(event{kind: recoveryCrashes, rec: k})
	}
}

func (w *world) forgetEvents(b bug, f func(event)) {
	decider := !w.down[0]
	open := w.tx[0] == txOpen || w.tx[0] == txDecided
	switch {
	case w.row == saysAbort && decider && (!open || b == bugForgetAbort):
		f(event{kind: forgetRemoves})
	case w.row == saysCommit && decider && (w.forget == [parts]bool{true, true, true} || b == bugForgetCommit):
		f(event{kind: forgetRemoves})
	case w.row == saysCommit && decider && !w.forget[0]:
		f(event{kind: forgetSees})
	}
	for i := 1; w.forget[0] && i < parts; i++ {
		if !w.forget[i] && !w.down[i] {
			f(event{kind: forgetLists, part: i})
		}
	}
}

// apply makes an event happen and says what follows from it.
func (w *world) apply(e event, b bug) string {
	i := e.part
	switch e.kind {
	case nodeRuns:
		w.outbox[i] = w.run(i, e.step, e.fail, b)
		w.inbox[i] = 0
		return "answers " + w.outbox[i].String()
	case nodeWrites:
		w.tx[i] = txDecided
	case coordinatorHears:
		a := w.outbox[i]
		w.outbox[i] = 0
		return w.story(w.hear(i, a, b))
	case coordinatorGivesUp:
		return w.story(w.hear(i, lost, b))
	case linkBreaks:
		w.breakLink(i)
	case ghostRuns:
		w.run(i, w.ghost[i], false, b)
		w.ghost[i] = 0
	case ghostVanishes:
		w.ghost[i] = 0
	case nodeNotices:
		w.abandon(i)
	case nodeCrashes:
		w.crashNode(i)
	case nodeStarts:
		w.down[i] = false
	case coordinatorCrashes:
		w.crashed = true
		for part := range parts {
			if !w.cut[part] {
				w.breakLink(part)
			}
		}
	case lateArrives:
		w.serve(i, e.step, b)
	case forgetSees, forgetLists, forgetRemoves:
		w.applyForget(e)
	default:
		return w.applyRecovery(e, b)
	}
	return ""
}

func (w *world) applyForget(e event) {
	switch {
	case e.kind == forgetRemoves:
		w.row, w.forget = saysNothing, [parts]bool{}
	case e.kind == forgetLists && w.tx[e.part] == txPrepared:
		w.forget = [parts]bool{} // still needed: another time
	default:
		w.forget[e.part] = true
	}
}

func (w *world) applyRecovery(e event, b bug) string {
	r := &w.recs[e.rec]
	switch e.kind {
	case recoveryLists:
		r.listed[e.part] = true
		return ""
	case recoveryBegins:
		var prepared []int
		for i, l := range r.listed {
			if l {
				prepared = append(prepared, i)
			}
		}
		m, _ := newRecovery(parts, prepared)
		*r = recoverer{}
		r.set(m)
		return m.state.String()
	case recoveryGets:
		a := w.serve(e.part, e.step, b)
		return a.String() + ": " + w.answerTo(e.rec, e.part, a).String()
	case recoveryLoses:
		if e.fail {
			w.serve(e.part, e.step, b)
		}
		return w.answerTo(e.rec, e.part, lost).String()
	}
	*r = recoverer{} // it crashes
	return ""
}

// story says what the coordinator sends, or how it ended.
func (w *world) story(actions []action) string {
	var text strings.Builder
	for _, a := range actions {
		text.WriteString(fmt.Sprintf(", %v to n%d", a.step, a.part+1))
	}
	switch {
	case text.String() != "":
		return "sends " + text.String()[2:]
	case w.phase >= doneCommitted:
		return "ends: " + w.coordinator().outcome().String()
	}
	return "waits"
}
