package pgwire

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/ioloop"
)

// pair is two ends of a real TCP connection.
func pair(t *testing.T) (a, b *Stream) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := l.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	a, b = NewStream(ioloop.Take(c)), NewStream(ioloop.Take(<-accepted))
	t.Cleanup(func() { a.Conn.Close(); b.Conn.Close() })
	return a, b
}

func TestExchange(t *testing.T) {
	for _, size := range []int{1, 100, 1 << 20, 8 << 20} { // the last ones fill the socket's buffer
		client, server := pair(t)
		question := message('Q', string(bytes.Repeat([]byte{'x'}, size)))
		answer := message('C', "OK\x00")
		failed := make(chan error, 1)
		go func() {
			_, msg, err := server.Next()
			if err == nil && !bytes.Equal(msg, question) {
				err = errors.New("the question arrived damaged")
			}
			if err == nil {
				_, err = server.Write(answer)
			}
			failed <- err
		}()
		client.Append(question)
		if err := client.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, msg, err := client.Next(); err != nil || !bytes.Equal(msg, answer) {
			t.Fatalf("%q, %v", msg, err)
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		if client.Pending() != 0 {
			t.Error("the question is still pending")
		}
	}
}

// An answer that is there before anybody waits for it must be found.
func TestExchangeManyTimes(t *testing.T) {
	client, server := pair(t)
	go func() {
		for {
			_, msg, err := server.Next()
			if err != nil {
				return
			}
			if _, err := server.Write(msg); err != nil {
				return
			}
		}
	}()
	for i := range 20000 {
		msg := message('Q', string(rune('a'+i%26)))
		client.Append(msg)
		if err := client.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, got, err := client.Next(); err != nil || !bytes.Equal(got, msg) {
			t.Fatalf("%q, %v", got, err)
		}
	}
}

func TestAwaitHoldsNoBuffer(t *testing.T) {
	a, b := pair(t)
	done := make(chan error, 1)
	if err := a.Conn.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := a.Await(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("deadline: %v", err)
	}
	if a.buf != nil {
		t.Error("a stream that waits holds a buffer")
	}
	if err := a.Conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func() { done <- a.Await() }()
	if _, err := b.Write(message('Z', "I")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if typ, _, err := a.Next(); err != nil || typ != 'Z' {
		t.Fatalf("%q, %v", typ, err)
	}
	b.Conn.Close()
	if err := a.Await(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the end: %v", err)
	}
}

// One goroutine may write while another waits for the peer.
func TestWriteWhileAwaiting(t *testing.T) {
	a, b := pair(t)
	done := make(chan error, 1)
	go func() { done <- a.Await() }()
	for range 1000 {
		a.Append(message('N', "x"))
		if err := a.Flush(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Write(message('S', "")); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}
