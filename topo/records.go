package topo

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/keyspace"
)

// The map is stored as several records, so that an edit writes only what it changes. The header
// is written by every edit and is what edits compare, so all records change as one.
const (
	prefixMap    = "map/"
	keyHeader    = prefixMap + "header"
	prefixNode   = prefixMap + "node/"
	prefixDist   = prefixMap + "dist/"
	prefixShards = prefixMap + "shards/"
)

const (
	mapFormat = 1
	// keptEdits is how many edits can pass before an editor whose transaction got no answer can
	// no longer find out whether it happened.
	keptEdits = 16
)

// header is the map without nodes and distributions. Edits are the ids of the latest edits; the
// last one made this epoch, the one before it the epoch before, and so on.
type header struct {
	Format int      `json:"format"`
	Edits  []string `json:"edits,omitempty"`
	// Records and Shards are how many there are in the whole map. Without a page of shards the
	// rest may still look like a map, in which the neighbours own what is missing.
	Records int `json:"records"`
	Shards  int `json:"shards"`
	keyspace.Map
}

// madeBy returns the epoch that the edit with this id made.
func (h *header) madeBy(edit string) (uint64, bool) {
	i := slices.Index(h.Edits, edit)
	if i < 0 {
		return 0, false
	}
	return h.Epoch - uint64(len(h.Edits)-1-i), true
}

// encodeMap turns a map into its records.
func encodeMap(m *keyspace.Map, edits []string) (map[string][]byte, error) {
	records := map[string][]byte{}
	put := func(key string, v any) error {
		data, err := json.Marshal(v)
		if err != nil {
			return fmt.Errorf("encode %s: %w", key, err)
		}
		records[key] = data
		return nil
	}
	h := header{Format: mapFormat, Edits: edits, Map: *m}
	h.Nodes, h.Distributions = nil, nil
	for _, n := range m.Nodes {
		if err := put(prefixNode+url.PathEscape(n.Name), n); err != nil {
			return nil, err
		}
	}
	pages := map[uint32][]placed{}
	for _, d := range m.Distributions {
		alone := *d
		alone.Shards = nil
		if err := put(prefixDist+strconv.FormatUint(uint64(d.ID), 10), &alone); err != nil {
			return nil, err
		}
		h.Shards += len(d.Shards)
		for _, s := range d.Shards {
			p := s.ID / pageShards
			pages[p] = append(pages[p], placed{d.ID, s})
		}
	}
	for p, shards := range pages {
		records[prefixShards+strconv.FormatUint(uint64(p), 10)] = encodePage(p, shards)
	}
	h.Records = len(records) + 1
	if err := put(keyHeader, &h); err != nil {
		return nil, err
	}
	return records, nil
}

// picture is the map in the making: the decoded records, one by one as they come. Follower
// keeps one, so that a change costs the decoding of what changed.
type picture struct {
	header *header
	nodes  map[string]keyspace.Node
	dists  map[string]*keyspace.Distribution
	pages  map[string][]placed
	// whole are the distributions with their shards; nil after a change of either.
	whole []*keyspace.Distribution
}

func newPicture() *picture {
	return &picture{
		nodes: map[string]keyspace.Node{},
		dists: map[string]*keyspace.Distribution{},
		pages: map[string][]placed{},
	}
}

func (p *picture) put(key string, value []byte) error {
	var err error
	p.touch(key)
	switch {
	case key == keyHeader:
		h := new(header)
		if err = json.Unmarshal(value, h); err == nil && h.Format != mapFormat {
			err = fmt.Errorf("the map has format %d, this version of pgshoal knows %d", h.Format, mapFormat)
		}
		p.header = h
	case strings.HasPrefix(key, prefixNode):
		var n keyspace.Node
		err = json.Unmarshal(value, &n)
		p.nodes[key] = n
	case strings.HasPrefix(key, prefixDist):
		d := new(keyspace.Distribution)
		err = json.Unmarshal(value, d)
		p.dists[key] = d
	case strings.HasPrefix(key, prefixShards):
		var page uint64
		if page, err = strconv.ParseUint(key[len(prefixShards):], 10, 32); err == nil {
			p.pages[key], err = decodePage(uint32(page), value)
		}
	default:
		err = fmt.Errorf("record is not known to this version of pgshoal")
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", key, err)
	}
	return nil
}

// touch gives up what was built from a record.
func (p *picture) touch(key string) {
	if strings.HasPrefix(key, prefixDist) || strings.HasPrefix(key, prefixShards) {
		p.whole = nil
	}
}

func (p *picture) remove(key string) {
	p.touch(key)
	if key == keyHeader {
		p.header = nil
	}
	delete(p.nodes, key)
	delete(p.dists, key)
	delete(p.pages, key)
}

// assemble builds the map from the records and checks it: a map that contradicts itself would
// send rows nowhere.
func (p *picture) assemble() (*keyspace.Map, error) {
	if p.header == nil {
		return nil, fmt.Errorf("map: %w", ErrNotFound)
	}
	if n := 1 + len(p.nodes) + len(p.dists) + len(p.pages); n != p.header.Records {
		return nil, fmt.Errorf("map: %d records instead of %d", n, p.header.Records)
	}
	if p.whole == nil {
		var err error
		if p.whole, err = p.distributions(); err != nil {
			return nil, err
		}
	}
	m := p.header.Map
	m.Nodes = slices.SortedFunc(maps.Values(p.nodes), func(a, b keyspace.Node) int {
		return cmp.Compare(a.Name, b.Name)
	})
	m.Distributions = slices.Clone(p.whole)
	if err := m.Validate(); err != nil {
		return nil, fmt.Errorf("map: %w", err)
	}
	return &m, nil
}

// distributions puts the shards of all pages into their distributions.
func (p *picture) distributions() ([]*keyspace.Distribution, error) {
	// New shards have higher ids, so in the order of their ids most are in order of points too,
	// which spares the sort below most of its work.
	pages := slices.SortedFunc(maps.Values(p.pages), func(a, b []placed) int {
		return cmp.Compare(firstID(a), firstID(b))
	})
	shards := map[uint32][]keyspace.Shard{}
	count := 0
	for _, page := range pages {
		count += len(page)
		for _, s := range page {
			shards[s.distribution] = append(shards[s.distribution], s.Shard)
		}
	}
	if count != p.header.Shards {
		return nil, fmt.Errorf("map: %d shards instead of %d", count, p.header.Shards)
	}
	var all []*keyspace.Distribution
	for _, d := range p.dists {
		whole := *d
		whole.Shards = shards[d.ID]
		delete(shards, d.ID)
		slices.SortFunc(whole.Shards, func(a, b keyspace.Shard) int { return bytes.Compare(a.Low, b.Low) })
		whole.Index()
		all = append(all, &whole)
	}
	for id := range shards {
		return nil, fmt.Errorf("map: shards of distribution %d, which does not exist", id)
	}
	slices.SortFunc(all, func(a, b *keyspace.Distribution) int { return cmp.Compare(a.ID, b.ID) })
	return all, nil
}

func firstID(page []placed) uint32 {
	if len(page) == 0 {
		return 0
	}
	return page[0].ID
}
