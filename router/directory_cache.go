package router

import (
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/pgshoal/pgshoal/keyspace"
)

const (
	// cachedEntries bounds how many entries of directories a router remembers, over all directories: about
	// 170 MB with keys of 30 bytes, when as many are in use.
	cachedEntries = 1 << 20
	cacheStripes  = 16
)

// directoryCache remembers entries of directories. What is not there is asked for, and unknown keys are not remembered:
// another router may be assigning them just now.
type directoryCache struct {
	seed    maphash.Seed
	size    int // of a stripe
	stripes [cacheStripes]cacheStripe
}

// cacheStripe is a part of the cache with a lock of its own. A clock decides what is forgotten: an entry that was used since the
// hand passed it stays for one more round.
type cacheStripe struct {
	mu    sync.RWMutex
	slots []cachedEntry
	index map[entryKey]int32
	hand  int
}

type entryKey struct {
	distribution uint32
	key          string
}

type cachedEntry struct {
	key     entryKey
	version uint64 // of the directory
	entry   uint64
	used    atomic.Bool
}

func (c *directoryCache) init(size int) {
	c.seed, c.size = maphash.MakeSeed(), max(1, size/cacheStripes)
}

func (c *directoryCache) stripe(key []byte) *cacheStripe {
	return &c.stripes[maphash.Bytes(c.seed, key)%cacheStripes]
}

// get finds an entry of the directory as this map has it; it allocates nothing.
func (c *directoryCache) get(d *keyspace.Distribution, key []byte) (uint64, bool) {
	s := c.stripe(key)
	s.mu.RLock()
	defer s.mu.RUnlock()
	i, ok := s.index[entryKey{d.ID, string(key)}]
	if !ok || s.slots[i].version != d.Directory.Version {
		return 0, false
	}
	slot := &s.slots[i]
	if !slot.used.Load() {
		slot.used.Store(true)
	}
	return slot.entry, true
}

// put remembers what was read under a version of the directory, unless something newer is known.
func (c *directoryCache) put(d *keyspace.Distribution, key []byte, entry uint64) {
	s := c.stripe(key)
	k := entryKey{d.ID, string(key)}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index == nil { // a router without directories needs none
		s.index = map[entryKey]int32{}
	}
	i, known := s.index[k]
	switch {
	case known && s.slots[i].version > d.Directory.Version:
		return
	case !known && len(s.slots) < c.size:
		i = int32(len(s.slots))
		s.slots = append(s.slots, cachedEntry{})
	case !known:
		i = s.evict()
	}
	s.index[k] = i
	slot := &s.slots[i]
	slot.key, slot.version, slot.entry = k, d.Directory.Version, entry
	slot.used.Store(false)
}

// evict frees the slot of an entry that nobody used for a round of the clock.
func (s *cacheStripe) evict() int32 {
	for {
		i := s.hand
		s.hand = (s.hand + 1) % len(s.slots)
		if s.slots[i].used.Swap(false) {
			continue
		}
		delete(s.index, s.slots[i].key)
		return int32(i)
	}
}
