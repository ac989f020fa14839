package router

import (
	"context"
	"time"

	"github.com/pgshoal/pgshoal/plan"
)

// clock follows one statement, or one batch of the extended protocol, for metrics, traces and the
// log of slow ones.
type clock struct {
	running bool
	started time.Duration // in the router's life
	text    []byte        // of a simple query
	bound   string        // of the first statement that a batch bound
	kind    plan.Kind
	code    string // SQLSTATE of the error that the client was told of
	nodes   []string
	end     EndSpan
}

// begin starts the clock at a client's first message; the returned context carries the span.
func (s *session) begin(ctx context.Context, text []byte, prepared bool) context.Context {
	s.clock = clock{running: true, started: s.router.age(), text: text, nodes: s.clock.nodes[:0]}
	s.since.Store(int64(s.clock.started))
	s.victim.Store(nil) // of a statement that was over before it could be cancelled
	ctx, s.clock.end = s.router.cfg.Tracer.Statement(ctx, TracedStatement{
		Text: text, Prepared: prepared, User: s.user, Database: s.database,
	})
	return ctx
}

// beginBatch starts the clock at the first message of a batch. The statement's text is in that message,
// or came with an earlier one.
func (s *session) beginBatch(ctx context.Context, typ byte, msg []byte) {
	var text []byte
	prepared := false
	if _, off := s.router.cfg.Tracer.(noTracer); !off {
		e := &s.extended
		switch {
		case typ == 'P' && e.parse.Decode(msg) == nil:
			text = e.parse.Query
		case typ == 'B' && e.bind.Decode(msg) == nil:
			if st := e.statements[string(e.bind.Statement)]; st != nil {
				text, prepared = []byte(st.text), true
			}
		}
	}
	s.begin(ctx, text, prepared)
	s.clock.text = nil // the message is gone when the batch ends
}

// age is how long the router exists. It reads one clock of the system where time.Now reads two.
func (r *Router) age() time.Duration { return time.Since(r.born) }

// count notes how a statement is executed, and where when somebody records it.
func (s *session) count(kind plan.Kind, node string) {
	s.router.counters.statement(kind)
	s.clock.kind = kind
	if s.clock.end != nil && node != "" {
		s.clock.nodes = append(s.clock.nodes, node)
	}
}

// atNode notes a node that a statement runs on, when somebody records it.
func (s *session) atNode(node string) {
	if s.clock.end != nil {
		s.clock.nodes = append(s.clock.nodes, node)
	}
}

// fault notes an error that the client is told of.
func (s *session) fault(code string) {
	s.router.counters.errors.Add(1)
	s.router.measures.failure(code)
	s.clock.code = code
}

// finish stops the clock.
func (s *session) finish() {
	c := &s.clock
	if !c.running {
		return
	}
	c.running = false
	s.since.Store(0)
	if s.victim.Load() != nil {
		s.giveWay()
	}
	took := s.router.age() - c.started
	s.router.measures.statement(c.kind, took)
	if c.end != nil {
		c.end(SpanOutcome{Kind: c.kind.String(), Nodes: c.nodes, SQLState: c.code})
		c.end = nil
	}
	if slow := s.router.live.Load().slowStatement; slow > 0 && took >= slow {
		text := c.bound
		if text == "" {
			text = string(c.text)
		}
		s.log.Warn("slow statement", "duration", took, "user", s.user, "database", s.database,
			"statement", text[:min(len(text), 1000)])
	}
}
