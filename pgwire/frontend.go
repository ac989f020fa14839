package pgwire

import "encoding/binary"

// AppendQuery appends a simple Query.
func AppendQuery[T ~string | ~[]byte](buf []byte, sql T) []byte {
	buf, start := beginMessage(buf, 'Q')
	buf = appendCString(buf, sql)
	return endMessage(buf, start)
}

// AppendParse appends a Parse; a type of 0 leaves it to the server.
func AppendParse[N, Q ~string | ~[]byte](buf []byte, name N, sql Q, oids []uint32) []byte {
	buf, start := beginMessage(buf, 'P')
	buf = appendCString(buf, name)
	buf = appendCString(buf, sql)
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(oids)))
	for _, oid := range oids {
		buf = binary.BigEndian.AppendUint32(buf, oid)
	}
	return endMessage(buf, start)
}

// AppendBind appends a Bind. No format means text for all, one format is for all; a nil
// parameter is NULL.
func AppendBind[P, S ~string | ~[]byte](buf []byte, portal P, statement S, formats []int16, params [][]byte, resultFormats []int16) []byte {
	buf, start := beginMessage(buf, 'B')
	buf = appendCString(buf, portal)
	buf = appendCString(buf, statement)
	buf = appendFormats(buf, formats)
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(params)))
	for _, param := range params {
		buf = appendValue(buf, param)
	}
	buf = appendFormats(buf, resultFormats)
	return endMessage(buf, start)
}

func appendFormats(buf []byte, formats []int16) []byte {
	buf = binary.BigEndian.AppendUint16(buf, uint16(len(formats)))
	for _, format := range formats {
		buf = binary.BigEndian.AppendUint16(buf, uint16(format))
	}
	return buf
}

// AppendDescribe appends a Describe of a Statement or a Portal.
func AppendDescribe[T ~string | ~[]byte](buf []byte, object byte, name T) []byte {
	return appendNamed(buf, 'D', object, name)
}

// AppendClose appends a Close of a Statement or a Portal.
func AppendClose[T ~string | ~[]byte](buf []byte, object byte, name T) []byte {
	return appendNamed(buf, 'C', object, name)
}

func appendNamed[T ~string | ~[]byte](buf []byte, typ, object byte, name T) []byte {
	buf, start := beginMessage(buf, typ)
	buf = append(buf, object)
	buf = appendCString(buf, name)
	return endMessage(buf, start)
}

// AppendExecute appends an Execute; no more than maxRows rows, or all for 0.
func AppendExecute[T ~string | ~[]byte](buf []byte, portal T, maxRows int32) []byte {
	buf, start := beginMessage(buf, 'E')
	buf = appendCString(buf, portal)
	buf = binary.BigEndian.AppendUint32(buf, uint32(maxRows))
	return endMessage(buf, start)
}

// AppendSync appends a Sync.
func AppendSync(buf []byte) []byte { return append(buf, 'S', 0, 0, 0, 4) }

// AppendFlush appends a Flush.
func AppendFlush(buf []byte) []byte { return append(buf, 'H', 0, 0, 0, 4) }

// AppendTerminate appends a Terminate.
func AppendTerminate(buf []byte) []byte { return append(buf, 'X', 0, 0, 0, 4) }

// AppendCopyData appends a CopyData, which has one form in both directions.
func AppendCopyData[T ~string | ~[]byte](buf []byte, data T) []byte {
	buf, start := beginMessage(buf, 'd')
	buf = append(buf, data...)
	return endMessage(buf, start)
}

// AppendCopyFail appends a CopyFail.
func AppendCopyFail(buf []byte, reason string) []byte {
	buf, start := beginMessage(buf, 'f')
	buf = appendCString(buf, reason)
	return endMessage(buf, start)
}
