package catalog

import "slices"

// UserFunctions returns the functions made by users, in the order of their OIDs.
func (c *Catalog) UserFunctions() []*Function {
	all := make([]*Function, 0, len(c.procs))
	for _, f := range c.procs {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *Function) int { return int(int64(a.OID) - int64(b.OID)) })
	return all
}
