package topo

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"github.com/pgshoal/pgshoal/keyspace"
)

// stored is the map as the store holds it.
type stored struct {
	records  map[string][]byte
	revision int64 // of the header
	header   *header
	m        *keyspace.Map
}

// LoadMap reads the map; ErrNotFound when the cluster is new.
func LoadMap(ctx context.Context, s Store) (*keyspace.Map, error) {
	st, err := load(ctx, s)
	if err != nil {
		return nil, err
	}
	return st.m, nil
}

func load(ctx context.Context, s Store) (*stored, error) {
	snap, err := s.List(ctx, prefixMap)
	if err != nil {
		return nil, fmt.Errorf("load map: %w", err)
	}
	st := &stored{records: make(map[string][]byte, len(snap.Entries))}
	p := newPicture()
	for _, e := range snap.Entries {
		st.records[e.Key] = e.Value
		if e.Key == keyHeader {
			st.revision = e.Revision
		}
		if err := p.put(e.Key, e.Value); err != nil {
			return nil, fmt.Errorf("load map: %w", err)
		}
	}
	st.header = p.header
	if st.m, err = p.assemble(); err != nil {
		return nil, fmt.Errorf("load map: %w", err)
	}
	return st, nil
}

// CreateMap writes the first map of a cluster; ErrExists when there is one. Its epoch is at
// least 1, because 0 means that a router has none.
func CreateMap(ctx context.Context, s Store, m *keyspace.Map) error {
	first := *m
	first.Epoch = max(first.Epoch, 1)
	records, _, err := prepare(&first, nil)
	if err != nil {
		return fmt.Errorf("create map: %w", err)
	}
	_, err = s.Txn(ctx, []Cond{Absent(keyHeader)}, changes(nil, records))
	if errors.Is(err, ErrConflict) {
		return fmt.Errorf("create map: the map %w", ErrExists)
	}
	if err != nil {
		return fmt.Errorf("create map: %w", err)
	}
	return nil
}

// UpdateMap changes the map: it gives edit the current one and stores what edit returns as the
// next epoch, whatever epoch edit gave it. When someone else was faster, edit runs again on the
// newer map, so it must not keep anything from an earlier run. An edit that returns the very map
// it was given changes nothing. UpdateMap returns the stored map. An error of edit comes back
// as it is.
func UpdateMap(ctx context.Context, s Store, edit func(*keyspace.Map) (*keyspace.Map, error)) (*keyspace.Map, error) {
	id := rand.Text()[:12]
	// Maps whose transaction got no answer, by epoch. At most one of them was stored.
	unanswered := map[uint64]*keyspace.Map{}
	for {
		cur, err := load(ctx, s)
		if err != nil {
			return nil, uncertain(err, unanswered)
		}
		if epoch, ok := cur.header.madeBy(id); ok {
			return unanswered[epoch], nil
		}
		for epoch := range unanswered {
			if cur.header.Epoch >= epoch+keptEdits {
				return nil, uncertain(errors.New("update map: too many edits by others since"), unanswered)
			}
		}
		edited, err := edit(cur.m)
		if err != nil {
			return nil, uncertain(err, unanswered)
		}
		if edited == cur.m {
			return cur.m, nil
		}
		next, err := store(ctx, s, cur, edited, id)
		switch {
		case err == nil:
			return next, nil
		case errors.Is(err, ErrConflict):
		case errors.Is(err, ErrUnavailable) && next != nil && ctx.Err() == nil:
			unanswered[next.Epoch] = next
		case errors.Is(err, ErrUnavailable) && next != nil:
			return nil, fmt.Errorf("update map: %w: %w", ErrUncertain, err)
		default:
			return nil, uncertain(fmt.Errorf("update map: %w", err), unanswered)
		}
	}
}

// uncertain marks an error that ends an update one of whose transactions got no answer.
func uncertain(err error, unanswered map[uint64]*keyspace.Map) error {
	if err == nil || len(unanswered) == 0 {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUncertain, err)
}

// store tries to make edited the successor of cur. With the map it tried to store it returns
// also what went wrong.
func store(ctx context.Context, s Store, cur *stored, edited *keyspace.Map, id string) (*keyspace.Map, error) {
	if edited == nil {
		return nil, errors.New("the edit returned no map")
	}
	next := *edited
	next.Epoch = cur.m.Epoch + 1
	edits := append(slices.Clone(cur.header.Edits), id)
	edits = edits[max(0, len(edits)-keptEdits):]
	records, m, err := prepare(&next, edits)
	if err != nil {
		return nil, err
	}
	_, err = s.Txn(ctx, []Cond{{keyHeader, cur.revision}}, changes(cur.records, records))
	return m, err
}

// prepare encodes a map and reads it back, so that no map is stored which could not be loaded,
// and the caller gets exactly what others will load.
func prepare(m *keyspace.Map, edits []string) (map[string][]byte, *keyspace.Map, error) {
	records, err := encodeMap(m, edits)
	if err != nil {
		return nil, nil, err
	}
	p := newPicture()
	for key, value := range records {
		if err := p.put(key, value); err != nil {
			return nil, nil, err
		}
	}
	back, err := p.assemble()
	return records, back, err
}

// changes returns the ops that turn the records of old into those of next.
func changes(old, next map[string][]byte) []Op {
	var ops []Op
	for key, value := range next {
		if before, ok := old[key]; !ok || !bytes.Equal(before, value) {
			ops = append(ops, Put(key, value))
		}
	}
	for key := range old {
		if _, ok := next[key]; !ok {
			ops = append(ops, Delete(key))
		}
	}
	return ops
}
