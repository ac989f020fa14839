package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// minimal is the shortest file that is right.
const minimal = `etcd:
  endpoints: [http://127.0.0.1:2379]
nodes:
  service_password: s3cret
`

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, text string) (*Config, error) {
	t.Helper()
	return Load(write(t, "pgshoal.yaml", text))
}

func TestDefaults(t *testing.T) {
	c, err := load(t, minimal)
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Etcd.Endpoints = []string{"http://127.0.0.1:2379"}
	want.Nodes.ServicePassword = "s3cret"
	want.Nodes.SSLMode = "require"
	want.Router.TLS.Mode = "off"
	want.file, want.lines = c.file, c.lines
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got  %+v\nwant %+v", c, want)
	}
}

func TestValuesAndRelativePaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"cert.pem", "key.pem", "ca.pem", "service", "token"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("  content of "+name+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "pgshoal.yaml")
	text := `cluster: {name: prod}
etcd: {endpoints: [https://a:2379, "b:2379"], tls: {ca: ca.pem}}
nodes:
  service_password_file: service
  ca: ca.pem
  bootstrap:
    - {name: n1, dsn: "postgres://db1/postgres", region: eu}
    - {name: n2, dsn: "postgres://db2/postgres", weight: 2.5}
router:
  listen: :6432
  tls: {cert: cert.pem, key: key.pem}
  auth: [{addresses: [10.0.0.0/8, "::1"], method: trust}]
  slow_statement: 250ms
  drain_timeout: 0
  pool: {max_per_pool: 7}
controller: {http: "127.0.0.1:0", token_file: token, federate: true}
telemetry:
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]bool{
		"name":      c.Cluster.Name == "prod",
		"endpoints": slices.Equal(c.Etcd.Endpoints, []string{"https://a:2379", "b:2379"}),
		"ca":        c.Nodes.CA == filepath.Join(dir, "ca.pem"),
		"sslmode":   c.Nodes.SSLMode == "verify-full",
		"tls":       c.Router.TLS.Mode == "require" && c.Router.TLS.Cert == filepath.Join(dir, "cert.pem"),
		"auth":      len(c.Router.Auth) == 1 && len(c.Router.Auth[0].Addresses) == 2 && c.Router.Auth[0].Method == "trust",
		"slow":      c.Router.SlowStatement == 250*time.Millisecond,
		"drain":     c.Router.DrainTimeout == 0,
		"pool":      c.Router.Pool.MaxPerPool == 7 && c.Router.Pool.MaxPerNode == 80,
		"weights":   c.Nodes.Bootstrap[0].Weight == 1 && c.Nodes.Bootstrap[1].Weight == 2.5,
		"federate":  c.Controller.Federate,
		"log":       c.Telemetry.LogLevel == "info",
	}
	for name, ok := range checks {
		if !ok {
			t.Errorf("%s: wrong in %+v", name, c)
		}
	}
	if pw, err := c.Nodes.ReadServicePassword(); err != nil || pw != "content of service" {
		t.Errorf("service password %q, %v", pw, err)
	}
	if token, err := c.Controller.ReadToken(); err != nil || token != "content of token" {
		t.Errorf("token %q, %v", token, err)
	}
}

func TestProblems(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"unknown key", minimal + "router:\n  listne: :1\n", []string{"pgshoal.yaml:6: router.listne: unknown key (did you mean listen?)"}},
		{"unknown section", minimal + "routers: {}\n", []string{"pgshoal.yaml:5: routers: unknown key (did you mean router?)"}},
		{"no key does nothing", minimal + "telemetry: {metrics: x}\n", []string{"pgshoal.yaml:5: telemetry.metrics: unknown key"}},
		{"twice", minimal + "etcd: {}\n", []string{"pgshoal.yaml:5: etcd: given twice, first in line 1"}},
		{"syntax", minimal + "router:\n\tlisten: x\n", []string{"pgshoal.yaml:6: not valid YAML: found character that cannot start any token"}},
		{"two documents", minimal + "---\nrouter: {}\n", []string{"a second YAML document"}},
		{"section is a scalar", minimal + "router: 5\n", []string{`pgshoal.yaml:5: router: expected a section with keys, found "5"`}},
		{"list is a scalar", "etcd:\n  endpoints: here\n", []string{`pgshoal.yaml:2: etcd.endpoints: expected a list, found "here"`}},
		{"scalar is a list", minimal + "router:\n  listen: [a]\n", []string{"pgshoal.yaml:6: router.listen: expected one value, found a list"}},
		{"duration", minimal + "router:\n  drain_timeout: 30\n", []string{`pgshoal.yaml:6: router.drain_timeout: "30" is not a duration`}},
		{"number", minimal + "router:\n  max_client_connections: many\n", []string{`pgshoal.yaml:6: router.max_client_connections: "many" is not a whole number`}},
		{"bool", minimal + "controller:\n  federate: yes\n", []string{`"yes" is neither true nor false`}},
		{"listen", minimal + "router:\n  listen: 6432\n", []string{`pgshoal.yaml:6: router.listen: "6432" is not host:port`}},
		{"port", minimal + "router:\n  listen: localhost:99999\n", []string{`router.listen: "99999" is not a port`}},
		{"nothing given", "# only a comment\n", []string{
			"pgshoal.yaml:1: etcd.endpoints: at least one endpoint is needed",
			"pgshoal.yaml:1: nodes.service_password: the routers' own role needs a password",
		}},
		{"missing in a section", "nodes: {service_password: x}\netcd:\n  tls: {}\n", []string{"pgshoal.yaml:2: etcd.endpoints: at least one"}},
		{"remote plaintext is not a default", minimal + "router:\n  listen: 0.0.0.0:6432\n", []string{"pgshoal.yaml:5: router.tls.cert: router.listen 0.0.0.0:6432 can be reached from other machines, so TLS is required"}},
		{"mode needs cert", minimal + "router:\n  tls:\n    mode: require\n", []string{"pgshoal.yaml:6: router.tls.cert: tls mode require needs cert and key"}},
		{"mode", minimal + "router:\n  tls:\n    mode: maybe\n", []string{`pgshoal.yaml:7: router.tls.mode: "maybe" is not one of require, allow, off`}},
		{"missing file", minimal + "router:\n  tls:\n    cert: nowhere.pem\n    key: nowhere.key\n", []string{"pgshoal.yaml:7: router.tls.cert: stat", "pgshoal.yaml:8: router.tls.key: stat"}},
		{"cert method", minimal + "router:\n  auth:\n    - addresses: [nonsense]\n      method: cert\n    - method: md5\n", []string{
			`pgshoal.yaml:7: router.auth[0].addresses[0]: "nonsense" is neither an address nor a network`,
			"pgshoal.yaml:8: router.auth[0].method: cert needs router.tls.client_ca",
			`pgshoal.yaml:9: router.auth[1].method: "md5" is not one of`,
		}},
		{"pool", minimal + "router:\n  pool:\n    max_per_pool: 10\n    max_per_node: 5\n    lifetime: 0s\n", []string{
			"pgshoal.yaml:8: router.pool.max_per_node: 5 is less than max_per_pool (10)",
			"pgshoal.yaml:9: router.pool.lifetime: must be more than 0",
		}},
		{"remote admin API without a token", minimal + "controller:\n  http: :8432\n", []string{"pgshoal.yaml:5: controller.token_file: controller.http :8432 can be reached from other machines"}},
		{"bootstrap", minimal + "  bootstrap:\n    - {name: a, dsn: x}\n    - {name: a}\n", []string{
			`pgshoal.yaml:7: nodes.bootstrap[1].name: node "a" is listed twice`,
			"pgshoal.yaml:7: nodes.bootstrap[1].dsn: a connection string is needed",
		}},
		{"superuser router", minimal + "  service_user: postgres\n", []string{"pgshoal.yaml:5: nodes.service_user: must differ from nodes.admin_user"}},
		{"password twice", minimal + "  service_password_file: pgshoal.yaml\n", []string{"nodes.service_password: given both here and in nodes.service_password_file"}},
		{"verify needs ca", minimal + "  sslmode: verify-full\n", []string{"pgshoal.yaml:5: nodes.sslmode: verify-full needs nodes.ca"}},
		{"names", "cluster: {name: a/b}\n" + minimal, []string{`pgshoal.yaml:1: cluster.name: "a/b" is not a name`}},
		{"etcd password alone", "etcd: {endpoints: [\"ftp://x:1\"], password: x}\nnodes: {service_password: x}\n", []string{
			`etcd.endpoints[0]: "ftp://x:1" is not a URL of etcd`, "etcd.user: a password is given but no user",
		}},
		{"etcd password in clear text", "etcd: {endpoints: [\"http://etcd:1\"], user: u, password: x}\nnodes: {service_password: x}\n", []string{
			"etcd.endpoints[0]: etcd's password would go to etcd:1 in clear text",
		}},
		{"etcd with and without TLS", "etcd: {endpoints: [\"https://a:1\", \"http://b:1\", \"c:1\"], user: u}\nnodes: {service_password: x}\n", []string{
			"etcd.endpoints[1]: is without TLS, but TLS is configured", "etcd.password: a user is given but no password",
		}},
		{"log", minimal + "telemetry:\n  log_level: loud\n", []string{`pgshoal.yaml:6: telemetry.log_level: "loud" is not one of debug, info, warn, error`}},
		{"traces", minimal + "telemetry:\n  otlp_endpoint: collector:4317\n  trace_sample: 1.5\n", []string{
			`pgshoal.yaml:6: telemetry.otlp_endpoint: "collector:4317" is not a URL of a collector; write http://host:port`,
			"pgshoal.yaml:7: telemetry.trace_sample: 1.5 is no share of statements",
		}},
		{"traces to a path, a share that is no number", minimal + "telemetry: {otlp_endpoint: \"http://collector/v1\", trace_sample: NaN}\n", []string{
			`telemetry.otlp_endpoint: "collector/v1" is not host:port`, "telemetry.trace_sample: NaN is no share",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := load(t, tt.text)
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("got %v, want problems", err)
			}
			lines := strings.Split(problems.Error(), "\n")
			if len(lines) != len(tt.want) {
				t.Fatalf("got %d problems, want %d:\n%s", len(lines), len(tt.want), problems)
			}
			for i, want := range tt.want {
				if !strings.Contains(lines[i], want) {
					t.Errorf("problem %d is\n%s\nwant\n%s", i, lines[i], want)
				}
			}
		})
	}
}

func TestMissingFile(t *testing.T) {
	if _, err := Load(filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestSaveThenLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pgshoal.yaml")
	rapid.Check(t, func(rt *rapid.T) {
		c := Default()
		c.Cluster.Name = rapid.StringMatching(`[a-z][a-z0-9_.-]{0,10}`).Draw(rt, "cluster")
		c.Etcd.Endpoints = rapid.SliceOfN(rapid.Just("http://127.0.0.1:2379"), 1, 3).Draw(rt, "endpoints")
		c.Nodes.ServicePassword = rapid.StringN(1, 20, 40).Filter(printable).Draw(rt, "password")
		c.Nodes.SSLMode = rapid.SampledFrom([]string{"disable", "prefer", "require"}).Draw(rt, "sslmode")
		c.Router.TLS.Mode = "off"
		c.Router.DrainTimeout = time.Duration(rapid.IntRange(0, 1e6).Draw(rt, "drain")) * time.Millisecond
		c.Router.Pool.MaxPerPool = rapid.IntRange(1, 80).Draw(rt, "pool")
		c.Controller.Federate = rapid.Bool().Draw(rt, "federate")
		c.Telemetry.TraceSample = rapid.Float64Range(0, 1).Draw(rt, "sample")
		c.Telemetry.OTLPEndpoint = rapid.SampledFrom([]string{"", "http://127.0.0.1:4317", "https://[::1]:4317"}).Draw(rt, "otlp")
		if rapid.Bool().Draw(rt, "bootstrap") {
			c.Nodes.Bootstrap = []BootstrapNode{{Name: "n1", DSN: "postgres://x/y", Weight: 1}}
		}
		if err := Save(path, c); err != nil {
			rt.Fatal(err)
		}
		got, err := Load(path)
		if err != nil {
			rt.Fatal(err)
		}
		c.file, c.lines = got.file, got.lines
		if !reflect.DeepEqual(got, c) {
			rt.Fatalf("got  %+v\nwant %+v", got, c)
		}
	})
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want 0600", info.Mode())
	}
}

// printable leaves out what YAML itself cannot carry.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r >= 0x7f })
}

func TestChanges(t *testing.T) {
	a, b := Default(), Default()
	b.Telemetry.LogLevel = "debug"
	b.Telemetry.TraceSample = 0.5
	b.Telemetry.OTLPEndpoint = "http://127.0.0.1:4317"
	b.Router.Pool.MaxPerPool = 3
	b.Router.TLS.Mode = "allow"
	b.Router.Listen = ":1"
	b.Router.Auth = []AuthRule{{Method: "trust"}}
	b.Etcd.Endpoints = []string{"x"}
	live, restart := Changes(a, b)
	if want := []string{"router.auth", "router.tls.mode", "telemetry.log_level", "telemetry.trace_sample"}; !slices.Equal(live, want) {
		t.Errorf("live %v, want %v", live, want)
	}
	if want := []string{"etcd.endpoints", "router.listen", "router.pool.max_per_pool", "telemetry.otlp_endpoint"}; !slices.Equal(restart, want) {
		t.Errorf("restart %v, want %v", restart, want)
	}
	merged := a.WithLive(b)
	if live, _ := Changes(merged, b); len(live) > 0 {
		t.Errorf("live keys were not taken over: %v", live)
	}
	if _, still := Changes(merged, b); !slices.Equal(still, restart) {
		t.Errorf("keys that need a restart were taken over: %v", still)
	}
	if live, restart := Changes(a, a); len(live)+len(restart) > 0 {
		t.Errorf("equal configurations differ: %v %v", live, restart)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("a: &x {b: *x}"))
	f.Add([]byte("etcd: &e\n  endpoints: [x]\nnodes: *e\n<<: *e\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, problems := parse("f.yaml", data)
		if len(problems) == 0 {
			c.settle()
			c.Validate()
		}
		for _, p := range problems {
			if p.Message == "" {
				t.Errorf("a problem without a message: %+v", p)
			}
		}
	})
}

// TestDeployFiles keeps the files that people start from right: every key is known and every value
// valid, except for the certificates and secrets that are theirs.
func TestDeployFiles(t *testing.T) {
	for _, path := range []string{"../deploy/pgshoal.yaml", "../deploy/compose/pgshoal.yaml"} {
		_, err := Load(path)
		var problems Problems
		if err != nil && !errors.As(err, &problems) {
			t.Errorf("%s: %v", path, err)
		}
		for _, p := range problems {
			if !strings.HasSuffix(p.Message, "no such file or directory") {
				t.Error(p)
			}
		}
	}
}

// TestDeployDefaults uncomments the keys of the commented file whose values are said to be defaults.
func TestDeployDefaults(t *testing.T) {
	text, err := os.ReadFile("../deploy/pgshoal.yaml")
	if err != nil {
		t.Fatal(err)
	}
	key := regexp.MustCompile(`^  # [a-z_]+: `)
	for _, block := range []struct {
		from string
		get  func(*Config) any
	}{
		{"  # max_client_connections", func(c *Config) any { return c.Router }},
		{"  # pool:", func(c *Config) any { return c.Router.Pool }},
		{"  # service_user", func(c *Config) any { return c.Nodes.ServiceUser }},
		{"  # admin_user", func(c *Config) any { return c.Nodes.AdminUser }},
		{"  # admin_database", func(c *Config) any { return c.Nodes.AdminDatabase }},
		{"  # listen:", func(c *Config) any { return c.Router.Listen }},
		{"  # http: 127.0.0.1:8432", func(c *Config) any { return c.Controller.HTTP }},
		{"  # log_level", func(c *Config) any { return c.Telemetry }},
	} {
		lines := strings.Split(string(text), "\n")
		start := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, block.from) })
		if start < 0 {
			t.Errorf("no line begins with %q", block.from)
			continue
		}
		for i := start; i < len(lines) && key.MatchString(lines[i]); i++ {
			lines[i] = "  " + strings.TrimPrefix(lines[i], "  # ")
		}
		if strings.HasSuffix(block.from, "pool:") {
			for i := start; i < len(lines) && strings.HasPrefix(lines[i], "  # "); i++ {
				lines[i] = "  " + strings.TrimPrefix(lines[i], "  # ")
			}
		}
		c, problems := parse("pgshoal.yaml", []byte(strings.Join(lines, "\n")))
		if len(problems) > 0 {
			t.Errorf("%q uncommented: %v", block.from, problems)
			continue
		}
		if got, want := block.get(c), block.get(Default()); !reflect.DeepEqual(got, want) {
			t.Errorf("%q uncommented gives\n%+v, the default is\n%+v", block.from, got, want)
		}
	}
}
