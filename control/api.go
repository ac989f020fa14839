package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

const (
	apiTimeout = 30 * time.Second
	// maxBody bounds what a change may send.
	maxBody = 64 << 10
)

// Handler is the admin API. Health answers about this controller; everything under /api comes from
// the leader, which a standby asks on behalf of its caller.
func (c *Controller) Handler(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", c.readyz)
	mux.Handle("GET /metrics", metrics)
	mux.Handle("GET /api/v1/status", c.read(func(r *http.Request, t *term) (any, error) { return c.status(r.Context(), t) }))
	mux.Handle("GET /api/v1/map", c.read(func(_ *http.Request, t *term) (any, error) { return t.follower.Map(), nil }))
	mux.Handle("GET /api/v1/nodes", c.read(func(_ *http.Request, t *term) (any, error) { return c.nodes(t), nil }))
	mux.Handle("GET /api/v1/tables", c.read(func(r *http.Request, t *term) (any, error) {
		return c.tables(r.Context(), t.follower.Map(), r.FormValue("database"))
	}))
	mux.Handle("GET /api/v1/shards", c.read(func(r *http.Request, t *term) (any, error) {
		m := t.follower.Map()
		list, err := c.shards(r.Context(), m, r.FormValue("database"), r.FormValue("table"))
		if key := r.URL.Query()["key"]; err == nil && len(key) > 0 {
			if r.FormValue("table") == "" {
				return nil, badRequest("", "a key belongs to a table: name it")
			}
			return c.shardOfKey(r.Context(), m, list, key)
		}
		return list, err
	}))
	mux.Handle("GET /api/v1/verify/residency", c.read(func(r *http.Request, t *term) (any, error) {
		return c.residency(r.Context(), t.follower.Map())
	}))
	mux.Handle("POST /api/v1/shards/{id}/split", c.change(http.StatusOK, c.postSplit))
	mux.Handle("POST /api/v1/shards/merge", c.change(http.StatusOK, c.postMerge))
	mux.Handle("POST /api/v1/shards/isolate", c.change(http.StatusOK, c.postIsolate))
	mux.Handle("POST /api/v1/regions", c.change(http.StatusOK, c.postRegion))
	mux.Handle("GET /api/v1/schema/diff", c.read(func(r *http.Request, t *term) (any, error) {
		return c.schemaDiff(r.Context(), t.follower.Map(), r.FormValue("database"))
	}))
	mux.Handle("GET /api/v1/transactions", c.read(func(r *http.Request, t *term) (any, error) {
		return c.transactions(r.Context(), t.follower.Map())
	}))
	mux.Handle("POST /api/v1/transactions/resolve", c.change(http.StatusOK, c.postResolve))
	mux.Handle("POST /api/v1/nodes", c.change(http.StatusCreated, c.postNode))
	mux.Handle("PATCH /api/v1/nodes/{name}", c.change(http.StatusOK, c.patchNode))
	mux.Handle("DELETE /api/v1/nodes/{name}", c.change(http.StatusOK, func(ctx context.Context, r *http.Request) (any, error) {
		m, err := c.RemoveNode(ctx, r.PathValue("name"))
		if err != nil {
			return nil, err
		}
		return map[string]any{"removed": r.PathValue("name"), "epoch": m.Epoch}, nil
	}))
	mux.HandleFunc("/api/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, notFound("See docs/admin-api.md.", "there is no %s %s", r.Method, r.URL.Path))
	})
	return mux
}

func (c *Controller) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), apiTimeout)
	defer cancel()
	if err := c.Ready(ctx); err != nil {
		writeError(w, &Refusal{Status: http.StatusServiceUnavailable, Message: err.Error(), Err: err})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "leader": c.leading() != nil})
}

func (c *Controller) postNode(ctx context.Context, r *http.Request) (any, error) {
	var req JoinRequest
	if err := decodeBody(r, &req); err != nil {
		return nil, err
	}
	return c.AddNode(ctx, req)
}

// decodeBody reads a request; fields that nobody knows are a mistake.
func decodeBody(r *http.Request, req any) error {
	dec := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(req); err != nil {
		return badRequest("See docs/admin-api.md.", "the request is not right: %v", err)
	}
	return nil
}

// read serves a question: open on this machine, with the token from elsewhere.
func (c *Controller) read(answer func(*http.Request, *term) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fromThisMachine(r) && !c.authorised(r) {
			writeUnauthorised(w)
			return
		}
		t := c.leading()
		if t == nil {
			c.forward(w, r)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), apiTimeout)
		defer cancel()
		reply(w, http.StatusOK)(answer(r.WithContext(ctx), t))
	})
}

// change serves what needs the token and the leadership, and stops when either the caller or the
// leadership goes away.
func (c *Controller) change(status int, do func(context.Context, *http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !c.authorised(r) {
			writeUnauthorised(w)
			return
		}
		t := c.leading()
		if t == nil {
			c.forward(w, r)
			return
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(t.ctx, func() { cancel(errLeadershipLost) })()
		reply(w, status)(do(ctx, r))
	})
}

// authorised compares hashes, so that the time it takes says nothing about the token.
func (c *Controller) authorised(r *http.Request) bool {
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok || c.cfg.Token == "" {
		return false
	}
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(c.cfg.Token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// fromThisMachine is true for a caller on loopback that asked for an address, not for a name: a web
// page can make a browser ask loopback, but only under the page's own name.
func fromThisMachine(r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().IsLoopback() {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

func reply(w http.ResponseWriter, status int) func(any, error) {
	return func(v any, err error) {
		if err != nil {
			writeError(w, err)
			return
		}
		writeJSON(w, status, v)
	}
}

func writeUnauthorised(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", "Bearer")
	writeError(w, &Refusal{
		Status: http.StatusUnauthorized, Message: "this needs the admin token",
		Way: "Send \"Authorization: Bearer <token>\"; the token is in the file that controller.token_file names.",
	})
}

// writeError answers {error, hint, sqlstate}.
func writeError(w http.ResponseWriter, err error) {
	body := map[string]string{"error": err.Error()}
	status := http.StatusInternalServerError
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		status = refusal.Status
		if refusal.Way != "" {
			body["hint"] = refusal.Way
		}
	case errors.Is(err, topo.ErrUnavailable), errors.Is(err, errLeadershipLost):
		status = http.StatusServiceUnavailable
		body["hint"] = "Try again in a moment."
	}
	if code := sqlStateOf(err); code != "" {
		body["sqlstate"] = code
	}
	writeJSON(w, status, body)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		status, data = http.StatusInternalServerError, []byte(`{"error": "the answer cannot be written as JSON"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(append(data, '\n')) // a caller that is gone needs no answer
}
