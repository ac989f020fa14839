package localcluster

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"time"
)

// server keeps one PostgreSQL server running, but respects what people do to it: one that was shut
// down stays down, one that was started by pg_ctl is taken over, one that was replaced by a promoted
// replica is never started again.
type server struct {
	failureCount
	spec     Server
	node     Node
	layout   Layout
	account  account
	postgres string // the program
	log      *slog.Logger
}

// lastExit says how a server's last life ended.
type lastExit int

const (
	exitNone  lastExit = iota // it was not running yet
	exitClean                 // somebody shut it down
	exitCrash
)

// serverAction is what to do with a server now.
type serverAction int

const (
	actionWatch serverAction = iota
	actionStart
	actionLeaveStopped
	actionLeaveReplaced
	actionFence // it runs although it was replaced
)

// serverFacts is what decides about a server.
type serverFacts struct {
	Running  bool
	Replaced bool
	Crashed  bool // its pid file names a server that is gone
	Last     lastExit
}

func decideServer(f serverFacts) serverAction {
	switch {
	case f.Running && f.Replaced:
		return actionFence
	case f.Running:
		return actionWatch
	case f.Replaced:
		return actionLeaveReplaced
	case f.Last == exitClean && !f.Crashed:
		return actionLeaveStopped
	default:
		return actionStart
	}
}

// serverPoll is how soon a server that people started, or a promotion, is noticed.
const serverPoll = 300 * time.Millisecond

func (s *server) name() string    { return s.spec.Name }
func (s *server) logFile() string { return s.layout.LogFile(s.spec.Name) }
func (s *server) dir() string     { return s.layout.dataDir(s.spec) }

var errNotReady = errors.New("it does not accept connections yet")

// ready holds also for a server that must not run, because nobody needs to wait for it.
func (s *server) ready(context.Context) error {
	if pm, ok := findPostmaster(s.dir()); ok && pm.ready() || !ok && s.replaced() != "" {
		return nil
	}
	return errNotReady
}

func (s *server) replaced() string { return replacedBy(s.layout, s.node, s.spec) }

func (s *server) run(ctx context.Context) {
	last := exitNone
	wait := backOff{first: time.Second, most: 10 * time.Second}
	said := actionStart
	for ctx.Err() == nil {
		pm, isRunning := findPostmaster(s.dir())
		by := s.replaced()
		action := decideServer(serverFacts{
			Running: isRunning, Replaced: by != "", Crashed: !isRunning && leftPidFile(s.dir()), Last: last,
		})
		began := time.Now()
		switch action {
		case actionWatch:
			s.log.Info("PostgreSQL runs", "server", s.spec.Name, "pid", pm.PID)
			last = s.watch(ctx, pm.process, nil)
		case actionStart:
			last = s.startOnce(ctx)
		case actionFence:
			s.log.Warn("stopping a primary that a promoted replica has replaced", "server", s.spec.Name, "primary", by)
			last = exitClean
			if err := pm.stop(stopStep{immediateShutdown, 10 * time.Second}, stopStep{9, 5 * time.Second}); err != nil {
				s.log.Error("cannot stop a replaced primary", "server", s.spec.Name, "error", err)
			}
		case actionLeaveStopped, actionLeaveReplaced:
			if action != said {
				s.log.Info("PostgreSQL stays down", "server", s.spec.Name, "stopped", action == actionLeaveStopped, "replaced_by", by)
			}
			pause(ctx, serverPoll)
		}
		said = action
		if last == exitCrash && ctx.Err() == nil && (action == actionWatch || action == actionStart) {
			s.add()
			delay := wait.after(time.Since(began))
			s.log.Warn("PostgreSQL ended by itself", "server", s.spec.Name, "restart_in", delay)
			pause(ctx, delay)
		}
	}
}

// startOnce starts the server as a child and looks after it until it ends.
func (s *server) startOnce(ctx context.Context) lastExit {
	out, err := openLog(s.logFile())
	if err != nil {
		s.log.Error("cannot open a log", "server", s.spec.Name, "error", err)
		return exitCrash
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(s.postgres, "-D", s.dir())
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = s.account.attributes()
	cmd.Env = serverEnvironment(os.Environ())
	if err := cmd.Start(); err != nil {
		s.log.Error("cannot start PostgreSQL", "server", s.spec.Name, "error", err)
		return exitCrash
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	p, ok := findProcess(cmd.Process.Pid)
	if !ok {
		return exitOf(<-exited)
	}
	return s.watch(ctx, p, exited)
}

func exitOf(err error) lastExit {
	if err != nil {
		return exitCrash
	}
	return exitClean
}

// watch waits until a server ends, and stops it when ctx ends or when it turns out to be replaced.
// For a server that is not a child there is no exit status: the pid file it removes or leaves tells.
func (s *server) watch(ctx context.Context, p process, exited <-chan error) lastExit {
	tick := time.NewTicker(serverPoll)
	defer tick.Stop()
	for {
		select {
		case err := <-exited:
			return exitOf(err)
		case <-ctx.Done():
			if err := stopServer(p); err != nil {
				s.log.Error("cannot stop PostgreSQL", "server", s.spec.Name, "error", err)
			}
			if exited != nil {
				<-exited
			}
			return exitClean
		case <-tick.C:
		}
		if exited == nil && !p.alive() {
			if leftPidFile(s.dir()) {
				return exitCrash
			}
			return exitClean
		}
		if by := s.replaced(); by != "" {
			s.log.Warn("stopping a primary that a promoted replica has replaced", "server", s.spec.Name, "primary", by)
			if err := p.stop(stopStep{immediateShutdown, 10 * time.Second}, stopStep{9, 5 * time.Second}); err != nil {
				s.log.Error("cannot stop a replaced primary", "server", s.spec.Name, "error", err)
			}
		}
	}
}
