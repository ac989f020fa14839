package pgwire

import "encoding/binary"

// What a Describe or a Close names.
const (
	Statement byte = 'S'
	Portal    byte = 'P'
)

// Decoders take a whole message, header included, as Stream.Next hands it out. Everything they
// return is a part of that message and valid as long as it is. A malformed message is an *Error
// with SQLSTATE 08P01 and PostgreSQL's own words.

// Parse is a decoded Parse message. It may be used again for the next one.
type Parse struct {
	Name, Query []byte

	oids []byte
	tail []byte // the message after the name
}

// Decode reads msg.
func (p *Parse) Decode(msg []byte) error {
	r := reader{msg: msg}
	if r.header() != 'P' {
		return errMessageFormat()
	}
	p.Name = r.cstring()
	tail := r.pos
	p.Query = r.cstring()
	p.oids = r.bytes(4 * r.uint16())
	if err := r.end(); err != nil {
		*p = Parse{}
		return err
	}
	p.tail = msg[tail:]
	return nil
}

// NumOIDs is the number of parameter types that the client gave; there may be more parameters.
func (p *Parse) NumOIDs() int { return len(p.oids) / 4 }

// OID is the type of parameter i, 0 when the client leaves it to the server.
func (p *Parse) OID(i int) uint32 {
	if i < 0 || i >= p.NumOIDs() {
		return 0
	}
	return binary.BigEndian.Uint32(p.oids[4*i:])
}

// OIDs appends the parameter types to dst.
func (p *Parse) OIDs(dst []uint32) []uint32 {
	for i := range p.NumOIDs() {
		dst = append(dst, p.OID(i))
	}
	return dst
}

// AppendRenamed appends the same message with another statement name.
func (p *Parse) AppendRenamed(buf []byte, name string) []byte {
	buf, start := beginMessage(buf, 'P')
	buf = appendCString(buf, name)
	buf = append(buf, p.tail...)
	return endMessage(buf, start)
}

// Bind is a decoded Bind message. Used again for the next one it allocates nothing.
type Bind struct {
	Portal, Statement []byte

	msg           []byte
	formats       []byte
	values        []span // one per parameter
	resultFormats []byte
	tail          int // where the message goes on after the names
}

// span is a parameter's value in the message; size is -1 for NULL.
type span struct{ start, size int32 }

// Decode validates msg in one pass and remembers where the parameters are.
func (b *Bind) Decode(msg []byte) error {
	b.reset()
	r := reader{msg: msg}
	if r.header() != 'B' {
		return errMessageFormat()
	}
	b.Portal, b.Statement = r.cstring(), r.cstring()
	b.tail = r.pos
	b.formats = r.bytes(2 * r.uint16())
	count := r.uint16()
	for i := 0; i < count && !r.bad; i++ {
		size := r.int32()
		start := int32(r.pos)
		if size != -1 {
			r.bytes(int(size))
		}
		b.values = append(b.values, span{start, size})
	}
	b.resultFormats = r.bytes(2 * r.uint16())
	err := r.end()
	if n := len(b.formats) / 2; err == nil && n > 1 && n != count {
		err = Errorf(CodeProtocolViolation, "bind message has %d parameter formats but %d parameters", n, count)
	}
	if err != nil {
		b.reset()
		return err
	}
	b.msg = msg
	return nil
}

// reset keeps the memory for the spans.
func (b *Bind) reset() { *b = Bind{values: b.values[:0]} }

// NumParams is the number of parameters.
func (b *Bind) NumParams() int { return len(b.values) }

// Param is the value of parameter i as it was sent, and whether it is NULL.
func (b *Bind) Param(i int) (value []byte, isNull bool) {
	v := b.values[i]
	if v.size < 0 {
		return nil, true
	}
	return b.msg[v.start : v.start+v.size : v.start+v.size], false
}

// ParamFormat is the format code of parameter i: 0 text, 1 binary.
func (b *Bind) ParamFormat(i int) int16 { return formatAt(b.formats, i) }

// NumResultFormats is the number of result format codes: none means text for all columns, one is
// for all columns.
func (b *Bind) NumResultFormats() int { return len(b.resultFormats) / 2 }

// ResultFormat is the format code of result column i.
func (b *Bind) ResultFormat(i int) int16 { return formatAt(b.resultFormats, i) }

// AppendRenamed appends the same message for another portal and statement name.
func (b *Bind) AppendRenamed(buf []byte, portal, statement string) []byte {
	buf, start := beginMessage(buf, 'B')
	buf = appendCString(buf, portal)
	buf = appendCString(buf, statement)
	buf = append(buf, b.msg[b.tail:]...)
	return endMessage(buf, start)
}

func formatAt(formats []byte, i int) int16 {
	switch {
	case len(formats) == 2:
		i = 0
	case 2*i+2 > len(formats):
		return 0
	}
	return int16(binary.BigEndian.Uint16(formats[2*i:]))
}

// Describe is a decoded Describe message.
type Describe struct {
	Object byte // Statement or Portal
	Name   []byte
}

// Decode reads msg.
func (d *Describe) Decode(msg []byte) (err error) {
	d.Object, d.Name, err = decodeNamed(msg, 'D', "DESCRIBE")
	return err
}

// Close is a decoded Close message.
type Close struct {
	Object byte // Statement or Portal
	Name   []byte
}

// Decode reads msg.
func (c *Close) Decode(msg []byte) (err error) {
	c.Object, c.Name, err = decodeNamed(msg, 'C', "CLOSE")
	return err
}

func decodeNamed(msg []byte, typ byte, what string) (byte, []byte, error) {
	r := reader{msg: msg}
	if r.header() != typ {
		return 0, nil, errMessageFormat()
	}
	object, name := r.byte(), r.cstring()
	if err := r.end(); err != nil {
		return 0, nil, err
	}
	if object != Statement && object != Portal {
		return 0, nil, Errorf(CodeProtocolViolation, "invalid %s message subtype %d", what, object)
	}
	return object, name, nil
}

// Execute is a decoded Execute message.
type Execute struct {
	Portal  []byte
	MaxRows int32 // no limit unless positive
}

// Decode reads msg.
func (e *Execute) Decode(msg []byte) error {
	r := reader{msg: msg}
	if r.header() != 'E' {
		return errMessageFormat()
	}
	e.Portal, e.MaxRows = r.cstring(), r.int32()
	return r.end()
}

// QueryText is the SQL of a simple Query message.
func QueryText(msg []byte) ([]byte, error) {
	r := reader{msg: msg}
	if r.header() != 'Q' {
		return nil, errMessageFormat()
	}
	text := r.cstring()
	return text, r.end()
}
