package pgwire

// ReadyStatus is the transaction state in a ReadyForQuery message, 0 when it is malformed.
func ReadyStatus(msg []byte) byte {
	if len(msg) != readySize || msg[0] != 'Z' {
		return 0
	}
	return msg[5]
}

// CommandTag is the tag of a CommandComplete message.
func CommandTag(msg []byte) ([]byte, error) {
	r := reader{msg: msg}
	if r.header() != 'C' {
		return nil, errMessageFormat()
	}
	tag := r.cstring()
	return tag, r.end()
}

// ParameterStatus is the name and value of a ParameterStatus message.
func ParameterStatus(msg []byte) (name, value []byte, err error) {
	r := reader{msg: msg}
	if r.header() != 'S' {
		return nil, nil, errMessageFormat()
	}
	name, value = r.cstring(), r.cstring()
	return name, value, r.end()
}

// DataRow appends a row's values to dst; they are parts of msg, and nil for NULL.
func DataRow(msg []byte, dst [][]byte) ([][]byte, error) {
	r := reader{msg: msg}
	if r.header() != 'D' {
		return dst, errMessageFormat()
	}
	for range r.uint16() {
		var value []byte
		if size := r.int32(); size != -1 {
			value = r.bytes(int(size))
		}
		if r.bad {
			break
		}
		dst = append(dst, value)
	}
	return dst, r.end()
}
