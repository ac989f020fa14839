package telemetry

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"go.uber.org/goleak"

	"github.com/pgshoal/pgshoal/control"
	"github.com/pgshoal/pgshoal/pool"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/topo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLogger(t *testing.T) {
	var out bytes.Buffer
	log, level, err := NewLogger(&out, "json", "warn")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("hidden")
	if err := SetLevel(level, "debug"); err != nil {
		t.Fatal(err)
	}
	log.Debug("shown")
	if text := out.String(); strings.Contains(text, "hidden") || !strings.Contains(text, `"msg":"shown"`) {
		t.Errorf("log is %s", text)
	}
	if err := SetLevel(level, "loud"); err == nil {
		t.Error("an unknown level was accepted")
	}
	if _, _, err := NewLogger(&out, "xml", "info"); err == nil {
		t.Error("an unknown format was accepted")
	}
}

func TestRouterMetrics(t *testing.T) {
	stats := router.Stats{
		Clients: 3, Epoch: 7, TopologyConnected: true, Errors: 2,
		Statements: map[string]uint64{"route": 5},
		Pools: []pool.Stats{
			{Key: pool.Key{Node: "n1", Role: "app", Database: "d"}, Idle: 1, Active: 2, Opened: 9},
			{Key: pool.Key{Node: "n1", Role: "app", Database: "d", Replica: true}, Idle: 4},
		},
		Pinned: 3, PinnedBy: map[string]int{"LISTEN": 2},
		TwoPhase: router.TwoPhase{Committed: 4, InDoubt: 1},
		Durations: map[string]router.Histogram{"Route": {
			Bounds: []time.Duration{time.Millisecond, time.Second}, Counts: []uint64{3, 2, 1}, Sum: 5 * time.Second,
		}},
	}
	c := NewRouterCollector(func() router.Stats { return stats })
	want := `
# HELP pgshoal_pool_connections Connections to nodes by state.
# TYPE pgshoal_pool_connections gauge
pgshoal_pool_connections{database="d",node="n1",role="app",server="primary",state="active"} 2
pgshoal_pool_connections{database="d",node="n1",role="app",server="primary",state="idle"} 1
pgshoal_pool_connections{database="d",node="n1",role="app",server="primary",state="opening"} 0
pgshoal_pool_connections{database="d",node="n1",role="app",server="replica",state="active"} 0
pgshoal_pool_connections{database="d",node="n1",role="app",server="replica",state="idle"} 4
pgshoal_pool_connections{database="d",node="n1",role="app",server="replica",state="opening"} 0
# HELP pgshoal_router_epoch Epoch of the map the router works with.
# TYPE pgshoal_router_epoch gauge
pgshoal_router_epoch 7
# HELP pgshoal_router_pinned_sessions Client sessions that keep server connections, by what for.
# TYPE pgshoal_router_pinned_sessions gauge
pgshoal_router_pinned_sessions{reason="LISTEN"} 2
pgshoal_router_pinned_sessions{reason="other"} 1
# HELP pgshoal_router_statement_duration_seconds Time from a statement's arrival to the end of its answer, by kind of plan.
# TYPE pgshoal_router_statement_duration_seconds histogram
pgshoal_router_statement_duration_seconds_bucket{kind="Route",le="0.001"} 3
pgshoal_router_statement_duration_seconds_bucket{kind="Route",le="1"} 5
pgshoal_router_statement_duration_seconds_bucket{kind="Route",le="+Inf"} 6
pgshoal_router_statement_duration_seconds_sum{kind="Route"} 5
pgshoal_router_statement_duration_seconds_count{kind="Route"} 6
# HELP pgshoal_router_statement_errors_total Errors that clients were told of, by the class of the SQLSTATE.
# TYPE pgshoal_router_statement_errors_total counter
pgshoal_router_statement_errors_total{class="other"} 2
# HELP pgshoal_router_statements_total Statements by kind of plan.
# TYPE pgshoal_router_statements_total counter
pgshoal_router_statements_total{kind="route"} 5
# HELP pgshoal_router_topology_connected 1 while the map is known to be up to date, 0 while the router goes on with the last one.
# TYPE pgshoal_router_topology_connected gauge
pgshoal_router_topology_connected 1
# HELP pgshoal_router_two_phase_transactions_total Transactions that wrote on several nodes, by outcome: committed, aborted, in_doubt.
# TYPE pgshoal_router_two_phase_transactions_total counter
pgshoal_router_two_phase_transactions_total{outcome="aborted"} 0
pgshoal_router_two_phase_transactions_total{outcome="committed"} 4
pgshoal_router_two_phase_transactions_total{outcome="in_doubt"} 1
`
	compare(t, registryOf(c), want, "pgshoal_pool_connections", "pgshoal_router_epoch", "pgshoal_router_pinned_sessions",
		"pgshoal_router_statement_duration_seconds", "pgshoal_router_statement_errors_total",
		"pgshoal_router_statements_total", "pgshoal_router_topology_connected", "pgshoal_router_two_phase_transactions_total")
	lint(t, c)
	stats.ErrorClasses = map[string]uint64{"23": 2}
	compare(t, registryOf(c), `
# HELP pgshoal_router_statement_errors_total Errors that clients were told of, by the class of the SQLSTATE.
# TYPE pgshoal_router_statement_errors_total counter
pgshoal_router_statement_errors_total{class="23"} 2
`, "pgshoal_router_statement_errors_total")
}

func TestControllerMetrics(t *testing.T) {
	stats := control.Stats{
		Leader: true, Epoch: 4,
		Nodes: []control.NodeStatus{{Name: "n1", State: "active", Shards: 8, Servers: []control.ServerHealth{
			{Address: "a:1", Reachable: true, Role: control.RolePrimary},
			{Address: "b:1", Reachable: true, Role: control.RoleReplica, LagBytes: 42},
			{Address: "c:1"},
		}}},
	}
	c := NewControllerCollector(func() control.Stats { return stats })
	want := `
# HELP pgshoal_node_up 1 when the node has a primary that answers.
# TYPE pgshoal_node_up gauge
pgshoal_node_up{node="n1"} 1
# HELP pgshoal_replica_lag_bytes WAL that the replica has not replayed yet.
# TYPE pgshoal_replica_lag_bytes gauge
pgshoal_replica_lag_bytes{address="b:1",node="n1"} 42
# HELP pgshoal_server_up 1 when the server answers.
# TYPE pgshoal_server_up gauge
pgshoal_server_up{address="a:1",node="n1"} 1
pgshoal_server_up{address="b:1",node="n1"} 1
pgshoal_server_up{address="c:1",node="n1"} 0
`
	compare(t, registryOf(c), want, "pgshoal_node_up", "pgshoal_replica_lag_bytes", "pgshoal_server_up")
	lint(t, c)
	stats.Leader = false
	families, err := registryOf(c).Gather()
	if err != nil || len(families) != 5 {
		t.Errorf("a standby shows %d metrics, want 5 (%v)", len(families), err)
	}
}

func registryOf(c prometheus.Collector) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	return r
}

// compare checks the text form of the named metrics.
func compare(t *testing.T, g prometheus.Gatherer, want string, names ...string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Error(err)
	}
	var got strings.Builder
	for _, f := range families {
		if slices.Contains(names, f.GetName()) {
			if _, err := expfmt.MetricFamilyToText(&got, f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if strings.TrimSpace(got.String()) != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

func lint(t *testing.T, c prometheus.Collector) {
	t.Helper()
	families, err := registryOf(c).Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func fakeRouter(t *testing.T, clients int) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(NewRouterCollector(func() router.Stats { return router.Stats{Clients: clients} }))
	server := httptest.NewServer(Handler(registry, func(context.Context) error { return nil }))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

func TestFederation(t *testing.T) {
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "{not metrics") }))
	t.Cleanup(broken.Close)
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	federation := &Federation{
		Client: &http.Client{Transport: transport},
		Routers: func(context.Context) ([]topo.Member, error) {
			return []topo.Member{
				{Name: "r1", HTTP: fakeRouter(t, 3)},
				{Name: "r2", HTTP: fakeRouter(t, 4)},
				{Name: "gone", HTTP: "127.0.0.1:1"},
				{Name: "broken", HTTP: strings.TrimPrefix(broken.URL, "http://")},
				{Name: "silent"},
			}, nil
		},
	}
	own := NewRegistry("router", "v1")
	own.MustRegister(NewControllerCollector(func() control.Stats { return control.Stats{} }))
	want := `
# HELP pgshoal_controller_leader 1 on the controller that leads.
# TYPE pgshoal_controller_leader gauge
pgshoal_controller_leader 0
# HELP pgshoal_router_clients Client connections.
# TYPE pgshoal_router_clients gauge
pgshoal_router_clients{router="r1"} 3
pgshoal_router_clients{router="r2"} 4
# HELP pgshoal_router_up Whether the router answered the controller's question for its metrics.
# TYPE pgshoal_router_up gauge
pgshoal_router_up{router="broken"} 0
pgshoal_router_up{router="gone"} 0
pgshoal_router_up{router="r1"} 1
pgshoal_router_up{router="r2"} 1
pgshoal_router_up{router="silent"} 0
`
	all := prometheus.Gatherers{own, federation}
	compare(t, all, want, "pgshoal_controller_leader", "pgshoal_router_clients", "pgshoal_router_up")
}

func TestFederationWithoutTopology(t *testing.T) {
	away := errors.New("away")
	federation := &Federation{Routers: func(context.Context) ([]topo.Member, error) { return nil, away }}
	own := NewRegistry("router", "v1")
	server := httptest.NewServer(MetricsHandler(prometheus.Gatherers{own, federation}))
	defer server.Close()
	body := get(t, server.URL)
	if !strings.Contains(body, "go_goroutines") {
		t.Errorf("the controller's own metrics are missing:\n%s", body)
	}
}

func TestServer(t *testing.T) {
	ready := errors.New("no map yet")
	l, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if ReachableAddress(l) != l.Addr().String() {
		t.Errorf("address %s", ReachableAddress(l))
	}
	if _, err := Listen(context.Background(), l.Addr().String()); err == nil {
		t.Error("the same port twice")
	}
	s := Serve(l, Handler(NewRegistry("router", "v1"), func(context.Context) error { return ready }), slog.New(slog.DiscardHandler))
	base := "http://" + l.Addr().String()
	if got := get(t, base+"/healthz"); got != "ok\n" {
		t.Errorf("healthz: %q", got)
	}
	if got := get(t, base+"/readyz"); got != "no map yet\n" {
		t.Errorf("readyz: %q", got)
	}
	ready = nil
	if got := get(t, base+"/readyz"); got != "ok\n" {
		t.Errorf("readyz: %q", got)
	}
	if got := get(t, base+"/metrics"); !strings.Contains(got, "process_start_time_seconds") {
		t.Errorf("metrics: %q", got)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestReachableAddressOfAllInterfaces(t *testing.T) {
	l, err := Listen(context.Background(), ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, _, err := net.SplitHostPort(ReachableAddress(l))
	if err != nil || slices.Contains([]string{"", "::", "0.0.0.0"}, host) {
		t.Errorf("%s: %v", ReachableAddress(l), err)
	}
}

func get(t *testing.T, url string) string {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
