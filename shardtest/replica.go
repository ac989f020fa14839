package shardtest

import (
	"os"
	"path/filepath"
	"strconv"
)

// StartReplica starts a streaming replica of the server, which lives as long as the test too. It has
// the settings of its primary and a port of its own.
func (p *Postgres) StartReplica() *Postgres {
	p.tb.Helper()
	root, err := os.MkdirTemp("", "pgshoal-")
	if err != nil {
		p.tb.Fatalf("start a replica: %v", err)
	}
	r := &Postgres{
		DataDir: filepath.Join(root, "data"), SocketDir: root, Version: p.Version,
		tb: p.tb, bin: p.bin, root: root, settings: p.settings,
	}
	r.startNew("pg_basebackup", "--pgdata="+r.DataDir, "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
		"--host="+p.SocketDir, "--port="+strconv.Itoa(p.Port), "--username="+superuser)
	return r
}

// Promote makes a replica a primary and waits until it is one.
func (p *Postgres) Promote() {
	p.tb.Helper()
	if err := p.tool("pg_ctl", "promote", "--pgdata="+p.DataDir, "--wait"); err != nil {
		p.tb.Fatalf("promote a replica: %v", err)
	}
}
