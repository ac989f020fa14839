package localcluster

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io/fs"
	"slices"
)

// The kernel's form of a POSIX access control list, as the extended attribute
// system.posix_acl_access holds it: a version, then entries of tag, permission and id.
const (
	aclVersion   = 2
	aclAttribute = "system.posix_acl_access"

	aclUserObj  = 0x01 // the owner
	aclUser     = 0x02 // a named user
	aclGroupObj = 0x04 // the owning group
	aclGroup    = 0x08 // a named group
	aclMask     = 0x10 // the most that named users and all groups get
	aclOther    = 0x20

	aclSearch = 1 // x
	aclNoID   = 0xffffffff
)

type aclEntry struct {
	Tag, Perm uint16
	ID        uint32
}

type acl []aclEntry

var errACLFormat = errors.New("the access control list has an unknown form")

func parseACL(b []byte) (acl, error) {
	if len(b) < 4 || (len(b)-4)%8 != 0 || binary.LittleEndian.Uint32(b) != aclVersion {
		return nil, errACLFormat
	}
	var list acl
	for b = b[4:]; len(b) > 0; b = b[8:] {
		list = append(list, aclEntry{
			Tag:  binary.LittleEndian.Uint16(b),
			Perm: binary.LittleEndian.Uint16(b[2:]),
			ID:   binary.LittleEndian.Uint32(b[4:]),
		})
	}
	return list, nil
}

func (a acl) encode() []byte {
	b := binary.LittleEndian.AppendUint32(nil, aclVersion)
	for _, e := range a {
		b = binary.LittleEndian.AppendUint16(b, e.Tag)
		b = binary.LittleEndian.AppendUint16(b, e.Perm)
		b = binary.LittleEndian.AppendUint32(b, e.ID)
	}
	return b
}

// aclFromMode is the list a directory has when nobody gave it one.
func aclFromMode(mode fs.FileMode) acl {
	perm := uint16(mode.Perm())
	return acl{
		{Tag: aclUserObj, Perm: perm >> 6 & 7, ID: aclNoID},
		{Tag: aclGroupObj, Perm: perm >> 3 & 7, ID: aclNoID},
		{Tag: aclOther, Perm: perm & 7, ID: aclNoID},
	}
}

func (a acl) find(tag uint16, id uint32) (uint16, bool) {
	for _, e := range a {
		if e.Tag == tag && e.ID == id {
			return e.Perm, true
		}
	}
	return 0, false
}

// maySearch answers as the kernel does for a user with one group: the first kind of entry that
// matches decides.
func (a acl) maySearch(uid, gid, ownerUID, ownerGID uint32) bool {
	if uid == ownerUID {
		perm, _ := a.find(aclUserObj, aclNoID)
		return perm&aclSearch != 0
	}
	mask, masked := a.find(aclMask, aclNoID)
	if !masked {
		mask = 7
	}
	if perm, ok := a.find(aclUser, uid); ok {
		return perm&mask&aclSearch != 0
	}
	inGroup := false
	for _, e := range a {
		if e.Tag == aclGroupObj && gid == ownerGID || e.Tag == aclGroup && e.ID == gid {
			inGroup = true
			if e.Perm&mask&aclSearch != 0 {
				return true
			}
		}
	}
	if inGroup {
		return false
	}
	perm, _ := a.find(aclOther, aclNoID)
	return perm&aclSearch != 0
}

// withSearch returns the list with search permission for one more user, and nothing more for
// anybody else: where the mask must grow, the other entries it would set free are cut down first.
func (a acl) withSearch(uid uint32) acl {
	list := slices.Clone(a)
	mask, masked := list.find(aclMask, aclNoID)
	if masked {
		for i, e := range list {
			if e.Tag == aclUser || e.Tag == aclGroup || e.Tag == aclGroupObj {
				list[i].Perm &= mask
			}
		}
	} else {
		mask, _ = list.find(aclGroupObj, aclNoID)
	}
	list = slices.DeleteFunc(list, func(e aclEntry) bool {
		return e.Tag == aclMask || e.Tag == aclUser && e.ID == uid
	})
	perm, _ := a.find(aclUser, uid)
	list = append(list,
		aclEntry{Tag: aclMask, Perm: mask | aclSearch, ID: aclNoID},
		aclEntry{Tag: aclUser, Perm: perm&mask | aclSearch, ID: uid},
	)
	slices.SortFunc(list, func(x, y aclEntry) int {
		return cmp.Or(cmp.Compare(x.Tag, y.Tag), cmp.Compare(x.ID, y.ID))
	})
	return list
}
