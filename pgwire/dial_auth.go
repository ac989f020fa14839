package pgwire

import (
	"bytes"
	"crypto/md5"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
)

// Authentication requests of the protocol.
const (
	authOK                = 0
	authCleartextPassword = 3
	authMD5Password       = 5
	authSASL              = 10
	authSASLContinue      = 11
	authSASLFinal         = 12
)

// authenticate answers the node's requests up to AuthenticationOk.
func (cfg *DialConfig) authenticate(b *Backend) error {
	var scram *scramClient
	for range maxStartupMessages {
		code, body, err := b.nextAuth()
		if err != nil {
			return err
		}
		switch code {
		case authOK:
			// A server that skips its half of SCRAM has not shown that it knows the role.
			if scram != nil && !scram.verified {
				return errors.New("the server ended SCRAM without its signature")
			}
			return nil
		case authCleartextPassword:
			err = cfg.sendPassword(b, cfg.Password)
		case authMD5Password:
			if len(body) < 4 {
				return errors.New("md5 request without salt")
			}
			err = cfg.sendPassword(b, md5Password(cfg.User, cfg.Password, body[:4]))
		case authSASL:
			if scram, err = cfg.newSCRAM(b, body); err == nil {
				err = b.sendSASLInitial(scram)
			}
		case authSASLContinue:
			err = b.continueSASL(scram, body)
		case authSASLFinal:
			if scram == nil {
				return errors.New("SASL message out of order")
			}
			err = scram.finish(body)
		default:
			return fmt.Errorf("the server asks for authentication method %d, which is not supported", code)
		}
		if err != nil {
			return err
		}
	}
	return errors.New("the server never ends the authentication")
}

// nextAuth reads the next authentication request; its body is valid until the next read.
func (b *Backend) nextAuth() (code uint32, body []byte, err error) {
	for range maxStartupMessages {
		typ, msg, err := b.Stream.Next()
		if err != nil {
			return 0, nil, err
		}
		switch typ {
		case 'R':
			if len(msg) < 9 {
				return 0, nil, fmt.Errorf("authentication request of %d bytes", len(msg))
			}
			return binary.BigEndian.Uint32(msg[5:]), msg[9:], nil
		case 'E':
			return 0, nil, ParseError(msg)
		case 'N', 'v':
		default:
			return 0, nil, fmt.Errorf("unexpected message %q during authentication", typ)
		}
	}
	return 0, nil, errors.New("the server never asks for authentication")
}

// sendPassword gives a password, or something as good as one, only away where nobody listens.
func (cfg *DialConfig) sendPassword(b *Backend, secret string) error {
	if cfg.Password == "" {
		return errors.New("the server asks for a password in clear or md5, but only SCRAM works without knowing the password")
	}
	if b.tls == nil && !isLocal(b.Stream.Conn) {
		return errors.New("the server asks for a password in clear or md5 over a connection without TLS")
	}
	return b.sendPasswordMessage(append([]byte(secret), 0))
}

func (b *Backend) sendPasswordMessage(body []byte) error {
	out := append(*b.Stream.Out(), 'p')
	out = binary.BigEndian.AppendUint32(out, uint32(4+len(body)))
	*b.Stream.Out() = append(out, body...)
	return b.Stream.Flush()
}

func isLocal(conn net.Conn) bool {
	switch a := conn.RemoteAddr().(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

func md5Password(user, password string, salt []byte) string {
	inner := md5.Sum([]byte(password + user))
	outer := md5.Sum(append([]byte(hex.EncodeToString(inner[:])), salt...))
	return "md5" + hex.EncodeToString(outer[:])
}

func (cfg *DialConfig) newSCRAM(b *Backend, body []byte) (*scramClient, error) {
	if cfg.Password == "" && cfg.Keys == nil {
		return nil, errors.New("the server asks for SCRAM authentication, but no password is known")
	}
	c := &scramClient{password: cfg.Password, keys: cfg.Keys}
	if t, ok := b.Stream.Conn.(*tls.Conn); ok {
		state := t.ConnectionState()
		c.certificate = state.PeerCertificates
		c.encrypted = true
	}
	var mechanisms []string
	for m := range bytes.SplitSeq(body, []byte{0}) {
		if len(m) > 0 {
			mechanisms = append(mechanisms, string(m))
		}
	}
	return c, c.choose(mechanisms)
}

func (b *Backend) sendSASLInitial(c *scramClient) error {
	first := c.first()
	body := append([]byte(c.mechanism), 0)
	body = binary.BigEndian.AppendUint32(body, uint32(len(first)))
	return b.sendPasswordMessage(append(body, first...))
}

func (b *Backend) continueSASL(c *scramClient, body []byte) error {
	if c == nil {
		return errors.New("SASL message out of order")
	}
	final, err := c.answer(body)
	if err != nil {
		return err
	}
	return b.sendPasswordMessage(final)
}
