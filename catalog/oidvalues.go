package catalog

import (
	"encoding/binary"
	"errors"
)

// ErrOIDValue is a value in the binary format that is not of its type.
var ErrOIDValue = errors.New("malformed value in the binary format")

// HasOIDs reports that values of a type (by the home node's OID) have OIDs of users' types in them in the binary format.
func (m *OIDMap) HasOIDs(oid uint32) bool { return m.hasOIDs(oid, 0) }

// maxTypeDepth is far more than any type is made of; a type cannot contain itself but through an array of itself.
const maxTypeDepth = 64

func (m *OIDMap) hasOIDs(oid uint32, depth int) bool {
	f, ok := m.forms[oid]
	if !ok || depth > maxTypeDepth {
		return false
	}
	switch f.kind {
	case 'a':
		return f.of == 0 || f.of >= FirstUserOID || m.hasOIDs(f.of, depth+1)
	case 'c':
		return true
	case 'd', 'r', 'm':
		return m.hasOIDs(f.of, depth+1)
	}
	return false
}

// ValueToHome turns the OIDs in a node's value into those of the home node, in place. The type is given by the
// home node's OID.
func (m *OIDMap) ValueToHome(oid uint32, value []byte) error {
	w := oidWalk{m, true, 0}
	return w.value(oid, value)
}

// ValueToNode is the way back.
func (m *OIDMap) ValueToNode(oid uint32, value []byte) error {
	w := oidWalk{m, false, 0}
	return w.value(oid, value)
}

// oidWalk goes through a value. Types are known by the home node's OIDs on the way.
type oidWalk struct {
	m      *OIDMap
	toHome bool
	depth  int
}

// translate replaces the OID at the beginning of b and returns the type by the home node's OID.
func (w *oidWalk) translate(b []byte) uint32 {
	oid := binary.BigEndian.Uint32(b)
	if oid < FirstUserOID {
		return oid
	}
	from := w.m.back
	if w.toHome {
		from = w.m.types
	}
	other, ok := from[oid]
	if !ok {
		return 0 // whoever reads it refuses a type that does not exist
	}
	binary.BigEndian.PutUint32(b, other)
	if w.toHome {
		return other
	}
	return oid
}

func (w *oidWalk) value(oid uint32, b []byte) error {
	if !w.m.HasOIDs(oid) {
		return nil
	}
	if w.depth++; w.depth > maxTypeDepth {
		return ErrOIDValue
	}
	defer func() { w.depth-- }()
	f := w.m.forms[oid]
	switch f.kind {
	case 'a':
		return w.array(b)
	case 'c':
		return w.record(b)
	case 'r':
		return w.span(f.of, b)
	case 'm':
		return w.multirange(f.of, b)
	}
	return w.value(f.of, b)
}

// array is the number of dimensions, flags, the element's type, two numbers for each dimension, and the elements.
func (w *oidWalk) array(b []byte) error {
	if len(b) < 12 {
		return ErrOIDValue
	}
	element := w.translate(b[8:])
	dimensions := binary.BigEndian.Uint32(b)
	if dimensions > 6 || len(b) < 12+8*int(dimensions) {
		return ErrOIDValue
	}
	if !w.m.HasOIDs(element) {
		return nil
	}
	for b = b[12+8*dimensions:]; len(b) > 0; {
		rest, err := w.sized(element, b)
		if err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// record is the number of columns, and each one's type and value.
func (w *oidWalk) record(b []byte) error {
	if len(b) < 4 {
		return ErrOIDValue
	}
	for b = b[4:]; len(b) > 0; {
		if len(b) < 8 {
			return ErrOIDValue
		}
		rest, err := w.sized(w.translate(b), b[4:])
		if err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// span is flags and the bounds that there are.
func (w *oidWalk) span(of uint32, b []byte) error {
	if len(b) < 1 {
		return ErrOIDValue
	}
	for b = b[1:]; len(b) > 0; {
		rest, err := w.sized(of, b)
		if err != nil {
			return err
		}
		b = rest
	}
	return nil
}

func (w *oidWalk) multirange(of uint32, b []byte) error {
	if len(b) < 4 {
		return ErrOIDValue
	}
	for b = b[4:]; len(b) > 0; {
		rest, err := w.sized(of, b)
		if err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// sized is a value behind its length, which is -1 for NULL; it returns what comes after it.
func (w *oidWalk) sized(oid uint32, b []byte) ([]byte, error) {
	if len(b) < 4 {
		return nil, ErrOIDValue
	}
	size := int32(binary.BigEndian.Uint32(b))
	b = b[4:]
	if size < 0 {
		return b, nil
	}
	if int(size) > len(b) {
		return nil, ErrOIDValue
	}
	return b[size:], w.value(oid, b[:size])
}
