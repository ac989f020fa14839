package integration

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// shared is the cluster of all tests that do not stop parts of it: 3 nodes in 2 regions and 2 routers. Tests
// keep out of each other's way by the names of their tables.
var shared = sync.OnceValue(func() *cluster.Cluster {
	sharedNow = cluster.Start(suite, cluster.Options{Nodes: 3, Routers: 2, Regions: []string{"eu", "us", "eu"}, Settings: []string{"max_connections=250"}})
	return sharedNow
})

// sharedNow is the shared cluster if a test has started it.
var sharedNow *cluster.Cluster

// suite is what shared parts live in: they end after the last test.
var suite = &wholeRun{}

func TestMain(m *testing.M) {
	code := m.Run()
	suite.end()
	// Whatever routers, pools and stores started must have ended with them.
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/pgshoal/pgshoal/ioloop.(*loop).poll.func1"),
		goleak.IgnoreAnyFunction("github.com/pgshoal/pgshoal/ioloop.(*loop).watch")); err != nil {
		suite.Errorf("something is left: %v", err)
	}
	if suite.Failed() {
		code = 1
	}
	os.Exit(code)
}

// wholeRun is a testing.TB for the whole run of the package. Only what servers and clusters call is
// there; anything else panics, as the embedded interface is nil.
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

func (w *wholeRun) fail() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failed = true
}

func (w *wholeRun) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (w *wholeRun) Errorf(format string, args ...any) {
	w.Logf(format, args...)
	w.fail()
}

// Fatalf panics: nothing can be tested without the shared parts.
func (w *wholeRun) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }

func (w *wholeRun) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

func (w *wholeRun) FailNow() { panic("the shared cluster failed") }

func (w *wholeRun) end() {
	for {
		w.mu.Lock()
		n := len(w.cleanups)
		if n == 0 {
			w.mu.Unlock()
			return
		}
		f := w.cleanups[n-1]
		w.cleanups = w.cleanups[:n-1]
		w.mu.Unlock()
		f()
	}
}
