package pool

import (
	"testing"

	"github.com/pgshoal/pgshoal/shardtest"
)

// BenchmarkAcquireRelease is the part of the pool in every statement.
func BenchmarkAcquireRelease(b *testing.B) {
	pg := shardtest.StartPostgres(b)
	for name, cfg := range map[string]Config{"default": {}, "probe always": {CheckAfter: -1}} {
		b.Run(name, func(b *testing.B) {
			p := newPool(b, cfg, pg.Address())
			p.Release(acquire(b, p))
			b.ReportAllocs()
			for b.Loop() {
				c, err := p.Acquire(b.Context(), super, Credentials{})
				if err != nil {
					b.Fatal(err)
				}
				p.Release(c)
			}
		})
	}
}

func BenchmarkAcquireReleaseParallel(b *testing.B) {
	p := newSilent(b, Config{})
	defer p.Close()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c, err := p.Acquire(b.Context(), alice, Credentials{})
			if err != nil {
				b.Error(err)
				return
			}
			p.Release(c)
		}
	})
}

func TestAcquireReleaseAllocatesNothing(t *testing.T) {
	p := newSilent(t, Config{})
	defer p.Close()
	p.Release(mustAcquire(t, p, alice))
	if n := testing.AllocsPerRun(1000, func() {
		c, err := p.Acquire(t.Context(), alice, Credentials{})
		if err != nil {
			t.Fatal(err)
		}
		p.Release(c)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
