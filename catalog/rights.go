package catalog

import "slices"

// rights tell which schemas a role may look into.
type rights struct {
	usage    map[string][]uint32 // schema -> roles that have USAGE; 0 is PUBLIC
	roles    map[string]uint32
	supers   map[uint32]bool
	memberOf map[uint32][]uint32 // inherited memberships only
	readers  []uint32            // roles of the server that see every schema
}

func newRights() rights {
	return rights{
		usage: map[string][]uint32{}, roles: map[string]uint32{}, supers: map[uint32]bool{}, memberOf: map[uint32][]uint32{},
	}
}

func (r *rights) addRole(oid uint32, name string, super bool) {
	r.roles[name] = oid
	if super {
		r.supers[oid] = true
	}
	if name == "pg_read_all_data" || name == "pg_write_all_data" {
		r.readers = append(r.readers, oid)
	}
}

// HasSchema tells whether the schema exists.
func (c *Catalog) HasSchema(name string) bool {
	_, ok := c.rights.usage[name]
	return ok
}

// UsablePath returns the schemas of a search path that exist and that the role has USAGE on: as in
// PostgreSQL, a name is not looked for in the others. A role that is not known has what everybody
// has. pg_temp stays, it is the session's.
func (c *Catalog) UsablePath(path []string, role string) []string {
	r := &c.rights
	self, known := r.roles[role]
	super := known && r.supers[self]
	var acting []uint32 // found when the first schema needs it
	usable := make([]string, 0, len(path))
	for _, schema := range path {
		granted, exists := r.usage[schema]
		switch {
		case schema == tempSchema || exists && (super || slices.Contains(granted, 0)):
			usable = append(usable, schema)
			continue
		case !exists || !known:
			continue
		}
		if acting == nil {
			acting = r.actingAs(self)
		}
		if slices.ContainsFunc(acting, func(oid uint32) bool {
			return slices.Contains(granted, oid) || slices.Contains(r.readers, oid)
		}) {
			usable = append(usable, schema)
		}
	}
	return usable
}

// actingAs returns the role and all roles whose rights it inherits.
func (r *rights) actingAs(self uint32) []uint32 {
	all := []uint32{self}
	for i := 0; i < len(all); i++ {
		for _, group := range r.memberOf[all[i]] {
			if !slices.Contains(all, group) {
				all = append(all, group)
			}
		}
	}
	return all
}
