package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestStateRoundTrip(t *testing.T) {
	t.Parallel()
	l := Layout{Dir: t.TempDir()}
	s := newState(3, 2)
	if s.serverCount() != 9 || s.replicas() != 2 || s.Nodes[2].Servers[1].Name != "node3-replica1" {
		t.Errorf("new state: %+v", s)
	}
	if err := s.save(l); err != nil {
		t.Fatal(err)
	}
	loaded, err := LoadState(l)
	if err != nil || !reflect.DeepEqual(s, loaded) {
		t.Errorf("saved %+v, loaded %+v, %v", s, loaded, err)
	}
}

func TestInspectRefusesWhatIsNotOurs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name  string
		files map[string]string
		want  string // in the sentence; empty for a directory that can be used
		kind  directoryKind
	}{
		{name: "empty", kind: directoryEmpty},
		{name: "just begun", files: map[string]string{"run/up.lock": ""}, kind: directoryEmpty},
		{name: "somebody's run", files: map[string]string{"run/x": ""}, want: "not empty"},
		{name: "somebody's files", files: map[string]string{"thesis.txt": "x"}, want: "not empty"},
		{name: "a PostgreSQL server", files: map[string]string{"PG_VERSION": "15"}, want: "data directory of a PostgreSQL server"},
		{name: "another cluster.json", files: map[string]string{"cluster.json": `{"product":"other"}`}, want: "not written by pgshoal"},
		{name: "no JSON", files: map[string]string{"cluster.json": `hello`}, want: "not written by pgshoal"},
		{
			name:  "from the future",
			files: map[string]string{"cluster.json": `{"product":"pgshoal local cluster","format":99}`}, want: "format 99",
		},
		{
			name:  "damaged",
			files: map[string]string{"cluster.json": `{"product":"pgshoal local cluster","format":1}`}, want: "damaged",
		},
		{
			name:  "cut off",
			files: map[string]string{"cluster.json": `{"product":"pgshoal local cluster","format":1,"nodes":[{"name":"n","servers":[{"name":"n"}]}]}`},
			kind:  directoryIncomplete,
		},
	} {
		l := Layout{Dir: t.TempDir()}
		for name, text := range test.files {
			path := filepath.Join(l.Dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		kind, _, err := inspect(l)
		if test.want == "" {
			if err != nil || kind != test.kind {
				t.Errorf("%s: %v, %v", test.name, kind, err)
			}
			continue
		}
		var problem *Problem
		if !errors.As(err, &problem) || !strings.Contains(problem.Sentence, test.want) || problem.Way == "" {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestLayoutFollowsLinks(t *testing.T) {
	t.Parallel()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		link:                            "real",
		filepath.Join(link, "new", "d"): filepath.Join("real", "new", "d"),
		filepath.Join(dir, "other"):     "other",
	} {
		l, err := NewLayout(path)
		if err != nil || l.Dir != filepath.Join(dir, want) {
			t.Errorf("%s: %s, %v", path, l.Dir, err)
		}
	}
}

func TestPrograms(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n": 15,
		"postgres (PostgreSQL) 17beta1":                          17,
		"postgres (PostgreSQL) 9.6.24":                           9,
		"psql 15":                                                0,
	} {
		if _, major, _ := parseVersion(text); major != want {
			t.Errorf("%q: %d", text, major)
		}
	}
	old, mid, young := programs{dir: "/a", version: "14.1", major: 14}, programs{dir: "/b", major: 15}, programs{dir: "/c", major: 17}
	for _, test := range []struct {
		found []programs
		major int
		want  string // the directory, or part of the sentence
	}{
		{[]programs{mid, young, old}, 0, "/c"},
		{[]programs{mid, young}, 15, "/b"},
		{[]programs{young}, 15, "created with PostgreSQL 15"},
		{[]programs{old}, 0, "14.1 in /a is too old"},
		{nil, 0, "no PostgreSQL server was found"},
	} {
		p, err := choosePrograms(test.found, test.major)
		if err == nil && p.dir != test.want || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v for %d: %v, %v", test.found, test.major, p, err)
		}
	}
}

func TestNamedProgramsMustBeThere(t *testing.T) {
	t.Parallel()
	var problem *Problem
	if _, err := findPrograms(context.Background(), t.TempDir(), 0); !errors.As(err, &problem) || !strings.Contains(problem.Way, "--pg-bin") {
		t.Errorf("an empty --pg-bin: %v", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"postgres": "#!/bin/sh\necho 'postgres (PostgreSQL) 13.2'\n", "initdb": "#!/bin/sh\n", "pg_basebackup": "#!/bin/sh\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := findPrograms(context.Background(), dir, 0); !errors.As(err, &problem) || !strings.Contains(problem.Sentence, "13.2") {
		t.Errorf("an old one: %v", err)
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	p := newPorts()
	seen := map[int]bool{}
	for range 20 {
		port, err := p.free()
		if err != nil || seen[port] {
			t.Fatalf("port %d, %v", port, err)
		}
		seen[port] = true
	}
	port, err := p.free()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.demand("127.0.0.1", port, "--port"); err == nil {
		t.Error("one port was given twice")
	}
	listener := listen(t, port)
	defer func() { _ = listener.Close() }()
	var problem *Problem
	err = newPorts().demand("127.0.0.1", port, "--port")
	if !errors.As(err, &problem) || !strings.Contains(problem.Sentence, fmt.Sprint(port)) || !strings.Contains(problem.Way, "--port") {
		t.Errorf("a taken port: %v", err)
	}
	if kept, err := newPorts().keep(port); err != nil || kept == port {
		t.Errorf("a port somebody else has was kept: %d, %v", kept, err)
	}
	for outgoing, want := range map[string][2]int{
		"32768\t60999\n": {20768, 32768}, "1024 65535": {10000, 65536}, "1024 60000": {60001, 65536}, "?": {20000, 32000},
	} {
		if low, high := portRange(outgoing); low != want[0] || high != want[1] {
			t.Errorf("%q: %d, %d", outgoing, low, high)
		}
	}
}

func TestSplitHTTP(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1 80", ":8432": "127.0.0.1 8432", "0.0.0.0:0": "0.0.0.0 0", "[::1]:1": "::1 1",
		"127.0.0.1": "error", "x:y": "error", "x:70000": "error", "": "error",
	} {
		host, port, err := splitHTTP(address)
		got := fmt.Sprint(host, " ", port)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %s, want %s", address, got, want)
		}
	}
}

func TestCheckSpace(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := checkSpace(dir, 1); err != nil {
		t.Error(err)
	}
	var problem *Problem
	if err := checkSpace(dir, 1<<62); !errors.As(err, &problem) || !strings.Contains(problem.Sentence, "full") {
		t.Errorf("no room: %v", err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	good := Options{Nodes: Unset, Replicas: Unset, Port: Unset}
	if err := good.validate(); err != nil {
		t.Error(err)
	}
	for _, o := range []Options{
		{Nodes: 0, Replicas: Unset, Port: Unset},
		{Nodes: 1, Replicas: -2, Port: 0},
		{Nodes: 1, Port: 70000},
		{Nodes: 1, HTTP: "nonsense"},
	} {
		if o.validate() == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
}

func TestShapeOfACreatedClusterIsFixed(t *testing.T) {
	t.Parallel()
	s := newState(3, 1)
	for _, o := range []Options{
		{Nodes: 2, Replicas: Unset}, {Nodes: Unset, Replicas: 0}, {Nodes: 3, Replicas: 1, UnsafeFast: true},
	} {
		c := &cluster{opts: o}
		var problem *Problem
		if err := c.checkShape(s); !errors.As(err, &problem) || problem.Way == "" {
			t.Errorf("%+v: %v", o, err)
		}
	}
	if err := (&cluster{opts: Options{Nodes: 3, Replicas: 1}}).checkShape(s); err != nil {
		t.Error(err)
	}
}
