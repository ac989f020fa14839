//go:build linux

package ioloop

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// pair is two ends of a socket: the loop's, and the other one as Go has it.
func pair(t testing.TB, network string) (*Conn, net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = t.TempDir() + "/s"
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dialled := make(chan net.Conn, 1)
	go func() {
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Error(err)
		}
		dialled <- c
	}()
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	b := <-dialled
	c, ok := Take(a).(*Conn)
	if !ok {
		t.Fatal("the loop did not take the socket")
	}
	t.Cleanup(func() { c.Close(); b.Close() })
	return c, b
}

// parked reads and writes as a task that the loop resumes.
func parked(c *Conn, t *Task) {
	c.ParkReads(t)
	c.ParkWrites(t)
}

func TestEcho(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			var work sync.WaitGroup
			for range 50 {
				c, peer := pair(t, network)
				Go(func(task *Task) {
					parked(c, task)
					_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
					_ = c.Close()
				})
				work.Go(func() {
					var got [5]byte
					for i := range 300 {
						want := []byte{byte(i), 1, 2, 3, 4}
						if _, err := peer.Write(want); err != nil {
							t.Error(err)
							return
						}
						if _, err := io.ReadFull(peer, got[:]); err != nil || !bytes.Equal(got[:], want) {
							t.Errorf("%v, %v", got, err)
							return
						}
					}
				})
			}
			work.Wait()
		})
	}
}

// What comes right before the end of a connection must not be lost, and neither must the end.
func TestEndWithData(t *testing.T) {
	for range 500 {
		c, peer := pair(t, "unix")
		got := make(chan string, 1)
		Go(func(task *Task) {
			parked(c, task)
			b, err := io.ReadAll(c)
			if err != nil {
				b = []byte(err.Error())
			}
			got <- string(b)
		})
		_, _ = peer.Write([]byte("last words"))
		_ = peer.Close()
		if g := <-got; g != "last words" {
			t.Fatalf("%q", g)
		}
		_ = c.Close()
	}
}

// A peer that reads late holds the writer back, parked or not, and gets everything.
func TestBackPressure(t *testing.T) {
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	for _, park := range []bool{true, false} {
		c, peer := pair(t, "tcp")
		Go(func(task *Task) {
			if park {
				parked(c, task)
			}
			if _, err := c.Write(want); err != nil {
				t.Error(err)
			}
			_ = c.Close()
		})
		got, err := io.ReadAll(peer)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
}

// A task that reads a lot at once does not keep others from being served.
func TestFairness(t *testing.T) {
	c, peer := pair(t, "tcp")
	Go(func(task *Task) {
		parked(c, task)
		_, _ = io.Copy(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{c})
	})
	flood := make(chan struct{})
	go func() {
		defer close(flood)
		chunk := make([]byte, 1<<20)
		for {
			if _, err := peer.Write(chunk); err != nil {
				return
			}
		}
	}()
	c2, peer2 := pair(t, "tcp")
	Go(func(task *Task) {
		parked(c2, task)
		_, _ = io.Copy(struct{ io.Writer }{c2}, struct{ io.Reader }{c2})
	})
	for range 100 {
		if _, err := peer2.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(peer2, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	_ = peer.Close()
	<-flood
}

// Tasks that block, with a word or without, do not stop the others: here each waits for the next one's message.
func TestBlockingTasks(t *testing.T) {
	for _, detach := range []bool{true, false} {
		const n = 8
		var tokens [n + 1]chan struct{}
		for i := range tokens {
			tokens[i] = make(chan struct{})
		}
		var peers [n]net.Conn
		for i := range n {
			var c *Conn
			c, peers[i] = pair(t, "unix")
			Go(func(task *Task) {
				parked(c, task)
				if _, err := c.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				if detach {
					task.Detach()
					if task.OnLoop() {
						t.Error("a detached task is on the loop")
					}
				}
				<-tokens[i+1]
				close(tokens[i])
			})
		}
		for i := range n {
			if _, err := peers[i].Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		close(tokens[n])
		<-tokens[0]
	}
}

func TestDeadlines(t *testing.T) {
	for _, park := range []bool{true, false} {
		c, peer := pair(t, "tcp")
		done := make(chan error)
		next := make(chan struct{})
		Go(func(task *Task) {
			if park {
				parked(c, task)
			}
			for range next {
				_, err := c.Read(make([]byte, 1))
				done <- err
			}
		})
		set := func(at time.Time) {
			if err := c.SetReadDeadline(at); err != nil {
				t.Fatal(err)
			}
		}
		set(time.Now().Add(5 * time.Millisecond))
		next <- struct{}{}
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("a deadline that passes: %v", err)
		}
		next <- struct{}{}
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("one that has passed: %v", err)
		}
		set(time.Time{})
		next <- struct{}{}
		_, _ = peer.Write([]byte("x"))
		if err := <-done; err != nil {
			t.Fatalf("none: %v", err)
		}
		set(time.Now().Add(time.Hour))
		next <- struct{}{}
		set(time.Unix(1, 0))
		if err := <-done; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("one in the past: %v", err)
		}
		set(time.Time{})
		next <- struct{}{}
		_ = c.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Fatalf("closed: %v", err)
		}
		close(next)
	}
}

// Descriptors are used again at once; nobody gets what was meant for another connection.
func TestDescriptorsUsedAgain(t *testing.T) {
	var work sync.WaitGroup
	for g := range 8 {
		work.Go(func() {
			for i := range 200 {
				c, peer := pair(t, "unix")
				want := []byte{byte(g), byte(i)}
				got := make(chan []byte, 1)
				Go(func(task *Task) {
					parked(c, task)
					b := make([]byte, 2)
					_, _ = io.ReadFull(c, b)
					got <- b
				})
				_, _ = peer.Write(want)
				if b := <-got; !bytes.Equal(b, want) {
					t.Errorf("%v, not %v", b, want)
				}
				_ = peer.Close()
				_ = c.Close()
			}
		})
	}
	work.Wait()
}

func BenchmarkRoundTrip(b *testing.B) {
	c, peer := pair(b, "unix")
	Go(func(task *Task) {
		parked(c, task)
		buf := make([]byte, 64)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			_, _ = c.Write(buf[:n])
		}
	})
	b.ReportAllocs()
	buf := make([]byte, 64)
	for b.Loop() {
		_, _ = peer.Write([]byte("question"))
		_, _ = peer.Read(buf)
	}
}

// A task that was taken for blocked and then lets others go first is not forgotten.
func TestReplacedPollerPauses(t *testing.T) {
	c, peer := pair(t, "tcp")
	other, otherPeer := pair(t, "tcp")
	served := make(chan struct{})
	Go(func(task *Task) {
		parked(other, task)
		_, _ = other.Read(make([]byte, 1))
		close(served)
	})
	done := make(chan int)
	Go(func(task *Task) {
		parked(c, task)
		total := 0
		buf := make([]byte, fair+1)
		for total < 4*len(buf) {
			n, err := c.Read(buf)
			if err != nil {
				t.Error(err)
				break
			}
			total += n
			if task.OnLoop() {
				if _, err := otherPeer.Write([]byte("x")); err != nil {
					t.Error(err)
				}
				<-served // with one poller, by the one that replaces this one
			}
		}
		done <- total
	})
	if _, err := peer.Write(make([]byte, 4*(fair+1))); err != nil {
		t.Fatal(err)
	}
	<-done
}

// News of a socket that was closed meanwhile does not reach the one that has its descriptor now.
func TestStaleEvent(t *testing.T) {
	for {
		old, peer := pair(t, "unix")
		event := unix.EpollEvent{Events: unix.EPOLLHUP | unix.EPOLLIN, Fd: int32(old.fd), Pad: old.number}
		_ = old.Close()
		_ = peer.Close()
		c, _ := pair(t, "unix")
		if c.fd != old.fd {
			continue
		}
		process().signal([]unix.EpollEvent{event})
		c.in.mu.Lock()
		defer c.in.mu.Unlock()
		if c.in.over || c.out.over {
			t.Error("a new socket has got the end of an old one")
		}
		return
	}
}
