package pgwire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Action is what becomes of a watched message.
type Action uint8

// Actions.
const (
	Forward  Action = iota // pass it on
	Drop                   // leave it out
	Stop                   // pass it on and end
	StopDrop               // leave it out and end
)

// WriteError is a failure of the receiving side of a Relay; any other error of Run came from the
// sending side or from the callback.
type WriteError struct{ Err error }

func (e *WriteError) Error() string { return "pgwire: relay write: " + e.Err.Error() }

// Unwrap gives the connection's own error.
func (e *WriteError) Unwrap() error { return e.Err }

// Relay passes messages from one stream to another. It looks at headers only: each chunk that was
// read is written with one write, straight from the read buffer, so a row costs no copy and no
// allocation, and a message may be larger than any buffer. A slow receiver holds the sender back
// because writes block.
type Relay struct {
	// Watch marks the message types that are given to the callback, whole. All others just pass.
	Watch [256]bool
	// Hold leaves what came before the stop pending in the receiving stream when it was read
	// together with it, so that the caller can add to it before Flush.
	Hold bool

	left int // bytes of the current message that are still to pass
}

// Run relays until the callback stops it. The callback may change bytes of msg in place, and must
// neither keep msg nor use the two streams. When Run returns nil, everything that was forwarded
// is written (or held) and the sender's stream stands right after the message that stopped it.
// When the callback fails, its message is taken and not forwarded; what came before is written.
func (r *Relay) Run(from, to *Stream, on func(typ byte, msg []byte) (Action, error)) error {
	r.left = 0
	for {
		chunk, err := from.Chunk()
		if err != nil {
			if errors.Is(err, io.EOF) && r.left > 0 {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		scan := chunkScan{chunk: chunk}
		verdict := r.scan(&scan, to, on)
		from.Take(scan.pos)
		if err := r.send(to, scan.chunk[scan.start:scan.pos-scan.dropped], scan.stop); err != nil {
			return &WriteError{err}
		}
		if verdict != nil || scan.stop {
			return verdict
		}
		if scan.want > 0 {
			if _, err := from.Peek(scan.want); err != nil {
				return err
			}
		}
	}
}

// chunkScan is how far one chunk was understood. chunk[start:pos-dropped] is still to be sent.
type chunkScan struct {
	chunk      []byte
	start, pos int
	dropped    int  // size of a left-out message right before pos
	want       int  // bytes needed at pos before the scan can go on
	stop       bool // the callback ended the relay
}

// scan walks over the messages in one chunk.
func (r *Relay) scan(s *chunkScan, to *Stream, on func(byte, []byte) (Action, error)) error {
	r.pass(s, r.left)
	for s.pos < len(s.chunk) {
		rest := s.chunk[s.pos:]
		if len(rest) < 5 {
			s.want = 5
			return nil
		}
		size := binary.BigEndian.Uint32(rest[1:])
		if size < 4 || size > MaxMessage {
			return fmt.Errorf("%w %d for type %q", ErrMessageSize, size, rest[0])
		}
		total := int(size) + 1
		if !r.Watch[rest[0]] {
			r.pass(s, total)
			continue
		}
		if total > len(rest) {
			s.want = total
			return nil
		}
		action, err := on(rest[0], rest[:total:total])
		s.pos += total
		switch {
		case err != nil:
			s.dropped = total
			return err
		case action == Drop:
			to.Append(s.chunk[s.start : s.pos-total])
			s.start = s.pos
		case action == Stop:
			s.stop = true
			return nil
		case action == StopDrop:
			s.stop, s.dropped = true, total
			return nil
		}
	}
	return nil
}

// pass steps over n bytes of a message, as many as are in this chunk.
func (r *Relay) pass(s *chunkScan, n int) {
	here := min(n, len(s.chunk)-s.pos)
	s.pos += here
	r.left = n - here
}

// send writes b together with what dropping messages left pending.
func (r *Relay) send(to *Stream, b []byte, last bool) error {
	if last && r.Hold {
		to.Append(b)
		return nil
	}
	if len(b) == 0 {
		return to.Flush()
	}
	_, err := to.Write(b)
	return err
}
