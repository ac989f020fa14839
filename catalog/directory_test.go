package catalog_test

import (
	"strings"
	"testing"
)

// TestEntriesWaitForChanges prepares a change of an entry: until it is decided nobody reads the old one.
func TestEntriesWaitForChanges(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	bootstrap(t, server, 0)
	conn, reader := connect(t, server, "", ""), connect(t, server, "", "")
	run(t, conn, `CREATE TABLE t (k text); SELECT pg_shoal.set_table('t', 'distributed', 7, '{k}'); INSERT INTO pg_shoal.directory VALUES (7, '\x01', 10), (8, '\x01', 20)`)
	const read = `SELECT entry FROM pg_shoal.entries(7, ARRAY['\x01', '\x02']::bytea[])`
	if got := one[int64](t, reader, read); got != 10 {
		t.Errorf("the entry is %d", got)
	}
	run(t, conn, `BEGIN; SELECT pg_shoal.set_entry(7, '\x01', 11); PREPARE TRANSACTION 'change'`)
	run(t, reader, `SET lock_timeout = '50ms'`)
	if _, err := reader.Exec(testContext(t), read); err == nil || !strings.Contains(err.Error(), "55P03") {
		t.Errorf("an entry that is being changed was read: %v", err)
	}
	if got := one[int64](t, reader, `SELECT entry FROM pg_shoal.entries(8, ARRAY['\x01']::bytea[])`); got != 20 {
		t.Errorf("the entry of another directory is %d", got)
	}
	run(t, conn, `COMMIT PREPARED 'change'`)
	if got := one[int64](t, reader, read); got != 11 {
		t.Errorf("the entry is %d", got)
	}
}
