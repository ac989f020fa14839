package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/topo"
)

const (
	federateTimeout = 3 * time.Second
	federateLabel   = "router"
	routerUp        = namespace + "router_up"
)

// Federation gathers the metrics of all routers, each marked with the router's name. A router that
// does not answer is left out and shows as pgshoal_router_up 0.
type Federation struct {
	// Routers lists the living routers.
	Routers func(context.Context) ([]topo.Member, error)
	Client  *http.Client
}

// Gather asks all routers at once.
func (f *Federation) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(context.Background(), federateTimeout)
	defer cancel()
	routers, err := f.Routers(ctx)
	if err != nil {
		return nil, fmt.Errorf("telemetry: list routers: %w", err)
	}
	answers := make([]map[string]*dto.MetricFamily, len(routers))
	var group errgroup.Group
	for i, r := range routers {
		group.Go(func() error {
			answers[i] = f.fetch(ctx, r)
			return nil
		})
	}
	_ = group.Wait() // fetch has no error: silence is an answer too
	merged := map[string]*dto.MetricFamily{}
	for i, r := range routers {
		up := 0.0
		if answers[i] != nil {
			up = 1
		}
		addFamily(merged, upFamily(up), r.Name)
		for _, family := range answers[i] {
			addFamily(merged, family, r.Name)
		}
	}
	return sortedFamilies(merged), nil
}

func (f *Federation) fetch(ctx context.Context, r topo.Member) map[string]*dto.MetricFamily {
	if r.HTTP == "" {
		return nil
	}
	families, err := readMetrics(ctx, f.Client, r.HTTP)
	if err != nil {
		return nil
	}
	return families
}

// addFamily merges what several routers say of one metric; a family of another type than the
// first router's (routers of different versions) is left out rather than mixed up.
func addFamily(merged map[string]*dto.MetricFamily, family *dto.MetricFamily, router string) {
	for _, m := range family.Metric {
		m.Label = append(m.Label, &dto.LabelPair{Name: new(federateLabel), Value: new(router)})
		slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	}
	known := merged[family.GetName()]
	switch {
	case known == nil:
		merged[family.GetName()] = family
	case known.GetType() == family.GetType():
		known.Metric = append(known.Metric, family.Metric...)
	}
}

func upFamily(value float64) *dto.MetricFamily {
	return &dto.MetricFamily{
		Name:   new(routerUp),
		Help:   new("Whether the router answered the controller's question for its metrics."),
		Type:   dto.MetricType_GAUGE.Enum(),
		Metric: []*dto.Metric{{Gauge: &dto.Gauge{Value: &value}}},
	}
}

func sortedFamilies(merged map[string]*dto.MetricFamily) []*dto.MetricFamily {
	families := make([]*dto.MetricFamily, 0, len(merged))
	for _, family := range merged {
		families = append(families, family)
	}
	slices.SortFunc(families, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return families
}

var _ prometheus.Gatherer = (*Federation)(nil)
