package simulate

import (
	"context"
	"errors"
	"math"
	"runtime"

	"golang.org/x/sync/errgroup"
)

// tally is what one shard holds. Numbers are whole, so that sums do not depend on which worker came first.
type tally struct {
	rows, bytes uint64
	heat        uint64 // how often its keys are asked for, in units of 1/heatUnit
}

// heatUnit leaves room for the sum over ten billion keys.
const heatUnit = 1 << 30

// counts is what all shards hold and get.
type counts struct {
	shards []tally
	total  tally
	// inserts are new rows by shard, where new keys are not like the old ones; or nil.
	inserts      []tally
	totalInserts tally
	writes       float64
	popular      bool
}

func count(ctx context.Context, cfg *Config, src source, how *routing) (*counts, error) {
	c := &counts{writes: cfg.Writes, popular: cfg.Popularity > 0}
	var err error
	if c.shards, c.total, err = tallyRows(ctx, cfg, src, how); err != nil {
		return nil, err
	}
	if later := src.later(); later != nil && cfg.Writes > 0 {
		if c.inserts, c.totalInserts, err = tallyRows(ctx, cfg, later, how); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// load is the part of all statements that a shard gets.
func (c *counts) load(shard int) float64 {
	t := c.shards[shard]
	reads := float64(t.rows) / float64(c.total.rows)
	if c.popular {
		reads = float64(t.heat) / float64(c.total.heat)
	}
	if c.inserts == nil {
		return reads
	}
	return (1-c.writes)*reads + c.writes*float64(c.inserts[shard].rows)/float64(c.totalInserts.rows)
}

func tallyRows(ctx context.Context, cfg *Config, src source, how *routing) (shards []tally, total tally, err error) {
	next, stop, err := src.feed()
	if err != nil {
		return nil, tally{}, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	weigh := newWeigher(cfg, src)
	workers := make([][]tally, min(runtime.GOMAXPROCS(0), 1+int(src.rows()/(16*blockSize))))
	group, ctx := errgroup.WithContext(ctx)
	for w := range workers {
		group.Go(func() error {
			workers[w] = make([]tally, how.shards)
			b := new(block)
			for {
				if more, err := next(b); err != nil || !more {
					return err
				}
				if err := ctx.Err(); err != nil {
					return err
				}
				how.find(b)
				weigh.add(workers[w], b)
			}
		})
	}
	if err := group.Wait(); err != nil {
		return nil, tally{}, err
	}
	shards = workers[0]
	for _, other := range workers[1:] {
		for i, t := range other {
			shards[i].rows += t.rows
			shards[i].bytes += t.bytes
			shards[i].heat += t.heat
		}
	}
	for _, t := range shards {
		total.rows += t.rows
		total.bytes += t.bytes
		total.heat += t.heat
	}
	return shards, total, nil
}

// weigher knows how large a row is and how popular a key.
type weigher struct {
	sizes    [1024]uint64 // rows' sizes, of which each row has one by chance
	seed     uint64
	exponent float64
	// A key's rank is its index times a stride, modulo the count: each rank once, and popular keys lie anywhere.
	stride, count uint64
}

func newWeigher(cfg *Config, src source) *weigher {
	w := &weigher{seed: cfg.Seed, exponent: cfg.Popularity, count: src.rows(), stride: 1}
	// Sizes follow a log-normal law, as those of rows with texts often do: a few are many times the average.
	for i := range w.sizes {
		quantile := math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(len(w.sizes))-1)
		w.sizes[i] = max(1, uint64(math.Round(float64(cfg.RowBytes)*math.Exp(quantile-0.5))))
	}
	for stride := uint64(0.6180339887 * float64(w.count)); stride > 1; stride-- {
		if commonDivisor(stride, w.count) == 1 {
			w.stride = stride
			break
		}
	}
	return w
}

func (w *weigher) add(shards []tally, b *block) {
	for i, shard := range b.shard[:b.n] {
		t := &shards[shard]
		t.rows++
		t.bytes += w.sizes[mix((b.first+uint64(i))*golden+w.seed)>>54]
		if w.exponent > 0 {
			rank := mulMod(b.index[i], w.stride, w.count)
			t.heat += uint64(heatUnit * math.Pow(float64(rank+1), -w.exponent))
		}
	}
}
