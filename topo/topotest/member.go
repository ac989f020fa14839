package topotest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
)

const ttl = 4 * time.Second

func router(name string) topo.Member {
	return topo.Member{Name: name, Role: topo.RoleRouter, PID: 42, Address: "127.0.0.1:6432"}
}

func register(t *testing.T, s topo.Store, m topo.Member) *topo.Registration {
	t.Helper()
	r, err := topo.Register(testContext(t), s, m, ttl, newLogs(t).logger())
	check(t, err)
	t.Cleanup(r.Close)
	return r
}

func wantMembers(t *testing.T, s topo.Store, role string, want ...string) []topo.Member {
	t.Helper()
	members, err := topo.Members(testContext(t), s, role)
	check(t, err)
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	if strings.Join(names, " ") != strings.Join(want, " ") {
		t.Fatalf("members %q, want %q", names, want)
	}
	return members
}

func testRegister(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	started := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	m := topo.Member{
		Name: "eu/1", Role: topo.RoleRouter, PID: 7, Address: "h:1", DSN: "postgres://h:1", HTTP: "h:2",
		AckedEpoch: 3, Started: started,
	}
	r := register(t, s, m)
	register(t, s, router("b"))
	c := register(t, s, topo.Member{Name: "c", Role: topo.RoleController})
	if c.Member().Number != 0 {
		t.Fatal("a controller got a number")
	}
	wantMembers(t, s, "", "c", "b", "eu/1")
	m.Number = r.Member().Number
	if got := wantMembers(t, s, topo.RoleRouter, "b", "eu/1")[1]; !reflect.DeepEqual(got, m) || got.Number == 0 {
		t.Fatalf("member %+v, want %+v", got, m)
	}
	check(t, r.Update(ctx, func(m *topo.Member) { m.AckedEpoch, m.Name, m.Number = 9, "x", 99 }))
	m.AckedEpoch = 9
	if got := wantMembers(t, s, topo.RoleRouter, "b", "eu/1")[1]; !reflect.DeepEqual(got, m) || !reflect.DeepEqual(r.Member(), m) {
		t.Fatalf("member %+v, want %+v", got, m)
	}
	r.Close()
	wantMembers(t, s, topo.RoleRouter, "b")
	if err := r.Update(ctx, func(*topo.Member) {}); !errors.Is(err, topo.ErrClosed) {
		t.Fatalf("update after close: %v", err)
	}
	for _, bad := range []topo.Member{{Role: topo.RoleRouter}, {Name: "x", Role: "cook"}, {Name: "x", Role: topo.RoleRouter, Number: 4096}} {
		if _, err := topo.Register(ctx, s, bad, ttl, newLogs(t).logger()); err == nil {
			t.Fatalf("registered %+v", bad)
		}
	}
}

func testNumbers(t *testing.T, svc Service) {
	const routers = 12
	s := connect(t, svc)
	type result struct {
		r   *topo.Registration
		err error
	}
	results := make(chan result)
	for i := range routers {
		mine := connect(t, svc)
		go func() {
			r, err := topo.Register(t.Context(), mine, router(fmt.Sprintf("r%02d", i)), ttl, newLogs(t).logger())
			results <- result{r, err}
		}()
	}
	holder := map[int]*topo.Registration{}
	for range routers {
		res := <-results
		check(t, res.err)
		t.Cleanup(res.r.Close)
		n := res.r.Member().Number
		if holder[n] != nil || n < 1 || n > 4087 {
			t.Fatalf("number %d given twice, or out of range", n)
		}
		holder[n] = res.r
	}
	holder[5].Close()
	if n := register(t, s, router("new")).Member().Number; n != 5 {
		t.Fatalf("got number %d although 5 is free and no lower one", n)
	}
	wanted := router("wants")
	wanted.Number = 4087
	if n := register(t, s, wanted).Member().Number; n != 4087 {
		t.Fatalf("got number %d although 4087 is free", n)
	}
}

func testSameName(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	first := register(t, s, router("a"))
	register(t, s, router("ab")) // a longer name does not matter
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := topo.Register(short, s, router("a"), ttl, newLogs(t).logger())
	if !errors.Is(err, topo.ErrExists) || !strings.Contains(err.Error(), "process 42") {
		t.Fatalf("registered twice: %v", err)
	}
	second := make(chan error)
	go func() {
		r, err := topo.Register(ctx, s, router("a"), ttl, newLogs(t).logger())
		if err == nil {
			r.Close()
		}
		second <- err
	}()
	first.Close()
	check(t, <-second)
}

func testRegisterAgain(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	register(t, s, router("other"))
	mine, link := svc.Connect(t)
	r := register(t, mine, router("a"))
	number := r.Member().Number
	events := s.Watch(ctx, "member/router/")
	await(t, events, func(e topo.Event) bool { return e.Full })

	link.Cut()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	err := r.Update(short, func(m *topo.Member) { m.AckedEpoch = 8 })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("update while cut off: %v", err)
	}
	await(t, events, func(e topo.Event) bool { return len(e.Deletes) == 1 })
	wantMembers(t, s, topo.RoleRouter, "other")
	link.Restore()
	await(t, events, func(e topo.Event) bool { return len(e.Puts) == 1 })
	got := wantMembers(t, s, topo.RoleRouter, "a", "other")[0]
	if got.AckedEpoch != 8 || got.Number != number {
		t.Fatalf("registered again as %+v", got)
	}
	check(t, r.Update(ctx, func(m *topo.Member) { m.AckedEpoch = 9 }))
}

// testMemberDies is a process that is killed: nobody signs it off, its lease does.
func testMemberDies(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	mine, link := svc.Connect(t)
	register(t, mine, router("a"))
	wantMembers(t, s, topo.RoleRouter, "a")
	events := s.Watch(ctx, "member/")
	next(t, events)
	link.Cut()
	begin := time.Now()
	await(t, events, func(e topo.Event) bool { return len(e.Deletes) > 0 })
	if took := time.Since(begin); took > 3*ttl {
		t.Fatalf("listed for %v after its death", took)
	}
	wantMembers(t, s, topo.RoleRouter)
	if n := register(t, s, router("b")).Member().Number; n != 1 {
		t.Fatalf("number %d, though that of the dead is free", n)
	}
}

func testWaitAcked(t *testing.T, svc Service) {
	s, ctx := connect(t, svc), testContext(t)
	check(t, topo.WaitAcked(ctx, s, 5, "")) // nobody is there
	a, b := register(t, s, router("a")), register(t, s, router("b"))
	mine, link := svc.Connect(t)
	register(t, mine, router("dead"))
	register(t, s, topo.Member{Name: "c", Role: topo.RoleController})
	check(t, a.Update(ctx, func(m *topo.Member) { m.AckedEpoch = 5 }))

	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	err := topo.WaitAcked(short, s, 5, "")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), "missing: b (epoch 0), dead (epoch 0)") {
		t.Fatalf("error %v", err)
	}
	all, but := make(chan error, 1), make(chan error, 1)
	go func() { all <- topo.WaitAcked(ctx, s, 5, "") }()
	go func() { but <- topo.WaitAcked(ctx, s, 5, "b") }()
	link.Cut() // ends the wait for it
	check(t, <-but)
	select {
	case err := <-all:
		t.Fatalf("b has not acknowledged, but: %v", err)
	default:
	}
	check(t, b.Update(ctx, func(m *topo.Member) { m.AckedEpoch = 6 }))
	check(t, <-all)
}

// testListed cuts a member off: it must stop counting itself among the living before others do.
func testListed(t *testing.T, svc Service) {
	s, link := svc.Connect(t)
	other, ctx := connect(t, svc), testContext(t)
	r := register(t, s, router("a"))
	events := other.Watch(ctx, "member/")
	next(t, events)
	if !r.Listed() {
		t.Fatal("a member is not listed")
	}
	link.Cut()
	for e := range events {
		if e.Err == nil && len(e.Deletes) == 1 {
			break
		}
	}
	if r.Listed() {
		t.Fatal("others know that the member is gone, and it does not")
	}
	link.Restore()
	for e := range events {
		if e.Err == nil && len(e.Puts) == 1 {
			break
		}
	}
	// The store tells others first.
	check(t, r.Update(ctx, func(m *topo.Member) { m.AckedEpoch = 9 }))
	if !r.Listed() {
		t.Fatal("a member that is back is not listed")
	}
}
