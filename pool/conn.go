package pool

import (
	"context"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
)

// Conn is one connection to a node's primary or, by its Key, to a replica, held by one session at a time. Who holds it keeps
// TxStatus right and sets Broken when the protocol is in an unknown state.
type Conn struct {
	*pgwire.Backend
	Key Key
	// TxStatus is the status of the last ReadyForQuery: I, T or E.
	TxStatus byte
	// Broken connections are closed by Release.
	Broken bool
	// Spent connections are closed by Release too, with a farewell: their session has what DISCARD ALL
	// leaves behind.
	Spent bool
	// Dirty makes Release run DISCARD ALL before anyone else gets the connection; it empties
	// Statements and Settings.
	Dirty bool
	// Statements are the prepared statements on this connection.
	Statements *Statements
	// Settings is the router's: what it has applied to the session. nil on a fresh session.
	Settings any
	// OIDs is the router's: how the node's OIDs are translated.
	OIDs any
	// Uses is the router's: it counts the sessions that the connection has served.
	Uses uint64
	// Notification, if set, gets the NotificationResponse messages that come while the pool's own
	// methods read; the session that listens sets it and takes it back.
	Notification func(msg []byte)

	pool       *keyPool
	probe      probe
	expires    int64 // pool time at which it is too old
	idleSince  int64 // pool time of the last Release
	generation uint64
	held       bool // by a session; guarded by the node's mutex
}

// Cancel asks the node to cancel what the connection is running; another goroutine may be using it.
func (c *Conn) Cancel(ctx context.Context) error { return pgwire.CancelBackend(ctx, c.Backend) }

// ParameterStatus records a ParameterStatus message; whoever reads messages by itself calls it.
func (c *Conn) ParameterStatus(msg []byte) {
	if name, value, err := pgwire.ParameterStatus(msg); err == nil {
		c.Params[string(name)] = string(value)
	}
}

// promoted reports whether a replica connection leads to a primary now; the server says so when it
// ends a statement.
func (c *Conn) promoted() bool { return c.Params[inHotStandby] != "on" }

// terminateTimeout bounds the farewell to a node that may be gone.
const terminateTimeout = 100 * time.Millisecond

// close says goodbye where that has a meaning and closes the socket.
func (c *Conn) close() {
	if !c.Broken {
		_ = c.Stream.Conn.SetWriteDeadline(time.Now().Add(terminateTimeout))
		_, _ = c.Stream.Conn.Write(pgwire.AppendTerminate(nil))
	}
	_ = c.Stream.Conn.Close()
}

// alive reports whether the connection is still usable as far as this side can know without a
// round trip, and takes in what the node said while nobody listened.
func (c *Conn) alive() bool {
	if c.Stream.Buffered() == 0 {
		switch c.probe.look() {
		case quiet:
			return true
		case gone:
			return false
		}
	}
	// Something is there: an end of file, a farewell, a message that anyone may get at any
	// time, or a TLS record of no further meaning. It is there, so reading it hardly waits.
	_ = c.Stream.Conn.SetReadDeadline(time.Now().Add(time.Millisecond))
	defer func() { _ = c.Stream.Conn.SetReadDeadline(time.Time{}) }()
	for {
		if _, err := c.Stream.Peek(1); err != nil {
			return isTimeout(err) && c.Stream.Buffered() == 0
		}
		typ, msg, err := c.Stream.Next()
		if err != nil {
			return false
		}
		switch typ {
		case 'S':
			c.ParameterStatus(msg)
		case 'N', 'A':
		default:
			return false
		}
	}
}
