package router

import (
	"slices"

	"github.com/pgshoal/pgshoal/pgwire"
)

// watchOIDs makes the relay look at what has OIDs in it: descriptions of rows, and those rows whose values have them.
func (r *relayState) watchOIDs(on bool) {
	r.Watch['T'], r.Watch['d'] = on, on && r.described != nil
	if !on {
		r.described = nil
	}
	if !on || slices.ContainsFunc(r.executes, func(c []oidColumn) bool { return c != nil }) {
		for _, t := range []byte("dDCsI") {
			r.Watch[t] = on
		}
	}
}

// translate turns the OIDs of a node that is not the home node into those that clients know.
func (r *relayState) translate(typ byte, msg []byte) error {
	p := r.part
	if p.oids == nil {
		return nil
	}
	switch typ {
	case 'T':
		r.s.describedRows(p, msg)
		if len(r.executes) == 0 { // only a binary cursor of SQL has such columns
			r.described = oidColumns(p.oids, msg, asDescribed)
			r.Watch['D'] = r.described != nil
		}
	case 'D', 'd':
		columns := r.described
		if r.executed < len(r.executes) {
			columns = r.executes[r.executed]
		}
		switch {
		case columns == nil:
		case typ == 'd':
			return copiedToHome(p.oids, columns, msg[5:])
		default:
			return rowToHome(p.oids, columns, msg[5:])
		}
	default:
		r.executed++
	}
	return nil
}

// bindOIDs translates the parameters of the current Bind message for the node.
func (s *session) bindOIDs(p *participant, st *prepared) {
	if p.oids == nil || !st.entry.oidParams {
		return
	}
	b := &s.extended.bind
	for i := range min(b.NumParams(), len(st.entry.params)) {
		if v, null := b.Param(i); !null && b.ParamFormat(i) == 1 {
			p.valueAt(st.entry.params[i], v)
		}
	}
}

// boundColumns are the columns that the current Bind message asks for in the binary format and that have OIDs in them.
func (s *session) boundColumns(p *participant, st *prepared) []oidColumn {
	b := &s.extended.bind
	if p.oids == nil || !st.entry.oidRows || b.NumResultFormats() == 0 {
		return nil
	}
	return oidColumns(p.oids, rowsOf(st.entry.described), func(i int, _ pgwire.DescribedColumn) bool { return b.ResultFormat(i) == 1 })
}

// oidColumns are the columns of the statement's result that the client wants in the binary format and that have OIDs in them.
func (r *spreadRun) oidColumns(p *participant) []oidColumn {
	if p.oids == nil || len(r.results) == 0 {
		return nil
	}
	return oidColumns(p.oids, r.shape.rows, asBound(r.results))
}
