package etcdtopo

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.uber.org/zap"
)

// checkDatabase opens etcd's database for a moment: is it one, is it nobody else's, and has
// anything been written to it through etcd's log?
func checkDatabase(dir, path string, patience time.Duration) (used bool, err error) {
	// bbolt panics about pages that make no sense.
	defer func() {
		if p := recover(); p != nil {
			err = damaged(dir, fmt.Errorf("%v", p))
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: patience})
	if errors.Is(err, bolterrors.ErrTimeout) {
		return false, fmt.Errorf("etcd server: %s is in use by another process", dir)
	}
	if err != nil {
		return false, damaged(dir, err)
	}
	defer db.Close()
	file, err := os.Stat(path)
	if err != nil {
		return false, fmt.Errorf("etcd server: %w", err)
	}
	err = db.View(func(tx *bolt.Tx) error {
		// Reading mapped pages beyond the end of the file would kill the process.
		if tx.Size() > file.Size() {
			return damaged(dir, fmt.Errorf("%s has %d bytes, %d are missing", path, file.Size(), tx.Size()-file.Size()))
		}
		var first error
		for err := range tx.Check() { // read to the end, it comes from a goroutine
			if first == nil {
				first = damaged(dir, err)
			}
		}
		if meta := tx.Bucket([]byte("meta")); meta != nil && first == nil {
			used = len(bytes.Trim(meta.Get([]byte("consistent_index")), "\x00")) > 0
		}
		return first
	})
	return used, err
}

// checkLog reads etcd's log through. A last record that is cut is fine, since etcd drops it.
func checkLog(dir, wals string) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = damaged(dir, fmt.Errorf("log: %v", p))
		}
	}()
	snapshots, err := wal.ValidSnapshotEntries(zap.NewNop(), wals)
	if err == nil && len(snapshots) == 0 {
		err = wal.ErrSnapshotNotFound
	}
	if err == nil {
		_, err = wal.Verify(zap.NewNop(), wals, snapshots[len(snapshots)-1])
	}
	if err != nil {
		return damaged(dir, fmt.Errorf("log: %w", err))
	}
	return nil
}
