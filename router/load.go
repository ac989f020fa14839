package router

import (
	"encoding/hex"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/pgshoal/pgshoal/exec"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

const (
	// sampleEvery is how many statements one sample stands for.
	sampleEvery = 32
	// loadSamples is how many samples are kept: the newest ones.
	loadSamples = 1 << 14
)

// load knows which keys statements were about, from samples. Its zero value is ready for use.
type load struct {
	mu      sync.Mutex
	samples []loadSample
	next    int // the oldest one, when all places are taken
}

type loadSample struct {
	distribution uint32
	at           time.Duration // of the router's life
	point        []byte
}

// sampleLoad notes now and then what key a statement is about.
func (s *session) sampleLoad(m *keyspace.Map, p *plan.Plan, values exec.Values) {
	if s.unsampled > 0 {
		s.unsampled--
		return
	}
	s.unsampled = rand.IntN(2*sampleEvery - 1) // not a fixed number: applications have rhythms of their own
	if len(p.Pins) == 0 {
		return
	}
	pin := &p.Pins[0]
	point, err := exec.KeyPoint(m.Distribution(pin.Distribution), pin, values, s)
	if err == nil && point != nil {
		s.router.load.add(loadSample{pin.Distribution, s.router.age(), point})
	}
}

func (l *load) add(sample loadSample) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.samples) < loadSamples {
		l.samples = append(l.samples, sample)
		return
	}
	l.samples[l.next] = sample
	l.next = (l.next + 1) % loadSamples
}

// of are the points of a distribution, by shard, and since when they were sampled.
func (l *load) of(d *keyspace.Distribution) (points map[int][][]byte, since time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	points = map[int][][]byte{}
	if len(l.samples) > 0 {
		since = l.samples[l.next%len(l.samples)].at
	}
	for _, x := range l.samples {
		if x.distribution == d.ID {
			shard := d.Find(x.point)
			points[shard] = append(points[shard], x.point)
		}
	}
	return points, since
}

// loadRows shows the load of each shard through this router, and where a cut would halve it.
func (r *Router) loadRows(m *keyspace.Map, database string) [][][]byte {
	var rows [][][]byte
	for _, d := range m.Distributions {
		if d.Database != database {
			continue
		}
		points, since := r.load.of(d)
		seconds := max((r.age() - since).Seconds(), 1)
		for i := range d.Shards {
			n := len(points[i])
			median := keyspace.Halve(points[i])
			rows = append(rows, row(strconv.FormatUint(uint64(d.Shards[i].ID), 10), strconv.FormatUint(uint64(d.ID), 10), d.Shards[i].Node,
				itoa(n), strconv.FormatFloat(float64(n*sampleEvery)/seconds, 'f', 1, 64), d.FormatBound(median), hex.EncodeToString(median)))
		}
	}
	return rows
}
