package telemetry

import (
	"context"
	"log/slog"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// spanSender logs what goes wrong on the way to the collector: once when it begins, once when it
// is over. OpenTelemetry itself would write to the standard error of the process, and go on trying
// after nobody waits for it any more.
type spanSender struct {
	sdktrace.SpanExporter
	log      *slog.Logger
	endpoint string
	failing  bool // the batcher sends one batch at a time

	stopped context.Context // ends attempts that are under way
	stop    context.CancelFunc
}

func newSpanSender(exporter sdktrace.SpanExporter, log *slog.Logger, endpoint string) *spanSender {
	s := &spanSender{SpanExporter: exporter, log: log, endpoint: endpoint}
	s.stopped, s.stop = context.WithCancel(context.Background())
	return s
}

// ExportSpans sends a batch.
func (s *spanSender) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stopped, cancel)()
	err := s.SpanExporter.ExportSpans(ctx, spans)
	switch {
	case err != nil && !s.failing:
		s.log.Warn("traces do not reach the collector", "endpoint", s.endpoint, "spans", len(spans), "error", err)
	case err == nil && s.failing:
		s.log.Info("traces reach the collector again", "endpoint", s.endpoint)
	}
	s.failing = err != nil
	return nil
}
