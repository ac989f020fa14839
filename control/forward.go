package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"

	"github.com/pgshoal/pgshoal/topo"
)

// headerForwarded marks a request that a standby passed on, so that it is not passed on twice.
const headerForwarded = "X-Pgshoal-Forwarded"

// forward passes a request that this standby has authorised on to the leader.
func (c *Controller) forward(w http.ResponseWriter, r *http.Request) {
	target, err := c.leaderURL(r.Context())
	if err == nil && r.Header.Get(headerForwarded) != "" {
		err = errors.New("the leader is changing")
	}
	if err != nil {
		writeError(w, &Refusal{
			Status: http.StatusServiceUnavailable, Err: err, Message: fmt.Sprintf("there is no leader to answer: %v", err),
			Way: "Try again in a moment.",
		})
		return
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(target)
			p.Out.Header.Set(headerForwarded, c.cfg.Name)
			if c.cfg.Token != "" {
				// The caller may be here by right of being on this machine, which the leader cannot see.
				p.Out.Header.Set("Authorization", "Bearer "+c.cfg.Token)
			}
		},
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			writeError(w, &Refusal{
				Status: http.StatusServiceUnavailable, Err: err, Message: fmt.Sprintf("the leader at %s does not answer: %v", target.Host, err),
				Way: "Try again in a moment.",
			})
		},
	}
	proxy.ServeHTTP(w, r)
}

// leaderURL finds the leader's admin API; the leader may be this very controller, still starting.
func (c *Controller) leaderURL(ctx context.Context) (*url.URL, error) {
	c.mu.Lock()
	starting := c.starting
	c.mu.Unlock()
	if starting != nil {
		return nil, starting
	}
	name, err := topo.Leader(ctx, c.store, election)
	if err != nil {
		return nil, err
	}
	members, err := topo.Members(ctx, c.store, topo.RoleController)
	if err != nil {
		return nil, err
	}
	for _, m := range members {
		if m.Name == name && m.Name != c.cfg.Name && m.HTTP != "" {
			return &url.URL{Scheme: "http", Host: m.HTTP}, nil
		}
	}
	return nil, errors.New("the leader has just been elected")
}
