package topo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Roles of members.
const (
	RoleRouter     = "router"
	RoleController = "controller"
)

const (
	prefixMember = "member/"
	prefixNumber = "number/"
	maxNumber    = 4087
)

// Member is a living process of the cluster.
type Member struct {
	Name    string `json:"name"`
	Role    string `json:"role"`
	PID     int    `json:"pid"`
	Address string `json:"address,omitempty"`
	DSN     string `json:"dsn,omitempty"`
	HTTP    string `json:"http,omitempty"`
	// AckedEpoch is the newest map that the member works with everywhere.
	AckedEpoch uint64 `json:"acked_epoch"`
	// Quiet are the fences of that map that hold back what nothing is in flight on any more.
	Quiet   []string  `json:"quiet,omitempty"`
	Started time.Time `json:"started"`
	// Number is 1 to 4087 and unique among living routers, for the cancel keys that they give to
	// their clients. Register chooses it.
	Number int `json:"number,omitempty"`
}

func (m *Member) validate() error {
	switch {
	case m.Role != RoleRouter && m.Role != RoleController:
		return fmt.Errorf("role %q of member %q is neither %s nor %s", m.Role, m.Name, RoleRouter, RoleController)
	case m.Name == "":
		return fmt.Errorf("a %s has no name", m.Role)
	case m.Number < 0 || m.Number > maxNumber:
		return fmt.Errorf("number %d of member %q is not between 1 and %d", m.Number, m.Name, maxNumber)
	}
	return nil
}

func (m *Member) key() string {
	return prefixMember + m.Role + "/" + url.PathEscape(m.Name)
}

func numberKey(n int) string { return prefixNumber + strconv.Itoa(n) }

// Members returns the living members of a role ("" for all), sorted by role and name.
func Members(ctx context.Context, s Store, role string) ([]Member, error) {
	prefix := prefixMember
	if role != "" {
		prefix += role + "/"
	}
	snap, err := s.List(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	var all []Member
	for _, e := range snap.Entries {
		m, err := decodeMember(e)
		if err != nil {
			return nil, fmt.Errorf("list members: %w", err)
		}
		all = append(all, m)
	}
	return all, nil
}

func decodeMember(e Entry) (Member, error) {
	var m Member
	if err := json.Unmarshal(e.Value, &m); err != nil {
		return Member{}, fmt.Errorf("read %s: %w", e.Key, err)
	}
	return m, nil
}

// WaitAcked waits until every living router except skip works with this epoch or a newer one.
// A router that dies is no longer waited for. While the store is away nothing is known, and the
// wait goes on.
func WaitAcked(ctx context.Context, s Store, epoch uint64, skip string) error {
	return waitRouters(ctx, s, epoch, func(m Member) bool { return m.AckedEpoch >= epoch || m.Name == skip })
}

// WaitQuiet is WaitAcked that also waits until nothing is in flight on what the fences hold back.
func WaitQuiet(ctx context.Context, s Store, epoch uint64, fences ...string) error {
	return waitRouters(ctx, s, epoch, func(m Member) bool {
		return m.AckedEpoch >= epoch && !slices.ContainsFunc(fences, func(f string) bool { return !slices.Contains(m.Quiet, f) })
	})
}

// waitRouters waits until done holds for every living router.
func waitRouters(ctx context.Context, s Store, epoch uint64, done func(Member) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	behind := map[string]Member{}
	var away error
	for e := range s.Watch(ctx, prefixMember+RoleRouter+"/") {
		if away = e.Err; away != nil {
			continue
		}
		if e.Full {
			clear(behind)
		}
		for _, key := range e.Deletes {
			delete(behind, key)
		}
		for _, p := range e.Puts {
			m, err := decodeMember(p)
			if err != nil {
				return fmt.Errorf("wait for routers: %w", err)
			}
			delete(behind, p.Key)
			if !done(m) {
				behind[p.Key] = m
			}
		}
		if len(behind) == 0 {
			return nil
		}
	}
	err := context.Cause(ctx)
	if err == nil {
		err = ErrClosed
	}
	if away != nil {
		err = fmt.Errorf("%w: %w", err, away)
	}
	return fmt.Errorf("wait for routers to take epoch %d: %w%s", epoch, err, listBehind(behind))
}

func listBehind(behind map[string]Member) string {
	var names []string
	for _, m := range behind {
		names = append(names, fmt.Sprintf("%s (epoch %d)", m.Name, m.AckedEpoch))
	}
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	return "; missing: " + strings.Join(names, ", ")
}
