package simulate

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/pgshoal/pgshoal/keyspace"
)

// blockSize is how many keys a worker takes at once: they stay in the cache between the steps.
const blockSize = 4096

// block is some keys, in the forms in which strategies look at them.
type block struct {
	first uint64 // number of the first row
	n     int
	// index says which key it is: equal keys have equal ones.
	index [blockSize]uint64
	// order compares like the keys do.
	order [blockSize]uint64
	// point is PostgreSQL's hash of the key, as a point of a hash distribution.
	point [blockSize]uint64
	shard [blockSize]uint32
	// lines are those of a file, and ends where they end.
	lines []byte
	ends  [blockSize]int
}

// feed hands the next keys out, to several workers at once; false is the end.
type feed func(*block) (bool, error)

// source makes keys, the same every time.
type source interface {
	rows() uint64
	// feed starts over. Its second answer must be called at the end.
	feed() (feed, func() error, error)
	// distinct says that no key comes twice, so that index is the row's number.
	distinct() bool
	// keys is how many different keys there are.
	keys() uint64
	// later returns the keys that come after all others, for sources where new keys are always the highest; or nil.
	later() source
	// sample returns order values of about that many rows, spread evenly over all.
	sample(count int) ([]uint64, error)
}

func newSource(cfg *Config) (source, error) {
	if cfg.Dist.Kind == fromFile {
		return newFileSource(cfg)
	}
	g := &generated{kind: cfg.Dist.Kind, seed: cfg.Seed, last: cfg.Keys, total: cfg.Keys, different: cfg.Keys}
	if g.kind == zipfian {
		g.different = min(cfg.Distinct, cfg.Keys)
		g.zipf = newZipf(cfg.Dist.Exponent, g.different)
	}
	return g, nil
}

// generated is keys that are computed from the row's number.
type generated struct {
	kind        kind
	seed        uint64
	start, last uint64 // row numbers
	total       uint64 // rows, without those that come later
	different   uint64
	zipf        *zipf
}

func (g *generated) rows() uint64   { return g.last - g.start }
func (g *generated) distinct() bool { return g.kind != zipfian }
func (g *generated) keys() uint64   { return g.different }

func (g *generated) later() source {
	if g.kind != sequential && g.kind != timestamps {
		return nil
	}
	next := *g
	next.start, next.last = g.last, g.last+max(g.rows()/10, 1)
	return &next
}

func (g *generated) feed() (feed, func() error, error) {
	var taken atomic.Uint64
	return func(b *block) (bool, error) {
		b.first = g.start + (taken.Add(1)-1)*blockSize
		if b.first >= g.last {
			return false, nil
		}
		b.n = int(min(blockSize, g.last-b.first))
		return true, g.fill(b)
	}, func() error { return nil }, nil
}

func (g *generated) fill(b *block) error {
	var random *rand.Rand
	if g.zipf != nil {
		random = rand.New(rand.NewPCG(g.seed, b.first))
	}
	var data [8]byte
	for i := range b.n {
		row := b.first + uint64(i)
		b.index[i] = row
		if random != nil {
			b.index[i] = g.zipf.draw(random)
		}
		value := g.value(b.index[i])
		binary.BigEndian.PutUint64(data[:], uint64(value))
		hash, err := keyspace.HashBinary(keyspace.Int8, keyspace.Int8, data[:])
		if err != nil {
			return err
		}
		b.order[i], b.point[i] = uint64(value)^1<<63, keyspace.Point(hash)
	}
	return nil
}

// value is the key itself; timestamps are PostgreSQL's microseconds, which it hashes as the integers they are.
func (g *generated) value(index uint64) int64 {
	switch g.kind {
	case uniform:
		return int64(mix(g.seed*golden + index))
	case timestamps:
		return g.moment(index)
	default:
		return int64(index) + 1
	}
}

// moment spreads rows over a year in which nights are quiet.
func (g *generated) moment(index uint64) int64 {
	const days, microsecondsOfDay, start = 365, 86_400_000_000, 24 * 365 * 86_400_000_000
	at := float64(index) / float64(g.total) * days
	// The wave's slope stays below that of the line, so that time never goes back.
	wave := 0.8 / (2 * math.Pi) * math.Sin(2*math.Pi*at)
	return start + int64((at+wave)*microsecondsOfDay)
}

func (g *generated) sample(count int) ([]uint64, error) {
	count = int(min(uint64(count), g.rows()))
	values := make([]uint64, count)
	random := rand.New(rand.NewPCG(g.seed, math.MaxUint64))
	for i := range values {
		index := g.start + uint64(float64(i)/float64(count)*float64(g.rows()))
		if g.zipf != nil {
			index = g.zipf.draw(random)
		}
		values[i] = uint64(g.value(index)) ^ 1<<63
	}
	return values, nil
}

const golden = 0x9e3779b97f4a7c15

// mix is a bijection that looks like chance (the finaliser of splitmix64): distinct inputs stay distinct.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
