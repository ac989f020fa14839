package telemetry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgshoal/pgshoal/router"
	"github.com/pgshoal/pgshoal/sqltext"
)

// TraceConfig says where spans go and which ones.
type TraceConfig struct {
	// Endpoint is the URL of an OTLP collector that speaks gRPC; with http:// it is without TLS.
	Endpoint string
	// Sample is the share of statements that are recorded, if they do not say so themselves.
	Sample float64
	// Cluster, Name and Version tell this router from others.
	Cluster, Name, Version string
}

func (c *TraceConfig) validate() error {
	if c.Endpoint == "" {
		return errors.New("telemetry: the endpoint for traces is missing")
	}
	return checkSample(c.Sample)
}

func checkSample(share float64) error {
	if share >= 0 && share <= 1 {
		return nil
	}
	return fmt.Errorf("telemetry: %v is no share of statements: it must be from 0 to 1", share)
}

// Tracer records the statements of a router with OpenTelemetry. A statement whose text names a
// parent span is recorded when the parent is; of the others, a share is.
type Tracer struct {
	provider *sdktrace.TracerProvider
	sender   *spanSender
	tracer   trace.Tracer
	parents  propagation.TraceContext
	share    atomic.Uint64 // bits of a float64
}

// NewTracer sends spans in the background until Close. A collector that does not answer is logged
// and costs spans, never statements.
func NewTracer(ctx context.Context, cfg TraceConfig, log *slog.Logger) (*Tracer, error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(cfg.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("telemetry: traces: %w", err)
	}
	sender := newSpanSender(exporter, log, cfg.Endpoint)
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(sender),
		// Who is recorded is decided in Statement, before a span costs anything.
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "pgshoal-router"),
			attribute.String("service.namespace", cfg.Cluster),
			attribute.String("service.instance.id", cfg.Name),
			attribute.String("service.version", cfg.Version),
		)),
	)
	t := &Tracer{provider: provider, sender: sender, tracer: provider.Tracer("github.com/pgshoal/pgshoal")}
	return t, t.SetSample(cfg.Sample)
}

// SetSample changes the share of statements that are recorded.
func (t *Tracer) SetSample(share float64) error {
	if err := checkSample(share); err != nil {
		return err
	}
	t.share.Store(math.Float64bits(share))
	return nil
}

// Close sends what is left until the context ends. It waits for everything that Tracer started.
func (t *Tracer) Close(ctx context.Context) error {
	defer context.AfterFunc(ctx, t.sender.stop)()
	// With a context that ends it would return and leave the rest to the background.
	if err := t.provider.Shutdown(context.WithoutCancel(ctx)); err != nil {
		return fmt.Errorf("telemetry: traces: %w", err)
	}
	return nil
}

// Statement begins a statement's span, unless it is not to be recorded.
func (t *Tracer) Statement(ctx context.Context, st router.TracedStatement) (context.Context, router.EndSpan) {
	parent := t.parent(st)
	if parent.IsValid() {
		if !parent.IsSampled() {
			return ctx, nil
		}
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	} else if share := math.Float64frombits(t.share.Load()); share == 0 || rand.Float64() >= share {
		return ctx, nil
	}
	name := sqltext.FirstKeyword(st.Text)
	attributes := []attribute.KeyValue{
		attribute.String("db.system.name", "postgresql"),
		attribute.String("db.namespace", st.Database),
		attribute.String("pgshoal.role", st.User),
	}
	if name != "" {
		attributes = append(attributes, attribute.String("db.operation.name", name))
	} else {
		name = "statement"
	}
	if text := withoutLiterals(st.Text); text != "" {
		attributes = append(attributes, attribute.String("db.query.text", text))
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attributes...))
	return ctx, ending(span)
}

func (t *Tracer) parent(st router.TracedStatement) trace.SpanContext {
	if st.Prepared {
		return trace.SpanContext{}
	}
	carrier := sqlComment(st.Text)
	if carrier == nil {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(t.parents.Extract(context.Background(), carrier))
}

// Step begins a span inside that of a statement, if the statement is recorded.
func (t *Tracer) Step(ctx context.Context, name, node string) (context.Context, router.EndSpan) {
	if !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, nil
	}
	kind, attributes := trace.SpanKindInternal, []attribute.KeyValue(nil)
	if node != "" {
		kind, attributes = trace.SpanKindClient, []attribute.KeyValue{attribute.String("pgshoal.node", node)}
	}
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	return ctx, ending(span)
}

func ending(span trace.Span) router.EndSpan {
	return func(o router.SpanOutcome) {
		if o.Kind != "" {
			span.SetAttributes(attribute.String("pgshoal.plan", o.Kind))
		}
		if len(o.Nodes) > 0 {
			span.SetAttributes(attribute.StringSlice("pgshoal.nodes", o.Nodes))
		}
		if o.SQLState != "" {
			span.SetAttributes(attribute.String("db.response.status_code", o.SQLState))
			span.SetStatus(codes.Error, o.SQLState)
		}
		span.End()
	}
}

const maxTracedText = 2000

// withoutLiterals is a statement as it may be shown to whoever reads traces: without its values,
// which are the users' business. It is empty when it is not sure what is a value.
func withoutLiterals(text []byte) string {
	var norm sqltext.Normalized
	if !sqltext.Normalize(&norm, text, true) {
		return ""
	}
	// A backslash can end a string earlier or later, depending on a setting of the session.
	if bytes.IndexByte(text, '\\') >= 0 {
		var other sqltext.Normalized
		if !sqltext.Normalize(&other, text, false) || !bytes.Equal(norm.Text, other.Text) {
			return ""
		}
	}
	var b bytes.Buffer
	end := 0
	for _, l := range norm.Literals {
		if b.Len() > maxTracedText {
			break
		}
		b.Write(text[end:l.Start])
		b.WriteByte('?')
		end = l.End
	}
	b.Write(text[end:min(len(text), end+maxTracedText)])
	b.Truncate(min(b.Len(), maxTracedText))
	return string(bytes.ToValidUTF8(b.Bytes(), nil))
}

var _ router.Tracer = (*Tracer)(nil)
