package sqldiff

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/shardtest/cluster"
)

// Options say what is run.
type Options struct {
	// Shapes are the clusters, one after the other.
	Shapes []Shape
	// Control also runs everything on a second plain PostgreSQL.
	Control bool
	// Only chooses cases whose file, line or text it matches.
	Only *regexp.Regexp
	// Modes are the ways to send statements.
	Modes []Mode
	// Every takes each n-th case only, for runs that must be short.
	Every int
	// Mix is how many order-entry transactions run on each layout.
	Mix int
	// Random is how long random statements run, over all targets.
	Random time.Duration
	Seed   uint64
	Out    io.Writer
}

// Shape is a cluster and the layouts that are tried on it, each in a database.
type Shape struct {
	Nodes   int
	Layouts []string
}

// AllShapes is everything.
func AllShapes() []Shape {
	return []Shape{{1, []string{"hash"}}, {2, []string{"hash", "range"}}, {3, []string{"hash", "apart", "mixed", "range", "list"}}, {7, []string{"hash", "mixed"}}}
}

// settings keep fifteen servers small.
var settings = []string{"shared_buffers=16MB", "max_connections=80", "jit=off", "max_parallel_workers_per_gather=0", "autovacuum_naptime=1h"}

// run is one execution of everything.
type run struct {
	Options
	tb    testing.TB
	rows  Rows
	cases []*Case
	// entries are the order-entry transactions, and the invariants at the end.
	entries []*Case
	oracle  *Oracle
	report  *Report
	drawn   uint64 // how many random statements there were
	// failed and empty count those that PostgreSQL gives an error or no rows for: too many say little.
	failed, empty int
}

// Run compares everything that the options choose. It fails only when it cannot compare.
func Run(ctx context.Context, tb testing.TB, o Options) (*Report, error) {
	r := &run{Options: o, tb: tb, rows: NewRows(), report: newReport(o.Out)}
	cases, err := ReadCorpus()
	if err != nil {
		return nil, err
	}
	for i, c := range cases {
		if o.Only != nil && !o.Only.MatchString(fmt.Sprintf("%s:%d %s", c.File, c.Line, c)) || o.Every > 1 && i%o.Every != int(o.Seed)%o.Every {
			continue
		}
		r.cases = append(r.cases, c)
	}
	if o.Mix > 0 {
		r.entries = entryCases(o.Mix)
	}
	server := shardtest.StartPostgres(tb, settings...)
	plain, err := newPlain(ctx, server, "oracle", r.rows, false)
	if err != nil {
		return nil, err
	}
	defer plain.close()
	if r.oracle, err = NewOracle(ctx, plain); err != nil {
		return nil, err
	}
	if o.Control {
		if err := r.control(ctx, server); err != nil {
			return nil, err
		}
	}
	for _, shape := range o.Shapes {
		if err := r.shape(ctx, shape); err != nil {
			return nil, err
		}
	}
	r.report.summary()
	if slips := r.oracle.slips; len(slips) > 0 {
		return nil, fmt.Errorf("the corpus is wrong:\n%s", strings.Join(slips, "\n"))
	}
	return r.report, nil
}

func (r *run) control(ctx context.Context, server *shardtest.Postgres) error {
	t, err := newPlain(ctx, server, "control", r.rows, true)
	if err != nil {
		return err
	}
	defer t.close()
	return r.target(ctx, t)
}

// shape starts a cluster, runs everything on its layouts, and stops it.
func (r *run) shape(ctx context.Context, s Shape) error {
	scope := &scoped{TB: r.tb}
	defer scope.end()
	c := cluster.Start(scope, cluster.Options{Nodes: s.Nodes, Settings: settings, Regions: regions(s.Nodes)})
	for _, l := range Layouts() {
		if !slices.Contains(s.Layouts, l.Name) {
			continue
		}
		t, err := newLayout(ctx, c, l, r.rows)
		if errors.Is(err, errUnavailable) {
			r.report.skipped = append(r.report.skipped, fmt.Sprintf("%d nodes, %s: %v", s.Nodes, l.Name, err))
			continue
		}
		if err != nil {
			return fmt.Errorf("%d nodes, %s: %w", s.Nodes, l.Name, err)
		}
		err = r.target(ctx, t)
		t.close()
		if err != nil {
			return fmt.Errorf("%s: %w", t.Name, err)
		}
	}
	return nil
}

// target runs all cases in all modes.
func (r *run) target(ctx context.Context, t *Target) error {
	began := time.Now()
	if t.placed != nil {
		r.report.targets = append(r.report.targets, t.Name)
	}
	if now, _, wrong, err := t.contents(ctx, shopTables()); err != nil || wrong != "" || differentTable(r.oracle.baseline, now) != "" {
		return fmt.Errorf("the tables were not filled alike: %s %s %w", wrong, differentTable(r.oracle.baseline, now), err)
	}
	for _, c := range r.cases {
		for _, mode := range r.Modes {
			if mode == Simple && c.Params != nil || mode != Simple && c.Simple {
				continue
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			o, err := r.oracle.Check(ctx, t, c, mode)
			if err != nil {
				return fmt.Errorf("%s:%d: %w", c.File, c.Line, err)
			}
			r.add(t, o)
		}
	}
	if err := r.mix(ctx, t); err != nil {
		return err
	}
	before := *r
	if err := r.random(ctx, t, r.share()); err != nil {
		return err
	}
	fmt.Fprintf(r.Out, "%s: %d cases, %d random statements (%d of them errors, %d without rows), %.1f s\n",
		t.Name, len(r.cases), r.drawn-before.drawn, r.failed-before.failed, r.empty-before.empty, time.Since(began).Seconds())
	return nil
}

// add takes an outcome into the report; the control counts only where it is not what it must be.
func (r *run) add(t *Target, o Outcome) {
	if t.placed != nil || o.Verdict != Equal {
		r.report.add(o)
	}
}

// share is the time that each target has for random statements.
func (r *run) share() time.Duration {
	targets := 0
	for _, s := range r.Shapes {
		targets += len(s.Layouts)
	}
	return r.Random / time.Duration(targets+1) // and the control
}

// scoped lets a cluster end before its test does.
type scoped struct {
	testing.TB
	mu       sync.Mutex // servers start side by side
	cleanups []func()
}

func (s *scoped) Cleanup(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cleanups = append(s.cleanups, f)
}

func (s *scoped) end() {
	for _, f := range slices.Backward(s.cleanups) {
		f()
	}
	s.cleanups = nil
}

// regions labels the nodes in turn, for the tables that are spread by a list.
func regions(nodes int) []string {
	list := make([]string, nodes)
	for i := range list {
		list[i] = []string{"eu", "us"}[i%2]
	}
	return list
}
