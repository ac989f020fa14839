package pool

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

type look uint8

const (
	quiet    look = iota // open, nothing to read
	readable             // something to read, an end of file included
	gone
)

// probe looks at a socket with one poll(2) that never waits. It is made once for a connection, so
// that looking allocates nothing.
type probe struct {
	raw     syscall.RawConn
	control func(fd uintptr)
	fds     [1]unix.PollFd
	failed  error
}

// start prepares the probe; it must not be copied afterwards.
func (p *probe) start(conn net.Conn) {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn() // TLS
	}
	s, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return
	}
	p.raw = raw
	p.control = func(fd uintptr) {
		p.fds[0] = unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}
		_, p.failed = unix.Poll(p.fds[:], 0)
	}
}

func (p *probe) look() look {
	if p.raw == nil {
		return quiet
	}
	if err := p.raw.Control(p.control); err != nil {
		return gone
	}
	switch {
	case p.failed == unix.EINTR:
		return readable // the read that follows finds out
	case p.failed != nil:
		return gone
	case p.fds[0].Revents == 0:
		return quiet
	}
	return readable
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
