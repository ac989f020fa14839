package localcluster

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// account is the system user that runs PostgreSQL, which refuses to run as root.
type account struct {
	name     string
	uid, gid uint32
	drop     bool // this process is root and must become the user
}

func chooseAccount() (account, error) {
	if os.Geteuid() != 0 {
		name := strconv.Itoa(os.Geteuid())
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
		return account{name: name, uid: uint32(os.Geteuid()), gid: uint32(os.Getegid())}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		if a, err := lookupAccount(name); err == nil {
			return a, nil
		}
	}
	return account{}, &Problem{
		Sentence: "PostgreSQL does not run as root, and this machine has neither a user postgres nor nobody",
		Way:      "create one with useradd --system postgres, or run pgshoal as an ordinary user",
	}
}

func lookupAccount(name string) (account, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return account{}, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return account{}, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return account{}, err
	}
	return account{name: name, uid: uint32(uid), gid: uint32(gid), drop: true}, nil
}

// accountOf is the user that the servers of an existing cluster belong to. A cluster is run by the
// user who created it, because the next run by that user must find its files writable.
func accountOf(l Layout, s *State) (account, error) {
	owner, err := ownerOf(l.StateFile())
	if err != nil {
		return account{}, err
	}
	if owner != os.Geteuid() {
		return account{}, &Problem{
			Sentence: fmt.Sprintf("the cluster in %s belongs to the user with id %d", l.Dir, owner),
			Way:      "run the command as that user, or choose another directory with --dir",
		}
	}
	if owner != 0 {
		return chooseAccount()
	}
	a, err := lookupAccount(s.Account)
	if err != nil {
		return account{}, &Problem{
			Sentence: fmt.Sprintf("the nodes in %s belong to user %s, who is no longer on this machine", l.Dir, s.Account),
			Way:      "create that user again, or choose another directory with --dir",
			Cause:    err,
		}
	}
	return a, nil
}

func ownerOf(path string) (int, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, fmt.Errorf("%s: no owner known", path)
	}
	return int(stat.Uid), nil
}

// attributes start a process as the user, in its own session: the terminal's Ctrl-C and hang-up are
// for the supervisor, which stops the parts in their order.
func (a account) attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setsid: true}
	if a.drop {
		attr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	return attr
}

// makeDir creates a directory that belongs to the user. The one above it must not: otherwise the
// user could put a link in its place.
func (a account) makeDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	if !a.drop {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

func (a account) writeFile(path, text string) error {
	return replaceFileAs(path, []byte(text), 0o600, int(a.uid), int(a.gid))
}
