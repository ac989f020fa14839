package etcdtopo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/pgshoal/pgshoal/topo"
)

// listPage is how many keys one request of List asks for.
const listPage = 500

// Store is a topo.Store over an etcd client.
type Store struct {
	client *clientv3.Client
	prefix string
	config Config
	health *health

	ctx    context.Context // ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex // orders the start of work against Close
	closed bool
	work   sync.WaitGroup
}

var _ topo.Store = (*Store)(nil)

// Open returns a store. It does not wait for etcd, except that a user and password are checked
// at once: ErrUnavailable when nobody answers.
func Open(c Config) (*Store, error) {
	if err := c.validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   c.Endpoints,
		TLS:         c.TLS,
		Username:    c.User,
		Password:    c.Password,
		Context:     ctx,
		DialTimeout: c.RequestTimeout,
		// A peer that vanished without a word is found out by our own heartbeat; these let the
		// connection itself be given up and made again.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		PermitWithoutStream:  true,
		BackoffWaitBetween:   50 * time.Millisecond,
		Logger:               zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 2 * time.Second,
		})},
	})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("etcd at %s: %w", strings.Join(c.Endpoints, ", "), translate(err))
	}
	s := &Store{
		client: client, prefix: "/pgshoal/" + c.Cluster + "/", config: c,
		health: newHealth(), ctx: ctx, cancel: cancel,
	}
	s.work.Go(s.heartbeat)
	return s, nil
}

// Close implements topo.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.work.Wait()
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

// start runs a goroutine that Close waits for; false when the store is closed.
func (s *Store) start(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Go(f)
	return true
}

// request bounds a call by the store's own timeout and its life.
func (s *Store) request(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.config.RequestTimeout)
	stop := context.AfterFunc(s.ctx, cancel)
	return ctx, func() { stop(); cancel() }
}

// failed turns an error of the client into one of topo's.
func (s *Store) failed(op, key string, err error) error {
	if s.ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", op, key, topo.ErrClosed)
	}
	return fmt.Errorf("%s %s: etcd at %s: %w", op, key, strings.Join(s.config.Endpoints, ", "), translate(err))
}

// translate keeps the client's error as the reason; only what is known to have failed for a
// reason that lies in the request itself is not ErrUnavailable.
func translate(err error) error {
	var answer rpctypes.EtcdError
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return topo.ErrLeaseLost
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%w: %w", topo.ErrTooLarge, err)
	case errors.As(err, &answer) && permanent(answer):
		return err
	}
	return fmt.Errorf("%w: %w", topo.ErrUnavailable, err)
}

// permanent errors will be the same when the request is made again.
func permanent(err rpctypes.EtcdError) bool {
	for _, e := range []error{
		rpctypes.ErrAuthFailed, rpctypes.ErrPermissionDenied, rpctypes.ErrAuthNotEnabled,
		rpctypes.ErrUserEmpty, rpctypes.ErrUserNotFound, rpctypes.ErrNoSpace, rpctypes.ErrCorrupt,
		rpctypes.ErrCompacted,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// Get implements topo.Store.
func (s *Store) Get(ctx context.Context, key string) (topo.Entry, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	r, err := s.client.Get(ctx, s.prefix+key)
	if err != nil {
		return topo.Entry{}, s.failed("get", key, err)
	}
	if len(r.Kvs) == 0 {
		return topo.Entry{}, fmt.Errorf("get %s: %w", key, topo.ErrNotFound)
	}
	kv := r.Kvs[0]
	return topo.Entry{Key: key, Value: kv.Value, Revision: kv.ModRevision}, nil
}

// List implements topo.Store.
func (s *Store) List(ctx context.Context, prefix string) (topo.Snapshot, error) {
	ctx, cancel := s.request(ctx)
	defer cancel()
	for {
		snap, err := s.list(ctx, prefix)
		if errors.Is(err, rpctypes.ErrCompacted) {
			continue // between two pages; the next attempt reads a newer revision
		}
		if err != nil {
			return topo.Snapshot{}, s.failed("list", prefix, err)
		}
		return snap, nil
	}
}

func (s *Store) list(ctx context.Context, prefix string) (topo.Snapshot, error) {
	var snap topo.Snapshot
	from, end := s.prefix+prefix, clientv3.GetPrefixRangeEnd(s.prefix+prefix)
	for {
		r, err := s.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(listPage), clientv3.WithRev(snap.Revision))
		if err != nil {
			return topo.Snapshot{}, err
		}
		if snap.Revision == 0 {
			snap.Revision = r.Header.Revision
			s.health.saw(r.Header)
		}
		for _, kv := range r.Kvs {
			snap.Entries = append(snap.Entries, topo.Entry{
				Key: string(kv.Key[len(s.prefix):]), Value: kv.Value, Revision: kv.ModRevision,
			})
		}
		if !r.More {
			return snap, nil
		}
		from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	}
}

// Txn implements topo.Store.
func (s *Store) Txn(ctx context.Context, conds []topo.Cond, ops []topo.Op) (int64, error) {
	if err := topo.CheckTxn(conds, ops); err != nil {
		return 0, err
	}
	cmps := make([]clientv3.Cmp, len(conds))
	for i, c := range conds {
		cmps[i] = clientv3.Compare(clientv3.ModRevision(s.prefix+c.Key), "=", c.Revision)
	}
	thens := make([]clientv3.Op, len(ops))
	for i, op := range ops {
		thens[i] = s.op(op)
	}
	ctx, cancel := s.request(ctx)
	defer cancel()
	r, err := s.client.Txn(ctx).If(cmps...).Then(thens...).Commit()
	if err != nil {
		return 0, s.failed("write", describe(ops), err)
	}
	if !r.Succeeded {
		return 0, fmt.Errorf("write %s: %w", describe(ops), topo.ErrConflict)
	}
	return r.Header.Revision, nil
}

func (s *Store) op(op topo.Op) clientv3.Op {
	if op.Delete {
		return clientv3.OpDelete(s.prefix + op.Key)
	}
	var opts []clientv3.OpOption
	if op.Lease != nil {
		opts = append(opts, clientv3.WithLease(clientv3.LeaseID(op.Lease.ID())))
	}
	return clientv3.OpPut(s.prefix+op.Key, string(op.Value), opts...)
}

func describe(ops []topo.Op) string {
	switch len(ops) {
	case 0:
		return "nothing"
	case 1:
		return ops[0].Key
	}
	return fmt.Sprintf("%s and %d more", ops[0].Key, len(ops)-1)
}

// Healthy implements topo.Store.
func (s *Store) Healthy(ctx context.Context) error {
	ctx, cancel := s.request(ctx)
	defer cancel()
	if _, err := s.client.Get(ctx, s.prefix+healthKey, clientv3.WithCountOnly()); err != nil {
		return s.failed("read", healthKey, err)
	}
	return nil
}
