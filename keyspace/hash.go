package keyspace

import (
	"encoding/binary"
	"math/bits"
)

// HashSeed is the seed of the first extended hash of a key; its next column has the hash before it as the seed. The
// functions below are PostgreSQL's on little-endian servers (every platform that PostgreSQL is packaged for except
// s390x).
const HashSeed = 0

// jenkins is the state of Bob Jenkins' lookup3 as PostgreSQL uses it. The number of bytes must be known
// before the first.
type jenkins struct{ a, b, c uint32 }

func newJenkins(length int, seed uint64) jenkins {
	const golden, arbitrary = 0x9e3779b9, 3923095
	start := uint32(length) + (golden+arbitrary)&0xffffffff
	j := jenkins{start, start, start}
	if seed != 0 {
		j.a += uint32(seed >> 32)
		j.b += uint32(seed)
		j.mix()
	}
	return j
}

func (j *jenkins) mix() {
	a, b, c := j.a, j.b, j.c
	a = (a - c) ^ bits.RotateLeft32(c, 4)
	c += b
	b = (b - a) ^ bits.RotateLeft32(a, 6)
	a += c
	c = (c - b) ^ bits.RotateLeft32(b, 8)
	b += a
	a = (a - c) ^ bits.RotateLeft32(c, 16)
	c += b
	b = (b - a) ^ bits.RotateLeft32(a, 19)
	a += c
	c = (c - b) ^ bits.RotateLeft32(b, 4)
	b += a
	j.a, j.b, j.c = a, b, c
}

func (j *jenkins) final() uint64 {
	a, b, c := j.a, j.b, j.c
	c = (c ^ b) - bits.RotateLeft32(b, 14)
	a = (a ^ c) - bits.RotateLeft32(c, 11)
	b = (b ^ a) - bits.RotateLeft32(a, 25)
	c = (c ^ b) - bits.RotateLeft32(b, 16)
	a = (a ^ c) - bits.RotateLeft32(c, 4)
	b = (b ^ a) - bits.RotateLeft32(a, 14)
	c = (c ^ b) - bits.RotateLeft32(b, 24)
	return uint64(b)<<32 | uint64(c)
}

const chunkSize = 12

func (j *jenkins) chunk(k *[chunkSize]byte) {
	j.a += binary.LittleEndian.Uint32(k[0:])
	j.b += binary.LittleEndian.Uint32(k[4:])
	j.c += binary.LittleEndian.Uint32(k[8:])
	j.mix()
}

// rest adds the last 0 to 11 bytes. The lowest byte of c stays free for the length, as lookup3 wants it.
func (j *jenkins) rest(k []byte) uint64 {
	var last [chunkSize]byte
	if len(k) > 8 {
		copy(last[9:], k[8:])
		k = k[:8]
	}
	copy(last[:8], k)
	j.a += binary.LittleEndian.Uint32(last[0:])
	j.b += binary.LittleEndian.Uint32(last[4:])
	j.c += binary.LittleEndian.Uint32(last[8:])
	return j.final()
}

// hashBytes is hash_any_extended: text with a deterministic collation, bytea, uuid, the digits of numeric.
func hashBytes(k []byte, seed uint64) uint64 {
	j := newJenkins(len(k), seed)
	for len(k) >= chunkSize {
		j.chunk((*[chunkSize]byte)(k))
		k = k[chunkSize:]
	}
	return j.rest(k)
}

// hashUint32 is hash_uint32_extended.
func hashUint32(v uint32, seed uint64) uint64 {
	j := newJenkins(4, seed)
	j.a += v
	return j.final()
}

// hashInt64 is hashint8extended. It folds the high half in so that equal int2, int4 and int8 values agree:
// for a value that fits 32 bits the folded half is all zeros.
func hashInt64(v int64, seed uint64) uint64 {
	high := uint32(uint64(v) >> 32)
	if v < 0 {
		high = ^high
	}
	return hashUint32(uint32(v)^high, seed)
}

// byteHasher is hashBytes for bytes that come one at a time; their number is known before.
type byteHasher struct {
	state jenkins
	buf   [chunkSize]byte
	n     int
}

func newByteHasher(length int, seed uint64) byteHasher {
	return byteHasher{state: newJenkins(length, seed)}
}

func (h *byteHasher) add(b byte) {
	h.buf[h.n] = b
	h.n++
	if h.n == chunkSize {
		h.state.chunk(&h.buf)
		h.n = 0
	}
}

func (h *byteHasher) sum() uint64 { return h.state.rest(h.buf[:h.n]) }

// Point returns where a hash falls in a hash distribution's space: biased so that unsigned order of points
// is signed order of hashes, which is how PostgreSQL compares them.
func Point(hash uint64) uint64 { return hash ^ 1<<63 }
