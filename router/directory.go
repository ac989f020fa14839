package router

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/pool"
)

// directory finds and makes the entries of directories, with the router's own role and in transactions of its own: a key's entry is
// durable before its first row.
type directory struct {
	cache directoryCache
	loads directoryLoads
}

// Entry finds a directory's entry for a key; with assign an unknown key gets one.
func (s *session) Entry(d *keyspace.Distribution, key []byte, assign bool) (uint64, bool, error) {
	if entry, ok := s.router.directory.cache.get(d, key); ok {
		return entry, true, nil
	}
	s.task.Detach()
	return s.router.entry(context.Background(), d, key, assign)
}

// Entry finds the entry for a row of COPY.
func (r *rowSender) Entry(d *keyspace.Distribution, key []byte, assign bool) (uint64, bool, error) {
	return r.session.Entry(d, key, assign)
}

func (r *Router) entry(ctx context.Context, d *keyspace.Distribution, key []byte, assign bool) (uint64, bool, error) {
	if d.Directory == nil {
		return 0, false, fmt.Errorf("distribution %d is no directory", d.ID)
	}
	if entry, ok := r.directory.cache.get(d, key); ok {
		return entry, true, nil
	}
	m := r.view.Load().m
	found, err := r.readEntries(ctx, m, d, [][]byte{key})
	if err != nil {
		return 0, false, err
	}
	if entry, known := found[string(key)]; known || !assign {
		return entry, known, nil
	}
	load := r.directory.loads.of(ctx, r, m, d)
	entry, err := load.choose("", load.perKey)
	load.mu.Unlock()
	if err != nil {
		return 0, false, err
	}
	found, err = r.assignEntries(ctx, m, d, []newEntry{{key, entry}})
	if err != nil {
		return 0, false, err
	}
	entry, known := found[string(key)]
	return entry, known, nil
}

// newEntry is an entry for a key that has none yet.
type newEntry struct {
	key   []byte
	entry uint64
}

// entryBatch is how many keys a node is asked for at once.
const entryBatch = 5000

// readEntries reads the entries of some keys and remembers them. Unknown keys are missing in the answer.
func (r *Router) readEntries(ctx context.Context, m *keyspace.Map, d *keyspace.Distribution, keys [][]byte) (map[string]uint64, error) {
	list := make([]newEntry, len(keys))
	for i, k := range keys {
		list[i].key = k
	}
	return r.onHolders(ctx, m, d, list, false)
}

// assignEntries gives keys their entries, unless somebody else has given them one, and returns what holds now.
func (r *Router) assignEntries(ctx context.Context, m *keyspace.Map, d *keyspace.Distribution, list []newEntry) (map[string]uint64, error) {
	return r.onHolders(ctx, m, d, list, true)
}

func (r *Router) onHolders(ctx context.Context, m *keyspace.Map, d *keyspace.Distribution, list []newEntry, insert bool) (map[string]uint64, error) {
	byNode := map[string][]newEntry{}
	for _, e := range list {
		node, err := m.EntryNode(d, e.key)
		if err != nil {
			return nil, err
		}
		byNode[node] = append(byNode[node], e)
	}
	found := make(map[string]uint64, len(list))
	for node, mine := range byNode {
		// In one order, so that two routers that make the same entries do not wait for each other in a circle.
		slices.SortFunc(mine, func(a, b newEntry) int { return bytes.Compare(a.key, b.key) })
		if err := r.onHolder(ctx, node, d, mine, insert, found); err != nil {
			return nil, err
		}
	}
	return found, nil
}

func (r *Router) onHolder(ctx context.Context, node string, d *keyspace.Distribution, mine []newEntry, insert bool, found map[string]uint64) error {
	conn, err := r.service(ctx, node, d.Database)
	if err != nil {
		return err
	}
	defer r.pool.Release(conn)
	for batch := range slices.Chunk(mine, entryBatch) {
		if insert {
			if err := insertEntries(ctx, conn, d, batch); err != nil {
				return err
			}
		}
		if err := r.selectEntries(ctx, conn, d, batch, found); err != nil {
			return err
		}
	}
	return nil
}

func insertEntries(ctx context.Context, conn *pool.Conn, d *keyspace.Distribution, batch []newEntry) error {
	entries := make([]string, len(batch))
	for i, e := range batch {
		entries[i] = strconv.FormatInt(catalog.StoreEntry(e.entry), 10)
	}
	_, err := conn.QueryParams(ctx, `INSERT INTO pg_shoal.directory SELECT $1::bigint, k, e FROM ROWS FROM (pg_catalog.unnest($2::bytea[]), pg_catalog.unnest($3::bigint[])) AS n(k, e)
		ON CONFLICT DO NOTHING`, distributionID(d), keyArray(batch), []byte("{"+strings.Join(entries, ",")+"}"))
	return err
}

// selectEntries reads what is committed, also by others who were faster.
func (r *Router) selectEntries(ctx context.Context, conn *pool.Conn, d *keyspace.Distribution, batch []newEntry, found map[string]uint64) error {
	rows, err := conn.QueryParams(ctx, `SELECT pg_catalog.encode(key, 'hex'), entry FROM pg_shoal.entries($1::bigint, $2::bytea[])`,
		distributionID(d), keyArray(batch))
	if err != nil {
		return err
	}
	for _, row := range rows {
		key, entry, err := readEntry(row)
		if err != nil {
			return err
		}
		r.directory.cache.put(d, key, entry)
		found[string(key)] = entry
	}
	return nil
}

// readEntry reads a key in hex and its entry.
func readEntry(row [][]byte) (key []byte, entry uint64, err error) {
	if key, err = hex.DecodeString(string(row[0])); err != nil {
		return nil, 0, err
	}
	stored, err := strconv.ParseInt(string(row[1]), 10, 64)
	return key, catalog.StoredEntry(stored), err
}

func distributionID(d *keyspace.Distribution) []byte {
	return []byte(strconv.FormatUint(uint64(d.ID), 10))
}

// keyArray writes keys as an array of bytea.
func keyArray(batch []newEntry) []byte {
	out := []byte{'{'}
	for i, e := range batch {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, `"\\x`...)
		out = append(hex.AppendEncode(out, e.key), '"')
	}
	return append(out, '}')
}
