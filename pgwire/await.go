package pgwire

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
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

// awaiter reads the first bytes after a pause into a buffer that is taken only when they are there.
type awaiter struct {
	raw   syscall.RawConn
	known bool
	ready func(fd uintptr) bool
	err   error
}

// Await waits until something can be taken, and holds no buffer meanwhile.
func (s *Stream) Await() error {
	if s.r < s.w {
		return nil
	}
	s.Idle()
	a := &s.await
	if !a.known {
		a.known = true
		// Only a bare socket can be read past net.Conn; TLS has its own buffers.
		switch conn := s.Conn.(type) {
		case *net.TCPConn:
			a.raw, _ = conn.SyscallConn()
		case *net.UnixConn:
			a.raw, _ = conn.SyscallConn()
		}
		a.ready = s.readable
	}
	if a.raw == nil {
		return s.need(1)
	}
	a.err = nil
	if err := a.raw.Read(a.ready); err != nil {
		return err
	}
	return a.err
}

// readable reads what the socket has; false means nothing yet.
func (s *Stream) readable(fd uintptr) bool {
	buf := newBuffer(bufferSize)
	for {
		n, err := syscall.Read(int(fd), buf)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EAGAIN):
			freeBuffer(buf)
			return false
		case err != nil:
			freeBuffer(buf)
			s.await.err = err
		case n == 0:
			freeBuffer(buf)
			s.await.err = io.EOF
		default:
			s.buf, s.r, s.w = buf, 0, n
		}
		return true
	}
}
