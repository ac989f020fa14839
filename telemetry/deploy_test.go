package telemetry

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/pgshoal/pgshoal/control"
	"github.com/pgshoal/pgshoal/router"
)

// exported maps the metrics of all processes to their labels.
func exported(t *testing.T) map[string][]string {
	t.Helper()
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		NewRouterCollector(func() router.Stats { return router.Stats{} }).Describe(descriptions)
		NewControllerCollector(func() control.Stats { return control.Stats{} }).Describe(descriptions)
		newBuildCollector("router", "v1").Describe(descriptions)
	}()
	parts := regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)
	metrics := map[string][]string{routerUp: {federateLabel}}
	for d := range descriptions {
		m := parts.FindStringSubmatch(d.String())
		if m == nil {
			t.Fatalf("%s cannot be read", d)
		}
		if _, twice := metrics[m[1]]; twice {
			t.Errorf("%s is described twice", m[1])
		}
		metrics[m[1]] = strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' || r == ' ' })
	}
	return metrics
}

// unknownMetrics returns what an expression asks for and no process exports.
func unknownMetrics(t *testing.T, metrics map[string][]string, expr string) []string {
	t.Helper()
	families, err := NewRegistry("router", "v1").Gather()
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, f := range families {
		known[f.GetName()] = true
	}
	for name := range metrics {
		known[name] = true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		known["pgshoal_router_statement_duration_seconds"+suffix] = true
	}
	var unknown []string
	for _, name := range regexp.MustCompile(`\b(pgshoal|process|go)_[a-z0-9_]+`).FindAllString(expr, -1) {
		if !known[name] {
			unknown = append(unknown, name)
		}
	}
	return unknown
}

// TestDashboard wants every metric of the dashboard to be exported, and every panel to ask for one.
func TestDashboard(t *testing.T) {
	raw, err := os.ReadFile("../deploy/grafana/pgshoal.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		UID    string
		Panels []struct {
			ID          int
			Type, Title string
			Targets     []struct{ Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(raw, &dashboard); err != nil {
		t.Fatal(err)
	}
	metrics := exported(t)
	all, ids := "", map[int]bool{}
	check := func(title, expr string) {
		all += expr + "\n"
		for _, name := range unknownMetrics(t, metrics, expr) {
			t.Errorf("panel %q asks for %s, which nobody exports", title, name)
		}
	}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", p.Title)
		}
		for _, target := range p.Targets {
			if !regexp.MustCompile(`\b(pgshoal|process|go)_`).MatchString(target.Expr) {
				t.Errorf("panel %q asks for no metric: %s", p.Title, target.Expr)
			}
			check(p.Title, target.Expr)
		}
	}
	for _, v := range dashboard.Templating.List {
		check(v.Name, v.Definition)
	}
	delete(metrics, routerUp) // of federation only
	for name := range metrics {
		if !strings.Contains(all, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// TestAlerts wants the metrics of all alerts to be exported and each alert to be explained.
func TestAlerts(t *testing.T) {
	raw, err := os.ReadFile("../deploy/prometheus/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr string
				Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	var alerts []string
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			alerts = append(alerts, rule.Alert)
			if !strings.Contains(rule.Expr, namespace) || rule.Annotations["summary"] == "" {
				t.Errorf("%s: %q says %q", rule.Alert, rule.Expr, rule.Annotations["summary"])
			}
			for _, name := range unknownMetrics(t, exported(t), rule.Expr) {
				t.Errorf("%s asks for %s, which nobody exports", rule.Alert, name)
			}
		}
	}
	documented := firstCells(t, regexp.MustCompile("^\\| `(Pgshoal[A-Za-z]+)`"))
	slices.Sort(alerts)
	if names := slices.Sorted(maps.Keys(documented)); !slices.Equal(alerts, names) {
		t.Errorf("the file has the alerts\n%v, docs/monitoring.md\n%v", alerts, names)
	}
}

// TestMetricsAreDocumented wants the tables of docs/monitoring.md to be right.
func TestMetricsAreDocumented(t *testing.T) {
	documented := firstCells(t, regexp.MustCompile("^\\| `(pgshoal_[a-z_]+)` \\| (?:gauge|counter|histogram) \\| ([a-z_, ]*)\\|"))
	for name, labels := range exported(t) {
		cell, known := documented[name]
		if !known {
			t.Errorf("docs/monitoring.md does not have %s", name)
			continue
		}
		if got := strings.FieldsFunc(cell, func(r rune) bool { return r == ',' || r == ' ' }); !slices.Equal(got, labels) {
			t.Errorf("docs/monitoring.md has %s with labels %v, want %v", name, got, labels)
		}
		delete(documented, name)
	}
	for name := range documented {
		t.Errorf("docs/monitoring.md has %s, which nobody exports", name)
	}
}

// firstCells reads rows of tables in docs/monitoring.md: the pattern's first group and what the second has.
func firstCells(t *testing.T, row *regexp.Regexp) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/monitoring.md")
	if err != nil {
		t.Fatal(err)
	}
	cells := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if m := row.FindStringSubmatch(line); m != nil {
			cells[m[1]] = strings.Join(m[2:], "")
		}
	}
	return cells
}
