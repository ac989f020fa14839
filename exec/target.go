// Package exec runs plans: it finds the nodes a plan leads to, holds the transaction that spans
// them, and has one file per way of executing.
package exec

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/pgshoal/pgshoal/keyspace"
	"github.com/pgshoal/pgshoal/plan"
)

// Value is an operand's value as it stands in a message.
type Value struct {
	Data   []byte
	Binary bool
	Null   bool
}

// Values looks operands up in the statement that is being executed.
type Values interface {
	Value(o *plan.Operand) (Value, error)
}

// Hasher asks a node for the hash of a value that only PostgreSQL can read. As is the SQL type,
// modifiers included, that the value takes on.
type Hasher interface {
	Hash(key keyspace.Type, as string, text []byte) (uint64, error)
}

// SeveralNodes is a statement whose keys lead to more than one node.
type SeveralNodes struct{ Pin plan.Pin }

func (e *SeveralNodes) Error() string {
	return fmt.Sprintf("the values of %s in this statement lead to several nodes, which is not supported yet", e.Pin.Column)
}

// NullKey is a new row without a key.
type NullKey struct{ Pin plan.Pin }

func (e *NullKey) Error() string {
	return fmt.Sprintf("the key %s of a new row is null", e.Pin.Column)
}

// Target returns the node that a Route leads to.
func Target(m *keyspace.Map, p *plan.Plan, values Values, hasher Hasher) (string, error) {
	if len(p.Pins) == 0 {
		return m.Home, nil
	}
	t := target{m: m, values: values, hasher: hasher}
	for i := range p.Pins {
		if err := t.pin(&p.Pins[i]); err != nil {
			return "", err
		}
	}
	if t.node == "" {
		return m.Home, nil // nothing can match NULL, and any node can say so
	}
	return t.node, nil
}

type target struct {
	m      *keyspace.Map
	values Values
	hasher Hasher
	node   string
}

func (t *target) pin(p *plan.Pin) error {
	d := t.m.Distribution(p.Distribution)
	if d == nil {
		return fmt.Errorf("distribution %d is not in the map", p.Distribution)
	}
	for i := range p.Operands {
		o := &p.Operands[i]
		v, err := t.values.Value(o)
		if err != nil {
			return err
		}
		if v.Null {
			if p.Insert {
				return &NullKey{*p}
			}
			continue
		}
		if !o.Array {
			if err := t.key(d, p, o, v); err != nil {
				return err
			}
			continue
		}
		err = eachElement(v, func(element Value) error {
			if element.Null {
				return nil
			}
			return t.key(d, p, o, element)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// key adds the node of one key value.
func (t *target) key(d *keyspace.Distribution, p *plan.Pin, o *plan.Operand, v Value) error {
	hash, err := Hash(p, o.From, v, t.hasher)
	if err != nil {
		return err
	}
	node := d.FindHash(keyspace.Point(hash)).Node
	if t.node == "" {
		t.node = node
	} else if t.node != node {
		return &SeveralNodes{*p}
	}
	return nil
}

// Hash is the hash of a key in either format; what only PostgreSQL can read, it is asked for.
func Hash(p *plan.Pin, from keyspace.Type, v Value, hasher Hasher) (uint64, error) {
	if p.Insert && p.Cast != "" && !fits(p, v) {
		// Storing the value may change it: round it, or cut blanks off.
		if v.Binary {
			return 0, fmt.Errorf("%w: a binary value for %s, which is %s", keyspace.ErrNotProven, p.Column, p.Cast)
		}
		return hasher.Hash(p.Type, p.Cast, v.Data)
	}
	var hash uint64
	var err error
	if v.Binary {
		hash, err = keyspace.HashBinary(p.Type, from, v.Data)
	} else {
		hash, err = keyspace.HashText(p.Type, from, v.Data)
	}
	if err == nil {
		return hash, nil
	}
	if !v.Binary && (errors.Is(err, keyspace.ErrNotProven) || errors.Is(err, keyspace.ErrInvalid)) {
		as := from.String()
		if from.Canonical() != p.Type.Canonical() {
			return 0, err
		}
		return hasher.Hash(p.Type, as, v.Data)
	}
	return 0, err
}

// fits reports a string that is no longer than its column allows, so that it is stored as it is.
func fits(p *plan.Pin, v Value) bool {
	return p.Length > 0 && utf8.RuneCount(v.Data) <= p.Length
}
