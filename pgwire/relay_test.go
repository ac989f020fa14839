package pgwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"

	"pgregory.net/rapid"
)

// relayStraight is what a Relay must do, written without any thought of speed: it returns what is
// forwarded, what was shown to the callback, and what remains unread.
func relayStraight(data []byte, watch *[256]bool, on func(byte, []byte) (Action, error)) (out, rest []byte, err error) {
	for {
		if len(data) == 0 {
			return out, nil, io.EOF
		}
		if len(data) < 5 {
			return out, data, io.ErrUnexpectedEOF
		}
		size := binary.BigEndian.Uint32(data[1:])
		if size < 4 || size > MaxMessage {
			return out, data, ErrMessageSize
		}
		total := int(size) + 1
		if !watch[data[0]] {
			n := min(total, len(data))
			out = append(out, data[:n]...)
			if data = data[n:]; n < total {
				// What came of a message that only passes is passed on; then the connection ended.
				return out, nil, io.ErrUnexpectedEOF
			}
			continue
		}
		if len(data) < total {
			return out, data, io.ErrUnexpectedEOF
		}
		action, err := on(data[0], data[:total])
		msg := data[:total]
		data = data[total:]
		if err != nil {
			return out, data, err
		}
		if action == Forward || action == Stop {
			out = append(out, msg...)
		}
		if action == Stop || action == StopDrop {
			return out, data, nil
		}
	}
}

// decider acts by the first byte of a message's body and keeps a record.
type decider struct{ seen []byte }

func (d *decider) on(typ byte, msg []byte) (Action, error) {
	d.seen = append(d.seen, msg...)
	if len(msg) == 5 {
		return Forward, nil
	}
	switch msg[5] {
	case 'f':
		return Forward, nil
	case 'd':
		return Drop, nil
	case 's':
		return Stop, nil
	case 'x':
		return StopDrop, nil
	case 'e':
		return Forward, errTest
	}
	return Forward, nil
}

func watching(types string) *Relay {
	r := &Relay{}
	for _, typ := range []byte(types) {
		r.Watch[typ] = true
	}
	return r
}

// checkRelay runs a Relay over data cut into chunks and compares it with relayStraight.
func checkRelay(t interface{ Fatalf(string, ...any) }, data []byte, sizes []int, hold bool) {
	const watched = "CZEN"
	var want, got decider
	r := watching(watched)
	r.Hold = hold
	wantOut, wantRest, wantErr := relayStraight(data, &r.Watch, want.on)
	chunks := cut(data, sizes)
	from, node := streamOf(chunks...)
	to, client := streamOf()
	err := r.Run(from, to, got.on)
	if wantErr == nil && err != nil || wantErr != nil && !errors.Is(err, wantErr) {
		t.Fatalf("error %v, want %v", err, wantErr)
	}
	if !hold && len(*to.Out()) > 0 {
		t.Fatalf("%d bytes were left pending", len(*to.Out()))
	}
	out := append(client.written(), *to.Out()...)
	if !bytes.Equal(out, wantOut) {
		t.Fatalf("forwarded %q, want %q", out, wantOut)
	}
	if !bytes.Equal(got.seen, want.seen) {
		t.Fatalf("shown %q, want %q", got.seen, want.seen)
	}
	if len(client.writes) > node.reads {
		t.Fatalf("%d writes for %d reads", len(client.writes), node.reads)
	}
	left, _ := from.Chunk()
	rest := append(bytes.Clone(left), bytes.Join(node.chunks, nil)...)
	if !bytes.Equal(rest, wantRest) {
		t.Fatalf("left %q, want %q", rest, wantRest)
	}
}

func TestRelayIsTheStraightRelay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var data []byte
		for range rapid.IntRange(0, 20).Draw(t, "count") {
			typ := rapid.SampledFrom([]byte("DDDTdCZEN")).Draw(t, "type")
			body := rapid.SampledFrom([]string{"", "f", "d", "d", "s", "x", "e"}).Draw(t, "action")
			size := rapid.OneOf(rapid.IntRange(0, 20), rapid.IntRange(0, 2*bufferSize)).Draw(t, "size")
			if body != "" {
				body += string(bytes.Repeat([]byte{'.'}, size))
			}
			data = append(data, message(typ, body)...)
		}
		data = data[:len(data)-rapid.IntRange(0, min(9, len(data))).Draw(t, "missing")]
		checkRelay(t, data, drawSizes(t), rapid.Bool().Draw(t, "hold"))
	})
}

func FuzzRelay(f *testing.F) {
	answer := bytes.Join([][]byte{message('T', "f"), message('D', "d"), message('C', "f"), message('Z', "s")}, nil)
	f.Add(answer, []byte{7}, false)
	f.Add(append(message('N', "d"), answer...), []byte{1, 2, 90}, true)
	f.Add(append(answer[:9:9], 'C', 0, 0, 0, 2), []byte{}, false)
	f.Fuzz(func(t *testing.T, data, cuts []byte, hold bool) {
		sizes := make([]int, len(cuts))
		for i, c := range cuts {
			sizes[i] = int(c)
		}
		checkRelay(t, data, sizes, hold)
	})
}

// stopAtReady is the callback of the simplest statement.
func stopAtReady(typ byte, _ []byte) (Action, error) {
	if typ == 'Z' {
		return Stop, nil
	}
	return Forward, nil
}

func pointAnswer() []byte {
	answer := AppendRowDescription(nil, []Column{TextColumn("id"), TextColumn("name")})
	answer = AppendDataRow(answer, [][]byte{[]byte("1"), []byte("Ada")})
	answer = AppendCommandComplete(answer, "SELECT 1")
	return AppendReadyForQuery(answer, TxIdle)
}

func TestRelayOneReadOneWrite(t *testing.T) {
	from, node := streamOf(pointAnswer())
	to, client := streamOf()
	if err := watching("CZES").Run(from, to, stopAtReady); err != nil {
		t.Fatal(err)
	}
	if node.reads != 1 || len(client.writes) != 1 {
		t.Errorf("%d reads, %d writes", node.reads, len(client.writes))
	}
}

func TestRelayDropsWithoutAnExtraWrite(t *testing.T) {
	data := bytes.Join([][]byte{message('1', ""), message('2', ""), pointAnswer()}, nil)
	from, _ := streamOf(data)
	to, client := streamOf()
	err := watching("1Z").Run(from, to, func(typ byte, msg []byte) (Action, error) {
		if typ == '1' {
			return Drop, nil
		}
		return stopAtReady(typ, msg)
	})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(client.written(), data[5:]) || len(client.writes) != 1 {
		t.Errorf("%q in %d writes", client.written(), len(client.writes))
	}
}

func TestRelayCallbackMayEditInPlace(t *testing.T) {
	from, _ := streamOf(pointAnswer())
	to, client := streamOf()
	err := watching("Z").Run(from, to, func(_ byte, msg []byte) (Action, error) {
		msg[5] = TxActive
		return Stop, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	out := client.written()
	if ReadyStatus(out[len(out)-6:]) != TxActive {
		t.Errorf("%q", out)
	}
}

func TestRelayHoldLetsTheCallerAdd(t *testing.T) {
	from, _ := streamOf(message('C', "f"), append(message('D', ""), message('Z', "x")...))
	to, client := streamOf()
	r := watching("CZ")
	r.Hold = true
	var d decider
	if err := r.Run(from, to, d.on); err != nil {
		t.Fatal(err)
	}
	if len(client.writes) != 1 {
		t.Fatalf("%d writes before the caller flushes", len(client.writes))
	}
	*to.Out() = AppendReadyForQuery(*to.Out(), TxIdle)
	if err := to.Flush(); err != nil {
		t.Fatal(err)
	}
	want := bytes.Join([][]byte{message('C', "f"), message('D', ""), message('Z', "I")}, nil)
	if !bytes.Equal(client.written(), want) || len(client.writes) != 2 {
		t.Errorf("%q in %d writes", client.written(), len(client.writes))
	}
}

func TestRelayTellsWhichSideFailed(t *testing.T) {
	from, _ := streamOf(pointAnswer())
	to, client := streamOf()
	client.writeErr = net.ErrClosed
	err := watching("Z").Run(from, to, stopAtReady)
	if writeErr, ok := errors.AsType[*WriteError](err); !ok || !errors.Is(writeErr, net.ErrClosed) {
		t.Errorf("client gone: %v", err)
	}
	from, node := streamOf(pointAnswer()[:12])
	node.readErr = net.ErrClosed
	to, _ = streamOf()
	err = watching("Z").Run(from, to, stopAtReady)
	if _, ok := errors.AsType[*WriteError](err); ok || !errors.Is(err, net.ErrClosed) {
		t.Errorf("node gone: %v", err)
	}
}

func TestRelayRunsAgainAfterAFailureInsideAMessage(t *testing.T) {
	r := watching("Z")
	from, _ := streamOf(message('D', "0123456789")[:9])
	to, _ := streamOf()
	if err := r.Run(from, to, stopAtReady); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	from, _ = streamOf(pointAnswer())
	to, client := streamOf()
	if err := r.Run(from, to, stopAtReady); err != nil || !bytes.Equal(client.written(), pointAnswer()) {
		t.Errorf("%v, %q", err, client.written())
	}
}

// endlessConn repeats one answer forever, as many bytes a read as there is room for.
type endlessConn struct {
	net.Conn
	data []byte
	pos  int
}

func (c *endlessConn) Read(p []byte) (int, error) {
	n := copy(p, c.data[c.pos:])
	c.pos = (c.pos + n) % len(c.data)
	return n, nil
}

func (c *endlessConn) Write(p []byte) (int, error) { return len(p), nil }

func manyRows(rows, size int) []byte {
	answer := AppendRowDescription(nil, []Column{TextColumn("body")})
	for range rows {
		answer = AppendDataRow(answer, [][]byte{make([]byte, size)})
	}
	answer = AppendCommandComplete(answer, fmt.Sprintf("SELECT %d", rows))
	return AppendReadyForQuery(answer, TxIdle)
}

func TestRelayAllocatesNothing(t *testing.T) {
	for _, shape := range []struct{ rows, size int }{{1, 10}, {10_000, 30}, {3, 5 << 20}} {
		from, to := NewStream(&endlessConn{data: manyRows(shape.rows, shape.size)}), NewStream(&endlessConn{})
		r := watching("CZESN")
		run := func() {
			if err := r.Run(from, to, stopAtReady); err != nil {
				t.Fatal(err)
			}
		}
		run()
		if n := testing.AllocsPerRun(10, run); n != 0 {
			t.Errorf("%d rows of %d bytes: %v allocations", shape.rows, shape.size, n)
		}
		if len(from.buf) > bufferSize {
			t.Errorf("%d rows of %d bytes: buffer of %d bytes", shape.rows, shape.size, len(from.buf))
		}
	}
}

func BenchmarkRelay(b *testing.B) {
	for _, shape := range []struct {
		name       string
		rows, size int
	}{{"point", 1, 20}, {"rows", 1000, 60}, {"large", 1, 5 << 20}} {
		b.Run(shape.name, func(b *testing.B) {
			answer := manyRows(shape.rows, shape.size)
			from, to := NewStream(&endlessConn{data: answer}), NewStream(&endlessConn{})
			r := watching("CZESN")
			b.SetBytes(int64(len(answer)))
			b.ReportAllocs()
			for b.Loop() {
				if err := r.Run(from, to, stopAtReady); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
