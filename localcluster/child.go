package localcluster

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"
)

// child keeps one pgshoal process of the cluster running, on the same ports from life to life.
type child struct {
	failureCount
	title      string // names the log and the pid file
	executable string
	args       []string
	member     string // its name among the cluster's members, or empty
	lives      int
	layout     Layout
	log        *slog.Logger
	probe      func(context.Context) error
	patience   time.Duration // how long it may take to end in peace
}

func (c *child) name() string                    { return c.title }
func (c *child) logFile() string                 { return c.layout.LogFile(c.title) }
func (c *child) ready(ctx context.Context) error { return c.probe(ctx) }

func (c *child) run(ctx context.Context) {
	wait := backOff{first: 50 * time.Millisecond, most: 5 * time.Second}
	for ctx.Err() == nil {
		began := time.Now()
		c.live(ctx)
		if ctx.Err() != nil {
			return
		}
		c.add()
		delay := wait.after(time.Since(began))
		c.log.Warn("a process ended by itself", "process", c.title, "restart_in", delay)
		pause(ctx, delay)
	}
}

// live is one life of the process: found running after the supervisor died, or started.
func (c *child) live(ctx context.Context) {
	if p, ok := readPID(c.layout.pidFile(c.title)); ok {
		if runsExecutable(p.PID, c.executable) && c.matches(argumentsOf(p.PID)) {
			c.lives++
			c.log.Info("took over a running process", "process", c.title, "pid", p.PID)
			c.watch(ctx, p, nil)
			return
		}
		c.stop(p) // an older build, or on another port
	}
	out, err := openLog(c.logFile())
	if err != nil {
		c.log.Error("cannot open a log", "process", c.title, "error", err)
		return
	}
	defer func() { _ = out.Close() }()
	c.lives++
	cmd := exec.Command(c.executable, c.arguments()...)
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		c.log.Error("cannot start a process", "process", c.title, "error", err)
		return
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	p, ok := findProcess(cmd.Process.Pid)
	if !ok {
		<-exited
		return
	}
	if err := writePID(c.layout.pidFile(c.title), p); err != nil {
		c.log.Error("cannot write a pid file", "process", c.title, "error", err)
	}
	c.watch(ctx, p, exited)
}

// arguments are those of the present life. A member gets a new name in each life, because the old
// one belongs to the dead until its lease has run out.
func (c *child) arguments() []string {
	switch {
	case c.member == "":
		return c.args
	case c.lives == 1:
		return append(slices.Clone(c.args), "--name", c.member)
	default:
		return append(slices.Clone(c.args), "--name", fmt.Sprintf("%s-%d", c.member, c.lives))
	}
}

// matches tells whether a process that was found does what this one shall do.
func (c *child) matches(args []string) bool {
	return len(args) == len(c.arguments()) && slices.Equal(args[:len(c.args)], c.args)
}

func (c *child) watch(ctx context.Context, p process, exited <-chan error) {
	if exited == nil {
		if p.gone(ctx) == nil {
			return
		}
	} else {
		select {
		case <-exited:
			return
		case <-ctx.Done():
		}
	}
	c.stop(p)
	if exited != nil {
		<-exited
	}
	_ = os.Remove(c.layout.pidFile(c.title)) // a stale one harms nobody: it also names the start time
}

func (c *child) stop(p process) {
	if err := stopMember(p, c.patience); err != nil {
		c.log.Error("cannot stop a process", "process", c.title, "error", err)
	}
}

// stopMember ends a pgshoal process: in peace within the patience, else at once.
func stopMember(p process, patience time.Duration) error {
	return p.stop(stopStep{syscall.SIGTERM, patience}, stopStep{syscall.SIGKILL, 5 * time.Second})
}
