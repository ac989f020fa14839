package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pgshoal/pgshoal/router"
)

// NewRegistry makes a registry with the metrics of the process itself; component is router or
// controller.
func NewRegistry(component, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newBuildCollector(component, version),
	)
	return r
}

// newBuildCollector shows what runs; its value is always 1.
func newBuildCollector(component, version string) prometheus.Collector {
	build := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: namespace + "build_info", Help: "Always 1; the labels say what runs.",
	}, []string{"component", "version", "go_version"})
	build.WithLabelValues(component, version, runtime.Version()).Set(1)
	return build
}

const namespace = "pgshoal_"

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(namespace+name, help, labels, nil)
}

// emitter sends constant metrics.
type emitter chan<- prometheus.Metric

func (e emitter) gauge(d *prometheus.Desc, v float64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (e emitter) counter(d *prometheus.Desc, v uint64, labels ...string) {
	e <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

// histogram sends a histogram; Prometheus wants each bucket to contain those before it.
func (e emitter) histogram(d *prometheus.Desc, h router.Histogram, labels ...string) {
	buckets := make(map[float64]uint64, len(h.Bounds))
	var count uint64
	for i, n := range h.Counts {
		count += n
		if i < len(h.Bounds) {
			buckets[h.Bounds[i].Seconds()] = count
		}
	}
	e <- prometheus.MustNewConstHistogram(d, count, h.Sum.Seconds(), buckets, labels...)
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
