package pgwire

// RowDescription is the columns of a RowDescription message.
func RowDescription(msg []byte) ([]Column, error) {
	r := reader{msg: msg}
	if r.header() != 'T' {
		return nil, errMessageFormat()
	}
	columns := make([]Column, r.uint16())
	for i := range columns {
		columns[i] = Column{Name: string(r.cstring()), TableOID: uint32(r.int32()), TableColumn: int16(r.uint16()), TypeOID: uint32(r.int32())}
		columns[i].TypeSize = int16(r.uint16())
		columns[i].TypeModifier = r.int32()
		columns[i].Format = int16(r.uint16())
		if r.bad {
			break
		}
	}
	return columns, r.end()
}
