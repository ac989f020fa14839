package memtopo_test

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"github.com/pgshoal/pgshoal/topo"
	"github.com/pgshoal/pgshoal/topo/memtopo"
	"github.com/pgshoal/pgshoal/topo/topotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type service struct{ *memtopo.Server }

func (s service) Connect(t *testing.T) (topo.Store, topotest.Link) {
	store := s.Server.Connect()
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store, store
}

func (s service) Compact(*testing.T) { s.Server.Compact() }

func TestConformance(t *testing.T) {
	start := func(*testing.T) topotest.Service { return service{memtopo.NewServer()} }
	topotest.Run(t, start, synctest.Test)
}
