package localcluster

import (
	"errors"
	"syscall"
)

// Problem is what a person must know and can act on: one sentence and the way out. What went wrong
// underneath stays reachable with errors.As.
type Problem struct {
	Sentence string
	Way      string // how to go on; may be empty
	Cause    error

	log string // of the process that failed
}

func (p *Problem) Error() string { return p.Sentence }

// Hint is the way out; the command prints it below the sentence.
func (p *Problem) Hint() string { return p.Way }

func (p *Problem) Unwrap() error { return p.Cause }

// ErrNotRunning says that no part of the cluster in a directory runs.
var ErrNotRunning = errors.New("no cluster is running here")

// plainNetError says in plain words why a port or an address cannot be used.
func plainNetError(err error) string {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program uses it"
	case errors.Is(err, syscall.EACCES):
		return "it needs more rights"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "this machine has no such address"
	default:
		return err.Error()
	}
}
