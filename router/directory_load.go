package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pgwire"
)

// What makes a shard the least loaded one.
const (
	assignByRows   = "rows"
	assignByBytes  = "bytes"
	assignByWeight = "weight"
)

const (
	// loadAge is how long what was read about the load is good for; reading it may take a hundredth of the time.
	loadAge = 10 * time.Second
	// narrow is the width of a shard that was cut for some keys: a new key would share a point with them.
	narrow = 1 << 32
)

// directoryLoads knows how loaded the shards of directories are.
type directoryLoads struct {
	mu   sync.Mutex
	byID map[uint32]*directoryLoad
}

// of returns the load of a directory, read not long ago. Who gets it has it for himself until he unlocks it.
func (l *directoryLoads) of(ctx context.Context, r *Router, m *keyspace.Map, d *keyspace.Distribution) *directoryLoad {
	l.mu.Lock()
	if l.byID == nil {
		l.byID = map[uint32]*directoryLoad{}
	}
	load := l.byID[d.ID]
	if load == nil {
		load = &directoryLoad{}
		l.byID[d.ID] = load
	}
	l.mu.Unlock()
	load.mu.Lock()
	if load.d != d && (load.d == nil || !slices.EqualFunc(load.d.Shards, d.Shards, sameShard)) || time.Since(load.read) > max(loadAge, 100*load.took) {
		load.refresh(ctx, r, m, d)
	}
	return load
}

func sameShard(a, b keyspace.Shard) bool { return a.ID == b.ID && a.Node == b.Node }

// directoryLoad is what one directory's nodes and shards carry. Shards of one node share its tables, so rows and bytes are
// known per node only; among its shards the one with the fewest keys is the least loaded.
type directoryLoad struct {
	mu      sync.Mutex
	d       *keyspace.Distribution
	read    time.Time
	took    time.Duration
	weights map[string]float64 // of the nodes that can get keys
	nodes   map[string]float64 // rows, bytes or keys
	shards  []int64            // keys, by the index of the shard
	perKey  float64            // what a key brings along on average
}

// refresh reads the load of all nodes. A node that does not answer gets no keys for now.
func (l *directoryLoad) refresh(ctx context.Context, r *Router, m *keyspace.Map, d *keyspace.Distribution) {
	began := time.Now()
	l.d, l.read = d, began
	l.weights, l.nodes, l.shards = map[string]float64{}, map[string]float64{}, make([]int64, len(d.Shards))
	var mu sync.Mutex
	var g errgroup.Group
	for _, n := range m.NodesActive() {
		g.Go(func() error {
			load, keys, err := r.nodeLoad(ctx, n.Name, d)
			if err != nil {
				r.log.Warn("cannot read the load of a node, it gets no new keys for now", "node", n.Name, "error", err)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			l.weights[n.Name], l.nodes[n.Name] = n.Weight, load
			for i, k := range keys {
				l.shards[i] += k
			}
			return nil
		})
	}
	_ = g.Wait()
	total, keys := 0.0, int64(0)
	if d.Directory.AssignBy == assignByWeight {
		clear(l.nodes)
	}
	for i, k := range l.shards {
		keys += k
		if d.Directory.AssignBy == assignByWeight {
			l.nodes[d.Shards[i].Node] += float64(k)
		}
	}
	for _, load := range l.nodes {
		total += load
	}
	l.perKey = max(1, total/float64(max(1, keys)))
	l.took = time.Since(began)
}

// nodeLoad reads what a node has of a directory's rows and which of its entries; the rows are PostgreSQL's running estimate.
func (r *Router) nodeLoad(ctx context.Context, node string, d *keyspace.Distribution) (load float64, keys map[int]int64, err error) {
	measure := "pg_catalog.pg_stat_get_live_tuples(p.relid)"
	if d.Directory.AssignBy == assignByBytes {
		measure = "pg_catalog.pg_total_relation_size(p.relid)"
	}
	bounds := make([]string, 0, len(d.Shards))
	for i := 1; i < len(d.Shards); i++ {
		first, _ := d.EntriesOf(i)
		bounds = append(bounds, strconv.FormatInt(catalog.StoreEntry(first), 10))
	}
	sql := fmt.Sprintf(`SELECT -1, coalesce(sum(%s), 0)::bigint FROM pg_shoal.tables t,
			LATERAL (SELECT t.relid UNION SELECT relid FROM pg_catalog.pg_partition_tree(t.relid)) p WHERE t.distribution = %d
		UNION ALL SELECT pg_catalog.width_bucket(entry, '{%s}'::bigint[]), count(*) FROM pg_shoal.directory WHERE distribution = %d GROUP BY 1`,
		measure, d.ID, strings.Join(bounds, ","), d.ID)
	conn, err := r.service(ctx, node, d.Database)
	if err != nil {
		return 0, nil, err
	}
	defer r.pool.Release(conn)
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return 0, nil, err
	}
	keys = map[int]int64{}
	for _, row := range rows {
		shard, _ := strconv.Atoi(string(row[0]))
		n, _ := strconv.ParseInt(string(row[1]), 10, 64)
		if shard < 0 {
			load = float64(n)
			continue
		}
		keys[shard] = n
	}
	return load, keys, nil
}

// choose finds the least loaded shard, on the given node if there is one, and makes an entry in it for a new key that brings some load along.
func (l *directoryLoad) choose(node string, amount float64) (uint64, error) {
	best := -1
	for i := range l.d.Shards {
		s := &l.d.Shards[i]
		if _, usable := l.weights[s.Node]; !usable || node != "" && s.Node != node {
			continue
		}
		if best < 0 || l.before(i, best) {
			best = i
		}
	}
	if best < 0 {
		if node != "" {
			return 0, pgwire.Errorf("55000", "node %q has no shard of this directory, or does not answer", node).
				WithHint("SHOW shoal.shards shows the shards and their nodes.")
		}
		return 0, pgwire.Errorf("55000", "no active node has a shard for a new key")
	}
	l.nodes[l.d.Shards[best].Node] += amount
	l.shards[best]++
	return entryIn(l.d, best), nil
}

// before reports that shard i should get a key rather than shard j.
func (l *directoryLoad) before(i, j int) bool {
	a, b := &l.d.Shards[i], &l.d.Shards[j]
	_, wa := l.d.EntriesOf(i)
	_, wb := l.d.EntriesOf(j)
	if na, nb := wa-1 < narrow, wb-1 < narrow; na != nb {
		return nb
	}
	if x, y := l.nodes[a.Node]/l.weights[a.Node], l.nodes[b.Node]/l.weights[b.Node]; x != y {
		return x < y
	}
	return l.shards[i] < l.shards[j]
}

// entryIn makes an entry inside a shard. Entries are random, so that each key has its own and shards can be cut between any two.
func entryIn(d *keyspace.Distribution, shard int) uint64 {
	first, width := d.EntriesOf(shard)
	if width == 0 {
		return rand.Uint64()
	}
	return first + rand.Uint64N(width)
}
