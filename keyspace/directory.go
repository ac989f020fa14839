package keyspace

import (
	"encoding/binary"
	"fmt"
)

// DirectoryFacts are what the map knows about a directory. The entries themselves can be many, so they are in PostgreSQL.
type DirectoryFacts struct {
	// Entries is the distribution of the table with the entries: the hash of a key says which node has its entry. Moving its
	// shards moves entries like any other rows.
	Entries uint32 `json:"entries"`
	// AssignBy is what makes a shard the least loaded one for a new key: rows, bytes or weight.
	AssignBy string `json:"assign_by"`
	// Version grows when an entry changes; whoever remembers entries of another version asks again.
	Version uint64 `json:"version"`
}

// CreateDirectory adds a directory, and, if the database has none yet, the distribution of its entries.
func (m *Map) CreateDirectory(database string, key Key, layout Layout, assignBy string) (*Map, *Distribution, error) {
	facts := DirectoryFacts{AssignBy: assignBy}
	for _, d := range m.Distributions {
		if d.Database == database && d.Directory != nil {
			facts.Entries = d.Directory.Entries
		}
	}
	epoch := m.Epoch
	if facts.Entries == 0 {
		next, entries, err := m.CreateDistribution(database, HashKey(Bytea), Layout{Shards: layout.Shards})
		if err != nil {
			return nil, nil, err
		}
		m, facts.Entries = next, entries.ID
	}
	next, d, err := m.CreateDistribution(database, key, layout)
	if err != nil {
		return nil, nil, err
	}
	d.Directory = &facts
	next.Epoch = epoch + 1
	return next, d, nil
}

// HoldsEntries reports the distribution of directories' entries, which no table of users joins.
func (m *Map) HoldsEntries(id uint32) bool {
	for _, d := range m.Distributions {
		if d.Directory != nil && d.Directory.Entries == id {
			return true
		}
	}
	return false
}

// ChangeEntries says that entries of a directory have changed.
func (m *Map) ChangeEntries(id uint32) (*Map, error) {
	i := m.distributionIndex(id)
	if i < 0 || m.Distributions[i].Directory == nil {
		return nil, fmt.Errorf("directory %d: %w", id, ErrNotFound)
	}
	next := m.edited()
	changed, facts := *m.Distributions[i], *m.Distributions[i].Directory
	facts.Version++
	changed.Directory = &facts
	next.Distributions[i] = &changed
	return next, nil
}

// EntryNode is the node that has a directory's entry for a key, given in its ordered encoding.
func (m *Map) EntryNode(d *Distribution, key []byte) (string, error) {
	if d.Directory == nil {
		return "", fmt.Errorf("distribution %d is no directory", d.ID)
	}
	entries := m.Distribution(d.Directory.Entries)
	if entries == nil {
		return "", fmt.Errorf("distribution %d, of a directory's entries: %w", d.Directory.Entries, ErrNotFound)
	}
	hash, err := HashBinary(Bytea, Bytea, key)
	if err != nil {
		return "", err
	}
	return entries.FindHash(Point(hash)).Node, nil
}

// EntriesOf returns the first entry of a directory's or a schema's shard and how many there are; 0 stands for all of them.
func (d *Distribution) EntriesOf(index int) (first, width uint64) {
	low, high := d.Interval(index)
	first = prefix(low)
	if high == nil {
		return first, -first
	}
	return first, prefix(high) - first
}

// FindEntry returns the index of the shard that an entry is in.
func (d *Distribution) FindEntry(entry uint64) int {
	var point [entrySize]byte
	binary.BigEndian.PutUint64(point[:], entry)
	return d.Find(point[:])
}

// FormatKey writes a key of a directory, given in its ordered encoding, in PostgreSQL's text format.
func (k *Key) FormatKey(key []byte) (string, error) {
	plain := Key{Types: k.Types, Dimensions: []Dimension{{Method: Range, Columns: []int{0}}}}
	values, err := plain.values(key)
	if err != nil {
		return "", err
	}
	if len(values) != 1 || values[0].after {
		return "", fmt.Errorf("%x is no key", key)
	}
	return values[0].text, nil
}
