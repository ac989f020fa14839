package localcluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// stopPatience covers a drain, a shutdown with a last checkpoint, and some air.
const stopPatience = 3 * time.Minute

// Down stops everything that runs for the cluster in a directory: the supervisor and what it looks
// after, what a dead supervisor left, and the routers and controllers that people added. It returns
// ErrNotRunning when nothing ran.
func Down(ctx context.Context, dir string) error {
	layout, err := NewLayout(dir)
	if err != nil {
		return err
	}
	state, err := LoadState(layout)
	if err != nil {
		return err
	}
	stopped := false
	for _, p := range supervisors(layout) {
		stopped = true
		if err := stopSupervisor(ctx, p); err != nil {
			return err
		}
	}
	if !stopped && len(remains(layout, state)) == 0 {
		return ErrNotRunning
	}
	_ = os.Remove(layout.readyFile()) // nobody believes it without the lock
	return stopRemains(layout, state)
}

// isSupervisor makes sure that the process in the pid file is the one that holds the lock.
func isSupervisor(l Layout, p process) bool {
	held, err := supervised(l)
	return err == nil && held && p.alive()
}

// supervisors finds who holds the lock. When its pid file is lost, all that may hold it are meant.
func supervisors(l Layout) []process {
	if held, err := supervised(l); err != nil || !held {
		return nil
	}
	if p, ok := readPID(l.pidFile(titleUp)); ok {
		return []process{p}
	}
	var list []process
	for _, m := range members(l) {
		if m.Command == titleUp {
			list = append(list, m.process)
		}
	}
	return list
}

// stopSupervisor lets the supervisor stop its parts in order. One that hangs is killed: its parts
// are stopped afterwards, one by one.
func stopSupervisor(ctx context.Context, p process) error {
	err := p.signal(syscall.SIGTERM)
	if errors.Is(err, os.ErrProcessDone) {
		return nil
	}
	if err != nil {
		return &Problem{
			Sentence: fmt.Sprintf("the cluster's supervisor (process %d) cannot be stopped: %v", p.PID, err),
			Way:      "run the command as the user who started the cluster",
			Cause:    err,
		}
	}
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	if p.gone(ctx) == nil {
		return nil
	}
	return p.stop(stopStep{syscall.SIGKILL, 5 * time.Second})
}

// remain is a process of the cluster that nobody looks after.
type remain struct {
	process
	title string
	rank  int // the order of stopping
	end   func(process) error
}

// remains finds processes of the cluster: servers through their data directories, pgshoal's own
// through their command lines.
func remains(l Layout, s *State) []remain {
	var found []remain
	for _, m := range members(l) {
		r := remain{process: m.process, title: m.Command}
		patience := childFarewell
		switch m.Command {
		case titleRouter:
			r.rank, patience = 0, drainPatience
		case titleController:
			r.rank = 1
		case titleEtcd:
			r.rank = 3
		default:
			continue // `up`: the caller, or one that waits for the lock
		}
		r.end = func(p process) error { return stopMember(p, patience) }
		found = append(found, r)
	}
	if s != nil {
		for _, n := range s.Nodes {
			for _, server := range n.Servers {
				if pm, ok := findPostmaster(l.dataDir(server)); ok {
					found = append(found, remain{process: pm.process, title: server.Name, rank: 2, end: stopServer})
				}
			}
		}
	}
	slices.SortStableFunc(found, func(a, b remain) int { return a.rank - b.rank })
	return found
}

// stopGuests stops the routers and controllers that people added, while everything they sign off
// with still runs.
func stopGuests(l Layout) error {
	var guests []remain
	for _, r := range remains(l, nil) {
		own, ok := readPID(l.pidFile(r.title))
		if r.title != titleEtcd && (!ok || own != r.process) {
			guests = append(guests, r)
		}
	}
	return stopTogether(guests)
}

// stopRemains stops whatever still runs, kind by kind, and looks once more afterwards.
func stopRemains(l Layout, s *State) error {
	var err error
	for range 2 {
		found := remains(l, s)
		for len(found) > 0 {
			end := slices.IndexFunc(found, func(r remain) bool { return r.rank != found[0].rank })
			if end < 0 {
				end = len(found)
			}
			err = errors.Join(err, stopTogether(found[:end]))
			found = found[end:]
		}
	}
	if err == nil && s != nil {
		err = removeSocketDir(l, s)
	}
	return err
}

func stopTogether(list []remain) error {
	var g errgroup.Group
	for _, r := range list {
		g.Go(func() error {
			if err := r.end(r.process); err != nil {
				return fmt.Errorf("stop %s: %w", r.title, err)
			}
			return nil
		})
	}
	return g.Wait()
}
