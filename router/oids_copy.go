package router

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"

	pg "github.com/pganalyze/pg_query_go/v6"

	"github.com/pgshoal/pgshoal/analyze"
	"github.com/pgshoal/pgshoal/catalog"
	"github.com/pgshoal/pgshoal/pgwire"
)

// binaryTypes are the types of the data of a COPY in the binary format, as the home node knows them; other formats have
// no OIDs in them, and nil types.
func (s *session) binaryTypes(ctx context.Context, text string) ([]uint32, error) {
	stmts, err := analyze.Parse(text)
	if err != nil || len(stmts) != 1 {
		return nil, err
	}
	tree := stmts[0].Tree.GetCopyStmt()
	if tree == nil || !copiesBinary(tree) {
		return nil, nil
	}
	return s.copyTypes(ctx, tree)
}

// copyColumns are the columns of these types whose values have OIDs that are not the home node's.
func (p *participant) copyColumns(types []uint32) (list []oidColumn) {
	for i, t := range types {
		if p.oids != nil && p.oids.HasOIDs(t) {
			list = append(list, oidColumn{i, t})
		}
	}
	return list
}

// copies notes what a COPY on one node needs that the client asked for in the simple protocol.
func (s *session) copies(ctx context.Context, p *participant, text string) error {
	if p.oids == nil {
		return nil
	}
	types, err := s.binaryTypes(ctx, text)
	s.relay.described = p.copyColumns(types)
	return err
}

func copiesBinary(tree *pg.CopyStmt) bool {
	for _, o := range tree.Options {
		if d := o.GetDefElem(); d.GetDefname() == "format" && strings.EqualFold(d.GetArg().GetString_().GetSval(), "binary") {
			return true
		}
	}
	return false
}

func (s *session) copyTypes(ctx context.Context, tree *pg.CopyStmt) (types []uint32, err error) {
	if tree.Relation == nil {
		return s.queryTypes(ctx, tree.Query)
	}
	v := s.router.view.Load()
	cat, err := s.catalog(ctx, v)
	if err != nil {
		return nil, err
	}
	path := cat.UsablePath(catalog.ParseSearchPath(s.searchPath, s.currentRole()), s.currentRole())
	t := cat.Lookup(path, tree.Relation.Schemaname, tree.Relation.Relname)
	if t == nil {
		return nil, nil // the node's to complain about
	}
	if len(tree.Attlist) == 0 {
		for _, c := range t.Columns {
			if c.Generated == 0 {
				types = append(types, c.TypeOID)
			}
		}
		return types, nil
	}
	for _, a := range tree.Attlist {
		oid := uint32(0)
		for _, c := range t.Columns {
			if c.Name == a.GetString_().GetSval() {
				oid = c.TypeOID
			}
		}
		types = append(types, oid)
	}
	return types, nil
}

// queryTypes are the types of a query's columns.
func (s *session) queryTypes(ctx context.Context, query *pg.Node) (types []uint32, err error) {
	text, err := analyze.Deparse(query)
	if err != nil {
		return nil, err
	}
	conn, done, err := s.homeConnection(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rows, err := describeRows(conn, text, nil)
	if err != nil {
		return nil, err
	}
	for columns := pgwire.ColumnsOf(rows); ; {
		c := columns.Next()
		if c == nil {
			return types, nil
		}
		types = append(types, c.Type())
	}
}

// copiedToHome translates the body of a CopyData message that a node has sent: a row, behind the header if it is the first.
func copiedToHome(oids *catalog.OIDMap, columns []oidColumn, body []byte) error {
	if bytes.HasPrefix(body, binaryHeader[:copySignature]) && len(body) >= len(binaryHeader) {
		body = body[len(binaryHeader):]
	}
	if len(body) < 2 || bytes.HasPrefix(body, binaryEnd) {
		return nil
	}
	return rowToHome(oids, columns, body)
}

// copySignature is the length of what every binary COPY begins with. No row does: it would have too many columns.
const copySignature = 11

// copiedToNode is a row of the client's as the node reads it; dst is used again.
func copiedToNode(oids *catalog.OIDMap, columns []oidColumn, dst, row []byte) []byte {
	dst = append(dst[:0], row...)
	if len(row) >= 2 && int16(binary.BigEndian.Uint16(row)) >= 0 {
		_ = eachValue(dst, columns, oids.ValueToNode) // the node finds the faults of one that is malformed
	}
	return dst
}
