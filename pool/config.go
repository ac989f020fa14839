// Package pool holds the connections to the nodes, so that many clients share few of them and
// nobody above has to know where a node's primary is.
package pool

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/pgshoal/pgshoal/pgwire"
)

// Key names one pool: connections are alike only when node, role and database are.
type Key struct {
	Node, Role, Database string
	// Replica connections lead to standbys of the node, never to its primary.
	Replica bool
}

// Credentials log a role in to a node; see pgwire.DialConfig.
type Credentials struct {
	Keys     *pgwire.Keys
	Password string
}

// Monitor logs in to the servers of a node to see how far behind each is.
type Monitor struct {
	// Role should be a member of pg_read_all_stats: it then sees a standby's timeline, and so
	// whether it follows a primary that a failover left behind.
	Role, Database string
	Credentials
}

// Config limits and times. The zero value of each field means its default.
type Config struct {
	// MaxPerPool and MaxPerNode bound the open connections of one Key and of one node. A replica
	// counts by itself, since it is a server of its own.
	MaxPerPool, MaxPerNode int
	// QueueTimeout bounds how long Acquire waits for a connection when the limits are reached.
	QueueTimeout time.Duration
	// ConnectTimeout bounds one login.
	ConnectTimeout time.Duration
	// PrimaryTimeout bounds how long Acquire looks for a primary while a node has none: during
	// a failover, or while the server starts up. Statements wait instead of failing.
	PrimaryTimeout time.Duration
	// IdleTimeout closes a connection that nobody used for so long.
	IdleTimeout time.Duration
	// Lifetime closes a connection at this age, give or take a tenth so that they do not all
	// close together, when it is next idle.
	Lifetime time.Duration
	// CheckAfter is how long a connection must have been idle for Acquire to look at its socket.
	// One that was used more recently is checked only when another connection of the node died
	// meanwhile. Negative means to look always.
	CheckAfter time.Duration
	// MaxStatements bounds the prepared statements of one connection.
	MaxStatements int
	// MaxStaleness is how far behind a replica may be to be used, when an AcquireReplica does not
	// say. What is compared was measured about a second ago, at most.
	MaxStaleness time.Duration
	// Monitor measures it. Without a role, a client's own login does.
	Monitor Monitor

	// Seen, if set, is told when a primary is found on a higher timeline than any before. It must not wait.
	Seen func(node string, timeline uint32)

	// SSLMode and TLS are as in pgwire.DialConfig.
	SSLMode string
	TLS     *tls.Config
	// Params are startup parameters of every connection.
	Params map[string]string
	// Admit, if set, is called for each fresh connection before its first use; an error closes
	// it and fails its Acquire. It may Acquire by itself with the ctx it gets: such connections
	// are not admitted in turn, and they may exceed MaxPerNode, for else they could wait for the
	// very connection that waits for them. Replica connections are not admitted: a standby could
	// not write it down.
	Admit func(ctx context.Context, node string, pid uint32) error
}

func (c *Config) validate() error {
	setDefault(&c.MaxPerPool, 50)
	setDefault(&c.MaxPerNode, 80)
	setDefault(&c.QueueTimeout, 30*time.Second)
	setDefault(&c.ConnectTimeout, 5*time.Second)
	setDefault(&c.PrimaryTimeout, 5*time.Second)
	setDefault(&c.IdleTimeout, 10*time.Minute)
	setDefault(&c.Lifetime, time.Hour)
	setDefault(&c.CheckAfter, time.Second)
	setDefault(&c.MaxStatements, 500)
	setDefault(&c.MaxStaleness, 10*time.Second)
	if c.Monitor.Database == "" {
		c.Monitor.Database = "postgres"
	}
	for _, n := range []struct {
		name  string
		value int64
	}{
		{"MaxPerPool", int64(c.MaxPerPool)},
		{"MaxPerNode", int64(c.MaxPerNode)},
		{"QueueTimeout", int64(c.QueueTimeout)},
		{"ConnectTimeout", int64(c.ConnectTimeout)},
		{"PrimaryTimeout", int64(c.PrimaryTimeout)},
		{"IdleTimeout", int64(c.IdleTimeout)},
		{"Lifetime", int64(c.Lifetime)},
		{"MaxStatements", int64(c.MaxStatements)},
		{"MaxStaleness", int64(c.MaxStaleness)},
	} {
		if n.value < 0 {
			return fmt.Errorf("pool: %s must not be negative", n.name)
		}
	}
	if c.MaxPerPool > c.MaxPerNode {
		c.MaxPerPool = c.MaxPerNode
	}
	switch c.SSLMode {
	case "", "disable", "allow", "prefer", "require", "verify-ca", "verify-full":
		return nil
	}
	return fmt.Errorf("pool: invalid sslmode %q", c.SSLMode)
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// ErrClosed is returned by Acquire after Close.
var ErrClosed = errors.New("pool: closed")

// ErrNoReplica is returned by AcquireReplica when no replica is up and fresh enough. The primary can
// answer instead.
var ErrNoReplica = errors.New("pool: no replica is up and fresh enough")

// SQLSTATEs of what goes wrong between a router and a node.
const (
	codeConnectionFailed = "08006"
	codeCannotConnect    = "08001"
)

func unknownNode(name string) error {
	return pgwire.Errorf(codeCannotConnect, "node %q is not in the map", name)
}
