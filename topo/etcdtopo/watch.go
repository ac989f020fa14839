package etcdtopo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pgshoal/pgshoal/topo"
)

// rewatchDelay is the pause before a watch that etcd ended is made again.
const rewatchDelay = 100 * time.Millisecond

// Watch implements topo.Store.
func (s *Store) Watch(ctx context.Context, prefix string) <-chan topo.Event {
	w := &watch{store: s, prefix: prefix, events: make(chan topo.Event)}
	if !s.start(func() { w.run(ctx) }) {
		close(w.events)
	}
	return w.events
}

type watch struct {
	store  *Store
	prefix string
	events chan topo.Event
	away   bool // the reader was told that etcd is away
}

var errCompacted = errors.New("the history that the watch needs is gone")

// run watches again and again until ctx or the store ends. Each round begins with everything,
// so nothing has to be remembered from one to the next.
func (w *watch) run(ctx context.Context) {
	defer close(w.events)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.store.ctx, cancel)()
	for {
		err := w.round(ctx)
		if ctx.Err() != nil {
			return
		}
		if errors.Is(err, errCompacted) {
			continue
		}
		if !w.away && !w.send(ctx, topo.Event{Err: err}) {
			return
		}
		w.away = true
		if !w.awaitHealth(ctx) {
			return
		}
	}
}

// round tells everything and then the changes, until it cannot go on.
func (w *watch) round(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	flip, err := w.store.health.state()
	if err != nil {
		return err
	}
	// As patient as the heartbeat, so that the reader learns of an outage as soon.
	patient, done := context.WithTimeout(ctx, 3*w.store.config.Heartbeat)
	snap, err := w.store.List(patient, w.prefix)
	done()
	if err != nil {
		return err
	}
	w.send(ctx, topo.Event{Revision: snap.Revision, Full: true, Puts: snap.Entries})
	w.away = false
	opened, wait := w.open(ctx, snap.Revision+1)
	defer func() { cancel(); wait() }()
	var changes clientv3.WatchChan
	for {
		select {
		case changes = <-opened:
		case r, ok := <-changes:
			switch {
			case !ok:
				return fmt.Errorf("watch %s: %w: etcd ended it", w.prefix, topo.ErrUnavailable)
			case r.CompactRevision != 0:
				return errCompacted
			case r.Err() != nil:
				return w.store.failed("watch", w.prefix, r.Err())
			case len(r.Events) > 0:
				w.send(ctx, w.event(r))
			}
		case <-flip:
			_, err := w.store.health.state()
			if err == nil { // it came back before we looked
				err = fmt.Errorf("watch %s: %w for a moment", w.prefix, topo.ErrUnavailable)
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// open begins to watch from a revision on. The client waits until etcd has confirmed a watch, and
// when etcd goes away just then it would wait until it is back, so it does that on the side.
func (w *watch) open(ctx context.Context, revision int64) (opened chan clientv3.WatchChan, wait func()) {
	opened = make(chan clientv3.WatchChan, 1)
	var side sync.WaitGroup
	side.Go(func() {
		opened <- w.store.client.Watch(clientv3.WithRequireLeader(ctx), w.store.prefix+w.prefix,
			clientv3.WithPrefix(), clientv3.WithRev(revision))
	})
	return opened, side.Wait
}

// event turns a response, which may span several revisions, into the last state of each key.
func (w *watch) event(r clientv3.WatchResponse) topo.Event {
	e := topo.Event{Revision: r.Events[len(r.Events)-1].Kv.ModRevision}
	last := make(map[string]*clientv3.Event, len(r.Events))
	for _, ev := range r.Events {
		last[string(ev.Kv.Key)] = ev
	}
	for _, ev := range r.Events {
		if last[string(ev.Kv.Key)] != ev {
			continue
		}
		key := string(ev.Kv.Key[len(w.store.prefix):])
		if ev.Type == mvccpb.DELETE {
			e.Deletes = append(e.Deletes, key)
			continue
		}
		e.Puts = append(e.Puts, topo.Entry{Key: key, Value: ev.Kv.Value, Revision: ev.Kv.ModRevision})
	}
	return e
}

func (w *watch) send(ctx context.Context, e topo.Event) bool {
	select {
	case w.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

// awaitHealth waits while the heartbeat says that etcd is away, and a little in any case.
func (w *watch) awaitHealth(ctx context.Context) bool {
	pause := time.After(rewatchDelay)
	for {
		flip, err := w.store.health.state()
		if err == nil {
			break
		}
		select {
		case <-flip:
		case <-ctx.Done():
			return false
		}
	}
	select {
	case <-pause:
	case <-ctx.Done():
		return false
	}
	return true
}
