package pool

import (
	"context"
	"fmt"
	"slices"
	"time"
)

const (
	// checkEvery is how often each server of a node is asked how far behind it is.
	checkEvery = time.Second
	// checkTimeout bounds one check with its login; a server that takes longer is not used.
	checkTimeout = 2 * time.Second
	// watchFor is how long servers are watched after the last use of a replica, when no Monitor guards them.
	watchFor = int64(30 * time.Second)
)

// lend lets the servers be asked with a client's login, unless there is a better one. s.mu is held.
func (s *replicas) lend(key Key, creds Credentials) {
	if s.node.pool.cfg.Monitor.Role == "" {
		s.client = &login{key: key, creds: creds}
	}
}

// watch notes the use of a replica and has the servers watched that are not. s.mu is held.
func (s *replicas) watch() {
	p := s.node.pool
	s.used = p.now()
	for _, r := range s.members {
		if !r.watched {
			r.watched, r.checked = true, false
			w := &watcher{replica: r, pool: p, freshAt: -1}
			p.tasks.Go(w.run)
		}
	}
}

// guard has the servers watched all the time: only so is a primary noticed that another one outranks
// and that goes on as if nothing had happened. It needs a login of its own.
func (s *replicas) guard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guarded() {
		s.watch()
	}
}

func (s *replicas) guarded() bool {
	return s.node.pool.cfg.Monitor.Role != "" && len(s.members) > 1 && s.ended == nil
}

// unwatched reports whether watching r can end because nobody reads from replicas, and ends it.
func (s *replicas) unwatched(r *replica) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.guarded() || s.node.pool.now()-s.used < watchFor || slices.ContainsFunc(s.members, (*replica).inUse) {
		return false
	}
	r.watched, r.checked, r.standing = false, false, standing{}
	s.client = nil
	return true
}

func (r *replica) inUse() bool {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	return r.server.total > r.server.idle
}

// learn notes what is known about r now, and why it is not used if it is not.
func (s *replicas) learn(r *replica, now standing, why error) {
	limit := s.node.pool.cfg.MaxStaleness
	s.mu.Lock()
	if r.life.Err() != nil {
		now = standing{}
	}
	was := r.standing
	first := !r.checked
	r.standing, r.checked = now, true
	s.tell()
	s.mu.Unlock()
	log := s.node.pool.log.With("node", s.node.name, "address", r.address)
	switch {
	case now.standby && (first || !was.standby):
		log.Info("a replica can be used", "lag", now.lag)
	case !now.standby && was.standby:
		log.Info("a replica cannot be used any more", "error", why)
	case now.within(limit) != was.within(limit):
		log.Info("a replica's lag crossed the limit", "lag", now.lag, "limit", limit)
	}
	if !now.standby {
		r.server.vacate()
	}
}

// login is how the servers are asked; nil while there is none that they accept.
func (s *replicas) login() *login {
	if m := s.node.pool.cfg.Monitor; m.Role != "" {
		return &login{Key{Node: s.node.name, Role: m.Role, Database: m.Database, Replica: true}, m.Credentials}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.client
}

// reject forgets a client's login that a server did not accept; the next client lends its own.
func (s *replicas) reject(l *login) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == l {
		s.client = nil
	}
}

// watcher checks one server again and again on a connection of its own, which no limit counts.
type watcher struct {
	replica *replica
	pool    *Pool
	conn    *Conn
	freshAt int64 // pool time at which the server had everything; -1 when it never had
}

func (w *watcher) run() {
	r := w.replica
	ticker := time.NewTicker(checkEvery)
	defer ticker.Stop()
	defer w.hangUp()
	for {
		now, err := w.check()
		if r.life.Err() != nil {
			return
		}
		r.set.learn(r, now, err)
		select {
		case <-r.life.Done():
			return
		case <-ticker.C:
		}
		if r.set.unwatched(r) {
			return
		}
	}
}

func (w *watcher) check() (standing, error) {
	ctx, cancel := context.WithTimeout(w.replica.life, checkTimeout)
	defer cancel()
	asked := w.pool.now()
	said, err := w.ask(ctx)
	if err != nil {
		w.hangUp()
		w.freshAt = -1 // it may come back as another server
		return standing{}, err
	}
	if said.primary {
		w.replica.set.node.outrank(w.replica.address, said.timeline)
	}
	fresh, err := w.replica.set.compare(w.replica, said)
	if err != nil {
		w.freshAt = -1
		return standing{}, fmt.Errorf("%s: %w", w.replica.address, err)
	}
	if fresh {
		w.freshAt = asked
		return standing{standby: true}, nil
	}
	lag := said.behind
	if w.freshAt >= 0 {
		// The last transaction may be long ago only because the primary was quiet until now.
		lag = min(lag, time.Duration(w.pool.now()-w.freshAt))
	}
	return standing{standby: true, lag: lag}, nil
}

func (w *watcher) ask(ctx context.Context) (report, error) {
	if w.conn == nil {
		l := w.replica.set.login()
		if l == nil {
			return report{}, errNoLogin
		}
		b, err := w.pool.dial(ctx, w.replica.address, l.key, l.creds)
		if err != nil {
			if !passes(err, 2) {
				w.replica.set.reject(l)
			}
			return report{}, err
		}
		w.conn = &Conn{Backend: b, Key: l.key, TxStatus: 'I'}
	}
	return w.pool.examine(ctx, w.conn)
}

func (w *watcher) hangUp() {
	if w.conn != nil {
		w.conn.close()
		w.conn = nil
	}
}
