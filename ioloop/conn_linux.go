package ioloop

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is a socket of the loop. One goroutine may read while another writes; all may close it and set deadlines.
type Conn struct {
	loop          *loop
	fd            int
	number        int32 // tells sockets apart that have had the same descriptor
	local, remote net.Addr
	in, out       side
	closing       sync.Once
}

// side is one direction of a socket.
type side struct {
	mu sync.Mutex
	// ready is false only when the last transfer has shown that there is nothing more to do and nothing has happened since.
	ready   bool
	over    bool // the peer is gone: never wait
	closed  bool
	expired bool // its deadline has passed
	timer   *time.Timer

	task    *Task         // waits, armed by who drives it
	blocked bool          // a goroutine waits for wake
	wake    chan struct{} // has room for one

	park  *Task // the task that waits here as one, where it can be resumed by the loop
	moved int   // how much it has read since it last waited
}

// fair is how much a task reads before it lets others go first.
const fair = 256 << 10

func newConn(l *loop, fd int, like net.Conn) *Conn {
	c := &Conn{loop: l, fd: fd, local: like.LocalAddr(), remote: like.RemoteAddr()}
	c.out.ready = true // what has come in is told when the socket is added
	return c
}

// ParkReads makes reads that have to wait give the thread to other tasks, and be resumed by the loop. The caller is t's code
// and is prepared to go on where it must not block. nil ends it.
func (c *Conn) ParkReads(t *Task) {
	if c != nil {
		c.in.park = t
	}
}

// ParkWrites is ParkReads for writes.
func (c *Conn) ParkWrites(t *Task) {
	if c != nil {
		c.out.park = t
	}
}

// signal notes that something happened, wakes a goroutine that waits, and returns a task that does.
func (s *side) signal(over bool) *Task {
	s.mu.Lock()
	s.ready, s.over = true, s.over || over
	t := s.release()
	s.mu.Unlock()
	return t
}

// release ends the wait of whoever waits. s.mu is held.
func (s *side) release() *Task {
	if s.blocked {
		s.blocked = false
		s.wake <- struct{}{}
	}
	t := s.task
	s.task = nil
	return t
}

// goesOn reports that there is no reason to wait. s.mu is held.
func (s *side) goesOn() bool { return s.ready || s.over || s.closed || s.expired }

// arm makes the side resume t, unless there is no reason to wait any more.
func (s *side) arm(t *Task) bool {
	s.mu.Lock()
	wait := !s.goesOn()
	if wait {
		s.task = t
	}
	s.mu.Unlock()
	return wait
}

// wait returns when something has happened.
func (s *side) wait() {
	if s.park != nil {
		s.park.yield(s)
		return
	}
	s.mu.Lock()
	if s.goesOn() {
		s.mu.Unlock()
		return
	}
	if s.wake == nil {
		s.wake = make(chan struct{}, 1)
	}
	s.blocked = true
	s.mu.Unlock()
	<-s.wake
}

// fault is why nothing can be transferred. s.mu is held.
func (s *side) fault() error {
	switch {
	case s.closed:
		return net.ErrClosed
	case s.expired:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// Read reads what is there, and waits until something is.
func (c *Conn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		n, err := c.tryRead(p)
		if err != errWait {
			c.in.share(n)
			return n, err
		}
		c.in.moved = 0
		c.in.wait()
	}
}

// share lets others go first now and then.
func (s *side) share(n int) {
	if s.park == nil {
		return
	}
	if s.moved += n; s.moved > fair {
		s.moved = 0
		s.park.yield(pause)
	}
}

// AwaitRead waits until Read would not.
func (c *Conn) AwaitRead() error {
	s := &c.in
	for {
		s.mu.Lock()
		err, goesOn := s.fault(), s.goesOn()
		s.mu.Unlock()
		if err != nil || goesOn {
			return err
		}
		s.wait()
	}
}

var errWait = errors.New("nothing yet")

func (c *Conn) tryRead(p []byte) (int, error) {
	c.in.mu.Lock()
	n, err := c.receive(p)
	c.in.mu.Unlock()
	return n, err
}

// receive is one read. c.in.mu is held.
func (c *Conn) receive(p []byte) (int, error) {
	s := &c.in
	if err := s.fault(); err != nil {
		return 0, err
	}
	if !s.goesOn() {
		return 0, errWait
	}
	s.ready = false
	n, errno := transfer(syscall.SYS_RECVFROM, c.fd, p, 0)
	switch {
	case errno == syscall.EAGAIN && !s.over:
		return 0, errWait
	case errno == syscall.EAGAIN:
		return 0, io.EOF
	case errno != 0:
		s.ready = true
		return 0, os.NewSyscallError("read", errno)
	case n == 0:
		s.ready = true
		return 0, io.EOF
	}
	// Less than there was room for is all there was: what comes later is told. An end that came with it is over.
	s.ready = n == len(p)
	return n, nil
}

// Write writes all of p.
func (c *Conn) Write(p []byte) (int, error) {
	done := 0
	for {
		n, err := c.tryWrite(p[done:])
		done += n
		if err != errWait {
			return done, err
		}
		if err := c.awaitRoom(); err != nil {
			return done, err
		}
	}
}

func (c *Conn) tryWrite(p []byte) (int, error) {
	c.out.mu.Lock()
	n, err := c.send(p)
	c.out.mu.Unlock()
	return n, err
}

// send writes as much as there is room for. c.out.mu is held.
func (c *Conn) send(p []byte) (int, error) {
	s := &c.out
	done := 0
	for {
		if err := s.fault(); err != nil {
			return done, err
		}
		if done == len(p) {
			return done, nil
		}
		n, errno := transfer(syscall.SYS_SENDTO, c.fd, p[done:], unix.MSG_NOSIGNAL)
		if errno == syscall.EAGAIN {
			s.ready = false
			return done, errWait
		}
		if errno != 0 {
			return done, os.NewSyscallError("write", errno)
		}
		done += n
	}
}

// awaitRoom asks to be told of room for output, and waits for it.
func (c *Conn) awaitRoom() error {
	if err := c.room(unix.EPOLLOUT); err != nil {
		return err
	}
	c.out.wait()
	return c.room(0)
}

func (c *Conn) room(more uint32) error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.closed {
		return net.ErrClosed
	}
	return c.loop.control(unix.EPOLL_CTL_MOD, c, more)
}

// transfer is a system call that never blocks, so the scheduler needs not know of it.
func transfer(call uintptr, fd int, p []byte, flags uintptr) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), flags, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}

// Close closes the socket and ends what waits for it.
func (c *Conn) Close() error {
	err := net.ErrClosed
	c.closing.Do(func() {
		c.loop.remove(c)
		for _, s := range []*side{&c.in, &c.out} {
			s.mu.Lock()
			s.closed = true
			s.stopTimer()
			t := s.release()
			s.mu.Unlock()
			if t != nil {
				go t.drive(false)
			}
		}
		// Nobody is in a system call with the descriptor any more: that would hold a side's lock.
		c.in.mu.Lock()
		c.out.mu.Lock()
		err = unix.Close(c.fd)
		c.out.mu.Unlock()
		c.in.mu.Unlock()
	})
	return err
}

// LocalAddr is this side's address.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline ends reads and writes at that time; the zero time takes it back.
func (c *Conn) SetDeadline(t time.Time) error {
	return errors.Join(c.in.setDeadline(t), c.out.setDeadline(t))
}

// SetReadDeadline is SetDeadline for reads.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.in.setDeadline(t) }

// SetWriteDeadline is SetDeadline for writes.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(t) }

func (s *side) setDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return net.ErrClosed
	}
	s.stopTimer()
	s.expired = false
	if t.IsZero() {
		return nil
	}
	if left := time.Until(t); left > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(left, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.timer == timer {
				s.expire()
			}
		})
		s.timer = timer
		return nil
	}
	s.expire()
	return nil
}

// expire ends waits. s.mu is held.
func (s *side) expire() {
	s.expired = true
	if t := s.release(); t != nil {
		go t.drive(false)
	}
}

func (s *side) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// SyscallConn gives access to the socket. Only Control is offered: the loop reads and writes.
func (c *Conn) SyscallConn() (syscall.RawConn, error) { return control{c}, nil }

type control struct{ c *Conn }

func (k control) Control(f func(fd uintptr)) error {
	k.c.in.mu.Lock()
	defer k.c.in.mu.Unlock()
	if k.c.in.closed {
		return net.ErrClosed
	}
	f(uintptr(k.c.fd))
	return nil
}

func (control) Read(func(uintptr) bool) error  { return errors.ErrUnsupported }
func (control) Write(func(uintptr) bool) error { return errors.ErrUnsupported }
