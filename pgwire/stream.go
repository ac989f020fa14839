package pgwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/pgshoal/pgshoal/ioloop"
)

const (
	// bufferSize is what an active connection reads with; it grows for one large message and
	// shrinks back.
	bufferSize = 16 << 10
	// growStep is how far the buffer grows at once for a message that has not come yet.
	growStep = 1 << 20
	// smallMove is a number of bytes that is moved faster than read.
	smallMove = 512
	// MaxMessage is PostgreSQL's own limit for one message.
	MaxMessage = 1 << 30
)

// ErrMessageSize is a message whose length field no PostgreSQL would send.
var ErrMessageSize = errors.New("pgwire: invalid message length")

// Stream frames the PostgreSQL protocol over a connection, in either direction. It reads into
// one reused buffer and hands out slices of it, so that forwarding copies nothing; it collects
// writes and sends them with Flush. A Stream belongs to one goroutine at a time, except that
// one may read while another writes.
type Stream struct {
	Conn net.Conn // not to be changed
	// Socket is the loop's socket that Conn is or uses, nil if there is none.
	Socket *ioloop.Conn

	bare bool // Conn is Socket
	buf  []byte
	r, w int // unread bytes are buf[r:w]
	out  []byte
}

// NewStream frames conn.
func NewStream(conn net.Conn) *Stream {
	s := &Stream{Conn: conn}
	s.Socket, s.bare = socketOf(conn)
	return s
}

// Buffered is the number of bytes read from the connection and not yet taken.
func (s *Stream) Buffered() int { return s.w - s.r }

// HasMessage reports whether a whole message can be taken without reading.
func (s *Stream) HasMessage() bool {
	n := s.w - s.r
	return n >= 5 && n >= 1+int(binary.BigEndian.Uint32(s.buf[s.r+1:]))
}

// Next takes the next whole message, header included. The slice is valid until the next call
// that reads.
func (s *Stream) Next() (byte, []byte, error) { return s.NextMax(MaxMessage) }

// NextMax is Next with a lower limit for the length field, for peers that are not known yet.
func (s *Stream) NextMax(limit uint32) (byte, []byte, error) {
	if err := s.need(5); err != nil {
		return 0, nil, err
	}
	size := binary.BigEndian.Uint32(s.buf[s.r+1:])
	if size < 4 || size > limit {
		return 0, nil, fmt.Errorf("%w %d for type %q", ErrMessageSize, size, s.buf[s.r])
	}
	total := int(size) + 1
	if err := s.need(total); err != nil {
		return 0, nil, err
	}
	msg := s.buf[s.r : s.r+total : s.r+total]
	s.r += total
	return msg[0], msg, nil
}

// Chunk returns whatever is buffered, after one read when nothing is; Take consumes it.
func (s *Stream) Chunk() ([]byte, error) {
	if s.r == s.w {
		if err := s.need(1); err != nil {
			return nil, err
		}
	}
	return s.buf[s.r:s.w], nil
}

// Take consumes n bytes of the last Chunk.
func (s *Stream) Take(n int) { s.r += n }

// Peek waits for at least n bytes and returns them without taking them.
func (s *Stream) Peek(n int) ([]byte, error) {
	if err := s.need(n); err != nil {
		return nil, err
	}
	return s.buf[s.r : s.r+n], nil
}

// ReadFull takes exactly len(p) bytes; startup packets have no type byte and need it.
func (s *Stream) ReadFull(p []byte) error {
	for len(p) > 0 {
		if s.r == s.w {
			if err := s.need(1); err != nil {
				return err
			}
		}
		n := copy(p, s.buf[s.r:s.w])
		s.r += n
		p = p[n:]
	}
	return nil
}

// need makes at least n unread bytes available.
func (s *Stream) need(n int) error {
	for s.w-s.r < n {
		s.makeRoom(s.room(n))
		k, err := s.Conn.Read(s.buf[s.w:])
		s.w += k
		if err != nil && s.w-s.r < n {
			if errors.Is(err, io.EOF) && s.w > s.r {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// room is how much space to have for a message of n bytes now: memory follows the bytes that came,
// not the length that was promised.
func (s *Stream) room(n int) int {
	if n <= growStep {
		return n
	}
	have := len(s.buf)
	if s.w-s.r == have {
		have *= 2
	}
	return min(n, max(growStep, have))
}

// makeRoom gives the buffer space for n unread bytes. A few of them are moved to the front rather
// than letting the buffer's end cut the next read short.
func (s *Stream) makeRoom(n int) {
	switch {
	case s.buf == nil || n > len(s.buf):
		fresh := newBuffer(n)
		s.w = copy(fresh, s.buf[s.r:s.w])
		s.r = 0
		freeBuffer(s.buf)
		s.buf = fresh
	case s.r == s.w:
		if len(s.buf) > bufferSize && n <= bufferSize {
			s.buf = newBuffer(bufferSize)
		}
		s.r, s.w = 0, 0
	case s.r+n > len(s.buf) || s.w-s.r < smallMove:
		s.w = copy(s.buf, s.buf[s.r:s.w])
		s.r = 0
	}
}

// Idle gives the read buffer back when nothing is in it, so that an idle connection costs little.
func (s *Stream) Idle() {
	s.freeRead()
	if cap(s.out) > idleOut && len(s.out) == 0 {
		s.out = nil
	}
}

// freeRead gives an empty read buffer back.
func (s *Stream) freeRead() {
	if s.r == s.w {
		freeBuffer(s.buf)
		s.buf, s.r, s.w = nil, 0, 0
	}
}

// Append collects bytes to be written by Flush. The bytes are copied.
func (s *Stream) Append(b []byte) { s.out = append(s.out, b...) }

// Out exposes the pending output, so that messages can be encoded into it in place.
func (s *Stream) Out() *[]byte { return &s.out }

// Pending is the number of bytes that Flush would write.
func (s *Stream) Pending() int { return len(s.out) }

// Flush writes what was appended.
func (s *Stream) Flush() error {
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.Conn.Write(s.out)
	s.sent()
	return err
}

// sent empties the pending output; what one large answer needed is not kept.
func (s *Stream) sent() {
	if cap(s.out) > 4*bufferSize {
		s.out = nil
	} else {
		s.out = s.out[:0]
	}
}

// Write sends b at once, after anything pending.
func (s *Stream) Write(b []byte) (int, error) {
	if len(s.out) > 0 {
		s.Append(b)
		return len(b), s.Flush()
	}
	return s.Conn.Write(b)
}
