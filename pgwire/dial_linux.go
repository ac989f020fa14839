package pgwire

import (
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// controlSocket bounds how long sent bytes may stay unacknowledged: keepalive does not probe a
// connection with data on its way, which would hang for a quarter of an hour otherwise.
func controlSocket(network, _ string, c syscall.RawConn) error {
	const milliseconds = 30_000
	if !strings.HasPrefix(network, "tcp") {
		return nil
	}
	return c.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, milliseconds)
	})
}
