package pgwire

import (
	"bytes"
	"encoding/binary"
)

// reader walks through one whole message. After the first read past the end everything it
// returns is zero and done reports false, so decoders check once, at their end.
type reader struct {
	msg     []byte
	pos     int
	bad     bool
	endless bool // bad because a string had no end
}

// header checks that the length field is the message's own length and returns the type.
func (r *reader) header() byte {
	if len(r.msg) < 5 || int64(binary.BigEndian.Uint32(r.msg[1:])) != int64(len(r.msg)-1) {
		r.bad = true
		return 0
	}
	r.pos = 5
	return r.msg[0]
}

// done reports whether everything was well-formed and nothing is left over.
func (r *reader) done() bool { return !r.bad && r.pos == len(r.msg) }

func (r *reader) byte() byte {
	if r.bad || r.pos >= len(r.msg) {
		r.bad = true
		return 0
	}
	b := r.msg[r.pos]
	r.pos++
	return b
}

func (r *reader) uint16() int {
	b := r.bytes(2)
	if b == nil {
		return 0
	}
	return int(binary.BigEndian.Uint16(b))
}

func (r *reader) int32() int32 {
	b := r.bytes(4)
	if b == nil {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

// bytes returns the next n bytes, capped so that an append cannot reach the rest of the message.
func (r *reader) bytes(n int) []byte {
	if r.bad || n < 0 || n > len(r.msg)-r.pos {
		r.bad = true
		return nil
	}
	b := r.msg[r.pos : r.pos+n : r.pos+n]
	r.pos += n
	return b
}

// cstring returns the bytes up to the next zero byte, which is skipped.
func (r *reader) cstring() []byte {
	if r.bad {
		return nil
	}
	n := bytes.IndexByte(r.msg[r.pos:], 0)
	if n < 0 {
		r.bad, r.endless = true, true
		return nil
	}
	b := r.msg[r.pos : r.pos+n : r.pos+n]
	r.pos += n + 1
	return b
}

// end is done as an error in PostgreSQL's words.
func (r *reader) end() error {
	switch {
	case r.endless:
		return Errorf(CodeProtocolViolation, "invalid string in message")
	case r.bad:
		return Errorf(CodeProtocolViolation, "insufficient data left in message")
	case r.pos != len(r.msg):
		return errMessageFormat()
	}
	return nil
}

func errMessageFormat() *Error {
	return Errorf(CodeProtocolViolation, "invalid message format")
}
