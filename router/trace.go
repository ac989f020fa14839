package router

import "context"

// Tracer follows statements through the router. The router knows nothing of where spans go.
//
// A nil EndSpan means that nobody records the span: the caller then gathers nothing for it.
type Tracer interface {
	// Statement begins the span of a client's statement.
	Statement(ctx context.Context, st TracedStatement) (context.Context, EndSpan)
	// Step begins a span inside the statement's, such as "plan", "acquire" or "commit"; node is
	// empty when it is the router's own work.
	Step(ctx context.Context, name, node string) (context.Context, EndSpan)
}

// TracedStatement is what is known when a statement begins.
type TracedStatement struct {
	// Text is the client's. A traceparent in a comment of it names the parent span.
	Text []byte
	// Prepared tells that the text came earlier than this execution, so that a parent in it is
	// one of the past.
	Prepared       bool
	User, Database string
}

// EndSpan ends a span.
type EndSpan func(SpanOutcome)

// SpanOutcome is what is known when a span ends.
type SpanOutcome struct {
	Kind     string   // of the plan; empty when there was none
	Nodes    []string // that the statement ran on
	SQLState string   // of the error it ended with; empty when there was none
}

// noTracer is used when none is configured.
type noTracer struct{}

func (noTracer) Statement(ctx context.Context, _ TracedStatement) (context.Context, EndSpan) {
	return ctx, nil
}

func (noTracer) Step(ctx context.Context, _, _ string) (context.Context, EndSpan) { return ctx, nil }
