package ioloop

import "iter"

// Task is a coroutine of the loop. Its methods are for the code that it runs.
type Task struct {
	loop   *loop
	next   func() (*side, bool)
	yield  func(*side) bool
	onLoop bool
}

// Go runs f as a task. It begins detached.
func Go(f func(*Task)) {
	t := &Task{loop: process()}
	t.next, _ = iter.Pull(func(yield func(*side) bool) {
		t.yield = yield
		f(t)
	})
	go t.drive(false)
}

// drive runs the task until it has to wait. A side is told of the task only after the task has stopped, so that nobody can
// resume it before.
func (t *Task) drive(onLoop bool) {
	for {
		t.onLoop = onLoop
		s, alive := t.next()
		switch {
		case !alive:
			return
		case s == pause:
			if onLoop {
				t.loop.later(t)
				return
			}
		case s != nil:
			if s.arm(t) {
				return
			}
		case onLoop:
			go t.drive(false)
			return
		}
	}
}

// pause is what a task waits for that lets others go first.
var pause = &side{}

// Detach goes on in a goroutine of the task's own, where it may block, until the next wait for a socket that is parked.
func (t *Task) Detach() {
	if t != nil && t.onLoop {
		t.yield(nil)
	}
}

// OnLoop reports that others wait while the task works.
func (t *Task) OnLoop() bool { return t != nil && t.onLoop }
