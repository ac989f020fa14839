package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/pgshoal/pgshoal/localcluster"
)

// TestClusterScripts tells whole lives of local clusters. Each script keeps its cluster in $WORK/c,
// and may use a few commands more:
//
//	crash PART    kill -9 of a part: a node's name, router, controller, etcd or supervisor
//	await HEALTH  wait until status says so; with a number, until there are as many routers and controllers
//	query SQL     run SQL through a router; its result becomes stdout
//	repeat N SQL  run SQL N times in one session, with a number from 1 to 30 in it
func TestClusterScripts(t *testing.T) {
	if testing.Short() {
		t.Skip("starts clusters")
	}
	testscript.Run(t, testscript.Params{
		Dir: "testdata/cluster",
		Setup: func(env *testscript.Env) error {
			dir := filepath.Join(env.WorkDir, "c")
			env.Defer(func() {
				err := localcluster.Down(context.Background(), dir)
				if err != nil && !errors.Is(err, localcluster.ErrNotRunning) && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("down: %v", err)
				}
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"crash": crashPart, "await": awaitHealth, "query": queryRouter, "repeat": repeatQuery,
		},
	})
}

func clusterStatus(ts *testscript.TestScript) *localcluster.Status {
	s, err := localcluster.ReadStatus(context.Background(), ts.MkAbs("c"))
	ts.Check(err)
	return s
}

func crashPart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: crash PART")
	}
	s := clusterStatus(ts)
	pids := map[string]int{"supervisor": s.Supervisor, "etcd": s.Etcd.PID}
	for _, r := range s.Routers {
		pids["router"] = r.PID
	}
	for _, c := range s.Controllers {
		pids["controller"] = c.PID
	}
	for _, n := range s.Nodes {
		pids[n.Name] = n.PID
	}
	pid := pids[args[0]]
	if pid <= 1 {
		ts.Fatalf("%s does not run: %+v", args[0], s)
	}
	ts.Check(syscall.Kill(pid, syscall.SIGKILL))
	poll(ts, args[0]+" is dead", func() bool { return syscall.Kill(pid, 0) != nil })
}

func awaitHealth(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: await HEALTH [NUMBER]")
	}
	var last *localcluster.Status
	defer func() { ts.Logf("%+v", last) }()
	poll(ts, "the cluster is "+args[0], func() bool {
		last = clusterStatus(ts)
		if len(args) == 2 && (strconv.Itoa(len(last.Routers)) != args[1] || strconv.Itoa(len(last.Controllers)) != args[1]) {
			return false
		}
		return string(last.Health) == args[0]
	})
}

func poll(ts *testscript.TestScript, what string, holds func() bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			ts.Fatalf("not so in time: %s", what)
		case <-tick.C:
		}
	}
}

func queryRouter(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: query SQL")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn := connectRouter(ctx, ts)
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, args[0], pgx.QueryExecModeSimpleProtocol)
	ts.Check(err)
	lines, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
		values, err := row.Values()
		return strings.Trim(fmt.Sprint(values...), "[]"), err
	})
	ts.Check(err)
	_, err = fmt.Fprintln(ts.Stdout(), strings.Join(lines, "\n"))
	ts.Check(err)
}

func connectRouter(ctx context.Context, ts *testscript.TestScript) *pgx.Conn {
	routers := clusterStatus(ts).Routers
	if len(routers) == 0 {
		ts.Fatalf("no router runs")
	}
	conn, err := pgx.Connect(ctx, routers[0].DSN)
	ts.Check(err)
	return conn
}

func repeatQuery(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: repeat N SQL")
	}
	n, err := strconv.Atoi(args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	conn := connectRouter(ctx, ts)
	defer func() { _ = conn.Close(ctx) }()
	for i := range n {
		_, err := conn.Exec(ctx, fmt.Sprintf(args[1], i%30+1), pgx.QueryExecModeSimpleProtocol)
		ts.Check(err)
	}
}
