package twopc

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestScripts plays the protocol as text. A script names what happens, one event a line, and
// the file has what follows from it.
//
//	commit   a client commits: n1 decides, n2 and n3 are the others
//	run      the events in the input happen
//	settle   all nodes start, and recovery works until nothing is prepared
//	crash    who=<coordinator|n1|n2|n3|a>: after each of the events in the input, that one crashes
//	         and stays down, and recovery settles; one line for each place to crash
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range scripts {
		w := newWorld()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "commit":
				w = newWorld()
				return w.story([]action{{prepare, 1}, {prepare, 2}}) + "\n"
			case "run":
				return w.play(t, d.Input) + w.summary()
			case "settle":
				return w.settleAloud() + w.summary()
			case "crash":
				var who string
				d.ScanArgs(t, "who", &who)
				return crashEverywhere(t, who, d.Input)
			}
			t.Fatalf("no command %s", d.Cmd)
			return ""
		})
	}
}

// find returns the event of that name, if it can happen.
func (w *world) find(name string) (event, bool) {
	var at event
	found := false
	w.events(bugNone, func(e event) {
		if e.String() == name {
			at, found = e, true
		}
	})
	return at, found
}

func (w *world) play(t *testing.T, input string) string {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(input) {
		name := strings.TrimSpace(line)
		e, ok := w.find(name)
		if !ok {
			var possible []string
			w.events(bugNone, func(e event) { possible = append(possible, e.String()) })
			t.Fatalf("%q cannot happen; what can:\n  %s", name, strings.Join(possible, "\n  "))
		}
		b.WriteString(name)
		if text := w.apply(e, bugNone); text != "" {
			b.WriteString(": " + text)
		}
		b.WriteString("\n")
		if broken := w.violation(); broken != "" {
			t.Errorf("after %q: %s", name, broken)
		}
	}
	return b.String()
}

func (w *world) summary() string {
	var b strings.Builder
	for i, tx := range w.tx {
		state := tx.String()
		if w.down[i] {
			state += " (down)"
		}
		fmt.Fprintf(&b, "n%d %s; ", i+1, state)
	}
	client := w.coordinator().outcome().String()
	if w.crashed {
		client += " (coordinator crashed)"
	}
	return fmt.Sprintf("= %sdecision: %v; client: %s\n", b.String(), w.row, client)
}

// settleAloud is settle that tells what happens.
func (w *world) settleAloud() string {
	var b strings.Builder
	step := func(e event) {
		text := w.apply(e, bugNone)
		fmt.Fprintln(&b, strings.TrimSuffix(e.String()+": "+text, ": "))
	}
	for i := range parts {
		if w.down[i] {
			step(event{kind: nodeStarts, part: i})
		}
	}
	for {
		for i := 1; i < parts; i++ {
			if w.tx[i] == txPrepared {
				step(event{kind: recoveryLists, part: i})
			}
		}
		if w.recs[0] == (recoverer{}) {
			return b.String()
		}
		step(event{kind: recoveryBegins})
		for waiting := w.recs[0].waiting(); len(waiting) > 0; waiting = w.recs[0].waiting() {
			step(event{kind: recoveryGets, part: waiting[0].part, step: waiting[0].step})
		}
	}
}

// crashEverywhere plays each beginning of the input, crashes somebody, and settles.
func crashEverywhere(t *testing.T, who, input string) string {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(input), "\n")
	var b strings.Builder
	for n := 0; n <= len(lines); n++ {
		w := newWorld()
		w.play(t, strings.Join(lines[:n], "\n"))
		if _, possible := w.find(who + " crashes"); !possible {
			continue // a recovery that has not begun, or has ended
		}
		w.play(t, who+" crashes")
		before := w
		w.goOn(t)
		if text := w.settle(bugNone); text != "" {
			t.Errorf("after %d events: %s", n, text)
		}
		if broken := w.violation(); broken != "" {
			t.Errorf("after %d events: %s", n, broken)
		}
		last := "the beginning"
		if n > 0 {
			last = lines[n-1]
		}
		fmt.Fprintf(&b, "after %s:\n  %s  %s", last, before.summary(), w.summary())
	}
	return b.String()
}

// goOn lets those who are not down do what they can without waiting for anything: messages arrive,
// lost ones are given up, and nodes notice connections that were lost.
func (w *world) goOn(t *testing.T) {
	t.Helper()
	for {
		var next *event
		w.events(bugNone, func(e event) {
			switch e.kind {
			case nodeRuns, coordinatorHears, coordinatorGivesUp, ghostRuns, nodeNotices:
				if next == nil && !e.fail {
					next = &e
				}
			}
		})
		if next == nil {
			return
		}
		w.apply(*next, bugNone)
		if broken := w.violation(); broken != "" {
			t.Error(broken)
		}
	}
}
