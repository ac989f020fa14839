package localcluster

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	stateProduct = "pgshoal local cluster"
	// stateFormat grows when a directory can no longer be read by older programs.
	stateFormat = 1
)

// State is what a cluster's directory remembers between two runs.
type State struct {
	Product string `json:"product"`
	Format  int    `json:"format"`
	// Cluster is the identity that the map and every node carry too.
	Cluster string `json:"cluster"`
	// Complete is false while the first start is under way.
	Complete   bool   `json:"complete"`
	PostgreSQL int    `json:"postgresql"` // major version of the data directories
	Account    string `json:"account"`    // the system user that owns them
	SocketDir  string `json:"socket_dir"`
	RouterPort int    `json:"router_port"`
	HTTP       string `json:"http"`
	EtcdPort   int    `json:"etcd_port"`
	UnsafeFast bool   `json:"unsafe_fast,omitempty"`
	Nodes      []Node `json:"nodes"`
}

// Node is a node of the local cluster: the server that began as its primary, then its replicas.
type Node struct {
	Name    string   `json:"name"`
	ID      int      `json:"id"`
	Servers []Server `json:"servers"`
}

// Server is one PostgreSQL server of a node.
type Server struct {
	Name string `json:"name"`
	Dir  string `json:"dir"` // data directory, relative to the cluster's
	Port int    `json:"port"`
}

func newState(nodes, replicas int) *State {
	s := &State{Product: stateProduct, Format: stateFormat, Cluster: strings.ToLower(rand.Text()[:16])}
	for i := range nodes {
		name := fmt.Sprintf("node%d", i+1)
		n := Node{Name: name, ID: i, Servers: []Server{{Name: name, Dir: filepath.Join("nodes", name, "data")}}}
		for r := range replicas {
			replica := fmt.Sprintf("replica%d", r+1)
			n.Servers = append(n.Servers, Server{Name: name + "-" + replica, Dir: filepath.Join("nodes", name, replica)})
		}
		s.Nodes = append(s.Nodes, n)
	}
	return s
}

func (s *State) serverCount() int {
	count := 0
	for _, n := range s.Nodes {
		count += len(n.Servers)
	}
	return count
}

func (s *State) replicas() int { return len(s.Nodes[0].Servers) - 1 }

// Address is how routers reach a server: its Unix socket where there is one.
func (s *State) Address(server Server) string {
	if s.SocketDir == "" {
		return fmt.Sprintf("127.0.0.1:%d", server.Port)
	}
	return fmt.Sprintf("%s:%d", s.SocketDir, server.Port)
}

// LoadState reads the description of the cluster in a directory. A directory that holds no cluster,
// or one this program cannot read, is a *Problem.
func LoadState(l Layout) (*State, error) {
	text, err := os.ReadFile(l.StateFile())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &Problem{
			Sentence: fmt.Sprintf("there is no cluster in %s", l.Dir),
			Way:      "create one with pgshoal up --dir " + l.Dir,
			Cause:    fs.ErrNotExist,
		}
	case errors.Is(err, fs.ErrPermission):
		return nil, &Problem{
			Sentence: fmt.Sprintf("the cluster in %s belongs to another user", l.Dir),
			Way:      "run the command as the user who started the cluster",
			Cause:    err,
		}
	case err != nil:
		return nil, fmt.Errorf("read the cluster's description: %w", err)
	}
	return parseState(l, text)
}

func parseState(l Layout, text []byte) (*State, error) {
	foreign := &Problem{
		Sentence: fmt.Sprintf("%s was not written by pgshoal", l.StateFile()),
		Way:      "choose another directory with --dir",
	}
	s := new(State)
	if err := json.Unmarshal(text, s); err != nil {
		foreign.Cause = err
		return nil, foreign
	}
	if s.Product != stateProduct {
		return nil, foreign
	}
	if s.Format != stateFormat {
		return nil, &Problem{
			Sentence: fmt.Sprintf("the cluster in %s has format %d, and this pgshoal reads format %d", l.Dir, s.Format, stateFormat),
			Way:      "use the pgshoal that created it, or another directory with --dir",
		}
	}
	if len(s.Nodes) == 0 || slices.ContainsFunc(s.Nodes, func(n Node) bool { return len(n.Servers) == 0 }) {
		foreign.Sentence = fmt.Sprintf("%s is damaged: it names a node without a server", l.StateFile())
		foreign.Way = "restore it from a backup, or choose another directory with --dir"
		return nil, foreign
	}
	return s, nil
}

func (s *State) save(l Layout) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(l.StateFile(), append(text, '\n'), 0o600)
}

// replaceFile writes a file so that readers see the old or the new content, never a part.
func replaceFile(path string, text []byte, mode fs.FileMode) error {
	return replaceFileAs(path, text, mode, os.Geteuid(), os.Getegid())
}

// replaceFileAs writes a file that belongs to another user. It follows no link that the user may
// have put into a directory of theirs.
func replaceFileAs(path string, text []byte, mode fs.FileMode, uid, gid int) error {
	temp := path + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if uid != os.Geteuid() {
		err = f.Chown(uid, gid)
	}
	if err == nil {
		_, err = f.Write(text)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return os.Rename(temp, path)
}

// directoryKind says what `up` found where the cluster shall live.
type directoryKind int

const (
	directoryMissing directoryKind = iota
	directoryEmpty
	directoryCluster    // complete
	directoryIncomplete // a first start that was cut off
)

// inspect tells what a directory is, and refuses those that belong to somebody else.
func inspect(l Layout) (directoryKind, *State, error) {
	entries, err := os.ReadDir(l.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return directoryMissing, nil, nil
	case err != nil:
		return 0, nil, &Problem{
			Sentence: fmt.Sprintf("%s cannot be used as a directory: %v", l.Dir, errors.Unwrap(err)),
			Way:      "choose another directory with --dir",
			Cause:    err,
		}
	case len(entries) == 0:
		return directoryEmpty, nil, nil
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	if len(names) == 1 && names[0] == filepath.Base(l.runDir()) {
		if _, err := os.Stat(l.lockFile()); err == nil {
			return directoryEmpty, nil, nil // somebody has just begun, or was cut off right then
		}
	}
	if !slices.Contains(names, filepath.Base(l.StateFile())) {
		return 0, nil, foreignDirectory(l, names)
	}
	s, err := LoadState(l)
	if err != nil {
		return 0, nil, err
	}
	if !s.Complete {
		return directoryIncomplete, s, nil
	}
	return directoryCluster, s, nil
}

func foreignDirectory(l Layout, names []string) error {
	what := fmt.Sprintf("%s is not empty and holds no pgshoal cluster", l.Dir)
	if slices.Contains(names, "PG_VERSION") {
		what = fmt.Sprintf("%s is the data directory of a PostgreSQL server, not of a pgshoal cluster", l.Dir)
	}
	return &Problem{Sentence: what, Way: "choose an empty or new directory with --dir"}
}

func readSecret(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read a secret of the cluster: %w", err)
	}
	return string(bytes.TrimSpace(text)), nil
}

func newSecret(path string) (string, error) {
	secret := strings.ToLower(rand.Text())
	if err := replaceFile(path, []byte(secret+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("write a secret of the cluster: %w", err)
	}
	return secret, nil
}
