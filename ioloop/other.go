//go:build !linux

package ioloop

import "net"

// Task is a goroutine here.
type Task struct{}

// Conn is never made here.
type Conn struct{ net.Conn }

// Go runs f in a goroutine.
func Go(f func(*Task)) { go f(nil) }

// Take returns the connection as it is.
func Take(conn net.Conn) net.Conn { return conn }

// Detach has nothing to do.
func (*Task) Detach() {}

// OnLoop is never so.
func (*Task) OnLoop() bool { return false }

// ParkReads has nothing to do.
func (*Conn) ParkReads(*Task) {}

// ParkWrites has nothing to do.
func (*Conn) ParkWrites(*Task) {}

// AwaitRead is never called.
func (*Conn) AwaitRead() error { return nil }
