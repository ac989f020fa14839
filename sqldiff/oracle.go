package sqldiff

import (
	"context"
	"fmt"
	"maps"
)

// Oracle is the PostgreSQL that knows the answers; each is computed once for all shapes.
type Oracle struct {
	target   *Target
	baseline Contents
	known    map[question]*truth
	// slips are cases of the corpus that PostgreSQL does not run as they were meant.
	slips []string
}

type question struct {
	c    *Case
	mode Mode
}

// truth is what one PostgreSQL says, and what it has afterwards.
type truth struct {
	answers []*Answer
	how     []how
	after   Contents // nil when nothing changed
}

// NewOracle takes a plain target.
func NewOracle(ctx context.Context, t *Target) (*Oracle, error) {
	baseline, _, _, err := t.contents(ctx, shopTables())
	return &Oracle{target: t, baseline: baseline, known: map[question]*truth{}}, err
}

// ask runs a case on the oracle, once.
func (o *Oracle) ask(ctx context.Context, c *Case, mode Mode) (*truth, error) {
	if t := o.known[question{c, mode}]; t != nil {
		return t, nil
	}
	t, err := o.find(ctx, c, mode)
	if err == nil {
		o.known[question{c, mode}] = t
	}
	return t, err
}

func (o *Oracle) find(ctx context.Context, c *Case, mode Mode) (*truth, error) {
	t := &truth{}
	for _, step := range c.Steps {
		a := o.target.client.run(ctx, c, step, mode)
		if a.Broken != "" {
			return nil, fmt.Errorf("PostgreSQL lost the connection at %s: %s", step, a.Broken)
		}
		if a.Code != "" && !c.Fails {
			o.slips = append(o.slips, fmt.Sprintf("%s:%d: PostgreSQL itself fails (if that is meant, write --@ error): %s: %s", c.File, c.Line, a.Code, a.Message))
		}
		t.answers = append(t.answers, a)
		h := how{ordered: c.Ordered, approx: c.Approx, count: c.Count, runs: c.Runs, arms: setOperation.MatchString(step)}
		if !h.ordered && !c.Count {
			h.order, h.ordered = orderOf(step, a.Columns)
		}
		t.how = append(t.how, h)
	}
	if err := o.target.client.reset(ctx); err != nil {
		return nil, err
	}
	if !c.Writes {
		return t, nil
	}
	after, each, _, err := o.target.contents(ctx, shopTables())
	if err != nil {
		return nil, err
	}
	if !maps.Equal(after, o.baseline) {
		t.after = after
	}
	return t, o.target.restore(ctx, each)
}

// expected is what tables hold after a case that was equal so far.
func (o *Oracle) expected(t *truth) Contents {
	if t.after != nil {
		return t.after
	}
	return o.baseline
}

// Verdict is how a case went on a target.
type Verdict int

// The verdicts, from good to bad.
const (
	Equal Verdict = iota
	Refused
	Different
)

// Outcome is the verdict on one case, with what there is to say about it.
type Outcome struct {
	Case    *Case
	Target  string
	Mode    Mode
	Verdict Verdict
	// Reason is the refusal's message, or the difference in words.
	Reason    string
	Step      string
	Want, Got string
}

// Check runs a case on a target and compares it with the oracle's answer.
func (o *Oracle) Check(ctx context.Context, t *Target, c *Case, mode Mode) (Outcome, error) {
	out := Outcome{Case: c, Target: t.Name, Mode: mode}
	truth, err := o.ask(ctx, c, mode)
	if err != nil {
		return out, err
	}
	for i, step := range c.Steps {
		got, want := t.client.run(ctx, c, step, mode), truth.answers[i]
		if got.refused(want) {
			out.Verdict, out.Reason, out.Step = Refused, got.Message, step
			break
		}
		if d := compare(want, got, truth.how[i]); d != "" {
			out.Verdict, out.Reason, out.Step, out.Want, out.Got = Different, d, step, want.String(), got.String()
			break
		}
	}
	if err := t.client.reset(ctx); err != nil {
		return out, err
	}
	if !c.Writes {
		return out, nil
	}
	return out, o.checkContents(ctx, t, truth, &out)
}

// checkContents compares what is stored afterwards: after a refusal nothing may have changed.
func (o *Oracle) checkContents(ctx context.Context, t *Target, truth *truth, out *Outcome) error {
	now, each, wrong, err := t.contents(ctx, shopTables())
	if err != nil {
		return err
	}
	want := o.expected(truth)
	if out.Verdict == Refused {
		want = o.baseline
	}
	if wrong == "" && out.Verdict != Different {
		wrong = differentTable(want, now)
	}
	if wrong != "" && out.Verdict != Different {
		out.Verdict, out.Reason, out.Want, out.Got = Different, wrong, fmt.Sprint(want), fmt.Sprint(now)
	}
	return t.restore(ctx, each)
}

func differentTable(want, got Contents) string {
	for table, w := range want {
		if got[table] != w {
			return fmt.Sprintf("afterwards table %s has other rows: %s instead of %s, or the same number with other values", table, got[table].rows, w.rows)
		}
	}
	return ""
}
