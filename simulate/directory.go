package simulate

import (
	"context"
	"errors"
)

// directory has an entry for each key, made in the order in which keys come, on the shard that has the fewest rows then.
type directory struct {
	shards uint64
	// When no key comes twice, shards are filled in turns and need no entries here. Else they are found by the key's
	// index: in a slice where indexes are dense, in a map where they are not.
	dense  []uint32
	sparse map[uint64]uint32
	size   uint64
}

const noEntry = 1<<32 - 1

func newDirectory(ctx context.Context, src source, shards int) (d directory, err error) {
	d = directory{shards: uint64(shards), size: src.keys()}
	if src.distinct() {
		return d, nil
	}
	if g, ok := src.(*generated); ok {
		d.dense = make([]uint32, g.different)
		for i := range d.dense {
			d.dense[i] = noEntry
		}
	} else {
		d.sparse = map[uint64]uint32{}
	}
	next, stop, err := src.feed()
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	d.size = 0
	least := newFewest(shards)
	b := new(block)
	for {
		if more, err := next(b); err != nil || !more {
			return d, err
		}
		if err := ctx.Err(); err != nil {
			return d, err
		}
		for _, index := range b.index[:b.n] {
			shard, known := d.get(index)
			if !known {
				if shard, err = d.assign(index, least); err != nil {
					return d, err
				}
			}
			least.rows[shard]++
		}
	}
}

func (d *directory) assign(index uint64, least *fewest) (uint32, error) {
	shard := least.take()
	if d.dense != nil {
		d.dense[index] = shard
	} else {
		d.sparse[index] = shard
	}
	if d.size++; d.sparse != nil && d.size > maxEntries {
		return 0, wrong("dist", "the file has more than %d different keys, too many for a directory", maxEntries)
	}
	return shard, nil
}

func (d *directory) get(index uint64) (uint32, bool) {
	switch {
	case d.dense != nil:
		shard := d.dense[index]
		return shard, shard != noEntry
	case d.sparse != nil:
		shard, known := d.sparse[index]
		return shard, known
	}
	return uint32(index % d.shards), true
}

func (d *directory) find(b *block) {
	for i, index := range b.index[:b.n] {
		b.shard[i], _ = d.get(index)
	}
}

// fewest finds the shard with the fewest rows. Its heap may have too low numbers, because rows come without it being
// told; what is too low is corrected when it comes to the top.
type fewest struct {
	rows   []uint64
	queued []uint64 // the number of rows when a shard was last put in its place
	order  []uint32
}

func newFewest(shards int) *fewest {
	f := &fewest{rows: make([]uint64, shards), queued: make([]uint64, shards), order: make([]uint32, shards)}
	for i := range f.order {
		f.order[i] = uint32(i)
	}
	return f
}

func (f *fewest) take() uint32 {
	for {
		top := f.order[0]
		if f.queued[top] == f.rows[top] {
			return top
		}
		f.queued[top] = f.rows[top]
		f.sink()
	}
}

// sink moves the shard on top down to its place.
func (f *fewest) sink() {
	at := 0
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(f.order); child++ {
			if f.fewer(f.order[child], f.order[least]) {
				least = child
			}
		}
		if least == at {
			return
		}
		f.order[at], f.order[least] = f.order[least], f.order[at]
		at = least
	}
}

func (f *fewest) fewer(a, b uint32) bool {
	return f.queued[a] < f.queued[b] || f.queued[a] == f.queued[b] && a < b
}
