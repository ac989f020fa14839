package localcluster

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

func TestProcessIsMoreThanItsPID(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	p, ok := findProcess(cmd.Process.Pid)
	if !ok || !p.alive() {
		t.Fatal("a process that runs was not found")
	}
	path := filepath.Join(t.TempDir(), "x.pid")
	stranger := process{PID: p.PID, Start: p.Start + 1}
	if err := writePID(path, stranger); err != nil {
		t.Fatal(err)
	}
	if _, ok := readPID(path); ok {
		t.Error("a later process with the same pid was taken for the first")
	}
	if err := stranger.signal(syscall.SIGKILL); err != os.ErrProcessDone {
		t.Errorf("signal to a stranger: %v", err)
	}
	if err := stranger.stop(stopStep{syscall.SIGKILL, time.Second}); err != nil {
		t.Errorf("stop of a stranger: %v", err)
	}
	if !p.alive() {
		t.Fatal("the stranger was hit")
	}
	if err := writePID(path, p); err != nil {
		t.Fatal(err)
	}
	if found, ok := readPID(path); !ok || found != p {
		t.Errorf("pid file: %v, %v", found, ok)
	}
	if err := p.stop(stopStep{syscall.SIGTERM, 10 * time.Second}); err != nil {
		t.Error(err)
	}
	<-exited
	if p.alive() {
		t.Error("a process that ended is alive")
	}
}

func TestStopGetsFirmer(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", `trap '' TERM; echo ready; while :; do sleep 0.1; done`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	p, ok := findProcess(cmd.Process.Pid)
	if !ok {
		t.Fatal("not found")
	}
	if err := p.stop(stopStep{syscall.SIGTERM, 100 * time.Millisecond}, stopStep{syscall.SIGKILL, 10 * time.Second}); err != nil {
		t.Error(err)
	}
	<-exited
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.gone(ctx); err != nil {
		t.Errorf("gone after the end: %v", err)
	}
}

func TestParseMemberArgs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		args         []string
		command, dir string
		ok           bool
	}{
		{[]string{"/usr/bin/pgshoal", "router", "--dir", "/d", "--port", "1"}, "router", "/d", true},
		{[]string{"pgshoal", "controller", "--dir=/d"}, "controller", "/d", true},
		{[]string{"pgshoal", "etcd"}, "etcd", "", true},
		{[]string{"pgshoal", "up", "--detach", "--dir", "x"}, "up", "x", true},
		{[]string{"pgshoal", "router", "--dir"}, "router", "", true},
		{[]string{"pgshoal", "router", "--config", "f"}, "", "", false},
		{[]string{"pgshoal", "status", "--dir", "/d"}, "", "", false},
		{[]string{"vim", "router", "--dir", "/d"}, "", "", false},
		{[]string{"pgshoal"}, "", "", false},
		{nil, "", "", false},
	} {
		command, dir, ok := parseMemberArgs(test.args)
		if command != test.command || dir != test.dir || ok != test.ok {
			t.Errorf("%q: %q, %q, %v", test.args, command, dir, ok)
		}
	}
}

func TestParsePostmaster(t *testing.T) {
	t.Parallel()
	pid, status, err := parsePostmaster("123\n/data\n1700000000\n5432\n/tmp\n127.0.0.1\n  5 6\nready   \n")
	if pid != 123 || status != "ready" || err != nil {
		t.Errorf("%d, %q, %v", pid, status, err)
	}
	if _, status, err := parsePostmaster("123\n/data\n"); status != "" || err != nil {
		t.Errorf("young file: %q, %v", status, err)
	}
	for _, text := range []string{"", "x\n", "-5\n", "0\n"} {
		if _, _, err := parsePostmaster(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestChildArguments(t *testing.T) {
	t.Parallel()
	c := &child{args: []string{"router", "--dir", "/d"}, member: "router1", lives: 1}
	first := c.arguments()
	c.lives++
	second := c.arguments()
	if slices.Equal(first, second) {
		t.Errorf("two lives have one name: %q", first)
	}
	if !c.matches(first) || !c.matches(second) || c.matches(c.args) || c.matches([]string{"router", "--dir", "/e", "--name", "router1"}) {
		t.Error("a process of the cluster is not told from others")
	}
	etcd := &child{args: []string{"etcd", "--dir", "/d"}, lives: 2}
	if !slices.Equal(etcd.arguments(), etcd.args) || !etcd.matches(etcd.args) || etcd.matches(nil) {
		t.Errorf("etcd: %q", etcd.arguments())
	}
}

func TestWritingFollowsNoLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim, path := filepath.Join(dir, "victim"), filepath.Join(dir, "pgshoal.conf")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{path, path + ".new"} {
		if err := os.Symlink(victim, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := replaceFile(path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(victim)
	if err != nil || string(kept) != "precious" {
		t.Errorf("the victim holds %q, %v", kept, err)
	}
	written, err := os.ReadFile(path)
	if err != nil || string(written) != "text" {
		t.Errorf("the file holds %q, %v", written, err)
	}
}
