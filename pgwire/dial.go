package pgwire

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/ioloop"
)

const (
	protocolVersion = 3 << 16
	// A node that says more than this before it is ready is no PostgreSQL.
	maxStartupMessages = 10_000
)

// DialConfig says how to reach a node and as whom.
type DialConfig struct {
	// Network is "tcp" or "unix"; empty means that NodeAddress finds both from Address.
	Network, Address string
	// TLS is the base of the TLS configuration (roots, client certificate); may be nil.
	TLS *tls.Config
	// SSLMode is one of libpq's: disable, allow, prefer, require, verify-ca, verify-full. Empty
	// means prefer. It is ignored on Unix sockets, as in libpq.
	SSLMode        string
	User, Database string
	// Params are further startup parameters, e.g. application_name.
	Params map[string]string
	// Password or Keys answer the node's demand; Keys only SCRAM.
	Password string
	Keys     *Keys
	// Timeout bounds the whole of Dial; 0 means no bound but the context's.
	Timeout time.Duration
}

// Backend is a connection to a node that is ready for its first statement.
type Backend struct {
	Stream *Stream
	// PID and Secret are what a CancelRequest needs.
	PID, Secret uint32
	// Params are the node's last known parameter statuses.
	Params map[string]string
	// Network and Address are what was dialled, in Go's terms.
	Network, Address string

	tls *tls.Config // not nil when the connection is encrypted; CancelBackend encrypts likewise
}

// NodeAddress turns an address of the map, "host:port" or "/dir:port", into what net.Dial takes.
func NodeAddress(address string) (network, addr string) {
	if !strings.HasPrefix(address, "/") && !strings.HasPrefix(address, "@") {
		return "tcp", address
	}
	i := strings.LastIndexByte(address, ':')
	if i < 0 {
		return "unix", address
	}
	return "unix", address[:i] + "/.s.PGSQL." + address[i+1:]
}

// Dial connects to a node and logs in. What the node answers instead of letting us in comes back
// as the *Error it sent, unchanged.
func Dial(ctx context.Context, cfg DialConfig) (*Backend, error) {
	if cfg.Network == "" {
		cfg.Network, cfg.Address = NodeAddress(cfg.Address)
	}
	if cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, cfg.Timeout)
		defer cancel()
	}
	attempts, err := cfg.attempts()
	if err != nil {
		return nil, err
	}
	for i, how := range attempts {
		var b *Backend
		b, err = cfg.dialOnce(ctx, how)
		if err == nil {
			return b, nil
		}
		if i+1 < len(attempts) && !encryptionDecides(err) {
			break
		}
	}
	return nil, err
}

func (cfg *DialConfig) dialOnce(ctx context.Context, how encryption) (*Backend, error) {
	conn, err := cfg.connect(ctx)
	if err != nil {
		return nil, err
	}
	// The handshake below reads and writes without looking at ctx; an expired deadline wakes it.
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	b, err := cfg.startup(ctx, conn, how)
	if !stop() && err == nil {
		_ = b.Stream.Conn.Close()
		err = ctx.Err()
	}
	if err == nil {
		return b, nil
	}
	_ = conn.Close()
	if pgErr := (*Error)(nil); errors.As(err, &pgErr) {
		return nil, pgErr
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return nil, fmt.Errorf("pgwire: logging in at %s: %w", cfg.Address, err)
}

func (cfg *DialConfig) connect(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{
		// A node that vanished without a word is noticed within half a minute.
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3},
		Control:         controlSocket,
	}
	conn, err := dialer.DialContext(ctx, cfg.Network, cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("pgwire: connecting to %s: %w", cfg.Address, err)
	}
	if t, ok := conn.(*net.TCPConn); ok {
		_ = t.SetNoDelay(true)
	}
	return ioloop.Take(conn), nil
}

// startup does everything between the connected socket and the first ReadyForQuery.
func (cfg *DialConfig) startup(ctx context.Context, conn net.Conn, how encryption) (*Backend, error) {
	b := &Backend{Network: cfg.Network, Address: cfg.Address, Params: make(map[string]string, 16)}
	if how != plain {
		secured, tlsConfig, err := cfg.encrypt(ctx, conn, how)
		if err != nil {
			return nil, err
		}
		conn, b.tls = secured, tlsConfig
	}
	b.Stream = NewStream(conn)
	*b.Stream.Out() = cfg.appendStartup(*b.Stream.Out())
	if err := b.Stream.Flush(); err != nil {
		return nil, err
	}
	if err := cfg.authenticate(b); err != nil {
		return nil, err
	}
	return b, b.awaitReady()
}

func (cfg *DialConfig) appendStartup(buf []byte) []byte {
	start := len(buf)
	buf = append(buf, 0, 0, 0, 0)
	buf = binary.BigEndian.AppendUint32(buf, protocolVersion)
	pair := func(name, value string) {
		buf = append(append(buf, name...), 0)
		buf = append(append(buf, value...), 0)
	}
	pair("user", cfg.User)
	if cfg.Database != "" {
		pair("database", cfg.Database)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Params)) {
		if name != "user" && name != "database" {
			pair(name, cfg.Params[name])
		}
	}
	buf = append(buf, 0)
	binary.BigEndian.PutUint32(buf[start:], uint32(len(buf)-start))
	return buf
}

// awaitReady reads what follows AuthenticationOk.
func (b *Backend) awaitReady() error {
	for range maxStartupMessages {
		typ, msg, err := b.Stream.Next()
		if err != nil {
			return err
		}
		switch typ {
		case 'S':
			name, value, err := ParameterStatus(msg)
			if err != nil {
				return err
			}
			b.Params[string(name)] = string(value)
		case 'K':
			if len(msg) < 13 {
				return fmt.Errorf("BackendKeyData of %d bytes", len(msg))
			}
			b.PID = binary.BigEndian.Uint32(msg[5:])
			b.Secret = binary.BigEndian.Uint32(msg[9:])
		case 'Z':
			return nil
		case 'E':
			return ParseError(msg)
		case 'N', 'v':
		default:
			return fmt.Errorf("unexpected message %q before ReadyForQuery", typ)
		}
	}
	return errors.New("the server sends messages but never becomes ready")
}
