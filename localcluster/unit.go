package localcluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// unit is a part of the cluster that is kept running: one PostgreSQL server or one pgshoal process.
type unit interface {
	name() string
	// run keeps the part running until ctx ends, and then stops it.
	run(ctx context.Context)
	// ready returns nil once the part serves.
	ready(ctx context.Context) error
	// failures counts how often the part ended without being asked to.
	failures() int
	logFile() string
}

// running is a unit with the goroutine that looks after it.
type running struct {
	unit
	cancel context.CancelFunc
	done   chan struct{}
}

func launch(u unit) *running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{unit: u, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		u.run(ctx)
	}()
	return r
}

// supervisor holds the running parts in the order of their start.
type supervisor struct {
	parts []*running
}

// start launches parts side by side and waits until all of them serve.
func (s *supervisor) start(ctx context.Context, patience time.Duration, units ...unit) error {
	for _, u := range units {
		s.parts = append(s.parts, launch(u))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, u := range units {
		if err := awaitReady(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// stop ends the parts in the reverse order of their start; those of one kind side by side.
func (s *supervisor) stop() {
	for len(s.parts) > 0 {
		last := len(s.parts) - 1
		first := last
		for first > 0 && sameKind(s.parts[first-1], s.parts[last]) {
			first--
		}
		for _, p := range s.parts[first:] {
			p.cancel()
		}
		for _, p := range s.parts[first:] {
			<-p.done
		}
		s.parts = s.parts[:first]
	}
}

func sameKind(a, b *running) bool {
	_, x := a.unit.(*server)
	_, y := b.unit.(*server)
	return x && y
}

// maxStartFailures ends the patience with a part that cannot start; an existing server may need a
// second try while the kernel still holds what a crashed one left.
const maxStartFailures = 3

func awaitReady(ctx context.Context, u unit) error {
	tick := time.NewTicker(processPoll)
	defer tick.Stop()
	var last error
	for {
		if last = u.ready(ctx); last == nil {
			return nil
		}
		if u.failures() >= maxStartFailures {
			return startProblem(u, "does not start", last)
		}
		select {
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return startProblem(u, "was not ready in time", last)
			}
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

func startProblem(u unit, what string, cause error) error {
	return &Problem{
		Sentence: fmt.Sprintf("%s %s: %s", u.name(), what, complaint(logTail(u.logFile()), cause)),
		Way:      "its log is " + u.logFile(),
		Cause:    cause,
		log:      u.logFile(),
	}
}

// quoteLog puts the end of a log that is about to be removed into the error that points to it.
func quoteLog(err error) {
	var p *Problem
	if !errors.As(err, &p) || p.log == "" {
		return
	}
	const lines = 8
	tail := strings.Split(strings.TrimSpace(string(logTail(p.log))), "\n")
	p.Way = "its log ended with:\n  " + strings.Join(tail[max(0, len(tail)-lines):], "\n  ")
}

// logTail returns the end of a log, whole lines only.
func logTail(path string) []byte {
	const size = 4 << 10
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(0, info.Size()-size), size))
	if err != nil {
		return nil
	}
	if info.Size() > size {
		_, text, _ = bytes.Cut(text, []byte("\n"))
	}
	return text
}

// openLog opens a log for appending. The file outlives the process that writes it.
func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o640)
}

// backOff makes restarts of a part that keeps failing rarer, and forgets after a quiet while.
type backOff struct {
	first, most time.Duration
	next        time.Duration
}

const quietWhile = 30 * time.Second

// after returns how long to wait before the next start, given how long the part lived.
func (b *backOff) after(lived time.Duration) time.Duration {
	if b.next == 0 || lived > quietWhile {
		b.next = b.first
	}
	wait := b.next
	b.next = min(2*b.next, b.most)
	return wait
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// failureCount is shared between the goroutine that runs a part and the one that waits for it.
type failureCount struct{ n atomic.Int64 }

func (f *failureCount) add()          { f.n.Add(1) }
func (f *failureCount) failures() int { return int(f.n.Load()) }
