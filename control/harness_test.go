package control

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/shardtest"
	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testToken = "a-token-for-tests"

// testController is a controller that runs with its admin API on loopback.
type testController struct {
	*Controller
	t     *testing.T
	store *memtopo.Store
	url   string
	stop  func()
}

// startController runs a controller on the memory store; change adapts its configuration.
func startController(t *testing.T, server *memtopo.Server, name string, change func(*Config)) *testController {
	t.Helper()
	store := server.Connect()
	var ctrl *Controller
	var wait sync.WaitGroup
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctrl.Handler(http.NotFoundHandler()).ServeHTTP(w, r)
	}))
	cfg := Config{
		Name: name, HTTP: strings.TrimPrefix(web.URL, "http://"), Token: testToken,
		Access:      NodeAccess{User: "postgres", Database: "postgres", SSLMode: "disable"},
		ServiceUser: "pgshoal", ServicePassword: "s3cret",
		MemberTTL: time.Second, HealthEvery: 50 * time.Millisecond, FencesEvery: 20 * time.Millisecond, SettleEvery: 20 * time.Millisecond,
	}
	if change != nil {
		change(&cfg)
	}
	ctrl, err := New(cfg, store, slog.New(slog.NewTextHandler(testWriter{t}, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	wait.Go(func() {
		if err := ctrl.Run(ctx); err != nil {
			t.Errorf("controller %s: %v", name, err)
		}
	})
	c := &testController{Controller: ctrl, t: t, store: store, url: web.URL}
	c.stop = sync.OnceFunc(func() {
		cancel()
		wait.Wait()
		web.CloseClientConnections()
		web.Close()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections() // of the reverse proxy
	})
	t.Cleanup(c.stop)
	return c
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}

// awaitLeading waits until the controller leads and has a map.
func (c *testController) awaitLeading() {
	c.t.Helper()
	eventually(c.t, "the controller leads", func() bool { return c.leading() != nil })
}

// eventually checks often until a condition holds; a minute is for slow machines.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// answer is what the admin API said.
type answer struct {
	status int
	body   []byte
}

func (a answer) decode(t *testing.T, v any) {
	t.Helper()
	if a.status >= 300 {
		t.Fatalf("status %d: %s", a.status, a.body)
	}
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
}

// refused checks the status and that error and hint say what they must.
func (a answer) refused(t *testing.T, status int, message, hint string) {
	t.Helper()
	var e struct{ Error, Hint string }
	if err := json.Unmarshal(a.body, &e); err != nil {
		t.Fatalf("%v in %s", err, a.body)
	}
	if a.status != status || !strings.Contains(e.Error, message) || !strings.Contains(e.Hint, hint) {
		t.Errorf("got %d: %s\nwant %d with %q and hint %q", a.status, a.body, status, message, hint)
	}
}

func (c *testController) request(method, path, token string, body any) answer {
	c.t.Helper()
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			c.t.Fatal(err)
		}
		reader = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, c.url+path, reader)
	if err != nil {
		c.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatal(err)
	}
	return answer{resp.StatusCode, data}
}

func (c *testController) get(path string) answer { return c.request(http.MethodGet, path, "", nil) }

func (c *testController) add(req JoinRequest) answer {
	return c.request(http.MethodPost, "/api/v1/nodes", testToken, req)
}

func (c *testController) loadMap() *keyspace.Map {
	c.t.Helper()
	m, err := topo.LoadMap(context.Background(), c.store)
	if err != nil {
		c.t.Fatal(err)
	}
	return m
}

// query runs SQL on a server as superuser and returns the first column of the rows as text.
func query(t *testing.T, p *shardtest.Postgres, database, sql string) []string {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), p.DSN("", database))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	results, err := conn.PgConn().Exec(context.Background(), sql).ReadAll()
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	var list []string
	for _, r := range results {
		for _, row := range r.Rows {
			list = append(list, string(row[0]))
		}
	}
	return list
}

// mapWithNode creates a map whose only node is at an address where nobody listens.
func mapWithNode(t *testing.T, server *memtopo.Server) {
	t.Helper()
	m, err := keyspace.NewMap("test").AddNode(keyspace.Node{Name: "n1", Addresses: []string{"127.0.0.1:1"}, State: keyspace.NodeActive})
	if err != nil {
		t.Fatal(err)
	}
	m.Epoch = 1
	store := server.Connect()
	defer store.Close()
	if err := topo.CreateMap(context.Background(), store, m); err != nil {
		t.Fatal(err)
	}
}
