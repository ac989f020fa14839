package pgwire

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

const sslRequestCode = 80877103

// encryption is what one attempt to connect asks for.
type encryption uint8

const (
	plain encryption = iota
	offered
	required
)

// errHandshake marks failures of TLS itself, after which sslmode=prefer tries without.
var errHandshake = errors.New("TLS handshake failed")

// attempts are the ways to try in turn, as libpq does for each sslmode.
func (cfg *DialConfig) attempts() ([]encryption, error) {
	var how []encryption
	switch cfg.SSLMode {
	case "disable":
		how = []encryption{plain}
	case "allow":
		how = []encryption{plain, required}
	case "", "prefer":
		how = []encryption{offered, plain}
	case "require", "verify-ca", "verify-full":
		how = []encryption{required}
	default:
		return nil, fmt.Errorf("pgwire: invalid sslmode %q", cfg.SSLMode)
	}
	if cfg.Network == "unix" {
		return []encryption{plain}, nil
	}
	return how, nil
}

// encryptionDecides reports whether the other kind of connection may succeed: the handshake
// failed, or pg_hba.conf has no line for this kind of connection (28000; a wrong password is 28P01).
func encryptionDecides(err error) bool {
	if pgErr := (*Error)(nil); errors.As(err, &pgErr) {
		return pgErr.Code == "28000"
	}
	return errors.Is(err, errHandshake)
}

// encrypt asks the server for TLS. When the server has none and that is acceptable, it returns
// conn itself and no configuration.
func (cfg *DialConfig) encrypt(ctx context.Context, conn net.Conn, how encryption) (net.Conn, *tls.Config, error) {
	answer, err := requestTLS(conn)
	if err != nil {
		return nil, nil, err
	}
	switch answer {
	case 'S':
	case 'N':
		if how == required {
			return nil, nil, fmt.Errorf("the server does not support TLS, but sslmode is %s", cfg.SSLMode)
		}
		return conn, nil, nil
	default:
		// An ErrorResponse here is not authenticated and its text cannot be trusted.
		return nil, nil, fmt.Errorf("unexpected answer %q to SSLRequest", answer)
	}
	tlsConfig := cfg.tlsConfig()
	secured := tls.Client(conn, tlsConfig)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errHandshake, err)
	}
	return secured, tlsConfig, nil
}

// requestTLS reads exactly one byte of the answer: anything a stranger slipped in behind it goes
// to the TLS handshake, which fails, and never into the protocol.
func requestTLS(conn net.Conn) (byte, error) {
	if _, err := conn.Write([]byte{0, 0, 0, 8, sslRequestCode >> 24, sslRequestCode >> 16 & 0xff, sslRequestCode >> 8 & 0xff, sslRequestCode & 0xff}); err != nil {
		return 0, err
	}
	var answer [1]byte
	if _, err := conn.Read(answer[:]); err != nil {
		return 0, err
	}
	return answer[0], nil
}

func (cfg *DialConfig) tlsConfig() *tls.Config {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if cfg.TLS != nil {
		c = cfg.TLS.Clone()
	}
	if c.ServerName == "" {
		if host, _, err := net.SplitHostPort(cfg.Address); err == nil {
			c.ServerName = host
		}
	}
	c.NextProtos = []string{"postgresql"}
	switch {
	case cfg.SSLMode == "verify-full":
		c.InsecureSkipVerify = false
	case cfg.SSLMode == "verify-ca", cfg.SSLMode == "require" && c.RootCAs != nil:
		// The chain is verified, the host's name is not; require with roots given does the same in libpq.
		c.InsecureSkipVerify = true
		roots := c.RootCAs
		c.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, roots) }
	default:
		c.InsecureSkipVerify = true
	}
	return c
}

func verifyChain(state tls.ConnectionState, roots *x509.CertPool) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the server sent no certificate")
	}
	opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		opts.Intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(opts)
	return err
}
