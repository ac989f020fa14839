package localcluster

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"
)

func drawACL(t *rapid.T) acl {
	list := aclFromMode(fs.FileMode(rapid.IntRange(0, 0o777).Draw(t, "mode")))
	users := rapid.SliceOfNDistinct(rapid.Uint32Range(1, 5), 0, 3, rapid.ID).Draw(t, "users")
	groups := rapid.SliceOfNDistinct(rapid.Uint32Range(1, 5), 0, 3, rapid.ID).Draw(t, "groups")
	perm := rapid.Uint16Range(0, 7)
	for _, u := range users {
		list = append(list, aclEntry{Tag: aclUser, Perm: perm.Draw(t, "user"), ID: u})
	}
	for _, g := range groups {
		list = append(list, aclEntry{Tag: aclGroup, Perm: perm.Draw(t, "group"), ID: g})
	}
	if len(users)+len(groups) > 0 {
		list = append(list, aclEntry{Tag: aclMask, Perm: perm.Draw(t, "mask"), ID: aclNoID})
	}
	return list
}

// rights is what a user and a group get, mask applied.
func (a acl) rights(tag uint16, id uint32) uint16 {
	mask, ok := a.find(aclMask, aclNoID)
	if !ok || tag == aclUserObj || tag == aclOther {
		mask = 7
	}
	perm, _ := a.find(tag, id)
	return perm & mask
}

func TestGrantGivesSearchToOneUserOnly(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		before := drawACL(t)
		uid := rapid.Uint32Range(1, 6).Draw(t, "uid")
		after := before.withSearch(uid)
		if !after.maySearch(uid, 77, 100, 100) {
			t.Fatalf("%v: user %d may not search", after, uid)
		}
		if want := before.rights(aclUser, uid) | aclSearch; after.rights(aclUser, uid) != want {
			t.Fatalf("user %d got %o, not %o", uid, after.rights(aclUser, uid), want)
		}
		for _, e := range before {
			if e.Tag == aclMask || e.Tag == aclUser && e.ID == uid {
				continue
			}
			if x, y := before.rights(e.Tag, e.ID), after.rights(e.Tag, e.ID); x != y {
				t.Fatalf("entry %+v went from %o to %o", e, x, y)
			}
		}
		decoded, err := parseACL(after.encode())
		if err != nil || !slices.Equal(decoded, after) {
			t.Fatalf("decoded %v, %v", decoded, err)
		}
	})
}

func FuzzParseACL(f *testing.F) {
	f.Add(aclFromMode(0o750).withSearch(101).encode())
	f.Add([]byte{2, 0, 0, 0, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		list, err := parseACL(b)
		if err == nil && !bytes.Equal(list.encode(), b) {
			t.Errorf("%x became %x", b, list.encode())
		}
	})
}

// The kernel is the judge of what the lists mean.
func TestOpenPathOnRealDirectories(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to become another user")
	}
	a, err := chooseAccount()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	inner := filepath.Join(dir, "closed", "d")
	if err := os.MkdirAll(inner, 0o750); err != nil {
		t.Fatal(err)
	}
	closed := filepath.Dir(inner)
	if err := os.Chmod(closed, 0o740); err != nil {
		t.Fatal(err)
	}
	if a.canEnter(inner) == nil {
		t.Fatal("the directory is open already")
	}
	g, err := openPath(inner, a)
	if err != nil {
		t.Fatal(err)
	}
	if len(g.Said) == 0 || a.canEnter(inner) != nil {
		t.Errorf("after the grant: %q, %v", g.Said, a.canEnter(inner))
	}
	var stat syscall.Stat_t
	if err := syscall.Stat(closed, &stat); err != nil || stat.Mode&0o007 != 0 {
		t.Errorf("others gained: %o, %v", stat.Mode, err)
	}
	again, err := openPath(inner, a)
	if err != nil || len(again.Said) != 0 {
		t.Errorf("a second time: %q, %v", again.Said, err)
	}
	if err := g.revoke(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(closed)
	if err != nil || info.Mode().Perm() != 0o740 || a.canEnter(inner) == nil {
		t.Errorf("after revoking: %v, %v", info.Mode(), err)
	}
}
