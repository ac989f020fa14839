package control

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
)

const probeTimeout = 3 * time.Second

// Roles of a server within its node.
const (
	RolePrimary = "primary"
	RoleReplica = "replica"
)

// ServerHealth is what the controller last saw of one address of a node.
type ServerHealth struct {
	Address   string `json:"address"`
	Reachable bool   `json:"reachable"`
	Role      string `json:"role,omitempty"` // primary or replica
	Version   string `json:"version,omitempty"`
	// LagBytes is how much WAL a replica has not replayed yet; LagSeconds how old its last
	// replayed transaction is while it lags.
	LagBytes   int64     `json:"lag_bytes,omitempty"`
	LagSeconds float64   `json:"lag_seconds,omitempty"`
	Error      string    `json:"error,omitempty"`
	Checked    time.Time `json:"checked,omitzero"`

	position int64 // in the WAL
}

// healthWatch looks at all addresses of all nodes and keeps one connection to each.
type healthWatch struct {
	access NodeAccess
	conns  map[string]*pgx.Conn // of the looking goroutine

	mu    sync.Mutex
	nodes map[string][]ServerHealth
}

func newHealthWatch(access NodeAccess) *healthWatch {
	return &healthWatch{access: access, conns: map[string]*pgx.Conn{}, nodes: map[string][]ServerHealth{}}
}

// of returns what was last seen of a node, nothing before the first look.
func (h *healthWatch) of(node string) []ServerHealth {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.nodes[node])
}

// look asks every server once, all at the same time.
func (h *healthWatch) look(ctx context.Context, m *keyspace.Map) {
	type answer struct {
		node   string
		health ServerHealth
		conn   *pgx.Conn
	}
	answers := make(chan answer)
	asked := map[string]bool{}
	for _, n := range m.Nodes {
		for _, address := range n.Addresses {
			if asked[address] {
				continue
			}
			asked[address] = true
			conn := h.conns[address]
			go func() {
				health, conn := h.probe(ctx, address, conn)
				answers <- answer{n.Name, health, conn}
			}()
		}
	}
	seen := map[string][]ServerHealth{}
	conns := map[string]*pgx.Conn{}
	for range asked {
		a := <-answers
		seen[a.node] = append(seen[a.node], a.health)
		if a.conn != nil {
			conns[a.health.Address] = a.conn
		}
	}
	for address, conn := range h.conns {
		if !asked[address] {
			_ = conn.Close(ctx) // the node left
		}
	}
	h.conns = conns
	for node := range seen {
		finishNode(seen[node], m)
	}
	h.mu.Lock()
	h.nodes = seen
	h.mu.Unlock()
}

// finishNode computes each replica's lag against the primary and restores the map's order.
func finishNode(servers []ServerHealth, m *keyspace.Map) {
	order := map[string]int{}
	for _, n := range m.Nodes {
		for i, a := range n.Addresses {
			order[a] = i
		}
	}
	slices.SortFunc(servers, func(a, b ServerHealth) int { return order[a.Address] - order[b.Address] })
	var head int64
	for _, s := range servers {
		if s.Role == RolePrimary {
			head = max(head, s.position)
		}
	}
	for i := range servers {
		s := &servers[i]
		if s.Role == RoleReplica && head > s.position {
			s.LagBytes = head - s.position
		}
		if s.LagBytes == 0 {
			s.LagSeconds = 0 // a quiet primary makes an up-to-date replica look old
		}
	}
}

const probeSQL = `
	SELECT r, current_setting('server_version'),
		pg_wal_lsn_diff(CASE WHEN r THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_lsn() END, '0/0')::bigint,
		CASE WHEN r THEN greatest(coalesce(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()), 0), 0) ELSE 0 END::float8
	FROM pg_is_in_recovery() r`

func (h *healthWatch) probe(ctx context.Context, address string, conn *pgx.Conn) (ServerHealth, *pgx.Conn) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	health := ServerHealth{Address: address, Checked: time.Now()}
	// The second try is for a connection that died since the last look; the server may be fine.
	for reused := conn != nil; ; reused = false {
		var err error
		if !reused {
			conn, err = h.connect(ctx, address)
		}
		if err == nil {
			err = health.read(ctx, conn)
		}
		if err == nil {
			return health, conn
		}
		if conn != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
			conn = nil
		}
		if !reused || ctx.Err() != nil {
			health.Error = err.Error()
			return health, nil
		}
	}
}

func (h *healthWatch) connect(ctx context.Context, address string) (*pgx.Conn, error) {
	cfg, err := h.access.config([]string{address}, "", "any")
	if err != nil {
		return nil, err
	}
	return pgx.ConnectConfig(ctx, cfg)
}

func (s *ServerHealth) read(ctx context.Context, conn *pgx.Conn) error {
	var replica bool
	if err := conn.QueryRow(ctx, probeSQL).Scan(&replica, &s.Version, &s.position, &s.LagSeconds); err != nil {
		return err
	}
	s.Reachable, s.Role = true, RolePrimary
	if replica {
		s.Role = RoleReplica
	}
	return nil
}

func (h *healthWatch) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeTimeout)
	defer cancel()
	for _, conn := range h.conns {
		_ = conn.Close(ctx) // the process ends or the leadership does; nothing depends on it
	}
	clear(h.conns)
}
