package localcluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// Health is the short answer of a status.
type Health string

// A cluster is degraded when any part that should run does not.
const (
	Healthy  Health = "healthy"
	Degraded Health = "degraded"
	Stopped  Health = "stopped"
)

// Status is what a cluster looks like from outside, at one moment. Parts that do not answer are in
// it too, as far as files and processes tell.
type Status struct {
	Dir         string             `json:"dir"`
	Cluster     string             `json:"cluster"`
	Health      Health             `json:"health"`
	Problems    []string           `json:"problems"`
	Epoch       uint64             `json:"epoch"`
	Supervisor  int                `json:"supervisor_pid,omitempty"`
	HTTP        string             `json:"http"`
	TokenFile   string             `json:"token_file"`
	Nodes       []NodeStatus       `json:"nodes"`
	Routers     []RouterStatus     `json:"routers"`
	Controllers []ControllerStatus `json:"controllers"`
	Etcd        EtcdStatus         `json:"etcd"`
}

// NodeStatus describes a node by the server that is its primary.
type NodeStatus struct {
	ServerStatus
	Home     bool           `json:"home"`
	Shards   *int           `json:"shards"` // nil while the map is not known
	Replicas []ServerStatus `json:"replicas"`
}

// ServerStatus is one PostgreSQL server. State is the node's state in the map while a primary
// answers, streaming or connecting for a replica, else down, stopped, starting or replaced.
type ServerStatus struct {
	Name     string `json:"name"`
	Role     string `json:"role"`
	State    string `json:"state"`
	PID      int    `json:"pid,omitempty"`
	Address  string `json:"address"`
	DSN      string `json:"dsn,omitempty"`
	LagBytes *int64 `json:"lag_bytes,omitempty"`
	// Why says more about a state that is not the usual one.
	Why string `json:"why,omitempty"`
}

// RouterStatus is one router.
type RouterStatus struct {
	Name    string    `json:"name"`
	DSN     string    `json:"dsn"`
	PID     int       `json:"pid"`
	Epoch   uint64    `json:"epoch"`
	State   string    `json:"state"`
	HTTP    string    `json:"http,omitempty"`
	Started time.Time `json:"started"`
	Clients *int      `json:"clients"` // nil when the router does not tell
	Pinned  *int      `json:"pinned"`  // of these, sessions that keep server connections
}

// ControllerStatus is one controller; one of them leads.
type ControllerStatus struct {
	Name   string `json:"name"`
	PID    int    `json:"pid"`
	Leader bool   `json:"leader"`
	HTTP   string `json:"http"`
	State  string `json:"state"`
}

// EtcdStatus is the embedded topology store.
type EtcdStatus struct {
	Endpoint string `json:"endpoint"`
	PID      int    `json:"pid,omitempty"`
	State    string `json:"state"`
}

const (
	statePrimary  = "primary"
	stateReplica  = "replica"
	stateRunning  = "running"
	stateDown     = "down"
	stateStopped  = "stopped"
	stateStarting = "starting"
	stateReplaced = "replaced"
)

// ReadStatus asks every part of the cluster in a directory how it is. It does not fail because a
// part does not answer.
func ReadStatus(ctx context.Context, dir string) (*Status, error) {
	layout, err := NewLayout(dir)
	if err != nil {
		return nil, err
	}
	state, err := LoadState(layout)
	if err != nil {
		return nil, err
	}
	password, err := readSecret(layout.superuserFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	e := &examiner{layout: layout, state: state, password: password, status: &Status{
		Dir: layout.Dir, Cluster: state.Cluster, HTTP: state.HTTP, TokenFile: layout.TokenFile(), Problems: []string{},
		Routers: []RouterStatus{}, Controllers: []ControllerStatus{}, Etcd: EtcdStatus{Endpoint: etcdEndpoint(state), State: stateDown},
	}}
	if p, ok := readPID(layout.pidFile(titleUp)); ok && isSupervisor(layout, p) {
		e.status.Supervisor = p.PID
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		e.topology(ctx)
		e.loads(ctx)
	})
	wg.Go(func() { e.servers(ctx) })
	wg.Wait()
	e.merge()
	e.judge()
	return e.status, nil
}

// examiner collects a Status.
type examiner struct {
	layout   Layout
	state    *State
	password string
	status   *Status
	current  *keyspace.Map // nil when the topology store does not answer
	leader   string
}

const statusPatience = 3 * time.Second

// election is the controllers' election in the topology store.
const election = "controller"

func (e *examiner) topology(ctx context.Context) {
	if p, ok := readPID(e.layout.pidFile(titleEtcd)); ok {
		e.status.Etcd.PID = p.PID
	}
	if e.status.Etcd.PID == 0 || !e.askTopology(ctx) {
		e.askController()
		e.askRouter(ctx)
	}
}

// askTopology reads the map and the members; it tells whether that worked.
func (e *examiner) askTopology(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	store, err := openStore(e.state)
	if err != nil {
		return false
	}
	defer func() { _ = store.Close() }()
	m, err := topo.LoadMap(ctx, store)
	if err != nil {
		return false
	}
	everybody, err := topo.Members(ctx, store, "")
	if err != nil {
		return false
	}
	e.status.Etcd.State = stateRunning
	e.current, e.status.Epoch = m, m.Epoch
	e.leader, err = topo.Leader(ctx, store, election)
	if err != nil {
		e.leader = ""
	}
	for _, member := range everybody {
		e.addMember(member)
	}
	return true
}

func (e *examiner) addMember(m topo.Member) {
	if _, ok := findProcess(m.PID); !ok {
		return // it is gone, only its lease has not run out yet
	}
	switch m.Role {
	case topo.RoleRouter:
		e.status.Routers = append(e.status.Routers, RouterStatus{
			Name: m.Name, DSN: e.routerDSN(m), PID: m.PID, Epoch: m.AckedEpoch, State: stateRunning, HTTP: m.HTTP, Started: m.Started,
		})
	case topo.RoleController:
		e.status.Controllers = append(e.status.Controllers, ControllerStatus{
			Name: m.Name, PID: m.PID, Leader: m.Name == e.leader, HTTP: m.HTTP, State: stateRunning,
		})
	}
}

// routerDSN completes what a router says of itself with what only the cluster's owner knows.
func (e *examiner) routerDSN(m topo.Member) string {
	u, err := url.Parse(m.DSN)
	if err != nil || u.Host == "" {
		u = &url.URL{Scheme: "postgres", Host: m.Address}
	}
	if _, ok := u.User.Password(); !ok {
		u.User = url.UserPassword(superuser, e.password)
	}
	if strings.Trim(u.Path, "/") == "" {
		u.Path = "/" + adminDatabase
	}
	return u.String()
}

func (e *examiner) askController() {
	if p, ok := readPID(e.layout.pidFile(titleController)); ok {
		e.status.Controllers = append(e.status.Controllers, ControllerStatus{
			Name: localController, PID: p.PID, HTTP: e.state.HTTP, State: stateRunning,
		})
	}
}

// askRouter is what remains when the topology store is away: routers serve with the map they have.
func (e *examiner) askRouter(ctx context.Context) {
	p, ok := readPID(e.layout.pidFile(titleRouter))
	if !ok {
		return
	}
	r := RouterStatus{Name: localRouter, DSN: routerDSN(e.state.RouterPort, e.password), PID: p.PID, State: stateDown}
	ctx, cancel := context.WithTimeout(ctx, statusPatience)
	defer cancel()
	if conn, err := pgx.Connect(ctx, r.DSN); err == nil {
		r.State = stateRunning
		var epoch string
		if conn.QueryRow(ctx, "SHOW shoal.epoch", pgx.QueryExecModeSimpleProtocol).Scan(&epoch) == nil {
			_, _ = fmt.Sscan(epoch, &r.Epoch) // not a number: not known
		}
		_ = conn.Close(ctx)
	}
	e.status.Epoch = r.Epoch
	e.status.Routers = append(e.status.Routers, r)
}

// merge adds to the nodes what the map knows, and the nodes that are not on this machine's disk.
func (e *examiner) merge() {
	if e.current == nil {
		return
	}
	for i := range e.status.Nodes {
		n := &e.status.Nodes[i]
		n.Home = n.Name == e.current.Home
		n.Shards = e.shards(n.Name)
		known, err := e.current.Node(n.Name)
		if err != nil {
			n.Why = "the map does not have it"
			continue
		}
		if n.State == stateRunning {
			n.State = string(known.State)
		}
	}
	for _, known := range e.current.Nodes {
		if slices.ContainsFunc(e.status.Nodes, func(n NodeStatus) bool { return n.Name == known.Name }) {
			continue
		}
		e.status.Nodes = append(e.status.Nodes, NodeStatus{
			ServerStatus: ServerStatus{
				Name: known.Name, Role: statePrimary, State: string(known.State), Address: strings.Join(known.Addresses, ","),
			},
			Home: known.Name == e.current.Home, Shards: e.shards(known.Name), Replicas: []ServerStatus{},
		})
	}
}

func (e *examiner) shards(node string) *int {
	n := e.current.ShardsOf(node)
	return &n
}

// judge names everything that is not as it should be.
func (e *examiner) judge() {
	s := e.status
	if s.Supervisor == 0 && len(remains(e.layout, e.state)) == 0 {
		s.Health = Stopped
		s.Problems = append(s.Problems, "the cluster is not running; start it with pgshoal up --dir "+s.Dir)
		return
	}
	if s.Supervisor == 0 {
		s.Problems = append(s.Problems, "the supervisor is gone, so nothing is restarted; run pgshoal up --dir "+s.Dir+" to take over")
	}
	if s.Etcd.State != stateRunning {
		s.Problems = append(s.Problems, "the topology store does not answer; routers go on with the map they have")
	}
	for _, n := range s.Nodes {
		for _, server := range append([]ServerStatus{n.ServerStatus}, n.Replicas...) {
			if p := server.problem(); p != "" {
				s.Problems = append(s.Problems, p)
			}
		}
	}
	if !slices.ContainsFunc(s.Routers, func(r RouterStatus) bool { return r.State == stateRunning }) {
		s.Problems = append(s.Problems, "no router is running")
	}
	if s.Etcd.State == stateRunning && !slices.ContainsFunc(s.Controllers, func(c ControllerStatus) bool { return c.Leader }) {
		s.Problems = append(s.Problems, "no controller leads")
	}
	s.Health = Healthy
	if len(s.Problems) > 0 {
		s.Health = Degraded
	}
}

// problem is a sentence about a server that does not do its work, or nothing.
func (s ServerStatus) problem() string {
	switch s.State {
	case stateDown, stateStopped, stateStarting, stateReplaced, "connecting":
		why := s.Why
		if why != "" {
			why = ": " + why
		}
		return fmt.Sprintf("%s %s is %s%s", s.Role, s.Name, s.State, why)
	}
	return ""
}
