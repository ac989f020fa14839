package localcluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// report is one line that a detached supervisor writes to the `up --detach` that started it.
type report struct {
	Say   string   `json:"say,omitempty"`
	Ready *Summary `json:"ready,omitempty"`
	Fail  string   `json:"fail,omitempty"`
	Hint  string   `json:"hint,omitempty"`
	// Running says that the failure is another supervisor.
	Running bool `json:"running,omitempty"`
}

// reportFD is the file that a detached supervisor finds open: the first after the standard ones.
const reportFD = 3

// Detach starts the supervisor as a process of its own and returns when the cluster is ready, or
// when nothing of it runs any more. args are those of the supervisor's command,
// with absolute paths; it calls Detached.
func Detach(ctx context.Context, opts Options, args []string) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	cmd := exec.Command(opts.Executable, args...)
	cmd.Dir = "/" // it lives long and should hold no file system in use
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return fmt.Errorf("start the supervisor: %w", err)
	}
	// An interrupt here is an interrupt of the start: the supervisor undoes what it did.
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	err = follow(r, opts)
	if err != nil {
		_ = cmd.Wait() // how it ended was said
	}
	return err
}

// follow hands on what the supervisor says until it is ready or gone.
func follow(r io.Reader, opts Options) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		var line report
		if err := json.Unmarshal(scanner.Bytes(), &line); err != nil {
			return fmt.Errorf("the supervisor said something strange: %w", err)
		}
		switch {
		case line.Ready != nil:
			opts.Ready(*line.Ready)
			return nil
		case line.Running:
			return &RunningError{Dir: opts.Dir}
		case line.Fail != "":
			return &Problem{Sentence: line.Fail, Way: line.Hint}
		default:
			opts.Say(line.Say)
		}
	}
	return &Problem{
		Sentence: "the supervisor ended before the cluster was ready",
		Way:      "start it with pgshoal up in the foreground to see why",
		Cause:    scanner.Err(),
	}
}

// Detached is Up for the process that Detach started: it reports to its parent, and its own output
// goes to a log.
func Detached(ctx context.Context, opts Options) error {
	pipe := os.NewFile(reportFD, "report")
	if _, err := pipe.Stat(); err != nil {
		return errors.New("nobody waits for this supervisor")
	}
	syscall.CloseOnExec(reportFD)
	// The parent may be gone; the cluster starts all the same.
	send := func(line report) { _ = json.NewEncoder(pipe).Encode(line) }
	opts.Say = func(line string) { send(report{Say: line}) }
	opts.Ready = func(s Summary) {
		send(report{Ready: &s})
		_ = pipe.Close()
	}
	opts.hasDir = func(l Layout) {
		if err := redirectOutput(l.LogFile(titleUp)); err != nil {
			opts.Log.Warn("no log", "error", err)
		}
	}
	err := Up(ctx, opts)
	if err != nil {
		line := report{Fail: err.Error()}
		if running := (*RunningError)(nil); errors.As(err, &running) {
			line.Running = true
		}
		var hinted interface{ Hint() string }
		if errors.As(err, &hinted) {
			line.Hint = hinted.Hint()
		}
		send(line)
	}
	return err
}

// redirectOutput makes the process write to a log from here on, stack traces included.
func redirectOutput(path string) error {
	f, err := openLog(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for fd := 1; fd <= 2; fd++ {
		if err := syscall.Dup3(int(f.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// AwaitReady waits for a cluster that another `up` is starting and tells what it is.
func AwaitReady(ctx context.Context, dir string) (Summary, error) {
	layout, err := NewLayout(dir)
	if err != nil {
		return Summary{}, err
	}
	tick := time.NewTicker(processPoll)
	defer tick.Stop()
	for {
		held, err := supervised(layout)
		if err != nil {
			return Summary{}, err
		}
		if !held {
			return Summary{}, &Problem{Sentence: "the other pgshoal up ended before its cluster was ready", Way: "run the command again"}
		}
		if _, err := os.Stat(layout.readyFile()); err == nil {
			return summarise(layout)
		}
		select {
		case <-ctx.Done():
			return Summary{}, context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// RouterDSN leads to the router of the cluster in a directory, as the superuser; "" is the default directory.
func RouterDSN(dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = DefaultDir(); err != nil {
			return "", err
		}
	}
	l, err := NewLayout(dir)
	if err != nil {
		return "", err
	}
	s, err := summarise(l)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("there is no cluster in %s", l.Dir)
	}
	return s.DSN, err
}

func summarise(l Layout) (Summary, error) {
	s, err := LoadState(l)
	if err != nil {
		return Summary{}, err
	}
	password, err := readSecret(l.superuserFile())
	if err != nil {
		return Summary{}, err
	}
	return Summary{
		Dir: l.Dir, DSN: routerDSN(s.RouterPort, password), HTTP: s.HTTP, TokenFile: l.TokenFile(),
		Nodes: len(s.Nodes), Replicas: s.replicas(), PostgreSQL: fmt.Sprint(s.PostgreSQL), UnsafeFast: s.UnsafeFast,
	}, nil
}
