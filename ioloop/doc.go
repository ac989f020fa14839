// Package ioloop serves many sockets with few threads. A Task is a coroutine: where it waits for one of its sockets it gives
// its thread to the next task that can go on, without a word to Go's scheduler, whose wake-ups cost more than all that the
// router does for a simple statement.
//
// A task that is about to do what may block otherwise says so with Detach and goes on in a goroutine of its own. One that
// blocks without a word holds the others up only for a moment: the loop then goes on without it.
//
// It is made of epoll. On other systems than Linux a task is a goroutine and sockets stay what they are.
package ioloop
