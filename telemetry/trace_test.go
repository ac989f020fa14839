package telemetry

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	"github.com/pgshoal/pgshoal/router"
)

// fakeCollector is the end of the line that spans go to.
type fakeCollector struct {
	collector.UnimplementedTraceServiceServer
	address string

	mu       sync.Mutex
	spans    []*otlp.Span
	resource map[string]string
}

func startCollector(t *testing.T) *fakeCollector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &fakeCollector{address: l.Addr().String()}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, c)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	return c
}

func (c *fakeCollector) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.ResourceSpans {
		c.resource = attributesOf(r.Resource.Attributes)
		for _, scope := range r.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (c *fakeCollector) named(t *testing.T, name string) *otlp.Span {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.spans, func(s *otlp.Span) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("no span %q among %v", name, c.spans)
	}
	return c.spans[i]
}

func attributesOf(list []*common.KeyValue) map[string]string {
	attributes := map[string]string{}
	for _, a := range list {
		var text strings.Builder
		text.WriteString(a.Value.GetStringValue())
		for _, v := range a.Value.GetArrayValue().GetValues() {
			text.WriteString("[" + v.GetStringValue() + "]")
		}
		attributes[a.Key] = text.String()
	}
	return attributes
}

func newTestTracer(t *testing.T, endpoint string, sample float64) *Tracer {
	t.Helper()
	tracer, err := NewTracer(context.Background(), TraceConfig{
		Endpoint: "http://" + endpoint, Sample: sample, Cluster: "main", Name: "router1", Version: "v1",
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

const (
	parentTrace = "0af7651916cd43dd8448eb211c80319c"
	parentSpan  = "b7ad6b7169203331"
)

func TestSpansArrive(t *testing.T) {
	c := startCollector(t)
	tracer := newTestTracer(t, c.address, 1)
	ctx, end := tracer.Statement(context.Background(), router.TracedStatement{
		Text: []byte("update t set v = 'secret' where id = 42"), User: "app", Database: "shop",
	})
	if end == nil {
		t.Fatal("not recorded")
	}
	_, endStep := tracer.Step(ctx, "acquire", "node2")
	endStep(router.SpanOutcome{})
	end(router.SpanOutcome{Kind: "Route", Nodes: []string{"node2"}, SQLState: "23505"})
	text := "SELECT 1 /*action='/x',traceparent='00-" + parentTrace + "-" + parentSpan + "-01',tracestate='a%3D1'*/"
	_, end = tracer.Statement(context.Background(), router.TracedStatement{Text: []byte(text)})
	end(router.SpanOutcome{Kind: "Route"})
	if err := tracer.Close(context.Background()); err != nil {
		t.Fatal(err)
	}

	update := c.named(t, "UPDATE")
	got := attributesOf(update.Attributes)
	for key, want := range map[string]string{
		"db.system.name": "postgresql", "db.namespace": "shop", "pgshoal.role": "app", "db.operation.name": "UPDATE",
		"db.query.text": "update t set v = ? where id = ?", "pgshoal.plan": "Route", "pgshoal.nodes": "[node2]",
		"db.response.status_code": "23505",
	} {
		if got[key] != want {
			t.Errorf("%s is %q, want %q", key, got[key], want)
		}
	}
	if update.Status.Code != otlp.Status_STATUS_CODE_ERROR || update.Kind != otlp.Span_SPAN_KIND_SERVER || len(update.ParentSpanId) > 0 {
		t.Errorf("status %v, kind %v, parent %x", update.Status, update.Kind, update.ParentSpanId)
	}
	acquire := c.named(t, "acquire")
	if !bytes.Equal(acquire.ParentSpanId, update.SpanId) || !bytes.Equal(acquire.TraceId, update.TraceId) {
		t.Errorf("the step is no child of its statement: %v", acquire)
	}
	if attributesOf(acquire.Attributes)["pgshoal.node"] != "node2" || acquire.Status.GetCode() == otlp.Status_STATUS_CODE_ERROR {
		t.Errorf("step %v", acquire)
	}
	child := c.named(t, "SELECT")
	if hex.EncodeToString(child.TraceId) != parentTrace || hex.EncodeToString(child.ParentSpanId) != parentSpan || child.TraceState != "a=1" {
		t.Errorf("the client's span is not the parent: %v", child)
	}
	if c.resource["service.name"] != "pgshoal-router" || c.resource["service.instance.id"] != "router1" || c.resource["service.namespace"] != "main" {
		t.Errorf("resource %v", c.resource)
	}
}

func TestSampling(t *testing.T) {
	tracer := newTestTracer(t, "127.0.0.1:1", 0)
	defer tracer.Close(canceled())
	comment := func(flags string) string {
		return "SELECT 1 /* traceparent='00-" + parentTrace + "-" + parentSpan + "-" + flags + "' */"
	}
	for _, test := range []struct {
		name, text string
		share      float64
		prepared   bool
		want       bool
	}{
		{name: "nobody asked", text: "SELECT 1"},
		{name: "everything", text: "SELECT 1", share: 1, want: true},
		{name: "the parent is recorded", text: comment("01"), want: true},
		{name: "the parent is not recorded", text: comment("00"), share: 1},
		{name: "a parent of the past", text: comment("01"), prepared: true},
		{name: "no parent at all", text: "SELECT 1 /* traceparent='00-nonsense-01' */"},
		{name: "values are no comments", text: "SELECT ' " + comment("01") + " '"},
	} {
		if err := tracer.SetSample(test.share); err != nil {
			t.Fatal(err)
		}
		ctx, end := tracer.Statement(context.Background(), router.TracedStatement{Text: []byte(test.text), Prepared: test.prepared})
		if (end != nil) != test.want {
			t.Errorf("%s: recorded %v, want %v", test.name, end != nil, test.want)
		}
		if _, step := tracer.Step(ctx, "plan", ""); (step != nil) != test.want {
			t.Errorf("%s: step recorded %v, want %v", test.name, step != nil, test.want)
		}
	}
	for _, share := range []float64{-0.1, 1.1, math.NaN()} {
		if tracer.SetSample(share) == nil {
			t.Errorf("share %v was accepted", share)
		}
	}
	if err := tracer.SetSample(0.2); err != nil {
		t.Fatal(err)
	}
	recorded := 0
	for range 10000 {
		if _, end := tracer.Statement(context.Background(), router.TracedStatement{Text: []byte("SELECT 1")}); end != nil {
			recorded++
		}
	}
	if recorded < 1700 || recorded > 2300 { // 7 standard deviations
		t.Errorf("%d of 10000 are recorded, want about 2000", recorded)
	}
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func TestNoTracerWithoutEndpoint(t *testing.T) {
	for _, cfg := range []TraceConfig{{Sample: 1}, {Endpoint: "http://127.0.0.1:1", Sample: 2}} {
		if _, err := NewTracer(context.Background(), cfg, slog.New(slog.DiscardHandler)); err == nil {
			t.Errorf("%+v was accepted", cfg)
		}
	}
}

func TestCollectorAway(t *testing.T) {
	var log bytes.Buffer
	tracer, err := NewTracer(context.Background(), TraceConfig{Endpoint: "http://127.0.0.1:1", Sample: 1},
		slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	_, end := tracer.Statement(context.Background(), router.TracedStatement{Text: []byte("SELECT 1")})
	end(router.SpanOutcome{})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	started := time.Now()
	_ = tracer.Close(ctx) // whether it says so or only logs is the library's choice
	if took := time.Since(started); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	if !strings.Contains(log.String(), "traces do not reach the collector") {
		t.Errorf("log is %q", log.String())
	}
}

func TestSQLComment(t *testing.T) {
	parent := "00-" + parentTrace + "-" + parentSpan + "-01"
	for text, want := range map[string]string{
		"SELECT 1 /*traceparent='" + parent + "'*/":                              parent,
		"SELECT 1 /* db_driver='x', traceparent='" + parent + "' , z='1' */ ;\n": parent,
		"/*traceparent='" + parent + "'*/ SELECT 1":                              parent,
		" \n/*a='b'*/ SELECT 1 /*traceparent='" + parent + "'*/":                 parent,
		"/*traceparent='" + parent + "'*/ SELECT 1 /*a='b'*/":                    parent,
		"SELECT /*traceparent='" + parent + "'*/ 1":                              "",
		"SELECT '/*traceparent=''" + parent + "''*/'":                            "",
		"SELECT 1 /*xtraceparent='" + parent + "'*/":                             "",
		"SELECT 1 /*traceparent='%zz'*/":                                         "",
		"SELECT 1 /*traceparent='" + parent + "*/":                               "",
		"SELECT 1 /*traceparent*/":                                               "",
		"SELECT 1 traceparent='" + parent + "'*/":                                "",
		"/*traceparent='" + parent:                                               "",
		"/*/":                                                                    "",
		"":                                                                       "",
	} {
		if got := sqlComment([]byte(text)).Get("traceparent"); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}

func FuzzSQLComment(f *testing.F) {
	f.Add([]byte("SELECT 1 /* a='b',traceparent='00-" + parentTrace + "-" + parentSpan + "-01',tracestate='x%3D1' */"))
	f.Add([]byte("/*/**/*/"))
	f.Fuzz(func(t *testing.T, text []byte) {
		carrier := sqlComment(text)
		if carrier == nil {
			return
		}
		if carrier["traceparent"] == "" {
			t.Error("a carrier without a parent")
		}
		parent := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
		if parent.IsValid() && !parent.IsRemote() {
			t.Error("the parent is of this process")
		}
		withoutLiterals(text)
	})
}

func TestWithoutLiterals(t *testing.T) {
	long := "SELECT " + strings.Repeat("'x', ", 2000) + "1"
	for text, want := range map[string]string{
		"INSERT INTO t VALUES (1, 'a''b', $1, 2.5e3)": "INSERT INTO t VALUES (?, ?, $1, ?)",
		`SELECT E'a\'b', 7`:                           "SELECT ?, ?",
		`SELECT 'a\', secret , 'b'`:                   "", // two meanings
		"SELECT 'open":                                "",
		"SELECT \"q\" FROM \xff":                      "SELECT \"q\" FROM ",
		long:                                          strings.Replace(long, "'x'", "?", -1)[:maxTracedText],
	} {
		if got := withoutLiterals([]byte(text)); got != want {
			t.Errorf("%.60s: %.80q, want %.80q", text, got, want)
		}
	}
}

func BenchmarkStatementNotRecorded(b *testing.B) {
	tracer, err := NewTracer(context.Background(), TraceConfig{Endpoint: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer tracer.Close(canceled())
	if err := tracer.SetSample(1e-12); err != nil {
		b.Fatal(err)
	}
	var t router.Tracer = tracer
	st := router.TracedStatement{Text: []byte("SELECT v FROM accounts WHERE id = 123456"), User: "app", Database: "shop"}
	b.ReportAllocs()
	for b.Loop() {
		if _, end := t.Statement(context.Background(), st); end != nil {
			end(router.SpanOutcome{})
		}
	}
}
