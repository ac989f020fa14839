package pgwire

import (
	"net"
	"sync"

	"github.com/pgshoal/pgshoal/ioloop"
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

// socketOf finds the loop's socket under a connection, and whether it is the connection itself: TLS has its own buffers.
func socketOf(conn net.Conn) (socket *ioloop.Conn, bare bool) {
	if c, ok := conn.(*ioloop.Conn); ok {
		return c, true
	}
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		socket, _ = t.NetConn().(*ioloop.Conn)
	}
	return socket, false
}

// Await waits until something can be taken, and holds no buffer meanwhile.
func (s *Stream) Await() error {
	if s.r < s.w {
		return nil
	}
	s.freeRead()
	if s.bare {
		if err := s.Socket.AwaitRead(); err != nil {
			return err
		}
	}
	return s.need(1)
}
