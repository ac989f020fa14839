package pgwire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const cancelRequestCode = 80877102

// CancelBackend asks the node, over a connection of its own, to cancel what b is running, and
// waits until the node has taken notice: a cancel that arrived late would hit the statement after.
// It may be called while another goroutine uses b.
func CancelBackend(ctx context.Context, b *Backend) error {
	cfg := DialConfig{Network: b.Network, Address: b.Address}
	// A name can stand for several servers; the request must reach the one that knows the secret.
	if a, ok := b.Stream.Conn.RemoteAddr().(*net.TCPAddr); ok {
		cfg.Address = a.String()
	}
	conn, err := cfg.connect(ctx)
	if err != nil {
		return fmt.Errorf("cancel: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := sendCancel(ctx, conn, b); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("pgwire: cancel at %s: %w", b.Address, err)
	}
	return nil
}

func sendCancel(ctx context.Context, conn net.Conn, b *Backend) error {
	if b.tls != nil {
		answer, err := requestTLS(conn)
		if err != nil {
			return err
		}
		if answer != 'S' {
			return fmt.Errorf("unexpected answer %q to SSLRequest", answer)
		}
		secured := tls.Client(conn, b.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return err
		}
		conn = secured
	}
	var msg [16]byte
	binary.BigEndian.PutUint32(msg[0:], 16)
	binary.BigEndian.PutUint32(msg[4:], cancelRequestCode)
	binary.BigEndian.PutUint32(msg[8:], b.PID)
	binary.BigEndian.PutUint32(msg[12:], b.Secret)
	if _, err := conn.Write(msg[:]); err != nil {
		return err
	}
	// The server closes the connection when the signal is sent; how it closes does not matter.
	_, err := conn.Read(msg[:1])
	if netErr := net.Error(nil); errors.As(err, &netErr) && netErr.Timeout() {
		return err
	}
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return nil
}
