package pgwire

import (
	"io"
	"net"
	"sync"
	"syscall"
	"unsafe"
)

// idleOut is how much memory for output an idle stream may keep.
const idleOut = 1 << 10

// buffers are the read buffers that no stream is using: few are needed at a time, however many
// connections there are.
var buffers = sync.Pool{New: func() any { return new([bufferSize]byte) }}

func newBuffer(n int) []byte {
	if n > bufferSize {
		return make([]byte, n)
	}
	return buffers.Get().(*[bufferSize]byte)[:]
}

func freeBuffer(b []byte) {
	if len(b) == bufferSize {
		buffers.Put((*[bufferSize]byte)(b))
	}
}

// rawSocket reads and writes a socket past net.Conn, which saves the scheduler's bookkeeping of
// system calls that may block: these never do, the sockets are non-blocking. It waits through
// net.Conn all the same, so deadlines and Close work as usual.
type rawSocket struct {
	conn syscall.RawConn // nil: there is no bare socket

	// The callbacks are made once, so that a call allocates nothing. Reading and writing have
	// nothing in common, because two goroutines may do them.
	onRead, onAwait, onExchange, onWrite func(fd uintptr) bool
	in, out                              transferred
	sent                                 bool // the question of an exchange
}

// transferred is how far one direction is.
type transferred struct {
	data []byte
	n    int
	err  error
}

// open finds the stream's socket. There is none under TLS, which has its own buffers.
func (r *rawSocket) open(s *Stream) {
	switch conn := s.Conn.(type) {
	case *net.TCPConn:
		r.conn, _ = conn.SyscallConn()
	case *net.UnixConn:
		r.conn, _ = conn.SyscallConn()
	}
	r.onRead, r.onWrite = r.readable, r.writable
	r.onAwait, r.onExchange = s.awaited, s.exchanged
}

func (s *Stream) socket() *rawSocket {
	if s.raw.conn == nil {
		return nil
	}
	return &s.raw
}

// read is one read of the connection.
func (s *Stream) read(p []byte) (int, error) {
	r := s.socket()
	if r == nil {
		return s.Conn.Read(p)
	}
	r.in = transferred{data: p}
	if err := r.conn.Read(r.onRead); err != nil {
		return 0, err
	}
	r.in.data = nil
	return r.in.n, r.in.err
}

func (r *rawSocket) readable(fd uintptr) bool {
	n, errno := receive(fd, r.in.data)
	switch {
	case errno == syscall.EAGAIN:
		return false
	case errno != 0:
		r.in.err = errno
	case n == 0:
		r.in.err = io.EOF
	}
	r.in.n = n
	return true
}

// write writes all of p.
func (s *Stream) write(p []byte) (int, error) {
	r := s.socket()
	if r == nil || len(p) == 0 {
		return s.Conn.Write(p)
	}
	r.out = transferred{data: p}
	if err := r.conn.Write(r.onWrite); err != nil {
		return r.out.n, err
	}
	r.out.data = nil
	return r.out.n, r.out.err
}

func (r *rawSocket) writable(fd uintptr) bool {
	w := &r.out
	for w.n < len(w.data) {
		n, errno := send(fd, w.data[w.n:])
		if errno == syscall.EAGAIN {
			return false
		}
		if errno != 0 {
			w.err = errno
			return true
		}
		w.n += n
	}
	return true
}

// receive and send are the socket's own system calls: read and write find their way there through
// the kernel's layer for files, which costs a little each time.
func receive(fd uintptr, p []byte) (int, syscall.Errno) {
	return transfer(syscall.SYS_RECVFROM, fd, p)
}

func send(fd uintptr, p []byte) (int, syscall.Errno) {
	return transfer(syscall.SYS_SENDTO, fd, p)
}

// transfer is a system call on a non-blocking socket.
func transfer(call, fd uintptr, p []byte) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.RawSyscall6(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
		if errno == syscall.EINTR {
			continue
		}
		if errno != 0 {
			return 0, errno
		}
		return int(n), 0
	}
}

// Await waits until something can be taken, and holds no buffer meanwhile.
func (s *Stream) Await() error {
	if s.r < s.w {
		return nil
	}
	s.freeRead()
	r := s.socket()
	if r == nil {
		return s.need(1)
	}
	r.in = transferred{}
	if err := r.conn.Read(r.onAwait); err != nil {
		return err
	}
	return r.in.err
}

// awaited reads into a buffer that is taken only when there is something.
func (s *Stream) awaited(fd uintptr) bool {
	buf := newBuffer(bufferSize)
	n, errno := receive(fd, buf)
	if errno == 0 && n > 0 {
		s.buf, s.r, s.w = buf, 0, n
		return true
	}
	freeBuffer(buf)
	switch {
	case errno == syscall.EAGAIN:
		return false
	case errno != 0:
		s.raw.in.err = errno
	default:
		s.raw.in.err = io.EOF
	}
	return true
}

// Exchange sends what is pending and waits for the first bytes of the answer. It knows that there
// is none before the question was sent, so it does not look for one in vain.
func (s *Stream) Exchange() error {
	r := s.socket()
	if r == nil || s.r < s.w || len(s.out) == 0 {
		return s.Flush()
	}
	freeBuffer(s.buf)
	s.buf, s.r, s.w = nil, 0, 0
	r.sent, r.in = false, transferred{}
	err := r.conn.Read(r.onExchange)
	if err == nil {
		err = r.in.err
	}
	if err != nil {
		return err
	}
	if !r.sent { // the socket did not take all of it at once
		rest := s.out[r.in.n:]
		if _, err := s.write(rest); err != nil {
			return err
		}
	}
	s.sent()
	return nil
}

// exchanged runs while the socket's readiness is watched already, so an answer that comes right
// after the write is not missed.
func (s *Stream) exchanged(fd uintptr) bool {
	r := &s.raw
	if r.sent {
		return s.awaited(fd)
	}
	n, errno := send(fd, s.out)
	if errno != 0 && errno != syscall.EAGAIN {
		r.in.err = errno
		return true
	}
	r.in.n = n
	r.sent = n == len(s.out)
	return !r.sent
}
