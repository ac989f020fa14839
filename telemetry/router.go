package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/router"
)

// RouterCollector turns a router's Stats into metrics at the time of the question, so that the data
// path pays nothing for them.
type RouterCollector struct {
	stats func() router.Stats

	clients, maxClients, accepted, refused, draining, pinned *prometheus.Desc

	epoch, topology *prometheus.Desc

	statements, seconds, failed, twoPhase, planHits, planMisses, planEntries *prometheus.Desc

	poolConns, poolWaiting, poolOpened, poolClosed, poolErrors, poolTimeouts *prometheus.Desc
}

// NewRouterCollector reads from stats.
func NewRouterCollector(stats func() router.Stats) *RouterCollector {
	pools := []string{"node", "server", "role", "database"}
	return &RouterCollector{
		stats:        stats,
		clients:      describe("router_clients", "Client connections."),
		maxClients:   describe("router_max_clients", "Limit of client connections."),
		accepted:     describe("router_accepted_clients_total", "Clients that were let in."),
		refused:      describe("router_refused_clients_total", "Clients that were not let in, by why: limit, authentication, other.", "reason"),
		draining:     describe("router_draining", "1 while the router takes no new work and lets transactions finish."),
		pinned:       describe("router_pinned_sessions", "Client sessions that keep server connections, by what for.", "reason"),
		epoch:        describe("router_epoch", "Epoch of the map the router works with."),
		topology:     describe("router_topology_connected", "1 while the map is known to be up to date, 0 while the router goes on with the last one."),
		statements:   describe("router_statements_total", "Statements by kind of plan.", "kind"),
		seconds:      describe("router_statement_duration_seconds", "Time from a statement's arrival to the end of its answer, by kind of plan.", "kind"),
		failed:       describe("router_statement_errors_total", "Errors that clients were told of, by the class of the SQLSTATE.", "class"),
		twoPhase:     describe("router_two_phase_transactions_total", "Transactions that wrote on several nodes, by outcome: committed, aborted, in_doubt.", "outcome"),
		planHits:     describe("router_plan_cache_hits_total", "Statements whose plan was in the cache."),
		planMisses:   describe("router_plan_cache_misses_total", "Statements that were parsed and planned."),
		planEntries:  describe("router_plan_cache_entries", "Plans in the cache."),
		poolConns:    describe("pool_connections", "Connections to nodes by state.", append(pools, "state")...),
		poolWaiting:  describe("pool_waiting", "Sessions that wait for a connection.", pools...),
		poolOpened:   describe("pool_opened_total", "Connections opened.", pools...),
		poolClosed:   describe("pool_closed_total", "Connections closed.", pools...),
		poolErrors:   describe("pool_connect_errors_total", "Failed attempts to open a connection.", pools...),
		poolTimeouts: describe("pool_queue_timeouts_total", "Sessions that waited for a connection in vain.", pools...),
	}
}

// Describe lists the metrics.
func (c *RouterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.clients, c.maxClients, c.accepted, c.refused, c.draining, c.pinned, c.epoch, c.topology,
		c.statements, c.seconds, c.failed, c.twoPhase, c.planHits, c.planMisses, c.planEntries,
		c.poolConns, c.poolWaiting, c.poolOpened, c.poolClosed, c.poolErrors, c.poolTimeouts,
	} {
		ch <- d
	}
}

// Collect reads the router once.
func (c *RouterCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	e := emitter(ch)
	c.collectClients(e, &s)
	c.collectStatements(e, &s)
	for i := range s.Pools {
		c.collectPool(e, &s.Pools[i])
	}
	e.gauge(c.epoch, float64(s.Epoch))
	e.gauge(c.topology, truth(s.TopologyConnected))
}

// rest is the label of what is counted in the whole only, so that the sum is right.
const rest = "other"

func (c *RouterCollector) collectClients(e emitter, s *router.Stats) {
	e.gauge(c.clients, float64(s.Clients))
	e.gauge(c.maxClients, float64(s.MaxClients))
	e.gauge(c.draining, truth(s.Draining))
	e.counter(c.accepted, s.Accepted)
	for why, n := range s.Refused {
		e.counter(c.refused, n, why)
	}
	left := s.Pinned
	for why, n := range s.PinnedBy {
		e.gauge(c.pinned, float64(n), why)
		left -= n
	}
	if _, taken := s.PinnedBy[rest]; !taken {
		e.gauge(c.pinned, float64(max(left, 0)), rest)
	}
}

func (c *RouterCollector) collectStatements(e emitter, s *router.Stats) {
	for kind, n := range s.Statements {
		e.counter(c.statements, n, kind)
	}
	for kind, h := range s.Durations {
		e.histogram(c.seconds, h, kind)
	}
	for class, n := range s.ErrorClasses {
		e.counter(c.failed, n, class)
	}
	// Not the difference: two counters read one after the other would make it go back at times.
	if len(s.ErrorClasses) == 0 {
		e.counter(c.failed, s.Errors, rest)
	}
	e.counter(c.twoPhase, s.TwoPhase.Committed, "committed")
	e.counter(c.twoPhase, s.TwoPhase.Aborted, "aborted")
	e.counter(c.twoPhase, s.TwoPhase.InDoubt, "in_doubt")
	e.counter(c.planHits, s.PlanHits)
	e.counter(c.planMisses, s.PlanMiss)
	e.gauge(c.planEntries, float64(s.PlanEntries))
}

func (c *RouterCollector) collectPool(e emitter, p *pool.Stats) {
	server := "primary"
	if p.Key.Replica {
		server = "replica"
	}
	k := []string{p.Key.Node, server, p.Key.Role, p.Key.Database}
	e.gauge(c.poolConns, float64(p.Idle), append(k, "idle")...)
	e.gauge(c.poolConns, float64(p.Active), append(k, "active")...)
	e.gauge(c.poolConns, float64(p.Opening), append(k, "opening")...)
	e.gauge(c.poolWaiting, float64(p.Waiting), k...)
	e.counter(c.poolOpened, p.Opened, k...)
	e.counter(c.poolClosed, p.Closed, k...)
	e.counter(c.poolErrors, p.Errors, k...)
	e.counter(c.poolTimeouts, p.Timeouts, k...)
}
