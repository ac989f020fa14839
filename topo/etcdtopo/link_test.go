package etcdtopo_test

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
)

// link is a TCP proxy that can be cut (connections end, new ones are refused) or frozen
// (connections stay, nothing comes through).
type link struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup
	ice      sync.RWMutex // held while frozen

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newLink(t *testing.T, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveLink(t, l, target)
}

// newTLSLink is a link that speaks TLS to its clients.
func newTLSLink(t *testing.T, target string, config *tls.Config) *link {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	return serveLink(t, l, target)
}

func serveLink(t *testing.T, l net.Listener, target string) *link {
	k := &link{listener: l, target: target, conns: map[net.Conn]bool{}}
	k.work.Go(k.accept)
	t.Cleanup(func() {
		l.Close()
		k.Cut()
		k.work.Wait()
	})
	return k
}

func (k *link) address() string { return k.listener.Addr().String() }

// Cut implements topotest.Link.
func (k *link) Cut() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = true
	for c := range k.conns {
		c.Close()
	}
}

// Restore implements topotest.Link.
func (k *link) Restore() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = false
}

func (k *link) freeze() { k.ice.Lock() }

func (k *link) thaw() { k.ice.Unlock() }

// gate lets nothing through while someone else holds its lock.
type gate struct {
	io.Writer
	ice *sync.RWMutex
}

// Write implements io.Writer.
func (g gate) Write(p []byte) (int, error) {
	g.ice.RLock()
	defer g.ice.RUnlock()
	return g.Writer.Write(p)
}

func (k *link) accept() {
	for {
		c, err := k.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", k.target)
		if err != nil || !k.keep(c, server) {
			c.Close()
			continue
		}
		k.work.Go(func() { k.pipe(c, server) })
		k.work.Go(func() { k.pipe(server, c) })
	}
}

// keep remembers a pair of connections unless the link is cut.
func (k *link) keep(client, server net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.cut {
		server.Close()
		return false
	}
	k.conns[client], k.conns[server] = true, true
	return true
}

func (k *link) pipe(to, from net.Conn) {
	_, _ = io.Copy(gate{to, &k.ice}, from) // ends with either connection
	to.Close()
	from.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, from)
}
