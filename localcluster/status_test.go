package localcluster

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/telemetry"
	"github.com/pgshoal/pgshoal/topo"
)

func examinerFor(t *testing.T) *examiner {
	t.Helper()
	zero := int64(0)
	return &examiner{
		layout: Layout{Dir: t.TempDir()}, state: newState(1, 1), password: "pw", leader: "controller1",
		status: &Status{
			Dir: "/d", Supervisor: 1, HTTP: "127.0.0.1:8432", Etcd: EtcdStatus{Endpoint: "http://127.0.0.1:2379", State: stateRunning},
			Nodes: []NodeStatus{{
				ServerStatus: ServerStatus{Name: "node1", Role: statePrimary, State: stateRunning, PID: 10, Address: "127.0.0.1:1"},
				Replicas:     []ServerStatus{{Name: "node1-replica1", Role: stateReplica, State: "streaming", PID: 11, Address: "127.0.0.1:2", LagBytes: &zero}},
			}},
		},
		current: &keyspace.Map{Epoch: 7, Home: "node1", Nodes: []keyspace.Node{
			{Name: "node1", State: keyspace.NodeActive},
			{Name: "node9", ID: 9, State: keyspace.NodeJoining, Addresses: []string{"10.0.0.9:5432"}},
		}},
	}
}

func TestStatusJudgement(t *testing.T) {
	t.Parallel()
	self := topo.Member{Name: "router1", Role: topo.RoleRouter, PID: os.Getpid(), Address: "127.0.0.1:6432", AckedEpoch: 7}
	leader := topo.Member{Name: "controller1", Role: topo.RoleController, PID: os.Getpid(), HTTP: "127.0.0.1:8432"}
	dead := topo.Member{Name: "router2", Role: topo.RoleRouter, PID: 1 << 30, Address: "127.0.0.1:6433"}
	for _, test := range []struct {
		name    string
		change  func(*examiner)
		members []topo.Member
		want    string // the problem; empty when healthy
	}{
		{name: "all well", members: []topo.Member{self, leader}},
		{name: "a router died a moment ago", members: []topo.Member{self, dead, leader}},
		{name: "only a dead router", members: []topo.Member{dead, leader}, want: "no router is running"},
		{name: "no leader", members: []topo.Member{self}, want: "no controller leads"},
		{
			name: "server down", members: []topo.Member{self, leader}, want: "primary node1 is down",
			change: func(e *examiner) { e.status.Nodes[0].State = stateDown },
		},
		{
			name: "replica cut off", members: []topo.Member{self, leader}, want: "replica node1-replica1 is connecting",
			change: func(e *examiner) { e.status.Nodes[0].Replicas[0].State = "connecting" },
		},
		{
			name: "no etcd", members: []topo.Member{self, leader}, want: "topology store does not answer",
			change: func(e *examiner) { e.status.Etcd.State = stateDown },
		},
		{
			name: "stopped", want: "is not running",
			change: func(e *examiner) { e.status.Supervisor = 0 },
		},
	} {
		e := examinerFor(t)
		if test.change != nil {
			test.change(e)
		}
		for _, m := range test.members {
			e.addMember(m)
		}
		e.merge()
		e.judge()
		problems := strings.Join(e.status.Problems, "; ")
		if test.want == "" && e.status.Health != Healthy || !strings.Contains(problems, test.want) || test.want != "" && e.status.Health == Healthy {
			t.Errorf("%s: %s: %s", test.name, e.status.Health, problems)
		}
	}
}

func TestStatusAsksRoutersForTheirLoad(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(telemetry.NewRouterCollector(func() router.Stats {
		return router.Stats{Clients: 12, Pinned: 5, PinnedBy: map[string]int{"LISTEN": 2, "temporary table": 2}}
	}))
	tells := httptest.NewServer(telemetry.MetricsHandler(registry))
	defer tells.Close()
	silent := httptest.NewServer(http.NotFoundHandler())
	defer silent.Close()
	e := examinerFor(t)
	for name, server := range map[string]*httptest.Server{"router1": tells, "router2": silent, "router3": nil} {
		m := topo.Member{Name: name, Role: topo.RoleRouter, PID: os.Getpid(), DSN: "postgres://127.0.0.1:6432", AckedEpoch: 7}
		if server != nil {
			m.HTTP = strings.TrimPrefix(server.URL, "http://")
		}
		e.addMember(m)
	}
	e.loads(context.Background())
	var text strings.Builder
	if err := e.status.Print(&text); err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(os.Getpid())
	for _, want := range []string{
		"router1 running " + pid + " 7 12 5 postgres:", "router2 running " + pid + " 7 - - postgres:", "router3 running " + pid + " 7 - - postgres:",
	} {
		if !strings.Contains(strings.Join(strings.Fields(text.String()), " "), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
	raw, err := json.Marshal(e.status.Routers)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), `"clients":12,"pinned":5`) || !strings.Contains(string(raw), `"clients":null,"pinned":null`) {
		t.Errorf("JSON is %s", raw)
	}
}

func TestStatusForPeopleAndPrograms(t *testing.T) {
	t.Parallel()
	e := examinerFor(t)
	e.status.Epoch, e.status.Health = 7, Healthy
	e.addMember(topo.Member{Name: "router1", Role: topo.RoleRouter, PID: os.Getpid(), DSN: "postgres://127.0.0.1:6432", AckedEpoch: 7})
	e.addMember(topo.Member{Name: "controller1", Role: topo.RoleController, PID: os.Getpid()})
	e.merge()
	var text strings.Builder
	if err := e.status.Print(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"health   healthy\n", "epoch    7\n", "node1           primary, home  active     10   127.0.0.1:1    0       -\n",
		"node1-replica1  replica        streaming  11   127.0.0.1:2    -       0 bytes\n", "node9           primary        joining    -    10.0.0.9:5432",
		"postgres://postgres:pw@127.0.0.1:6432/postgres\n", "leader\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in\n%s", want, text.String())
		}
	}
	var decoded map[string]any
	raw, err := json.Marshal(e.status)
	if err == nil {
		err = json.Unmarshal(raw, &decoded)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"epoch", "health", "nodes", "routers", "controllers", "etcd", "http", "token_file"} {
		if _, ok := decoded[key]; !ok {
			t.Errorf("%q is missing in %s", key, raw)
		}
	}
	node := decoded["nodes"].([]any)[0].(map[string]any)
	for _, key := range []string{"name", "role", "state", "pid", "shards", "replicas"} {
		if _, ok := node[key]; !ok {
			t.Errorf("a node has no %q: %s", key, raw)
		}
	}
}
