package pgwire

import (
	"bytes"
	"encoding/binary"
)

// DescribedColumn is what a RowDescription says of one column, behind its name. It is a part of the message, so that
// it can be changed in place.
type DescribedColumn []byte

const describedColumnSize = 18

// Columns goes through the columns of a RowDescription message without allocating.
type Columns struct {
	rest []byte
	left int
}

// ColumnsOf begins with the first column; a message of another kind has none.
func ColumnsOf(msg []byte) Columns {
	if len(msg) < 7 || msg[0] != 'T' {
		return Columns{}
	}
	return Columns{msg[7:], int(binary.BigEndian.Uint16(msg[5:]))}
}

// Next is the next column, nil after the last one.
func (c *Columns) Next() DescribedColumn {
	if c.left == 0 {
		return nil
	}
	c.left--
	name := bytes.IndexByte(c.rest, 0)
	if name < 0 || len(c.rest) < name+1+describedColumnSize {
		c.left = 0
		return nil
	}
	column := DescribedColumn(c.rest[name+1 : name+1+describedColumnSize])
	c.rest = c.rest[name+1+describedColumnSize:]
	return column
}

// Table is the column's table and its number there, 0 when it is computed.
func (c DescribedColumn) Table() (oid uint32, column int16) {
	return binary.BigEndian.Uint32(c), int16(binary.BigEndian.Uint16(c[4:]))
}

// SetTable changes it.
func (c DescribedColumn) SetTable(oid uint32, column int16) {
	binary.BigEndian.PutUint32(c, oid)
	binary.BigEndian.PutUint16(c[4:], uint16(column))
}

// Type is the OID of the column's type.
func (c DescribedColumn) Type() uint32 { return binary.BigEndian.Uint32(c[6:]) }

// SetType changes it.
func (c DescribedColumn) SetType(oid uint32) { binary.BigEndian.PutUint32(c[6:], oid) }

// Binary reports that values come in the binary format.
func (c DescribedColumn) Binary() bool { return binary.BigEndian.Uint16(c[16:]) == 1 }
