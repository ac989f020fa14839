package sqldiff

import (
	"context"
	"fmt"
	"time"
)

// randomCase makes the statement of a stream of choices.
func randomCase(c *choices, seed uint64) *Case {
	w := &writer{choices: c}
	out := &Case{File: "random, seed " + fmt.Sprint(seed), Category: "random reads", Fails: true}
	depth := w.n(4)
	if w.chance(25) {
		out.Category, out.Writes = "random writes", true
		out.Steps = []string{w.statement(min(depth, 2))}
		return out
	}
	out.Steps = []string{w.query(w.kinds(1+w.n(3)), nil, depth)}
	return out
}

// tooSlow is what PostgreSQL says about statements that took too long: they say nothing.
const tooSlow = "57014"

// random runs random statements on a target for a while; a difference is made smaller before it is
// reported. Every statement has a seed of its own, with which the next run can begin.
func (r *run) random(ctx context.Context, t *Target, d time.Duration) error {
	if err := r.oracle.target.client.must(ctx, "SET statement_timeout = '1s'"); err != nil {
		return err
	}
	end := time.Now().Add(d)
	for time.Now().Before(end) && ctx.Err() == nil {
		seed := r.Seed + r.drawn
		r.drawn++
		c := newChoices(seed)
		mode := r.Modes[int(seed)%len(r.Modes)]
		o, ok, err := r.checkRandom(ctx, t, randomCase(c, seed), mode)
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		if !ok {
			continue
		}
		if o.Verdict == Different && o.known() == "" {
			o, err = r.shrunk(ctx, t, c.recorded, seed, o)
			if err != nil {
				return err
			}
		}
		r.add(t, o)
	}
	return r.oracle.target.client.must(ctx, "SET statement_timeout = '20s'")
}

// checkRandom compares one statement and forgets it; ok is false when PostgreSQL has no answer either.
func (r *run) checkRandom(ctx context.Context, t *Target, c *Case, mode Mode) (o Outcome, ok bool, err error) {
	defer delete(r.oracle.known, question{c, mode})
	truth, err := r.oracle.ask(ctx, c, mode)
	if err != nil || truth.answers[0].Code == tooSlow {
		return Outcome{}, false, err
	}
	switch a := truth.answers[0]; {
	case a.Code != "":
		r.failed++
	case len(a.Rows) == 0 && !c.Writes || truth.after == nil && c.Writes:
		r.empty++
	}
	o, err = r.oracle.Check(ctx, t, c, mode)
	return o, err == nil, err
}

func (r *run) shrunk(ctx context.Context, t *Target, stream []int, seed uint64, o Outcome) (Outcome, error) {
	var failed error
	shrink(stream, 500, func(next []int) bool {
		c := randomCase(&choices{replay: next}, seed)
		if failed != nil || len(c.String()) > len(o.Case.String()) {
			return false
		}
		smaller, ok, err := r.checkRandom(ctx, t, c, o.Mode)
		if err != nil {
			failed = err
		}
		if !ok || smaller.Verdict != Different {
			return false
		}
		o = smaller
		return true
	})
	return o, failed
}
