package control

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgshoal/pgshoal/topo"
)

const (
	// enoughLoad is how many sampled statements decide where a shard is cut by load.
	enoughLoad = 100
	// loadTimeout is how long a router has to say what it has sampled.
	loadTimeout = 5 * time.Second
)

// shardLoad is what a router has seen of a shard.
type shardLoad struct {
	sampled int
	median  []byte // nil: all statements were about one key
}

// medianLoad asks all routers what statements were about, and returns the point that has about half of them on each side.
func (c *Controller) medianLoad(ctx context.Context, id uint32) ([]byte, error) {
	_, d, at, err := c.shard(ctx, id)
	if err != nil {
		return nil, err
	}
	routers, err := topo.Members(ctx, c.store, topo.RoleRouter)
	if err != nil {
		return nil, err
	}
	var seen []shardLoad
	var failed error
	sampled := 0
	for _, r := range routers {
		l, err := c.askLoad(ctx, r, d.Database, id)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("router %s: %w", r.Name, err))
			continue
		}
		seen, sampled = append(seen, l), sampled+l.sampled
	}
	if failed != nil {
		if len(seen) == 0 {
			return nil, conflict("Split it by size, or at a value.", "no router says what statements were about: %v", failed)
		}
		c.log.Warn("a shard is split without the load of all routers", "shard", id, "error", failed)
	}
	if sampled < enoughLoad {
		return nil, conflict("Split it by size, or try again when more statements have named their key.",
			"%d statements on shard %d were sampled, and %d are needed", sampled, id, enoughLoad)
	}
	low, high := d.Interval(at)
	seen = slices.DeleteFunc(seen, func(l shardLoad) bool { // a router may know another map
		return l.median == nil || bytes.Compare(l.median, low) <= 0 || high != nil && bytes.Compare(l.median, high) >= 0
	})
	if len(seen) == 0 {
		return nil, conflict("A key is never split; move it to a shard of its own with pgshoal shard isolate.",
			"all %d sampled statements on shard %d are about one key", sampled, id)
	}
	return middleOf(seen), nil
}

// middleOf is the median of what routers say, each with its weight.
func middleOf(seen []shardLoad) []byte {
	slices.SortFunc(seen, func(a, b shardLoad) int { return bytes.Compare(a.median, b.median) })
	all := 0
	for _, l := range seen {
		all += l.sampled
	}
	below := 0
	for _, l := range seen {
		if below += l.sampled; 2*below >= all {
			return l.median
		}
	}
	return seen[len(seen)-1].median
}

// askLoad reads a shard's line of SHOW shoal.load.
func (c *Controller) askLoad(ctx context.Context, r topo.Member, database string, id uint32) (shardLoad, error) {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	access := c.cfg.Access
	access.SSLMode, access.CA = "prefer", "" // the router's TLS is not the nodes'
	cfg, err := access.config([]string{r.Address}, database, "any")
	if err != nil {
		return shardLoad{}, err
	}
	cfg.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return shardLoad{}, err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SHOW shoal.load")
	if err != nil {
		return shardLoad{}, err
	}
	var l shardLoad
	var shard, distribution, node, sampled, rate, median, point string
	_, err = pgx.ForEachRow(rows, []any{&shard, &distribution, &node, &sampled, &rate, &median, &point}, func() error {
		if shard != strconv.FormatUint(uint64(id), 10) {
			return nil
		}
		var err error
		if l.sampled, err = strconv.Atoi(sampled); err == nil && point != "" {
			l.median, err = hex.DecodeString(point)
		}
		return err
	})
	return l, err
}
