package pgwire

import "encoding/binary"

// Transaction states as ReadyForQuery carries them.
const (
	TxIdle    byte = 'I'
	TxActive  byte = 'T'
	TxFailed  byte = 'E'
	readySize      = 6
)

// Column is one field of a RowDescription that a router makes itself.
type Column struct {
	Name         string
	TableOID     uint32
	TableColumn  int16
	TypeOID      uint32
	TypeSize     int16
	TypeModifier int32
	Format       int16 // 0 text, 1 binary
}

// TextColumn is a column of type text that belongs to no table.
func TextColumn(name string) Column {
	return Column{Name: name, TypeOID: 25, TypeSize: -1, TypeModifier: -1}
}

// AppendAuthOK appends AuthenticationOk.
func AppendAuthOK(buf []byte) []byte { return append(buf, 'R', 0, 0, 0, 8, 0, 0, 0, 0) }

// AppendParameterStatus appends a ParameterStatus.
func AppendParameterStatus(buf []byte, name, value string) []byte {
	buf, start := beginMessage(buf, 'S')
	buf = appendCString(buf, name)
	buf = appendCString(buf, value)
	return endMessage(buf, start)
}

// AppendBackendKeyData appends the key that a CancelRequest must name.
func AppendBackendKeyData(buf []byte, pid, secret uint32) []byte {
	buf = append(buf, 'K', 0, 0, 0, 12)
	buf = binary.BigEndian.AppendUint32(buf, pid)
	return binary.BigEndian.AppendUint32(buf, secret)
}

// AppendReadyForQuery appends a ReadyForQuery with the given transaction state.
func AppendReadyForQuery(buf []byte, status byte) []byte {
	return append(buf, 'Z', 0, 0, 0, 5, status)
}

// AppendCommandComplete appends a CommandComplete.
func AppendCommandComplete(buf []byte, tag string) []byte {
	buf, start := beginMessage(buf, 'C')
	buf = appendCString(buf, tag)
	return endMessage(buf, start)
}

// AppendRowDescription appends a RowDescription.
func AppendRowDescription(buf []byte, columns []Column) []byte {
	buf, start := beginMessage(buf, 'T')
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(columns)))
	for i := range columns {
		c := &columns[i]
		buf = appendCString(buf, c.Name)
		buf = binary.BigEndian.AppendUint32(buf, c.TableOID)
		buf = binary.BigEndian.AppendUint16(buf, uint16(c.TableColumn))
		buf = binary.BigEndian.AppendUint32(buf, c.TypeOID)
		buf = binary.BigEndian.AppendUint16(buf, uint16(c.TypeSize))
		buf = binary.BigEndian.AppendUint32(buf, uint32(c.TypeModifier))
		buf = binary.BigEndian.AppendUint16(buf, uint16(c.Format))
	}
	return endMessage(buf, start)
}

// AppendDataRow appends a DataRow; a nil value is NULL, an empty one is not.
func AppendDataRow(buf []byte, values [][]byte) []byte {
	buf, start := beginMessage(buf, 'D')
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(values)))
	for _, value := range values {
		buf = appendValue(buf, value)
	}
	return endMessage(buf, start)
}

// AppendParameterDescription appends the types of a prepared statement's parameters.
func AppendParameterDescription(buf []byte, oids []uint32) []byte {
	buf, start := beginMessage(buf, 't')
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(oids)))
	for _, oid := range oids {
		buf = binary.BigEndian.AppendUint32(buf, oid)
	}
	return endMessage(buf, start)
}

// AppendCopyInResponse appends the answer to COPY FROM STDIN; all columns have the one format.
func AppendCopyInResponse(buf []byte, format byte, columns int) []byte {
	return appendCopyResponse(buf, 'G', format, columns)
}

// AppendCopyOutResponse appends the answer to COPY TO STDOUT; all columns have the one format.
func AppendCopyOutResponse(buf []byte, format byte, columns int) []byte {
	return appendCopyResponse(buf, 'H', format, columns)
}

func appendCopyResponse(buf []byte, typ, format byte, columns int) []byte {
	buf, start := beginMessage(buf, typ)
	buf = append(buf, format)
	buf = binary.BigEndian.AppendUint16(buf, uint16(columns))
	for range columns {
		buf = append(buf, 0, format)
	}
	return endMessage(buf, start)
}

// AppendNotificationResponse appends a NOTIFY that reached this session.
func AppendNotificationResponse(buf []byte, pid uint32, channel, payload string) []byte {
	buf, start := beginMessage(buf, 'A')
	buf = binary.BigEndian.AppendUint32(buf, pid)
	buf = appendCString(buf, channel)
	buf = appendCString(buf, payload)
	return endMessage(buf, start)
}

// AppendEmptyQueryResponse appends the answer to a query without a statement.
func AppendEmptyQueryResponse(buf []byte) []byte { return append(buf, 'I', 0, 0, 0, 4) }

// AppendParseComplete appends a ParseComplete.
func AppendParseComplete(buf []byte) []byte { return append(buf, '1', 0, 0, 0, 4) }

// AppendBindComplete appends a BindComplete.
func AppendBindComplete(buf []byte) []byte { return append(buf, '2', 0, 0, 0, 4) }

// AppendCloseComplete appends a CloseComplete.
func AppendCloseComplete(buf []byte) []byte { return append(buf, '3', 0, 0, 0, 4) }

// AppendNoData appends the description of a statement that returns no rows.
func AppendNoData(buf []byte) []byte { return append(buf, 'n', 0, 0, 0, 4) }

// AppendPortalSuspended appends the end of an Execute that reached its row limit.
func AppendPortalSuspended(buf []byte) []byte { return append(buf, 's', 0, 0, 0, 4) }

// AppendCopyDone appends a CopyDone, which has one form in both directions.
func AppendCopyDone(buf []byte) []byte { return append(buf, 'c', 0, 0, 0, 4) }

// appendNegotiateProtocolVersion tells a client which of its wishes are not known here.
// PostgreSQL sends the whole version number, not only the minor one the documentation names.
func appendNegotiateProtocolVersion(buf []byte, version uint32, options []string) []byte {
	buf, start := beginMessage(buf, 'v')
	buf = binary.BigEndian.AppendUint32(buf, version)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(options)))
	for _, option := range options {
		buf = appendCString(buf, option)
	}
	return endMessage(buf, start)
}

// appendAuth appends an Authentication message of the given kind.
func appendAuth(buf []byte, kind uint32, data []byte) []byte {
	buf, start := beginMessage(buf, 'R')
	buf = binary.BigEndian.AppendUint32(buf, kind)
	buf = append(buf, data...)
	return endMessage(buf, start)
}

func appendCString[T ~string | ~[]byte](buf []byte, text T) []byte {
	buf = append(buf, text...)
	return append(buf, 0)
}

func appendValue(buf, value []byte) []byte {
	if value == nil {
		return append(buf, 0xff, 0xff, 0xff, 0xff)
	}
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(value)))
	return append(buf, value...)
}
