package simulate

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/pgshoal/pgshoal/keyspace"
)

// lookup measures how long it takes to find a key's node, as a router does it: hash the key, find the shard in memory,
// read its node.
type lookup struct {
	how    *routing
	blocks []*block
	texts  bool
	// table stands for the entries of a directory, with at most maxTable of them.
	table map[uint64]uint32
}

const lookupBlocks, maxTable = 32, 1 << 20

func newLookup(src source, how *routing) (l *lookup, err error) {
	l = &lookup{how: how}
	if file, ok := src.(*fileSource); ok {
		l.texts = file.texts
	}
	next, stop, err := src.feed()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	blocks := lookupBlocks
	if how.strategy == Directory {
		l.table, blocks = map[uint64]uint32{}, maxTable/blockSize
	}
	for range blocks {
		b := new(block)
		if more, err := next(b); err != nil {
			return nil, err
		} else if !more {
			break
		}
		if len(l.blocks) < lookupBlocks {
			l.blocks = append(l.blocks, b)
		}
		if l.table != nil {
			how.find(b)
			for i, point := range b.point[:b.n] {
				l.table[point] = b.shard[i]
			}
		}
	}
	return l, nil
}

// nanoseconds takes the best of some rounds, because what disturbs only makes it slower.
func (l *lookup) nanoseconds(owners []int32) float64 {
	best := 0.0
	for range 5 {
		keys, sum := 0, 0
		start := time.Now()
		for _, b := range l.blocks {
			l.hash(b)
			if l.table != nil {
				for i, point := range b.point[:b.n] {
					b.shard[i] = l.table[point]
				}
			} else {
				l.how.find(b)
			}
			for _, shard := range b.shard[:b.n] {
				sum += int(owners[shard])
			}
			keys += b.n
		}
		took := float64(time.Since(start).Nanoseconds()) / float64(max(keys, 1))
		if sum >= 0 && (best == 0 || took < best) {
			best = took
		}
	}
	return best
}

// hash repeats what a router has to do for each key, except where the key itself is the point.
func (l *lookup) hash(b *block) {
	if l.how.strategy == Range {
		return
	}
	var data [8]byte
	start := 0
	for i, order := range b.order[:b.n] {
		var hash uint64
		var err error
		if l.texts {
			hash, err = keyspace.HashText(keyspace.Text, keyspace.Text, b.lines[start:b.ends[i]])
			start = b.ends[i]
		} else {
			binary.BigEndian.PutUint64(data[:], order^1<<63)
			hash, err = keyspace.HashBinary(keyspace.Int8, keyspace.Int8, data[:])
		}
		if err == nil { // the source has hashed it before without an error
			b.point[i] = keyspace.Point(hash)
		}
	}
}
