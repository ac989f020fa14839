package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgshoal/pgshoal/control"
)

// ControllerCollector turns a controller's Stats into metrics. A standby shows only that it is one.
type ControllerCollector struct {
	stats func() control.Stats

	inDoubt, oldestInDoubt, lostParts *prometheus.Desc

	leader, terms, epoch, topology, settled, fences, fencesRemoved, distributions *prometheus.Desc

	nodeUp, nodeActive, nodeShards, serverUp, serverPrimary, lagBytes, lagSeconds *prometheus.Desc
}

// NewControllerCollector reads from stats.
func NewControllerCollector(stats func() control.Stats) *ControllerCollector {
	server := []string{"node", "address"}
	return &ControllerCollector{
		stats:         stats,
		leader:        describe("controller_leader", "1 on the controller that leads."),
		terms:         describe("controller_terms_total", "Times this controller was elected."),
		epoch:         describe("controller_epoch", "Epoch of the map."),
		topology:      describe("controller_topology_connected", "1 while the leader reaches the topology store."),
		settled:       describe("controller_settled_transactions_total", "In-doubt transactions settled by this controller."),
		inDoubt:       describe("transactions_in_doubt", "Transactions over several nodes that are prepared for seconds and could not be settled."),
		oldestInDoubt: describe("transactions_in_doubt_oldest_seconds", "Age of the oldest of them, 0 when there is none."),
		lostParts:     describe("transactions_lost_parts_total", "Parts of committed transactions that a failover to a lagging replica has lost."),
		fences:        describe("controller_fences", "Fences in the map: statements wait while there are any."),
		fencesRemoved: describe("controller_fences_removed_total", "Fences of dead processes removed by this controller."),
		distributions: describe("controller_distributions", "Distributions in the map."),
		nodeUp:        describe("node_up", "1 when the node has a primary that answers.", "node"),
		nodeActive:    describe("node_active", "1 when the node's state is active.", "node"),
		nodeShards:    describe("node_shards", "Shards the node owns.", "node"),
		serverUp:      describe("server_up", "1 when the server answers.", server...),
		serverPrimary: describe("server_primary", "1 when the server is its node's primary.", server...),
		lagBytes:      describe("replica_lag_bytes", "WAL that the replica has not replayed yet.", server...),
		lagSeconds:    describe("replica_lag_seconds", "Age of the replica's last replayed transaction while it lags.", server...),
	}
}

// Describe lists the metrics.
func (c *ControllerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.leader, c.terms, c.epoch, c.topology, c.settled, c.fences, c.fencesRemoved, c.distributions,
		c.nodeUp, c.nodeActive, c.nodeShards, c.serverUp, c.serverPrimary, c.lagBytes, c.lagSeconds,
		c.inDoubt, c.oldestInDoubt, c.lostParts,
	} {
		ch <- d
	}
}

// Collect reads the controller once.
func (c *ControllerCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	e := emitter(ch)
	e.gauge(c.leader, truth(s.Leader))
	e.counter(c.terms, s.Terms)
	e.counter(c.settled, s.Settled)
	e.counter(c.fencesRemoved, s.FencesRemoved)
	e.counter(c.lostParts, s.LostParts)
	if !s.Leader {
		return
	}
	e.gauge(c.epoch, float64(s.Epoch))
	e.gauge(c.topology, truth(s.TopologyConnected))
	e.gauge(c.inDoubt, float64(s.InDoubt))
	e.gauge(c.oldestInDoubt, s.OldestInDoubt.Seconds())
	e.gauge(c.fences, float64(s.Fences))
	e.gauge(c.distributions, float64(s.Distributions))
	for _, n := range s.Nodes {
		up := false
		for _, server := range n.Servers {
			primary := server.Reachable && server.Role == control.RolePrimary
			up = up || primary
			e.gauge(c.serverUp, truth(server.Reachable), n.Name, server.Address)
			e.gauge(c.serverPrimary, truth(primary), n.Name, server.Address)
			if server.Role == control.RoleReplica {
				e.gauge(c.lagBytes, float64(server.LagBytes), n.Name, server.Address)
				e.gauge(c.lagSeconds, server.LagSeconds, n.Name, server.Address)
			}
		}
		e.gauge(c.nodeUp, truth(up), n.Name)
		e.gauge(c.nodeActive, truth(n.State == "active"), n.Name)
		e.gauge(c.nodeShards, float64(n.Shards), n.Name)
	}
}
