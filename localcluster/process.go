package localcluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process names one life of a process: a pid alone is given to others later.
type process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since the machine started
}

// findProcess returns the process that has a pid now; ok is false when there is none, or only its
// remains that nobody has waited for.
func findProcess(pid int) (p process, ok bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, false
	}
	// The name in parentheses may hold anything, so count from its end.
	_, after, found := bytes.Cut(text[max(0, bytes.LastIndexByte(text, ')')):], []byte(") "))
	fields := bytes.Fields(after)
	if !found || len(fields) < 20 || string(fields[0]) == "Z" || string(fields[0]) == "X" {
		return process{}, false
	}
	start, err := strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return process{}, false
	}
	return process{PID: pid, Start: start}, true
}

func (p process) alive() bool {
	now, ok := findProcess(p.PID)
	return ok && now == p
}

// signal reaches this process or nobody: the handle is taken before the identity is checked.
func (p process) signal(sig os.Signal) error {
	handle, err := os.FindProcess(p.PID)
	if err != nil {
		return err
	}
	defer func() { _ = handle.Release() }()
	if !p.alive() {
		return os.ErrProcessDone
	}
	return handle.Signal(sig)
}

const processPoll = 50 * time.Millisecond

// gone waits until the process has ended. It works for processes that are not children of this one.
func (p process) gone(ctx context.Context) error {
	tick := time.NewTicker(processPoll)
	defer tick.Stop()
	for p.alive() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}

// stopStep is one way of asking a process to end, and how long to wait for the answer.
type stopStep struct {
	signal syscall.Signal
	wait   time.Duration
}

// stop asks the process to end, ever more firmly. It does not heed a context: a cluster is stopped
// for good, and the steps bound the time.
func (p process) stop(steps ...stopStep) error {
	for _, step := range steps {
		if err := p.signal(step.signal); err != nil {
			if errors.Is(err, os.ErrProcessDone) {
				return nil
			}
			return fmt.Errorf("stop process %d: %w", p.PID, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), step.wait)
		err := p.gone(ctx)
		cancel()
		if err == nil {
			return nil
		}
	}
	return fmt.Errorf("process %d does not end", p.PID)
}

func writePID(path string, p process) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	return replaceFile(path, append(text, '\n'), 0o644)
}

// readPID returns the process a pid file names if it is still that process.
func readPID(path string) (process, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return process{}, false
	}
	var p process
	if err := json.Unmarshal(text, &p); err != nil {
		return process{}, false
	}
	return p, p.alive()
}

// member is a running pgshoal process that works for the cluster in some directory.
type member struct {
	process
	Command string // up, etcd, controller, router
}

// members finds the pgshoal processes of a cluster by their command lines, also those that people
// started themselves. The calling process is left out.
func members(l Layout) []member {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var found []member
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		p, ok := findProcess(pid)
		if !ok {
			continue
		}
		if command, ok := memberCommand(pid, l.Dir); ok && p.alive() {
			found = append(found, member{process: p, Command: command})
		}
	}
	return found
}

func memberCommand(pid int, dir string) (string, bool) {
	command, named, ok := parseMemberArgs(commandLine(pid))
	if !ok {
		return "", false
	}
	var err error
	if named == "" {
		if named, err = DefaultDir(); err != nil {
			return "", false
		}
	}
	if !filepath.IsAbs(named) {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err != nil {
			return "", false
		}
		named = filepath.Join(cwd, named)
	}
	l, err := NewLayout(named)
	return command, err == nil && l.Dir == dir
}

func commandLine(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// argumentsOf is the command line of a process without the program's name.
func argumentsOf(pid int) []string {
	args := commandLine(pid)
	return args[min(1, len(args)):]
}

// parseMemberArgs reads the command and its --dir from a pgshoal command line. Commands that work
// from a configuration file belong to no local cluster.
func parseMemberArgs(args []string) (command, dir string, ok bool) {
	if len(args) < 2 || filepath.Base(args[0]) != "pgshoal" && args[0] != os.Args[0] {
		return "", "", false
	}
	command = args[1]
	if !slices.Contains([]string{"up", "etcd", "controller", "router"}, command) {
		return "", "", false
	}
	for i, arg := range args[2:] {
		switch {
		case strings.HasPrefix(arg, "--config"):
			return "", "", false
		case strings.HasPrefix(arg, "--dir="):
			dir = strings.TrimPrefix(arg, "--dir=")
		case arg == "--dir" && i+3 < len(args):
			dir = args[i+3]
		}
	}
	return command, dir, true
}

// runsExecutable tells whether a process runs this very program file, and not an older build of it.
func runsExecutable(pid int, path string) bool {
	theirs, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	if err != nil {
		return false
	}
	ours, err := os.Stat(path)
	return err == nil && os.SameFile(theirs, ours)
}
