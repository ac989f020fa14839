package localcluster

import (
	"os"
	"path/filepath"
)

// Layout knows where a local cluster keeps its things below one directory.
type Layout struct {
	Dir string // absolute, without symbolic links
}

// NewLayout makes dir absolute. The directory need not exist yet.
func NewLayout(dir string) (Layout, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return Layout{}, err
	}
	// Links are followed as far as the path exists, because processes are recognised by their paths.
	var rest string
	for head := abs; ; {
		if real, err := filepath.EvalSymlinks(head); err == nil {
			return Layout{Dir: filepath.Join(real, rest)}, nil
		}
		parent := filepath.Dir(head)
		if parent == head {
			return Layout{Dir: abs}, nil
		}
		rest = filepath.Join(filepath.Base(head), rest)
		head = parent
	}
}

// DefaultDir is where `pgshoal up` works when it is not told.
func DefaultDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/pgshoal", nil
	}
	if data := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(data) {
		return filepath.Join(data, "pgshoal"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", &Problem{
			Sentence: "there is no home directory to keep the cluster in",
			Way:      "name a directory with --dir",
			Cause:    err,
		}
	}
	return filepath.Join(home, ".local", "share", "pgshoal"), nil
}

// StateFile describes the cluster: nodes and ports.
func (l Layout) StateFile() string { return filepath.Join(l.Dir, "cluster.json") }

// ConfigFile is the configuration that the cluster's routers and controllers read.
func (l Layout) ConfigFile() string { return filepath.Join(l.Dir, "pgshoal.yaml") }

// TokenFile holds the token that changes through the admin API need.
func (l Layout) TokenFile() string { return filepath.Join(l.Dir, "token") }

// EtcdDir holds the topology store's data.
func (l Layout) EtcdDir() string { return filepath.Join(l.Dir, "etcd") }

// LogFile is where the named process writes.
func (l Layout) LogFile(name string) string { return filepath.Join(l.logDir(), name+".log") }

func (l Layout) logDir() string             { return filepath.Join(l.Dir, "log") }
func (l Layout) runDir() string             { return filepath.Join(l.Dir, "run") }
func (l Layout) secretsDir() string         { return filepath.Join(l.Dir, "secrets") }
func (l Layout) nodesDir() string           { return filepath.Join(l.Dir, "nodes") }
func (l Layout) lockFile() string           { return filepath.Join(l.runDir(), "up.lock") }
func (l Layout) readyFile() string          { return filepath.Join(l.runDir(), "ready") }
func (l Layout) pidFile(name string) string { return filepath.Join(l.runDir(), name+".pid") }
func (l Layout) superuserFile() string      { return filepath.Join(l.secretsDir(), "superuser") }
func (l Layout) serviceFile() string        { return filepath.Join(l.secretsDir(), "service") }
func (l Layout) dataDir(s Server) string    { return filepath.Join(l.Dir, s.Dir) }

// entries are the names that a local cluster creates directly below its directory; cleaning up a
// failed first start removes these and nothing else.
func (l Layout) entries() []string {
	return []string{
		l.StateFile(), l.ConfigFile(), l.TokenFile(), l.EtcdDir(), l.logDir(), l.runDir(),
		l.secretsDir(), l.nodesDir(),
	}
}
