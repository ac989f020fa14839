package topo_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
)

func TestLockExcludes(t *testing.T) {
	server := memtopo.NewServer()
	a, b := server.Connect(), server.Connect()
	defer a.Close()
	defer b.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	first, err := topo.Lock(ctx, a, topo.LockSchema, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	other, err := topo.Lock(ctx, b, "other", time.Minute)
	if err != nil {
		t.Fatalf("locks of different names exclude each other: %v", err)
	}
	other.Unlock(ctx)

	short, stop := context.WithTimeout(ctx, 20*time.Millisecond)
	defer stop()
	if _, err := topo.Lock(short, b, topo.LockSchema, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a held lock was taken, or the wait did not end: %v", err)
	}

	taken := make(chan error)
	var second *topo.HeldLock
	go func() {
		var err error
		second, err = topo.Lock(ctx, b, topo.LockSchema, time.Minute)
		taken <- err
	}()
	first.Unlock(ctx)
	<-first.Done()
	if err := <-taken; err != nil {
		t.Fatal(err)
	}

	// A holder that dies loses the lock, and knows it.
	b.ExpireLeases()
	<-second.Done()
	third, err := topo.Lock(ctx, a, topo.LockSchema, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	third.Unlock(ctx)
}

func TestLockWithoutStore(t *testing.T) {
	store := memtopo.NewServer().Connect()
	defer store.Close()
	store.Cut()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if _, err := topo.Lock(ctx, store, topo.LockSchema, time.Minute); !errors.Is(err, topo.ErrUnavailable) {
		t.Errorf("got %v, want it to be unavailable at once", err)
	}
}
