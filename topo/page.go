package topo

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/pgshoal/pgshoal/keyspace"
)

// Shards are stored in pages by id, so that an edit of one shard writes one page and a whole
// distribution of 10,000 shards fits one transaction.
const (
	pageShards = 128
	pageFormat = 1
)

// placed is a shard with the distribution it belongs to.
type placed struct {
	distribution uint32
	keyspace.Shard
}

var errPage = errors.New("damaged page of shards")

// encodePage writes a page: the names of its nodes once, then the shards in the order of their
// ids. Equal pages have equal bytes, which is how an edit finds out what it has to write.
func encodePage(page uint32, shards []placed) []byte {
	slices.SortFunc(shards, func(a, b placed) int { return int(int64(a.ID) - int64(b.ID)) })
	var nodes []string
	for _, s := range shards {
		nodes = append(nodes, s.Node)
	}
	slices.Sort(nodes)
	nodes = slices.Compact(nodes)

	b := []byte{pageFormat}
	b = binary.AppendUvarint(b, uint64(len(nodes)))
	for _, n := range nodes {
		b = appendBytes(b, []byte(n))
	}
	b = binary.AppendUvarint(b, uint64(len(shards)))
	for _, s := range shards {
		node, _ := slices.BinarySearch(nodes, s.Node)
		b = append(b, byte(s.ID-page*pageShards))
		b = binary.AppendUvarint(b, uint64(s.distribution))
		b = binary.AppendUvarint(b, uint64(node))
		b = appendBytes(b, s.Low)
	}
	return b
}

func appendBytes(b, v []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(v)))
	return append(b, v...)
}

// decodePage reads what encodePage wrote and nothing else: a page that does not encode to the
// same bytes again is refused.
func decodePage(page uint32, data []byte) ([]placed, error) {
	r := pageReader{rest: data}
	if f := r.byte(); f != pageFormat && r.err == nil {
		return nil, fmt.Errorf("%w: format %d is not known to this version", errPage, f)
	}
	nodes := make([]string, r.count())
	for i := range nodes {
		nodes[i] = string(r.bytes())
	}
	shards := make([]placed, r.count())
	for i := range shards {
		s := &shards[i]
		s.ID = page*pageShards + uint32(r.byte())
		s.distribution = r.uint32()
		node := r.uint32()
		s.Low = r.bytes()
		switch {
		case r.err != nil:
			return nil, r.err
		case int(node) >= len(nodes):
			return nil, fmt.Errorf("%w: shard %d has no node", errPage, s.ID)
		case s.ID/pageShards != page || i > 0 && s.ID <= shards[i-1].ID:
			return nil, fmt.Errorf("%w: shard %d is out of place", errPage, s.ID)
		}
		s.Node = nodes[node]
	}
	if r.err == nil && !bytes.Equal(encodePage(page, shards), data) {
		r.err = fmt.Errorf("%w: it has more in it than shards", errPage)
	}
	return shards, r.err
}

// pageReader reads fields until the first error and gives zero values after it.
type pageReader struct {
	rest []byte
	err  error
}

func (r *pageReader) fail() {
	if r.err == nil {
		r.err = fmt.Errorf("%w: it ends too early", errPage)
	}
	r.rest = nil
}

func (r *pageReader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

func (r *pageReader) uint32() uint32 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > 1<<32-1 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return uint32(v)
}

// count reads a number of things that take at least a byte each, so that damaged bytes cannot
// ask for more memory than they have.
func (r *pageReader) count() int {
	n := int(r.uint32())
	if n > len(r.rest) {
		r.fail()
		return 0
	}
	return n
}

// bytes returns a part of the page itself; a decoded page is never changed.
func (r *pageReader) bytes() []byte {
	n := r.count()
	v := r.rest[:n:n]
	r.rest = r.rest[n:]
	return v
}
