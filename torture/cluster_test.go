package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// processes are the parts of a cluster on this machine, as its supervisor started them.
type processes struct {
	t      *testing.T
	binary string
	dir    string
}

type part struct {
	Name string
	PID  int
	DSN  string
}

type status struct {
	Health                      string
	Nodes, Routers, Controllers []part
}

// startCluster builds the program and starts three nodes, a router and a controller.
func startCluster(t *testing.T) *processes {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgshoal-torture")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the servers run as another user when this one is root
		t.Fatal(err)
	}
	c := &processes{t: t, binary: filepath.Join(dir, "pgshoal"), dir: filepath.Join(dir, "cluster")}
	c.command("go", "build", "-buildvcs=false", "-o", c.binary, "../cmd/pgshoal")
	t.Cleanup(func() { _ = exec.Command(c.binary, "down", "--dir", c.dir).Run() })
	c.command(c.binary, "up", "--dir", c.dir, "--nodes", "3", "--port", "0", "--http", "127.0.0.1:0", "--detach", "--unsafe-fast")
	return c
}

func (c *processes) command(name string, args ...string) []byte {
	c.t.Helper()
	var stderr bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("%s %v: %v\n%s%s", name, args, err, out, stderr.Bytes())
	}
	return out
}

func (c *processes) status() status {
	c.t.Helper()
	var s status
	out, err := exec.Command(c.binary, "status", "--dir", c.dir, "--json").Output()
	if len(out) == 0 {
		c.t.Fatalf("status: %v", err)
	}
	if err := json.Unmarshal(out, &s); err != nil {
		c.t.Fatal(err)
	}
	return s
}

// awaitHealthy waits until the supervisor has started everything again.
func (c *processes) awaitHealthy() status {
	c.t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for {
		s := c.status()
		if s.Health == "healthy" {
			return s
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the cluster does not recover: %s", c.command(c.binary, "status", "--dir", c.dir))
		}
	}
}

// faults hurts parts at random until the context ends, and returns what it did.
func (c *processes) faults(ctx context.Context, random *rand.Rand) map[string]int {
	done := map[string]int{}
	for pause(ctx, time.Duration(200+random.IntN(1500))*time.Millisecond) {
		s := c.status()
		kind := []string{"kill router", "stop router", "crash node", "crash node", "kill controller", "stop controller"}[random.IntN(6)]
		how, what, _ := strings.Cut(kind, " ")
		list := map[string][]part{"router": s.Routers, "node": s.Nodes, "controller": s.Controllers}[what]
		if len(list) == 0 {
			continue
		}
		pid := list[random.IntN(len(list))].PID
		if pid <= 1 {
			continue // it is just being started again
		}
		done[kind]++
		switch how {
		case "kill", "crash": // after an immediate shutdown the supervisor would leave a server down, as people did it
			_ = syscall.Kill(pid, syscall.SIGKILL)
		case "stop":
			// Sometimes for longer than recovery waits, so that it decides meanwhile.
			_ = syscall.Kill(pid, syscall.SIGSTOP)
			pause(ctx, time.Duration(100+random.IntN(7000))*time.Millisecond)
			_ = syscall.Kill(pid, syscall.SIGCONT)
		}
	}
	return done
}

// pause waits and reports whether there is time left.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (o *outcomes) String() string {
	return fmt.Sprintf("tried %d, committed %d, failed %d, in doubt at the client %d, deadlocks broken %d",
		len(o.list), o.count(committed), o.count(failed), o.count(unknown), o.deadlocks)
}
