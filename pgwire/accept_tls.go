package pgwire

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
)

// ErrDirectTLS is a client that began TLS without asking first and cannot be served that way.
var ErrDirectTLS = errors.New("pgwire: direct TLS connection refused")

// answerSSLRequest says whether TLS is possible here and begins it.
func (c *Client) answerSSLRequest(ctx context.Context) error {
	if c.config.TLS == nil || c.onUnixSocket() {
		_, err := c.Stream.Write([]byte{'N'})
		return err
	}
	// What was sent in the clear before the handshake is from nobody: taking it for the client's
	// words afterwards is CVE-2021-23214.
	if c.Stream.Buffered() > 0 {
		return Fatalf(CodeProtocolViolation, "received unencrypted data after SSL request").
			WithDetail("This could be either a client-software bug or evidence of an attempted man-in-the-middle attack.")
	}
	if _, err := c.Stream.Write([]byte{'S'}); err != nil {
		return err
	}
	return c.handshake(ctx, c.Stream.Conn)
}

// directTLS serves a client that skips the SSLRequest (sslnegotiation=direct). As in PostgreSQL it
// must name the protocol with ALPN, which protects it from being misled to another service.
func (c *Client) directTLS(ctx context.Context) error {
	conn := c.Stream.Conn
	if c.config.TLS == nil || c.onUnixSocket() {
		// An alert "handshake failure" is the one answer that such a client understands.
		_, _ = conn.Write([]byte{0x15, 3, 1, 0, 2, 2, 40})
		return fmt.Errorf("%w: TLS is not configured here", ErrDirectTLS)
	}
	seen, err := c.Stream.Chunk()
	if err != nil {
		return err
	}
	replayed := &replayConn{Conn: conn, head: bytes.NewReader(bytes.Clone(seen))}
	if err := c.handshake(ctx, replayed); err != nil {
		return err
	}
	if c.TLS.NegotiatedProtocol != alpnProtocol {
		return Fatalf(CodeProtocolViolation, "received direct SSL connection request without ALPN protocol negotiation extension")
	}
	return nil
}

// replayConn gives back the bytes that were read before it was known whom they are for.
type replayConn struct {
	net.Conn
	head *bytes.Reader
}

func (r *replayConn) Read(p []byte) (int, error) {
	if r.head.Len() > 0 {
		return r.head.Read(p)
	}
	return r.Conn.Read(p)
}

func (c *Client) handshake(ctx context.Context, conn net.Conn) error {
	config, certificate := c.sessionTLS()
	secure := tls.Server(conn, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("TLS handshake: %w", err)
	}
	state := secure.ConnectionState()
	c.Stream, c.TLS = NewStream(secure), &state
	if len(state.VerifiedChains) > 0 {
		c.PeerCert = state.PeerCertificates[0]
	}
	c.endPoint = boundTo(*certificate)
	return nil
}

// sessionTLS is the TLS configuration for this one client, and where the certificate that it is
// shown will be. Session tickets are off, as in PostgreSQL: a resumed session shows none.
func (c *Client) sessionTLS() (*tls.Config, **tls.Certificate) {
	var shown *tls.Certificate
	config := c.config.TLS.Clone()
	config.SessionTicketsDisabled = true
	config.NextProtos = []string{alpnProtocol}
	if config.GetConfigForClient != nil {
		return config, &shown
	}
	choose, static := config.GetCertificate, config.Certificates
	// With Certificates set, GetCertificate would not be asked by clients that send no name.
	config.Certificates = nil
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := chooseCertificate(hello, choose, static)
		shown = cert
		return cert, err
	}
	return config, &shown
}

// chooseCertificate is what crypto/tls does by itself.
func chooseCertificate(hello *tls.ClientHelloInfo, choose func(*tls.ClientHelloInfo) (*tls.Certificate, error), static []tls.Certificate) (*tls.Certificate, error) {
	if choose != nil && (len(static) == 0 || hello.ServerName != "") {
		if cert, err := choose(hello); cert != nil || err != nil {
			return cert, err
		}
	}
	for i := range static {
		if hello.SupportsCertificate(&static[i]) == nil {
			return &static[i], nil
		}
	}
	if len(static) > 0 {
		return &static[0], nil
	}
	return nil, errors.New("no certificate is configured")
}

// boundTo is the channel binding of a connection on which cert was shown, nil when there is none.
func boundTo(cert *tls.Certificate) []byte {
	if cert == nil || len(cert.Certificate) == 0 {
		return nil
	}
	leaf := cert.Leaf
	if leaf == nil {
		parsed, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			return nil
		}
		leaf = parsed
	}
	return endPointHash([]*x509.Certificate{leaf})
}
