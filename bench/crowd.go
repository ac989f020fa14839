package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	idleClients   = 5000
	activeClients = 200
	clientLimit   = 6000 // of the router; its default is too low for both
)

// crowd measures what many idle clients cost the router, and whether others can work meanwhile.
func (s *setup) crowd(ctx context.Context, o options) error {
	if err := s.raiseLimit(ctx); err != nil {
		return err
	}
	w := workload{"crowd", filepath.Join(s.dir, "select.sql"), "prepared", activeClients}
	alone, err := s.several(ctx, w, o)
	if err != nil {
		return err
	}
	before := residentKB(s.router.pid)
	conns, err := s.connectIdle(ctx)
	defer func() {
		for _, c := range conns {
			_ = c.Close(ctx)
		}
	}()
	if err != nil {
		return err
	}
	idle := residentKB(s.router.pid)
	together, err := s.several(ctx, w, o)
	if err != nil {
		return err
	}
	for i, c := range conns {
		if err := c.Ping(ctx); err != nil {
			return fmt.Errorf("idle client %d was lost: %w", i+1, err)
		}
	}
	fmt.Printf("\n%d idle clients: %.1f KB of the router's memory each (%d MB in all)\n", len(conns),
		float64(idle-before)/float64(len(conns)), idle/1024)
	fmt.Printf("%d active clients meanwhile: %.2f of the rate they have alone, %.1f us CPU per statement against %.1f; no idle client lost\n",
		activeClients, together.perSecond/alone.perSecond, together.cpu, alone.cpu)
	return nil
}

// several is the median of some measurements of the router.
func (s *setup) several(ctx context.Context, w workload, o options) (sample, error) {
	var list []sample
	for range o.rounds {
		one, err := once(ctx, w, s.router, o)
		if err != nil {
			return sample{}, err
		}
		list = append(list, one)
	}
	return median(list), nil
}

func (s *setup) connectIdle(ctx context.Context) ([]*pgx.Conn, error) {
	config, err := pgx.ParseConfig(s.router.dsn)
	if err != nil {
		return nil, err
	}
	conns := make([]*pgx.Conn, 0, idleClients)
	for range idleClients {
		c, err := pgx.ConnectConfig(ctx, config)
		if err != nil {
			return conns, fmt.Errorf("idle client %d: %w", len(conns)+1, err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

// raiseLimit lets more clients in: the router reads its configuration again on SIGHUP.
func (s *setup) raiseLimit(ctx context.Context) error {
	path := filepath.Join(s.cluster(), "pgshoal.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	const key = "max_client_connections: "
	_, rest, found := bytes.Cut(text, []byte(key))
	if !found {
		return fmt.Errorf("%s has no %s", path, key)
	}
	now, _, _ := bytes.Cut(rest, []byte("\n"))
	text = bytes.Replace(text, append([]byte(key), now...), fmt.Appendf(nil, "%s%d", key, clientLimit), 1)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return err
	}
	if err := syscall.Kill(s.router.pid, syscall.SIGHUP); err != nil {
		return fmt.Errorf("reloading the router: %w", err)
	}
	return s.awaitMetric(ctx, fmt.Sprintf("pgshoal_router_max_clients %d", clientLimit))
}

// awaitMetric waits until the router's metrics have a line.
func (s *setup) awaitMetric(ctx context.Context, line string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		text, err := get(ctx, "http://"+s.metrics+"/metrics")
		if err == nil && strings.Contains(text, line) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the router's metrics do not show %q: %w", line, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func get(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func residentKB(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}
