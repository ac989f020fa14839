package torture

import (
	"context"
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

var (
	duration = flag.Duration("time", 6*time.Second, "how long parts are hurt")
	seed     = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the faults")
)

// TestTorture is the whole story.
func TestTorture(t *testing.T) {
	if testing.Short() {
		t.Skip("kills clusters for seconds")
	}
	started := time.Now()
	c := startCluster(t, *seed)
	c.execute(schema...)
	t.Logf("seed %d; the cluster was up after %v", *seed, time.Since(started).Round(time.Millisecond))
	ctx, stop := context.WithTimeout(t.Context(), *duration)
	defer stop()
	b := &bank{dsns: c.dsns, seed: *seed}
	f := newFaults(c, *seed)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() { b.client(ctx, w, b.transfer) })
	}
	group.Go(func() { b.client(ctx, workers, b.read) })
	group.Go(func() { b.client(ctx, workers+1, b.readAll) })
	var mu sync.Mutex
	var longest, strictly, oldest time.Duration
	watching, stopWatching := context.WithCancel(t.Context())
	defer stopWatching()
	var watchers sync.WaitGroup
	for _, n := range c.nodes {
		watchers.Go(func() {
			f.watch(watching, n, func(age, nodes, all time.Duration) {
				mu.Lock()
				defer mu.Unlock()
				longest, strictly, oldest = max(longest, all), max(strictly, nodes), max(oldest, age)
			})
		})
	}
	f.run(ctx)
	group.Wait()
	settled := f.awaitSettled()
	stopWatching()
	watchers.Wait()
	t.Logf("faults: %v", f)
	t.Logf("longest settlement %v (%v with controllers that were hurt meanwhile, %v with nodes that were down); the last %v after everything was up again",
		longest.Round(time.Millisecond), strictly.Round(time.Millisecond), oldest.Round(time.Millisecond), settled.Round(time.Millisecond))
	if longest > settleLimit || settled > settleLimit {
		t.Errorf("settling took longer than %v", settleLimit)
	}
	b.judge(t, c)
}

// judge looks for everything that must not be.
func (b *bank) judge(t *testing.T, c *cluster) {
	t.Helper()
	l := c.ledger(t)
	p := b.check(l)
	t.Logf("transfers: tried %d, committed %d, failed %d, in doubt at the client %d, deadlocks broken %d",
		len(b.transfers), b.count(committed), b.count(failed), b.count(unknown), b.deadlocks)
	t.Logf("lost %d, duplicated %d, half %d, revived %d; sides that a node committed after the client was told: %d, at most %v later",
		p.lost, p.doubled, p.half, p.revived, p.late, p.latest.Round(time.Millisecond))
	if p.any() {
		t.Errorf("problems: %+v", p)
	}
	torn, example := b.halves(l)
	t.Logf("atomic reads: %d right, %d with a wrong sum, %d with half a transfer, %d not answered (%d because snapshots did not agree)",
		len(b.pictures)-max(torn, b.wrongSums), b.wrongSums, torn, b.unread, b.disagreed)
	if torn > 0 || b.wrongSums > 0 {
		t.Errorf("atomic reads saw halves: %s", example)
	}
	history := b.history(l)
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(account, history, 2*time.Minute)
	t.Logf("%d operations on %d accounts (%d reads): linearizable %s, checked in %v", len(history), accounts, len(b.points), result, time.Since(began).Round(time.Millisecond))
	if result == porcupine.Illegal {
		t.Error("an account is not linearizable")
	}
	if b.count(committed) == 0 || len(b.points) == 0 || len(b.pictures) == 0 && *duration > 20*time.Second {
		t.Error("nothing was tested")
	}
}
