package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/topo"
)

// NodeStatus is a node as the leader sees it.
type NodeStatus struct {
	Name    string             `json:"name"`
	ID      int                `json:"id"`
	Home    bool               `json:"home"`
	State   keyspace.NodeState `json:"state"`
	Region  string             `json:"region,omitempty"`
	Weight  float64            `json:"weight"`
	Shards  int                `json:"shards"`
	Servers []ServerHealth     `json:"servers"`
	// Problem is why pg_shoal on the node could not be checked.
	Problem string `json:"problem,omitempty"`
}

// healthy says whether the node has a primary that answers and nothing is wrong with it.
func (n *NodeStatus) healthy() (string, bool) {
	if n.Problem != "" {
		return fmt.Sprintf("node %s: %s", n.Name, n.Problem), false
	}
	primary := false
	for _, s := range n.Servers {
		if s.Checked.IsZero() {
			return "", true // the node is new; the next look tells
		}
		if !s.Reachable {
			return fmt.Sprintf("node %s: %s does not answer: %s", n.Name, s.Address, s.Error), false
		}
		primary = primary || s.Role == RolePrimary
	}
	if len(n.Servers) > 0 && !primary {
		return fmt.Sprintf("node %s has no primary", n.Name), false
	}
	return "", true
}

// MemberStatus is a living router or controller.
type MemberStatus struct {
	topo.Member
	Leader bool `json:"leader,omitempty"`
}

// Status is the whole cluster at one glance.
type Status struct {
	Cluster     string         `json:"cluster"`
	Epoch       uint64         `json:"epoch"`
	Health      string         `json:"health"` // ok or degraded
	Problems    []string       `json:"problems"`
	Home        string         `json:"home"`
	Leader      string         `json:"leader"`
	Nodes       []NodeStatus   `json:"nodes"`
	Routers     []MemberStatus `json:"routers"`
	Controllers []MemberStatus `json:"controllers"`
	Fences      int            `json:"fences"`
	// TopologyConnected is false while the leader works with the last map it knows.
	TopologyConnected bool   `json:"topology_connected"`
	Settled           uint64 `json:"settled_transactions"`
}

func (c *Controller) nodes(t *term) []NodeStatus {
	m := t.follower.Map()
	list := make([]NodeStatus, len(m.Nodes))
	for i, n := range m.Nodes {
		list[i] = NodeStatus{
			Name: n.Name, ID: n.ID, Home: n.Name == m.Home, State: n.State, Region: n.Region, Weight: n.Weight,
			Shards: m.ShardsOf(n.Name), Servers: t.health.of(n.Name), Problem: t.ensured.of(n.Name),
		}
		if list[i].Servers == nil { // not looked at yet
			for _, a := range n.Addresses {
				list[i].Servers = append(list[i].Servers, ServerHealth{Address: a})
			}
		}
	}
	return list
}

func (c *Controller) status(ctx context.Context, t *term) (*Status, error) {
	m := t.follower.Map()
	s := &Status{
		Cluster: m.Cluster, Epoch: m.Epoch, Health: "ok", Home: m.Home, Leader: c.cfg.Name, Fences: len(m.Fences),
		Nodes: c.nodes(t), Problems: []string{}, Routers: []MemberStatus{}, Controllers: []MemberStatus{},
		TopologyConnected: t.follower.Connected(),
	}
	c.mu.Lock()
	s.Settled = c.counters.settled
	settleError := c.counters.settleError
	c.mu.Unlock()
	if settleError != "" {
		s.Problems = append(s.Problems, "in-doubt transactions cannot be settled: "+settleError)
	}
	members, err := topo.Members(ctx, c.store, "")
	if err != nil && !errors.Is(err, topo.ErrUnavailable) {
		return nil, err
	}
	if err != nil || !s.TopologyConnected {
		s.Problems = append(s.Problems, "the topology store is not reachable; routers go on with their last map")
	}
	for _, member := range members {
		if member.Role == topo.RoleRouter {
			s.Routers = append(s.Routers, MemberStatus{Member: member})
		} else {
			s.Controllers = append(s.Controllers, MemberStatus{Member: member, Leader: member.Name == c.cfg.Name})
		}
	}
	if err == nil && len(s.Routers) == 0 {
		s.Problems = append(s.Problems, "no router is alive")
	}
	for i := range s.Nodes {
		if problem, ok := s.Nodes[i].healthy(); !ok {
			s.Problems = append(s.Problems, problem)
		}
	}
	if len(s.Problems) > 0 {
		s.Health = "degraded"
	}
	return s, nil
}

// Stats is what telemetry shows of a controller.
type Stats struct {
	Leader            bool
	Terms             uint64
	Epoch             uint64
	TopologyConnected bool
	Settled           uint64
	InDoubt           int // transactions over several nodes that could not be settled
	OldestInDoubt     time.Duration
	LostParts         uint64 // of committed transactions, by failovers that lost acknowledged data
	FencesRemoved     uint64
	Fences            int
	Distributions     int
	Nodes             []NodeStatus
}

// Stats returns a snapshot. Only the leader knows about nodes.
func (c *Controller) Stats() Stats {
	c.mu.Lock()
	s := Stats{Terms: c.counters.terms, Settled: c.counters.settled, FencesRemoved: c.counters.fencesRemoved, LostParts: c.counters.lostParts}
	inDoubt, oldest := c.counters.inDoubt, c.counters.oldestInDoubt
	t := c.term
	c.mu.Unlock()
	if t == nil {
		return s
	}
	m := t.follower.Map()
	s.InDoubt, s.OldestInDoubt = inDoubt, oldest
	s.Leader, s.Epoch, s.TopologyConnected = true, m.Epoch, t.follower.Connected()
	s.Fences, s.Distributions, s.Nodes = len(m.Fences), len(m.Distributions), c.nodes(t)
	return s
}
