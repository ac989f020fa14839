package torture

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// faults hurts the cluster, heals it again, and remembers both.
type faults struct {
	*cluster
	random *rand.Rand
	done   map[string]int
	undo   []undo
	ending bool
	downs  map[*node]bool

	mu      sync.Mutex
	servers outage
	rule    outage // of controllers: of their links, and when one was killed or stopped, as another one must take over
}

// outage is how many are away, and when that was true last.
type outage struct {
	open int
	last time.Time
}

func (o *outage) quiet() time.Duration {
	if o.open > 0 {
		return 0
	}
	return time.Since(o.last)
}

// undo is what ends a fault.
type undo struct {
	at  time.Time
	run func()
}

func newFaults(c *cluster, seed uint64) *faults {
	now := time.Now()
	return &faults{
		cluster: c, random: rand.New(rand.NewPCG(seed, 0)), done: map[string]int{}, downs: map[*node]bool{}, servers: outage{last: now}, rule: outage{last: now},
	}
}

// run hurts parts until the context ends, and then heals everything.
func (f *faults) run(ctx context.Context) {
	f.kill(f.routers[0]) // it is started again with fault points, which would have hurt the setup
	next := time.Now()
	for ctx.Err() == nil {
		wake := next
		if len(f.undo) > 0 && f.undo[0].at.Before(wake) {
			wake = f.undo[0].at
		}
		timer := time.NewTimer(time.Until(wake))
		select {
		case <-ctx.Done():
		case e := <-f.events:
			f.react(e)
		case <-timer.C:
		}
		timer.Stop()
		f.heal(time.Now())
		if !time.Now().Before(next) && ctx.Err() == nil {
			if len(f.undo) < 2 { // clients must get something done between faults
				f.hurt()
			}
			next = time.Now().Add(time.Duration(300+f.random.IntN(1200)) * time.Millisecond)
		}
	}
	f.ending = true
	f.heal(time.Now().Add(time.Hour))
	for len(f.events) > 0 {
		f.react(<-f.events)
	}
}

// heal ends the faults whose time is over.
func (f *faults) heal(now time.Time) {
	for len(f.undo) > 0 && !f.undo[0].at.After(now) {
		u := f.undo[0]
		f.undo = f.undo[1:]
		u.run()
	}
}

// later ends a fault after a while: sometimes soon, sometimes after recovery had the time to decide.
func (f *faults) later(run func()) { f.after(5, run) }

// after takes long once in so many times.
func (f *faults) after(often int, run func()) {
	d := time.Duration(50+f.random.IntN(950)) * time.Millisecond
	if f.random.IntN(often) == 0 {
		d = time.Duration(4000+f.random.IntN(4000)) * time.Millisecond
	}
	f.undo = append(f.undo, undo{time.Now().Add(d), run})
	slices.SortFunc(f.undo, func(a, b undo) int { return a.at.Compare(b.at) })
}

// hurt does one thing at random.
func (f *faults) hurt() {
	switch n := f.random.IntN(10); {
	case n < 1:
		f.kill(one(f.random, f.routers))
	case n < 2:
		f.kill(one(f.random, f.controllers))
	case n < 3:
		f.stop(one(f.random, f.routers))
	case n < 4:
		f.stop(one(f.random, f.controllers))
	case n < 6:
		f.crash(one(f.random, f.nodes))
	case n < 7:
		f.separate(f.store, "the topology store", one(f.random, slices.Concat(f.routers, f.controllers)))
	default:
		f.separate(one(f.random, f.nodes).proxy, "a node", one(f.random, slices.Concat(f.routers, f.routers, f.controllers)))
	}
}

func one[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

func (f *faults) kill(p *process) {
	if !p.up() || p.kind == "controller" && f.lonely(p) {
		return
	}
	f.done["kill "+p.kind]++
	f.note(p)
	p.sent = syscall.SIGKILL
	p.signal(p.sent)
}

func (f *faults) stop(p *process) {
	if !p.up() || p.kind == "controller" && f.lonely(p) {
		return
	}
	f.done["stop "+p.kind]++
	f.note(p)
	p.sent = syscall.SIGSTOP
	p.signal(p.sent)
	f.later(func() { p.signal(syscall.SIGCONT) })
}

// lonely reports whether no other controller is up. Without any, nothing can be settled, and that would prove nothing.
func (f *faults) lonely(p *process) bool {
	return !slices.ContainsFunc(f.controllers, func(q *process) bool { return q != p && q.up() })
}

// note remembers that a controller was hurt.
func (f *faults) note(p *process) {
	if p.kind == "controller" {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rule.last = time.Now()
	}
}

// crash ends a server without a checkpoint, or without a word, and starts it again.
func (f *faults) crash(n *node) {
	if f.downs[n] || len(f.downs) > 0 {
		return
	}
	f.downs[n] = true
	f.away(&f.servers)
	if f.random.IntN(2) == 0 {
		f.done["immediate shutdown of a node"]++
		n.server.StopImmediately()
	} else {
		f.done["kill node"]++
		n.server.Kill()
	}
	f.later(func() {
		n.server.Start()
		delete(f.downs, n)
		f.back(&f.servers)
	})
}

// separate cuts the network between a process and a server.
func (f *faults) separate(from *proxy, what string, p *process) {
	how, name := cut, "cut"
	if f.random.IntN(2) == 0 {
		how, name = silent, "silence"
	}
	f.done[fmt.Sprintf("%s between a %s and %s", name, p.kind, what)]++
	settles := p.kind == "controller"
	if settles {
		f.away(&f.rule)
	}
	from.set(how, p.name)
	f.later(func() {
		from.set(passes, p.name)
		if settles {
			f.back(&f.rule)
		}
	})
}

func (f *faults) away(o *outage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o.open++
}

func (f *faults) back(o *outage) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o.open--
	o.last = time.Now()
}

// react deals with a process that has ended or stopped.
func (f *faults) react(e event) {
	p := e.process
	f.note(p)
	switch {
	case !e.stopped:
		if p.sent != syscall.SIGKILL {
			f.done["killed "+p.kind+" "+p.point()]++
		}
		rules := ""
		if !f.ending {
			rules = f.schedule.rules(p.kind)
		}
		p.start(f.t, rules)
	case p.sent == syscall.SIGSTOP:
		p.sent = 0
	default:
		f.done["stopped "+p.kind+" "+p.point()]++
		f.atStop(p)
	}
}

// atStop uses that a process stands still between two steps: whatever happens now, happens exactly there.
func (f *faults) atStop(p *process) {
	if f.ending {
		p.signal(syscall.SIGCONT)
		return
	}
	n := one(f.random, f.nodes)
	switch f.random.IntN(4) {
	case 0:
		f.crash(n)
	case 1:
		f.separate(n.proxy, "a node", p)
		p.signal(syscall.SIGCONT)
		return
	}
	f.after(2, func() { p.signal(syscall.SIGCONT) })
}

// String lists what was done.
func (f *faults) String() string {
	var lines []string
	for _, name := range slices.SortedFunc(maps.Keys(f.done), cmp.Compare[string]) {
		lines = append(lines, fmt.Sprintf("%s %d", name, f.done[name]))
	}
	return strings.Join(lines, ", ")
}

// undisturbed is for how long all nodes have been up, and for how long the controllers have been left alone besides. What happens to
// routers and their links is no excuse.
func (f *faults) undisturbed() (nodes, all time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes = f.servers.quiet()
	return nodes, min(nodes, f.rule.quiet())
}
