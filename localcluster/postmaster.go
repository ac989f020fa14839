package localcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// postmaster is a running PostgreSQL server, found through the file it keeps in its data directory.
type postmaster struct {
	process
	Status string // starting, stopping, ready, standby
}

func (p postmaster) ready() bool { return p.Status == "ready" || p.Status == "standby" }

// parsePostmaster reads postmaster.pid: the pid is line 1, the status line 8.
func parsePostmaster(text string) (pid int, status string, err error) {
	lines := strings.Split(text, "\n")
	pid, err = strconv.Atoi(strings.TrimSpace(lines[0]))
	if err != nil || pid <= 0 {
		return 0, "", errors.New("postmaster.pid names no process")
	}
	if len(lines) >= 8 {
		status = strings.TrimSpace(lines[7])
	}
	return pid, status, nil
}

// findPostmaster returns the server that runs on a data directory, whoever started it. A server
// works inside its data directory, as its owner: that tells it from a stranger who got its pid.
func findPostmaster(dataDir string) (postmaster, bool) {
	text, err := os.ReadFile(filepath.Join(dataDir, "postmaster.pid"))
	if err != nil {
		return postmaster{}, false
	}
	pid, status, err := parsePostmaster(string(text))
	if err != nil {
		return postmaster{}, false
	}
	p, ok := findProcess(pid)
	if !ok {
		return postmaster{}, false
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil || cwd != dataDir {
		return postmaster{}, false
	}
	owner, err := ownerOf(dataDir)
	if err != nil {
		return postmaster{}, false
	}
	user, err := ownerOf(fmt.Sprintf("/proc/%d", pid))
	if err != nil || user != owner || !p.alive() {
		return postmaster{}, false
	}
	return postmaster{process: p, Status: status}, true
}

// leftPidFile tells a crash from a shutdown: a server that shuts down removes its file.
func leftPidFile(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, "postmaster.pid"))
	return !errors.Is(err, fs.ErrNotExist)
}

const (
	fastShutdown      = syscall.SIGINT
	immediateShutdown = syscall.SIGQUIT
)

// stopServer shuts a server down: open transactions are rolled back, nothing committed is lost.
func stopServer(p process) error {
	return p.stop(
		stopStep{fastShutdown, 60 * time.Second},
		stopStep{immediateShutdown, 10 * time.Second},
		stopStep{syscall.SIGKILL, 5 * time.Second},
	)
}

// isStandby tells whether a server is, or will start as, a replica.
func isStandby(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, "standby.signal"))
	return err == nil
}

// isPromoting tells whether a replica was asked to become the primary and has not finished yet.
func isPromoting(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, "promote"))
	return err == nil
}

// timeline is the number of the history a server's data belongs to; each promotion begins a new one.
func timeline(dataDir string) uint64 {
	newest := uint64(1)
	entries, err := os.ReadDir(filepath.Join(dataDir, "pg_wal"))
	if err != nil {
		return newest
	}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".history")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(name, 16, 32); err == nil {
			newest = max(newest, n)
		}
	}
	return newest
}

// replacedBy names the server of the same node that was promoted in this one's place, or nothing.
// A node must never have two primaries, so a replaced server is not started.
func replacedBy(l Layout, node Node, server Server) string {
	own := l.dataDir(server)
	if isStandby(own) {
		return ""
	}
	for _, other := range node.Servers {
		dir := l.dataDir(other)
		if other.Name == server.Name {
			continue
		}
		if isStandby(dir) {
			if isPromoting(dir) {
				return other.Name
			}
			continue
		}
		if timeline(dir) > timeline(own) {
			return other.Name
		}
	}
	return ""
}

// primaryOf is the server of a node that its clients write to, as far as its files tell.
func primaryOf(l Layout, node Node) Server {
	for _, s := range node.Servers {
		if !isStandby(l.dataDir(s)) && replacedBy(l, node, s) == "" {
			return s
		}
	}
	return node.Servers[0]
}
