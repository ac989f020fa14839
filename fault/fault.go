// Package fault lets a process kill or stop itself at named points of its work, so that tests can crash a real router or
// controller exactly between two steps. It is off unless the environment says otherwise, and costs a nil check then.
package fault

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// Variable is the environment variable with the rules, for example "after-commit=kill,before-prepare=stop@20": kill the process right after
// a decider has committed, stop it (SIGSTOP) when it is about to prepare for the 20th time. Each rule acts once.
const Variable = "PGSHOAL_FAULT_POINTS"

var actions = map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}

// rule sends a signal to the own process when a point is reached for the last of left times.
type rule struct {
	point  string
	signal syscall.Signal
	left   int
}

// Points are the rules that have not acted yet.
type Points struct {
	mu     sync.Mutex
	rules  []rule
	signal func(syscall.Signal)
	log    io.Writer
}

// Parse reads rules; it returns nil when there are none. What they do is written to the log first.
func Parse(text string, log io.Writer) (*Points, error) {
	if text == "" {
		return nil, nil
	}
	p := &Points{signal: signalSelf, log: log}
	for one := range strings.SplitSeq(text, ",") {
		point, what, found := strings.Cut(one, "=")
		action, count, counted := strings.Cut(what, "@")
		r := rule{point: strings.ReplaceAll(point, "-", " "), signal: actions[action], left: 1}
		var err error
		if counted {
			r.left, err = strconv.Atoi(count)
		}
		if !found || point == "" || r.signal == 0 || err != nil || r.left < 1 {
			return nil, fmt.Errorf("%s: %q is no rule; one looks like after-commit=kill or before-prepare=stop@20", Variable, one)
		}
		p.rules = append(p.rules, r)
	}
	return p, nil
}

// Reached acts if a rule is about this point, whose last word is the node that it is about: "after commit node1".
func (p *Points) Reached(point string) {
	name := point[:max(strings.LastIndexByte(point, ' '), 0)]
	p.mu.Lock()
	defer p.mu.Unlock() // only one acts at a time
	for i := range p.rules {
		r := &p.rules[i]
		if r.point != name || r.left == 0 {
			continue
		}
		if r.left--; r.left == 0 {
			p.acting(r)
			p.signal(r.signal)
		}
	}
}

// Line begins the line that is written before a rule acts.
const Line = "fault point "

func (p *Points) acting(r *rule) {
	_, _ = fmt.Fprintf(p.log, "%s%s: %v\n", Line, strings.ReplaceAll(r.point, " ", "-"), r.signal)
}

// signalSelf aims at its own thread: the signal counts before the next instruction, and then stops or ends all threads.
func signalSelf(s syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_ = syscall.Tgkill(syscall.Getpid(), syscall.Gettid(), s)
}
