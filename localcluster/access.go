package localcluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// grants are the permissions that `up` gave PostgreSQL's user on directories it did not create.
type grants struct {
	Said []string // one line for people, for each grant
	undo []func() error
}

// revoke takes back what was granted, the last grant first.
func (g *grants) revoke() error {
	var errs []error
	for _, undo := range slices.Backward(g.undo) {
		errs = append(errs, undo())
	}
	g.undo = nil
	return errors.Join(errs...)
}

// openPath lets PostgreSQL's user pass through every directory above dir; mktemp -d and home
// directories are closed to others. Nobody else gains anything.
func openPath(dir string, a account) (*grants, error) {
	g := new(grants)
	if !a.drop {
		return g, nil
	}
	for _, parent := range ancestors(dir) {
		if err := g.open(parent, a); err != nil {
			return g, errors.Join(err, g.revoke())
		}
	}
	if err := a.canEnter(dir); err != nil {
		return g, errors.Join(closedPath(dir, a, err), g.revoke())
	}
	return g, nil
}

// ancestors lists dir and all directories above it, the root first.
func ancestors(dir string) []string {
	list := []string{dir}
	for dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		list = append(list, dir)
	}
	slices.Reverse(list)
	return list
}

func (g *grants) open(dir string, a account) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("stat %s: no owner known", dir)
	}
	before, err := readACL(dir)
	if err != nil {
		return err
	}
	list := aclFromMode(info.Mode())
	if before != nil {
		if list, err = parseACL(before); err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
	}
	if list.maySearch(a.uid, a.gid, stat.Uid, stat.Gid) {
		return nil
	}
	err = syscall.Setxattr(dir, aclAttribute, list.withSearch(a.uid).encode(), 0)
	if err == nil {
		g.Said = append(g.Said, fmt.Sprintf("user %s may now pass through %s (an ACL entry with search permission only)", a.name, dir))
		g.undo = append(g.undo, func() error { return restoreACL(dir, before, info.Mode()) })
		return nil
	}
	if !insideTemp(dir) {
		return closedPath(dir, a, err)
	}
	if err := os.Chmod(dir, info.Mode()|0o001); err != nil {
		return closedPath(dir, a, err)
	}
	g.Said = append(g.Said, fmt.Sprintf("all users may now pass through %s (chmod o+x; its file system has no ACLs)", dir))
	g.undo = append(g.undo, func() error { return os.Chmod(dir, info.Mode()) })
	return nil
}

// readACL returns nil when the directory has only its mode.
func readACL(dir string) ([]byte, error) {
	buf := make([]byte, 64<<10)
	n, err := syscall.Getxattr(dir, aclAttribute, buf)
	switch {
	case errors.Is(err, syscall.ENODATA), errors.Is(err, syscall.ENOTSUP):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the access control list of %s: %w", dir, err)
	}
	return buf[:n], nil
}

func restoreACL(dir string, before []byte, mode fs.FileMode) error {
	if before != nil {
		return syscall.Setxattr(dir, aclAttribute, before, 0)
	}
	// Without an own list the mode says all; the mask had taken the place of its group bits.
	return errors.Join(syscall.Removexattr(dir, aclAttribute), os.Chmod(dir, mode))
}

func insideTemp(dir string) bool {
	temp, err := filepath.EvalSymlinks(os.TempDir())
	return err == nil && strings.HasPrefix(dir, temp+string(filepath.Separator))
}

func closedPath(dir string, a account, cause error) error {
	return &Problem{
		Sentence: fmt.Sprintf("PostgreSQL runs as user %s, who may not pass through %s", a.name, dir),
		Way:      fmt.Sprintf("allow it with setfacl -m u:%s:x %s, or choose another directory with --dir", a.name, dir),
		Cause:    cause,
	}
}

// canEnter asks the kernel: a process of that user is started in the directory.
func (a account) canEnter(dir string) error {
	cmd := exec.Command("/bin/true")
	cmd.Dir, cmd.SysProcAttr = dir, a.attributes()
	return cmd.Run()
}
