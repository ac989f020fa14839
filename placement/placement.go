// Package placement says which node should hold which shard, and which shards have to move for it. It is pure:
// the controller (rebalance, node drain), the creation of distributions and the simulator ask it and do the rest.
//
// The answer is a function of its input alone: it does not depend on the order of shards or nodes, on the
// machine or on the time. Only active nodes with a weight above zero get shards; draining nodes lose all.
package placement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// State says what a node may be used for.
type State string

const (
	// Active is a node that gets and keeps shards.
	Active State = "active"
	// Draining is a node that loses all its shards.
	Draining State = "draining"
	// Joining is a node that serves nothing yet, so it gets no shards.
	Joining State = "joining"
)

// Node is a place for shards.
type Node struct {
	// ID is unique, not negative, and never given to another node. Jump numbers nodes by it.
	ID   int
	Name string
	// Weight is the node's part of the whole, relative to the other nodes' weights; 1 is usual, 0 gets nothing.
	Weight float64
	Region string
	State  State
}

// Shard is what is placed.
type Shard struct {
	ID uint32
	// Node is the name of the node that holds the shard, or empty. A name that is not among the nodes is a node
	// that is gone.
	Node string
	// Size is in bytes, Load in any unit; both are only compared with those of other shards. When all are zero,
	// every shard counts the same.
	Size int64
	Load float64
	// Region, if not empty, allows only nodes with this label.
	Region string
}

// Move is a shard that has to be moved. A shard without a node is placed, not moved.
type Move struct {
	Shard    uint32
	From, To string
	Size     int64
	// Forced means that the shard must not stay: its node drains, is gone, or is outside of the shard's region.
	Forced bool
}

// Plan is a proposal.
type Plan struct {
	// Owner has for each shard, in the order given, the index of its node in the nodes given. It is what holds
	// after Moves. It is -1 for a shard that waits on a node that is gone, because of Config.MaxMoves.
	Owner []int32
	// Moves are in the order in which they should be made: forced ones first, then those that help most.
	Moves []Move
	// Left is how many further moves Config.MaxMoves has cut off.
	Left int
}

// Propose places all shards. It fails when the input is wrong, or with a *NoNodeError when a constraint cannot be
// met; it never returns a plan that breaks one.
func Propose(cfg Config, shards []Shard, nodes []Node) (Plan, error) {
	if err := cfg.Validate(); err != nil {
		return Plan{}, err
	}
	p, err := newProblem(cfg, shards, nodes)
	if err != nil {
		return Plan{}, err
	}
	if len(shards) == 0 {
		return Plan{}, nil // then there need not be a node either
	}
	switch cfg.Algorithm {
	case Balanced:
		p.balance()
	case Bounded:
		p.bound()
	default:
		for _, g := range p.groups {
			p.pickEach(g, p.picker(g.candidates))
		}
	}
	return p.plan(), nil
}

func (p *problem) picker(candidates []int32) picker {
	switch p.cfg.Algorithm {
	case Ring:
		return newRing(p.nodes, candidates, p.cfg.VirtualNodes).pick
	case Rendezvous:
		return newRendezvous(p.nodes, candidates)
	case Jump:
		return newJump(p.nodes, candidates)
	default:
		return newMaglev(p.nodes, candidates, p.cfg.TableSize)
	}
}

// picker finds the node of a shard, whose ID has been hashed, by that hash alone.
type picker func(hash uint64) int32

// group is the shards that have the same choice of nodes.
type group struct {
	region     string
	candidates []int32 // indexes of nodes, by ID
	members    []int32 // indexes of shards, by ID
}

type problem struct {
	cfg    Config
	shards []Shard
	nodes  []Node

	current []int32 // of each shard: its node now, or -1
	owner   []int32 // of each shard: the answer
	groups  []group // shards that are bound to a region come first: they have less choice
	// touched lists moved shards in the order in which Balanced chose them.
	touched []int32
}

func newProblem(cfg Config, shards []Shard, nodes []Node) (*problem, error) {
	byName, err := checkNodes(cfg, nodes)
	if err != nil {
		return nil, err
	}
	p := &problem{
		cfg: cfg, shards: shards, nodes: nodes,
		current: make([]int32, len(shards)), owner: make([]int32, len(shards)),
	}
	order, err := shardOrder(shards)
	if err != nil {
		return nil, err
	}
	for i, s := range shards {
		p.current[i], p.owner[i] = -1, -1
		if at, known := byName[s.Node]; known {
			p.current[i] = at
		}
	}
	return p, p.makeGroups(order)
}

func checkNodes(cfg Config, nodes []Node) (map[string]int32, error) {
	byName, ids := make(map[string]int32, len(nodes)), make(map[int]string, len(nodes))
	usual := 0.0
	for i, n := range nodes {
		switch {
		case n.Name == "":
			return nil, fmt.Errorf("placement: node with ID %d has no name", n.ID)
		case n.ID < 0:
			return nil, fmt.Errorf("placement: node %q has the negative ID %d", n.Name, n.ID)
		case n.Weight < 0 || math.IsNaN(n.Weight) || n.Weight > maxWeight:
			return nil, fmt.Errorf("placement: node %q has the weight %v, which is not between 0 and %v", n.Name, n.Weight, maxWeight)
		case n.State != Active && n.State != Draining && n.State != Joining:
			return nil, fmt.Errorf("placement: node %q has the unknown state %q", n.Name, n.State)
		}
		if _, twice := byName[n.Name]; twice {
			return nil, fmt.Errorf("placement: there are two nodes %q", n.Name)
		}
		if other, twice := ids[n.ID]; twice {
			return nil, fmt.Errorf("placement: nodes %q and %q have the same ID %d", other, n.Name, n.ID)
		}
		byName[n.Name], ids[n.ID] = int32(i), n.Name
		if !n.receives() {
			continue
		}
		if points := float64(cfg.VirtualNodes) * n.Weight; (cfg.Algorithm == Ring || cfg.Algorithm == Bounded) && points > maxPoints {
			return nil, fmt.Errorf("placement: node %q with weight %v would have %.0f virtual nodes, more than %d", n.Name, n.Weight, points, maxPoints)
		}
		if usual == 0 {
			usual = n.Weight
		}
		if cfg.Algorithm == Jump && n.Weight != usual {
			return nil, fmt.Errorf("placement: jump cannot weigh nodes, but node %q has weight %v and others %v", n.Name, n.Weight, usual)
		}
	}
	return byName, nil
}

func shardOrder(shards []Shard) ([]int32, error) {
	order := make([]int32, len(shards))
	for i, s := range shards {
		order[i] = int32(i)
		if s.Size < 0 || s.Load < 0 || math.IsNaN(s.Load) || math.IsInf(s.Load, 0) {
			return nil, fmt.Errorf("placement: shard %d has size %d and load %v", s.ID, s.Size, s.Load)
		}
	}
	byID := func(a, b int32) int { return cmp.Compare(shards[a].ID, shards[b].ID) }
	if !slices.IsSortedFunc(order, byID) {
		slices.SortFunc(order, byID)
	}
	for i := 1; i < len(order); i++ {
		if id := shards[order[i]].ID; id == shards[order[i-1]].ID {
			return nil, fmt.Errorf("placement: there are two shards %d", id)
		}
	}
	return order, nil
}

func (p *problem) makeGroups(order []int32) error {
	members := map[string][]int32{}
	regions := []string{}
	for _, i := range order {
		region := p.shards[i].Region
		if members[region] == nil {
			regions = append(regions, region)
		}
		members[region] = append(members[region], i)
	}
	slices.SortFunc(regions, func(a, b string) int {
		if (a == "") != (b == "") {
			return cmp.Compare(len(b), len(a)) // the group without a region comes last
		}
		return cmp.Compare(a, b)
	})
	for _, region := range regions {
		g := group{region: region, candidates: p.candidates(region), members: members[region]}
		if len(g.candidates) == 0 {
			return &NoNodeError{Region: region, Shard: p.shards[g.members[0]].ID, Shards: len(g.members)}
		}
		p.groups = append(p.groups, g)
	}
	return nil
}

func (p *problem) candidates(region string) []int32 {
	var found []int32
	for i, n := range p.nodes {
		if n.receives() && (region == "" || n.Region == region) {
			found = append(found, int32(i))
		}
	}
	slices.SortFunc(found, func(a, b int32) int { return cmp.Compare(p.nodes[a].ID, p.nodes[b].ID) })
	return found
}

func (n Node) receives() bool { return n.State == Active && n.Weight > 0 }

// mayStay says whether the shard's node of now is one it may be placed on.
func (p *problem) mayStay(shard int32) bool {
	at, region := p.current[shard], p.shards[shard].Region
	return at >= 0 && p.nodes[at].receives() && (region == "" || p.nodes[at].Region == region)
}

// NoNodeError says that shards have no node they may be placed on.
type NoNodeError struct {
	Region string // empty: the shards may be anywhere, but there is no active node at all
	Shard  uint32 // one of them
	Shards int    // how many
}

func (e *NoNodeError) Error() string {
	others := ""
	if e.Shards > 1 {
		others = fmt.Sprintf(" and %d others", e.Shards-1)
	}
	if e.Region == "" {
		return fmt.Sprintf("no active node for shard %d%s", e.Shard, others)
	}
	return fmt.Sprintf("no active node in region %q for shard %d%s", e.Region, e.Shard, others)
}

// Hint is the way out.
func (e *NoNodeError) Hint() string {
	if e.Region == "" {
		return "Add a node, or let one that is draining be active again."
	}
	return fmt.Sprintf("Add a node with region %q, or let one that is draining be active again.", e.Region)
}
