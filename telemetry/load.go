package telemetry

import (
	"context"
	"fmt"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Load is how many clients a router serves.
type Load struct{ Clients, Pinned int }

// ReadLoad asks the router that serves its metrics at the address.
func ReadLoad(ctx context.Context, client *http.Client, address string) (Load, error) {
	families, err := readMetrics(ctx, client, address)
	if err != nil {
		return Load{}, err
	}
	clients, ok := families[namespace+"router_clients"]
	if !ok {
		return Load{}, fmt.Errorf("telemetry: %s is no router", address)
	}
	return Load{Clients: sum(clients), Pinned: sum(families[namespace+"router_pinned_sessions"])}, nil
}

func sum(family *dto.MetricFamily) int {
	total := 0.0
	for _, m := range family.GetMetric() {
		total += m.GetGauge().GetValue()
	}
	return int(total)
}

// metricsLimit is the size beyond which an answer is not believed.
const metricsLimit = 32 << 20

func readMetrics(ctx context.Context, client *http.Client, address string) (map[string]*dto.MetricFamily, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("telemetry: metrics: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("telemetry: metrics: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("telemetry: metrics of %s: %s", address, resp.Status)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(http.MaxBytesReader(nil, resp.Body, metricsLimit))
	if err != nil {
		return nil, fmt.Errorf("telemetry: metrics of %s: %w", address, err)
	}
	return families, nil
}
