package main

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pgshoal/pgshoal/control"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/topo/etcdtopo"
)

// TestProductionScripts runs controllers and routers with a configuration file, against an etcd and
// PostgreSQL servers that are there already: $ETCD, $NODE1, $NODE2, $NODE3 (DSNs), and $HTTP,
// $HTTP2, $ROUTERHTTP (free addresses). Two commands more:
//
//	await URL REGEXP           wait until the answer of a GET matches
//	signal SIGNAL MEMBER HTTP  send HUP, TERM or KILL to a member that the admin API knows
func TestProductionScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/production",
		Setup: func(env *testscript.Env) error {
			etcd, err := etcdtopo.StartServer(context.Background(), etcdtopo.ServerConfig{
				Dir: filepath.Join(t.TempDir(), "etcd"), ClientListen: "127.0.0.1:0", Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				return err
			}
			env.Defer(etcd.Close)
			env.Setenv("ETCD", etcd.Endpoint())
			for _, name := range []string{"NODE1", "NODE2", "NODE3"} {
				env.Setenv(name, shardtest.StartPostgres(t).DSN("", ""))
			}
			for _, name := range []string{"HTTP", "HTTP2", "ROUTERHTTP"} {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					return err
				}
				env.Setenv(name, l.Addr().String())
				if err := l.Close(); err != nil {
					return err
				}
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"await": awaitURL, "signal": signalMember},
	})
}

func awaitURL(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: await URL REGEXP")
	}
	want, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	var last string
	defer func() { ts.Logf("%s", strings.TrimSpace(last)) }()
	poll(ts, args[0]+" says "+args[1], func() bool {
		resp, err := http.Get(args[0])
		if err != nil {
			last = err.Error()
			return false
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		last = string(body)
		return err == nil && want.Match(body)
	})
}

func signalMember(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{"HUP": syscall.SIGHUP, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL}
	if neg || len(args) != 3 || signals[args[0]] == 0 {
		ts.Fatalf("usage: signal HUP|TERM|KILL MEMBER HTTP")
	}
	var status control.Status
	client := &apiClient{address: args[2]}
	_, err := client.call(context.Background(), http.MethodGet, "/api/v1/status", nil, nil, &status)
	ts.Check(err)
	for _, m := range append(status.Routers, status.Controllers...) {
		if m.Name == args[1] && m.PID > 1 {
			ts.Check(syscall.Kill(m.PID, signals[args[0]]))
			return
		}
	}
	ts.Fatalf("there is no member %s: %+v", args[1], status)
}
