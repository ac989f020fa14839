package twopc

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// key is a world in 128 bits: of each participant 32, of the rest 32.
type key [parts + 1]uint32

type packer struct {
	bits uint32
	n    uint
}

func (p *packer) add(v uint8, bits uint) {
	p.bits |= uint32(v) << p.n
	p.n += bits
}

func (p *packer) flag(b bool) {
	if b {
		p.bits |= 1 << p.n
	}
	p.n++
}

func (w *world) partKey(i int) uint32 {
	var p packer
	p.add(uint8(w.answers[i]), 3)
	p.add(uint8(w.tx[i]), 3)
	p.flag(w.cut[i])
	p.add(uint8(w.inbox[i]), 3)
	p.add(uint8(w.outbox[i]), 3)
	p.add(uint8(w.ghost[i]), 3)
	p.flag(w.unsent[i])
	p.flag(w.forget[i])
	for k := range w.recs {
		p.flag(w.recs[k].listed[i])
		p.add(uint8(w.recs[k].answers[i]), 3)
	}
	p.flag(w.late[i].recordAbort)
	p.flag(w.late[i].commitPrepared)
	p.flag(w.late[i].rollbackPrepared)
	return p.bits
}

// key is the same for worlds that differ only in the names of the two participants that are not the
// decider, and mostly for those that differ in the names of the recoveries: nothing else
// distinguishes them.
func (w world) key() key {
	if w.recs[0].order() > w.recs[1].order() {
		w.recs[0], w.recs[1] = w.recs[1], w.recs[0]
	}
	var p packer
	p.flag(w.crashed)
	p.add(uint8(w.phase), 3)
	p.add(uint8(w.row-saysCommit), 2)
	for k := range w.recs {
		p.add(uint8(w.recs[k].state), 4)
	}
	a, b := w.partKey(1), w.partKey(2)
	return key{p.bits, w.partKey(0), min(a, b), max(a, b)}
}

func (r *recoverer) order() uint32 {
	var p packer
	p.add(uint8(r.state), 4)
	p.add(uint8(r.answers[1])+uint8(r.answers[2]), 4)
	return p.bits
}

func (s txState) final() bool { return s == txCommitted || s == txRolledBack }

// simplify forgets what cannot change any promise any more, so that worlds that differ in nothing
// else are visited once.
func (w *world) simplify() {
	// A node that is down is a node that does nothing, which any node may do for any time. So
	// what remains of a crash is what it destroys, and the node may start at once.
	w.down = [parts]bool{}
	if w.crashed && w.phase < doneCommitted {
		// It has told what it has told, and will not tell more.
		w.phase = map[outcome]phase{undecided: doneInDoubt, committed: doneCommitted, rolledBack: doneRolledBack}[w.coordinator().outcome()]
	}
	if w.phase >= doneCommitted {
		w.answers, w.unsent = [parts]answer{}, [parts]bool{}
	}
	for i := range parts {
		if w.tx[i].final() {
			w.ghost[i] = 0
			w.late[i].commitPrepared, w.late[i].rollbackPrepared = false, false
		}
	}
	if w.tx[0].final() && w.tx[1].final() && w.tx[2].final() {
		// The decision is without use.
		w.recs, w.late, w.forget, w.row = [2]recoverer{}, [parts]lateness{}, [parts]bool{}, saysAbort
	}
}

// checker visits every world that can be reached, those that need few events first.
type checker struct {
	bug     bug
	seen    map[key]struct{}
	queue   []visit
	settled map[world]string // by the part of a world that settling depends on
	wrong   string           // the first promise that was broken, with the story that leads there
	told    [inDoubt + 1]int
}

// visit is a world and how it was reached.
type visit struct {
	w    world
	from int32 // index of the visit before
	via  event
}

func check(b bug) *checker {
	c := &checker{bug: b, seen: make(map[key]struct{}), settled: make(map[world]string)}
	c.add(newWorld(), -1, event{})
	for at := 0; at < len(c.queue) && c.wrong == ""; at++ {
		w := c.queue[at].w
		c.told[w.coordinator().outcome()]++
		broken := w.violation()
		if broken == "" {
			broken = c.settles(&w)
		}
		if broken != "" {
			c.wrong = c.tell(broken, at)
			break
		}
		w.events(b, func(e event) {
			next := w
			next.apply(e, b)
			next.simplify()
			c.add(next, at, e)
		})
	}
	return c
}

func (c *checker) add(w world, from int, via event) {
	k := w.key()
	if _, again := c.seen[k]; again {
		return
	}
	c.seen[k] = struct{}{}
	c.queue = append(c.queue, visit{w, int32(from), via})
}

// tell is the story of a visit.
func (c *checker) tell(broken string, at int) string {
	var events []string
	for i := int32(at); i > 0; i = c.queue[i].from {
		events = append(events, "\n  "+c.queue[i].via.String())
	}
	slices.Reverse(events)
	return broken + strings.Join(events, "")
}

// settles checks that from here on recovery alone brings everything to its end, once all nodes are
// up and even if nobody else ever does anything again.
func (c *checker) settles(w *world) string {
	if w.tx[0] == txDecided {
		return "" // a node that commits comes to an end by itself, and the worlds in which it has are visited too
	}
	alone := world{tx: w.tx, row: w.row, phase: preparing, answers: [parts]answer{pending, pending, pending}}
	if text, known := c.settled[alone]; known {
		return text
	}
	start := alone
	text := alone.settle(c.bug)
	if text == "" {
		text = alone.violation()
	}
	c.settled[start] = text
	return text
}

// settle starts all nodes and lets one recovery work without faults, round after round.
func (w *world) settle(b bug) string {
	w.down = [parts]bool{}
	w.recs = [2]recoverer{}
	for round := range 4 {
		for i := 1; i < parts; i++ {
			w.recs[0].listed[i] = w.tx[i] == txPrepared
		}
		if w.recs[0].listed == [parts]bool{} {
			return ""
		}
		if b == bugNoRecovery || round == 3 {
			break
		}
		w.apply(event{kind: recoveryBegins}, b)
		for {
			waiting := w.recs[0].waiting()
			if len(waiting) == 0 {
				break
			}
			w.apply(event{kind: recoveryGets, part: waiting[0].part, step: waiting[0].step}, b)
		}
	}
	return "still prepared after three rounds of recovery"
}

func skipUnderRaceDetector(t *testing.T) {
	t.Helper()
	if raceDetector {
		t.Skip("the model check has one goroutine; the race detector only makes it slow")
	}
}

func TestModel(t *testing.T) {
	skipUnderRaceDetector(t)
	start := time.Now()
	c := check(bugNone)
	if c.wrong != "" {
		t.Fatal(c.wrong)
	}
	for o, n := range c.told {
		if n == 0 {
			t.Errorf("no world in which the client is told %v: the model is not complete", outcome(o))
		}
	}
	t.Logf("%d worlds in %v", len(c.seen), time.Since(start).Round(time.Millisecond))
}

// TestModelFindsBugs makes sure that the check can fail.
func TestModelFindsBugs(t *testing.T) {
	skipUnderRaceDetector(t)
	for _, b := range []bug{
		bugNoAbortRow, bugHeldIsAbsent, bugLostCommitIsNo, bugLostPrepareIsYes, bugDecideOverAbort, bugForgetCommit, bugForgetAbort, bugNoRecovery,
	} {
		t.Run(string(b), func(t *testing.T) {
			c := check(b)
			if c.wrong == "" {
				t.Fatal("not found")
			}
			t.Logf("%d worlds; %s", len(c.seen), c.wrong)
		})
	}
}
