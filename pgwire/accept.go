package pgwire

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

const (
	// maxStartupPacket is PostgreSQL's MAX_STARTUP_PACKET_LENGTH.
	maxStartupPacket = 10000
	// maxNameSize is PostgreSQL's NAMEDATALEN - 1.
	maxNameSize = 63

	protocolVersion3 = 3 << 16
	gssRequestCode   = 1234<<16 | 5680

	// tlsHandshakeRecord is the first byte of a TLS connection without an SSLRequest.
	tlsHandshakeRecord = 0x16
	alpnProtocol       = "postgresql"

	// farewellTimeout bounds the write of an error to a client that may not read any more.
	farewellTimeout = time.Second
)

// ServerConfig is how clients are received. It is shared by all of them and not changed after its
// first use; a reload makes a new one.
type ServerConfig struct {
	// TLS serves clients that ask for encryption; without it they are told that there is none.
	TLS *tls.Config
	// RequireTLS refuses clients without encryption, except those on a Unix socket.
	RequireTLS bool
	// StartupTimeout bounds everything up to the end of the authentication. 0 means 60 seconds.
	StartupTimeout time.Duration
	// MockSecret makes the salts that unknown roles are shown. All routers of a cluster should have
	// the same; without one a random secret is made, and a restart can be told from the salts.
	MockSecret []byte

	mockOnce sync.Once
}

func (c *ServerConfig) startupTimeout() time.Duration {
	if c.StartupTimeout > 0 {
		return c.StartupTimeout
	}
	return time.Minute
}

func (c *ServerConfig) mockSecret() []byte {
	c.mockOnce.Do(func() {
		if len(c.MockSecret) == 0 {
			c.MockSecret = make([]byte, 32)
			rand.Read(c.MockSecret)
		}
	})
	return c.MockSecret
}

// CancelRequest is a wish to cancel what another connection is running.
type CancelRequest struct{ PID, Secret uint32 }

// Setting is a run-time parameter that a client wants for its session.
type Setting struct{ Name, Value string }

// Client is a connection whose startup packet was read and which is not authenticated yet.
type Client struct {
	Stream *Stream
	// Cancel is set when the connection brought a CancelRequest, and nothing else then is.
	Cancel *CancelRequest

	User, Database string
	// Params are the startup packet's parameters as sent, with user and database completed.
	Params map[string]string
	// Settings are those of options first, then those of the packet, each in its order: the order
	// in which PostgreSQL applies them.
	Settings []Setting

	// TLS is nil without encryption.
	TLS *tls.ConnectionState
	// PeerCert is the client's verified certificate.
	PeerCert *x509.Certificate

	config   *ServerConfig
	deadline time.Time
	endPoint []byte // tls-server-end-point channel binding, nil when there is none
	failed   bool
}

// Accept does the startup of one client: encryption, the startup packet, negotiation of the
// protocol version. It does not authenticate. When it fails the client has been told why, and the
// caller closes conn; a client that left without a word gives io.EOF. What Accept and the
// Authenticate functions have to say may still be pending in the stream when they return nil:
// the caller's next Flush sends it.
func Accept(ctx context.Context, conn net.Conn, config *ServerConfig) (*Client, error) {
	c := &Client{
		Stream:   NewStream(conn),
		config:   config,
		deadline: time.Now().Add(config.startupTimeout()),
	}
	err := c.bounded(ctx, func() error { return c.startup(ctx) })
	if err == nil {
		return c, nil
	}
	if _, ok := errors.AsType[*Error](err); ok {
		c.Fail(err)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("startup packet did not come in time: %w", err)
	}
	return nil, err
}

// bounded runs do under the startup deadline, and until ctx ends.
func (c *Client) bounded(ctx context.Context, do func() error) error {
	conn := c.Stream.Conn
	if err := conn.SetDeadline(c.deadline); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err := do()
	if !stop() {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// Fail tells the client why its connection ends, once: a second call does nothing. Anything that
// is not an *Error is told as an internal error. The caller closes the connection.
func (c *Client) Fail(err error) {
	if c.failed {
		return
	}
	c.failed = true
	e := *AsError(err)
	e.Severity, e.SeverityRaw = SeverityFatal, SeverityFatal
	out := c.Stream.Out()
	*out = e.AppendTo(*out)
	_ = c.Stream.Conn.SetWriteDeadline(time.Now().Add(farewellTimeout))
	_ = c.Stream.Flush()
}

// startup reads packets until one is neither an SSLRequest nor a GSSENCRequest. Each of these may
// come once, and none after TLS has begun.
func (c *Client) startup(ctx context.Context) error {
	first, err := c.Stream.Peek(1)
	if err != nil {
		return err
	}
	if first[0] == tlsHandshakeRecord {
		if err := c.directTLS(ctx); err != nil {
			return err
		}
	}
	sslDone, gssDone := c.TLS != nil, c.TLS != nil
	for {
		packet, err := c.readStartupPacket()
		if err != nil {
			return err
		}
		code := binary.BigEndian.Uint32(packet)
		switch {
		case code == sslRequestCode && !sslDone:
			if err := c.answerSSLRequest(ctx); err != nil {
				return err
			}
			sslDone, gssDone = true, gssDone || c.TLS != nil
		case code == gssRequestCode && !gssDone:
			gssDone = true
			if _, err := c.Stream.Write([]byte{'N'}); err != nil {
				return err
			}
		case code == cancelRequestCode:
			return c.readCancel(packet)
		default:
			return c.readParameters(packet)
		}
	}
}

func (c *Client) readStartupPacket() ([]byte, error) {
	head, err := c.Stream.Peek(4)
	if err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head)
	if size < 8 || size > maxStartupPacket+4 {
		return nil, Fatalf(CodeProtocolViolation, "invalid length of startup packet")
	}
	packet := make([]byte, size)
	if err := c.Stream.ReadFull(packet); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return packet[4:], nil
}

func (c *Client) readCancel(packet []byte) error {
	if len(packet) != 12 {
		return Fatalf(CodeProtocolViolation, "invalid length of startup packet")
	}
	c.Cancel = &CancelRequest{
		PID:    binary.BigEndian.Uint32(packet[4:]),
		Secret: binary.BigEndian.Uint32(packet[8:]),
	}
	return nil
}

// readParameters takes a startup packet apart as PostgreSQL's ProcessStartupPacket does.
func (c *Client) readParameters(packet []byte) error {
	version := binary.BigEndian.Uint32(packet)
	if version>>16 != 3 {
		return Fatalf(CodeFeatureNotSupported, "unsupported frontend protocol %d.%d: server supports 3.0 to 3.0",
			version>>16, version&0xffff)
	}
	p, err := parseStartup(packet[4:])
	if err != nil {
		return err
	}
	if version != protocolVersion3 || len(p.unknown) > 0 {
		out := c.Stream.Out()
		*out = appendNegotiateProtocolVersion(*out, protocolVersion3, p.unknown)
	}
	if err := p.complete(); err != nil {
		return err
	}
	if !c.onUnixSocket() && c.TLS == nil && c.config.RequireTLS {
		return Fatalf(CodeInvalidAuthorization, "connections without encryption are not allowed").
			WithHint("Connect with sslmode=require or a stronger one.")
	}
	c.Params, c.Settings = p.params, p.settings
	c.User, c.Database = p.params["user"], p.params["database"]
	return nil
}

func (c *Client) onUnixSocket() bool {
	addr := c.Stream.Conn.LocalAddr()
	return addr != nil && addr.Network() == "unix"
}
