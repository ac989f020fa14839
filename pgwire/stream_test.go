package pgwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// chunkConn delivers what it was given in reads of given sizes and keeps what is written.
type chunkConn struct {
	net.Conn // nil: anything else than reading and writing is a fault of the test

	chunks   [][]byte
	reads    int
	writes   [][]byte
	readErr  error // after the last chunk; io.EOF when nil
	writeErr error
}

func (c *chunkConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		panic("read into an empty buffer would never end")
	}
	if len(c.chunks) == 0 {
		if c.readErr != nil {
			return 0, c.readErr
		}
		return 0, io.EOF
	}
	c.reads++
	n := copy(p, c.chunks[0])
	if c.chunks[0] = c.chunks[0][n:]; len(c.chunks[0]) == 0 {
		c.chunks = c.chunks[1:]
	}
	return n, nil
}

func (c *chunkConn) Write(p []byte) (int, error) {
	if c.writeErr != nil {
		return 0, c.writeErr
	}
	c.writes = append(c.writes, bytes.Clone(p))
	return len(p), nil
}

func (c *chunkConn) written() []byte { return bytes.Join(c.writes, nil) }

func streamOf(chunks ...[]byte) (*Stream, *chunkConn) {
	conn := &chunkConn{chunks: chunks}
	return NewStream(conn), conn
}

// cut cuts data into chunks whose sizes come from sizes, again and again.
func cut(data []byte, sizes []int) [][]byte {
	var chunks [][]byte
	for i := 0; len(data) > 0; i++ {
		n := len(data)
		if len(sizes) > 0 {
			n = min(n, max(1, sizes[i%len(sizes)]))
		}
		chunks = append(chunks, data[:n])
		data = data[n:]
	}
	return chunks
}

// message makes a message of the given type and body.
func message(typ byte, body string) []byte {
	msg := append([]byte{typ, 0, 0, 0, 0}, body...)
	return endMessage(msg, 0)
}

func drawMessages(t *rapid.T) [][]byte {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) []byte {
		size := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 3*bufferSize)).Draw(t, "size")
		typ := rapid.SampledFrom([]byte("TDCZSNE1d")).Draw(t, "type")
		return message(typ, string(bytes.Repeat([]byte{typ}, size)))
	}), 1, 12).Draw(t, "messages")
}

func drawSizes(t *rapid.T) []int {
	return rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 9), rapid.IntRange(1, 2*bufferSize)), 1, 8).Draw(t, "sizes")
}

func TestStreamReadsEveryMessageWhateverTheChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		messages := drawMessages(t)
		s, _ := streamOf(cut(bytes.Join(messages, nil), drawSizes(t))...)
		for i, want := range messages {
			whole := s.HasMessage()
			typ, got, err := s.Next()
			if err != nil {
				t.Fatalf("message %d: %v", i, err)
			}
			if typ != want[0] || !bytes.Equal(got, want) {
				t.Fatalf("message %d: got %d bytes of %q, want %d of %q", i, len(got), typ, len(want), want[0])
			}
			if whole && cap(got) != len(got) {
				t.Fatal("an append to a message would overwrite the next one")
			}
			if s.Buffered() == 0 && rapid.Bool().Draw(t, "idle") {
				s.Idle()
			}
		}
		if _, _, err := s.Next(); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestStreamMixedReads(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := rapid.SliceOfN(rapid.Byte(), 0, 3*bufferSize).Draw(t, "data")
		s, _ := streamOf(cut(data, drawSizes(t))...)
		rest := data
		for len(rest) > 0 {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			switch rapid.IntRange(0, 2).Draw(t, "way") {
			case 0:
				got, err := s.Peek(n)
				if err != nil || !bytes.Equal(got, rest[:n]) {
					t.Fatalf("Peek(%d): %v", n, err)
				}
			case 1:
				got := make([]byte, n)
				if err := s.ReadFull(got); err != nil || !bytes.Equal(got, rest[:n]) {
					t.Fatalf("ReadFull(%d): %v", n, err)
				}
				rest = rest[n:]
			case 2:
				got, err := s.Chunk()
				if err != nil || len(got) == 0 || !bytes.HasPrefix(rest, got) || len(got) != s.Buffered() {
					t.Fatalf("Chunk: %d bytes, %v", len(got), err)
				}
				n = min(n, len(got))
				s.Take(n)
				rest = rest[n:]
			}
		}
		if _, err := s.Chunk(); !errors.Is(err, io.EOF) {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestStreamEndInsideAMessage(t *testing.T) {
	msg := message('D', "some body")
	for n := 1; n < len(msg); n++ {
		s, _ := streamOf(msg[:n])
		if _, _, err := s.Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("end after %d bytes: %v", n, err)
		}
	}
}

func TestStreamRefusesImpossibleLengths(t *testing.T) {
	for _, size := range []uint32{0, 3, MaxMessage + 1, 1 << 31, 1<<32 - 1} {
		head := binary.BigEndian.AppendUint32([]byte{'D'}, size)
		s, _ := streamOf(append(head, "the rest of it"...))
		if _, _, err := s.Next(); !errors.Is(err, ErrMessageSize) {
			t.Errorf("length %d: %v", size, err)
		}
	}
	s, _ := streamOf(message('p', "0123456789"))
	if _, _, err := s.NextMax(13); !errors.Is(err, ErrMessageSize) {
		t.Errorf("NextMax below the length: %v", err)
	}
	if _, _, err := s.NextMax(14); err != nil {
		t.Errorf("NextMax at the length: %v", err)
	}
}

func TestStreamMemoryFollowsTheBytes(t *testing.T) {
	var before, after runtime.MemStats
	head := binary.BigEndian.AppendUint32([]byte{'Q'}, MaxMessage)
	s, _ := streamOf(append(head, "SELECT"...))
	runtime.ReadMemStats(&before)
	_, _, err := s.Next()
	runtime.ReadMemStats(&after)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4*growStep {
		t.Errorf("a promise of 1 GB and 6 bytes cost %d bytes", grown)
	}
}

func TestStreamBufferShrinksAndGoes(t *testing.T) {
	s, conn := streamOf(message('D', string(make([]byte, 3<<20))))
	if _, msg, err := s.Next(); err != nil || len(msg) != 3<<20+5 {
		t.Fatalf("%d bytes, %v", len(msg), err)
	}
	conn.chunks = [][]byte{message('C', "SELECT 1\x00")}
	if _, _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	if len(s.buf) != bufferSize {
		t.Errorf("buffer of %d bytes after a large message", len(s.buf))
	}
	s.Append(message('C', "SELECT 1\x00"))
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if s.Idle(); s.buf != nil || cap(s.out) > idleOut {
		t.Error("an idle stream holds buffers")
	}
}

func TestStreamReadsFullChunksAfterAPartialMessage(t *testing.T) {
	// The buffer is nearly used up when a header arrives in two parts; the next read must not be
	// limited to what is left behind it.
	head := message('D', string(make([]byte, bufferSize-40)))
	next := message('D', string(make([]byte, 4000)))
	s, conn := streamOf(append(bytes.Clone(head), next[:3]...), next[3:])
	for range 2 {
		if _, _, err := s.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if conn.reads != 2 {
		t.Errorf("%d reads for two chunks", conn.reads)
	}
}

func TestStreamWritesInOrder(t *testing.T) {
	s, conn := streamOf()
	s.Append([]byte("a"))
	*s.Out() = append(*s.Out(), 'b')
	if s.Pending() != 2 {
		t.Errorf("%d bytes pending", s.Pending())
	}
	if n, err := s.Write([]byte("c")); n != 1 || err != nil {
		t.Errorf("Write: %d, %v", n, err)
	}
	if _, err := s.Write([]byte("d")); err != nil {
		t.Error(err)
	}
	if err := s.Flush(); err != nil {
		t.Error(err)
	}
	if got := string(conn.written()); got != "abcd" || len(conn.writes) != 2 {
		t.Errorf("%q in %d writes", got, len(conn.writes))
	}
	conn.writeErr = net.ErrClosed
	s.Append([]byte("e"))
	if err := s.Flush(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Flush on a closed connection: %v", err)
	}
	if s.Pending() != 0 {
		t.Error("a failed Flush keeps its bytes and would send them twice")
	}
}

func TestStreamPassesReadErrorsOn(t *testing.T) {
	s, conn := streamOf(message('C', "x\x00"))
	conn.readErr = errTest
	if _, _, err := s.Next(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Next(); !errors.Is(err, errTest) {
		t.Error(err)
	}
}

var errTest = errors.New("broken by the test")

func FuzzStreamNext(f *testing.F) {
	f.Add(append(message('T', "row"), message('Z', "I")...), []byte{3, 1, 200})
	f.Add([]byte{'D', 0, 0, 0, 3, 1}, []byte{1})
	f.Add([]byte{'D', 0xff, 0xff, 0xff, 0xff}, []byte{})
	f.Fuzz(func(t *testing.T, data, cuts []byte) {
		sizes := make([]int, len(cuts))
		for i, c := range cuts {
			sizes[i] = int(c)
		}
		s, _ := streamOf(cut(data, sizes)...)
		rest := data
		for {
			_, msg, err := s.Next()
			if err != nil {
				if len(rest) >= 5 {
					size := binary.BigEndian.Uint32(rest[1:])
					if size >= 4 && size <= MaxMessage && len(rest) > int(size) {
						t.Fatalf("a whole message was refused: %v", err)
					}
				}
				return
			}
			if !bytes.HasPrefix(rest, msg) || len(msg) != 1+int(binary.BigEndian.Uint32(msg[1:])) {
				t.Fatalf("message %q out of %q", msg, rest)
			}
			rest = rest[len(msg):]
		}
	})
}

// deadlineConn makes chunkConn usable where deadlines are set.
type deadlineConn struct{ *chunkConn }

func (deadlineConn) SetDeadline(time.Time) error      { return nil }
func (deadlineConn) SetWriteDeadline(time.Time) error { return nil }
func (deadlineConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
