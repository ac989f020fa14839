package router

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/pgshoal/pgshoal/plan"
	"github.com/pgshoal/pgshoal/twopc"
)

// durationBounds are the upper ends of the buckets that statements are counted in.
var durationBounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
}

// Histogram tells how long something took: Counts[i] times at most Bounds[i] and longer than the
// bound before; the last count has no bound.
type Histogram struct {
	Bounds []time.Duration
	Counts []uint64
	Sum    time.Duration
}

// durations is a Histogram that many sessions add to at once.
type durations struct {
	counts [len(durationBounds) + 1]atomic.Uint64
	sum    atomic.Int64
}

func (d *durations) add(took time.Duration) {
	i := 0
	for i < len(durationBounds) && took > durationBounds[i] {
		i++
	}
	d.counts[i].Add(1)
	d.sum.Add(int64(took))
}

func (d *durations) histogram() Histogram {
	h := Histogram{Bounds: durationBounds[:], Counts: make([]uint64, len(d.counts)), Sum: time.Duration(d.sum.Load())}
	for i := range d.counts {
		h.Counts[i] = d.counts[i].Load()
	}
	return h
}

// sqlStateClasses counts errors by the class of their SQLSTATE, its first two characters.
type sqlStateClasses struct{ counts [36 * 36]atomic.Uint64 }

const sqlStateLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

// add counts an error; a code that is none is of class XX, as PostgreSQL's internal errors are.
func (c *sqlStateClasses) add(code string) {
	first, second := -1, -1
	if len(code) == 5 {
		first, second = sqlStateDigit(code[0]), sqlStateDigit(code[1])
	}
	if first < 0 || second < 0 {
		first, second = sqlStateDigit('X'), sqlStateDigit('X')
	}
	c.counts[first*36+second].Add(1)
}

func sqlStateDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'Z':
		return int(c-'A') + 10
	}
	return -1
}

func (c *sqlStateClasses) byClass() map[string]uint64 {
	classes := map[string]uint64{}
	for i := range c.counts {
		if n := c.counts[i].Load(); n > 0 {
			classes[string([]byte{sqlStateLetters[i/36], sqlStateLetters[i%36]})] = n
		}
	}
	return classes
}

// TwoPhase counts transactions that wrote on several nodes, by how they ended.
type TwoPhase struct{ Committed, Aborted, InDoubt uint64 }

// refusal is why a client did not get in.
type refusal uint8

const (
	refusedLimit refusal = iota
	refusedAuthentication
	refusedOther
	refusals
)

func (r refusal) String() string { return [...]string{"limit", "authentication", "other"}[r] }

// measures are what telemetry shows beyond plain counters. Its zero value is ready for use.
type measures struct {
	took                        [8]durations // by plan kind, as counters has it
	classes                     sqlStateClasses
	committed, aborted, inDoubt atomic.Uint64
	accepted                    atomic.Uint64
	refused                     [refusals]atomic.Uint64
}

// statement counts how long a statement took, from the client's message to the end of the answer.
func (m *measures) statement(k plan.Kind, took time.Duration) { m.took[k].add(took) }

// failure counts an error that a client was told of.
func (m *measures) failure(code string) { m.classes.add(code) }

// twoPhase counts the end of a transaction over several nodes, by what twopc.Commit returned.
func (m *measures) twoPhase(err error) {
	switch {
	case err == nil:
		m.committed.Add(1)
	case errors.Is(err, twopc.ErrInDoubt):
		m.inDoubt.Add(1)
	default:
		m.aborted.Add(1)
	}
}

// accept counts a client that got in.
func (m *measures) accept() { m.accepted.Add(1) }

// refuse counts a client that did not get in.
func (m *measures) refuse(why refusal) { m.refused[why].Add(1) }

// fill adds the measures to what telemetry shows.
func (m *measures) fill(s *Stats) {
	s.Durations = map[string]Histogram{}
	for k := plan.Route; k <= plan.Distribute; k++ {
		s.Durations[k.String()] = m.took[k].histogram()
	}
	s.ErrorClasses = m.classes.byClass()
	s.TwoPhase = TwoPhase{Committed: m.committed.Load(), Aborted: m.aborted.Load(), InDoubt: m.inDoubt.Load()}
	s.Accepted = m.accepted.Load()
	s.Refused = map[string]uint64{}
	for r := range m.refused {
		s.Refused[refusal(r).String()] = m.refused[r].Load()
	}
}

// size is the number of plans that are kept.
func (p *planSpaces) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, space := range p.spaces {
		space.mu.RLock()
		n += len(space.normalised) + len(space.exact)
		space.mu.RUnlock()
	}
	return n
}
