package twopc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgshoal/pgshoal/keyspace"
)

// Connect opens a superuser's connection to a database on the primary of a node. An empty database
// is any that the node has.
type Connect func(ctx context.Context, node keyspace.Node, database string) (*pgx.Conn, error)

// SettlerConfig says when. Fields that are zero get the values below.
type SettlerConfig struct {
	// Grace spares transactions that are young and probably not in trouble: 3 seconds.
	Grace time.Duration
	// QueryTimeout bounds each statement and each login: 5 seconds.
	QueryTimeout time.Duration
	// ForgetEvery is how often decisions are looked at that nobody needs: a minute. KeepCommit and
	// KeepAbort are the least times they stay: 10 minutes and 24 hours. KeepSeen is that of the records that atomic
	// reads compare, and must be well above the time that such a read may take to begin: a minute.
	ForgetEvery, KeepCommit, KeepAbort, KeepSeen time.Duration
	// Hook is called before and after each step of a settlement, "after record abort n1", and "before forget n1"; nil is none.
	Hook func(point string)
}

func (c *SettlerConfig) validate() error {
	for _, d := range []struct {
		name  string
		value *time.Duration
		usual time.Duration
	}{
		{"Grace", &c.Grace, 3 * time.Second},
		{"QueryTimeout", &c.QueryTimeout, 5 * time.Second},
		{"ForgetEvery", &c.ForgetEvery, time.Minute},
		{"KeepCommit", &c.KeepCommit, 10 * time.Minute},
		{"KeepAbort", &c.KeepAbort, 24 * time.Hour},
		{"KeepSeen", &c.KeepSeen, time.Minute},
	} {
		if *d.value < 0 {
			return fmt.Errorf("twopc: %s is negative", d.name)
		}
		if *d.value == 0 {
			*d.value = d.usual
		}
	}
	if c.QueryTimeout <= lockTimeout {
		return fmt.Errorf("twopc: QueryTimeout is %v; it must be longer than the %v that recovery waits for a lock", c.QueryTimeout, lockTimeout)
	}
	return nil
}

// Settler is recovery as the controller runs it: again and again, over the nodes of the map.
type Settler struct {
	cfg SettlerConfig

	mu        sync.Mutex // held by Settle: one round at a time
	nodes     *connections
	memory    *memory
	failovers failovers
	looked    time.Time // when decisions were looked at last
}

// NewSettler returns a Settler that connects when it is asked to settle.
func NewSettler(cfg SettlerConfig, connect Connect) (*Settler, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Settler{
		cfg:    cfg,
		nodes:  &connections{connect: connect, timeout: cfg.QueryTimeout, lanes: make(map[lane]*connection)},
		memory: newMemory(cfg),
	}, nil
}

// Settle looks at all nodes of the map once, settles what it can and reports what it found.
func (s *Settler) Settle(ctx context.Context, m *keyspace.Map) (Report, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := s.nodes.use(ctx, m)
	l := list(ctx, s.nodes, m.Cluster, names)
	report, err := recoverListed(ctx, s.nodes, l, names, s.cfg.Grace, s.cfg.Hook)
	var lostErr error
	report.Lost, lostErr = s.failovers.look(ctx, s.nodes, l, names, s.cfg.KeepSeen)
	err = errors.Join(err, lostErr)
	// Databases must stay droppable, and the primary of a node that did not answer, or may have failed over, is looked for again.
	defer s.nodes.drop(ctx, func(l lane) bool {
		return l.database != "" || report.Unreachable[l.node] != nil || len(s.nodes.known[l.node].Addresses) > 1
	})
	if time.Since(s.looked) < s.cfg.ForgetEvery || len(report.Unreachable) > 0 || lostErr != nil {
		return report, err
	}
	s.looked = time.Now()
	if _, forgetErr := s.memory.forget(ctx, s.nodes, m.Cluster, names); forgetErr != nil {
		err = errors.Join(err, fmt.Errorf("remove old decisions: %w", forgetErr))
	}
	return report, err
}

// Close ends the connections. The Settler can be used again after it.
func (s *Settler) Close(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes.drop(ctx, func(lane) bool { return true })
}

// lane is where a connection leads.
type lane struct{ node, database string }

// connection is one connection, used by one statement at a time.
type connection struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

// connections are the Nodes of a Settler. The ones for listing stay open between rounds, because
// logging in costs more than listing.
type connections struct {
	connect Connect
	timeout time.Duration

	mu    sync.Mutex
	known map[string]keyspace.Node
	lanes map[lane]*connection
}

// use takes the nodes of the map and drops connections to what is not there any more or has moved.
func (c *connections) use(ctx context.Context, m *keyspace.Map) []string {
	known := make(map[string]keyspace.Node, len(m.Nodes))
	var names []string
	for _, n := range m.Nodes {
		known[n.Name] = n
		names = append(names, n.Name)
	}
	c.drop(ctx, func(l lane) bool { return fmt.Sprint(known[l.node].Addresses) != fmt.Sprint(c.known[l.node].Addresses) })
	c.known = known
	return names
}

func (c *connections) drop(ctx context.Context, which func(lane) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for l, held := range c.lanes {
		if which(l) {
			delete(c.lanes, l)
			held.close(ctx, c.timeout)
		}
	}
}

func (h *connection) close(ctx context.Context, timeout time.Duration) {
	if h.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	_ = h.conn.Close(ctx) // what it did is done; there is nothing to lose
	h.conn = nil
}

// Query runs one statement in the simple protocol, as COMMIT PREPARED wants it.
func (c *connections) Query(ctx context.Context, node, database, sql string) ([][]string, error) {
	c.mu.Lock()
	n, known := c.known[node]
	held := c.lanes[lane{node, database}]
	if held == nil {
		held = &connection{}
		c.lanes[lane{node, database}] = held
	}
	c.mu.Unlock()
	if !known {
		return nil, keyspace.ErrNotFound
	}
	held.mu.Lock()
	defer held.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	fresh := held.conn == nil
	rows, err := held.query(ctx, c.connect, n, database, sql)
	if err != nil && held.conn == nil && !fresh && database == "" {
		// A connection from an earlier round; the server may have been restarted since. Nothing but
		// reading is done there.
		rows, err = held.query(ctx, c.connect, n, database, sql)
	}
	return rows, err
}

// query forgets the connection when it broke.
func (h *connection) query(ctx context.Context, connect Connect, node keyspace.Node, database, sql string) ([][]string, error) {
	if h.conn == nil {
		conn, err := connect(ctx, node, database)
		if err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		h.conn = conn
	}
	results, err := h.conn.PgConn().Exec(ctx, sql).ReadAll()
	if h.conn.IsClosed() {
		h.conn = nil
	}
	if err != nil {
		return nil, err
	}
	return texts(results), nil
}

func texts(results []*pgconn.Result) [][]string {
	var rows [][]string
	for _, result := range results {
		for _, values := range result.Rows {
			row := make([]string, len(values))
			for i, v := range values {
				row[i] = string(v)
			}
			rows = append(rows, row)
		}
	}
	return rows
}
