package torture

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
)

// link is what a proxy does with the connections of a process.
type link uint8

const (
	passes link = iota
	cut         // connections are reset, and new ones at once
	silent      // nothing gets through, and nobody is told; later it goes on where it was, as TCP does
)

// proxy stands between processes and one server. It knows whose connection each is, so the network between any two of them can be cut.
type proxy struct {
	listener net.Listener
	target   string
	owners   *owners
	group    sync.WaitGroup

	mu    sync.Mutex
	moved *sync.Cond // links or wires have changed
	links map[string]link
	wires map[*wire]bool
}

// wire is one connection through a proxy.
type wire struct {
	owner          string
	client, server net.Conn
}

func startProxy(t *testing.T, target string, who *owners) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: listener, target: target, owners: who, links: map[string]link{}, wires: map[*wire]bool{}}
	p.moved = sync.NewCond(&p.mu)
	p.group.Go(p.accept)
	t.Cleanup(p.close)
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.group.Go(func() { p.connect(client) })
	}
}

func (p *proxy) connect(client net.Conn) {
	w := &wire{client: client, owner: p.owners.of(client)}
	p.mu.Lock()
	refused := p.links[w.owner] == cut
	p.mu.Unlock()
	var err error
	if !refused {
		w.server, err = net.Dial("tcp", p.target)
	}
	if refused || err != nil {
		reset(client)
		return
	}
	p.mu.Lock()
	p.wires[w] = true
	p.mu.Unlock()
	p.group.Go(func() { p.pump(w, w.server, w.client) })
	p.pump(w, w.client, w.server)
}

// pump copies one direction until an end hangs up or the link is cut.
func (p *proxy) pump(w *wire, to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if !p.await(w) {
			return
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				p.drop(w)
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				p.drop(w)
				return
			}
			_ = to.(*net.TCPConn).CloseWrite()
			return
		}
	}
}

// await waits while the link is silent and reports whether the wire is still there.
func (p *proxy) await(w *wire) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.wires[w] && p.links[w.owner] == silent {
		p.moved.Wait()
	}
	return p.wires[w]
}

// set changes the links of some processes.
func (p *proxy) set(to link, owners ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, owner := range owners {
		p.links[owner] = to
		for w := range p.wires {
			if to == cut && w.owner == owner {
				p.end(w)
			}
		}
	}
	p.moved.Broadcast()
}

func (p *proxy) drop(w *wire) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end(w)
	p.moved.Broadcast()
}

// end resets both ends; the caller has the lock.
func (p *proxy) end(w *wire) {
	delete(p.wires, w)
	reset(w.client)
	reset(w.server)
}

func reset(conn net.Conn) {
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

func (p *proxy) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	for w := range p.wires {
		p.end(w)
	}
	p.moved.Broadcast()
	p.mu.Unlock()
	p.group.Wait()
}

// owners says which process a connection from this machine belongs to.
type owners struct {
	mu   sync.Mutex
	pids map[int]string
}

func (o *owners) set(pid int, name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name == "" {
		delete(o.pids, pid)
		return
	}
	o.pids[pid] = name
}

// of finds the process that has the other end of the connection: by the inode of its socket.
func (o *owners) of(conn net.Conn) string {
	port := conn.RemoteAddr().(*net.TCPAddr).Port
	inode := socketInode(port)
	o.mu.Lock()
	defer o.mu.Unlock()
	for pid, name := range o.pids {
		dir := fmt.Sprintf("/proc/%d/fd", pid)
		files, _ := os.ReadDir(dir)
		for _, f := range files {
			if to, err := os.Readlink(dir + "/" + f.Name()); err == nil && inode != "" && to == "socket:["+inode+"]" {
				return name
			}
		}
	}
	return "" // the test itself, or a process that has just ended
}

// socketInode looks a local port of 127.0.0.1 up in the kernel's table.
func socketInode(port int) string {
	table, err := os.ReadFile("/proc/net/tcp")
	if err != nil {
		return ""
	}
	local := fmt.Sprintf("0100007F:%04X", port)
	for line := range strings.Lines(string(table)) {
		if fields := strings.Fields(line); len(fields) > 9 && fields[1] == local && fields[9] != "0" {
			return fields[9]
		}
	}
	return ""
}
