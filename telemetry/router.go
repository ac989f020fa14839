package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pgshoal/pgshoal/router"
)

// NewRegistry makes a registry with the metrics of the process itself.
func NewRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// RouterCollector turns a router's Stats into metrics at the time of the question, so that the data
// path pays nothing for them.
type RouterCollector struct {
	stats func() router.Stats

	clients, pinned, epoch, topology, statements, failed, planHits, planMisses *prometheus.Desc

	poolConns, poolWaiting, poolOpened, poolClosed, poolErrors, poolTimeouts *prometheus.Desc
}

// NewRouterCollector reads from stats.
func NewRouterCollector(stats func() router.Stats) *RouterCollector {
	pool := []string{"node", "role", "database"}
	return &RouterCollector{
		stats:        stats,
		clients:      describe("router_clients", "Client connections."),
		pinned:       describe("router_pinned_sessions", "Client sessions pinned to server connections."),
		epoch:        describe("router_epoch", "Epoch of the map the router works with."),
		topology:     describe("router_topology_connected", "1 while the map is known to be up to date, 0 while the router goes on with the last one."),
		statements:   describe("router_statements_total", "Statements by kind of plan.", "kind"),
		failed:       describe("router_statement_errors_total", "Statements that ended with an error."),
		planHits:     describe("router_plan_cache_hits_total", "Statements whose plan was in the cache."),
		planMisses:   describe("router_plan_cache_misses_total", "Statements that were parsed and planned."),
		poolConns:    describe("pool_connections", "Connections to nodes by state.", append(pool, "state")...),
		poolWaiting:  describe("pool_waiting", "Sessions that wait for a connection.", pool...),
		poolOpened:   describe("pool_opened_total", "Connections opened.", pool...),
		poolClosed:   describe("pool_closed_total", "Connections closed.", pool...),
		poolErrors:   describe("pool_connect_errors_total", "Failed attempts to open a connection.", pool...),
		poolTimeouts: describe("pool_queue_timeouts_total", "Sessions that waited for a connection in vain.", pool...),
	}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("pgshoal_"+name, help, labels, nil)
}

// Describe lists the metrics.
func (c *RouterCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.clients, c.pinned, c.epoch, c.topology, c.statements, c.failed, c.planHits, c.planMisses,
		c.poolConns, c.poolWaiting, c.poolOpened, c.poolClosed, c.poolErrors, c.poolTimeouts,
	} {
		ch <- d
	}
}

// Collect reads the router once.
func (c *RouterCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.stats()
	e := emitter(ch)
	e.gauge(c.clients, float64(s.Clients))
	e.gauge(c.pinned, float64(s.Pinned))
	e.gauge(c.epoch, float64(s.Epoch))
	e.gauge(c.topology, truth(s.TopologyConnected))
	for kind, n := range s.Statements {
		e.counter(c.statements, n, kind)
	}
	e.counter(c.failed, s.Errors)
	e.counter(c.planHits, s.PlanHits)
	e.counter(c.planMisses, s.PlanMiss)
	for _, p := range s.Pools {
		k := []string{p.Key.Node, p.Key.Role, p.Key.Database}
		e.gauge(c.poolConns, float64(p.Idle), append(k, "idle")...)
		e.gauge(c.poolConns, float64(p.Active), append(k, "active")...)
		e.gauge(c.poolConns, float64(p.Opening), append(k, "opening")...)
		e.gauge(c.poolWaiting, float64(p.Waiting), k...)
		e.counter(c.poolOpened, p.Opened, k...)
		e.counter(c.poolClosed, p.Closed, k...)
		e.counter(c.poolErrors, p.Errors, k...)
		e.counter(c.poolTimeouts, p.Timeouts, k...)
	}
}

// emitter sends constant metrics.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
