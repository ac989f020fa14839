package main

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// wholeRun is the testing.TB of a run that is no test, because servers and clusters want one. Only what
// they call is there; anything else panics, as the embedded interface is nil.
type wholeRun struct {
	testing.TB

	mu       sync.Mutex
	failed   bool
	cleanups []func()
}

func (w *wholeRun) Helper() {}

func (w *wholeRun) Cleanup(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cleanups = append(w.cleanups, f)
}

func (w *wholeRun) Failed() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.failed
}

func (w *wholeRun) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (w *wholeRun) Errorf(format string, args ...any) {
	w.Logf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
}

// Fatalf panics: nothing can be compared without servers. They end with this process.
func (w *wholeRun) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (w *wholeRun) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (w *wholeRun) FailNow() { panic("the servers failed") }

func (w *wholeRun) end() {
	for _, f := range slices.Backward(w.cleanups) {
		f()
	}
}
