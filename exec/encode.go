package exec

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// CanonicalSQL is the expression that gives a value's text in a form that no setting of the session changes,
// while the value itself is read under the session's settings.
func CanonicalSQL(key keyspace.Type, value string) string {
	switch key {
	case keyspace.Date, keyspace.Timestamp, keyspace.Timestamptz:
		return "pg_catalog.to_json(" + value + ") OPERATOR(pg_catalog.#>>) '{}'" // ISO 8601 under any DateStyle
	case keyspace.Bytea:
		return `pg_catalog.concat(E'\\x', pg_catalog.encode(` + value + ", 'hex'))"
	}
	return "(" + value + ")::pg_catalog.text"
}

// hashOf is the hash of a key; exists is false for a value that no row can have.
func hashOf(k *plan.KeyColumn, from keyspace.Type, v Value, asker Asker) (hash uint64, exists bool, err error) {
	if !k.Assigned || k.Cast == "" || fits(k, v) {
		if v.Binary {
			hash, err = keyspace.HashBinary(k.Type, from, v.Data)
		} else {
			hash, err = keyspace.HashText(k.Type, from, v.Data)
		}
		if err == nil {
			return hash, true, nil
		}
		if errors.Is(err, keyspace.ErrInvalid) && !k.Assigned {
			return 0, false, nil
		}
	}
	read, err := ask(k, from, v, asker)
	if err != nil {
		return 0, false, err
	}
	if read.Binary {
		hash, err = keyspace.HashBinary(k.Type, read.From, read.Data)
	} else {
		hash, err = keyspace.HashText(k.Type, read.From, read.Data)
	}
	if err != nil && errors.Is(err, keyspace.ErrInvalid) && !k.Assigned {
		return 0, false, nil
	}
	return hash, err == nil, err
}

// ask has PostgreSQL read a value: as its own type, or as the column's when storing it may change
// it (round it, cut blanks off) or fail.
func ask(k *plan.KeyColumn, from keyspace.Type, v Value, asker Asker) (keyspace.Value, error) {
	if v.Binary {
		return keyspace.Value{}, fmt.Errorf("%w: a binary value for %s", keyspace.ErrNotProven, k.Column)
	}
	as := from.String()
	switch {
	case k.Assigned && k.Cast != "":
		as, from = k.Cast, k.Type
	case k.Assigned:
		as, from = k.Type.String(), k.Type
	}
	text, err := asker.Canonical(k.Type, as, v.Data)
	if err != nil {
		return keyspace.Value{}, err
	}
	return keyspace.Value{Data: text, From: from}, nil
}

// fits reports a string that is no longer than its column allows, so that it is stored as it is.
func fits(k *plan.KeyColumn, v Value) bool {
	return k.Length > 0 && utf8.RuneCount(v.Data) <= k.Length
}

// keyValue is a value of a key column on its way into a point.
type keyValue struct {
	keyspace.Value
	asked bool // PostgreSQL has read it already
}

// component appends what some values give for one component; exists is false when no row can have them.
func (s *scan) component(dst []byte, c *keyspace.Component, values []*keyValue) (point []byte, exists bool, err error) {
	for {
		point, err = s.encode(dst, c, values)
		var nowhere *keyspace.NoRegion
		switch {
		case err == nil:
			return point, true, nil
		case errors.Is(err, keyspace.ErrInvalid) && !s.assigned(c):
			return dst, false, nil
		case errors.As(err, &nowhere) && !s.pin.Stored:
			return dst, false, nil
		case errors.As(err, &nowhere):
			return dst, false, &Homeless{Column: s.pin.Keys[c.Columns[0]].Column, Value: nowhere.Value}
		case !errors.Is(err, keyspace.ErrNotProven) && !errors.Is(err, keyspace.ErrInvalid):
			return dst, false, err
		}
		again, askErr := s.read(c, values)
		if askErr != nil {
			return dst, false, askErr
		}
		if !again {
			return dst, false, err
		}
	}
}

// Homeless is a new row that belongs to no region of a list.
type Homeless struct{ Column, Value string }

func (e *Homeless) Error() string {
	return fmt.Sprintf("no region is declared for the value %q of %s", e.Value, e.Column)
}

func (s *scan) assigned(c *keyspace.Component) bool {
	for _, i := range c.Columns {
		if s.pin.Keys[i].Assigned {
			return true
		}
	}
	return false
}

func (s *scan) encode(dst []byte, c *keyspace.Component, values []*keyValue) ([]byte, error) {
	s.types, s.plain = s.types[:0], s.plain[:0]
	for i, at := range c.Columns {
		k := &s.pin.Keys[at]
		v := values[i]
		if k.Assigned && k.Cast != "" && !v.asked && !fits(k, Value{Data: v.Data}) {
			return dst, keyspace.ErrNotProven
		}
		s.types, s.plain = append(s.types, k.Type), append(s.plain, v.Value)
	}
	return s.d.Key.AppendComponent(dst, c, s.types, s.plain)
}

// read has PostgreSQL read the values of a component that it has not read yet.
func (s *scan) read(c *keyspace.Component, values []*keyValue) (again bool, err error) {
	for i, at := range c.Columns {
		if values[i].asked {
			continue
		}
		v := values[i].Value
		if values[i].Value, err = ask(&s.pin.Keys[at], v.From, Value{Data: v.Data, Binary: v.Binary}, s.asker); err != nil {
			return false, err
		}
		values[i].asked, again = true, true
	}
	return again, nil
}
