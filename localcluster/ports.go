package localcluster

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"syscall"
)

// ports hands out TCP ports of the loopback interface for the parts of one cluster.
type ports struct {
	taken     map[int]bool // by parts of this cluster
	low, high int
}

// newPorts stays below the range that the kernel uses for outgoing connections: a part that is
// restarted must find its port free again.
func newPorts() *ports {
	p := &ports{taken: make(map[int]bool), low: 20000, high: 32000}
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		p.low, p.high = portRange(string(text))
	}
	return p
}

// portRange finds a range beside the one for outgoing connections.
func portRange(outgoing string) (low, high int) {
	var first, last int
	if _, err := fmt.Sscan(outgoing, &first, &last); err != nil {
		return 20000, 32000
	}
	switch {
	case first >= 12000:
		return max(10000, first-12000), first
	case last <= 60000:
		return last + 1, 65536
	default:
		return 10000, 65536
	}
}

// free finds a port that nobody listens on and no other part of this cluster was given.
func (p *ports) free() (int, error) {
	for range 1000 {
		port := p.low + rand.IntN(p.high-p.low)
		if !p.taken[port] && available("127.0.0.1", port) == nil {
			p.taken[port] = true
			return port, nil
		}
	}
	return 0, &Problem{Sentence: "no free TCP port was found on 127.0.0.1", Way: "stop some of the programs that listen there"}
}

// keep uses a port that was chosen earlier, or a new one when a stranger has it now.
func (p *ports) keep(port int) (int, error) {
	if port != 0 && !p.taken[port] && available("127.0.0.1", port) == nil {
		p.taken[port] = true
		return port, nil
	}
	return p.free()
}

// demand uses exactly this port, or says which flag chooses another.
func (p *ports) demand(host string, port int, flag string) error {
	err := available(host, port)
	if err == nil && p.taken[port] {
		err = syscall.EADDRINUSE
	}
	if err != nil {
		return &Problem{
			Sentence: fmt.Sprintf("port %d on %s cannot be used: %s", port, host, plainNetError(err)),
			Way:      fmt.Sprintf("choose another with %s, or 0 for any free one", flag),
			Cause:    err,
		}
	}
	p.taken[port] = true
	return nil
}

func available(host string, port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return err
	}
	return l.Close()
}

// splitHTTP reads the address for health, metrics and the admin API.
func splitHTTP(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err == nil && (port < 0 || port > 65535) {
		err = fmt.Errorf("port %d is out of range", port)
	}
	if err != nil {
		return "", 0, &Problem{
			Sentence: fmt.Sprintf("%q is not an address for --http", address),
			Way:      "write host:port, for example 127.0.0.1:8432; port 0 picks a free one",
			Cause:    err,
		}
	}
	if host == "" {
		host = "127.0.0.1" // safe by default: the whole world must be asked for by name
	}
	return host, port, nil
}
